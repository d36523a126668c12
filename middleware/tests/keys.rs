//! The key: where it is looked for, what it may look like, and which requests are left alone.

#![allow(clippy::unwrap_used)] // Also in what the tests share.

mod common;

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::routing::post;
use bytes::Bytes;
use common::{Answer, KEY, Rig, charge, charge_of, send};
use futures_util::StreamExt as _;
use http::{HeaderName, HeaderValue, Method, Request, StatusCode, Uri};
use idempotency::{KeyRules, ScopeId, State};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tower_idempotency::{CurrentAttempt, IdempotencyLayer, KeyRequired, Scope};

/// A request whose key header lines are these bytes.
fn with_lines(lines: &[&[u8]]) -> Request<Body> {
    let mut request = Request::post("/charge").body(Body::from("10 EUR")).unwrap();
    for line in lines {
        request.headers_mut().append(KEY, HeaderValue::from_bytes(line).unwrap());
    }
    request
}

/// Sends a request that is refused for its key: 400, nothing asked of the store, the handler not run.
async fn refused(rig: &Rig, app: &Router, request: Request<Body>, why: &str) -> Answer {
    let (calls, runs) = (rig.store.all_calls(), rig.runs.count());
    let answer = send(app, request).await;
    assert_eq!((answer.status, answer.problem()), (400, Some("idempotency-key-invalid")), "{why}");
    assert_eq!((rig.store.all_calls(), rig.runs.count()), (calls, runs), "{why}");
    assert_eq!(rig.records(), 0, "{why}");
    answer
}

#[tokio::test]
async fn case_10_quoted_and_bare_are_one_key() {
    let rig = Rig::new();
    let app = rig.counting(rig.layer());
    assert!(!send(&app, charge(r#""8e03978e""#)).await.is_replay());
    for again in ["8e03978e", r#""8e03978e""#, r#"  "8e03978e" "#, " 8e03978e"] {
        let answer = send(&app, charge(again)).await;
        assert!(answer.is_replay(), "{again}");
        assert_eq!(answer.text(), "run 1", "{again}");
    }
    assert_eq!((rig.runs.count(), rig.records()), (1, 1));
}

#[tokio::test]
async fn case_10_two_forms_of_one_page_with_keys_of_the_browsers_own_run_both() {
    let rig = Rig::new();
    let app = rig.counting(rig.layer());
    for key in [r#""a3f1c2d4e5""#, r#""0b9c8d7e6f""#] {
        assert!(!send(&app, charge(key)).await.is_replay());
    }
    assert_eq!(rig.runs.count(), 2);
}

#[tokio::test]
async fn case_10_a_key_on_a_route_without_the_layer_is_ignored() {
    let rig = Rig::new();
    let app = rig.handler(|run| format!("run {run}"));
    send(&app, charge("k1")).await;
    assert_eq!(send(&app, charge("k1")).await.text(), "run 2");
    assert_eq!(rig.records(), 0);
}

#[tokio::test]
async fn parameters_of_a_quoted_key_are_ignored() {
    let rig = Rig::new();
    let app = rig.counting(rig.layer());
    send(&app, charge(r#""k1""#)).await;
    for again in [r#""k1";a"#, r#""k1"; a=1;b="x""#, r#""k1";a=?0;b=tok"#] {
        assert!(send(&app, charge(again)).await.is_replay(), "{again}");
    }
    assert_eq!(rig.runs.count(), 1);
}

#[tokio::test]
async fn a_bare_key_is_the_whole_value() {
    let rig = Rig::new();
    let app = rig.counting(rig.layer());
    for key in ["k1", "k1;a", "k1;a=1", "K1", "k1\"", "'k1'"] {
        assert!(!send(&app, charge(key)).await.is_replay(), "{key}");
        assert!(send(&app, charge(key)).await.is_replay(), "{key}");
    }
    assert_eq!(rig.runs.count(), 6);
}

#[tokio::test]
async fn a_quoted_key_may_hold_spaces_and_commas() {
    let rig = Rig::new();
    let app = rig.counting(rig.layer());
    for key in [r#""a b""#, r#""a,b""#, r#""a, b""#, r#"" a""#, r#""a\"b""#, r#""a\\b""#] {
        assert!(!send(&app, charge(key)).await.is_replay(), "{key}");
        assert!(send(&app, charge(key)).await.is_replay(), "{key}");
    }
    assert_eq!(rig.runs.count(), 6);
}

#[tokio::test]
async fn case_09_what_no_key_may_look_like_is_refused() {
    let rig = Rig::new();
    let app = rig.counting(rig.layer());
    let cases: [(&[u8], &str); 22] = [
        (b"", "empty"),
        (b"   ", "blank"),
        (b"\t", "a tab"),
        (b"\"\"", "empty in quotes"),
        (b"\"  \"", "blank in quotes"),
        (b"a\tb", "a tab inside"),
        (b"\"a\tb\"", "a tab inside quotes"),
        (b"\x80\x81\xFE\xFF", "no ASCII"),
        (b"k\xC3\xA9", "UTF-8"),
        (b"\"k\xC3\xA9\"", "UTF-8 in quotes"),
        (b"a b", "a space in a bare key"),
        (b"a,b", "a list"),
        (b"a, b", "a list"),
        (b"a, a", "a list of equal keys"),
        (b"a,", "a list that ends too early"),
        (b"\"a\", \"b\"", "a quoted list"),
        (b"\"a\", \"a\"", "a quoted list of equal keys"),
        (b"\"a\",b", "a mixed list"),
        (b"\"a", "no end quote"),
        (b"\"a\"b", "more after the end quote"),
        (b"\"a\" b", "more after the end quote"),
        (b"\"a\\n\"", "an escape that is none"),
    ];
    for (line, why) in cases {
        refused(&rig, &app, with_lines(&[line]), why).await;
    }
}

#[tokio::test]
async fn case_09_two_lines_are_refused_equal_or_not() {
    let rig = Rig::new();
    let app = rig.counting(rig.layer());
    let cases: [&[&[u8]]; 5] = [&[b"a", b"b"], &[b"a", b"a"], &[b"\"a\"", b"a"], &[b"a", b""], &[b"a", b"a", b"a"]];
    for lines in cases {
        refused(&rig, &app, with_lines(lines), &format!("{lines:?}")).await;
    }
    assert!(!send(&app, with_lines(&[b"a"])).await.is_replay(), "none of them was taken for the key");
}

#[tokio::test]
async fn case_09_odd_but_legal_keys_are_taken_byte_for_byte() {
    let rig = Rig::new();
    let app = rig.counting(rig.layer());
    let keys = [
        "%00",
        "../../x",
        "{tag}",
        "a{tag}b",
        r"line\nbreak",
        r"\r\n",
        "a:b/c?d#e",
        "'; DROP TABLE x; --",
        "~!@$^&*()",
    ];
    for (n, key) in keys.into_iter().enumerate() {
        let key = if key.contains(' ') { format!("\"{key}\"") } else { key.to_owned() };
        assert_eq!(send(&app, charge(&key)).await.text(), format!("run {}", n + 1));
        let again = send(&app, charge(&key)).await;
        assert!(again.is_replay());
        assert_eq!(again.text(), format!("run {}", n + 1));
    }
}

#[tokio::test]
async fn a_key_has_at_most_255_characters_without_its_quotes() {
    let rig = Rig::new();
    let app = rig.counting(rig.layer());
    let answer = refused(&rig, &app, charge(&"k".repeat(256)), "bare").await;
    assert!(answer.text().contains("longer than 255"), "which rule was broken: {}", answer.text());
    refused(&rig, &app, charge(&format!("\"{}\"", "k".repeat(256))), "quoted").await;
    refused(&rig, &app, charge(&"k".repeat(20_000)), "very long").await;
    assert_eq!(send(&app, charge(&"k".repeat(255))).await.status, 201);
    assert!(send(&app, charge(&format!("\"{}\"", "k".repeat(255)))).await.is_replay());
    assert_eq!(send(&app, charge("k")).await.text(), "run 2");
}

#[tokio::test]
async fn own_lengths_are_counted_without_quotes() {
    let rig = Rig::new();
    let app = rig.counting(rig.layer().key_rules(KeyRules::default().length(4..=8)));
    for key in ["abc", "\"abc\"", "abcdefghi", "\"abcdefghi\""] {
        refused(&rig, &app, charge(key), key).await;
    }
    for key in ["abcd", "abcdefgh"] {
        assert_eq!(send(&app, charge(key)).await.status, 201);
        assert!(send(&app, charge(&format!("\"{key}\""))).await.is_replay());
    }
    let one = rig.counting(rig.layer().key_rules(KeyRules::default().length(0..=8)));
    let answer = send(&one, charge("\"\"")).await;
    assert_eq!(answer.problem(), Some("idempotency-key-invalid"), "an empty key is never one");
}

#[tokio::test]
async fn a_refusal_does_not_repeat_the_key() {
    let rig = Rig::new();
    let app = rig.counting(rig.layer());
    for line in [&b"secret-1, secret-2"[..], b"secret 3", b"\"secret", b"secret\xFF"] {
        let answer = refused(&rig, &app, with_lines(&[line]), "").await;
        assert!(!answer.text().contains("secret"), "{}", answer.text());
        assert!(!format!("{:?} {:?}", answer.headers, answer.problem()).contains("secret"));
    }
}

#[tokio::test]
async fn post_and_patch_are_protected_and_nothing_else_is() {
    let rig = Rig::new();
    let app = rig.counting(rig.layer());
    let request = |method: &Method, key: &str| {
        Request::builder().method(method).uri("/x").header(KEY, key).body(Body::empty()).unwrap()
    };
    for method in [Method::POST, Method::PATCH] {
        assert_eq!(send(&app, request(&method, method.as_str())).await.status, 201);
        assert!(send(&app, request(&method, method.as_str())).await.is_replay(), "{method}");
    }
    let own = Method::from_bytes(b"PURGE").unwrap();
    let calls = rig.store.all_calls();
    for method in
        [Method::GET, Method::HEAD, Method::OPTIONS, Method::TRACE, Method::CONNECT, Method::PUT, Method::DELETE, own]
    {
        let runs = rig.runs.count();
        for _ in 0..2 {
            assert!(!send(&app, request(&method, "k1")).await.is_replay(), "{method}");
        }
        assert_eq!(rig.runs.count(), runs + 2, "{method}");
    }
    assert_eq!(rig.store.all_calls(), calls);
}

#[tokio::test]
async fn put_and_delete_can_be_switched_on_and_safe_methods_cannot() {
    let rig = Rig::new();
    let safe = [Method::GET, Method::HEAD, Method::OPTIONS, Method::TRACE, Method::CONNECT];
    let methods = [Method::PUT, Method::DELETE].into_iter().chain(safe.clone());
    let app = rig.counting(rig.layer().methods(methods));
    let request = |method: &Method, key: &str| {
        Request::builder().method(method).uri("/x").header(KEY, key).body(Body::empty()).unwrap()
    };
    for method in [Method::PUT, Method::DELETE] {
        assert_eq!(send(&app, request(&method, method.as_str())).await.status, 201);
        assert!(send(&app, request(&method, method.as_str())).await.is_replay(), "{method}");
    }
    let calls = rig.store.all_calls();
    for method in safe.into_iter().chain([Method::POST, Method::PATCH]) {
        for _ in 0..2 {
            assert!(!send(&app, request(&method, "k1")).await.is_replay(), "{method}");
        }
    }
    assert_eq!(rig.store.all_calls(), calls);
}

#[tokio::test]
async fn case_11_a_get_with_a_key_is_always_live() {
    let rig = Rig::new();
    let app = rig.counting(rig.layer().key_required(KeyRequired::Required));
    let count = || Request::get("/count").header(KEY, "k1").body(Body::empty()).unwrap();
    assert_eq!(send(&app, count()).await.text(), "run 1");
    assert_eq!(send(&app, charge("k2")).await.text(), "run 2");
    assert_eq!(send(&app, count()).await.text(), "run 3");
    assert_eq!(rig.records(), 1);
    // Not even what would be an error on a protected method.
    let mut odd = count();
    odd.headers_mut().append(KEY, HeaderValue::from_static("k2"));
    assert_eq!(send(&app, odd).await.status, 201);
    let none = Request::get("/count").body(Body::empty()).unwrap();
    assert_eq!(send(&app, none).await.status, 201, "and none is required");
}

fn headed(headers: &[(&str, &str)]) -> Request<Body> {
    let request = Request::post("/x").header(KEY, "k1");
    headers.iter().fold(request, |request, (name, value)| request.header(*name, *value)).body(Body::empty()).unwrap()
}

#[tokio::test]
async fn upgrades_and_grpc_pass_through_where_a_key_is_optional() {
    let rig = Rig::new();
    let app = rig.counting(rig.layer());
    for headers in [
        &[("Upgrade", "websocket"), ("Connection", "keep-alive, Upgrade")][..],
        &[("Content-Type", "application/grpc")],
        &[("Content-Type", "application/grpc+proto")],
        &[("Content-Type", "application/grpc-web; charset=utf-8")],
        &[("Content-Type", "Application/gRPC")],
    ] {
        let runs = rig.runs.count();
        for _ in 0..2 {
            assert!(!send(&app, headed(headers)).await.is_replay(), "{headers:?}");
        }
        assert_eq!(rig.runs.count(), runs + 2, "{headers:?}");
    }
    assert_eq!(rig.store.all_calls(), 0);
}

#[tokio::test]
async fn what_only_looks_like_an_upgrade_or_grpc_is_protected() {
    for headers in [
        &[("Upgrade", "websocket")][..],
        &[("Upgrade", ""), ("Connection", "upgrade")],
        &[("Upgrade", "h2c"), ("Connection", "Upgrade, HTTP2-Settings")],
        &[("Upgrade", "TLS/1.2"), ("Connection", "upgrade")],
        &[("Upgrade", "h2c, TLS/1.2"), ("Connection", "upgrade")],
        &[("Content-Type", "application/grpc+json")],
        &[("Content-Type", "application/grpc-web+json")],
        &[("Content-Type", "application/grpcjson")],
    ] {
        let rig = Rig::new();
        let app = rig.counting(rig.layer());
        send(&app, headed(headers)).await;
        assert!(send(&app, headed(headers)).await.is_replay(), "{headers:?}");
        assert_eq!(rig.runs.count(), 1, "{headers:?}");
    }
}

#[tokio::test]
async fn nothing_leads_past_a_required_key() {
    let rig = Rig::new();
    let app = rig.counting(rig.layer().key_required(KeyRequired::Required));
    for headers in [&[("Upgrade", "websocket"), ("Connection", "upgrade")][..], &[("Content-Type", "application/grpc")]]
    {
        let mut request = headed(headers);
        request.headers_mut().remove(KEY);
        assert_eq!(send(&app, request).await.problem(), Some("idempotency-key-missing"), "{headers:?}");
    }
    assert_eq!(rig.runs.count(), 0);
}

#[tokio::test]
async fn case_06_a_missing_key_passes_where_it_is_optional() {
    let rig = Rig::new();
    let app = rig.counting(rig.layer());
    let request = || Request::post("/charge").body(Body::from("10 EUR")).unwrap();
    assert_eq!(send(&app, request()).await.text(), "run 1");
    assert_eq!(send(&app, request()).await.text(), "run 2");
    assert_eq!((rig.store.all_calls(), rig.records()), (0, 0), "no key is invented");
}

#[tokio::test]
async fn case_06_a_missing_key_is_refused_where_it_is_required() {
    let rig = Rig::new();
    let docs = Uri::from_static("https://api.example.com/docs/idempotency");
    let app = rig.counting(rig.layer().key_required(KeyRequired::Required).docs(docs));
    let answer = send(&app, Request::post("/charge").body(Body::from("10 EUR")).unwrap()).await;
    assert_eq!((answer.status, answer.problem()), (400, Some("idempotency-key-missing")));
    assert_eq!(answer.header("Link"), Some("<https://api.example.com/docs/idempotency>; rel=\"describedby\""));
    assert_eq!((rig.runs.count(), rig.store.all_calls()), (0, 0));

    let app = rig.counting(rig.layer().key_required(KeyRequired::Required));
    let answer = send(&app, Request::post("/charge").body(Body::empty()).unwrap()).await;
    assert_eq!((answer.status, answer.header("Link")), (400, None));
    assert_eq!(send(&app, charge("k1")).await.status, 201);
}

#[tokio::test]
async fn without_a_key_the_body_is_not_read() {
    let rig = Rig::new();
    let first_frame = |body: Body| async move {
        let frame = body.into_data_stream().next().await;
        frame.unwrap().unwrap()
    };
    let app = Router::new().route("/charge", post(first_frame)).layer(rig.layer().max_request(3));
    let never_ending = futures_util::stream::once(async { Ok::<_, Infallible>(Bytes::from_static(b"first")) })
        .chain(futures_util::stream::pending());
    let request = Request::post("/charge").body(Body::from_stream(never_ending)).unwrap();
    let answer = tokio::time::timeout(Duration::from_secs(5), send(&app, request)).await.expect("it is not read first");
    assert_eq!((answer.status, answer.text()), (200, "first"));
}

#[tokio::test]
async fn a_handler_sees_its_attempt_only_under_a_key() {
    let rig = Rig::new();
    let seen = async |attempt: Option<CurrentAttempt>| match attempt {
        Some(CurrentAttempt(attempt)) => format!("{} {}", attempt.key().as_str(), attempt.number()),
        None => "none".to_owned(),
    };
    let required = async |CurrentAttempt(attempt): CurrentAttempt| attempt.number().to_string();
    let app = Router::new().route("/charge", post(seen)).route("/must", post(required)).layer(rig.layer());
    assert_eq!(send(&app, charge("\"order 42\"")).await.text(), "order 42 1");
    let keyless = |path| Request::post(path).body(Body::empty()).unwrap();
    assert_eq!(send(&app, keyless("/charge")).await.text(), "none");
    assert_eq!(send(&app, keyless("/must")).await.status, 500);
}

#[tokio::test]
async fn the_key_can_be_in_another_header() {
    let rig = Rig::new();
    let name = HeaderName::from_static("x-request-key");
    let app = rig.counting(rig.layer().key_header(name.clone()));
    let request = |usual: &str, own: &[&str]| {
        let mut request = charge(usual);
        for key in own {
            request.headers_mut().append(&name, HeaderValue::from_str(key).unwrap());
        }
        request
    };
    assert_eq!(send(&app, request("a", &["k1"])).await.text(), "run 1");
    assert_eq!(send(&app, request("b", &["\"k1\""])).await.text(), "run 1", "the usual header means nothing");
    assert_eq!(send(&app, request("a", &["k2"])).await.text(), "run 2");
    assert_eq!(send(&app, request("a", &[])).await.text(), "run 3");
    assert_eq!(send(&app, request("a", &[])).await.text(), "run 4");
    assert_eq!(send(&app, request("a", &["k1", "k1"])).await.problem(), Some("idempotency-key-invalid"));
}

#[tokio::test]
async fn header_names_are_read_in_any_case_over_a_connection() {
    let rig = Rig::new();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let app = rig.counting(rig.layer());
    let server = tokio::spawn(async move { axum::serve(listener, app).await });
    for (name, replay) in [("idempotency-key", false), ("IDEMPOTENCY-KEY", true), ("iDeMpOtEnCy-kEy", true)] {
        let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let request = format!(
            "POST /charge HTTP/1.1\r\nHost: x\r\n{name}: k1\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi"
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
        assert!(answer.ends_with("run 1"), "{answer}");
        assert_eq!(answer.to_lowercase().contains("idempotent-replayed: true"), replay, "{answer}");
    }
    server.abort();
    assert_eq!(rig.runs.count(), 1);
}

/// A layer whose key is the body up to the first comma.
fn from_body(rig: &Rig) -> IdempotencyLayer<common::TestStore> {
    rig.layer().key_from_fn(|parts, body| {
        if parts.uri.path() == "/ping" {
            return None;
        }
        let text = str::from_utf8(body).ok()?;
        text.split_once(',').map(|(id, _)| id.to_owned())
    })
}

fn webhook(body: &str) -> Request<Body> {
    Request::post("/webhook").body(Body::from(body.to_owned())).unwrap()
}

#[tokio::test]
async fn a_function_finds_the_key_in_the_body_which_the_handler_still_gets() {
    let rig = Rig::new();
    let runs = rig.runs.clone();
    let echo = move |body: Bytes| {
        runs.begin();
        async move { body }
    };
    let app = Router::new().route("/webhook", post(echo)).layer(from_body(&rig));
    assert_eq!(send(&app, webhook("evt_1,paid")).await.text(), "evt_1,paid");
    let mut again = webhook("evt_1,paid");
    again.headers_mut().insert(KEY, HeaderValue::from_static("another"));
    let again = send(&app, again).await;
    assert!(again.is_replay(), "the header means nothing in this mode");
    assert_eq!(again.text(), "evt_1,paid");
    assert_eq!(send(&app, webhook("evt_2,paid")).await.text(), "evt_2,paid");
    assert_eq!(rig.runs.count(), 2);
    assert_eq!(rig.state("evt_1").await, Some(State::Completed));
}

#[tokio::test]
async fn a_function_that_finds_no_key_passes_or_is_refused() {
    let rig = Rig::new();
    let app = rig.counting(from_body(&rig));
    for run in 1..=2 {
        assert_eq!(send(&app, webhook("no comma")).await.text(), format!("run {run}"));
    }
    assert_eq!(rig.store.all_calls(), 0);
    let app = rig.counting(from_body(&rig).key_required(KeyRequired::Required));
    let answer = send(&app, webhook("no comma")).await;
    assert_eq!((answer.status, answer.problem()), (400, Some("idempotency-key-missing")));
    assert_eq!((rig.runs.count(), rig.store.all_calls()), (2, 0));
}

#[tokio::test]
async fn a_function_whose_key_breaks_a_rule_is_refused() {
    let rig = Rig::new();
    let app = rig.counting(from_body(&rig));
    for id in ["", "  ", "a\tb", "k\u{e9}", "a\nb", &"k".repeat(256)] {
        refused(&rig, &app, webhook(&format!("{id},paid")), id).await;
    }
    // No header's grammar holds here: what is found is the key.
    assert_eq!(send(&app, webhook("a b,paid")).await.text(), "run 1");
    assert_eq!(send(&app, webhook("\"a b\",paid")).await.text(), "run 2");
}

#[tokio::test]
async fn a_function_is_asked_on_protected_methods_only() {
    let rig = Rig::new();
    let asked = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&asked);
    let layer = rig.layer().key_from_fn(move |parts, _| {
        log.lock().unwrap().push(parts.method.clone());
        Some("k1".to_owned())
    });
    let app = rig.counting(layer);
    for method in [Method::GET, Method::PUT, Method::POST] {
        let request = Request::builder().method(method).uri("/x").body(Body::from("x")).unwrap();
        assert_eq!(send(&app, request).await.status, StatusCode::CREATED);
    }
    assert_eq!(*asked.lock().unwrap(), [Method::POST]);
}

#[tokio::test]
async fn case_96_a_stranger_who_takes_a_key_first_blocks_nobody() {
    let rig = Rig::new();
    let scope = Scope::header(HeaderName::from_static("x-account"));
    let app = rig.counting(IdempotencyLayer::new(rig.store.clone(), scope));
    let of = |account: &str, amount| {
        let mut request = charge_of("sha-abc", amount);
        request.headers_mut().insert("x-account", HeaderValue::from_str(account).unwrap());
        request
    };
    assert_eq!(send(&app, of("b", 1)).await.text(), "run 1");
    // Another body, so that a shared key would be refused; and the same one, so that it would be replayed.
    assert_eq!(send(&app, of("a", 99)).await.text(), "run 2");
    assert_eq!(send(&app, of("c", 1)).await.text(), "run 3");
    assert!(send(&app, of("a", 99)).await.is_replay());
    assert_eq!(send(&app, of("b", 1)).await.text(), "run 1");
    assert_eq!((rig.runs.count(), rig.records()), (3, 3));
}

#[tokio::test]
async fn case_96_a_stranger_whose_request_hangs_blocks_nobody() {
    let rig = Rig::new();
    let scope = Scope::from_fn(|parts| parts.extensions.get::<&'static str>().map(|name| ScopeId::new([name])));
    let runs = rig.runs.clone();
    let handler = move |axum::Extension(account): axum::Extension<&'static str>| {
        runs.begin();
        async move {
            if account == "b" {
                std::future::pending::<()>().await;
            }
            account
        }
    };
    let app = Router::new().route("/charge", post(handler)).layer(IdempotencyLayer::new(rig.store.clone(), scope));
    let of = |account: &'static str| {
        let mut request = charge("sha-abc");
        request.extensions_mut().insert(account);
        request
    };
    let hanging = tokio::spawn({
        let (app, request) = (app.clone(), of("b"));
        async move { send(&app, request).await }
    });
    while rig.runs.count() == 0 {
        assert!(!hanging.is_finished(), "it never ran");
        tokio::task::yield_now().await;
    }
    assert_eq!(send(&app, of("a")).await.text(), "a");
    assert_eq!(send(&app, of("b")).await.problem(), Some("request-in-flight"), "its own key is taken");
    hanging.abort();
}
