//! A store in a private server, and what tests do with it.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use idempotency::time::ManualClock;
use idempotency::{RecordId, Timestamp};
use idempotency_redis::{RedisOptions, RedisStore};
use idempotency_testbed::servers::{Redis, RedisCluster};
use redis::AsyncConnectionConfig;
use redis::aio::MultiplexedConnection;

pub(crate) use idempotency_testbed::requests::*;

/// One server for all tests of this program. It ends with the process.
pub(crate) fn server() -> &'static Redis {
    static SERVER: OnceLock<Redis> = OnceLock::new();
    SERVER.get_or_init(Redis::start)
}

pub(crate) fn cluster() -> &'static RedisCluster {
    static CLUSTER: OnceLock<RedisCluster> = OnceLock::new();
    CLUSTER.get_or_init(RedisCluster::start)
}

/// Keys that no other test has, and a clock for the stores there.
pub(crate) struct Place {
    pub(crate) url: String,
    pub(crate) prefix: String,
    pub(crate) clock: ManualClock,
}

impl Place {
    /// In the server that all tests share.
    pub(crate) fn new() -> Self {
        Self::at(server().url())
    }

    pub(crate) fn in_cluster() -> Self {
        Self::at(cluster().url().replacen("redis://", "redis+cluster://", 1))
    }

    pub(crate) fn at(url: String) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        // The braces' neighbours are what a pattern could get wrong.
        let prefix = format!("test*[{}]?\\:", COUNT.fetch_add(1, Ordering::Relaxed));
        Self { url, prefix, clock: ManualClock::new(Timestamp::from_micros(1_800_000_000_000_000)) }
    }

    /// Settings with the clock of this place.
    pub(crate) fn options(&self) -> RedisOptions {
        self.real_options().clock(self.clock.clone())
    }

    /// Settings with the clock that a store has in operation.
    pub(crate) fn real_options(&self) -> RedisOptions {
        RedisStore::options(&self.url).prefix(&self.prefix).response_timeout(PATIENT)
    }

    pub(crate) async fn store(&self) -> RedisStore {
        self.options().open().await.unwrap()
    }

    pub(crate) async fn real_store(&self) -> RedisStore {
        self.real_options().open().await.unwrap()
    }
}

/// A connection of somebody else.
pub(crate) async fn connection(url: &str) -> MultiplexedConnection {
    let patient =
        AsyncConnectionConfig::new().set_connection_timeout(Some(PATIENT)).set_response_timeout(Some(PATIENT));
    redis::Client::open(url).unwrap().get_multiplexed_async_connection_with_config(&patient).await.unwrap()
}

impl Place {
    pub(crate) fn key(&self, id: &RecordId) -> String {
        format!("{}{{{id}}}:r", self.prefix)
    }

    /// All keys that the stores here have made.
    pub(crate) async fn keys(&self, connection: &mut MultiplexedConnection) -> Vec<String> {
        let mut keys: Vec<String> = redis::cmd("KEYS").arg("*").query_async(connection).await.unwrap();
        keys.retain(|key| key.starts_with(&self.prefix));
        keys
    }
}
