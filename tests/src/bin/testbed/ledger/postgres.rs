//! A ledger in a PostgreSQL database.

use std::str::FromStr;
use std::time::Duration;

use idempotency_sqlx::PostgresStore;
use idempotency_sqlx::fence::PostgresFences;
use sqlx::postgres::{PgConnectOptions, PgConnection, PgPool, PgPoolOptions, PgRow};
use sqlx::{ConnectOptions as _, FromRow, Row as _};

use super::{Counter, Effect, Effects, Row};
use crate::error::StartError;

/// A ledger in PostgreSQL.
#[derive(Clone, Debug)]
pub(crate) struct Postgres {
    pub(super) pool: PgPool,
    pub(crate) fences: PostgresFences,
}

impl Postgres {
    pub(super) async fn open(url: &str) -> Result<Self, StartError> {
        PostgresStore::options(url).wait(PATIENCE).migrate().await.map_err(StartError::Fences)?;
        let options = PgConnectOptions::from_str(url).map_err(StartError::Ledger)?;
        let options = options.disable_statement_logging();
        let pool = PgPoolOptions::new().max_connections(MOST).connect_lazy_with(options);
        let create = sqlx::raw_sql(include_str!("../../../../sql/postgres/create_effects.sql"));
        create.execute(&pool).await.map_err(StartError::Ledger)?;
        Ok(Self { fences: PostgresFences::new(pool.clone()), pool })
    }
}

impl Effects for PgConnection {
    async fn insert(&mut self, effect: &Effect) -> Result<i64, sqlx::Error> {
        let insert = sqlx::query_scalar(include_str!("../../../../sql/postgres/insert_effect.sql"))
            .bind(&effect.key)
            .bind(&effect.route)
            .bind(&effect.resource)
            .bind(effect.amount)
            .bind(effect.token.map(u64::cast_signed))
            .bind(effect.attempt.map(i64::from))
            .bind(i64::from(std::process::id()))
            .bind(effect.value);
        insert.fetch_one(self).await
    }

    async fn effects(&mut self, key: Option<&str>, route: Option<&str>) -> Result<Vec<Row>, sqlx::Error> {
        let select = match key {
            Some(key) => sqlx::query_as(include_str!("../../../../sql/postgres/effects_of_key.sql")).bind(key),
            None => sqlx::query_as(include_str!("../../../../sql/postgres/all_effects.sql")),
        };
        select.bind(route).fetch_all(self).await
    }

    async fn counter(&mut self, resource: &str) -> Result<Counter, sqlx::Error> {
        let select = sqlx::query_as(include_str!("../../../../sql/postgres/read_counter.sql")).bind(resource);
        Ok(select.fetch_optional(self).await?.unwrap_or_default())
    }

    async fn set_counter(&mut self, resource: &str, counter: Counter) -> Result<(), sqlx::Error> {
        let write = sqlx::query(include_str!("../../../../sql/postgres/write_counter.sql"));
        write.bind(resource).bind(counter.value).bind(counter.token).execute(self).await.map(drop)
    }
}

impl FromRow<'_, PgRow> for Row {
    fn from_row(row: &PgRow) -> Result<Self, sqlx::Error> {
        Ok(Self {
            seq: row.try_get("seq")?,
            key: row.try_get("key")?,
            route: row.try_get("route")?,
            resource: row.try_get("resource")?,
            amount: row.try_get("amount")?,
            token: row.try_get("token")?,
            attempt: row.try_get("attempt")?,
            process: row.try_get("process")?,
            value: row.try_get("value")?,
            at: row.try_get("at")?,
        })
    }
}

impl FromRow<'_, PgRow> for Counter {
    fn from_row(row: &PgRow) -> Result<Self, sqlx::Error> {
        Ok(Self { value: row.try_get("value")?, token: row.try_get("token")? })
    }
}

/// Several testbeds share a server.
const MOST: u32 = 16;

/// How long the server is waited for when it is busy.
const PATIENCE: Duration = Duration::from_secs(5);
