//! A store for idempotency keys in Redis, and leases beside it.
//!
//! [`RedisStore`] says what it promises and under which conditions; [`RedisLeases`] the same of leases. [`open`] chooses by the URL,
//! at run time:
//!
//! | URL | what |
//! |---|---|
//! | `redis://[USER:PASSWORD@]HOST[:PORT][/DATABASE]` | one server |
//! | `redis+sentinel://[USER:PASSWORD@]HOST[:PORT],HOST[:PORT]/SERVICE[/DATABASE]` | the primary that sentinels name |
//! | `redis+cluster://[USER:PASSWORD@]HOST:PORT,HOST:PORT` | a cluster, by some of its nodes |
//!
//! With the feature `tls`, `rediss` in the place of `redis` in any of them. A proxy that spreads keys over several servers is none of these: at such a
//! one, [`share_commands`](RedisOptions::share_commands) must be switched off.

mod check;
mod cluster;
mod connect;
mod db;
mod error;
mod group;
mod hints;
mod keys;
mod leases;
mod link;
mod listing;
mod operations;
mod options;
mod replicas;
mod reply;
mod scan;
mod scripts;
mod steps;
mod store;
mod sweep;
mod url;

use idempotency::{BoxStore, OpenError};

pub use check::{Finding, Report, ServerRefused, Severity, Topic};
pub use error::NotReplicated;
pub use leases::RedisLeases;
pub use options::RedisOptions;
pub use store::RedisStore;

/// Opens the store that `url` names, with the default settings.
///
/// # Errors
/// As [`RedisOptions::open`].
///
/// # Panics
/// Outside a tokio runtime whose time is enabled.
///
/// # Cancel safety
/// Cancel safe: opening changes nothing in the database.
pub async fn open(url: &str) -> Result<BoxStore, OpenError> {
    RedisStore::open(url).await.map(BoxStore::new)
}
