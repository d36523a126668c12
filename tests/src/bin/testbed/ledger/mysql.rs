//! A ledger in a MySQL or MariaDB database.

use std::str::FromStr;
use std::time::Duration;

use idempotency_sqlx::MySqlStore;
use idempotency_sqlx::fence::MySqlFences;
use sqlx::mysql::{MySqlConnectOptions, MySqlConnection, MySqlPool, MySqlPoolOptions, MySqlRow};
use sqlx::{ConnectOptions as _, FromRow, Row as _};

use super::{Counter, Effect, Effects, Row};
use crate::error::StartError;

/// A ledger in MySQL or MariaDB.
#[derive(Clone, Debug)]
pub(crate) struct MySql {
    pub(super) pool: MySqlPool,
    pub(crate) fences: MySqlFences,
}

impl MySql {
    pub(super) async fn open(url: &str) -> Result<Self, StartError> {
        MySqlStore::options(url).wait(PATIENCE).migrate().await.map_err(StartError::Fences)?;
        let options = MySqlConnectOptions::from_str(url).map_err(StartError::Ledger)?;
        let options = options.disable_statement_logging();
        let pool = MySqlPoolOptions::new().max_connections(MOST).connect_lazy_with(options);
        let create = sqlx::raw_sql(include_str!("../../../../sql/mysql/create_effects.sql"));
        create.execute(&pool).await.map_err(StartError::Ledger)?;
        Ok(Self { fences: MySqlFences::new(pool.clone()), pool })
    }
}

impl Effects for MySqlConnection {
    async fn insert(&mut self, effect: &Effect) -> Result<i64, sqlx::Error> {
        let insert = sqlx::query(include_str!("../../../../sql/mysql/insert_effect.sql"))
            .bind(effect.key.as_ref().map(String::as_bytes))
            .bind(effect.route.as_bytes())
            .bind(effect.resource.as_ref().map(String::as_bytes))
            .bind(effect.amount)
            .bind(effect.token.map(u64::cast_signed))
            .bind(effect.attempt.map(i64::from))
            .bind(i64::from(std::process::id()))
            .bind(effect.value);
        Ok(insert.execute(self).await?.last_insert_id().cast_signed())
    }

    async fn effects(&mut self, key: Option<&str>, route: Option<&str>) -> Result<Vec<Row>, sqlx::Error> {
        let route = route.map(str::as_bytes);
        let select = match key {
            Some(key) => sqlx::query_as(include_str!("../../../../sql/mysql/effects_of_key.sql")).bind(key.as_bytes()),
            None => sqlx::query_as(include_str!("../../../../sql/mysql/all_effects.sql")),
        };
        select.bind(route).bind(route).fetch_all(self).await
    }

    async fn counter(&mut self, resource: &str) -> Result<Counter, sqlx::Error> {
        let select = sqlx::query_as(include_str!("../../../../sql/mysql/read_counter.sql")).bind(resource.as_bytes());
        Ok(select.fetch_optional(self).await?.unwrap_or_default())
    }

    async fn set_counter(&mut self, resource: &str, counter: Counter) -> Result<(), sqlx::Error> {
        let write = sqlx::query(include_str!("../../../../sql/mysql/write_counter.sql"));
        write.bind(resource.as_bytes()).bind(counter.value).bind(counter.token).execute(self).await.map(drop)
    }
}

impl FromRow<'_, MySqlRow> for Row {
    fn from_row(row: &MySqlRow) -> Result<Self, sqlx::Error> {
        let text = |name| -> Result<Option<String>, sqlx::Error> {
            let bytes: Option<Vec<u8>> = row.try_get(name)?;
            Ok(bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
        };
        Ok(Self {
            seq: row.try_get("seq")?,
            key: text("key")?,
            route: text("route")?.unwrap_or_default(),
            resource: text("resource")?,
            amount: row.try_get("amount")?,
            token: row.try_get("token")?,
            attempt: row.try_get("attempt")?,
            process: row.try_get("process")?,
            value: row.try_get("value")?,
            at: row.try_get("at")?,
        })
    }
}

impl FromRow<'_, MySqlRow> for Counter {
    fn from_row(row: &MySqlRow) -> Result<Self, sqlx::Error> {
        Ok(Self { value: row.try_get("value")?, token: row.try_get("token")? })
    }
}

/// Several testbeds share a server.
const MOST: u32 = 16;

/// How long the server is waited for when it is busy.
const PATIENCE: Duration = Duration::from_secs(5);
