//! Section J of the cases, on every store: who may see an answer, whose a key is, and what is left at rest.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::fmt::Write as _;

use http::Method;
use idempotency_testbed::servers::{MariaDb, Postgres, Redis};
use idempotency_testbed::{Reply, Rig, Testbed, eventually, rig};
use serde_json::json;

const KEY: &str = "a-key-that-nobody-may-read";
const ACCOUNT: &str = "an-account-that-nobody-may-read";
const SECRET: &str = "a-secret-of-the-request";
/// In a header of the answer, which is kept for as long as the response window.
const ANSWERED: &str = "filename=";

#[tokio::test]
async fn section_j_holds_in_memory() {
    let rig = rig!();
    hold(&rig, &["--store", "memory:"], None).await;
}

#[tokio::test]
async fn section_j_holds_in_sqlite() {
    let rig = rig!();
    let store = rig.sqlite_store();
    let files = ["store.sqlite", "store.sqlite-wal"].map(|file| rig.folder().join(file));
    let dump = || hex(&files.iter().filter_map(|path| std::fs::read(path).ok()).flatten().collect::<Vec<_>>());
    hold(&rig, &["--migrate", "--store", &store], Some(&dump)).await;
}

#[tokio::test]
async fn section_j_holds_in_postgresql() {
    let server = Postgres::start();
    let url = server.create_database("store");
    let dump = || {
        let tables = server.sql("store", "SELECT tablename FROM pg_tables WHERE schemaname = 'public'");
        let rows = tables.lines().map(|table| server.sql("store", &format!("SELECT t::text FROM \"{table}\" t")));
        // Binary columns are in hexadecimal digits as they are.
        let rows: String = rows.collect();
        hex(rows.as_bytes()) + &rows
    };
    hold(&rig!(), &["--migrate", "--store", &url], Some(&dump)).await;
}

#[tokio::test]
async fn section_j_holds_in_mariadb() {
    let server = MariaDb::start();
    let url = server.create_database("store");
    let dump = || {
        let columns = "SELECT table_name, GROUP_CONCAT('HEX(`', column_name, '`)') FROM information_schema.columns \
                       WHERE table_schema = 'store' GROUP BY table_name";
        let columns = server.sql("store", columns);
        let tables = columns.lines().map(|line| line.split_once('\t').unwrap());
        let rows = tables.map(|(table, columns)| server.sql("store", &format!("SELECT {columns} FROM `{table}`")));
        rows.collect::<String>().to_lowercase()
    };
    hold(&rig!(), &["--migrate", "--store", &url], Some(&dump)).await;
}

#[tokio::test]
async fn section_j_holds_in_redis() {
    let server = Redis::start();
    let dump = || {
        server.cli(&[
            "EVAL",
            "local all = {} \
             for _, key in ipairs(redis.call('KEYS', '*')) do \
               table.insert(all, key) \
               for _, value in ipairs(redis.call('HGETALL', key)) do table.insert(all, value) end \
             end \
             return (table.concat(all, ' '):gsub('.', function(c) return string.format('%02x', c:byte()) end))",
            "0",
        ])
    };
    hold(&rig!(), &["--store", &server.url()], Some(&dump)).await;
}

/// `dump` gives all that the store holds, in hexadecimal digits.
async fn hold(rig: &Rig, store: &[&str], dump: Option<&dyn Fn() -> String>) {
    let scope = ["--scope", "header:X-Account"];
    let testbed = rig.start(&[store, &scope, &["--response-window", "4s", "--sweep", "200ms"]].concat()).await;
    case_95_what_was_refused_is_not_kept(&testbed).await;
    case_96_whoever_takes_a_key_first_blocks_nobody_else(&testbed).await;
    case_97_nothing_confidential_is_left(&testbed, dump).await;
}

async fn ask(testbed: &Testbed, path: &str, key: &str, account: &str, amount: u32) -> Reply {
    let body = json!({ "amount": amount, "note": SECRET });
    testbed.call(Method::POST, path).key(key).header("x-account", account).json(&body).reply().await
}

/// The door is outside of the layer; where one is inside, what it refuses does not burn the key.
async fn case_95_what_was_refused_is_not_kept(testbed: &Testbed) {
    for status in [401, 403] {
        let key = format!("refused-{status}");
        let refused = ask(testbed, &format!("/charge?status_before={status}"), &key, "a", 10).await;
        assert_eq!(refused.status, status);
        let first = ask(testbed, "/charge", &key, "a", 10).await;
        assert!(first.status == 201 && !first.is_replayed(), "{first:?}");
        assert!(ask(testbed, "/charge", &key, "a", 10).await.is_replay_of(&first));
        assert_eq!(testbed.effects(&key).await, 1);
    }
}

async fn case_96_whoever_takes_a_key_first_blocks_nobody_else(testbed: &Testbed) {
    let hanging = {
        let (client, body) = (testbed.client().clone(), json!({ "amount": 1, "note": SECRET }));
        tokio::spawn(async move {
            let call = client.call(Method::POST, "/charge?after=1500").key("sha-abc").header("x-account", "b");
            call.json(&body).reply().await
        })
    };
    eventually("it works", async || testbed.effects("sha-abc").await == 1).await;
    let first = ask(testbed, "/charge", "sha-abc", "a", 99).await;
    assert!(first.status == 201 && !first.is_replayed(), "another body, and another one at work: {first:?}");
    assert!(ask(testbed, "/charge?after=1500", "sha-abc", "b", 1).await.is_in_flight(), "its own key is taken");
    let theirs = hanging.await.unwrap();
    let same = ask(testbed, "/charge?after=1500", "sha-abc", "c", 1).await;
    assert!(same.status == 201 && !same.is_replayed(), "the same body: {same:?}");
    assert_ne!(same.body, theirs.body);
    assert_eq!(testbed.effects("sha-abc").await, 3);
}

async fn case_97_nothing_confidential_is_left(testbed: &Testbed, dump: Option<&dyn Fn() -> String>) {
    let done = ask(testbed, "/charge?headers=1", KEY, ACCOUNT, 10).await;
    assert_eq!(done.status, 201);
    let holds = |dump: &dyn Fn() -> String, text: &str| dump().contains(&hex(text.as_bytes()));
    assert!(dump.is_none_or(|dump| holds(dump, ANSWERED)), "the dump shows what is kept");
    ask(testbed, "/charge?headers=1", KEY, ACCOUNT, 10).await;
    ask(testbed, "/charge?headers=1", KEY, ACCOUNT, 99).await;
    ask(testbed, "/charge?status=500", &format!("{KEY}-in-doubt"), ACCOUNT, 10).await;
    ask(testbed, "/charge?panic=after", &format!("{KEY}-panic"), ACCOUNT, 10).await;
    if let Some(dump) = dump {
        for confidential in [KEY, ACCOUNT, SECRET] {
            assert!(!holds(dump, confidential), "{confidential} is at rest");
        }
        eventually("the answer is really gone", async || !holds(dump, ANSWERED)).await;
    }
    let metrics = testbed.get("/metrics").await.text();
    assert!(metrics.contains("idempotency_replayed_total"), "{metrics}");
    let records = testbed.get("/records").await.text();
    for (place, text) in [("metrics", metrics), ("records", records), ("log", testbed.stderr())] {
        let found = [KEY, ACCOUNT, SECRET].into_iter().find(|confidential| text.contains(confidential));
        assert_eq!(found, None, "in {place}: {text}");
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut digits, byte| {
        let _ = write!(digits, "{byte:02x}");
        digits
    })
}
