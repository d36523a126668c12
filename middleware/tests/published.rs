//! The published specification: names and forms that clients read, and so stay.

#![allow(clippy::unwrap_used)] // Also in what the tests share.

mod common;

use std::time::Duration;

use common::{DAY, HOUR, Rig};
use http::{HeaderName, Method, Uri};
use idempotency::{AgeLimit, InFlight, KeyClass, KeyRules, Recovery, Windows};
use serde_json::json;
use tower_idempotency::{IdempotencyLayer, KeyFormat, KeyRequired, Outage, Scope};

#[test]
fn the_default_rules_read_like_this() {
    let description = serde_json::to_value(Rig::new().layer().describe()).unwrap();
    assert_eq!(
        description,
        json!({
            "key_header": "idempotency-key",
            "key_required": false,
            "key_length": [1, 255],
            "key_format": "opaque",
            "key_max_age": null,
            "key_scope": "global",
            "methods": ["POST", "PATCH"],
            "response_window": "PT24H",
            "tombstone_window": "PT720H",
            "tombstone_renewed_up_to": null,
            "in_flight": "reject",
            "in_flight_wait": null,
            "recovery": "hold",
            "store_outage": "refuse",
            "max_request_bytes": 2_097_152,
            "max_response_bytes": 262_144,
            "replay_header": "idempotent-replayed",
            "problem_types": [
                "urn:tower-idempotency:problem:idempotency-key-missing",
                "urn:tower-idempotency:problem:idempotency-key-invalid",
                "urn:tower-idempotency:problem:idempotency-scope-missing",
                "urn:tower-idempotency:problem:idempotency-key-reused",
                "urn:tower-idempotency:problem:request-in-flight",
                "urn:tower-idempotency:problem:outcome-unknown",
                "urn:tower-idempotency:problem:response-not-kept",
                "urn:tower-idempotency:problem:key-expired",
                "urn:tower-idempotency:problem:request-too-large",
                "urn:tower-idempotency:problem:request-unreadable",
                "urn:tower-idempotency:problem:handler-panicked",
                "urn:tower-idempotency:problem:store-unavailable",
                "urn:tower-idempotency:problem:store-full",
            ],
            "documentation": null,
        })
    );
}

#[test]
fn every_setting_that_clients_can_notice_is_published() {
    let rig = Rig::new();
    let age = AgeLimit { max_age: 7 * DAY, drift: Duration::from_secs(90), class: KeyClass::new("uuid7") };
    let windows = Windows::new(HOUR + Duration::from_millis(1_500), 30 * DAY).unwrap();
    let windows = windows.renewed_up_to(120 * DAY).unwrap();
    let layer = IdempotencyLayer::new(rig.store.clone(), Scope::header(HeaderName::from_static("x-account")))
        .key_header(HeaderName::from_static("x-request-key"))
        .key_required(KeyRequired::Required)
        .key_rules(KeyRules::default().length(16..=64))
        .windows(windows)
        .key_format(KeyFormat::Uuid7, age)
        .unwrap()
        .methods([Method::POST, Method::PUT, Method::DELETE, Method::GET])
        .in_flight(InFlight::Wait(Duration::from_secs(10)))
        .recovery(Recovery::Rerun)
        .outage(Outage::Pass)
        .max_request(10)
        .max_response(20)
        .replay_header(None)
        .problem_base("https://api.example.com/problems/")
        .docs(Uri::from_static("https://api.example.com/docs"));
    let description = serde_json::to_value(layer.describe()).unwrap();
    for (field, value) in [
        ("key_header", json!("x-request-key")),
        ("key_required", json!(true)),
        ("key_length", json!([16, 64])),
        ("key_format", json!("uuid7")),
        ("key_max_age", json!("PT168H")),
        ("key_scope", json!("header")),
        ("methods", json!(["POST", "PUT", "DELETE"])),
        ("response_window", json!("PT1H1.5S")),
        ("tombstone_window", json!("PT720H")),
        ("tombstone_renewed_up_to", json!("PT2880H")),
        ("in_flight", json!("wait")),
        ("in_flight_wait", json!("PT10S")),
        ("recovery", json!("rerun")),
        ("store_outage", json!("pass")),
        ("max_request_bytes", json!(10)),
        ("max_response_bytes", json!(20)),
        ("replay_header", json!(null)),
        ("documentation", json!("https://api.example.com/docs")),
    ] {
        assert_eq!(description[field], value, "{field}");
    }
    assert_eq!(description["problem_types"][0], "https://api.example.com/problems/idempotency-key-missing");
}

#[test]
fn a_key_that_a_function_finds_has_no_header_and_a_scope_from_a_function_is_a_principal() {
    let rig = Rig::new();
    let layer = IdempotencyLayer::new(rig.store.clone(), Scope::from_fn(|_| None)).key_from_fn(|_, _| None);
    let description = layer.describe();
    assert_eq!((description.key_header, description.key_scope), (None, "principal"));
    let age = AgeLimit { max_age: HOUR, drift: Duration::from_secs(1), class: KeyClass::new("ulid") };
    assert_eq!(rig.layer().key_format(KeyFormat::Ulid, age).unwrap().describe().key_format, "ulid");
}

#[test]
fn settings_set_later_do_not_lose_the_cap_of_renewals() {
    let windows = Windows::default().renewed_up_to(120 * DAY).unwrap();
    let age = AgeLimit { max_age: HOUR, drift: HOUR, class: KeyClass::new("uuid7") };
    let layer = Rig::new().layer().windows(windows);
    let aged = layer.clone().key_format(KeyFormat::Uuid7, age).unwrap();
    let renewing = layer.engine().settings().clone();
    for later in [layer.recovery(Recovery::Rerun), aged.clone(), aged.settings(renewing)] {
        assert_eq!(later.engine().settings().life_setting().windows(), &windows);
    }
}

#[test]
fn settings_set_later_do_not_lose_the_age_limit() {
    let age = AgeLimit { max_age: HOUR, drift: HOUR, class: KeyClass::new("uuid7") };
    let layer = Rig::new().layer().key_format(KeyFormat::Uuid7, age.clone()).unwrap();
    for later in [
        layer.clone().settings(idempotency::Settings::default()),
        layer.clone().recovery(Recovery::Rerun),
        layer.clone().windows(Windows::default()),
    ] {
        assert_eq!(later.engine().settings().life_setting().age(), Some(&age));
        assert!(later.describe().key_max_age.is_some());
    }
}
