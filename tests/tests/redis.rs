//! The testbed on Redis: what a client sees while the store is down, slow, or not one to start on.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::time::Duration;

use http::StatusCode;
use idempotency_testbed::servers::Redis;
use idempotency_testbed::{Fate, Proxy, Reply, eventually, rig};
use serde_json::json;
use tokio::task::JoinSet;

fn charge() -> serde_json::Value {
    json!({ "amount": 10 })
}

#[track_caller]
fn is_honest_refusal(reply: &Reply) {
    assert_eq!(reply.status, StatusCode::SERVICE_UNAVAILABLE, "{reply:?}");
    assert!(reply.retry_after().is_some() && reply.problem().is_some(), "{reply:?}");
}

/// PAYS-1919: while the store is down nothing runs, and afterwards everything does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_48_while_redis_is_down_nothing_runs() {
    let rig = rig!();
    let mut redis = Redis::start_with(&["--appendonly", "yes"]);
    let testbed = rig.start(&["--store", &redis.url()]).await;
    let before = testbed.post("/charge", "before", &charge()).await;
    assert_eq!(before.status, StatusCode::CREATED);
    redis.stop();
    for _ in 0..3 {
        is_honest_refusal(&testbed.post("/charge", "K1", &charge()).await);
    }
    is_honest_refusal(&testbed.post("/charge", "before", &charge()).await);
    assert_eq!(testbed.get("/health").await.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(testbed.effects("K1").await, 0);
    redis.restart();
    let mut first = None;
    eventually("it works again", async || {
        let reply = testbed.post("/charge", "K1", &charge()).await;
        let worked = reply.status == StatusCode::CREATED;
        if !worked {
            is_honest_refusal(&reply);
        }
        first = Some(reply);
        worked
    })
    .await;
    assert!(testbed.post("/charge", "K1", &charge()).await.is_replay_of(&first.unwrap()));
    assert!(testbed.post("/charge", "before", &charge()).await.is_replay_of(&before));
    assert_eq!((testbed.effects("K1").await, testbed.effects("before").await), (1, 1));
}

/// The proof that the test above can fail: a service that was told to go on without its store charges each time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_48_a_service_that_passes_through_charges_each_time() {
    let rig = rig!();
    let mut redis = Redis::start();
    let testbed = rig.start(&["--store", &redis.url(), "--on-store-error", "pass"]).await;
    redis.stop();
    for _ in 0..3 {
        assert_eq!(testbed.post("/charge", "K1", &charge()).await.status, StatusCode::CREATED);
    }
    assert_eq!(testbed.effects("K1").await, 3);
}

/// The same for a server that stands still.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_48_while_redis_stands_still_nothing_runs() {
    let rig = rig!();
    let mut redis = Redis::start();
    let testbed = rig.start(&["--store", &redis.url(), "--store-timeout", "300ms", "--lease", "60s"]).await;
    testbed.post("/charge", "before", &charge()).await;
    redis.pause();
    for _ in 0..3 {
        is_honest_refusal(&testbed.post("/charge", "K1", &charge()).await);
    }
    assert_eq!(testbed.effects("K1").await, 0);
    redis.resume();
    // Three ghosts were granted, or not; none of them holds the key for a minute.
    eventually("it works again", async || testbed.post("/charge", "K1", &charge()).await.status == StatusCode::CREATED)
        .await;
    assert_eq!(testbed.effects("K1").await, 1);
}

/// IAPI-23, over two processes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_51_two_processes_behind_a_slow_link_charge_once() {
    const KEYS: usize = 200;
    let rig = rig!();
    let redis = Redis::start();
    let link = Proxy::to(redis.port());
    let url = redis.url_at(link.port(), 0);
    let options = ["--store", url.as_str(), "--store-timeout", "500ms", "--lease", "30s"];
    let testbeds = [rig.start(&options).await, rig.start(&options).await];
    link.delay(Duration::ZERO..Duration::from_secs(2));
    let mut posts = JoinSet::new();
    for n in 0..5 * KEYS {
        let client = testbeds[n % 2].client().clone();
        posts.spawn(async move { client.post("/charge", &format!("K{}", n % KEYS), &charge()).await });
    }
    let replies = posts.join_all().await;
    let allowed = [StatusCode::CREATED, StatusCode::CONFLICT, StatusCode::SERVICE_UNAVAILABLE];
    assert!(replies.iter().all(|reply| allowed.contains(&reply.status)), "{replies:?}");
    assert!(replies.iter().any(|reply| reply.status == allowed[2]), "nothing was late: this proves nothing");
    link.heal();
    for n in 0..KEYS {
        let key = format!("K{n}");
        eventually("every key is answered", async || {
            testbeds[n % 2].post("/charge", &key, &charge()).await.status == StatusCode::CREATED
        })
        .await;
        assert_eq!(testbeds[0].effects(&key).await, 1, "{key}");
    }
    assert_eq!(testbeds[0].all_effects().await, KEYS as u64);
}

/// Then only the recording fails, and the duplicate comes to the other process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_51_a_recording_that_is_lost_is_tried_again_and_the_other_process_replays() {
    let rig = rig!();
    let redis = Redis::start();
    let link = Proxy::to(redis.port());
    let through = redis.url_at(link.port(), 0);
    let one = rig.start(&["--store", &through, "--store-timeout", "500ms"]).await;
    let other = rig.start(&["--store", &redis.url(), "--store-timeout", "500ms"]).await;
    one.post("/charge", "warm", &charge()).await;
    for (n, fate) in [Fate::Reset, Fate::Silence].into_iter().enumerate() {
        let key = format!("K{n}");
        // A claim is the first script that is run from here on, and the completion the second.
        let rule = link.on_request("EVALSHA", 2, fate);
        let first = one.post("/charge", &key, &charge()).await;
        assert!(rule.has_fired());
        assert_eq!(first.status, StatusCode::CREATED);
        eventually("it is replayed", async || {
            let reply = other.post("/charge", &key, &charge()).await;
            reply.is_replay_of(&first) || {
                assert!(reply.is_in_flight(), "{reply:?}");
                false
            }
        })
        .await;
        assert_eq!(one.effects(&key).await, 1);
        link.heal();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_evicts_is_not_one_to_start_on() {
    let rig = rig!();
    let redis = Redis::start_with(&["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"]);
    let ended = rig.run(&["--store", &redis.url()]).await;
    assert_eq!(ended.status.code(), Some(1));
    assert_eq!(ended.stderr.trim_end().lines().count(), 1, "{}", ended.stderr);
    for part in [
        "testbed: --store: ",
        "maxmemory-policy allkeys-lru",
        "duplicates run again",
        "set maxmemory-policy noeviction",
    ] {
        assert!(ended.stderr.contains(part), "{part:?} is not in {:?}", ended.stderr);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_server_would_lose_is_logged_at_the_start() {
    let rig = rig!();
    let redis = Redis::start();
    let testbed = rig.start(&["--store", &redis.url()]).await;
    let log = testbed.stderr();
    assert!(log.contains("WARN") && log.contains("no persistence: a restart loses every record"), "{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_not_there_or_not_ours_is_one_clear_line() {
    let rig = rig!();
    let redis = Redis::start_with(&["--requirepass", "right"]);
    let wrong = format!("redis://:SECRET@127.0.0.1:{}/0", redis.port());
    for url in [wrong.as_str(), "redis://127.0.0.1:1", &redis.url_of(99)] {
        let ended = rig.run(&["--store", url]).await;
        assert_eq!(ended.status.code(), Some(1), "{url}");
        assert_eq!(ended.stderr.trim_end().lines().count(), 1, "{}", ended.stderr);
        assert!(ended.stderr.starts_with("testbed: --store: ") && !ended.stderr.contains("SECRET"), "{}", ended.stderr);
    }
}
