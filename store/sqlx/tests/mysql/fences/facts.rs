//! What the design rests on, tried.

use idempotency_sqlx::fence::{FenceError, Fences};
use sqlx::mysql::MySqlConnection;
use sqlx::{Connection, Executor, Row};

use super::suite::{self, Rig as _, account, fresh};
use super::{Rig, number_of};
use crate::support::server;

async fn number(connection: &mut MySqlConnection, sql: &'static str) -> i64 {
    Rig::number(connection, sql).await
}

/// A collation that does not tell case or trailing blanks merges two resources; bytes do not.
#[tokio::test(flavor = "multi_thread")]
async fn a_collation_merges_resources_and_bytes_do_not() {
    let rig = Rig::new().await;
    rig.run(
        "CREATE TABLE merged (resource VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci PRIMARY KEY);
        CREATE TABLE kept (resource VARBINARY(255) PRIMARY KEY);
        INSERT INTO merged VALUES ('A');
        INSERT INTO kept VALUES ('A'), ('a '), ('a');",
    )
    .await;
    assert_eq!(number_of(rig.pool.execute("INSERT INTO merged VALUES ('a ')").await), DUPLICATE);
    assert_eq!(suite::number(&rig, "SELECT COUNT(*) FROM kept").await, 3);
}

const UPSERT: &str =
    "INSERT INTO fence VALUES ('x', 40) ON DUPLICATE KEY UPDATE token = GREATEST(token, VALUES(token))";
const TABLE: &str = "CREATE TABLE fence (resource VARBINARY(255) PRIMARY KEY, token BIGINT NOT NULL) ENGINE = InnoDB";

/// How many rows an upsert reports to have changed depends on a flag of the connection, and a refusal cannot be told
/// from an insert by it. sqlx sets the flag, the server's own client does not.
#[tokio::test(flavor = "multi_thread")]
async fn case_61_affected_rows_do_not_tell_who_was_admitted() {
    let rig = Rig::new().await;
    let statements = [
        "INSERT INTO fence VALUES ('x', 40) ON DUPLICATE KEY UPDATE token = GREATEST(token, VALUES(token))",
        "INSERT INTO fence VALUES ('x', 50) ON DUPLICATE KEY UPDATE token = GREATEST(token, VALUES(token))",
        "INSERT INTO fence VALUES ('x', 50) ON DUPLICATE KEY UPDATE token = GREATEST(token, VALUES(token))",
        "INSERT INTO fence VALUES ('x', 40) ON DUPLICATE KEY UPDATE token = GREATEST(token, VALUES(token))",
        "UPDATE fence SET token = 50 WHERE resource = 'x' AND token <= 50",
    ];
    rig.run(TABLE).await;
    let mut found = Vec::new();
    for statement in statements {
        found.push(rig.pool.execute(statement).await.unwrap().rows_affected());
    }
    assert_eq!(found, [1, 2, 1, 1, 1]);

    rig.run("DELETE FROM fence").await;
    let counted = statements.map(|statement| format!("{statement}; SELECT ROW_COUNT();")).concat();
    let changed = server().sql(&rig.name, &counted);
    assert_eq!(changed.lines().collect::<Vec<_>>(), ["1", "2", "0", "0", "0"]);
}

/// MariaDB gives the row as it is then, which MySQL does not.
#[tokio::test(flavor = "multi_thread")]
async fn an_upsert_that_returns_its_row_tells_who_was_admitted() {
    let rig = Rig::new().await;
    rig.run(TABLE).await;
    rig.run("INSERT INTO fence VALUES ('x', 50)").await;
    let row = rig.pool.fetch_one(sqlx::AssertSqlSafe(format!("{UPSERT} RETURNING token"))).await.unwrap();
    assert_eq!(row.get::<i64, _>(0), 50);
}

/// The snapshot of REPEATABLE READ begins with the first plain read, and a fence that is opened after it does not renew
/// it.
#[tokio::test(flavor = "multi_thread")]
async fn a_read_before_the_fence_keeps_an_old_snapshot_and_one_after_it_is_fresh() {
    let begin = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; START TRANSACTION";
    let open = "INSERT INTO idempotency_fences VALUES ('account/1', 7, 35, '0123456789abcdef', 1)
        ON DUPLICATE KEY UPDATE token = GREATEST(token, VALUES(token))";
    let rig = Rig::new().await;
    let mut early = rig.begin_with(begin).await;
    assert_eq!(number(&mut early, suite::BALANCE).await, 100);
    let mut first = rig.fences().open_with(&account(), &fresh(34)).await.unwrap();
    first.execute("UPDATE accounts SET balance = 150 WHERE id = 1").await.unwrap();
    first.commit().await.unwrap();
    early.execute(open).await.unwrap();
    // It is admitted, and would now write 100 and something.
    assert_eq!(number(&mut early, "SELECT token FROM idempotency_fences FOR UPDATE").await, 35);
    assert_eq!(number(&mut early, suite::BALANCE).await, 100);
    early.rollback().await.unwrap();

    use idempotency_sqlx::Isolation::{ReadCommitted, RepeatableRead, Serializable};
    for (turn, isolation) in (1..).zip([ReadCommitted, RepeatableRead, Serializable]) {
        let fences = rig.fences().isolation(isolation);
        let mut holder = fences.open_with(&account(), &fresh(40 + turn)).await.unwrap();
        let (resource, ticket) = (account(), fresh(50 + turn));
        let waiting = async {
            let mut opened = fences.open_with(&resource, &ticket).await.unwrap();
            let balance = number(&mut opened, suite::BALANCE).await;
            opened.rollback().await;
            balance
        };
        let (balance, ()) = tokio::join!(waiting, async {
            rig.until_waiting().await;
            holder.execute("UPDATE accounts SET balance = balance + 1 WHERE id = 1").await.unwrap();
            holder.commit().await.unwrap();
        });
        assert_eq!(balance, 150 + i64::try_from(turn).unwrap());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_level_is_of_the_transaction_alone() {
    let rig = Rig::new().await;
    let mut connection = rig.pool.acquire().await.unwrap();
    let level = "SELECT @@SESSION.transaction_isolation = 'REPEATABLE-READ'";
    let level = if connection.fetch_one(level).await.is_ok() {
        level
    } else {
        "SELECT @@SESSION.tx_isolation = 'REPEATABLE-READ'"
    };
    assert_eq!(number(&mut connection, level).await, 1);
    drop(connection);
    rig.fences().open(&account()).await.unwrap().commit().await.unwrap();
    assert_eq!(suite::number(&rig, level).await, 1);
}

/// Defaults that the documentation names.
#[tokio::test(flavor = "multi_thread")]
async fn the_server_is_as_it_comes() {
    let rig = Rig::new().await;
    for (setting, value) in [
        ("SELECT @@idle_write_transaction_timeout", 0),
        ("SELECT @@innodb_lock_wait_timeout", 50),
        ("SELECT CAST(@@innodb_snapshot_isolation AS SIGNED)", 0),
        ("SELECT CAST(@@innodb_rollback_on_timeout AS SIGNED)", 0),
    ] {
        let mut connection = rig.pool.acquire().await.unwrap();
        let row = connection.fetch_one(sqlx::raw_sql(setting)).await.unwrap();
        assert_eq!(row.get_unchecked::<String, _>(0), value.to_string(), "{setting}");
    }
}

/// And leaves the transaction as it was before it.
#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_does_not_come_rolls_back_the_statement_only() {
    let rig = Rig::new().await;
    let mut holder = rig.begin().await;
    holder.execute("UPDATE accounts SET balance = 0 WHERE id = 2").await.unwrap();
    let mut other = rig.begin().await;
    other.execute("UPDATE accounts SET balance = 101 WHERE id = 1").await.unwrap();
    let waits = "SET STATEMENT innodb_lock_wait_timeout = 1 FOR UPDATE accounts SET balance = 201 WHERE id = 2";
    assert_eq!(number_of(other.execute(waits).await), LOCK_WAIT_TIMEOUT);
    other.commit().await.unwrap();
    holder.rollback().await.unwrap();
    // The write before is there: a program that had gone on would have written half of what it wanted.
    assert_eq!(suite::balance(&rig).await, 101);
}

/// A deadlock rolls back everything, and what a program does then without looking is not in the transaction any more.
/// The commit says so.
#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_that_is_over_cannot_be_committed() {
    let rig = Rig::new().await;
    for ends in ["CREATE TABLE defined (id INT)", "ROLLBACK", "ROLLBACK; START TRANSACTION"] {
        let mut opened = rig.fences().open(&account()).await.unwrap();
        opened.execute(sqlx::raw_sql(ends)).await.unwrap();
        opened.execute("UPDATE accounts SET balance = balance + 1 WHERE id = 1").await.unwrap();
        let answer = opened.commit().await.unwrap_err();
        assert!(matches!(answer, FenceError::Poisoned), "{ends}: {answer:?}");
    }
}

/// Without `idle_write_transaction_timeout` a stopped holder keeps its successor out; with it, for so long.
#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_holder_is_cut_off_where_the_server_is_told_to() {
    let rig = Rig::new().await;
    let fences = rig.fences();
    suite::admitted(&fences, &account(), &fresh(32)).await;
    let mut stopped = fences.open_with(&account(), &fresh(33)).await.unwrap();
    stopped.execute("SET SESSION idle_write_transaction_timeout = 1").await.unwrap();
    let mut successor = fences.open_with(&account(), &fresh(34)).await.unwrap();
    successor.execute("UPDATE accounts SET balance = 134 WHERE id = 1").await.unwrap();
    successor.commit().await.unwrap();
    stopped.commit().await.unwrap_err();
    assert_eq!(suite::balance(&rig).await, 134);
}

#[tokio::test(flavor = "multi_thread")]
async fn row_values_order_writes_within_a_token() {
    let rig = Rig::new().await;
    rig.run("UPDATE accounts SET fencing_token = 33, balance = 1").await;
    for (write, changed) in [
        ("UPDATE accounts SET balance = 2 WHERE id = 1 AND (fencing_token, balance) < (33, 2)", 1),
        ("UPDATE accounts SET balance = 2 WHERE id = 1 AND (fencing_token, balance) < (33, 2)", 0),
        ("UPDATE accounts SET fencing_token = 34, balance = 1 WHERE id = 1 AND (fencing_token, balance) < (34, 1)", 1),
    ] {
        assert_eq!(rig.pool.execute(write).await.unwrap().rows_affected(), changed);
    }
}

/// MariaDB says the same as after a wait; MySQL has a number of its own, 3572.
#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_somebody_has_is_refused_at_once_when_nobody_waits() {
    let rig = Rig::new().await;
    let mut holder = rig.begin().await;
    holder.execute("SELECT 1 FROM accounts WHERE id = 1 FOR UPDATE").await.unwrap();
    let mut other = MySqlConnection::connect(&rig.url).await.unwrap();
    let nowait = other.execute("SELECT 1 FROM accounts WHERE id = 1 FOR UPDATE NOWAIT").await;
    assert_eq!(number_of(nowait), LOCK_WAIT_TIMEOUT);
}

const DUPLICATE: u16 = 1062;
const LOCK_WAIT_TIMEOUT: u16 = 1205;
