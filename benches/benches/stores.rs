//! What a store makes of its server: fresh claims with their completions, and replays, as a share of what the same server does with raw
//! commands over as many connections, at 1, 16, 64 and 256 callers; of PostgreSQL with as many connections as callers. Servers are private
//! and end with the run.
//! `cargo bench -p idempotency-benches --bench stores`; `-- --quick` runs it for a moment, `-- redis` only one of `redis`, `postgresql`,
//! `mariadb`, `sqlite`.
#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "a bench prints its table, and fails loudly")]

mod work;

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use idempotency::{BoxStore, Claimed, Holder, Lease, Life, Outcome, Store};
use idempotency_redis::RedisStore;
use idempotency_sqlx::{MySqlStore, PostgresStore, SqliteStore, Statements};
use idempotency_testbed::servers::{MariaDb, Postgres, Redis};
use redis::AsyncConnectionConfig;
use redis::aio::MultiplexedConnection;
use sqlx::mysql::MySqlPoolOptions;
use sqlx::postgres::PgPoolOptions;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use tokio::task::JoinSet;
use work::{claim, outcome};

/// A server's raw commands and the store on it, over as many connections.
struct Bed {
    name: &'static str,
    connections: u32,
    callers: &'static [usize],
    /// Two raw commands that write: what a claim and a completion come down to.
    raw: Raw,
    store: BoxStore,
}

type Raw = Arc<dyn Fn(u64) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync>;

/// What callers do, again and again.
#[derive(Clone, Copy)]
enum Work {
    Raw,
    Fresh,
    Replay,
}

const CONNECTIONS: u32 = 16;
const CALLERS: &[usize] = &[1, 16, 64, 256];

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let says = |word: &str| arguments.iter().any(|argument| argument == word);
    let (rounds, slice) =
        if says("--quick") { (1, Duration::from_millis(100)) } else { (5, Duration::from_millis(800)) };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let all = !["redis", "postgresql", "mariadb", "sqlite"].iter().any(|name| says(name));
    println!(
        "| store | connections | callers | pairs of raw commands/s | fresh (claim and complete), share | replay, share of raw |"
    );
    println!("|---|---|---|---|---|---|");
    if all || says("redis") {
        let server = Redis::start();
        for fair in [false, true] {
            run(&runtime, runtime.block_on(redis(&server, fair)), rounds, slice);
        }
    }
    if all || says("postgresql") {
        let server = Postgres::start();
        let url = server.create_database("bench");
        for (name, statements) in [
            ("PostgreSQL, statements prepared once", Statements::PreparedOnce),
            ("PostgreSQL, statements in transactions", Statements::InTransactions),
        ] {
            for callers in [&[1], &[8], &[32], &[256]] {
                run(&runtime, runtime.block_on(postgres(&url, name, statements, callers)), rounds, slice);
            }
        }
    }
    if all || says("mariadb") {
        let server = MariaDb::start();
        run(&runtime, runtime.block_on(mariadb(&server.create_database("bench"))), rounds, slice);
    }
    if all || says("sqlite") {
        let file = folder.path().join("bench.sqlite");
        run(&runtime, runtime.block_on(sqlite(&format!("sqlite:{}", file.display()))), rounds, slice);
    }
}

fn run(runtime: &tokio::runtime::Runtime, bed: Bed, rounds: usize, slice: Duration) {
    let bed = Arc::new(bed);
    runtime.block_on(bed.work(Work::Replay, 1, Duration::from_millis(50)));
    for &callers in bed.callers {
        let mut shares = [Vec::new(), Vec::new()];
        let mut raws = Vec::new();
        for _ in 0..rounds {
            // In turn, so that whatever else the machine does is in all of them.
            let [raw, fresh, replay] =
                [Work::Raw, Work::Fresh, Work::Replay].map(|work| runtime.block_on(bed.work(work, callers, slice)));
            raws.push(raw);
            shares[0].push(fresh / raw);
            // A replay is one command, and a pair is two.
            shares[1].push(replay / (2.0 * raw));
        }
        let [fresh, replay] = shares.map(median);
        println!("| {} | {} | {callers} | {:.0} | {fresh:.2} | {replay:.2} |", bed.name, bed.connections, median(raws));
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

impl Bed {
    /// So many callers at once, for so long. Says how often a second it was done.
    async fn work(self: &Arc<Self>, work: Work, callers: usize, slice: Duration) -> f64 {
        let (begun, done) = (Instant::now(), Arc::new(AtomicU64::new(0)));
        let mut tasks = JoinSet::new();
        for _ in 0..callers {
            let (bed, done) = (Arc::clone(self), Arc::clone(&done));
            tasks.spawn(async move {
                while begun.elapsed() < slice {
                    bed.once(work).await;
                    done.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        tasks.join_all().await;
        done.load(Ordering::Relaxed) as f64 / begun.elapsed().as_secs_f64()
    }

    async fn once(&self, work: Work) {
        match work {
            Work::Raw => (self.raw)(rand::random::<u64>() >> 1).await,
            Work::Fresh => {
                let claim = claim(&format!("fresh-{}", rand::random::<u128>()), Life::default());
                let Claimed::Granted(grant) = self.store.claim(&claim).await.unwrap() else { panic!("not granted") };
                let holder = Holder { id: claim.id, token: grant.token, nonce: claim.nonce };
                self.store.complete(&holder, &small()).await.unwrap();
            }
            Work::Replay => {
                let claim = claim("replayed", Life::default());
                match self.store.claim(&claim).await.unwrap() {
                    Claimed::Replay { .. } => {}
                    Claimed::Granted(grant) => {
                        let holder = Holder { id: claim.id, token: grant.token, nonce: claim.nonce };
                        self.store.complete(&holder, &small()).await.unwrap();
                    }
                    other => panic!("{other:?}"),
                }
            }
        }
    }
}

/// As long as a small answer.
fn small() -> Outcome {
    outcome(vec![b'x'; 200].into())
}

const PATIENT: Duration = Duration::from_secs(60);

/// One multiplexed connection each. The raw commands are scripts, too: one that writes a hash with an expiry, and one that writes it
/// again, without a look at either. The fair pair decides: `fair_claim.lua`, `fair_complete.lua`.
async fn redis(server: &Redis, fair: bool) -> Bed {
    let client = redis::Client::open(server.url()).unwrap();
    let patient = AsyncConnectionConfig::new().set_response_timeout(Some(PATIENT));
    let connection = client.get_multiplexed_async_connection_with_config(&patient).await.unwrap();
    let store = RedisStore::options(&server.url()).response_timeout(PATIENT).open().await.unwrap();
    let (name, raw) = if fair { ("Redis, fair pair", fair_pair(connection)) } else { ("Redis", raw_pair(connection)) };
    Bed { name, connections: 1, callers: CALLERS, raw, store: BoxStore::new(store) }
}

fn raw_pair(connection: MultiplexedConnection) -> Raw {
    let script = redis::Script::new(
        "redis.call('HSET', KEYS[1], 'a', ARGV[1], 'b', ARGV[2]) redis.call('PEXPIRE', KEYS[1], 3600000) return 1",
    );
    Arc::new(move |n| {
        let (mut connection, script) = (connection.clone(), script.clone());
        Box::pin(async move {
            for _ in 0..2 {
                let done: i64 = script
                    .key(format!("raw:{n}"))
                    .arg(n)
                    .arg([b'x'; 200].as_slice())
                    .invoke_async(&mut connection)
                    .await
                    .unwrap();
                assert_eq!(done, 1);
            }
        })
    })
}

/// What any claim and any completion must do. The keys are as long as the store's.
fn fair_pair(connection: MultiplexedConnection) -> Raw {
    let claim = redis::Script::new(include_str!("work/fair_claim.lua"));
    let complete = redis::Script::new(include_str!("work/fair_complete.lua"));
    Arc::new(move |n| {
        let (mut connection, claim, complete) = (connection.clone(), claim.clone(), complete.clone());
        Box::pin(async move {
            let (key, request) = (format!("fair:{{{n:064}}}:r"), [7_u8; 49]);
            let mut claim = claim.key(&key);
            claim.arg(request.as_slice()).arg(idempotency::time::micros(Lease::default().length()));
            let token: i64 = claim.invoke_async(&mut connection).await.unwrap();
            assert_ne!(token, 0);
            let mut complete = complete.key(&key);
            complete.arg(token).arg(&request[33..]).arg(201).arg("/charges/1").arg([b'x'; 200].as_slice());
            let done: i64 = complete.invoke_async(&mut connection).await.unwrap();
            assert_eq!(done, 1);
        })
    })
}

/// As many connections as callers, 32 at most. The raw commands are prepared once in either case.
async fn postgres(url: &str, name: &'static str, statements: Statements, callers: &'static [usize]) -> Bed {
    let connections = callers.iter().map(|callers| u32::try_from(*callers).unwrap()).max().unwrap().min(32);
    let pool = PgPoolOptions::new().max_connections(connections).acquire_timeout(PATIENT).test_before_acquire(false);
    let pool = pool.connect_lazy(url).unwrap();
    sqlx::query("CREATE TABLE IF NOT EXISTS raw (id BIGINT PRIMARY KEY, body BYTEA)").execute(&pool).await.unwrap();
    let raw: Raw = Arc::new(move |n| {
        let pool = pool.clone();
        Box::pin(async move {
            let insert = sqlx::query("INSERT INTO raw (id) VALUES ($1)").bind(n.cast_signed());
            insert.execute(&pool).await.unwrap();
            let update = sqlx::query("UPDATE raw SET body = $2 WHERE id = $1").bind(n.cast_signed());
            update.bind([b'x'; 200].as_slice()).execute(&pool).await.unwrap();
        })
    });
    let store = PostgresStore::options(url).connections(connections).wait(PATIENT).statements(statements);
    store.clone().migrate().await.unwrap();
    Bed { name, connections, callers, raw, store: BoxStore::new(store.open().await.unwrap()) }
}

async fn mariadb(url: &str) -> Bed {
    let pool = MySqlPoolOptions::new().max_connections(CONNECTIONS).acquire_timeout(PATIENT).test_before_acquire(false);
    let pool = pool.connect_lazy(url).unwrap();
    sqlx::query("CREATE TABLE raw (id BIGINT PRIMARY KEY, body BLOB) ENGINE = InnoDB").execute(&pool).await.unwrap();
    let raw: Raw = Arc::new(move |n| {
        let pool = pool.clone();
        Box::pin(async move {
            let insert = sqlx::query("INSERT INTO raw (id) VALUES (?)").bind(n.cast_signed());
            insert.execute(&pool).await.unwrap();
            let update = sqlx::query("UPDATE raw SET body = ? WHERE id = ?").bind([b'x'; 200].as_slice());
            update.bind(n.cast_signed()).execute(&pool).await.unwrap();
        })
    });
    let store = MySqlStore::options(url).connections(CONNECTIONS).wait(PATIENT);
    store.clone().migrate().await.unwrap();
    Bed {
        name: "MariaDB",
        connections: CONNECTIONS,
        callers: CALLERS,
        raw,
        store: BoxStore::new(store.open().await.unwrap()),
    }
}

/// One writer each, durable.
async fn sqlite(url: &str) -> Bed {
    SqliteStore::migrate(url).await.unwrap();
    let raw_url = url.replace("bench.sqlite", "raw.sqlite");
    let options: SqliteConnectOptions = raw_url.parse().unwrap();
    let options =
        options.create_if_missing(true).journal_mode(SqliteJournalMode::Wal).synchronous(SqliteSynchronous::Full);
    let pool = SqlitePoolOptions::new().max_connections(1).acquire_timeout(PATIENT).test_before_acquire(false);
    let pool = pool.connect_lazy_with(options);
    sqlx::query("CREATE TABLE raw (id INTEGER PRIMARY KEY, body BLOB) STRICT").execute(&pool).await.unwrap();
    let raw: Raw = Arc::new(move |n| {
        let pool = pool.clone();
        Box::pin(async move {
            let insert = sqlx::query("INSERT INTO raw (id) VALUES (?1)").bind(n.cast_signed());
            insert.execute(&pool).await.unwrap();
            let update = sqlx::query("UPDATE raw SET body = ?2 WHERE id = ?1").bind(n.cast_signed());
            update.bind([b'x'; 200].as_slice()).execute(&pool).await.unwrap();
        })
    });
    let store = SqliteStore::options(url).busy_timeout(PATIENT).open().await.unwrap();
    Bed { name: "SQLite", connections: 1, callers: CALLERS, raw, store: BoxStore::new(store) }
}
