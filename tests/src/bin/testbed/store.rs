//! The store that `--store` names.

use std::str::FromStr as _;

use idempotency::outbound::BoxSteps;
use idempotency::{BoxLeases, BoxStore, OpenError, Store};
use idempotency_memory::{Ceiling, MemoryLeases, MemoryStore, MissingCeiling};
use idempotency_redis::{RedisStore, Severity};
use idempotency_sqlx::{MySqlStore, PostgresStore, SqliteStore};
use sqlx::mysql::MySqlConnectOptions;
use sqlx::postgres::PgConnectOptions;
use sqlx::sqlite::SqliteConnectOptions;
use tempfile::TempDir;

use crate::error::StartError;
use crate::options::Options;
use crate::values::Keys;

/// A store, by the name of its database.
#[derive(Clone, Debug)]
pub(crate) enum Backend {
    Memory,
    Redis,
    Sqlite(SqliteStore),
    Postgres(PostgresStore),
    MySql(MySqlStore),
}

/// A store that was opened, as one of any kind and as the one it is, and the leases and steps beside it.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) store: BoxStore,
    pub(crate) leases: BoxLeases,
    pub(crate) steps: BoxSteps,
    pub(crate) backend: Backend,
    /// Removed when it is dropped.
    _folder: Option<TempDir>,
}

impl Backend {
    /// This store, if the ledger at `ledger` is in its database.
    pub(crate) fn beside(self, store: &str, ledger: Option<&str>) -> Option<Self> {
        let ledger = ledger?;
        let same = match self {
            Self::Memory | Self::Redis => false,
            Self::Sqlite(_) => same_file(store, ledger),
            Self::Postgres(_) => same_postgres(store, ledger),
            Self::MySql(_) => same_mysql(store, ledger),
        };
        same.then_some(self)
    }
}

/// Whether both URLs lead to the same place. Two ways to one database (a proxy, another name of the host) count as two.
fn same<P: PartialEq>(store: &str, ledger: &str, place: impl Fn(&str) -> Option<P>) -> bool {
    place(store).is_some_and(|store| place(ledger) == Some(store))
}

fn same_file(store: &str, ledger: &str) -> bool {
    same(store, ledger, |url| SqliteConnectOptions::from_str(url).ok()?.get_filename().canonicalize().ok())
}

fn same_postgres(store: &str, ledger: &str) -> bool {
    same(store, ledger, |url| {
        let options = PgConnectOptions::from_str(url).ok()?;
        Some((options.get_host().to_owned(), options.get_port(), options.get_database().map(ToOwned::to_owned)))
    })
}

fn same_mysql(store: &str, ledger: &str) -> bool {
    same(store, ledger, |url| {
        let options = MySqlConnectOptions::from_str(url).ok()?;
        Some((options.get_host().to_owned(), options.get_port(), options.get_database().map(ToOwned::to_owned)))
    })
}

/// Opens the store, after making or upgrading its tables if that is asked for.
pub(crate) async fn open(options: &Options) -> Result<Opened, StartError> {
    let url = options.store.as_str();
    let scheme = url.split_once(':').map_or("", |(scheme, _)| scheme);
    if options.max_records.is_some() && scheme != "memory" {
        return Err(StartError::usage("--max-records", "only the memory store takes it"));
    }
    match scheme {
        "memory" if url == "memory:" => memory(options),
        "sqlite" => sqlite(url, options).await,
        "postgres" | "postgresql" => postgres(url, options).await,
        "mysql" | "mariadb" => mysql(url, options).await,
        "redis" | "rediss" | "redis+sentinel" | "redis+cluster" => redis(url, options).await,
        // The URL may hold a password, so it is not repeated.
        _ => Err(StartError::usage(
            "--store",
            "not a store's URL; write memory:, sqlite:PATH, postgres://…, mysql://… or redis://…",
        )),
    }
}

fn memory(options: &Options) -> Result<Opened, StartError> {
    let mut builder = MemoryStore::builder();
    if let Some(most) = options.max_records {
        builder = builder.max_records(most);
    }
    let (ceiling, folder) = ceiling(options)?;
    let store = match ceiling {
        Some(ceiling) => builder.build_under(&ceiling)?,
        None => builder.build(),
    };
    Ok(Opened {
        steps: BoxSteps::new(store.clone()),
        store: BoxStore::new(store),
        leases: BoxLeases::new(MemoryLeases::new()),
        backend: Backend::Memory,
        _folder: folder,
    })
}

/// Where the memory store keeps the ceiling of time-ordered keys: beside the ledger, so that it is lost when the effects are.
fn ceiling(options: &Options) -> Result<(Option<Ceiling>, Option<TempDir>), StartError> {
    if matches!(options.keys, Keys::Opaque) {
        return Ok((None, None));
    }
    let Some(ledger) = &options.ledger else {
        let folder = tempfile::tempdir().map_err(StartError::TemporaryLedger)?;
        let ceiling = Ceiling::at(folder.path().join("ceiling")).missing(MissingCeiling::NothingRan);
        return Ok((Some(ceiling), Some(folder)));
    };
    if !ledger.starts_with("sqlite:") {
        return Ok((None, None));
    }
    let ledger = SqliteConnectOptions::from_str(ledger).map_err(StartError::Ledger)?.get_filename().to_path_buf();
    let mut path = ledger.clone().into_os_string();
    path.push(".ceiling");
    let ceiling = Ceiling::at(path);
    Ok((Some(if ledger.exists() { ceiling } else { ceiling.missing(MissingCeiling::NothingRan) }), None))
}

async fn sqlite(url: &str, options: &Options) -> Result<Opened, StartError> {
    let sqlite = SqliteStore::options(url).busy_timeout(options.store_timeout);
    if options.migrate {
        sqlite.clone().migrate().await?;
    }
    let store = opened(sqlite.open().await)?;
    Ok(Opened {
        store: BoxStore::new(store.clone()),
        leases: BoxLeases::new(store.leases()),
        steps: BoxSteps::new(store.clone()),
        backend: Backend::Sqlite(store),
        _folder: None,
    })
}

async fn postgres(url: &str, options: &Options) -> Result<Opened, StartError> {
    let postgres = PostgresStore::options(url).wait(options.store_timeout);
    if options.migrate {
        postgres.clone().migrate().await?;
    }
    let store = opened(postgres.open().await)?;
    Ok(Opened {
        store: BoxStore::new(store.clone()),
        leases: BoxLeases::new(store.leases()),
        steps: BoxSteps::new(store.clone()),
        backend: Backend::Postgres(store),
        _folder: None,
    })
}

async fn mysql(url: &str, options: &Options) -> Result<Opened, StartError> {
    let mysql = MySqlStore::options(url).wait(options.store_timeout);
    if options.migrate {
        mysql.clone().migrate().await?;
    }
    let store = opened(mysql.open().await)?;
    Ok(Opened {
        store: BoxStore::new(store.clone()),
        leases: BoxLeases::new(store.leases()),
        steps: BoxSteps::new(store.clone()),
        backend: Backend::MySql(store),
        _folder: None,
    })
}

/// Not on a server that loses records without anything going wrong; what others lose is said.
async fn redis(url: &str, options: &Options) -> Result<Opened, StartError> {
    let store = RedisStore::options(url).response_timeout(options.store_timeout).open().await?;
    let report = store.check().await.map_err(OpenError::Store)?.accepted()?;
    for finding in &report.findings {
        match finding.severity {
            Severity::Info => tracing::info!("--store: {finding}"),
            Severity::Warn | Severity::Refuse => tracing::warn!("--store: {finding}"),
        }
    }
    Ok(Opened {
        store: BoxStore::new(store.clone()),
        leases: BoxLeases::new(store.leases()),
        steps: BoxSteps::new(store.clone()),
        backend: Backend::Redis,
        _folder: None,
    })
}

fn opened<St: Store>(store: Result<St, OpenError>) -> Result<St, StartError> {
    match store {
        Ok(store) => Ok(store),
        Err(missing @ OpenError::Schema { .. }) => Err(StartError::NotMigrated(missing)),
        Err(error) => Err(error.into()),
    }
}
