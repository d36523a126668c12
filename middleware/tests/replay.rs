//! What is stored and replayed: all that the handler said, exactly, and nothing that belonged to the one exchange.

#![allow(clippy::unwrap_used)] // Also in what the tests share.

mod common;

use axum::body::Body;
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use common::{Answer, DAY, Rig, TestStore, charge, record_id, send};
use http::header::{CONTENT_DISPOSITION, CONTENT_TYPE, ETAG, LINK, LOCATION, SET_COOKIE, VARY};
use http::{HeaderName, HeaderValue, StatusCode};
use idempotency::{
    Claim, Claimed, Fingerprint, Holder, Lease, Life, Nonce, Outcome, Resolve, ResolveVerdict, Resolved, Settled,
    State, Store as _,
};
use tower_idempotency::{FingerprintRule, IdempotencyLayer, RecordPolicy, Replayed, SetCookie, recorded};

/// All values of a header, in order.
fn values<'a>(answer: &'a Answer, name: &str) -> Vec<&'a [u8]> {
    answer.headers.get_all(name).iter().map(HeaderValue::as_bytes).collect()
}

/// Asserts that `again` is a replay of `first`, and else the same.
#[track_caller]
fn assert_same(first: &Answer, again: &Answer) {
    assert!(!first.is_replay() && again.is_replay());
    assert_eq!((first.status, &first.body), (again.status, &again.body));
    let lines = |answer: &Answer| -> Vec<_> {
        let lines = answer.headers.iter().filter(|(name, _)| *name != "idempotent-replayed");
        lines.map(|(name, value)| (name.clone(), value.clone())).collect()
    };
    assert_eq!(lines(first), lines(again));
}

#[tokio::test]
async fn case_21_a_replay_is_the_first_answer_exactly() {
    let rig = Rig::new();
    let app = rig.app(rig.layer(), |run| {
        let headers = [
            (LOCATION, format!("/charges/{run}")),
            (ETAG, format!("W/\"{run}\"")),
            (CONTENT_TYPE, "application/vnd.acme+json; charset=utf-8".to_owned()),
        ];
        (StatusCode::CREATED, headers, format!("{{ \"id\" : {run} }}"))
    });
    let first = send(&app, charge("k1")).await;
    for _ in 0..3 {
        let again = send(&app, charge("k1")).await;
        assert_same(&first, &again);
        assert_eq!((again.status, again.text()), (201, "{ \"id\" : 1 }"));
        assert_eq!(again.header("Location"), Some("/charges/1"));
        assert_eq!(again.header("ETag"), Some("W/\"1\""));
        assert_eq!(again.header("Content-Type"), Some("application/vnd.acme+json; charset=utf-8"));
        assert_eq!(again.extensions.get(), Some(&Replayed));
    }
    assert_eq!(rig.runs.count(), 1);
}

#[tokio::test]
async fn repeated_lines_stay_apart_and_in_order() {
    let rig = Rig::new();
    let app = rig.app(rig.layer(), |_| {
        let mut response = Response::new(Body::from("x"));
        let headers = response.headers_mut();
        for value in ["</b>; rel=\"next\"", "</a>; rel=\"prev\", </c>; rel=\"last\"", "</a>; rel=\"prev\""] {
            headers.append(LINK, HeaderValue::from_static(value));
        }
        headers.append(VARY, HeaderValue::from_static("Accept"));
        headers.insert(CONTENT_DISPOSITION, HeaderValue::from_static("attachment; filename=\"10, 20 EUR; a.csv\""));
        headers.append(VARY, HeaderValue::from_static("Origin"));
        headers.insert("x-bytes", HeaderValue::from_bytes(b"caf\xE9\xFF").unwrap());
        headers.insert("x-empty", HeaderValue::from_static(""));
        response
    });
    let first = send(&app, charge("k1")).await;
    let again = send(&app, charge("k1")).await;
    assert_same(&first, &again);
    assert_eq!(values(&again, "link").len(), 3);
    assert_eq!(values(&again, "link")[0], b"</b>; rel=\"next\"");
    assert_eq!(values(&again, "vary"), [b"Accept".as_slice(), b"Origin"]);
    assert_eq!(values(&again, "content-disposition"), [b"attachment; filename=\"10, 20 EUR; a.csv\""]);
    assert_eq!(values(&again, "x-bytes"), [b"caf\xE9\xFF"]);
    assert_eq!(values(&again, "x-empty"), [b""]);
}

#[tokio::test]
async fn a_binary_body_stays_binary() {
    let rig = Rig::new();
    let all: Bytes = (0..=255).chain((0..=255).rev()).collect();
    let body = all.clone();
    let app = rig.app(rig.layer(), move |_| body.clone());
    let first = send(&app, charge("k1")).await;
    let again = send(&app, charge("k1")).await;
    assert_same(&first, &again);
    assert_eq!(again.body, all);
}

#[tokio::test]
async fn an_empty_body_is_a_body_and_every_status_stays() {
    let rig = Rig::new();
    for status in [200, 201, 202, 203, 204, 205, 206, 299, 301, 402, 409, 451, 500, 599] {
        let app = rig.app(rig.layer(), move |_| StatusCode::from_u16(status).unwrap());
        let key = status.to_string();
        let first = send(&app, charge(&key)).await;
        let again = send(&app, charge(&key)).await;
        assert_same(&first, &again);
        assert_eq!((again.status, again.body.len()), (status, 0));
    }
    assert_eq!(rig.state("200").await, Some(State::Completed), "it is no tombstone");
}

/// Fields of the exchange, of the connection, or of the layers outside.
const NEVER_STORED: [(&str, &str); 32] = [
    ("connection", "keep-alive, x-hop"),
    ("x-hop", "1"),
    ("keep-alive", "timeout=5"),
    ("te", "trailers"),
    ("trailer", "x-checksum"),
    ("upgrade", "h2c"),
    ("date", "Fri, 15 Jan 2027 08:00:00 GMT"),
    ("age", "12"),
    ("set-cookie", "session=1"),
    ("clear-site-data", "\"cookies\""),
    ("www-authenticate", "Basic"),
    ("proxy-authenticate", "Basic"),
    ("proxy-authentication-info", "x"),
    ("proxy-connection", "keep-alive"),
    ("proxy-status", "x"),
    ("authentication-info", "nextnonce=\"x\""),
    ("access-control-allow-origin", "https://a.example.com"),
    ("access-control-allow-credentials", "true"),
    ("access-control-expose-headers", "x-a"),
    ("ratelimit", "default;r=50;t=30"),
    ("ratelimit-policy", "default;q=100"),
    ("ratelimit-remaining", "50"),
    ("x-ratelimit-limit", "100"),
    ("x-ratelimit-reset", "30"),
    ("retry-after", "30"),
    ("server-timing", "db;dur=53"),
    ("alt-svc", "h3=\":443\""),
    ("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
    ("tracestate", "a=1"),
    ("x-request-id", "req-1"),
    ("dpop-nonce", "x"),
    ("transfer-encoding", "chunked"),
];

/// Near misses of the above, and what else a handler says.
const KEPT: [(&str, &str); 14] = [
    ("cache-control", "no-store"),
    ("expires", "0"),
    ("last-modified", "Fri, 15 Jan 2027 08:00:00 GMT"),
    ("content-language", "en"),
    ("content-encoding", "br"),
    ("content-location", "/charges/1"),
    ("accept-ranges", "none"),
    ("allow", "POST"),
    ("deprecation", "@1688169599"),
    ("x-rate", "1"),
    ("x-request-cost", "3"),
    ("proxied", "1"),
    ("strict-transport-security", "max-age=63072000"),
    ("x-own", "1"),
];

#[tokio::test]
async fn what_belongs_to_the_one_exchange_is_not_replayed() {
    let rig = Rig::new();
    let app = rig.app(rig.layer(), |_| {
        let mut response = Response::new(Body::from("x"));
        for (name, value) in NEVER_STORED.into_iter().chain(KEPT) {
            response.headers_mut().append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        response
    });
    let first = send(&app, charge("k1")).await;
    let again = send(&app, charge("k1")).await;
    assert!(again.is_replay());
    for (name, value) in NEVER_STORED {
        assert_eq!(first.header(name), Some(value), "the first client gets it");
        assert_eq!(again.header(name), None, "{name}");
    }
    for (name, value) in KEPT {
        assert_eq!((first.header(name), again.header(name)), (Some(value), Some(value)), "{name}");
    }
}

#[tokio::test]
async fn the_content_length_is_computed_anew() {
    let rig = Rig::new();
    let app = rig.app(rig.layer(), |_| {
        let mut response = Response::new(Body::from("12345"));
        response.headers_mut().insert("content-length", HeaderValue::from_static("5"));
        response
    });
    assert_eq!(values(&send(&app, charge("k1")).await, "content-length"), [b"5"]);
    assert_eq!(values(&send(&app, charge("k1")).await, "content-length"), [b"5"], "once, and right");
}

#[tokio::test]
async fn case_25_cookies_are_replayed_only_when_asked_for() {
    let rig = Rig::new();
    let login = |_| {
        let mut response = "welcome".into_response();
        for cookie in ["session=s3cret; HttpOnly", "theme=dark"] {
            response.headers_mut().append(SET_COOKIE, HeaderValue::from_static(cookie));
        }
        response
    };
    let app = rig.app(rig.layer(), login);
    assert_eq!(values(&send(&app, charge("k1")).await, "set-cookie").len(), 2);
    let again = send(&app, charge("k1")).await;
    assert_eq!((again.text(), values(&again, "set-cookie").len()), ("welcome", 0));

    let app = rig.app(rig.layer().set_cookie(SetCookie::StoredAndReplayed), login);
    let first = send(&app, charge("k2")).await;
    let again = send(&app, charge("k2")).await;
    assert_same(&first, &again);
    assert_eq!(values(&again, "set-cookie"), [b"session=s3cret; HttpOnly".as_slice(), b"theme=dark"]);
}

#[tokio::test]
async fn the_mark_of_a_replay_can_have_another_name_or_none() {
    let rig = Rig::new();
    let name = HeaderName::from_static("x-replayed");
    let app = rig.counting(rig.layer().replay_header(Some(name)));
    let first = send(&app, charge("k1")).await;
    assert_eq!((first.header("X-Replayed"), first.header("Idempotent-Replayed")), (None, None));
    let again = send(&app, charge("k1")).await;
    assert_eq!((again.header("X-Replayed"), again.header("Idempotent-Replayed")), (Some("true"), None));

    let app = rig.counting(rig.layer().replay_header(None));
    let again = send(&app, charge("k1")).await;
    assert_eq!((again.header("X-Replayed"), again.header("Idempotent-Replayed")), (None, None));
    assert_eq!((again.text(), again.extensions.get()), ("run 1", Some(&Replayed)), "outer layers still see it");
}

#[tokio::test]
async fn a_first_answer_has_no_mark_even_if_its_handler_forwards_a_replay() {
    let rig = Rig::new();
    let app = rig.app(rig.layer(), |_| ([("Idempotent-Replayed", "true")], "of an upstream service"));
    assert!(!send(&app, charge("k1")).await.is_replay());
    assert!(send(&app, charge("k1")).await.is_replay());
}

#[tokio::test]
async fn refusals_and_requests_without_a_key_have_no_mark() {
    let rig = Rig::new();
    let app = rig.counting(rig.layer());
    for request in [charge("a,b"), http::Request::post("/charge").body(Body::empty()).unwrap()] {
        let answer = send(&app, request).await;
        assert_eq!((answer.header("Idempotent-Replayed"), answer.extensions.get::<Replayed>()), (None, None));
    }
}

#[tokio::test]
async fn case_25_a_body_above_the_limit_runs_once_and_is_410_afterwards() {
    const LIMIT: usize = 1000;
    for length in [LIMIT - 1, LIMIT, LIMIT + 1, 10 * LIMIT] {
        let rig = Rig::new();
        let body: Bytes = (0..length).map(|n| (n % 251) as u8).collect();
        let sent = body.clone();
        let app = rig.app(rig.layer().max_response(LIMIT), move |_| {
            (StatusCode::CREATED, [(LOCATION, "/reports/1")], sent.clone())
        });
        let first = send(&app, charge("k1")).await;
        assert_eq!((first.status, &first.body), (201, &body), "the first client gets all of it");
        let again = send(&app, charge("k1")).await;
        if length <= LIMIT {
            assert_same(&first, &again);
        } else {
            assert_eq!((again.status, again.problem()), (410, Some("response-not-kept")));
            assert_eq!(again.json()["first_status"], 201);
            assert_eq!(again.json()["location"], "/reports/1");
            assert_eq!(rig.state("k1").await, Some(State::Tombstone));
        }
        assert_eq!(rig.runs.count(), 1, "{length}");
    }
}

#[tokio::test]
async fn the_limit_is_256_kibibytes_unless_told_otherwise() {
    for (length, status) in [(256 * 1024, 200), (256 * 1024 + 1, 410)] {
        let rig = Rig::new();
        let app = rig.app(rig.layer(), move |_| vec![b'x'; length]);
        assert_eq!(send(&app, charge("k1")).await.body.len(), length);
        assert_eq!(send(&app, charge("k1")).await.status, status);
    }
}

#[tokio::test]
async fn a_head_that_is_too_long_to_be_stored_is_not_kept() {
    let rig = Rig::new();
    let app = rig.app(rig.layer().max_response(10), |_| ([("x-long", "x".repeat(20_000))], "short"));
    assert_eq!(send(&app, charge("k1")).await.header("x-long").unwrap().len(), 20_000);
    assert_eq!(send(&app, charge("k1")).await.problem(), Some("response-not-kept"));
    assert_eq!(rig.runs.count(), 1);
}

#[tokio::test]
async fn a_long_location_is_left_out_of_the_tombstone() {
    let rig = Rig::new();
    let long = format!("/charges/{}", "1".repeat(64));
    let app = rig.app(rig.layer(), move |_| (StatusCode::CREATED, [(LOCATION, long.clone())]));
    let first = send(&app, charge("k1")).await;
    assert_same(&first, &send(&app, charge("k1")).await);
    rig.clock.advance(DAY);
    let gone = send(&app, charge("k1")).await;
    assert_eq!((gone.status, gone.json().get("location")), (410, None));
}

/// A layer whose fingerprint is known, so that records can be written behind its back.
fn known(rig: &Rig) -> IdempotencyLayer<TestStore> {
    rig.layer().fingerprint(FingerprintRule::from_fn(|_, _| Fingerprint::of(["known"])))
}

async fn granted(rig: &Rig, key: &str) -> Holder {
    let claim = Claim {
        id: record_id(key),
        fingerprint: Fingerprint::of(["known"]),
        nonce: Nonce::random(),
        lease: Lease::default(),
        life: Life::default(),
        key_time: None,
        room: 0,
    };
    match rig.store.claim(&claim).await.unwrap() {
        Claimed::Granted(grant) => Holder { id: claim.id, token: grant.token, nonce: claim.nonce },
        claimed => panic!("not granted: {claimed:?}"),
    }
}

#[tokio::test]
async fn case_19_a_response_of_another_release_is_409_and_never_new() {
    let rig = Rig::new();
    let app = rig.counting(known(&rig));
    let good = recorded(http::Response::new(Bytes::from("charged")));
    let good = good.payload().unwrap();
    let of_a_later_version = [&[2], &good[1..]].concat();
    let cut_off = good.slice(..good.len() - 1).to_vec();
    let payloads: [(&str, Vec<u8>); 5] = [
        ("bogus", vec![0xFF, 1, 2, 3]),
        ("later", of_a_later_version),
        ("zero", vec![0]),
        ("empty", vec![]),
        ("cut", cut_off),
    ];
    for (key, payload) in payloads {
        let holder = granted(&rig, key).await;
        let outcome = Outcome::new(201, payload.into());
        assert_eq!(rig.store.complete(&holder, &outcome).await.unwrap(), Settled::Applied);
        let answer = send(&app, charge(key)).await;
        assert_eq!((answer.status, answer.problem()), (409, Some("outcome-unknown")), "{key}");
        assert_eq!((answer.header("Retry-After"), answer.is_replay()), (None, false), "{key}");
        assert_eq!(rig.state(key).await, Some(State::Completed), "{key}");

        let doubtful = format!("{key}-in-doubt");
        let holder = granted(&rig, &doubtful).await;
        assert_eq!(rig.store.mark_in_doubt(&holder, Some(&outcome)).await.unwrap(), Settled::Applied);
        let answer = send(&app, charge(&doubtful)).await;
        assert_eq!((answer.status, answer.problem()), (409, Some("outcome-unknown")), "{key}");
        assert_eq!(answer.json()["attempt"], 1, "what is known is told");
    }
    assert_eq!(rig.runs.count(), 0);
    let holder = granted(&rig, "good").await;
    rig.store.complete(&holder, &Outcome::new(200, good.clone())).await.unwrap();
    assert_eq!(send(&app, charge("good")).await.text(), "charged", "so it was the payload that was refused");
}

#[tokio::test]
async fn what_an_operator_found_out_is_replayed() {
    let rig = Rig::new();
    let app = rig.app(rig.layer(), |run| (StatusCode::INTERNAL_SERVER_ERROR, format!("run {run}")));
    assert_eq!(send(&app, charge("k1")).await.status, 500);
    let entry = rig.store.inspect(&record_id("k1")).await.unwrap().unwrap();
    let found = http::Response::builder().status(201).header(LOCATION, "/charges/1").header(SET_COOKIE, "session=1");
    let resolve = Resolve {
        id: record_id("k1"),
        token_seen: entry.token.unwrap(),
        verdict: ResolveVerdict::Happened(recorded(found.body(Bytes::from("charged")).unwrap())),
        who: "ops".to_owned(),
        why: "the provider's list has it".to_owned(),
    };
    assert_eq!(rig.store.resolve(&resolve).await.unwrap(), Resolved::Applied);
    let again = send(&app, charge("k1")).await;
    assert_eq!((again.status, again.text(), again.is_replay()), (201, "charged", true));
    assert_eq!((again.header("Location"), again.header("Set-Cookie")), (Some("/charges/1"), None));
    assert_eq!(rig.runs.count(), 1);
}

#[tokio::test]
async fn a_replay_does_not_change_with_the_settings_of_today() {
    let rig = Rig::new();
    let app = rig.app(rig.layer(), |_| "long enough");
    let first = send(&app, charge("k1")).await;
    let tight = rig.layer().max_response(1).record(RecordPolicy::SuccessOnly).set_cookie(SetCookie::StoredAndReplayed);
    assert_same(&first, &send(&rig.app(tight, |_| "other"), charge("k1")).await);
}
