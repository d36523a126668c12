//! An outcome in its effect's own transaction: what every database must do, and what only PostgreSQL can get wrong.

use std::pin::pin;
use std::sync::OnceLock;
use std::task::Poll;
use std::time::{Duration, Instant};

use idempotency::transaction::{self, CommitError, CommitFailure, Fate, TransactionalStore as _};
use idempotency::{Answer, Claimed, Engine, Lease, Outcome, Settings, State, Store as _};
use idempotency_sqlx::{Isolation, PostgresStore, PostgresTransaction, Statements};
use idempotency_testbed::servers::PgBouncer;
use sqlx::Connection as _;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::common::Database as _;
use crate::common::transactions::{Bench, Effects, opening, operation, settings, transactions_tests};
use crate::support::{Place, claim, duplicate, execute, grant, outcome, server};

impl Effects for Place {
    const MANY_WRITERS: bool = true;
    const TABLES: &str = "
        CREATE TABLE effects (name TEXT NOT NULL);
        CREATE TABLE spent (number INTEGER PRIMARY KEY);
        INSERT INTO spent VALUES (1);
        CREATE TABLE promises (number INTEGER REFERENCES spent DEFERRABLE INITIALLY DEFERRED);
        CREATE TABLE accounts (number INTEGER PRIMARY KEY, balance INTEGER NOT NULL);
        INSERT INTO accounts VALUES (1, 100), (2, 100);";

    async fn effect(transaction: &mut PostgresTransaction, name: &str) {
        let insert = sqlx::query("INSERT INTO effects VALUES ($1)").persistent(false).bind(name);
        insert.execute(&mut **transaction).await.unwrap();
    }

    async fn effect_in_savepoint(transaction: &mut PostgresTransaction, name: &str) {
        let mut savepoint = transaction.begin().await.unwrap();
        let insert = sqlx::query("INSERT INTO effects VALUES ($1)").bind(name);
        insert.execute(&mut *savepoint).await.unwrap();
        savepoint.commit().await.unwrap();
    }

    async fn swallow_error(&self, transaction: &mut PostgresTransaction) {
        sqlx::raw_sql("INSERT INTO spent VALUES (1)").execute(&mut **transaction).await.unwrap_err();
    }

    async fn promise(transaction: &mut PostgresTransaction) {
        execute(transaction, "INSERT INTO promises VALUES (2)").await;
    }
}

transactions_tests! { Place, what_commit_refuses_leaves_nothing, of_two_open_transactions_the_first_to_commit_counts }

/// Its own error code, which may mean anything.
#[tokio::test]
async fn a_trigger_that_refuses_at_the_commit_leaves_nothing() {
    let bench = Bench::<Place>::new().await;
    let trigger = "
        CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''no''; END';
        CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON promises DEFERRABLE INITIALLY DEFERRED
            FOR EACH ROW EXECUTE FUNCTION refuse();";
    bench.database.execute(trigger).await;
    let held = bench.claim("k").await;
    let mut transaction = bench.begin(&held).await;
    execute(&mut transaction, "INSERT INTO promises VALUES (1)").await;
    assert!(matches!(bench.commit(&held, transaction).await, Err(CommitError::NotCommitted(_))));
    held.release().await;
    bench.assert_free_and_runs("k").await;
}

/// The session's end may come before the commit or after it: its code does not tell.
#[tokio::test]
async fn a_session_that_is_ended_at_its_commit_is_not_taken_for_certain() {
    let bench = Bench::<Place>::new().await;
    let held = bench.claim("k").await;
    let holder = held.attempt().holder();
    let mut transaction = bench.begin(&held).await;
    assert!(bench.store.record_in(&mut transaction, holder, &outcome("answer")).await.unwrap());
    let session = sqlx::query_scalar::<_, i32>("SELECT pg_backend_pid()").fetch_one(&mut *transaction).await.unwrap();
    // Waits until it has ended.
    bench.database.execute(&format!("SELECT pg_terminate_backend({session}, 20000)")).await;
    let committed = bench.store.commit_transaction(transaction).await;
    assert!(matches!(committed, Err(CommitFailure::Unknown(_))), "{committed:?}");
    assert_eq!(bench.store.fate(holder).await.unwrap(), Fate::NotCommitted);
    held.release().await;
    bench.assert_free_and_runs("k").await;
}

/// `statement_completion_unknown`, of the class of rollbacks: some who speak PostgreSQL's protocol answer it when they lost sight of
/// a commit.
#[tokio::test]
async fn a_server_that_does_not_know_is_not_taken_for_certain() {
    let bench = Bench::<Place>::new().await;
    let trigger = "
        CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
            'BEGIN RAISE EXCEPTION ''who knows'' USING ERRCODE = ''40003''; END';
        CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON promises DEFERRABLE INITIALLY DEFERRED
            FOR EACH ROW EXECUTE FUNCTION refuse();";
    bench.database.execute(trigger).await;
    let held = bench.claim("k").await;
    let holder = held.attempt().holder();
    let mut transaction = bench.begin(&held).await;
    execute(&mut transaction, "INSERT INTO promises VALUES (1)").await;
    assert!(bench.store.record_in(&mut transaction, holder, &outcome("answer")).await.unwrap());
    let committed = bench.store.commit_transaction(transaction).await;
    assert!(matches!(committed, Err(CommitFailure::Unknown(_))), "{committed:?}");
    held.release().await;
}

#[tokio::test]
async fn a_serialisation_failure_at_the_commit_is_certain() {
    let bench = Bench::<Place>::new().await;
    let store = bench.store.inner();
    let (one, other) = (bench.claim("one").await, bench.claim("other").await);
    let mut transactions = Vec::new();
    for (held, account) in [(&one, 1), (&other, 2)] {
        let mut transaction = store.begin_with(held.attempt(), Isolation::Serializable).await.unwrap();
        Place::effect(&mut transaction, held.attempt().key().as_str()).await;
        // Each reads what the other writes.
        let withdraw = format!(
            "DO 'BEGIN PERFORM sum(balance) FROM accounts; END';
             UPDATE accounts SET balance = balance - 150 WHERE number = {account};"
        );
        execute(&mut transaction, &withdraw).await;
        transactions.push(transaction);
    }
    let (mut second, first) = (transactions.pop().unwrap(), transactions.pop().unwrap());
    assert!(store.record_in(&mut second, other.attempt().holder(), &outcome("answer")).await.unwrap());
    bench.commit(&one, first).await.unwrap();
    let committed = store.commit_transaction(second).await;
    assert!(matches!(committed, Err(CommitFailure::NotCommitted(_))), "{committed:?}");
    assert_eq!(bench.state("other").await, State::InFlight);
    other.release().await;
    bench.assert_free_and_runs("other").await;
    bench.assert_done("one", &one).await;
}

/// Holding the row that its successor needs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_stands_still_blocks_its_successor_for_the_limit_at_most() {
    const WITHDRAW: &str = "UPDATE accounts SET balance = balance - 10 WHERE number = 1";
    let place = Place::with_effects().await;
    let store = place.real_options().open().await.unwrap();
    let limit = Lease::new(Duration::from_secs(1)).unwrap();
    let engine = Engine::new(store.clone(), patient().lease(limit).transaction_limit(limit));
    let Answer::Run(stopped) = engine.claim(&operation("k")).await.unwrap() else { panic!("granted") };
    let mut its_own = store.begin(stopped.attempt()).await.unwrap();
    execute(&mut its_own, WITHDRAW).await;
    let stops = Instant::now();

    let successor = loop {
        match engine.claim(&operation("k")).await.unwrap() {
            Answer::Run(held) => break held,
            Answer::DoNot(Claimed::InFlight { .. }) => sleep(Duration::from_millis(20)).await,
            Answer::DoNot(other) => panic!("{other:?}"),
        }
    };
    let mut transaction = store.begin(successor.attempt()).await.unwrap();
    execute(&mut transaction, WITHDRAW).await;
    // Its own patience with a lock is 5 s.
    assert!(stops.elapsed() < Duration::from_secs(4), "{:?}", stops.elapsed());
    store.commit(successor.attempt(), transaction, outcome("the successor's")).await.unwrap();

    let late = store.commit(stopped.attempt(), its_own, outcome("late")).await;
    assert!(matches!(late, Err(CommitError::NotCommitted(_))), "{late:?}");
    assert_eq!(place.texts("SELECT balance FROM accounts WHERE number = 1").await, ["90"]);
    let Answer::DoNot(Claimed::Replay { outcome: replayed, .. }) = engine.claim(&operation("k")).await.unwrap() else {
        panic!("completed")
    };
    assert_eq!(replayed, outcome("the successor's"));
}

fn patient() -> Settings {
    settings().store_timeout(Duration::from_secs(20)).unwrap()
}

/// A session in a transaction that nobody knows of would swallow what stands alone on it later.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_leaves_while_a_transaction_begins_leaves_the_pool_in_order() {
    let place = Place::at(server().create_database("leavers"));
    place.options().migrate().await.unwrap();
    let direct = place.real_options().statements(Statements::PreparedOnce).connections(2);
    let store = direct.open().await.unwrap();
    let reader = place.real_options().open().await.unwrap();
    for cut in 0..100 {
        leave_after(1 + cut % 10, store.open_transaction(opening())).await;
        let request = claim(&cut.to_string());
        grant(&store, &request).await;
        let told = reader.claim(&duplicate(&request)).await.unwrap();
        assert!(matches!(told, Claimed::InFlight { .. }), "cut {cut}: a grant was not committed: {told:?}");
    }
    let open = "SELECT count(*) FROM pg_stat_activity
        WHERE datname = current_database() AND state LIKE 'idle in transaction%'";
    let none_open = async {
        while place.texts(open).await != ["0"] {
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(Duration::from_secs(20), none_open).await.expect("somebody left a transaction open");
}

/// Polls so many times, as often as it wakes, and leaves.
async fn leave_after(polls: u32, future: impl Future) {
    let mut future = pin!(future);
    let mut polled = 0;
    std::future::poll_fn(|context| {
        polled += 1;
        match future.as_mut().poll(context) {
            Poll::Pending if polled < polls => Poll::Pending,
            _ => Poll::Ready(()),
        }
    })
    .await;
}

/// The proxy gives its sessions to others between two transactions, and what was set in one must not be there in the next.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn through_a_proxy_that_pools_transactions_effects_and_outcomes_come_together() {
    static PROXY: OnceLock<PgBouncer> = OnceLock::new();
    let place = Place::at(server().create_database("proxied_effects"));
    place.options().migrate().await.unwrap();
    place.execute(Place::TABLES).await;
    let proxied = Place::at(PROXY.get_or_init(|| PgBouncer::start(server())).url("proxied_effects"));
    let store = proxied.real_options().connections(20).open().await.unwrap();
    let engine = Engine::new(store.clone(), patient());
    let mut attempts = JoinSet::new();
    for n in 0..40 {
        let (engine, store) = (engine.clone(), store.clone());
        attempts.spawn(async move { charge_through(&engine, &store, n).await });
    }
    attempts.join_all().await;
    for n in 0..40 {
        assert_eq!(place.effects(&n.to_string()).await, u32::from(n % 4 != 0), "{n}");
    }
    for setting in ["idle_in_transaction_session_timeout", "lock_timeout", "transaction_isolation"] {
        let default = place.texts(&format!("SHOW {setting}")).await;
        assert_eq!(proxied.texts(&format!("SHOW {setting}")).await, default, "{setting}");
    }
}

/// Every fourth leaves its transaction without a commit.
async fn charge_through(engine: &Engine<PostgresStore>, store: &PostgresStore, n: usize) {
    let Answer::Run(held) = engine.claim(&operation(&n.to_string())).await.unwrap() else { panic!("granted") };
    let isolation = [Isolation::ReadCommitted, Isolation::RepeatableRead][n % 2];
    let mut transaction = store.begin_with(held.attempt(), isolation).await.unwrap();
    Place::effect(&mut transaction, &n.to_string()).await;
    if n.is_multiple_of(4) {
        drop(transaction);
        held.release().await;
        return;
    }
    transaction::commit(store, held.attempt(), transaction, Outcome::not_kept(201)).await.unwrap();
    let duplicate = engine.claim(&operation(&n.to_string())).await.unwrap();
    assert!(matches!(duplicate, Answer::DoNot(Claimed::Executed(_))), "{duplicate:?}");
}

/// Without its effect there is nothing to record.
#[tokio::test]
async fn a_transaction_that_was_ended_by_hand_records_nothing() {
    for end in ["ROLLBACK", "ROLLBACK; BEGIN", "COMMIT"] {
        let bench = Bench::<Place>::new().await;
        let held = bench.claim("k").await;
        let mut transaction = bench.begin(&held).await;
        execute(&mut transaction, end).await;
        let committed = bench.commit(&held, transaction).await;
        assert!(committed.is_err(), "{end}: {committed:?}");
        let entry = bench.store.inspect(&operation("k").record_id()).await.unwrap().unwrap();
        assert_ne!(entry.state, State::Completed, "{end}");
    }
}
