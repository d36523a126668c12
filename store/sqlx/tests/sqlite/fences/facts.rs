//! What the design rests on, tried.

use std::time::{Duration, Instant};

use idempotency::StoreErrorKind;
use idempotency_sqlx::fence::{FenceError, Fences, SqliteFences};
use sqlx::sqlite::SqlitePoolOptions;
use sqlx::{ConnectOptions, Connection, Executor, SqliteConnection};

use super::Rig;
use super::suite::{self, Rig as _, account, admitted, fresh, is_superseded, refused};

/// Somebody else, who waits so long for a lock.
async fn connect(rig: &Rig, busy_timeout: Duration) -> SqliteConnection {
    rig.options.clone().busy_timeout(busy_timeout).connect().await.unwrap()
}

#[track_caller]
fn code<T: std::fmt::Debug>(result: Result<T, sqlx::Error>) -> i32 {
    result.unwrap_err().as_database_error().unwrap().code().unwrap().parse().unwrap()
}

/// A transaction that reads first and writes later fails when somebody else wrote in between, however patient it is.
/// With IMMEDIATE it has the file from the beginning.
#[tokio::test(flavor = "multi_thread")]
async fn a_deferred_transaction_that_reads_first_cannot_write_and_does_not_wait() {
    let rig = Rig::new().await;
    let mut deferred = connect(&rig, Duration::from_secs(3600)).await;
    deferred.execute("BEGIN").await.unwrap();
    deferred.fetch_one(suite::BALANCE).await.unwrap();
    suite::run(&rig, "UPDATE accounts SET balance = 101 WHERE id = 1").await;
    assert_eq!(code(deferred.execute("UPDATE accounts SET balance = 102 WHERE id = 1").await), BUSY_SNAPSHOT);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_writer_waits_for_the_busy_timeout_and_is_then_told_that_it_is_busy() {
    let rig = Rig::new().await;
    let holder = rig.fences().open(&account()).await.unwrap();
    let busy_timeout = Duration::from_millis(50);
    let mut second = connect(&rig, busy_timeout).await;
    let since = Instant::now();
    assert_eq!(code(second.execute("BEGIN IMMEDIATE").await), BUSY);
    assert!(since.elapsed() >= busy_timeout);

    // An opening is as patient as it was told to be, whatever the connections are.
    let since = Instant::now();
    let patience = Duration::from_millis(100);
    match SqliteFences::new(rig.pool.clone()).patience(patience).open(&account()).await {
        Err(FenceError::Store(error)) if error.kind() == StoreErrorKind::Busy => {}
        answer => panic!("{answer:?}"),
    }
    assert!(since.elapsed() >= patience);
    // Readers wait for nobody.
    second.fetch_one(suite::BALANCE).await.unwrap();
    holder.commit().await.unwrap();
    second.execute("BEGIN IMMEDIATE").await.unwrap();
}

/// The pool takes the connection for one in a transaction ever after, and no other can be begun on it.
#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_that_sqlite_itself_rolled_back_leaves_no_connection_behind() {
    let rig = Rig::new().await;
    let pool = SqlitePoolOptions::new().max_connections(1).connect_with(rig.options.clone()).await.unwrap();
    let fences = SqliteFences::new(pool);
    for _ in 0..3 {
        let mut opened = fences.open(&account()).await.unwrap();
        opened.execute("INSERT OR ROLLBACK INTO accounts (id, balance) VALUES (1, 0)").await.unwrap_err();
        drop(opened);
    }
    fences.open(&account()).await.unwrap().commit().await.unwrap();
}

/// There is no way to take a row: the one write lock is all there is.
#[tokio::test(flavor = "multi_thread")]
async fn rows_cannot_be_locked() {
    let rig = Rig::new().await;
    for lock in ["SELECT 1 FROM accounts FOR UPDATE", "SELECT 1 FROM accounts FOR SHARE"] {
        let error = rig.pool.execute(lock).await.unwrap_err();
        assert_eq!(code::<()>(Err(error)), 1);
    }
}

/// A count of changed rows includes those that were as they were to be.
#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_is_written_as_it_is_counts_as_changed() {
    let rig = Rig::new().await;
    let changed = rig.pool.execute("UPDATE accounts SET balance = balance WHERE id = 1").await.unwrap();
    assert_eq!(changed.rows_affected(), 1);
}

/// The statement that PostgreSQL opens with is right here too, where it has the file.
#[tokio::test(flavor = "multi_thread")]
async fn an_upsert_with_returning_admits_and_refuses() {
    let rig = Rig::new().await;
    let upsert = "INSERT INTO idempotency_fences AS fence (resource, source, token, holder, opened_at)
        VALUES (CAST('x' AS BLOB), 7, ?1, ?2, 0)
        ON CONFLICT (resource) DO UPDATE SET token = excluded.token, holder = excluded.holder
        WHERE fence.token < excluded.token OR (fence.token = excluded.token AND fence.holder = excluded.holder)
        RETURNING token";
    let mut transaction = rig.begin().await;
    for (token, holder, admitted) in [(33, 1, 1), (34, 2, 1), (33, 1, 0), (34, 2, 1), (34, 1, 0), (35, 1, 1)] {
        let statement = sqlx::query(upsert).bind(token).bind(vec![holder; 16]);
        assert_eq!(transaction.fetch_all(statement).await.unwrap().len(), admitted);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn row_values_order_writes_within_a_token() {
    let rig = Rig::new().await;
    suite::run(&rig, "UPDATE accounts SET fencing_token = 33, balance = 1").await;
    for (write, changed) in [
        ("UPDATE accounts SET balance = 2 WHERE id = 1 AND (fencing_token, balance) < (33, 2)", 1),
        ("UPDATE accounts SET balance = 2 WHERE id = 1 AND (fencing_token, balance) < (33, 2)", 0),
        ("UPDATE accounts SET fencing_token = 34, balance = 1 WHERE id = 1 AND (fencing_token, balance) < (34, 1)", 1),
    ] {
        assert_eq!(rig.pool.execute(write).await.unwrap().rows_affected(), changed);
    }
}

/// A stopped writer keeps everybody out until it goes on or dies: what frees the file is the end of its connection.
#[tokio::test(flavor = "multi_thread")]
async fn a_writer_that_died_leaves_the_file_free_and_nothing_behind() {
    let rig = Rig::new().await;
    let fences = rig.fences();
    admitted(&fences, &account(), &fresh(33)).await;
    let mut stopped = connect(&rig, Duration::ZERO).await;
    stopped.execute("BEGIN IMMEDIATE").await.unwrap();
    stopped.execute("UPDATE accounts SET balance = 0").await.unwrap();
    rig.until_waiting().await;
    let (resource, newer) = (account(), fresh(34));
    let (answer, ()) = tokio::join!(fences.open_with(&resource, &newer), async {
        rig.until_waiting().await;
        stopped.close_hard().await.unwrap();
    });
    answer.unwrap().commit().await.unwrap();
    is_superseded(refused(&fences, &account(), &fresh(33)).await, 34);
    assert_eq!(suite::balance(&rig).await, 100);
}

/// A statement that ends the transaction is noticed at the commit.
#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_that_was_ended_by_a_statement_cannot_be_committed() {
    let rig = Rig::new().await;
    let mut opened = rig.fences().open(&account()).await.unwrap();
    opened.execute("INSERT OR ROLLBACK INTO accounts (id, balance) VALUES (1, 0)").await.unwrap_err();
    opened.commit().await.unwrap_err();
}

// https://sqlite.org/rescode.html
const BUSY: i32 = 5;
const BUSY_SNAPSHOT: i32 = 517;
