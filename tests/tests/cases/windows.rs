//! What is forgotten, and when.

use std::time::Duration;

use idempotency::time::InvalidDuration;
use idempotency::{Lease, Windows};
use idempotency_testbed::rig;
use tokio::time::sleep;

use crate::{ten, until};

#[test]
fn case_64_zero_is_a_value_and_is_refused() {
    assert!(matches!(Lease::new(Duration::ZERO), Err(InvalidDuration::TooShort { .. })));
    assert!(matches!(Windows::new(Duration::ZERO, Duration::ZERO), Err(InvalidDuration::TooShort { .. })));
}

#[tokio::test]
async fn case_64_a_lease_of_zero_does_not_start_a_server() {
    let ended = rig!().run(&["--lease", "0s"]).await;
    assert!(!ended.status.success());
    assert_eq!(ended.stderr.lines().filter(|line| line.contains("lease")).count(), 1, "{}", ended.stderr);
}

#[tokio::test]
async fn case_69_the_window_counts_from_completion_and_a_hit_does_not_renew_it() {
    let rig = rig!();
    let windows = &["--response-window", "2s", "--tombstone-window", "5s"];
    for testbed in [rig.start(windows).await, rig.start_on_sqlite(windows).await] {
        let key = &format!("k-{}", testbed.process_id());
        let begun = tokio::time::Instant::now();
        let first = testbed.post("/charge", key, &ten()).await;
        let (mut replays, mut gone) = (0, 0);
        loop {
            let duplicate = testbed.post("/charge", key, &ten()).await;
            if duplicate.is_replay_of(&first) {
                replays += 1;
                assert_eq!(gone, 0, "what is gone does not come back");
            } else if duplicate.problem().as_deref() == Some("response-not-kept") {
                gone += 1;
                assert_eq!(duplicate.status, 410);
                assert_eq!(duplicate.json()["first_status"], 201);
                assert_eq!(duplicate.json()["location"].as_str(), first.header("location"));
            } else {
                assert_eq!(duplicate.status, 201);
                break;
            }
            assert_eq!(testbed.effects(key).await, 1);
            sleep(Duration::from_millis(250)).await;
        }
        assert!(begun.elapsed() >= Duration::from_secs(5), "the tombstone window is over");
        assert!(replays > 0 && gone > 0, "{replays} replays, {gone} gone");
        assert_eq!(testbed.effects(key).await, 2, "opaque keys run again after it");
    }
}

#[tokio::test]
async fn case_70_a_durable_store_remembers_across_a_restart_and_a_volatile_one_does_not() {
    let rig = rig!();
    for (durable, effects) in [(true, 1), (false, 2)] {
        let start = async || if durable { rig.start_on_sqlite(&[]).await } else { rig.start(&[]).await };
        let key = if durable { "durable" } else { "volatile" };
        let testbed = start().await;
        let first = testbed.post("/charge", key, &ten()).await;
        assert_eq!(first.status, 201);
        assert!(testbed.terminate().await.status.success());
        let testbed = start().await;
        let again = testbed.post("/charge", key, &ten()).await;
        assert_eq!(again.is_replay_of(&first), durable, "{again:?}");
        assert_eq!(testbed.effects(key).await, effects);
    }
}

#[tokio::test]
async fn case_97_a_stored_response_is_really_gone_after_its_window_and_no_key_is_stored() {
    let rig = rig!();
    let testbed = rig.start_on_sqlite(&["--response-window", "1s", "--sweep", "200ms"]).await;
    let key = "a-key-that-nobody-may-read";
    let secret = "a-secret-that-the-handler-returned";
    let body = serde_json::json!({ "amount": 10, "pad": secret });
    let files = || -> Vec<u8> {
        let paths = ["store.sqlite", "store.sqlite-wal"].map(|file| rig.folder().join(file));
        paths.iter().filter_map(|path| std::fs::read(path).ok()).flatten().collect()
    };
    let holds = |text: &str| files().windows(text.len()).any(|window| window == text.as_bytes());
    let first = testbed.post("/charge?headers=1", key, &body).await;
    assert_eq!(first.status, 201);
    assert!(
        holds("filename=") && !holds(key) && !holds(secret),
        "the answer is there, the key and the request are not"
    );
    until(&testbed, key, "tombstone").await;
    idempotency_testbed::eventually("the bytes are gone", async || !holds("filename=")).await;
    assert!(!testbed.stderr().contains(key), "no raw key in a log");
}
