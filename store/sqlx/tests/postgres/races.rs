//! Who waits for whom, what is seen afterwards, and what nobody gets to see.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use idempotency::time::{Clock, SystemClock};
use idempotency::{Claimed, Lease, Settled, Store, StoreErrorKind};
use idempotency_sqlx::{PostgresStore, Statements};
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use crate::support::{DEAD_FOR, HOUR, Place, claim, duplicate, execute, grant, granted, outcome, run, server};

const DUPLICATES: usize = 30;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn case_57_duplicates_at_read_committed_are_told_of_the_winner() {
    duplicates_at("read committed").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn case_57_duplicates_at_repeatable_read_are_told_of_the_winner() {
    duplicates_at("repeatable read").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn case_57_duplicates_at_serializable_are_told_of_the_winner() {
    duplicates_at("serializable").await;
}

/// An insert that does nothing gives no row, and a read that follows may not see the row of a claim that is not committed,
/// or of a record that was swept in between. Nobody is told of either.
async fn duplicates_at(isolation: &str) {
    let database = format!("case_57_{}", isolation.replace(' ', "_"));
    let place = Place::at(server().create_database(&database));
    place.execute(&format!("ALTER DATABASE {database} SET default_transaction_isolation = '{isolation}';")).await;
    place.options().migrate().await.unwrap();
    let direct = place.options().statements(Statements::PreparedOnce).connections(20);
    let stores = [place.options().connections(20).open().await.unwrap(), direct.open().await.unwrap()];
    for round in 0..20 {
        // What the round before left is over, so that claims of the same key meet its purge.
        place.clock.advance(100 * 24 * HOUR);
        one_round(&stores, round).await;
    }
}

async fn one_round(stores: &[PostgresStore; 2], round: usize) {
    const SWEEPERS: usize = 2;
    let request = claim("k");
    let barrier = Arc::new(Barrier::new(DUPLICATES + SWEEPERS));
    let mut sweepers = JoinSet::new();
    for store in stores.clone() {
        let barrier = Arc::clone(&barrier);
        sweepers.spawn(async move {
            barrier.wait().await;
            for _ in 0..5 {
                store.sweep(10).await.unwrap();
            }
        });
    }
    let winners = Arc::new(AtomicU32::new(0));
    let mut claims = JoinSet::new();
    for n in 0..DUPLICATES {
        // Most rounds have both kinds of stores, the others one.
        let store = stores[if round.is_multiple_of(3) { round % 2 } else { n % 2 }].clone();
        let (request, barrier, winners) = (duplicate(&request), Arc::clone(&barrier), Arc::clone(&winners));
        claims.spawn(async move {
            barrier.wait().await;
            match store.claim(&request).await.unwrap() {
                Claimed::Granted(grant) => {
                    winners.fetch_add(1, Ordering::Relaxed);
                    assert_eq!(grant.attempt, 1);
                    let holder = idempotency::Holder { id: request.id, token: grant.token, nonce: request.nonce };
                    assert_eq!(store.complete(&holder, &outcome("answer")).await.unwrap(), Settled::Applied);
                }
                Claimed::InFlight { .. } => {}
                Claimed::Replay { outcome: replayed, .. } => assert_eq!(replayed, outcome("answer")),
                other => panic!("round {round}: {other:?}"),
            }
        });
    }
    claims.join_all().await;
    sweepers.join_all().await;
    assert_eq!(winners.load(Ordering::Relaxed), 1, "round {round}");
    assert!(matches!(stores[0].claim(&duplicate(&request)).await.unwrap(), Claimed::Replay { .. }));
}

#[tokio::test]
async fn answers_that_need_no_write_come_while_somebody_has_the_row() {
    let place = Place::migrated().await;
    for (n, store) in place.real_stores().await.iter().enumerate() {
        let (done, running) = (claim(&format!("done-{n}")), claim(&format!("running-{n}")));
        run(store, &done, &outcome("answer")).await;
        grant(store, &running).await;
        let mut other = place.connection().await;
        execute(&mut other, "BEGIN; SELECT 1 FROM idempotency_records FOR UPDATE;").await;
        let begun = Instant::now();
        assert!(matches!(store.claim(&duplicate(&done)).await.unwrap(), Claimed::Replay { .. }));
        assert!(matches!(store.claim(&duplicate(&running)).await.unwrap(), Claimed::InFlight { .. }));
        assert!(matches!(store.claim(&running).await.unwrap(), Claimed::Granted(_)), "its own nonce");
        assert!(store.inspect(&done.id).await.unwrap().is_some());
        assert!(begun.elapsed() < Duration::from_secs(4), "nobody waited");
        execute(&mut other, "ROLLBACK;").await;
    }
}

/// A time from before the wait could be before things that happened during it.
#[tokio::test]
async fn the_clock_is_read_with_the_row_locked() {
    let place = Place::migrated().await;
    for (n, store) in place.real_stores().await.iter().enumerate() {
        let request = claim(&n.to_string());
        let holder = grant(store, &request).await;
        store.release(&holder, DEAD_FOR).await.unwrap();
        let mut other = place.connection().await;
        execute(&mut other, "BEGIN; SELECT 1 FROM idempotency_records FOR UPDATE;").await;
        let waiting = tokio::spawn({
            let (store, request) = (store.clone(), duplicate(&request));
            async move { store.claim(&request).await }
        });
        tokio::time::sleep(Duration::from_millis(300)).await;
        let freed_at = SystemClock.now();
        execute(&mut other, "COMMIT;").await;
        let token = granted(waiting.await.unwrap().unwrap()).token;
        assert!(token.get() >= freed_at.micros().unsigned_abs(), "{token} before {freed_at:?}");
    }
}

#[tokio::test]
async fn a_lease_that_ends_while_its_renewal_waits_is_not_renewed() {
    let place = Place::migrated().await;
    for (n, store) in place.real_stores().await.iter().enumerate() {
        let lease = Lease::new(Duration::from_secs(1)).unwrap();
        let request = idempotency::Claim { lease, ..claim(&n.to_string()) };
        let holder = grant(store, &request).await;
        let mut other = place.connection().await;
        execute(&mut other, "BEGIN; SELECT 1 FROM idempotency_records FOR UPDATE;").await;
        let waiting = tokio::spawn({
            let store = store.clone();
            async move { store.renew(&holder, lease).await }
        });
        tokio::time::sleep(Duration::from_millis(1200)).await;
        execute(&mut other, "COMMIT;").await;
        assert_eq!(waiting.await.unwrap().unwrap(), Settled::Superseded);
    }
}

/// The row that a waiting statement gets is judged in its newest version.
#[tokio::test]
async fn what_changed_during_the_wait_decides() {
    let place = Place::migrated().await;
    for (n, store) in place.real_stores().await.iter().enumerate() {
        let request = claim(&n.to_string());
        let holder = grant(store, &request).await;
        let mut other = place.connection().await;
        execute(&mut other, "BEGIN; UPDATE idempotency_records SET token = token + 1;").await;
        let tasks: [tokio::task::JoinHandle<Settled>; 2] = [
            tokio::spawn({
                let store = store.clone();
                async move { store.complete(&holder, &outcome("stale")).await.unwrap() }
            }),
            tokio::spawn({
                let store = store.clone();
                async move { store.renew(&holder, Lease::default()).await.unwrap() }
            }),
        ];
        tokio::time::sleep(Duration::from_millis(300)).await;
        execute(&mut other, "COMMIT;").await;
        for settled in tasks {
            assert_eq!(settled.await.unwrap(), Settled::Superseded);
        }
    }
}

#[tokio::test]
async fn a_row_that_somebody_holds_for_long_is_busy() {
    let place = Place::migrated().await;
    for (n, store) in place.real_stores().await.iter().enumerate() {
        let holder = grant(store, &claim(&n.to_string())).await;
        let mut other = place.connection().await;
        execute(&mut other, "BEGIN; SELECT 1 FROM idempotency_records FOR UPDATE;").await;
        let begun = Instant::now();
        let error = store.complete(&holder, &outcome("answer")).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Busy);
        assert!(begun.elapsed() >= Duration::from_secs(4), "{:?}", begun.elapsed());
        execute(&mut other, "ROLLBACK;").await;
        assert_eq!(store.complete(&holder, &outcome("answer")).await.unwrap(), Settled::Applied);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_many_claimers_at_two_stores_one_wins() {
    let place = Place::migrated().await;
    let stores = place.real_stores().await;
    for key in 0..40 {
        let request = claim(&key.to_string());
        let mut claims = JoinSet::new();
        for n in 0..8 {
            let (store, request) = (stores[n % 2].clone(), duplicate(&request));
            claims.spawn(async move { store.claim(&request).await.unwrap() });
        }
        let claimed = claims.join_all().await;
        let winners = claimed.iter().filter(|claimed| matches!(claimed, Claimed::Granted(_))).count();
        assert_eq!(winners, 1, "key {key}: {claimed:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn callers_that_go_away_leave_the_store_in_order() {
    let place = Place::at(server().create_database("callers"));
    place.options().migrate().await.unwrap();
    for (n, store) in place.real_stores().await.iter().enumerate() {
        for cut in 0..200_u64 {
            let request = claim(&format!("{n}-{cut}"));
            // Cut off after some microseconds: before, between and after the statements.
            let cut_off = Duration::from_micros(cut * 20);
            let _ = tokio::time::timeout(cut_off, store.claim(&request)).await;
            let _ = tokio::time::timeout(cut_off, store.list(&idempotency::List::default())).await;
            let _ =
                tokio::time::timeout(cut_off, store.abandon(&request.id, duplicate(&request).nonce, DEAD_FOR)).await;
        }
        for cut in 0..200 {
            let claimed = store.claim(&claim(&format!("{n}-{cut}"))).await.unwrap();
            assert!(matches!(claimed, Claimed::Granted(_) | Claimed::InFlight { .. }), "{claimed:?}");
        }
    }
    let open = "SELECT count(*) FROM pg_stat_activity \
        WHERE datname = current_database() AND state LIKE 'idle in transaction%'";
    let mut other = place.connection().await;
    let give_up = Instant::now() + Duration::from_secs(5);
    while sqlx::query_scalar::<_, i64>(open).fetch_one(&mut other).await.unwrap() > 0 {
        assert!(Instant::now() < give_up, "somebody left a transaction open");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Whoever polls once and never again has sent the operation off all the same.
#[tokio::test]
async fn an_operation_whose_caller_is_gone_is_carried_out() {
    let place = Place::migrated().await;
    let store = place.store().await;
    let request = claim("k");
    let holder = grant(&store, &request).await;
    await_once(store.complete(&holder, &outcome("answer"))).await;
    for _ in 0..500 {
        if matches!(store.claim(&duplicate(&request)).await.unwrap(), Claimed::Replay { .. }) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("the completion was lost");
}

/// Polls once, and is done whatever came of it.
async fn await_once(future: impl Future) {
    let mut future = std::pin::pin!(future);
    std::future::poll_fn(|context| {
        let _ = future.as_mut().poll(context);
        std::task::Poll::Ready(())
    })
    .await;
}
