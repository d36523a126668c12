//! Where a run takes place: a store's server, a ledger, and testbeds behind proxies.

use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Mutex as AsyncMutex;
use tokio::time::sleep;

use super::server::{Reached, Server};
use crate::{Client, Proxy, Rig, Testbed};

/// Which store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A SQLite file that is the ledger too. Nothing but processes and their clients' links can be struck.
    Sqlite,
    /// A PostgreSQL server that has the ledger too.
    Postgres,
    /// The same with a replica that has every commit that was answered, and takes over.
    PostgresPair,
    /// A MariaDB server that has the ledger too.
    MariaDb,
    /// A Redis server that writes before it answers, with the ledger in a SQLite file.
    Redis,
    /// The same with a clock that is set, and set back.
    RedisClock,
    /// A Redis server that keeps nothing on disk and is flushed, with the ledger in a SQLite file.
    RedisLossy,
    /// A Redis primary with two replicas and the Sentinels that make one of them the primary. What the new primary had not got is lost.
    RedisSentinel,
    /// A Redis Cluster of three primaries with a replica each. What a replica that takes over had not got is lost.
    RedisCluster,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Sqlite,
        Self::Postgres,
        Self::PostgresPair,
        Self::MariaDb,
        Self::Redis,
        Self::RedisClock,
        Self::RedisLossy,
        Self::RedisSentinel,
        Self::RedisCluster,
    ];

    /// Whether there is a server.
    #[must_use]
    pub fn has_server(self) -> bool {
        self != Self::Sqlite
    }

    /// Whether there is a link to it that is ours. Those who are told by others where a primary is go there.
    #[must_use]
    pub fn has_link(self) -> bool {
        self.has_server() && !self.has_many()
    }

    /// Whether there are several servers, and so runs that take the machine for themselves: they are for those who name them.
    #[must_use]
    pub fn has_many(self) -> bool {
        matches!(self, Self::RedisSentinel | Self::RedisCluster)
    }

    /// Whether it is Redis, which has a memory that is full and scripts to lose.
    #[must_use]
    pub fn is_redis(self) -> bool {
        self.has_server() && !self.is_one_database()
    }

    /// Whether effects and their records are in one database.
    #[must_use]
    pub fn is_one_database(self) -> bool {
        matches!(self, Self::Sqlite | Self::Postgres | Self::PostgresPair | Self::MariaDb)
    }

    fn name(self) -> &'static str {
        match self {
            Self::Sqlite => "sqlite",
            Self::Postgres => "postgres",
            Self::PostgresPair => "postgres-pair",
            Self::MariaDb => "mariadb",
            Self::Redis => "redis",
            Self::RedisClock => "redis-clock",
            Self::RedisLossy => "redis-lossy",
            Self::RedisSentinel => "redis-sentinel",
            Self::RedisCluster => "redis-cluster",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Kind {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|kind| kind.name() == name);
        known.ok_or_else(|| format!("write one of {}", Self::ALL.map(Self::name).join(", ")))
    }
}

/// A way to a testbed. A testbed that is started anew has a new one.
#[derive(Debug)]
pub(super) struct Door {
    pub(super) proxy: Proxy,
    pub(super) client: Client,
}

impl Door {
    fn to(testbed: &Testbed) -> Self {
        let proxy = Proxy::to(testbed.addr().port());
        let client = Client::http1(&format!("http://127.0.0.1:{}", proxy.port()));
        Self { proxy, client }
    }
}

/// A testbed, whether it runs just now or not.
#[derive(Debug)]
pub(super) struct Slot {
    /// The one that runs; none while it is down.
    pub(super) testbed: AsyncMutex<Option<Testbed>>,
    door: Mutex<Arc<Door>>,
    /// None where the store is a file, or several servers.
    pub(super) store_link: Option<Arc<Proxy>>,
    options: Vec<String>,
}

impl Slot {
    pub(super) fn door(&self) -> Arc<Door> {
        Arc::clone(&self.door_guard())
    }

    fn door_guard(&self) -> MutexGuard<'_, Arc<Door>> {
        self.door.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts it again, after however many tries: the store may be away.
    pub(super) async fn restart(&self, rig: &Rig) {
        let testbed = start(rig, &self.options).await;
        *self.door_guard() = Arc::new(Door::to(&testbed));
        *self.testbed.lock().await = Some(testbed);
    }
}

async fn start(rig: &Rig, options: &[String]) -> Testbed {
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    for _ in 0..60 {
        match rig.try_start_alone(&options).await {
            Ok(testbed) => return testbed,
            Err(_) => sleep(Duration::from_millis(100)).await,
        }
    }
    panic!("no testbed starts: {:?}", rig.try_start_alone(&options).await.err());
}

/// Where a run takes place.
#[derive(Debug)]
pub(super) struct Place {
    // In this order they end.
    pub(super) slots: Vec<Slot>,
    pub(super) server: Arc<Mutex<Server>>,
    pub(super) rig: Rig,
}

impl Place {
    /// Starts everything. The first half of the testbeds hold what may have happened, the second half run it again.
    pub(super) async fn new(program: &Path, kind: Kind, testbeds: usize, lease: Duration, protected: bool) -> Self {
        let rig = Rig::new(program);
        let server = Server::start(kind);
        let mut slots = Vec::new();
        for n in 0..testbeds {
            let (store_link, store) = match server.reached() {
                Reached::Nowhere => (None, rig.sqlite_store()),
                Reached::At(url) => (None, url),
                Reached::Through { port, url } => {
                    let proxy = Proxy::to(port);
                    let url = url.replacen(&format!(":{port}/"), &format!(":{}/", proxy.port()), 1);
                    (Some(Arc::new(proxy)), url)
                }
            };
            let ledger = if kind.is_one_database() { store.clone() } else { rig.ledger() };
            let recovery = if n < testbeds / 2 { "hold" } else { "rerun" };
            let lease = format!("{}ms", lease.as_millis());
            let mut options: Vec<String> = ["--migrate", "--store", &store, "--ledger", &ledger, "--lease", &lease]
                .into_iter()
                .chain(["--recovery", recovery, "--store-timeout", "1s"])
                .chain(["--response-window", "12h", "--tombstone-window", "24h"])
                .map(ToOwned::to_owned)
                .collect();
            options.extend((!protected).then(|| "--unprotected".to_owned()));
            let testbed = start(&rig, &options).await;
            let door = Mutex::new(Arc::new(Door::to(&testbed)));
            slots.push(Slot { testbed: AsyncMutex::new(Some(testbed)), door, store_link, options });
        }
        Self { slots, server: Arc::new(Mutex::new(server)), rig }
    }
}
