//! What a record weighs in each store: with an outcome, by the byte of its body, and as a tombstone.
//! `cargo bench -p idempotency-benches --bench bytes`; `-- --write` keeps it in `benches/window/bytes.json`, where the window tuner reads
//! it; `-- --quick` weighs so few that only it is shown that it runs. Servers are private and end with the run.
#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "a bench prints its table, and fails loudly")]

mod work;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use idempotency::{Claimed, Holder, Life, Recovery, Store, Windows};
use idempotency_memory::MemoryStore;
use idempotency_redis::RedisStore;
use idempotency_sqlx::{MySqlStore, PostgresStore, SqliteStore};
use idempotency_testbed::servers::{MariaDb, Postgres, Redis};
use idempotency_window::bytes::Weights;
use sqlx::{MySqlPool, PgPool, SqlitePool};
use tokio::task::JoinSet;
use work::{claim, outcome};

#[global_allocator]
static ALLOCATOR: dhat::Alloc = dhat::Alloc;

/// What is put into a store.
#[derive(Clone, Copy)]
enum Content {
    /// Records with bodies of so many bytes.
    Bodies(usize),
    /// Records whose bodies are gone.
    Tombstones,
}

/// The size of most answers. Weights by the byte are those up to it: a page that holds one large record and no second is half empty.
const BODY: usize = 1000;
const CALLERS: usize = 16;

#[tokio::main]
async fn main() {
    let says = |word: &str| std::env::args().any(|argument| argument == word);
    let count = if says("--quick") || says("--test") { 320 } else { 4_000 };
    let _profiler = dhat::Profiler::builder().testing().build();
    // Many, since each of its parts begins a piece of memory that is not full at first.
    let many = if count < 4_000 { count } else { 200_000 };
    let all =
        [in_process(many).await, sqlite(count).await, postgres(count).await, mariadb(count).await, redis(count).await];
    println!("| store | a record | each byte of its body | a tombstone | weighed |\n|---|---|---|---|---|");
    for Weights { store, record, per_byte, tombstone, how } in &all {
        println!("| {store} | {record:.0} | {per_byte:.2} | {tombstone:.0} | {how} |");
    }
    if says("--write") {
        let text = serde_json::to_string_pretty(&all).unwrap() + "\n";
        std::fs::write(concat!(env!("CARGO_MANIFEST_DIR"), "/window/bytes.json"), text).unwrap();
    }
}

/// From what so many records weigh together.
fn weights(store: &str, how: &str, count: usize, [empty, full, tombstones]: [u64; 3]) -> Weights {
    let each = |bytes: u64| bytes as f64 / count as f64;
    let round = |bytes: f64| (bytes * 100.0).round() / 100.0;
    let (record, per_byte) = (round(each(empty)), round((each(full) - each(empty)).max(0.0) / BODY as f64));
    // Where they weigh the same, chance must not make the tombstone the heavier.
    let tombstone = round(each(tombstones)).min(record);
    Weights { store: store.to_owned(), record, per_byte, tombstone, how: how.to_owned() }
}

/// Claims and completes so many keys, from many callers at once, and sweeps until nothing is left to be swept.
async fn fill<S: Store>(store: &Arc<S>, count: usize, content: Content) {
    let (size, windows) = match content {
        Content::Bodies(size) => (size, Windows::default()),
        Content::Tombstones => {
            (BODY, Windows::new(Duration::from_millis(1), Duration::from_secs(30 * 86_400)).unwrap())
        }
    };
    let mut callers = JoinSet::new();
    for caller in 0..CALLERS {
        let (store, windows) = (Arc::clone(store), windows);
        callers.spawn(async move {
            for _ in (caller..count).step_by(CALLERS) {
                let claim = claim(&format!("{:032x}", rand::random::<u128>()), Life::new(Recovery::Hold, windows));
                let Claimed::Granted(grant) = store.claim(&claim).await.unwrap() else { panic!("not granted") };
                let holder = Holder { id: claim.id, token: grant.token, nonce: claim.nonce };
                // Chance cannot be compressed.
                let body: Bytes = (0..size).map(|_| rand::random::<u8>()).collect();
                store.complete(&holder, &outcome(body)).await.unwrap();
            }
        });
    }
    while callers.join_next().await.transpose().unwrap().is_some() {}
    tokio::time::sleep(Duration::from_millis(50)).await;
    while store.sweep(1000).await.unwrap().more {}
}

async fn in_process(count: usize) -> Weights {
    let mut weighed = [0; 3];
    for (content, weighed) in contents().into_iter().zip(&mut weighed) {
        let before = dhat::HeapStats::get().curr_bytes;
        let store = Arc::new(MemoryStore::new());
        fill(&store, count, content).await;
        *weighed = dhat::HeapStats::get().curr_bytes.saturating_sub(before) as u64;
    }
    weights("in process", "bytes asked of the allocator", count, weighed)
}

async fn sqlite(count: usize) -> Weights {
    let mut weighed = [0; 3];
    for (content, weighed) in contents().into_iter().zip(&mut weighed) {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}", folder.path().join("bytes.sqlite").display());
        SqliteStore::migrate(&url).await.unwrap();
        let store = Arc::new(SqliteStore::options(&url).busy_timeout(PATIENT).open().await.unwrap());
        let pool = SqlitePool::connect(&url).await.unwrap();
        let size = async || {
            sqlx::query("VACUUM").execute(&pool).await.unwrap();
            let pages = "SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()";
            sqlx::query_scalar::<_, i64>(pages).fetch_one(&pool).await.unwrap()
        };
        let empty = size().await;
        fill(&store, count, content).await;
        *weighed = (size().await - empty).unsigned_abs();
    }
    weights("SQLite", "the file after VACUUM", count, weighed)
}

async fn postgres(count: usize) -> Weights {
    let server = Postgres::start();
    let mut weighed = [0; 3];
    for (content, (name, weighed)) in contents().into_iter().zip(["a", "b", "c"].into_iter().zip(&mut weighed)) {
        let url = server.create_database(name);
        let store = PostgresStore::options(&url).connections(CALLERS as u32).wait(PATIENT);
        store.clone().migrate().await.unwrap();
        let store = Arc::new(store.open().await.unwrap());
        let pool = PgPool::connect(&url).await.unwrap();
        let size = async || {
            sqlx::query("VACUUM FULL").execute(&pool).await.unwrap();
            let tables = "SELECT sum(pg_total_relation_size(relid))::BIGINT FROM pg_stat_user_tables";
            sqlx::query_scalar::<_, i64>(tables).fetch_one(&pool).await.unwrap()
        };
        let empty = size().await;
        fill(&store, count, content).await;
        *weighed = (size().await - empty).unsigned_abs();
    }
    weights("PostgreSQL", "tables and indexes after VACUUM FULL", count, weighed)
}

async fn mariadb(count: usize) -> Weights {
    let server = MariaDb::start();
    let mut weighed = [0; 3];
    for (content, (name, weighed)) in contents().into_iter().zip(["a", "b", "c"].into_iter().zip(&mut weighed)) {
        let url = server.create_database(name);
        let store = MySqlStore::options(&url).connections(CALLERS as u32).wait(PATIENT);
        store.clone().migrate().await.unwrap();
        let store = Arc::new(store.open().await.unwrap());
        let pool = MySqlPool::connect(&url).await.unwrap();
        let size = async || {
            let names =
                "SELECT CAST(table_name AS CHAR) FROM information_schema.tables WHERE table_schema = DATABASE()";
            let names: Vec<String> = sqlx::query_scalar(names).fetch_all(&pool).await.unwrap();
            for work in ["OPTIMIZE", "ANALYZE"] {
                for name in &names {
                    let statement = sqlx::AssertSqlSafe(format!("{work} TABLE `{name}`"));
                    sqlx::raw_sql(statement).execute(&pool).await.unwrap();
                }
            }
            let tables = "SELECT CAST(SUM(data_length + index_length) AS SIGNED) FROM information_schema.tables
                          WHERE table_schema = DATABASE()";
            sqlx::query_scalar::<_, i64>(tables).fetch_one(&pool).await.unwrap()
        };
        let empty = size().await;
        fill(&store, count, content).await;
        *weighed = (size().await - empty).unsigned_abs();
    }
    weights("MariaDB", "tables and indexes after OPTIMIZE", count, weighed)
}

async fn redis(count: usize) -> Weights {
    let mut weighed = [0; 3];
    for (content, weighed) in contents().into_iter().zip(&mut weighed) {
        let server = Redis::start();
        let store = Arc::new(RedisStore::options(&server.url()).response_timeout(PATIENT).open().await.unwrap());
        let client = redis::Client::open(server.url()).unwrap();
        let mut connection = client.get_multiplexed_async_connection().await.unwrap();
        let mut size = async || {
            let memory: String = redis::cmd("INFO").arg("memory").query_async(&mut connection).await.unwrap();
            let line = memory.lines().find_map(|line| line.strip_prefix("used_memory:")).unwrap();
            line.trim().parse::<u64>().unwrap()
        };
        // What the first call costs, such as its scripts, is no record's.
        fill(&store, 1, content).await;
        let empty = size().await;
        fill(&store, count, content).await;
        *weighed = size().await.saturating_sub(empty);
    }
    weights("Redis", "used_memory", count, weighed)
}

const fn contents() -> [Content; 3] {
    [Content::Bodies(0), Content::Bodies(BODY), Content::Tombstones]
}

const PATIENT: Duration = Duration::from_secs(60);
