//! What a claim costs among many live records: in process against a bare sharded map of the same size, in SQLite and PostgreSQL against
//! the same store with a thousand; and what records take of this process's memory. `cargo bench -p idempotency-benches --bench growth`;
//! `-- --quick` runs it for a moment, `-- large` adds ten million in process (10 GiB), `-- memory`, `-- sqlite` or `-- postgresql` only one.
#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "a bench prints its table, and fails loudly")]

#[path = "work/in_process.rs"]
mod in_process;
mod work;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use idempotency::{Claimed, Holder, Life, Store};
use idempotency_benches::{Subject, compare, table, timed};
use idempotency_sqlx::{PostgresStore, SqliteStore, Statements};
use idempotency_testbed::servers::Postgres;
use sqlx::{PgPool, SqlitePool};
use tokio::runtime::Runtime;
use work::{claim, outcome};

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let says = |word: &str| arguments.iter().any(|argument| argument == word);
    if let Some(at) = arguments.iter().position(|argument| argument == in_process::WEIGH) {
        return in_process::weigh(&arguments[at + 1..]);
    }
    let quick = says("--quick");
    let all = !["memory", "sqlite", "postgresql"].iter().any(|name| says(name));
    let runtime = Runtime::new().unwrap();
    let many = if quick { 10_000 } else { 1_000_000 };
    if all || says("memory") {
        let mut sizes = vec![1000, many];
        if says("large") {
            sizes.push(10_000_000);
        }
        in_process::resident(many);
        sizes.into_iter().for_each(|live| in_process::compared(&runtime, live, quick));
    }
    if all || says("sqlite") {
        sqlite(&runtime, many, quick);
    }
    if all || says("postgresql") {
        postgres(&runtime, many, quick);
    }
}

/// A fresh key, however often it is asked for.
fn key() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("key-{:016x}", NEXT.fetch_add(1, Ordering::Relaxed))
}

async fn run<S: Store>(store: &S, key: &str) {
    let claim = claim(key, Life::default());
    let Claimed::Granted(grant) = store.claim(&claim).await.unwrap() else { panic!("not granted") };
    let holder = Holder { id: claim.id, token: grant.token, nonce: claim.nonce };
    store.complete(&holder, &outcome(Bytes::from_static(&[b'x'; 100]))).await.unwrap();
}

fn sqlite(runtime: &Runtime, many: u32, quick: bool) {
    let folder = tempfile::tempdir().unwrap();
    let open = async |live: u32| {
        let url = format!("sqlite:{}", folder.path().join(format!("{live}.sqlite")).display());
        SqliteStore::migrate(&url).await.unwrap();
        let store = SqliteStore::options(&url).busy_timeout(PATIENT).open().await.unwrap();
        run(&store, &key()).await;
        let pool = SqlitePool::connect(&url).await.unwrap();
        let columns = "SELECT group_concat(CASE name WHEN 'id' THEN 'randomblob(32)' ELSE name END)
                       FROM pragma_table_info('idempotency_records')";
        let columns: String = sqlx::query_scalar(columns).fetch_one(&pool).await.unwrap();
        let copy = format!(
            "WITH RECURSIVE counter (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM counter WHERE n < {live})
             INSERT INTO idempotency_records SELECT {columns}
             FROM counter, (SELECT * FROM idempotency_records LIMIT 1)"
        );
        sqlx::query(sqlx::AssertSqlSafe(copy)).execute(&pool).await.unwrap();
        store
    };
    let (few, many_store) = runtime.block_on(async { (open(1000).await, open(many).await) });
    compare_stores(runtime, "SQLite", (few, many_store), many, quick);
}

fn postgres(runtime: &Runtime, many: u32, quick: bool) {
    let server = Postgres::start();
    let open = async |live: u32| {
        let url = server.create_database(&format!("live{live}"));
        let options = PostgresStore::options(&url).statements(Statements::PreparedOnce).wait(PATIENT);
        options.clone().migrate().await.unwrap();
        let store = options.open().await.unwrap();
        run(&store, &key()).await;
        let pool = PgPool::connect(&url).await.unwrap();
        let columns = "SELECT string_agg(
                           CASE column_name WHEN 'id' THEN 'sha256(convert_to(n::TEXT, ''UTF8''))' ELSE column_name END,
                           ',' ORDER BY ordinal_position)
                       FROM information_schema.columns WHERE table_name = 'idempotency_records'";
        let columns: String = sqlx::query_scalar(columns).fetch_one(&pool).await.unwrap();
        let copy = format!(
            "INSERT INTO idempotency_records SELECT {columns}
             FROM generate_series(1, {live}) AS n, (SELECT * FROM idempotency_records LIMIT 1) AS template"
        );
        sqlx::query(sqlx::AssertSqlSafe(copy)).execute(&pool).await.unwrap();
        sqlx::query("VACUUM ANALYZE idempotency_records").execute(&pool).await.unwrap();
        sqlx::query("CHECKPOINT").execute(&pool).await.unwrap();
        store
    };
    let (few, many_store) = runtime.block_on(async { (open(1000).await, open(many).await) });
    compare_stores(runtime, "PostgreSQL", (few, many_store), many, quick);
}

fn compare_stores<S: Store>(runtime: &Runtime, name: &str, (few, lots): (S, S), many: u32, quick: bool) {
    let (rounds, n) = if quick { (1, 5) } else { (21, 50) };
    let claims = |store: Arc<S>| {
        async move |n: u32| {
            let claims: Vec<_> = (0..n).map(|_| claim(&key(), Life::default())).collect();
            timed(async {
                for claim in &claims {
                    assert!(matches!(store.claim(claim).await.unwrap(), Claimed::Granted(_)));
                }
            })
            .await
        }
    };
    let mut subjects = [
        Subject::new(&format!("{name}, claim among 1000"), n, runtime, claims(Arc::new(few))),
        Subject::new(&format!("{name}, claim among {many}"), n, runtime, claims(Arc::new(lots))),
    ];
    println!("\n{}", table(&compare(rounds, &mut subjects)));
}

const PATIENT: Duration = Duration::from_secs(60);
