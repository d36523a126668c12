//! What fingerprints cost: of 1 MiB that are taken as they are, and of 64 KiB of JSON by their meaning, as ratios to plain SHA-256 over the
//! same bytes. `cargo bench -p idempotency-benches --bench hashing`; `-- --quick` runs it for a moment.
#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "a bench prints its table, and fails loudly")]

use std::hint::black_box;

use bytes::Bytes;
use idempotency_benches::{Row, Subject, compare, timed};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio::runtime::Runtime;
use tower_idempotency::fuzzing::{canonical_json, fingerprint_of};

fn main() {
    let quick = std::env::args().any(|argument| argument == "--quick" || argument == "--test");
    let rounds = if quick { 3 } else { 41 };
    let runtime = Runtime::new().unwrap();

    println!("| what | time, ratio to plain SHA-256 | quartiles | speed |\n|---|---|---|---|");
    let body = Bytes::from((0..1 << 20).map(|_| rand::random()).collect::<Vec<u8>>());
    let plain = subject("plain SHA-256, 1 MiB", &body, quick, &runtime, |body| Sha256::digest(body));
    let raw = "application/octet-stream";
    let whole = subject("fingerprint, 1 MiB as it is", &body, quick, &runtime, |body| fingerprint_of(raw, body));
    print(&compare(rounds, &mut [plain, whole]), body.len());
    for (name, text) in documents() {
        let body = Bytes::from(text);
        let names = ["plain SHA-256", "canonical form", "fingerprint of that"].map(|what| format!("{what}, {name}"));
        let mut subjects = [
            subject(&names[0], &body, quick, &runtime, |body| Sha256::digest(body)),
            subject(&names[1], &body, quick, &runtime, |body| canonical_json(body).unwrap()),
            subject(&names[2], &body, quick, &runtime, |body| fingerprint_of("application/json", body)),
        ];
        print(&compare(rounds, &mut subjects), body.len());
    }
}

fn subject<'r, T>(
    name: &str,
    body: &'r Bytes,
    quick: bool,
    runtime: &'r Runtime,
    work: impl Fn(&Bytes) -> T + 'r,
) -> Subject<'r> {
    // Some megabytes a round.
    let n = if quick { 1 } else { u32::try_from((16 << 20) / body.len()).unwrap() };
    Subject::new(name, n, runtime, async move |n| {
        timed(async {
            for _ in 0..n {
                black_box(work(black_box(body)));
            }
        })
        .await
    })
}

fn print(rows: &[Row], bytes: usize) {
    for Row { name, time, ratio, spread: (low, high), .. } in rows {
        let speed = bytes as f64 / time.as_secs_f64() / 1e6;
        println!("| {name} | {ratio:.2}x | {low:.2}-{high:.2} | {speed:.0} MB/s |");
    }
}

/// Orders of 64 KiB in all, as clients spell them, and one alone.
fn documents() -> [(&'static str, String); 4] {
    let mut orders: Vec<Value> = Vec::new();
    while json!(orders).to_string().len() < 64 << 10 {
        orders.push(order(orders.len()));
    }
    let sorted = json!(orders).to_string();
    let pretty = serde_json::to_string_pretty(&orders).unwrap();
    let cut = orders.len() * (64 << 10) / pretty.len();
    let pretty = serde_json::to_string_pretty(&orders[..cut]).unwrap();
    [
        ("64 KiB of JSON", sorted),
        ("64 KiB of JSON, members in no order", unsorted(&json!(orders))),
        ("64 KiB of JSON, indented", pretty),
        ("a small JSON", order(0).to_string()),
    ]
}

fn order(n: usize) -> Value {
    json!({
        "id": format!("order-{n:06}"),
        "amount": 1250 + n * 37,
        "rate": 0.19,
        "paid": n.is_multiple_of(2),
        "note": null,
        "customer": { "name": "Jürgen \"Jo\" Example", "mail": format!("customer{n}@example.org"), "since": "2024-02-29T08:15:00Z" },
        "items": [
            { "sku": "A-1000", "count": 2, "text": "a thing, and what belongs to it, in a box of its own" },
            { "sku": "B-2000", "count": 1, "text": "another thing" },
        ],
    })
}

/// The members of each object as a hash map would have them, which is in no order.
fn unsorted(value: &Value) -> String {
    match value {
        Value::Array(items) => format!("[{}]", items.iter().map(unsorted).collect::<Vec<_>>().join(",")),
        Value::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            members.sort_by_key(|(name, _)| Sha256::digest(name.as_bytes()));
            let members = members.into_iter().map(|(name, value)| format!("{:?}:{}", name, unsorted(value)));
            format!("{{{}}}", members.collect::<Vec<_>>().join(","))
        }
        scalar => scalar.to_string(),
    }
}
