//! Handlers that call external APIs under the guard: what becomes of their keys.

#![allow(clippy::unwrap_used)] // Also in what the tests share.

mod common;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use bytes::Bytes;
use common::{Answer, HOUR, Rig, TestStore, charge, send};
use http::{Method, StatusCode};
use idempotency::faults::{Fault, Op};
use idempotency::outbound::{CallEnd, Found, Guard, LONGEST_RESULT, Policy, Provider, Step, StepLabel};
use idempotency::transaction::begin;
use idempotency::{Fingerprint, Lease, Recovery, State};
use metrics_util::debugging::{DebugValue, DebuggingRecorder};
use tower_idempotency::outbound::OutboundError;
use tower_idempotency::{CurrentAttempt, NotCalled, Refusal};

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
    assert_eq!(rig.store.calls(Op::EndCall), 1, "one call");
}

/// An app that does a step `charge`, and then a step `transfer` of `amount`, whose calls end as `ends` says for the run. The refusal
/// of a step is the handler's answer.
fn paying(
    rig: &Rig,
    recovery: Recovery,
    policy: Policy,
    ends: impl Fn(usize) -> Vec<(&'static str, CallEnd)> + Clone + Send + Sync + 'static,
) -> Router {
    let provider = Provider::new("bank", Duration::from_secs(1)).unwrap();
    let guard = Guard::new(rig.store.clone(), provider, policy).unwrap();
    let runs = rig.runs.clone();
    let handler = async move |CurrentAttempt(attempt): CurrentAttempt| {
        let run = runs.begin();
        for (step, end) in ends(run) {
            let step = Step::new(step, Fingerprint::of([step])).unwrap();
            let _ = guard.call(&attempt, &step, |_| std::future::ready(end.clone())).await?;
        }
        Ok::<_, Refusal>((StatusCode::CREATED, format!("run {run}")))
    };
    Router::new().fallback(handler).layer(rig.layer().recovery(recovery))
}

fn done() -> CallEnd {
    CallEnd::Done(Bytes::new())
}

fn reset() -> CallEnd {
    CallEnd::Unknown("reset".to_owned())
}

fn not_sent() -> CallEnd {
    CallEnd::NotDone("connection refused".to_owned())
}

#[track_caller]
fn assert_refused(answer: &Answer, status: u16, problem: &str, retry_after: Option<&str>) {
    assert_eq!((answer.status, answer.problem()), (status, Some(problem)), "{answer:?}");
    match (answer.header("Retry-After"), retry_after) {
        (Some(given), Some("soon")) => assert!((1..=3).contains(&given.parse::<u8>().unwrap()), "{given}"),
        (given, wanted) => assert_eq!(given, wanted),
    }
    assert_eq!(answer.json()["retryable"], retry_after.is_some());
}

#[tokio::test]
async fn an_unknown_outcome_under_hold_is_in_doubt_and_asks_for_no_retry() {
    let rig = Rig::new();
    let app = paying(&rig, Recovery::Hold, Policy::Hold, |_| vec![("charge", done()), ("transfer", reset())]);
    let first = send(&app, charge("k")).await;
    assert_refused(&first, 409, "outcome-unknown", None);
    assert_eq!(first.json()["step"], "transfer");
    let step = StepLabel::parse("transfer").unwrap();
    assert_eq!(first.extensions.get(), Some(&Refusal::StepUnknown { step, call: 1, retry_after: None }));
    assert_eq!(rig.state("k").await, Some(State::InDoubt));

    let second = send(&app, charge("k")).await;
    assert_refused(&second, 409, "outcome-unknown", None);
    assert_eq!((&second.json()["attempt"], second.is_replay(), rig.runs.count()), (&1.into(), false, 1));
}

#[tokio::test]
async fn an_unknown_outcome_under_rerun_frees_the_key_and_a_retry_goes_on_where_it_stopped() {
    let rig = Rig::new();
    let reconciled = Policy::reconcile(async |_| Found::Happened(Bytes::from_static(b"receipt")));
    let app = paying(&rig, Recovery::Rerun, reconciled, |run| {
        // What the second run would be told if it called again.
        let (charged, transferred) = if run == 1 { (done(), reset()) } else { (not_sent(), not_sent()) };
        vec![("charge", charged), ("transfer", transferred)]
    });
    let first = send(&app, charge("k")).await;
    assert_refused(&first, 409, "outcome-unknown", Some("60"));
    assert_eq!(rig.state("k").await, Some(State::Released));

    // Before the settle time is over, the provider is not asked.
    rig.clock.advance(Duration::from_secs(40));
    assert_refused(&send(&app, charge("k")).await, 409, "outcome-unknown", Some("20"));
    rig.clock.advance(Duration::from_secs(40));
    let third = send(&app, charge("k")).await;
    assert_eq!((third.status, third.text()), (201, "run 3"));
    assert!(send(&app, charge("k")).await.is_replay());
    assert_eq!(rig.store.calls(Op::EndCall), 2, "each step was called once");
}

#[tokio::test]
async fn a_step_of_which_nothing_was_sent_asks_for_a_retry_that_runs() {
    for recovery in [Recovery::Hold, Recovery::Rerun] {
        let rig = Rig::new();
        let app =
            paying(&rig, recovery, Policy::Hold, |run| vec![("transfer", if run == 1 { not_sent() } else { done() })]);
        assert_refused(&send(&app, charge("k")).await, 503, "upstream-unavailable", Some("soon"));
        assert_eq!(rig.state("k").await, Some(State::Released));
        assert_eq!(send(&app, charge("k")).await.text(), "run 2");
    }
}

#[tokio::test]
async fn after_a_step_that_happened_a_later_one_that_was_not_sent_asks_for_a_retry_only_under_rerun() {
    let ends = |run| vec![("charge", done()), ("transfer", if run == 1 { not_sent() } else { done() })];
    let rig = Rig::new();
    let app = paying(&rig, Recovery::Hold, Policy::Hold, ends);
    for attempt in [1, 1] {
        let answer = send(&app, charge("k")).await;
        assert_refused(&answer, 409, "outcome-unknown", None);
        assert_eq!((&answer.json()["attempt"], rig.state("k").await), (&attempt.into(), Some(State::InDoubt)));
    }
    assert_eq!(rig.runs.count(), 1);

    let rig = Rig::new();
    let app = paying(&rig, Recovery::Rerun, Policy::Hold, ends);
    assert_refused(&send(&app, charge("k")).await, 503, "upstream-unavailable", Some("soon"));
    assert_eq!(send(&app, charge("k")).await.text(), "run 2");
    assert_eq!(rig.store.calls(Op::EndCall), 3, "the charge was not called again");
}

#[tokio::test]
async fn a_store_that_cannot_say_or_has_no_room_asks_for_a_retry() {
    let rig = Rig::new();
    let app = paying(&rig, Recovery::Hold, Policy::Hold, |_| vec![("transfer", done())]);
    rig.store.always(Op::BeginCall, Fault::Fail);
    assert_refused(&send(&app, charge("k")).await, 503, "store-unavailable", Some("soon"));
    rig.store.heal();
    assert_eq!(send(&app, charge("k")).await.text(), "run 2");

    let full = Refusal::from(idempotency::outbound::StepError::Full);
    assert!(matches!(full, Refusal::StepNotCalled { why: NotCalled::StoreFull, .. }));
    assert_eq!((full.status().as_u16(), full.problem_type(), full.retryable()), (503, "store-full", true));
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_too_short_for_the_call_asks_for_a_retry() {
    let rig = Rig::new();
    let guard = Guard::new(rig.store.clone(), Provider::new("bank", HOUR).unwrap(), Policy::Hold).unwrap();
    let handler = async move |CurrentAttempt(attempt): CurrentAttempt| {
        let step = Step::new("transfer", Fingerprint::of(["10 EUR"])).unwrap();
        let _ = guard.call(&attempt, &step, |_| std::future::ready(done())).await?;
        Ok::<_, Refusal>(StatusCode::CREATED)
    };
    let layer = rig.layer().lease(Lease::new(Duration::from_secs(10)).unwrap());
    let answer = send(&Router::new().fallback(handler).layer(layer), charge("k")).await;
    assert_refused(&answer, 503, "lease-too-short", Some("soon"));
    assert_eq!(rig.state("k").await, Some(State::Released));
}

#[tokio::test]
async fn a_superseded_attempt_answers_with_what_is_on_record() {
    let rig = Rig::new();
    let guard = Arc::new(guard(&rig));
    let (runs, clock) = (rig.runs.clone(), rig.clock.clone());
    // The first run stands still between its first and its second step for longer than its lease.
    let (paused, go_on) = (Arc::new(tokio::sync::Notify::new()), Arc::new(tokio::sync::Notify::new()));
    let (pauses, waits) = (Arc::clone(&paused), Arc::clone(&go_on));
    let handler = async move |CurrentAttempt(attempt): CurrentAttempt| {
        let run = runs.begin();
        if run == 1 {
            clock.advance(HOUR);
            pauses.notify_one();
            waits.notified().await;
        }
        let step = Step::new("transfer", Fingerprint::of(["10 EUR"])).unwrap();
        let _ = guard.call(&attempt, &step, |_| std::future::ready(done())).await?;
        Ok::<_, Refusal>((StatusCode::CREATED, format!("run {run}")))
    };
    let app = Router::new().fallback(handler).layer(rig.layer().recovery(Recovery::Rerun));
    let (first, ()) = tokio::join!(send(&app, charge("k")), async {
        paused.notified().await;
        assert_eq!(send(&app, charge("k")).await.text(), "run 2");
        go_on.notify_one();
    });
    assert!(first.is_replay());
    assert_eq!(first.text(), "run 2");
    assert_eq!(rig.store.calls(Op::EndCall), 1, "one call");
}

#[tokio::test]
async fn a_step_that_was_repeated_with_another_request_is_named_and_a_mended_handler_goes_on() {
    let rig = Rig::new();
    let (runs, guard) = (rig.runs.clone(), guard(&rig));
    let handler = async move |CurrentAttempt(attempt): CurrentAttempt| {
        let amount = if runs.begin() == 2 { "99 EUR" } else { "10 EUR" };
        let step = Step::new("transfer", Fingerprint::of([amount])).unwrap();
        let _ = guard.call(&attempt, &step, |_| std::future::ready(done())).await?;
        Ok::<_, Refusal>(if runs.count() == 1 { StatusCode::BAD_GATEWAY } else { StatusCode::CREATED })
    };
    let app = Router::new().fallback(handler).layer(rig.layer().recovery(Recovery::Rerun));
    assert_eq!(send(&app, charge("k")).await.status, 502);
    let changed = send(&app, charge("k")).await;
    assert_refused(&changed, 500, "step-request-changed", None);
    assert_eq!((&changed.json()["step"], rig.state("k").await), (&"transfer".into(), Some(State::Released)));
    assert!(changed.json()["detail"].as_str().unwrap().contains("`transfer`"));
    assert_eq!(send(&app, charge("k")).await.status, 201);
}

#[tokio::test]
async fn a_result_that_was_too_long_to_keep_is_no_reason_to_call_again() {
    let rig = Rig::new();
    let app = paying(&rig, Recovery::Rerun, Policy::Hold, |run| {
        let long = CallEnd::Done(Bytes::from(vec![b'x'; LONGEST_RESULT + 1]));
        vec![("report", long), ("transfer", if run == 1 { not_sent() } else { done() })]
    });
    send(&app, charge("k")).await;
    let again = send(&app, charge("k")).await;
    assert_refused(&again, 500, "step-result-not-kept", None);
    assert_eq!(again.json()["step"], "report");
    assert_eq!(rig.store.calls(Op::EndCall), 2);
}

#[tokio::test]
async fn a_refusal_that_was_too_long_to_keep_is_called_one_and_leaves_the_key_free() {
    let rig = Rig::new();
    let app = paying(&rig, Recovery::Hold, Policy::Hold, |_| {
        vec![("report", CallEnd::Refused(Bytes::from(vec![b'x'; LONGEST_RESULT + 1]))), ("transfer", not_sent())]
    });
    assert_refused(&send(&app, charge("k")).await, 503, "upstream-unavailable", Some("soon"));
    let again = send(&app, charge("k")).await;
    assert_refused(&again, 500, "step-result-not-kept", None);
    assert!(again.json()["detail"].as_str().unwrap().contains("`report` was refused"), "{again:?}");
    assert_eq!(rig.state("k").await, Some(State::Released));
}

#[tokio::test]
async fn a_request_without_a_step_that_failed_is_in_doubt_unless_it_was_safe() {
    for (method, recovery, status, problem, retry_after, state) in [
        (Method::GET, Recovery::Hold, 503, "upstream-unavailable", Some("soon"), State::Released),
        (Method::GET, Recovery::Rerun, 503, "upstream-unavailable", Some("soon"), State::Released),
        (Method::POST, Recovery::Hold, 409, "outcome-unknown", None, State::InDoubt),
        (Method::POST, Recovery::Rerun, 409, "outcome-unknown", Some("soon"), State::Released),
    ] {
        let rig = Rig::new();
        let failed =
            move |_| Refusal::from(OutboundError::Unguarded { method: method.clone(), source: "reset".into() });
        let answer = send(&rig.app(rig.layer().recovery(recovery), failed), charge("k")).await;
        assert_refused(&answer, status, problem, retry_after);
        assert_eq!(rig.state("k").await, Some(state));
    }
}

#[tokio::test]
async fn a_transaction_that_is_rolled_back_after_a_step_asks_for_a_retry_only_under_rerun() {
    for (recovery, state) in [(Recovery::Hold, State::InDoubt), (Recovery::Rerun, State::Released)] {
        let rig = Rig::new();
        let (guard, store) = (guard(&rig), rig.store.clone());
        let handler = async move |CurrentAttempt(attempt): CurrentAttempt| {
            let step = Step::new("transfer", Fingerprint::of(["10 EUR"])).unwrap();
            let _ = guard.call(&attempt, &step, |_| std::future::ready(done())).await?;
            // It is forgotten and never committed.
            begin(&store, &attempt, async |_| Ok(())).await.unwrap();
            Ok::<_, Refusal>(StatusCode::CREATED)
        };
        let app = Router::new().fallback(handler).layer(rig.layer().recovery(recovery));
        let answer = send(&app, charge("k")).await;
        match recovery {
            Recovery::Hold => assert_refused(&answer, 409, "outcome-unknown", None),
            Recovery::Rerun => assert_eq!((answer.status, answer.json()["retryable"].clone()), (503, true.into())),
        }
        assert_eq!(rig.state("k").await, Some(state));
    }
}

#[tokio::test]
async fn an_unknown_outcome_that_a_handler_says_by_itself_is_in_doubt_under_hold() {
    for (recovery, state) in [(Recovery::Hold, State::InDoubt), (Recovery::Rerun, State::Released)] {
        let rig = Rig::new();
        let said = || Refusal::OutcomeUnknown { since: None, attempt: None, retry_after: None };
        send(&rig.app(rig.layer().recovery(recovery), move |_| said()), charge("k")).await;
        assert_eq!(rig.state("k").await, Some(state));
    }
}

#[tokio::test]
async fn refusals_of_steps_are_counted_by_their_reason() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let _installed = metrics::set_default_local_recorder(&recorder);
    let rig = Rig::new();
    let app = paying(&rig, Recovery::Hold, Policy::Hold, |_| vec![("transfer", reset())]);
    for _ in 0..3 {
        send(&app, charge("k")).await;
    }
    let counted = snapshotter.snapshot().into_vec().into_iter().find_map(|(key, _, _, value)| {
        let key = key.key();
        let reason = key.labels().find(|label| label.key() == "reason")?;
        (key.name() == "idempotency_refused_total" && reason.value() == "outcome-unknown").then_some(value)
    });
    assert_eq!(counted, Some(DebugValue::Counter(3)));
}
