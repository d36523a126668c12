//! An outcome in its effect's own transaction: what every database must do.

use idempotency_sqlx::MySqlTransaction;
use sqlx::Connection as _;

use crate::common::Server as _;
use crate::common::transactions::{Effects, transactions_tests};
use crate::support::Place;

impl Effects for Place {
    const MANY_WRITERS: bool = true;
    const TABLES: &str = "
        CREATE TABLE effects (name VARCHAR(100) NOT NULL) ENGINE = InnoDB;
        CREATE TABLE spent (number INTEGER PRIMARY KEY, times INTEGER NOT NULL) ENGINE = InnoDB;
        INSERT INTO spent VALUES (1, 0), (2, 0), (3, 0), (4, 0), (5, 0), (6, 0), (7, 0), (8, 0);";

    async fn effect(transaction: &mut MySqlTransaction, name: &str) {
        let insert = sqlx::query("INSERT INTO effects VALUES (?)").bind(name);
        insert.execute(&mut **transaction).await.unwrap();
    }

    async fn effect_in_savepoint(transaction: &mut MySqlTransaction, name: &str) {
        let mut savepoint = transaction.begin().await.unwrap();
        let insert = sqlx::query("INSERT INTO effects VALUES (?)").bind(name);
        insert.execute(&mut *savepoint).await.unwrap();
        savepoint.commit().await.unwrap();
    }

    /// A deadlock, whose victim is rolled back as a whole: whoever has changed less.
    async fn swallow_error(&self, transaction: &mut MySqlTransaction) {
        let mut other = self.connection().await;
        Self::execute_on(&mut other, "BEGIN; UPDATE spent SET times = 1 WHERE number > 1;").await;
        sqlx::raw_sql("UPDATE spent SET times = 2 WHERE number = 1").execute(&mut **transaction).await.unwrap();
        let waits = Self::execute_on(&mut other, "UPDATE spent SET times = 1 WHERE number = 1");
        let meets = sqlx::raw_sql("UPDATE spent SET times = 2 WHERE number = 2").execute(&mut **transaction);
        let ((), met) = tokio::join!(waits, meets);
        assert_eq!(met.unwrap_err().as_database_error().unwrap().code().as_deref(), Some("40001"));
        Self::execute_on(&mut other, "ROLLBACK").await;
    }

    async fn promise(_: &mut MySqlTransaction) {
        unreachable!("every constraint is looked at in its statement");
    }
}

transactions_tests! { Place, of_two_open_transactions_the_first_to_commit_counts }
