//! An outcome in its effect's own transaction: what every database must do, and what only SQLite can get wrong.

use std::time::{Duration, Instant};

use idempotency::faults::FaultyStore;
use idempotency::trace::TraceWriter;
use idempotency::transaction::{Opening, TransactionalStore as _};
use idempotency::{Answer, Claim, Claimed, Engine, Outcome, Store as _, StoreError, StoreErrorKind, recorded, run_in};
use idempotency_sqlx::SqliteTransaction;
use sqlx::Connection as _;

use crate::common::transactions::{Effects, opening, operation, settings, transactions_tests};
use crate::support::{File, claim, duplicate, grant, granted, outcome, run};

impl Effects for File {
    const MANY_WRITERS: bool = false;
    const TABLES: &str = "
        CREATE TABLE effects (name TEXT NOT NULL) STRICT;
        CREATE TABLE spent (number INTEGER PRIMARY KEY) STRICT;
        INSERT INTO spent VALUES (1);
        CREATE TABLE promises (number INTEGER REFERENCES spent (number) DEFERRABLE INITIALLY DEFERRED) STRICT;";

    async fn effect(transaction: &mut SqliteTransaction, name: &str) {
        sqlx::query("INSERT INTO effects VALUES (?1)").bind(name).execute(&mut **transaction).await.unwrap();
    }

    async fn effect_in_savepoint(transaction: &mut SqliteTransaction, name: &str) {
        sqlx::raw_sql("SAVEPOINT mine").execute(&mut **transaction).await.unwrap();
        Self::effect(transaction, name).await;
        sqlx::raw_sql("RELEASE mine").execute(&mut **transaction).await.unwrap();
    }

    async fn swallow_error(&self, transaction: &mut SqliteTransaction) {
        sqlx::raw_sql("INSERT OR ROLLBACK INTO spent VALUES (1)").execute(&mut **transaction).await.unwrap_err();
    }

    async fn promise(transaction: &mut SqliteTransaction) {
        sqlx::raw_sql("INSERT INTO promises VALUES (2)").execute(&mut **transaction).await.unwrap();
    }
}

transactions_tests! { File, what_commit_refuses_leaves_nothing }

/// The log answers what needs no write.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_a_transaction_is_open_others_are_answered_or_busy() {
    let file = File::with_effects().await;
    let store = file.options().busy_timeout(Duration::from_millis(300)).open().await.unwrap();
    let elsewhere = file.options().busy_timeout(Duration::from_millis(300)).open().await.unwrap();
    let (done, running) = (claim("done"), claim("running"));
    run(&store, &done, &outcome("answer")).await;
    let holder = grant(&store, &running).await;
    let mut transaction = store.open_transaction(opening()).await.unwrap();
    File::effect(&mut transaction, "running").await;
    assert!(store.record_in(&mut transaction, &holder, &outcome("answer")).await.unwrap());

    let begun = Instant::now();
    let other_request = Claim { fingerprint: claim("other").fingerprint, ..duplicate(&done) };
    for store in [&store, &elsewhere] {
        assert!(matches!(store.claim(&duplicate(&done)).await.unwrap(), Claimed::Replay { .. }));
        assert_eq!(store.claim(&other_request).await.unwrap(), Claimed::Mismatch);
        assert!(matches!(store.claim(&duplicate(&running)).await.unwrap(), Claimed::InFlight { .. }));
    }
    assert!(begun.elapsed() < Duration::from_millis(300), "nobody waited: {:?}", begun.elapsed());
    for store in [&store, &elsewhere] {
        let begun = Instant::now();
        assert_eq!(store.claim(&claim("fresh")).await.unwrap_err().kind(), StoreErrorKind::Busy);
        let begin = store.open_transaction(opening()).await;
        assert_eq!(begin.unwrap_err().kind(), StoreErrorKind::Busy, "one at a time");
        assert!(begun.elapsed() >= Duration::from_millis(590), "each waited: {:?}", begun.elapsed());
    }

    store.commit_transaction(transaction).await.unwrap();
    assert!(matches!(elsewhere.claim(&duplicate(&running)).await.unwrap(), Claimed::Replay { .. }));
    granted(store.claim(&claim("fresh")).await.unwrap());
    assert_eq!(file.effects("running").await, 1);
}

/// It would commit the transaction around it.
#[tokio::test]
async fn sqlx_does_not_begin_another_within_it() {
    let file = File::with_effects().await;
    let store = file.store().await;
    let mut transaction = store.open_transaction(opening()).await.unwrap();
    assert!(transaction.begin().await.is_err());
}

/// The connection goes back in order: it is used by whoever writes next.
#[tokio::test]
async fn many_transactions_after_one_another_leave_the_store_in_order() {
    let file = File::with_effects().await;
    let store = FaultyStore::new(file.store().await);
    let engine = Engine::new(store.clone(), settings());
    for n in 0..60 {
        let key = n.to_string();
        let Answer::Run(held) = engine.claim(&operation(&key)).await.unwrap() else { panic!("granted") };
        let nonce = held.attempt().holder().nonce;
        let mut transaction = store.open_transaction(Opening { nonce, ..opening() }).await.unwrap();
        File::effect(&mut transaction, &key).await;
        match n % 3 {
            0 => store.roll_back(transaction).await,
            1 => drop(transaction),
            _ => {
                let answer = Outcome::not_kept(201);
                let committed = idempotency::transaction::commit(&store, held.attempt(), transaction, answer);
                committed.await.unwrap();
            }
        }
        assert_eq!(file.effects(&key).await, u32::from(n % 3 == 2));
    }
}

/// What a transaction records, and how long its work took, is in the trace as well.
#[tokio::test]
async fn a_trace_tells_what_a_transaction_recorded() {
    let file = File::with_effects().await;
    let path = file.path().with_extension("csv");
    let writer = TraceWriter::options().create(&path).unwrap();
    let engine = Engine::new(file.store().await, settings().trace(writer.route("work")));
    let key = operation("k");
    for _ in 0..2 {
        run_in(&engine, &key, async |_, _| Ok::<_, StoreError>("a value".to_owned())).await.unwrap();
    }
    run_in(&engine, &operation("fails"), async |_, _| Err::<(), _>("no")).await.unwrap_err();
    writer.flush();
    let size = recorded(&"a value").unwrap().size().to_string();
    let text = std::fs::read_to_string(path).unwrap();
    let told: Vec<(&str, bool)> = text
        .lines()
        .skip(1)
        .map(|line| {
            let columns: Vec<&str> = line.split(',').collect();
            (columns[2], !columns[5].is_empty())
        })
        .collect();
    assert_eq!(told, [(size.as_str(), true), (&size, false), ("0", true)]);
}
