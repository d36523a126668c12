//! The plain answers of a database, which need no lease and no token from elsewhere.

use sqlx::{Executor, Row};

use super::suite::{self, Rig as _};
use super::{Rig, sqlstate};

/// `UPDATE … WHERE status = 'PENDING'`: of two at once the second one waits, and finds it done or, after a rollback, to
/// be done.
#[tokio::test(flavor = "multi_thread")]
async fn a_conditional_status_update_has_one_winner() {
    for (commits, changed) in [(true, 0), (false, 1)] {
        let rig = Rig::new().await;
        let take = "UPDATE accounts SET balance = 0 WHERE id = 1 AND balance = 100";
        let mut winner = rig.begin().await;
        assert_eq!(winner.execute(take).await.unwrap().rows_affected(), 1);
        let (loser, ()) = tokio::join!(rig.pool.execute(take), async {
            rig.until_waiting().await;
            if commits { winner.commit().await.unwrap() } else { winner.rollback().await.unwrap() }
        });
        assert_eq!(loser.unwrap().rows_affected(), changed);
    }
}

/// The status alone lets a zombie finish what a reaper has given to somebody else; the attempt is a token that the
/// database mints.
#[tokio::test(flavor = "multi_thread")]
async fn an_attempt_column_is_a_fencing_token() {
    let rig = Rig::new().await;
    rig.run(
        "CREATE TABLE tasks (id INT PRIMARY KEY, status TEXT NOT NULL, attempt INT NOT NULL);
        INSERT INTO tasks VALUES (1, 'PROCESSING', 1);
        UPDATE tasks SET attempt = attempt + 1 WHERE id = 1 AND status = 'PROCESSING';",
    )
    .await;
    let zombie = "UPDATE tasks SET status = 'DONE' WHERE id = 1 AND status = 'PROCESSING' AND attempt = 1";
    assert_eq!(rig.pool.execute(zombie).await.unwrap().rows_affected(), 0);
    let unguarded = "UPDATE tasks SET status = 'DONE' WHERE id = 1 AND status = 'PROCESSING'";
    assert_eq!(rig.pool.execute(unguarded).await.unwrap().rows_affected(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_locked_row_is_refused_skipped_or_waited_for_in_bounds() {
    let rig = Rig::new().await;
    let mut holder = rig.begin().await;
    holder.execute("SELECT FROM accounts WHERE id = 1 FOR UPDATE").await.unwrap();
    let mut other = rig.begin().await;
    assert_eq!(sqlstate(other.execute("SELECT FROM accounts WHERE id = 1 FOR UPDATE NOWAIT").await), "55P03");
    other.rollback().await.unwrap();
    let mut other = rig.begin().await;
    let rows = other.fetch_all("SELECT id FROM accounts ORDER BY id FOR UPDATE SKIP LOCKED").await.unwrap();
    assert_eq!(rows.iter().map(|row| row.get::<i64, _>(0)).collect::<Vec<_>>(), [2]);
    other.execute("SET LOCAL lock_timeout = 20").await.unwrap();
    assert_eq!(sqlstate(other.execute("SELECT FROM accounts WHERE id = 1 FOR UPDATE").await), "55P03");
    other.rollback().await.unwrap();
    holder.rollback().await.unwrap();
}

/// One effect per pair of token and number within it, by comparing rows: not built, and possible.
#[tokio::test]
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
    assert_eq!(suite::number(&rig, "SELECT fencing_token FROM accounts WHERE id = 1").await, 34);
}
