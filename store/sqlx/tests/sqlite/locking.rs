//! One writer at a time: who waits for whom, and for how long.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use idempotency::time::{Clock, SystemClock};
use idempotency::{Claim, Claimed, Lease, Outcome, Settled, Store, StoreErrorKind};
use sqlx::SqliteConnection;
use tokio::task::JoinSet;

use crate::common::races::is_renewed;
use crate::support::{DEAD_FOR, File, PATIENT, claim, duplicate, grant, granted, outcome, renewing, run};

async fn execute(connection: &mut SqliteConnection, statement: &'static str) -> Result<(), sqlx::Error> {
    sqlx::raw_sql(statement).execute(connection).await.map(drop)
}

#[tokio::test]
async fn answers_that_need_no_write_come_while_somebody_writes() {
    let file = File::migrated().await;
    let store = file.options().open().await.unwrap();
    let (done, running, doubtful) = (claim("done"), claim("running"), claim("doubtful"));
    run(&store, &done, &outcome("answer")).await;
    grant(&store, &running).await;
    let holder = grant(&store, &doubtful).await;
    store.mark_in_doubt(&holder, None).await.unwrap();
    let other_request = Claim { fingerprint: claim("other").fingerprint, ..duplicate(&done) };

    let mut other = file.connection().await;
    execute(&mut other, "BEGIN IMMEDIATE; DELETE FROM idempotency_records;").await.unwrap();
    let begun = Instant::now();
    assert!(matches!(store.claim(&duplicate(&done)).await.unwrap(), Claimed::Replay { .. }));
    assert_eq!(store.claim(&other_request).await.unwrap(), Claimed::Mismatch);
    assert!(matches!(store.claim(&duplicate(&running)).await.unwrap(), Claimed::InFlight { .. }));
    assert!(matches!(store.claim(&running).await.unwrap(), Claimed::Granted(_)), "its own nonce");
    assert!(matches!(store.claim(&duplicate(&doubtful)).await.unwrap(), Claimed::InDoubt(_)));
    assert!(store.inspect(&done.id).await.unwrap().is_some());
    assert!(begun.elapsed() < Duration::from_secs(1), "nobody waited");

    let begun = Instant::now();
    let error = store.claim(&claim("fresh")).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Busy);
    assert!(begun.elapsed() >= Duration::from_millis(990), "it waited: {:?}", begun.elapsed());
    execute(&mut other, "ROLLBACK;").await.unwrap();
    granted(store.claim(&claim("fresh")).await.unwrap());
}

/// It has its answer before it asks for the write lock. It does not wait for it as others do; and where they would be refused, it is
/// not.
#[tokio::test]
async fn a_hit_that_renews_is_answered_while_somebody_writes() {
    let file = File::migrated().await;
    let (patient, brief) = (Duration::from_secs(60), Duration::from_millis(50));
    let [patient, brief] = [patient, brief].map(|timeout| file.options().busy_timeout(timeout));
    let (patient, brief) = (patient.open().await.unwrap(), brief.open().await.unwrap());
    let done = claim("done");
    run(&patient, &done, &Outcome::not_kept(201)).await;
    let mut other = file.connection().await;
    execute(&mut other, "BEGIN IMMEDIATE;").await.unwrap();
    let begun = Instant::now();
    for store in [&brief, &patient] {
        assert!(matches!(store.claim(&renewing(&done)).await.unwrap(), Claimed::Executed(_)));
    }
    assert!(begun.elapsed() < Duration::from_secs(10), "it did not wait until there is no more to wait for");
    execute(&mut other, "ROLLBACK;").await.unwrap();
    is_renewed(&file, 1).await;
}

#[tokio::test]
async fn a_claim_is_granted_when_the_other_writer_ends_in_time() {
    let file = File::migrated().await;
    let store = file.store().await;
    let mut other = file.connection().await;
    execute(&mut other, "BEGIN IMMEDIATE;").await.unwrap();
    let waiting = tokio::spawn({
        let store = store.clone();
        async move { store.claim(&claim("k")).await }
    });
    tokio::time::sleep(Duration::from_millis(300)).await;
    execute(&mut other, "COMMIT;").await.unwrap();
    granted(waiting.await.unwrap().unwrap());
}

/// The busy timeout counts from when an operation asks, not from when it is first in the queue.
#[tokio::test]
async fn a_queue_behind_a_foreign_writer_is_busy_all_at_once() {
    let file = File::migrated().await;
    let store = file.options().busy_timeout(Duration::from_millis(200)).open().await.unwrap();
    let mut other = file.connection().await;
    execute(&mut other, "BEGIN IMMEDIATE;").await.unwrap();
    let begun = Instant::now();
    let mut claims = JoinSet::new();
    for n in 0..20 {
        let store = store.clone();
        claims.spawn(async move { store.claim(&claim(&n.to_string())).await });
    }
    for claimed in claims.join_all().await {
        assert_eq!(claimed.unwrap_err().kind(), StoreErrorKind::Busy);
    }
    assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
}

/// A token from before the wait could be below one that was granted during it.
#[tokio::test]
async fn the_clock_is_read_with_the_write_lock_held() {
    let file = File::migrated().await;
    let store = file.real_store().await;
    let mut other = file.connection().await;
    execute(&mut other, "BEGIN IMMEDIATE;").await.unwrap();
    let waiting = tokio::spawn({
        let store = store.clone();
        async move { store.claim(&claim("k")).await }
    });
    tokio::time::sleep(Duration::from_millis(300)).await;
    let freed_at = SystemClock.now();
    execute(&mut other, "COMMIT;").await.unwrap();
    let token = granted(waiting.await.unwrap().unwrap()).token;
    // SQLite's clock counts in milliseconds.
    assert!(token.get() + 1000 >= freed_at.micros().unsigned_abs(), "{token} before {freed_at:?}");
}

#[tokio::test]
async fn what_a_plain_read_saw_is_decided_again_under_the_lock() {
    let file = File::migrated().await;
    let store = file.store().await;
    let (first, second) = (claim("first"), Claim { fingerprint: claim("first").fingerprint, ..claim("second") });
    grant(&store, &first).await;
    let mut other = file.connection().await;
    execute(&mut other, "BEGIN IMMEDIATE;").await.unwrap();
    let waiting = tokio::spawn({
        let (store, second) = (store.clone(), second.clone());
        async move { store.claim(&second).await }
    });
    // It has read that the key is free by now, and waits for the lock. Whoever holds that claims the key.
    tokio::time::sleep(Duration::from_millis(300)).await;
    let claims = sqlx::query("UPDATE idempotency_records SET id = ?1").bind(second.id.as_bytes().to_vec());
    claims.execute(&mut other).await.unwrap();
    execute(&mut other, "COMMIT;").await.unwrap();
    let claimed = waiting.await.unwrap().unwrap();
    assert!(matches!(claimed, Claimed::InFlight { .. }), "{claimed:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_many_claimers_at_two_stores_one_wins() {
    let file = File::migrated().await;
    let stores = [file.store().await, file.store().await];
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

/// A deferred transaction that reads first and writes later fails at once when somebody wrote in between.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn case_63_fifty_writers_at_two_stores_meet_no_error() {
    const WRITERS: usize = 50;
    const KEYS: usize = 8;
    let file = File::migrated().await;
    let stores = [file.real_store().await, file.real_store().await];
    let effects = Arc::new(Mutex::new(HashMap::new()));
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        let (store, effects) = (stores[writer % 2].clone(), effects.clone());
        writers.spawn(async move {
            for n in 0..KEYS {
                let key = format!("{writer}-{n}");
                let request = claim(&key);
                let holder = grant(&store, &request).await;
                *effects.lock().unwrap().entry(key).or_insert(0) += 1;
                assert_eq!(store.renew(&holder, Lease::default()).await.unwrap(), Settled::Applied);
                assert_eq!(store.complete(&holder, &outcome("answer")).await.unwrap(), Settled::Applied);
                assert!(matches!(store.claim(&duplicate(&request)).await.unwrap(), Claimed::Replay { .. }));
            }
        });
    }
    writers.join_all().await;
    let effects = effects.lock().unwrap();
    assert_eq!(effects.len(), WRITERS * KEYS);
    assert!(effects.values().all(|times| *times == 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_busy_process_leaves_room_for_another() {
    let file = File::migrated().await;
    let (busy, other) = (file.real_store().await, file.real_store().await);
    let mut writers = JoinSet::new();
    for writer in 0..16 {
        let store = busy.clone();
        writers.spawn(async move {
            for n in 0.. {
                grant(&store, &claim(&format!("{writer}-{n}"))).await;
            }
        });
    }
    let mut longest = Duration::ZERO;
    for n in 0..20 {
        let begun = Instant::now();
        grant(&other, &claim(&format!("other-{n}"))).await;
        longest = longest.max(begun.elapsed());
    }
    writers.abort_all();
    assert!(longest < Duration::from_secs(5), "{longest:?}");
}

#[tokio::test]
async fn a_write_that_fails_leaves_no_lock_and_a_usable_store() {
    let file = File::migrated().await;
    let store = file.store().await;
    let request = claim("k");
    for trigger in [
        "CREATE TRIGGER t BEFORE INSERT ON idempotency_records BEGIN SELECT raise(ABORT, 'no'); END;",
        "CREATE TRIGGER t BEFORE INSERT ON idempotency_records BEGIN SELECT raise(ROLLBACK, 'no'); END;",
        "CREATE TRIGGER t BEFORE INSERT ON idempotency_records BEGIN SELECT raise(FAIL, 'no'); END;",
    ] {
        file.execute(trigger).await;
        assert_eq!(store.claim(&request).await.unwrap_err().kind(), StoreErrorKind::Refused);
        let mut other = file.connection().await;
        // The failed connection is closed in the background.
        for _ in 0..1000 {
            if execute(&mut other, "BEGIN IMMEDIATE;").await.is_ok() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        execute(&mut other, "DROP TRIGGER t; COMMIT;").await.unwrap();
        assert_eq!(store.inspect(&request.id).await.unwrap(), None);
    }
    granted(store.claim(&request).await.unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn callers_that_go_away_leave_the_store_in_order() {
    let file = File::migrated().await;
    let store = file.options().readers(2).busy_timeout(PATIENT).open().await.unwrap();
    for n in 0..300_u64 {
        let request = claim(&n.to_string());
        // Cut off after some microseconds: before, between and after the statements.
        let cut_off = Duration::from_micros(n * 5);
        let _ = tokio::time::timeout(cut_off, store.claim(&request)).await;
        let _ = tokio::time::timeout(cut_off, store.list(&idempotency::List::default())).await;
        let _ = tokio::time::timeout(cut_off, store.abandon(&request.id, duplicate(&request).nonce, DEAD_FOR)).await;
    }
    let begun = Instant::now();
    let mut checks = JoinSet::new();
    for n in 0..300 {
        let store = store.clone();
        checks.spawn(async move {
            let request = claim(&n.to_string());
            let claimed = store.claim(&request).await.unwrap();
            assert!(matches!(claimed, Claimed::Granted(_) | Claimed::InFlight { .. }), "{claimed:?}");
        });
    }
    checks.join_all().await;
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
}

/// Whoever polls once and never again has sent the operation off all the same.
#[tokio::test]
async fn an_operation_whose_caller_is_gone_is_carried_out() {
    let file = File::migrated().await;
    let store = file.store().await;
    let request = claim("k");
    let holder = grant(&store, &request).await;
    let mut other = file.connection().await;
    execute(&mut other, "BEGIN IMMEDIATE;").await.unwrap();
    await_once(store.complete(&holder, &outcome("answer"))).await;
    execute(&mut other, "COMMIT;").await.unwrap();
    for _ in 0..100 {
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
