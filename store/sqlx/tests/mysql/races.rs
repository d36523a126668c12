//! Who waits for whom, what is seen afterwards, and what nobody gets to see.

use std::sync::Arc;
use std::time::Duration;

use idempotency::{Claimed, Holder, Settled, Store};
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use crate::common::{Database, Server, races};
use crate::support::{Place, server};
use idempotency_testbed::requests::{claim, duplicate, grant, outcome};

races::races_tests!(Place);

/// The stores' own sessions are at READ COMMITTED, those of the program's pool at REPEATABLE READ, the server's default.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn case_57_duplicates_at_repeatable_read_are_told_of_the_winner() {
    races::duplicates_are_told_of_the_winner(&Place::migrated().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn callers_that_go_away_leave_the_store_in_order() {
    let place = Place::migrated().await;
    let open_transactions = "SELECT COUNT(*) FROM information_schema.innodb_trx \
        JOIN information_schema.processlist ON id = trx_mysql_thread_id WHERE db = DATABASE() AND command = 'Sleep'";
    races::callers_that_go_away_leave_the_store_in_order(&place, open_transactions).await;
}

/// An owner inserts and rolls back while the others wait for its row: they all get a lock that keeps the others from
/// inserting, and deadlock.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn case_60_of_duplicates_whose_owner_rolls_back_one_is_the_new_owner() {
    const DUPLICATES: usize = 10;
    let place = Place::migrated().await;
    let stores = place.real_stores().await;
    let before = deadlocks();
    for round in 0..10 {
        let request = claim(&round.to_string());
        let mut owner = place.connection().await;
        let insert = format!(
            "BEGIN; INSERT INTO idempotency_records (id, format, state, since, fingerprint, nonce, attempt, lease_until, \
             dead_nonces, due) VALUES (x'{}', 1, 'released', 0, '', '', 0, 0, '', 0);",
            request.id
        );
        Place::execute_on(&mut owner, &insert).await;
        let mut claims = JoinSet::new();
        for n in 0..DUPLICATES {
            let (store, request) = (stores[n % 2].clone(), duplicate(&request));
            claims.spawn(async move { store.claim(&request).await.unwrap() });
        }
        waiters(&place, DUPLICATES).await;
        Place::execute_on(&mut owner, "ROLLBACK;").await;
        let claimed = claims.join_all().await;
        let owners = claimed.iter().filter(|claimed| matches!(claimed, Claimed::Granted(_))).count();
        let told = claimed.iter().filter(|claimed| matches!(claimed, Claimed::InFlight { .. })).count();
        assert_eq!((owners, told), (1, DUPLICATES - 1), "round {round}: {claimed:?}");
    }
    assert!(deadlocks() > before, "nobody ever deadlocked: this proves nothing");
}

/// Waits until so many are in the middle of an insert in this database.
async fn waiters(place: &Place, count: usize) {
    let inserting = "SELECT COUNT(*) FROM information_schema.processlist \
        WHERE db = DATABASE() AND command = 'Execute' AND info LIKE '%INSERT INTO idempotency_records%'";
    for _ in 0..500 {
        if place.texts(inserting).await == [count.to_string()] {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("they do not wait");
}

fn deadlocks() -> u64 {
    let status = server().sql("", "SHOW GLOBAL STATUS LIKE 'Innodb_deadlocks'");
    status.rsplit('\t').next().unwrap().parse().unwrap()
}

/// A locking read of a row that is not there, and then an insert, deadlocks with those of other keys in the same gap.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn case_60_different_adjacent_keys_at_once_are_all_granted() {
    const KEYS: usize = 50;
    let place = Place::migrated().await;
    let stores = place.real_stores().await;
    for round in 0..10_u8 {
        let barrier = Arc::new(Barrier::new(KEYS));
        let mut claims = JoinSet::new();
        for n in 0..KEYS {
            let mut id = [round; 32];
            id[31] = u8::try_from(n).unwrap();
            let request = idempotency::Claim { id: idempotency::RecordId::from_bytes(id), ..claim("k") };
            let (store, barrier) = (stores[n % 2].clone(), Arc::clone(&barrier));
            claims.spawn(async move {
                barrier.wait().await;
                let Claimed::Granted(grant) = store.claim(&request).await.unwrap() else { panic!("not granted") };
                let holder = Holder { id: request.id, token: grant.token, nonce: request.nonce };
                assert_eq!(store.complete(&holder, &outcome("answer")).await.unwrap(), Settled::Applied);
            });
        }
        claims.join_all().await;
    }
}

/// The driver always asks for rows found in place of rows changed: an upsert that changes nothing counts as one, like an insert.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn case_61_the_winner_is_told_by_its_nonce_and_not_by_a_count() {
    let place = Place::migrated().await;
    for (n, store) in place.real_stores().await.iter().enumerate() {
        // The same values to the microsecond, but for the nonce.
        let request = claim(&n.to_string());
        let first = grant(store, &request).await;
        assert!(matches!(store.claim(&duplicate(&request)).await.unwrap(), Claimed::InFlight { .. }));
        // And with the same nonce it is the same claim.
        assert_eq!(grant(store, &request).await, first);
        // An update with the values that are there already.
        let lease = idempotency::Lease::default();
        for _ in 0..2 {
            assert_eq!(store.renew(&first, lease).await.unwrap(), Settled::Applied);
        }
        assert_eq!(store.complete(&first, &outcome("answer")).await.unwrap(), Settled::Applied);
        assert_eq!(store.complete(&first, &outcome("answer")).await.unwrap(), Settled::AlreadyApplied);
    }
    let store = place.store().await;
    for key in ["a", "b"] {
        let request = claim(key);
        let holder = grant(&store, &request).await;
        // This clock stands still, so nothing changes at all.
        assert_eq!(store.renew(&holder, idempotency::Lease::default()).await.unwrap(), Settled::Applied);
        assert!(matches!(store.claim(&duplicate(&request)).await.unwrap(), Claimed::InFlight { .. }));
    }
}
