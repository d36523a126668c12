//! The server of a store, whichever it is, and what can be done to it.

use std::time::Duration;

use super::place::Kind;
use crate::servers::{Absence, MariaDb, Postgres, Redis, RedisCluster, RedisSentinel};

/// The store's server.
#[derive(Debug)]
pub(super) enum Server {
    None,
    /// With its replica, if it has one.
    Postgres(Postgres, Option<Postgres>),
    MariaDb(MariaDb),
    Redis(Redis),
    Sentinel(RedisSentinel),
    Cluster(RedisCluster),
}

/// How a store is reached.
pub(super) enum Reached {
    /// Not over a link.
    Nowhere,
    /// At this URL.
    At(String),
    /// At this URL, or through a proxy to this port of it.
    Through { port: u16, url: String },
}

/// Runs the same on whichever one server there is.
macro_rules! on {
    ($server:expr, $it:ident => $run:expr) => {
        match $server {
            Server::None | Server::Sentinel(_) | Server::Cluster(_) => {}
            Server::Postgres($it, _) => $run,
            Server::MariaDb($it) => $run,
            Server::Redis($it) => $run,
        }
    };
}

impl Server {
    pub(super) fn start(kind: Kind) -> Self {
        match kind {
            Kind::Sqlite => Self::None,
            Kind::Postgres | Kind::PostgresPair => {
                let server = Postgres::start();
                let _ = server.create_database(DATABASE);
                let replica = (kind == Kind::PostgresPair).then(|| server.replica());
                Self::Postgres(server, replica)
            }
            Kind::MariaDb => {
                let server = MariaDb::start();
                let _ = server.create_database(DATABASE);
                Self::MariaDb(server)
            }
            Kind::Redis => Self::Redis(Redis::start_with(&ON_DISK)),
            Kind::RedisClock => Self::Redis(Redis::start_with_clock(&ON_DISK)),
            Kind::RedisLossy => Self::Redis(Redis::start()),
            Kind::RedisSentinel => Self::Sentinel(RedisSentinel::start_patient(DOWN_AFTER, 2, &ON_DISK)),
            Kind::RedisCluster => Self::Cluster(RedisCluster::start_with(1, &ON_DISK)),
        }
    }

    pub(super) fn reached(&self) -> Reached {
        let through = |url: String| Reached::Through { port: port_of(&url), url };
        match self {
            Self::None => Reached::Nowhere,
            Self::Postgres(postgres, _) => through(postgres.url(DATABASE)),
            Self::MariaDb(mariadb) => through(mariadb.url(DATABASE)),
            Self::Redis(redis) => through(redis.url()),
            Self::Sentinel(redis) => {
                Reached::At(format!("redis+sentinel://{}/{}", redis.addresses(), RedisSentinel::NAME))
            }
            Self::Cluster(redis) => Reached::At(format!("redis+cluster://{}", redis.addresses())),
        }
    }

    pub(super) fn pause(&mut self) {
        on!(self, server => server.pause());
    }

    pub(super) fn resume(&mut self) {
        on!(self, server => server.resume());
    }

    pub(super) fn kill(&mut self) {
        on!(self, server => server.kill());
    }

    pub(super) fn restart(&mut self) {
        on!(self, server => server.restart());
    }

    /// Has a replica take its place, which in the end has a replica of its own. Gives the new port as soon as there is one.
    pub(super) fn fail_over(&mut self, absence: Absence, turn: usize, moved: impl FnOnce(u16)) {
        match self {
            Self::Postgres(primary, replica) => {
                let Some(next) = replica.take() else { return };
                primary.kill();
                next.promote();
                *primary = next;
                moved(port_of(&primary.url(DATABASE)));
                *replica = Some(primary.replica());
            }
            Self::Sentinel(redis) => redis.fail_over(absence),
            Self::Cluster(redis) => {
                // Each third of the slots began with a primary of its own, and stays together.
                let third = SLOTS / 3;
                redis.fail_over(third / 2 + third * u16::try_from(turn % 3).unwrap_or_default(), absence);
            }
            Self::None | Self::MariaDb(_) | Self::Redis(_) => {}
        }
    }

    pub(super) fn flush(&mut self) {
        self.each_redis(|redis| drop(redis.cli(&["FLUSHALL"])));
    }

    pub(super) fn flush_scripts(&mut self) {
        self.each_redis(|redis| drop(redis.cli(&["SCRIPT", "FLUSH"])));
    }

    /// Whether its memory is full: whatever it has is more than it may have.
    pub(super) fn fill(&mut self, is_full: bool) {
        let most = if is_full { "1" } else { "0" };
        self.each_redis(|redis| drop(redis.cli(&["CONFIG", "SET", "maxmemory", most])));
    }

    /// Sets its clock so many seconds ahead.
    pub(super) fn set_clock(&mut self, ahead: i64) {
        self.each_redis(|redis| redis.set_clock(ahead));
    }

    pub(super) fn kill_connections(&mut self) {
        match self {
            Self::Postgres(postgres, _) => {
                let ours = format!("datname = '{DATABASE}' AND pid <> pg_backend_pid()");
                let all = format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {ours}");
                postgres.sql("postgres", &all);
            }
            Self::MariaDb(mariadb) => mariadb.kill_connections(DATABASE),
            _ => self.each_redis(|redis| drop(redis.cli(&["CLIENT", "KILL", "TYPE", "normal"]))),
        }
    }

    fn each_redis(&mut self, change: impl Fn(&Redis)) {
        match self {
            Self::Redis(redis) => change(redis),
            Self::Sentinel(redis) => redis.nodes().iter().for_each(change),
            Self::Cluster(redis) => redis.nodes().iter().for_each(change),
            Self::None | Self::Postgres(..) | Self::MariaDb(_) => {}
        }
    }

    /// How many transactions stand open.
    pub(super) fn open_transactions(&self) -> u64 {
        let count = match self {
            Self::Postgres(postgres, _) => {
                let open = "state LIKE 'idle in transaction%'";
                let count = format!("SELECT count(*) FROM pg_stat_activity WHERE datname = '{DATABASE}' AND {open}");
                postgres.sql("postgres", &count)
            }
            Self::MariaDb(mariadb) => mariadb.sql("", "SELECT COUNT(*) FROM information_schema.innodb_trx"),
            Self::None | Self::Redis(_) | Self::Sentinel(_) | Self::Cluster(_) => return 0,
        };
        count.parse().expect("a count")
    }
}

fn port_of(url: &str) -> u16 {
    let after_host = url.split("127.0.0.1:").nth(1).expect("a server of ours");
    after_host.split('/').next().and_then(|port| port.parse().ok()).expect("a port")
}

/// The database of store and ledger.
const DATABASE: &str = "shop";
/// Writes before it answers.
const ON_DISK: [&str; 4] = ["--appendonly", "yes", "--appendfsync", "always"];
/// Longer than a busy machine keeps a server waiting.
const DOWN_AFTER: Duration = Duration::from_secs(2);
/// Of a cluster.
const SLOTS: u16 = 16_384;
