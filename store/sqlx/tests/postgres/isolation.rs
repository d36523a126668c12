//! Transactions with effects above READ COMMITTED, where a change of the record after their snapshot makes their commit fail.

use std::time::Duration;

use idempotency::transaction::{CommitError, TransactionState};
use idempotency::{Attempt, Lease, Settled, Store as _};
use idempotency_sqlx::{Isolation, PostgresStore, PostgresTransaction};

use crate::common::isolation::{Bench, Isolated, isolation_tests};
use crate::common::transactions::Effects as _;
use crate::support::{Place, outcome};

impl Isolated for Place {
    async fn begin_with(store: &PostgresStore, attempt: &Attempt, isolation: Isolation) -> PostgresTransaction {
        store.begin_with(attempt, isolation).await.unwrap()
    }

    async fn shown(transaction: &mut PostgresTransaction) -> String {
        sqlx::query_scalar("SHOW transaction_isolation").fetch_one(&mut **transaction).await.unwrap()
    }
}

isolation_tests!(Place);

/// The proof that those tests can see it.
#[tokio::test]
async fn a_renewal_after_the_snapshot_makes_the_commit_fail() {
    for isolation in [Isolation::RepeatableRead, Isolation::Serializable] {
        let bench = Bench::<Place>::new().await;
        let held = bench.claim().await;
        let transaction = bench.begin(&held, isolation).await;
        let longer = Lease::new(Duration::from_secs(60)).unwrap();
        assert_eq!(bench.store.renew(held.attempt().holder(), longer).await.unwrap(), Settled::Applied);
        let committed = bench.store.commit(held.attempt(), transaction, outcome("answer")).await;
        assert!(matches!(committed, Err(CommitError::NotCommitted(_))), "{committed:?}");
        assert_eq!(held.attempt().transaction(), TransactionState::NotCommitted);
        assert_eq!(bench.place.effects("k").await, 0);
        // The same attempt may try again.
        let transaction = bench.begin(&held, isolation).await;
        bench.store.commit(held.attempt(), transaction, outcome("answer")).await.unwrap();
        assert_eq!(bench.place.effects("k").await, 1);
    }
}
