//! Faults and answers that a request switches on in its query.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::Method;
use idempotency_testbed::{SendError, eventually, rig};
use serde_json::json;

#[tokio::test]
async fn sleeps_lie_before_and_after_the_effect() {
    let rig = rig!();
    let testbed = rig.start(&[]).await;
    for (path, before, after) in [("/charge?before=600", 600, 0), ("/charge?after=600", 0, 600)] {
        let asked = now_millis();
        let reply = testbed.post(path, path.trim_start_matches("/charge?"), &json!({ "amount": 1 })).await;
        let answered = now_millis();
        let rows = testbed.effect_rows("").await;
        let at = rows.last().and_then(|row| row["at"].as_u64()).expect("an effect");
        assert_eq!(reply.status, 201);
        assert!(
            asked + before <= at && at + after <= answered,
            "{path}: asked {asked}, effect {at}, answered {answered}"
        );
    }
}

fn now_millis() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time after 1970");
    u64::try_from(now.as_millis()).expect("a time before the end of time")
}

#[tokio::test]
async fn a_status_comes_with_or_without_the_effect() {
    let rig = rig!();
    let testbed = rig.start(&[]).await;
    let body = json!({ "amount": 1 });
    // 402 is a decision and recorded, with the effect or without.
    for (path, key, effects) in [("/charge?status=402", "a", 1), ("/charge?status_before=402", "b", 0)] {
        let first = testbed.post(path, key, &body).await;
        assert_eq!(first.status, 402);
        assert!(testbed.post(path, key, &body).await.is_replay_of(&first));
        assert_eq!(testbed.effects(key).await, effects, "{path}");
    }
    // 422 frees the key.
    for n in 1..=2 {
        assert_eq!(testbed.post("/charge?status=422", "c", &body).await.status, 422);
        assert_eq!(testbed.effects("c").await, n);
    }
    for wrong in
        ["status=99", "status_before=100", "status=abc", "kind=xml", "before=-1", "panic=committed", "verdict=maybe"]
    {
        let refused = testbed.post(&format!("/charge?{wrong}"), "d", &body).await;
        assert_eq!((refused.status.as_u16(), refused.problem().as_deref()), (400, Some("bad-request")), "{wrong}");
    }
}

#[tokio::test]
async fn panics_are_answered_and_leave_a_doubt() {
    let rig = rig!();
    let testbed = rig.start(&[]).await;
    let body = json!({ "amount": 1 });
    for (at, effects) in [("before", 0), ("after", 1)] {
        let path = format!("/charge?panic={at}");
        assert_eq!(testbed.post(&path, at, &body).await.status, 500);
        let duplicate = testbed.post(&path, at, &body).await;
        assert_eq!((duplicate.status.as_u16(), duplicate.problem().as_deref()), (409, Some("outcome-unknown")));
        assert_eq!(duplicate.retry_after(), None);
        assert_eq!(testbed.effects(at).await, effects);
        let without = testbed.call(Method::POST, &path).json(&body).reply().await;
        assert_eq!(without.status, 500, "without a key too");
    }
}

#[tokio::test]
async fn aborts_kill_the_process_at_the_named_point() {
    let rig = rig!();
    for (at, effects) in [("before", 0), ("after", 1), ("committed", 1)] {
        let testbed = rig.start(&[]).await;
        let call = testbed.call(Method::POST, &format!("/charge?abort={at}")).key(at).json(&json!({ "amount": 1 }));
        assert!(matches!(call.send().await, Err(SendError::NoAnswer(_))), "{at}");
        let ended = testbed.ended().await;
        assert_eq!(ended.status.code(), None, "{at}: it ends by a signal");
        assert_eq!(rig.start(&[]).await.effects(at).await, effects, "{at}");
    }
}

#[tokio::test]
async fn a_blocked_worker_keeps_its_claim() {
    let rig = rig!();
    let testbed = rig.start(&["--lease", "1s"]).await;
    let body = json!({ "amount": 1 });
    let path = "/charge?block=3500";
    let watch = async {
        tokio::time::sleep(Duration::from_millis(2300)).await;
        testbed.post(path, "k", &body).await
    };
    let (first, duplicate) = tokio::join!(testbed.post(path, "k", &body), watch);
    assert_eq!(first.status, 201, "{first:?}");
    assert!(duplicate.is_in_flight(), "past the first lease: {duplicate:?}");
    assert!(testbed.post(path, "k", &body).await.is_replay_of(&first));
    assert_eq!(testbed.effects("k").await, 1);
}

#[tokio::test]
async fn whole_bodies_of_every_kind_are_replayed() {
    let rig = rig!();
    let testbed = rig.start(&[]).await;
    let all: Vec<u8> = (0..=255).collect();
    let bytes = Some("application/octet-stream");
    let cases = [
        ("kind=json", 201, Some("application/json"), &br#"{"id":1,"amount":1}"#[..]),
        ("kind=bytes", 201, bytes, &all[..]),
        ("kind=empty", 204, None, b""),
        ("kind=zero", 201, Some("text/plain"), b"0"),
        ("kind=zero&size=3", 201, Some("text/plain"), b"0  "),
        ("kind=chunks", 201, Some("text/plain"), b"piece 1 piece 2 piece 3 piece 4 piece 5 "),
        ("kind=empty&status=200", 200, None, b""),
    ];
    for (n, (switches, status, media_type, body)) in cases.into_iter().enumerate() {
        let post =
            || async { testbed.post(&format!("/charge?{switches}"), &format!("k{n}"), &json!({ "amount": 1 })).await };
        let first = post().await;
        assert_eq!((first.status.as_u16(), first.header("content-type")), (status, media_type), "{switches}");
        assert_eq!(&first.body[..], body, "{switches}");
        let again = post().await;
        assert!(again.is_replay_of(&first), "{switches}: {again:?}");
    }
}

#[tokio::test]
async fn a_body_is_as_long_as_asked() {
    let rig = rig!();
    let testbed = rig.start(&[]).await;
    for kind in ["json", "bytes", "zero", "chunks"] {
        for size in [1000, 300_000] {
            let reply =
                testbed.post(&format!("/charge?kind={kind}&size={size}"), &format!("{kind}-{size}"), &json!({})).await;
            assert_eq!(reply.body.len(), size, "{kind}");
            if kind == "json" {
                assert!(reply.json()["id"].is_i64());
            }
        }
    }
    let many = testbed.post("/charge?size=999999999999", "many", &json!({})).await;
    assert_eq!((many.status.as_u16(), testbed.effects("many").await), (400, 0));
}

#[tokio::test]
async fn streams_and_broken_bodies_are_not_replayed() {
    let rig = rig!();
    let testbed = rig.start(&[]).await;
    let body = json!({ "amount": 1 });
    let first = testbed.post("/charge?kind=sse", "sse", &body).await;
    assert_eq!((first.status.as_u16(), first.header("content-type")), (201, Some("text/event-stream")));
    assert_eq!(first.text().matches("data: ").count(), 5, "{}", first.text());
    eventually("a duplicate is told that it was executed", async || {
        testbed.post("/charge?kind=sse", "sse", &body).await.problem().as_deref() == Some("response-not-kept")
    })
    .await;

    let broken = || testbed.call(Method::POST, "/charge?kind=break").json(&body);
    let without_key = broken().send().await;
    let Err(SendError::BrokenOff(reply)) = without_key else { panic!("it does not break off: {without_key:?}") };
    assert!(reply.text().starts_with("piece 1"));
    assert!(broken().key("break").send().await.is_err(), "it breaks off under a key too");
    eventually("a duplicate is told that nobody knows", async || {
        testbed.post("/charge?kind=break", "break", &body).await.problem().as_deref() == Some("outcome-unknown")
    })
    .await;
    assert_eq!((testbed.effects("sse").await, testbed.effects("break").await), (1, 1));
}

#[tokio::test]
async fn headers_come_as_they_are_and_are_replayed_but_for_cookies() {
    let rig = rig!();
    let testbed = rig.start(&[]).await;
    let post = || async { testbed.post("/charge?headers=1", "k", &json!({ "amount": 1 })).await };
    let (first, again) = (post().await, post().await);
    assert_eq!(first.lines("set-cookie").len(), 2);
    assert!(first.lines("set-cookie")[0].contains("Expires=Wed, 21 Oct 2037 07:28:00 GMT"));
    assert_eq!(again.lines("set-cookie").len(), 0);
    let kept = [
        ("link", vec!["<a>; rel=\"x\", <b>; rel=\"y\""]),
        ("content-disposition", vec!["attachment; filename=\"a,b.txt\""]),
        ("etag", vec!["\"v1\""]),
        ("x-multi", vec!["one", "two"]),
    ];
    for (name, lines) in kept {
        assert_eq!((first.lines(name), again.lines(name)), (lines.clone(), lines), "{name}");
    }
}

#[tokio::test]
async fn a_verdict_overrules_the_status() {
    let rig = rig!();
    let testbed = rig.start(&[]).await;
    let body = json!({ "amount": 1 });
    let states = [
        ("/charge?verdict=record&status=500", "completed"),
        ("/charge?verdict=release", "released"),
        ("/charge?verdict=in-doubt", "in-doubt"),
        ("/charge?verdict=release&status_before=402", "released"),
    ];
    for (n, (path, state)) in states.into_iter().enumerate() {
        let key = format!("k{n}");
        let first = testbed.post(path, &key, &body).await;
        let records = testbed.records(&format!("?key={key}")).await;
        assert_eq!(records[0]["state"], state, "{path}");
        let again = testbed.post(path, &key, &body).await;
        assert_eq!(again.is_replay_of(&first), state != "released", "{path}: {again:?}");
    }
}
