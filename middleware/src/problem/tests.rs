use bytes::Bytes;
use http::header::RETRY_AFTER;
use http::{Response, Uri};
use serde_json::{Value, json};

use super::*;

const SECOND: Duration = Duration::from_secs(1);
const DONE: Timestamp = Timestamp::from_micros(1_700_000_000_123_456);

/// Every reason with its row in the table: status, last segment of the type, seconds of `Retry-After`.
fn table() -> Vec<(Refusal, u16, &'static str, Option<u64>)> {
    let header = KeyFault::from(InvalidKeyHeader::SeveralLines);
    let not_kept = |answer| Refusal::ResponseNotKept {
        first_status: 201,
        completed_at: DONE,
        location: Some("/charges/1".into()),
        answer,
    };
    let unknown = |retry_after| Refusal::OutcomeUnknown { since: Some(DONE), attempt: Some(2), retry_after };
    vec![
        (Refusal::KeyMissing, 400, "idempotency-key-missing", None),
        (Refusal::KeyInvalid(header), 400, "idempotency-key-invalid", None),
        (Refusal::KeyInvalid(KeyFault::FromTheFuture), 400, "idempotency-key-invalid", None),
        (Refusal::ScopeMissing { ours: false }, 400, "idempotency-scope-missing", None),
        (Refusal::ScopeMissing { ours: true }, 500, "idempotency-scope-missing", None),
        (Refusal::KeyReused, 422, "idempotency-key-reused", None),
        (Refusal::InFlight { retry_after: 2 * SECOND }, 409, "request-in-flight", Some(2)),
        (unknown(None), 409, "outcome-unknown", None),
        (unknown(Some(5 * SECOND)), 409, "outcome-unknown", Some(5)),
        (not_kept(StatusCode::GONE), 410, "response-not-kept", None),
        (not_kept(StatusCode::CONFLICT), 409, "response-not-kept", None),
        (Refusal::KeyExpired { answer: StatusCode::GONE }, 410, "key-expired", None),
        (Refusal::KeyExpired { answer: StatusCode::BAD_REQUEST }, 400, "key-expired", None),
        (Refusal::RequestTooLarge { limit: Some(2_097_152) }, 413, "request-too-large", None),
        (Refusal::RequestUnreadable, 400, "request-unreadable", None),
        (Refusal::HandlerPanicked, 500, "handler-panicked", None),
        (Refusal::StoreUnavailable { retry_after: SECOND }, 503, "store-unavailable", Some(1)),
        (Refusal::StoreFull { retry_after: SECOND / 2 }, 503, "store-full", Some(1)),
        (Refusal::NotRecorded { retry_after: SECOND * 3 / 2 }, 503, "store-unavailable", Some(2)),
        (Refusal::FencingTokenMissing, 428, "fencing-token-missing", None),
        (Refusal::FencingTokenInvalid(InvalidFencingToken::Holder), 400, "fencing-token-invalid", None),
        (Refusal::FencingTokenSuperseded { current: token(35) }, 409, "fencing-token-superseded", None),
        (Refusal::LeaseHeld { retry_after: SECOND / 2 }, 409, "lease-held", Some(1)),
        (step_unknown(None), 409, "outcome-unknown", None),
        (step_unknown(Some(60 * SECOND)), 409, "outcome-unknown", Some(60)),
        (not_called(NotCalled::Unreachable), 503, "upstream-unavailable", Some(2)),
        (not_called(NotCalled::LeaseTooShort), 503, "lease-too-short", Some(2)),
        (not_called(NotCalled::StoreFull), 503, "store-full", Some(2)),
        (not_called(NotCalled::StoreUnavailable), 503, "store-unavailable", Some(2)),
        (Refusal::StepRequestChanged { step: step() }, 500, "step-request-changed", None),
        (Refusal::StepResultNotKept { step: step(), decided: Decided::Done }, 500, "step-result-not-kept", None),
    ]
}

fn step() -> StepLabel {
    StepLabel::parse("transfer").unwrap()
}

fn step_unknown(retry_after: Option<Duration>) -> Refusal {
    Refusal::StepUnknown { step: step(), call: 1, retry_after }
}

fn not_called(why: NotCalled) -> Refusal {
    Refusal::StepNotCalled { why, retry_after: 2 * SECOND }
}

fn token(number: u64) -> FencingToken {
    FencingToken::new(number).unwrap()
}

#[test]
fn a_superseded_caller_is_told_the_current_token_and_its_key_is_free() {
    let response = Refusal::FencingTokenSuperseded { current: token(35) }.into_response::<Bytes>();
    assert_eq!(body(&response)["current_token"], 35);
    assert_eq!(response.extensions().get::<Verdict>(), Some(&Verdict::Release));
}

fn body(response: &Response<Bytes>) -> Value {
    serde_json::from_slice(response.body()).unwrap()
}

fn header(response: &Response<Bytes>, name: &str) -> Option<String> {
    response.headers().get(name).map(|value| value.to_str().unwrap().to_owned())
}

#[test]
fn every_reason_is_answered_as_the_table_says() {
    for (refusal, status, kind, retry_after) in table() {
        let response = Problems::default().answer(refusal.clone());
        assert_eq!(response.status(), status, "{refusal:?}");
        assert_eq!(header(&response, "content-type").as_deref(), Some("application/problem+json"));
        assert_eq!(header(&response, "cache-control").as_deref(), Some("no-store"));
        assert_eq!(header(&response, "retry-after"), retry_after.map(|s| s.to_string()), "{refusal:?}");
        assert_eq!(header(&response, "link"), None);
        let body = body(&response);
        assert_eq!(body["type"], format!("urn:tower-idempotency:problem:{kind}"));
        assert_eq!(body["status"], status);
        assert_eq!(body["title"], refusal.title());
        assert_eq!(body["detail"], &*refusal.detail());
        assert_eq!(body["retryable"], retry_after.is_some(), "{refusal:?}");
        assert_eq!(response.extensions().get::<Refusal>(), Some(&refusal));
    }
}

#[test]
fn every_problem_type_is_listed() {
    let of_leases_and_fences =
        ["fencing-token-missing", "fencing-token-invalid", "fencing-token-superseded", "lease-held"];
    let of_steps = ["upstream-unavailable", "lease-too-short", "step-request-changed", "step-result-not-kept"];
    let elsewhere = of_leases_and_fences.into_iter().chain(of_steps);
    let listed: std::collections::BTreeSet<_> = PROBLEM_TYPES.into_iter().chain(elsewhere).collect();
    let answered = table().into_iter().map(|(_, _, kind, _)| kind).collect();
    assert_eq!(listed, answered);
}

#[test]
fn a_409_or_503_is_retryable_exactly_when_it_carries_retry_after() {
    for (refusal, ..) in table() {
        let response = Problems::default().answer(refusal.clone());
        assert_eq!(refusal.retryable(), response.headers().contains_key(RETRY_AFTER), "{refusal:?}");
    }
}

#[test]
fn members_tell_what_is_known_and_no_more() {
    let members = |refusal| body(&Problems::default().answer(refusal));
    let unknown = Refusal::OutcomeUnknown { since: Some(DONE), attempt: Some(3), retry_after: None };
    assert_eq!(
        members(unknown.clone()),
        json!({
            "type": "urn:tower-idempotency:problem:outcome-unknown",
            "status": 409,
            "title": unknown.title(),
            "detail": unknown.detail(),
            "retryable": false,
            "since": "2023-11-14T22:13:20.123456Z",
            "attempt": 3,
        })
    );
    let not_kept = Refusal::ResponseNotKept {
        first_status: 201,
        completed_at: DONE,
        location: Some("/charges/1".into()),
        answer: StatusCode::GONE,
    };
    assert_eq!(
        members(not_kept.clone()),
        json!({
            "type": "urn:tower-idempotency:problem:response-not-kept",
            "status": 410,
            "title": not_kept.title(),
            "detail": not_kept.detail(),
            "retryable": false,
            "first_status": 201,
            "completed_at": "2023-11-14T22:13:20.123456Z",
            "location": "/charges/1",
        })
    );
    let bare = Refusal::OutcomeUnknown { since: None, attempt: None, retry_after: None };
    assert_eq!(members(bare).as_object().unwrap().len(), 5);
    assert_eq!(members(Refusal::KeyReused).as_object().unwrap().len(), 5);
    // A time that cannot be written is left out.
    let never = Refusal::OutcomeUnknown { since: Some(Timestamp::MAX), attempt: None, retry_after: None };
    assert_eq!(members(never).as_object().unwrap().len(), 5);
}

#[test]
fn type_is_written_once_under_any_base() {
    for base in ["https://api.example.com/problems/", "https://api.example.com/problems#", "/problems/"] {
        let mut problems = Problems::default();
        problems.base(base);
        let response = problems.answer(Refusal::KeyReused);
        let text = str::from_utf8(response.body()).unwrap();
        assert_eq!(text.matches("\"type\"").count(), 1);
        assert_eq!(body(&response)["type"], format!("{base}idempotency-key-reused"));
    }
}

#[test]
fn what_is_told_of_a_request_in_flight_is_always_the_same_but_for_the_base_and_the_wait() {
    let mut problems = Problems::default();
    for base in [Problems::BASE, "/problems/", "/errors/"] {
        problems.base(base);
        for (wait, seconds) in [(SECOND, "1"), (2 * SECOND, "2")] {
            let response = problems.answer(Refusal::InFlight { retry_after: wait });
            assert_eq!(body(&response)["type"], format!("{base}request-in-flight"));
            assert_eq!(header(&response, "retry-after").as_deref(), Some(seconds));
        }
    }
}

#[test]
fn docs_are_linked_when_set() {
    let mut problems = Problems::default();
    problems.docs(&Uri::from_static("https://api.example.com/docs/idempotency"));
    let response = problems.answer(Refusal::KeyMissing);
    let link = "<https://api.example.com/docs/idempotency>; rel=\"describedby\"";
    assert_eq!(header(&response, "link").as_deref(), Some(link));
}

#[test]
fn waiting_for_a_lease_takes_one_to_three_seconds() {
    let wait = |left_ms, jitter_ms| {
        let refusal = Refusal::in_flight_with(Duration::from_millis(left_ms), Duration::from_millis(jitter_ms));
        refusal.retry_after().unwrap().as_secs()
    };
    assert_eq!(wait(0, 0), 1);
    assert_eq!(wait(1, 0), 1);
    assert_eq!(wait(400, 600), 1);
    assert_eq!(wait(400, 601), 2);
    assert_eq!(wait(1_500, 900), 3);
    assert_eq!(wait(2_000, 0), 2);
    assert_eq!(wait(60_000, 0), 2);
    assert_eq!(wait(60_000, 999), 3);
    let many = (0..200).map(|_| Refusal::in_flight(Duration::from_millis(1_500)).retry_after().unwrap().as_secs());
    let seen: std::collections::BTreeSet<_> = many.collect();
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), [2, 3], "jitter spreads the clients");
}

#[test]
fn an_invalid_key_is_told_which_rule_it_breaks() {
    let detail = |fault: KeyFault| Refusal::KeyInvalid(fault).detail();
    assert_eq!(
        detail(InvalidKey::TooLong { most: 255 }.into()),
        "Nothing was executed: the key is longer than 255 characters."
    );
    assert!(detail(InvalidKeyHeader::Key(InvalidKey::Charset).into()).contains("not visible ASCII"));
    assert!(detail(WrongKeyFormat::Uuid7.into()).contains("UUID of version 7"));
    assert!(detail(KeyFault::FromTheFuture).contains("future"));
}

#[test]
fn a_responder_replaces_the_body_and_the_reason_stays() {
    let mut problems = Problems::default();
    problems.responder(Responder::from_fn(|refusal, _| Response::new(refusal.problem_type().into())));
    let response = problems.answer(Refusal::KeyReused);
    assert_eq!(response.body(), "idempotency-key-reused");
    assert_eq!(response.extensions().get::<Refusal>(), Some(&Refusal::KeyReused));
}

#[test]
fn stripe_clients_are_told_whether_to_retry() {
    let mut problems = Problems::default();
    problems.responder(Responder::stripe());
    for (refusal, status, kind, retry_after) in table() {
        let response = problems.answer(refusal.clone());
        assert_eq!(response.status(), status);
        assert_eq!(header(&response, "content-type").as_deref(), Some("application/json"));
        assert_eq!(header(&response, "cache-control").as_deref(), Some("no-store"));
        assert_eq!(header(&response, "retry-after"), retry_after.map(|s| s.to_string()));
        let should_retry = header(&response, "stripe-should-retry");
        assert_eq!(should_retry.as_deref(), Some(if retry_after.is_some() { "true" } else { "false" }));
        let of_type = match kind {
            "idempotency-key-reused"
            | "request-in-flight"
            | "outcome-unknown"
            | "response-not-kept"
            | "key-expired" => "idempotency_error",
            _ if status >= 500 => "api_error",
            _ => "invalid_request_error",
        };
        let code =
            if kind == "request-in-flight" { "idempotency_key_in_use".to_owned() } else { kind.replace('-', "_") };
        let error = json!({"error": {"type": of_type, "code": code, "message": refusal.detail()}});
        assert_eq!(body(&response), error, "{refusal:?}");
        assert_eq!(response.extensions().get::<Refusal>(), Some(&refusal));
    }
}
