//! Transactions with effects at every isolation, and clients that stand still in them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use idempotency::transaction::{CommitError, TransactionalStore as _};
use idempotency::{Answer, Attempt, Engine, Lease};
use idempotency_sqlx::{Isolation, MySqlStore, MySqlTransaction};
use sqlx::{AssertSqlSafe, Row as _};
use tokio::time::{sleep, timeout};

use crate::common::isolation::{Bench, Isolated, isolation_tests};
use crate::common::transactions::{operation, settings};
use crate::common::{Database as _, Server as _};
use crate::support::Place;
use idempotency_testbed::requests::outcome;

impl Isolated for Place {
    async fn begin_with(store: &MySqlStore, attempt: &Attempt, isolation: Isolation) -> MySqlTransaction {
        store.begin_with(attempt, isolation).await.unwrap()
    }

    async fn shown(transaction: &mut MySqlTransaction) -> String {
        // Of the transaction, where `@@tx_isolation` is of the session. The server shows what it gathered before, unless nobody has asked for
        // 100 ms: by its query a row is known to be of now, and not of what this connection did earlier.
        static TURN: AtomicU64 = AtomicU64::new(0);
        loop {
            let turn = TURN.fetch_add(1, Ordering::Relaxed);
            let shown = format!(
                "SELECT trx_isolation_level FROM information_schema.innodb_trx \
                 WHERE trx_mysql_thread_id = CONNECTION_ID() AND trx_query LIKE '%turn {turn}.%'"
            );
            let rows = sqlx::raw_sql(AssertSqlSafe(shown)).fetch_optional(&mut **transaction).await.unwrap();
            if let Some(row) = rows {
                return row.get(0);
            }
            sleep(Duration::from_millis(150)).await;
        }
    }
}

isolation_tests!(Place);

/// While there is one record only, an index of all that is due looks as good as the key, and whoever writes by it above READ COMMITTED locks
/// the gaps in it.
#[tokio::test]
async fn a_completion_in_an_effects_transaction_keeps_no_other_claim_waiting() {
    let bench = Bench::<Place>::new().await;
    for isolation in [Isolation::RepeatableRead, Isolation::Serializable] {
        let held = bench.claim().await;
        let mut transaction = bench.begin(&held, isolation).await;
        let holder = held.attempt().holder();
        assert!(bench.store.record_in(&mut transaction, holder, &outcome("answer")).await.unwrap());
        let other = operation(&format!("{isolation:?}"));
        let claimed = timeout(Duration::from_secs(3), bench.engine.claim(&other)).await.expect("nobody is in its way");
        let Ok(Answer::Run(other)) = claimed else { panic!("not granted: {claimed:?}") };
        bench.store.roll_back(transaction).await;
        held.release().await;
        other.release().await;
        bench.place.execute("DELETE FROM idempotency_records").await;
    }
}

/// MySQL itself does not do this: there a stopped client keeps its rows until its session is killed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_stands_still_in_its_transaction_does_not_block_its_successor_for_longer_than_the_limit() {
    let bench = Bench::<Place>::new().await;
    let limit = Lease::new(Duration::from_secs(1)).unwrap();
    let engine = Engine::new(bench.store.clone(), settings().transaction_limit(limit));
    let Answer::Run(held) = engine.claim(&operation("stopped")).await.unwrap() else { panic!("not granted") };
    let mut stopped = bench.store.begin(held.attempt()).await.unwrap();
    sqlx::raw_sql("UPDATE spent SET times = 7 WHERE number = 1").execute(&mut *stopped).await.unwrap();
    let mut successor = bench.place.connection().await;
    let since = Instant::now();
    Place::execute_on(&mut successor, "UPDATE spent SET times = 9 WHERE number = 1").await;
    let waited = since.elapsed();
    assert!(waited >= Duration::from_millis(500), "{waited:?}: it did not wait, so this proves nothing");
    let late = bench.store.commit(held.attempt(), stopped, outcome("late")).await;
    assert!(matches!(late, Err(CommitError::NotCommitted(_))), "{late:?}");
    assert_eq!(bench.place.texts("SELECT CAST(times AS CHAR(20)) FROM spent WHERE number = 1").await, ["9"]);
}
