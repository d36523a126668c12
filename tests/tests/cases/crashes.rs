//! Processes that die.

use std::time::Duration;

use idempotency_testbed::{Testbed, eventually, rig};
use serde_json::json;

use crate::{LEASE, post_until_answered, ten, until, until_expired};

/// Posts, and kills the process once `ready` holds, while the request runs.
async fn kill_in_the_middle(testbed: &mut Testbed, path: &str, key: &str, ready: impl AsyncFnMut() -> bool) {
    let client = testbed.client().clone();
    let call = (path.to_owned(), key.to_owned());
    let cut =
        tokio::spawn(async move { client.call(http::Method::POST, &call.0).key(&call.1).json(&ten()).send().await });
    eventually("the right moment", ready).await;
    testbed.kill();
    assert!(cut.await.expect("no panic").is_err(), "no answer came");
}

#[tokio::test]
async fn case_37_a_key_whose_process_died_is_in_flight_then_unknown_and_never_stuck() {
    let rig = rig!();
    let mut one = rig.start_on_sqlite(LEASE).await;
    let two = rig.start_on_sqlite(LEASE).await;
    let path = "/charge?before=5000";
    kill_in_the_middle(&mut one, path, "k", async || !two.records("?key=k").await.is_empty()).await;
    let at_once = two.post(path, "k", &ten()).await;
    assert!(at_once.is_in_flight(), "{at_once:?}");
    until_expired().await;
    for _ in 0..2 {
        let later = two.post(path, "k", &ten()).await;
        assert_eq!(later.problem().as_deref(), Some("outcome-unknown"));
        assert_eq!(later.retry_after(), None, "asking again does not help");
        assert_eq!(later.json()["attempt"], 1);
    }
    assert_eq!(two.effects("k").await, 0, "nothing runs again until somebody knows");
}

#[tokio::test]
async fn case_38_with_a_store_of_its_own_an_effect_before_the_crash_is_surfaced_as_unknown() {
    let rig = rig!();
    let mut one = rig.start_on_sqlite(LEASE).await;
    let two = rig.start_on_sqlite(LEASE).await;
    let path = "/charge?after=5000";
    kill_in_the_middle(&mut one, path, "k", async || two.effects("k").await == 1).await;
    until(&two, "k", "in-doubt").await;
    let told = two.post(path, "k", &ten()).await;
    assert_eq!(told.problem().as_deref(), Some("outcome-unknown"));
    assert_eq!(two.effects("k").await, 1);
}

#[tokio::test]
async fn case_40_a_retrying_client_succeeds_within_lease_and_backoff() {
    let rig = rig!();
    let options = &[LEASE, &["--recovery", "rerun"]].concat();
    let mut one = rig.start_on_sqlite(options).await;
    let path = "/charge?before=700";
    let two = rig.start_on_sqlite(options).await;
    kill_in_the_middle(&mut one, path, "k", async || !two.records("?key=k").await.is_empty()).await;
    let reply = post_until_answered(&two, path, "k").await;
    assert_eq!(reply.status, 201);
    assert_eq!(two.effects("k").await, 1);
    assert_eq!(two.effect_rows("?key=k").await[0]["attempt"], 2);
}

#[tokio::test]
async fn case_41_stuck_keys_are_listed_and_settled_without_touching_the_database() {
    let rig = rig!();
    let mut one = rig.start_on_sqlite(LEASE).await;
    let keys: Vec<String> = (0..20).map(|n| format!("stuck-{n}")).collect();
    let path = "/charge?after=8000";
    for key in &keys {
        let client = one.client().clone();
        let key = key.clone();
        tokio::spawn(async move { client.call(http::Method::POST, path).key(&key).json(&ten()).send().await });
    }
    let watch = rig.start_on_sqlite(LEASE).await;
    eventually("all have their effect", async || watch.all_effects().await == 20).await;
    one.kill();
    drop(watch);

    let restarted = rig.start_on_sqlite(LEASE).await;
    eventually("all are listed", async || restarted.records("?state=in-doubt").await.len() == 20).await;
    for record in restarted.records("?state=in-doubt").await {
        let resolve = format!("/records/{}/resolve", record["id"].as_str().expect("an id"));
        let found = json!({
            "token": record["token"], "who": "ops", "why": "the ledger has it",
            "happened": true, "status": 201, "body": { "resolved": true },
        });
        let settled = restarted.call(http::Method::POST, &resolve).json(&found).reply().await;
        assert!(settled.status.is_success(), "{settled:?}");
        let again = restarted.call(http::Method::POST, &resolve).json(&found).reply().await;
        assert_eq!(again.status, 409, "a repeated resolution changes nothing");
    }
    for key in &keys {
        let reply = restarted.post(path, key, &ten()).await;
        assert!(reply.is_replayed() && reply.json()["resolved"] == true, "{reply:?}");
    }
    assert_eq!(restarted.all_effects().await, 20);
}

#[tokio::test]
async fn case_42_lease_and_window_are_two_settings_and_an_error_after_an_effect_is_kept() {
    let rig = rig!();
    let options = &[LEASE, &["--recovery", "rerun", "--response-window", "60s"]].concat();
    let mut one = rig.start_on_sqlite(options).await;
    let two = rig.start_on_sqlite(options).await;
    let path = "/charge?before=300";
    kill_in_the_middle(&mut one, path, "k", async || !two.records("?key=k").await.is_empty()).await;
    let died = std::time::Instant::now();
    assert_eq!(post_until_answered(&two, path, "k").await.status, 201);
    assert!(died.elapsed() < Duration::from_secs(30), "usable after the lease, not after the window");

    let hold = rig.start(&[]).await;
    let failed = hold.post("/charge?status=500", "k2", &ten()).await;
    assert_eq!(failed.status, 500);
    assert!(hold.post("/charge?status=500", "k2", &ten()).await.is_replay_of(&failed));
    assert_eq!(hold.effects("k2").await, 1);
}

#[tokio::test]
async fn case_47_an_event_whose_work_was_cut_off_is_neither_lost_nor_done_twice() {
    let rig = rig!();
    let options = &[LEASE, &["--recovery", "rerun"]].concat();
    let mut one = rig.start_on_sqlite(options).await;
    let path = "/required?before=400";
    let watch = rig.start_on_sqlite(options).await;
    kill_in_the_middle(&mut one, path, "evt-1", async || !watch.records("?key=evt-1").await.is_empty()).await;
    let mut answers = Vec::new();
    for _ in 0..5 {
        answers.push(watch.post(path, "evt-1", &ten()).await.status);
        tokio::time::sleep(Duration::from_millis(700)).await;
    }
    assert!(answers.contains(&http::StatusCode::CREATED), "{answers:?}");
    assert_eq!(watch.effects("evt-1").await, 1);
}

#[tokio::test]
async fn case_39_a_process_killed_at_any_moment_never_leads_to_two_effects_under_hold() {
    let rig = rig!();
    let path = "/charge?before=40&after=40";
    let mut found = [0_u32; 2];
    for moment in 0..12 {
        let key = format!("moment-{moment}");
        let mut one = rig.start_on_sqlite(LEASE).await;
        let client = one.client().clone();
        let cut = tokio::spawn({
            let key = key.clone();
            async move { client.call(http::Method::POST, path).key(&key).json(&ten()).send().await }
        });
        tokio::time::sleep(Duration::from_millis(moment * 10)).await;
        one.kill();
        let _ = cut.await;
        let two = rig.start_on_sqlite(LEASE).await;
        eventually("it is decided", async || two.records(&format!("?key={key}&state=in-flight")).await.is_empty())
            .await;
        let told = two.post(path, &key, &ten()).await;
        let effects = two.effects(&key).await;
        assert!(effects <= 1, "{effects} effects of {key}");
        // An answer is given only where there is one effect; otherwise it is called unknown.
        assert!(told.status == 201 && effects == 1 || told.problem().as_deref() == Some("outcome-unknown"), "{told:?}");
        found[usize::from(effects == 1)] += 1;
    }
    assert!(found.iter().all(|n| *n > 0), "killed only before or only after the effect: {found:?}");
}

#[tokio::test]
async fn a_process_killed_between_effect_and_completion_leaves_its_key_in_doubt() {
    let rig = rig!();
    for (at, effects) in [("before", 0), ("after", 1), ("committed", 1)] {
        let path = format!("/charge?abort={at}");
        let mut one = rig.start_on_sqlite(LEASE).await;
        assert!(one.call(http::Method::POST, &path).key(at).json(&ten()).send().await.is_err());
        eventually("it is dead", async || !one.is_running()).await;
        let two = rig.start_on_sqlite(LEASE).await;
        until(&two, at, "in-doubt").await;
        assert_eq!(two.post(&path, at, &ten()).await.problem().as_deref(), Some("outcome-unknown"));
        assert_eq!(two.effects(at).await, effects);
    }
}
