//! Processes that are killed at any moment, while the bank misbehaves as well.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use http::{Method, StatusCode};
use idempotency_testbed::{Client, Reply, Testbed, rig};
use tokio::time::{Instant, sleep};

use crate::faults::Paid;
use crate::{PATIENCE, amount, is_retryable, path};

/// Under each policy.
const PAYOUTS: i64 = 40;
const POLICIES: [&str; 3] = ["hold", "reconcile", "retry"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kills_at_any_moment_pay_nobody_twice() {
    let rig = rig!();
    let bank = rig.start_bank(&["--faults", "0.5", "--seed", "11"]).await;
    let url = bank.url();
    let start = async || rig.start_on_sqlite(&["--bank", &url, "--lease", "2s", "--store-timeout", "10s"]).await;
    let mut running: [Testbed; 2] = [start().await, start().await];
    let clients = running.each_ref().map(|testbed| Mutex::new(testbed.client().clone()));
    let (kills, lost, done) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicBool::new(false));
    let payouts = async {
        let payouts = (0..3 * PAYOUTS).map(|n| {
            let (clients, lost) = (&clients, &lost);
            async move {
                // A few at a time, for as long as there are kills.
                sleep(Duration::from_millis(n.unsigned_abs() * 60)).await;
                persist(clients, n, lost).await
            }
        });
        let replies = join_all(payouts).await;
        done.store(true, Ordering::SeqCst);
        replies
    };
    let killer = async {
        while !done.load(Ordering::SeqCst) {
            sleep(Duration::from_millis(rand::random_range(50..500))).await;
            let which = rand::random_range(0..2_usize);
            running[which].kill();
            kills.fetch_add(1, Ordering::SeqCst);
            running[which] = start().await;
            *clients[which].lock().unwrap() = running[which].client().clone();
        }
    };
    let (replies, ()) = tokio::join!(payouts, killer);
    let (kills, lost) = (kills.into_inner(), lost.into_inner());
    let paid = Paid::of(&bank, (0..).zip(replies)).await;
    let (answered, again): (usize, usize) = (
        paid.iter().filter(|paid| paid.reply.is_some()).count(),
        paid.iter().filter(|paid| paid.calls.len() > 1).count(),
    );
    println!(
        "{kills} kills, {lost} answers lost: {answered} of {} answered, {again} called more than once",
        paid.len()
    );
    assert!(kills >= 5 && lost >= 5 && again >= 5, "this proves nothing");
    for (n, paid) in paid.iter().enumerate() {
        let is_held = paid.reply.is_none() && paid.transfers.len() <= 1;
        let is_right = match POLICIES[n % 3] {
            "hold" => paid.calls.len() <= 1 && (is_held || paid.is_resolved_and_right()),
            _ => paid.is_resolved_and_right(),
        };
        assert!(is_right, "{} after {kills} kills: {paid:?}", POLICIES[n % 3]);
    }
}

/// Asks for a payout, wherever a process runs, until it is decided or, without an answer, held.
async fn persist(clients: &[Mutex<Client>; 2], n: i64, lost: &AtomicUsize) -> Option<Reply> {
    const HELD_AFTER: u32 = 3;
    let policy = POLICIES[usize::try_from(n % 3).unwrap()];
    let give_up = Instant::now() + PATIENCE;
    let mut unknown = 0;
    while unknown < HELD_AFTER {
        let client = clients[rand::random_range(0..2_usize)].lock().unwrap().clone();
        let call = client.call(Method::POST, &path(policy)).key(&format!("any-{n}")).json(&amount(n));
        match call.send().await {
            Ok(reply) if [StatusCode::OK, StatusCode::PAYMENT_REQUIRED].contains(&reply.status) => return Some(reply),
            Ok(reply) => {
                is_retryable(&reply);
                unknown += u32::from(policy == "hold" && reply.problem().as_deref() == Some("outcome-unknown"));
            }
            Err(_) => drop(lost.fetch_add(1, Ordering::SeqCst)),
        }
        assert!(Instant::now() < give_up, "payout {n} was never answered");
        sleep(Duration::from_millis(250)).await;
    }
    None
}
