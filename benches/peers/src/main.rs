//! The same handler behind this layer and behind others, in one run: no key, first request, replay and conflict as ratios to the bare
//! service, and to each other.
//!
//! `cargo run --release --ignore-rust-version --manifest-path benches/peers/Cargo.toml`; `-- --quick` runs it for a moment. Needs
//! redis-server.

mod peer;

#[path = "../../benches/work/ask.rs"]
mod ask;
#[path = "../../benches/work/charge.rs"]
mod charge;

use ask::{request, send_all, time_of};
use axum::http::StatusCode;
use idempotency_benches::{Row, Subject, compare, table};
use idempotency_testbed::servers::Redis;
use peer::{Asked, LEFT_OUT, Peer};

fn main() {
    let quick = std::env::args().any(|argument| argument == "--quick");
    let (rounds, in_process, redis) = if quick { (3, 100, 20) } else { (41, 3000, 300) };
    // One thread: a task that a layer spawns for a request costs it no way to another core.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let server = Redis::start();
    let _entered = runtime.enter();

    let in_memory = [Peer::ours(), Peer::idempotent(), Peer::axum_idempotent()];
    let on_redis =
        runtime.block_on(async { [Peer::ours_on(&server.url()).await, Peer::idempotent_on(&server.url()).await] });
    let bare = charge::app();
    let mut subjects = vec![Subject::new("bare", in_process, &runtime, async move |n| {
        let next = || request(Some("not looked at"));
        time_of(n, next, async |requests| send_all(&bare, requests, StatusCode::CREATED).await).await
    })];
    let mut kinds = Vec::new();
    for (peers, n, asked) in [(&in_memory[..], in_process, &Asked::ALL[..]), (&on_redis[..], redis, &Asked::ALL[1..])] {
        for peer in peers {
            for asked in asked.iter().filter(|asked| peer.knows(**asked)) {
                subjects.push(peer.subject(*asked, n, &runtime));
                kinds.push((peer.name, *asked));
            }
        }
    }
    let rows = compare(rounds, &mut subjects);
    println!("{}", table(&rows));

    println!("| request | layer | times as long as this one | quartiles |\n|---|---|---|---|");
    for peers in [&in_memory[..], &on_redis[..]] {
        for asked in Asked::ALL {
            let row = |peer: &Peer| -> Option<&Row> {
                let at = kinds.iter().position(|kind| *kind == (peer.name, asked))?;
                rows.get(at + 1)
            };
            let Some(ours) = row(&peers[0]) else { continue };
            for rival in &peers[1..] {
                match row(rival).map(|row| row.against(ours)) {
                    Some(times) => {
                        println!(
                            "| {asked} | {} | {:.2}x | {:.2}-{:.2} |",
                            rival.name, times.median, times.low, times.high
                        );
                    }
                    None => println!("| {asked} | {} | has none | |", rival.name),
                }
            }
        }
    }
    println!("\nNot done while it was measured:\n");
    for (name, left_out) in LEFT_OUT {
        println!("- *{name}*: {left_out}");
    }
}
