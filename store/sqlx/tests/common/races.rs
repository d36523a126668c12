//! Who waits for whom, what is seen afterwards, and what nobody gets to see.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use idempotency::time::{Clock, SystemClock};
use idempotency::{Claim, Claimed, Holder, Lease, Outcome, Settled, Store, StoreErrorKind};
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use super::{Database, Server, age};
use idempotency_testbed::requests::{DEAD_FOR, HOUR, claim, duplicate, grant, granted, outcome, renewing, run};

const TAKE_ALL: &str = "BEGIN; SELECT 1 FROM idempotency_records FOR UPDATE;";

/// Case 57. An insert that does nothing gives no row, and a read that follows may not see the row of a claim that is not
/// committed, or of a record that was swept in between. Nobody is told of either.
pub(crate) async fn duplicates_are_told_of_the_winner<S: Server>(place: &S) {
    let stores = place.real_stores().await;
    for round in 0..20 {
        // What the round before left is over, so that claims of the same key meet its purge.
        age(place, 100 * 24 * HOUR).await;
        one_round(&stores, round).await;
    }
}

async fn one_round<T: Store + Clone>(stores: &[T], round: usize) {
    const DUPLICATES: usize = 30;
    let request = claim("k");
    let barrier = Arc::new(Barrier::new(DUPLICATES + stores.len()));
    let mut sweepers = JoinSet::new();
    for store in stores {
        let (store, barrier) = (store.clone(), Arc::clone(&barrier));
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
        // Most rounds have all kinds of stores, the others one.
        let store = stores[if round.is_multiple_of(3) { round } else { n } % stores.len()].clone();
        let (request, barrier, winners) = (duplicate(&request), Arc::clone(&barrier), Arc::clone(&winners));
        claims.spawn(async move {
            barrier.wait().await;
            match store.claim(&request).await.unwrap() {
                Claimed::Granted(grant) => {
                    winners.fetch_add(1, Ordering::Relaxed);
                    assert_eq!(grant.attempt, 1);
                    let holder = Holder { id: request.id, token: grant.token, nonce: request.nonce };
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

pub(crate) async fn answers_that_need_no_write_come_while_somebody_has_the_row<S: Server>() {
    let place = S::migrated().await;
    for (n, store) in place.real_stores().await.iter().enumerate() {
        let (done, running) = (claim(&format!("done-{n}")), claim(&format!("running-{n}")));
        run(store, &done, &outcome("answer")).await;
        grant(store, &running).await;
        let mut other = place.connection().await;
        S::execute_on(&mut other, TAKE_ALL).await;
        let begun = Instant::now();
        assert!(matches!(store.claim(&duplicate(&done)).await.unwrap(), Claimed::Replay { .. }));
        assert!(matches!(store.claim(&duplicate(&running)).await.unwrap(), Claimed::InFlight { .. }));
        assert!(matches!(store.claim(&running).await.unwrap(), Claimed::Granted(_)), "its own nonce");
        let mismatch = Claim { fingerprint: claim("other").fingerprint, ..duplicate(&done) };
        assert_eq!(store.claim(&mismatch).await.unwrap(), Claimed::Mismatch);
        assert!(store.inspect(&done.id).await.unwrap().is_some());
        assert!(begun.elapsed() < Duration::from_secs(4), "nobody waited");
        S::execute_on(&mut other, "ROLLBACK;").await;
    }
}

/// It has its answer before it asks for the row, and its renewal is carried out later.
pub(crate) async fn a_hit_that_renews_is_answered_while_somebody_has_the_row<S: Server>() {
    let place = S::migrated().await;
    for (n, store) in place.real_stores().await.iter().enumerate() {
        let done = claim(&n.to_string());
        run(store, &done, &Outcome::not_kept(201)).await;
        let mut other = place.connection().await;
        S::execute_on(&mut other, TAKE_ALL).await;
        let begun = Instant::now();
        assert!(matches!(store.claim(&renewing(&done)).await.unwrap(), Claimed::Executed(_)));
        assert!(begun.elapsed() < Duration::from_secs(4), "it did not wait for the row");
        S::execute_on(&mut other, "ROLLBACK;").await;
        is_renewed(&place, n + 1).await;
    }
}

/// Waits until so many records have a tombstone window of two days.
pub(crate) async fn is_renewed(place: &impl Database, records: usize) {
    let renewed = "SELECT concat('', count(*)) FROM idempotency_records WHERE tombstone_window = 172800000000";
    for _ in 0..1000 {
        if place.texts(renewed).await == [records.to_string()] {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("the renewal was lost");
}

/// A time from before the wait could be before things that happened during it.
pub(crate) async fn the_clock_is_read_with_the_row_locked<S: Server>() {
    let place = S::migrated().await;
    for (n, store) in place.real_stores().await.iter().enumerate() {
        let request = claim(&n.to_string());
        let holder = grant(store, &request).await;
        store.release(&holder, DEAD_FOR).await.unwrap();
        let mut other = place.connection().await;
        S::execute_on(&mut other, TAKE_ALL).await;
        let waiting = tokio::spawn({
            let (store, request) = (store.clone(), duplicate(&request));
            async move { store.claim(&request).await }
        });
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert!(!waiting.is_finished(), "it waits for the row");
        let freed_at = SystemClock.now();
        S::execute_on(&mut other, "COMMIT;").await;
        let token = granted(waiting.await.unwrap().unwrap()).token;
        assert!(token.get() >= freed_at.micros().unsigned_abs(), "{token} before {freed_at:?}");
    }
}

pub(crate) async fn a_lease_that_ends_while_its_renewal_waits_is_not_renewed<S: Server>() {
    let place = S::migrated().await;
    for (n, store) in place.real_stores().await.iter().enumerate() {
        let lease = Lease::new(Duration::from_secs(1)).unwrap();
        let request = Claim { lease, ..claim(&n.to_string()) };
        let holder = grant(store, &request).await;
        let mut other = place.connection().await;
        S::execute_on(&mut other, TAKE_ALL).await;
        let waiting = tokio::spawn({
            let store = store.clone();
            async move { store.renew(&holder, lease).await }
        });
        tokio::time::sleep(Duration::from_millis(1200)).await;
        S::execute_on(&mut other, "COMMIT;").await;
        assert_eq!(waiting.await.unwrap().unwrap(), Settled::Superseded);
    }
}

/// The row that a waiting statement gets is judged in its newest version.
pub(crate) async fn what_changed_during_the_wait_decides<S: Server>() {
    let place = S::migrated().await;
    for (n, store) in place.real_stores().await.iter().enumerate() {
        let request = claim(&n.to_string());
        let holder = grant(store, &request).await;
        let mut other = place.connection().await;
        S::execute_on(&mut other, "BEGIN; UPDATE idempotency_records SET token = token + 1;").await;
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
        S::execute_on(&mut other, "COMMIT;").await;
        for settled in tasks {
            assert_eq!(settled.await.unwrap(), Settled::Superseded);
        }
    }
}

pub(crate) async fn a_row_that_somebody_holds_for_long_is_busy<S: Server>() {
    let place = S::migrated().await;
    for (n, store) in place.real_stores().await.iter().enumerate() {
        let holder = grant(store, &claim(&n.to_string())).await;
        let mut other = place.connection().await;
        S::execute_on(&mut other, TAKE_ALL).await;
        let begun = Instant::now();
        let error = store.complete(&holder, &outcome("answer")).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Busy);
        assert!((4..20).contains(&begun.elapsed().as_secs()), "{:?}", begun.elapsed());
        S::execute_on(&mut other, "ROLLBACK;").await;
        assert_eq!(store.complete(&holder, &outcome("answer")).await.unwrap(), Settled::Applied);
    }
}

pub(crate) async fn of_many_claimers_at_several_stores_one_wins<S: Server>() {
    let place = S::migrated().await;
    let stores = place.real_stores().await;
    for key in 0..40 {
        let request = claim(&key.to_string());
        let mut claims = JoinSet::new();
        for n in 0..8 {
            let (store, request) = (stores[n % stores.len()].clone(), duplicate(&request));
            claims.spawn(async move { store.claim(&request).await.unwrap() });
        }
        let claimed = claims.join_all().await;
        let winners = claimed.iter().filter(|claimed| matches!(claimed, Claimed::Granted(_))).count();
        assert_eq!(winners, 1, "key {key}: {claimed:?}");
    }
}

/// `open_transactions` gives one number: how many transactions are open in this database.
pub(crate) async fn callers_that_go_away_leave_the_store_in_order<S: Server>(place: &S, open_transactions: &str) {
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
    let give_up = Instant::now() + Duration::from_secs(5);
    while place.texts(open_transactions).await != ["0"] {
        assert!(Instant::now() < give_up, "somebody left a transaction open");
        // MariaDB looks anew only after a tenth of a second without such a question.
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// Whoever polls once and never again has sent the operation off all the same.
pub(crate) async fn an_operation_whose_caller_is_gone_is_carried_out<S: Server>() {
    let place = S::migrated().await;
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

macro_rules! races_tests {
    ($server:ty) => {
        crate::common::tests_of! { $server, races:
            answers_that_need_no_write_come_while_somebody_has_the_row
            a_hit_that_renews_is_answered_while_somebody_has_the_row
            the_clock_is_read_with_the_row_locked
            a_lease_that_ends_while_its_renewal_waits_is_not_renewed
            what_changed_during_the_wait_decides
            a_row_that_somebody_holds_for_long_is_busy
            of_many_claimers_at_several_stores_one_wins
            an_operation_whose_caller_is_gone_is_carried_out
        }
    };
}
pub(crate) use races_tests;
