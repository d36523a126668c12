//! What a store makes of its server: fresh claims with their completions, and replays, as a share of what the same server does with raw
//! commands over as many connections, at 1, 16, 64 and 256 callers. Servers are private and end with the run.
//! `cargo bench -p idempotency-benches --bench stores`; `-- --quick` runs it for a moment, `-- redis` only one of `redis`, `postgresql`,
//! `mariadb`, `sqlite`.
#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "a bench prints its table, and fails loudly")]

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use idempotency::{
    BoxStore, Claim, Claimed, Fingerprint, Holder, Key, Lease, Life, Nonce, Outcome, RecordId, ScopeId, Store,
};
use idempotency_redis::RedisStore;
use idempotency_sqlx::{MySqlStore, PostgresStore, SqliteStore, Statements};
use idempotency_testbed::servers::{MariaDb, Postgres, Redis};
use sqlx::mysql::MySqlPoolOptions;
use sqlx::postgres::PgPoolOptions;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use tokio::task::JoinSet;

/// A server's raw commands and the store on it, over as many connections.
struct Bed {
    name: &'static str,
    connections: u32,
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
const CALLERS: [usize; 4] = [1, 16, 64, 256];

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
        run(&runtime, runtime.block_on(redis(&server)), rounds, slice);
    }
    if all || says("postgresql") {
        let server = Postgres::start();
        run(&runtime, runtime.block_on(postgres(&server.create_database("bench"))), rounds, slice);
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
    for callers in CALLERS {
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
                let claim = claim(&format!("fresh-{}", rand::random::<u128>()));
                let Claimed::Granted(grant) = self.store.claim(&claim).await.unwrap() else { panic!("not granted") };
                let holder = Holder { id: claim.id, token: grant.token, nonce: claim.nonce };
                self.store.complete(&holder, &outcome()).await.unwrap();
            }
            Work::Replay => {
                let claim = claim("replayed");
                match self.store.claim(&claim).await.unwrap() {
                    Claimed::Replay { .. } => {}
                    Claimed::Granted(grant) => {
                        let holder = Holder { id: claim.id, token: grant.token, nonce: claim.nonce };
                        self.store.complete(&holder, &outcome()).await.unwrap();
                    }
                    other => panic!("{other:?}"),
                }
            }
        }
    }
}

fn claim(key: &str) -> Claim {
    Claim {
        id: RecordId::new(&ScopeId::global(), &Key::parse(key).unwrap()),
        fingerprint: Fingerprint::of(["10 EUR"]),
        nonce: Nonce::random(),
        lease: Lease::default(),
        life: Life::default(),
        key_time: None,
        room: 1024,
    }
}

/// As long as a small answer.
fn outcome() -> Outcome {
    Outcome::new(201, vec![b'x'; 200].into()).with_location(Some("/charges/1"))
}

const PATIENT: Duration = Duration::from_secs(60);

/// One multiplexed connection each. The raw commands are scripts, too: one that writes a hash with an expiry, and one that writes it
/// again.
async fn redis(server: &Redis) -> Bed {
    let client = redis::Client::open(server.url()).unwrap();
    let connection = client.get_multiplexed_async_connection().await.unwrap();
    let script = redis::Script::new(
        "redis.call('HSET', KEYS[1], 'a', ARGV[1], 'b', ARGV[2]) redis.call('PEXPIRE', KEYS[1], 3600000) return 1",
    );
    let raw: Raw = Arc::new(move |n| {
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
    });
    let store = RedisStore::options(&server.url()).response_timeout(PATIENT).open().await.unwrap();
    Bed { name: "Redis", connections: 1, raw, store: BoxStore::new(store) }
}

async fn postgres(url: &str) -> Bed {
    let pool = PgPoolOptions::new().max_connections(CONNECTIONS).acquire_timeout(PATIENT).test_before_acquire(false);
    let pool = pool.connect_lazy(url).unwrap();
    sqlx::query("CREATE TABLE raw (id BIGINT PRIMARY KEY, body BYTEA)").execute(&pool).await.unwrap();
    let raw: Raw = Arc::new(move |n| {
        let pool = pool.clone();
        Box::pin(async move {
            let insert = sqlx::query("INSERT INTO raw (id) VALUES ($1)").bind(n.cast_signed());
            insert.execute(&pool).await.unwrap();
            let update = sqlx::query("UPDATE raw SET body = $2 WHERE id = $1").bind(n.cast_signed());
            update.bind([b'x'; 200].as_slice()).execute(&pool).await.unwrap();
        })
    });
    let store = PostgresStore::options(url).connections(CONNECTIONS).wait(PATIENT).statements(Statements::PreparedOnce);
    store.clone().migrate().await.unwrap();
    Bed { name: "PostgreSQL", connections: CONNECTIONS, raw, store: BoxStore::new(store.open().await.unwrap()) }
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
    Bed { name: "MariaDB", connections: CONNECTIONS, raw, store: BoxStore::new(store.open().await.unwrap()) }
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
    Bed { name: "SQLite", connections: 1, raw, store: BoxStore::new(store) }
}
