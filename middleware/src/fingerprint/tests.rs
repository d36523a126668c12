mod json_form;
mod multipart_form;

use http::Request;

use super::*;

const ROUTE: (&str, Option<&str>) = ("/charges", Some("a=1"));

fn parts(content_type: Option<&str>) -> Parts {
    let mut request = Request::post("/cut?x=y");
    if let Some(content_type) = content_type {
        request = request.header(CONTENT_TYPE, content_type);
    }
    request.body(()).unwrap().into_parts().0
}

fn of(content_type: &str, body: impl AsRef<[u8]>) -> Fingerprint {
    with(&FingerprintRule::default(), content_type, body)
}

fn with(rule: &FingerprintRule, content_type: &str, body: impl AsRef<[u8]>) -> Fingerprint {
    rule.compute(&parts(Some(content_type)), ROUTE, &Bytes::copy_from_slice(body.as_ref()))
}

#[test]
fn version_1_fingerprints_stay_as_they_are() {
    // A change here makes every retry that crosses an upgrade a 422.
    let expected = FingerprintHasher::new()
        .part(b"method")
        .part(b"POST")
        .part(b"path")
        .part(b"/charges")
        .part(b"query")
        .part(b"a=1")
        .part(b"media type")
        .part(b"application/json")
        .part(b"json")
        .part(br#"{"a":1,"b":2}"#)
        .clone()
        .finish();
    assert_eq!(of("application/json", r#"{"b": 2, "a": 1}"#), expected);
}

#[test]
fn method_path_query_media_type_and_body_are_told_apart() {
    let rule = FingerprintRule::default();
    let body = Bytes::from_static(b"x");
    let first = rule.compute(&parts(Some("text/plain")), ROUTE, &body);
    let mut put = parts(Some("text/plain"));
    put.method = http::Method::PUT;
    let others = [
        rule.compute(&put, ROUTE, &body),
        rule.compute(&parts(Some("text/plain")), ("/refunds", ROUTE.1), &body),
        rule.compute(&parts(Some("text/plain")), ("/charges", Some("a=2")), &body),
        rule.compute(&parts(Some("text/plain")), ("/charges", Some("")), &body),
        rule.compute(&parts(Some("text/plain")), ("/charges", None), &body),
        rule.compute(&parts(Some("text/html")), ROUTE, &body),
        rule.compute(&parts(None), ROUTE, &body),
        rule.compute(&parts(Some("text/plain")), ROUTE, &Bytes::from_static(b"y")),
        rule.compute(&parts(Some("text/plain")), ROUTE, &Bytes::new()),
    ];
    let all: std::collections::HashSet<_> = others.into_iter().chain([first]).collect();
    assert_eq!(all.len(), 10);
}

#[test]
fn credentials_and_other_headers_do_not_count() {
    let mut other = parts(Some("text/plain"));
    other.headers.insert("authorization", HeaderValue::from_static("Bearer b"));
    other.headers.insert("cookie", HeaderValue::from_static("a=b"));
    let body = Bytes::from_static(b"x");
    assert_eq!(FingerprintRule::default().compute(&other, ROUTE, &body), of("text/plain", "x"));
}

#[test]
fn parameters_and_case_of_the_media_type_do_not_count() {
    for same in ["text/plain; charset=utf-8", "Text/PLAIN", "text/plain;", "text/plain ;;x", " text/plain"] {
        assert_eq!(of(same, "x"), of("text/plain", "x"), "{same}");
    }
    assert_ne!(of("not a type", "x"), of("nor this", "x"));
    assert_eq!(of("Not A type; a=1", "x"), of("not a Type", "x"));
    let mut binary = parts(None);
    binary.headers.insert(CONTENT_TYPE, HeaderValue::from_bytes(b"\xFF; a").unwrap());
    let _ = FingerprintRule::default().compute(&binary, ROUTE, &Bytes::new());
}

#[test]
fn a_part_that_is_left_out_does_not_count() {
    let body = Bytes::from_static(b"x");
    let mut other = parts(Some("text/html"));
    other.method = http::Method::PATCH;
    let same = |rule: FingerprintRule, parts: &Parts, route, body: &Bytes| {
        rule.compute(parts, route, body) == with(&rule, "text/plain", "x")
    };
    let plain = parts(Some("text/plain"));
    let mut patch = plain.clone();
    patch.method = http::Method::PATCH;
    let rule = FingerprintRule::default;
    assert!(same(rule().without_route(), &patch, ("/other", None), &body));
    assert!(same(rule().without_query(), &plain, ("/charges", None), &body));
    assert!(!same(rule().without_query(), &plain, ("/other", None), &body));
    assert!(same(rule().without_media_type(), &parts(Some("text/html")), ROUTE, &body));
    assert!(same(rule().without_body(), &plain, ROUTE, &Bytes::new()));
    assert!(!same(rule().without_route(), &other, ROUTE, &body), "the media type still counts");
    assert!(!same(rule().without_media_type(), &patch, ROUTE, &body), "the method still counts");
}

#[test]
fn raw_mode_counts_every_byte() {
    let raw = FingerprintRule::default().body(BodyMode::Raw);
    assert_ne!(with(&raw, "application/json", "{}"), with(&raw, "application/json", "{ }"));
    assert_eq!(with(&raw, "application/json", "{}"), with(&raw, "application/json", "{}"));
    assert_ne!(with(&raw, "application/json", "{}"), of("application/json", "{}"));
    // A media type whose meaning is not known is raw in either mode.
    assert_eq!(with(&raw, "text/plain", "{}"), of("text/plain", "{}"));
}

#[test]
fn own_rule_decides_alone() {
    let rule = FingerprintRule::from_fn(|parts, body| Fingerprint::of([parts.method.as_str().as_bytes(), body]));
    let expected = Fingerprint::of([b"POST".as_slice(), b"{ }"]);
    assert_eq!(with(&rule.clone().without_body().without_route(), "application/json", "{ }"), expected);
    assert_eq!(format!("{rule:?}"), "FingerprintRule(own)");
}
