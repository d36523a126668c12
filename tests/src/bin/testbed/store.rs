//! The store that `--store` names.

use idempotency::{BoxStore, OpenError, Store};
use idempotency_memory::MemoryStore;
use idempotency_sqlx::{PostgresStore, SqliteStore};

use crate::error::StartError;
use crate::options::Options;

/// Opens the store, after making or upgrading its tables if that is asked for.
pub(crate) async fn open(options: &Options) -> Result<BoxStore, StartError> {
    let url = options.store.as_str();
    let scheme = url.split_once(':').map_or("", |(scheme, _)| scheme);
    if options.max_records.is_some() && scheme != "memory" {
        return Err(StartError::usage("--max-records", "only the memory store takes it"));
    }
    match scheme {
        "memory" if url == "memory:" => Ok(memory(options)),
        "sqlite" => sqlite(url, options).await,
        "postgres" | "postgresql" => postgres(url, options).await,
        "mysql" | "mariadb" => Err(StartError::NotYet("a store in MySQL")),
        "redis" | "rediss" | "redis+sentinel" | "redis+cluster" => Err(StartError::NotYet("a store in Redis")),
        // The URL may hold a password, so it is not repeated.
        _ => Err(StartError::usage("--store", "not a store's URL; write memory:, sqlite:PATH or postgres://…")),
    }
}

fn memory(options: &Options) -> BoxStore {
    match options.max_records {
        Some(most) => BoxStore::new(MemoryStore::builder().max_records(most).build()),
        None => BoxStore::new(MemoryStore::new()),
    }
}

async fn sqlite(url: &str, options: &Options) -> Result<BoxStore, StartError> {
    let sqlite = SqliteStore::options(url).busy_timeout(options.store_timeout);
    if options.migrate {
        sqlite.clone().migrate().await?;
    }
    opened(sqlite.open().await)
}

async fn postgres(url: &str, options: &Options) -> Result<BoxStore, StartError> {
    let postgres = PostgresStore::options(url).wait(options.store_timeout);
    if options.migrate {
        postgres.clone().migrate().await?;
    }
    opened(postgres.open().await)
}

fn opened(store: Result<impl Store, OpenError>) -> Result<BoxStore, StartError> {
    match store {
        Ok(store) => Ok(BoxStore::new(store)),
        Err(missing @ OpenError::Schema { .. }) => Err(StartError::NotMigrated(missing)),
        Err(error) => Err(error.into()),
    }
}
