//! Handlers that call external APIs under the guard: what becomes of their keys.

#![allow(clippy::unwrap_used)] // Also in what the tests share.

mod common;

use std::time::Duration;

use axum::Router;
use bytes::Bytes;
use common::{Rig, TestStore, charge, send};
use http::StatusCode;
use idempotency::outbound::{CallEnd, Guard, Policy, Provider, Step};
use idempotency::{Fingerprint, Recovery, State};
use tower_idempotency::CurrentAttempt;

fn guard(rig: &Rig) -> Guard<TestStore> {
    Guard::new(rig.store.clone(), Provider::new("bank", Duration::from_secs(1)).unwrap(), Policy::Hold).unwrap()
}

/// An app that makes a call which ends so, and then refuses the request with 422.
fn refusing_after(rig: &Rig, recovery: Recovery, end: CallEnd) -> Router {
    let (runs, guard) = (rig.runs.clone(), guard(rig));
    let handler = async move |CurrentAttempt(attempt): CurrentAttempt| {
        let run = runs.begin();
        let transfer = Step::new("transfer", Fingerprint::of(["10 EUR"])).unwrap();
        let _ = guard.call(&attempt, &transfer, |_| std::future::ready(end.clone())).await;
        (StatusCode::UNPROCESSABLE_ENTITY, format!("run {run}"))
    };
    Router::new().fallback(handler).layer(rig.layer().recovery(recovery))
}

#[tokio::test]
async fn a_refusal_after_a_call_that_may_have_had_its_effect_is_in_doubt_and_keeps_its_answer() {
    for end in [CallEnd::Done(Bytes::new()), CallEnd::Unknown("reset".to_owned())] {
        let rig = Rig::new();
        let app = refusing_after(&rig, Recovery::Hold, end);
        let first = send(&app, charge("k")).await;
        assert_eq!((first.status, rig.state("k").await), (422, Some(State::InDoubt)));
        let second = send(&app, charge("k")).await;
        assert!(second.is_replay());
        assert_eq!((second.status, second.text(), rig.runs.count()), (422, "run 1", 1));
    }
}

#[tokio::test]
async fn a_refusal_after_a_call_that_certainly_had_none_frees_the_key() {
    for end in [CallEnd::NotDone("connection refused".to_owned()), CallEnd::Refused(Bytes::new())] {
        let rig = Rig::new();
        let app = refusing_after(&rig, Recovery::Hold, end);
        send(&app, charge("k")).await;
        assert_eq!(rig.state("k").await, Some(State::Released));
        assert_eq!(send(&app, charge("k")).await.text(), "run 2");
    }
}

#[tokio::test]
async fn under_rerun_the_key_is_free_and_the_step_is_replayed() {
    let rig = Rig::new();
    let app = refusing_after(&rig, Recovery::Rerun, CallEnd::Done(Bytes::new()));
    for run in 1..=2 {
        assert_eq!(send(&app, charge("k")).await.text(), format!("run {run}"));
        assert_eq!(rig.state("k").await, Some(State::Released));
    }
    assert_eq!(rig.store.calls(idempotency::faults::Op::EndCall), 1, "one call");
}
