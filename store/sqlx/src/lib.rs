//! Stores for idempotency keys in SQL databases.
//!
//! | feature | store | for |
//! |---|---|---|
//! | `sqlite` | [`SqliteStore`] | one machine: durable, nothing to run beside the program |
//! | `postgres` | [`PostgresStore`] | many machines: durable, beside the data or in a database of its own |
//! | `mysql` | [`MySqlStore`] | the same in MySQL or MariaDB |
//!
//! [`open`] chooses by the URL's scheme, at run time. [`fence`] has fenced writes for the same databases.
//!
//! Beside its records each store keeps leases, on the same connections and clock: `store.leases()`. The steps of calls to external APIs
//! ([`idempotency::outbound`]) are kept with the records themselves.

#[cfg(any(feature = "sqlite", feature = "postgres", feature = "mysql"))]
pub mod fence;
#[cfg(any(feature = "postgres", feature = "mysql"))]
mod in_time;
mod isolation;
#[cfg(any(feature = "sqlite", feature = "postgres", feature = "mysql"))]
mod lease_row;
#[cfg(any(feature = "postgres", feature = "mysql"))]
mod lending;
#[cfg(any(feature = "sqlite", feature = "postgres", feature = "mysql"))]
mod listing;
#[cfg(feature = "mysql")]
mod mysql;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(any(feature = "sqlite", feature = "postgres", feature = "mysql"))]
mod prolonging;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
mod queue;
#[cfg(any(feature = "sqlite", feature = "postgres", feature = "mysql"))]
mod row;
#[cfg(feature = "sqlite")]
mod sqlite;
#[cfg(any(feature = "sqlite", feature = "postgres", feature = "mysql"))]
mod step_row;
#[cfg(any(feature = "sqlite", feature = "postgres", feature = "mysql"))]
mod task;

use idempotency::{BoxStore, OpenError};

pub use isolation::Isolation;
#[cfg(feature = "mysql")]
pub use mysql::{MySqlLeases, MySqlOptions, MySqlStore, MySqlTransaction};
#[cfg(feature = "postgres")]
pub use postgres::{PostgresLeases, PostgresOptions, PostgresStore, PostgresTransaction, Statements};
#[cfg(feature = "sqlite")]
pub use sqlite::{SqliteLeases, SqliteOptions, SqliteStore, SqliteTransaction, Synchronous};

/// Opens the store that `url` names: `sqlite:PATH` with the feature `sqlite`, `postgres://…` or `postgresql://…` with the
/// feature `postgres`, `mysql://…` or `mariadb://…` with the feature `mysql`. The tables must be there: see the store's own
/// `migrate`.
///
/// # Errors
/// [`OpenError::Url`] for a scheme that this build has no store for, and whatever the store's own `open` answers.
///
/// # Panics
/// Outside a tokio runtime whose time is enabled.
///
/// # Cancel safety
/// Cancel safe: opening changes nothing in the database.
pub async fn open(url: &str) -> Result<BoxStore, OpenError> {
    let scheme = url.split_once(':').map_or("", |(scheme, _)| scheme);
    match scheme {
        #[cfg(feature = "sqlite")]
        "sqlite" => Ok(BoxStore::new(SqliteStore::open(url).await?)),
        #[cfg(not(feature = "sqlite"))]
        "sqlite" => Err(missing("sqlite")),
        #[cfg(feature = "postgres")]
        "postgres" | "postgresql" => Ok(BoxStore::new(PostgresStore::open(url).await?)),
        #[cfg(not(feature = "postgres"))]
        "postgres" | "postgresql" => Err(missing("postgres")),
        #[cfg(feature = "mysql")]
        "mysql" | "mariadb" => Ok(BoxStore::new(MySqlStore::open(url).await?)),
        #[cfg(not(feature = "mysql"))]
        "mysql" | "mariadb" => Err(missing("mysql")),
        // The scheme only: the rest of a database URL may hold a password.
        _ => Err(OpenError::Url(format!("no SQL store for the scheme `{scheme}`"))),
    }
}

#[cfg(not(all(feature = "sqlite", feature = "postgres", feature = "mysql")))]
fn missing(feature: &str) -> OpenError {
    OpenError::Url(format!("this build of idempotency-sqlx lacks the feature `{feature}`"))
}
