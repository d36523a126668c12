//! Steps whose outcome nobody knows.

use super::*;

#[tokio::test]
async fn case_89_only_a_call_that_was_not_sent_is_made_again() {
    let ambiguous = [
        Behaviour::Stall,
        Behaviour::HalfABody,
        Behaviour::CommitThen502,
        Behaviour::CommitThenReset,
        Behaviour::TooMany,
    ];
    for behaviour in ambiguous {
        let rig = Rig::new(Recovery::Rerun, [behaviour]);
        let held = rig.attempt("k").await;
        for _ in 0..3 {
            assert_eq!(retry_after(rig.transfer(&rig.holding(), held.attempt()).await), None, "{behaviour:?}");
        }
        assert_eq!(rig.bank.requests().len(), 1, "{behaviour:?}");
        assert_eq!(rig.state("k").await, StepState::Unknown);
    }
    let rig = Rig::new(Recovery::Rerun, [Behaviour::RefuseConnection, Behaviour::RefuseConnection]);
    let held = rig.attempt("k").await;
    for _ in 0..2 {
        assert!(matches!(rig.transfer(&rig.holding(), held.attempt()).await, Err(StepError::NotDone(_))));
    }
    assert!(!done(rig.transfer(&rig.holding(), held.attempt()).await).1);
    assert_eq!(rig.bank.transfers(), 1);
}

#[tokio::test]
async fn case_84_a_slow_success_is_one_call_and_unknown_until_somebody_looked() {
    let rig = Rig::new(Recovery::Rerun, [Behaviour::CommitThenStall]);
    let held = rig.attempt("k").await;
    assert_eq!(retry_after(rig.transfer(&rig.reconciling(), held.attempt()).await), Some(SETTLE));
    held.release().await;
    // The client comes back with the same key.
    let again = rig.attempt("k").await;
    assert!(retry_after(rig.transfer(&rig.reconciling(), again.attempt()).await) <= Some(SETTLE));
    rig.clock.advance(SETTLE);
    let found = done(rig.transfer(&rig.reconciling(), again.attempt()).await);
    assert_eq!(found, (Bytes::from_static(b"found"), true));
    assert_eq!((rig.bank.transfers(), rig.bank.requests().len()), (1, 1));
}

#[tokio::test]
async fn case_92_a_refused_repetition_is_no_failure() {
    // A deletion that was slow, and its repetition finds nothing to delete.
    let rig = Rig::new(Recovery::Rerun, [Behaviour::CommitThenStall, Behaviour::Gone, Behaviour::Gone]);
    let held = rig.attempt("k").await;
    let guard = rig.guard(keyed(), retry(2));
    let asked = rig.transfer(&guard, held.attempt()).await;
    assert!(retry_after(asked).is_some());
    assert_eq!(rig.state("k").await, StepState::Unknown);
    assert_eq!(rig.view("k", "transfer").await.calls.len(), 2);
}

#[tokio::test]
async fn a_provider_that_knows_nothing_is_called_again_after_its_settle_time() {
    let rig = Rig::new(Recovery::Rerun, [Behaviour::Stall]);
    let held = rig.attempt("k").await;
    rig.transfer(&rig.reconciling(), held.attempt()).await.unwrap_err();
    rig.clock.advance(SETTLE - Duration::from_micros(1));
    assert_eq!(retry_after(rig.transfer(&rig.reconciling(), held.attempt()).await), Some(Duration::from_micros(1)));
    rig.clock.advance(Duration::from_micros(1));
    assert!(!done(rig.transfer(&rig.reconciling(), held.attempt()).await).1);
    assert_eq!((rig.bank.transfers(), rig.bank.requests().len()), (1, 2));
    let (who, _) = rig.view("k", "transfer").await.entry.resolution.unwrap();
    assert_eq!(who, "reconcile hook of bank");
}

#[tokio::test]
async fn a_hook_that_hangs_panics_or_does_not_know_changes_nothing() {
    for kind in 0..3 {
        let rig = Rig::new(Recovery::Rerun, [Behaviour::Stall]);
        let policy = Policy::reconcile(move |_| async move {
            match kind {
                0 => std::future::pending().await,
                1 => panic!("in the hook"),
                _ => Found::StillUnknown,
            }
        });
        let guard = rig.guard(bank(), policy);
        let held = rig.attempt("k").await;
        rig.transfer(&guard, held.attempt()).await.unwrap_err();
        rig.clock.advance(SETTLE);
        assert_eq!(retry_after(rig.transfer(&guard, held.attempt()).await), Some(SETTLE), "{kind}");
        assert_eq!(rig.state("k").await, StepState::Unknown);
        assert_eq!(rig.bank.requests().len(), 1);
    }
}

#[tokio::test]
async fn a_successor_waits_for_deadline_and_quiet_period() {
    let rig = Rig::new(Recovery::Rerun, [Behaviour::CommitThenStall]);
    let first = rig.attempt("k").await;
    rig.clock.advance(Duration::from_secs(28));
    let stopped =
        tokio::time::timeout(Duration::from_millis(50), rig.transfer(&rig.reconciling(), first.attempt())).await;
    assert!(stopped.is_err(), "it is killed while it calls");
    rig.clock.advance(Duration::from_secs(2));
    let successor = rig.attempt("k").await;
    assert_eq!(retry_after(rig.transfer(&rig.reconciling(), successor.attempt()).await), Some(TIMEOUT));
    rig.clock.advance(TIMEOUT);
    assert_eq!(retry_after(rig.transfer(&rig.reconciling(), successor.attempt()).await), Some(SETTLE));
    rig.clock.advance(SETTLE);
    assert_eq!(done(rig.transfer(&rig.reconciling(), successor.attempt()).await).0, "found");
    assert_eq!(rig.bank.transfers(), 1);
}

/// The first worker stands still across its call; its success is reported before or after somebody said no.
#[tokio::test]
async fn a_late_success_is_evidence_before_and_after_a_no() {
    for resolved in [false, true] {
        let rig = Rig::new(Recovery::Rerun, []);
        let held = rig.attempt("k").await;
        let guard = rig.holding();
        let attempt = held.attempt().clone();
        let bank_called = rig.bank.clone();
        let first = tokio::spawn(async move {
            let slow = |call| {
                let bank = bank_called.clone();
                async move {
                    sleep(Duration::from_millis(150)).await;
                    bank.call(call).await
                }
            };
            guard.call(&attempt, &step("transfer", "10 EUR"), slow).await
        });
        while rig.store.calls(Op::BeginCall) == 0 {
            sleep(Duration::from_millis(1)).await;
        }
        sleep(Duration::from_millis(20)).await;
        let successor = rig.successor("k").await;
        assert_eq!(retry_after(rig.transfer(&rig.holding(), successor.attempt()).await), None);
        if resolved {
            assert_eq!(resolve(&rig, StepVerdict::DidNotHappen).await, StepResolved::Applied);
        }
        done(first.await.unwrap());
        assert_eq!(done(rig.transfer(&rig.holding(), successor.attempt()).await), (Bytes::from_static(b"201"), true));
        assert_eq!(rig.bank.transfers(), 1);
    }
}

async fn resolve(rig: &Rig, verdict: StepVerdict) -> StepResolved {
    let label = StepLabel::parse("transfer").unwrap();
    let (who, why) = ("ops".to_owned(), "asked the bank".to_owned());
    let resolve = ResolveStep { id: id("k"), label, call_seen: 1, verdict, who, why };
    rig.store.resolve_step(&resolve).await.unwrap()
}

/// The first asking breaks off, the second one is answered, and then the first one arrives.
#[tokio::test]
async fn an_asking_that_comes_after_its_second_try_was_answered_begins_nothing() {
    let rig = Rig::new(Recovery::Hold, [Behaviour::HalfABody]);
    let held = rig.attempt("k").await;
    rig.transfer(&rig.holding(), held.attempt()).await.unwrap_err();
    rig.store.next(Op::BeginCall, Fault::DisconnectLate(Duration::from_millis(100)));
    let asked = rig.transfer(&rig.holding(), held.attempt()).await;
    assert!(matches!(asked, Err(StepError::OutcomeUnknown { call: 1, .. })), "{asked:?}");
    assert!(!held.may_release(), "the first call may have happened");
    assert_eq!(resolve(&rig, StepVerdict::DidNotHappen).await, StepResolved::Applied);
    sleep(Duration::from_millis(200)).await;
    assert_eq!(rig.state("k").await, StepState::Retryable, "the late one began a call that nobody makes");
}

/// The first asking began the call, and its answer came to nobody until the quiet period was over: that call is made by nobody.
#[tokio::test]
async fn a_call_that_was_begun_and_is_over_before_anybody_knew_of_it_was_not_made() {
    let rig = Rig::new(Recovery::Hold, []);
    let held = rig.attempt("k").await;
    rig.store.next(Op::BeginCall, Fault::DisconnectLate(Duration::ZERO));
    rig.store.next(Op::BeginCall, Fault::Late(Duration::from_millis(100)));
    let (guard, label) = (rig.holding(), StepLabel::parse("transfer").unwrap());
    let (asked, ()) = tokio::join!(rig.transfer(&guard, held.attempt()), async {
        while rig.store.inner().inspect_step(&id("k"), &label).await.unwrap().is_none() {
            sleep(Duration::from_millis(1)).await;
        }
        rig.clock.advance(TIMEOUT + QUIET);
    });
    assert!(!done(asked).1);
    assert_eq!(rig.bank.transfers(), 1);
}

/// What was sent was sent, whatever keeps the guard from calling again.
#[tokio::test]
async fn what_keeps_a_second_call_away_does_not_unsay_the_first() {
    for lease_ends in [false, true] {
        let rig = Rig::new(Recovery::Rerun, [Behaviour::CommitThenReset]);
        let held = rig.attempt("k").await;
        let guard = rig.guard(keyed().lease_margin(Duration::ZERO), retry(3));
        let transfer = step("transfer", "10 EUR");
        let asked = guard.call(held.attempt(), &transfer, |call| {
            match lease_ends {
                true => rig.clock.advance(Duration::from_millis(29_900)),
                false => rig.store.always(Op::BeginCall, Fault::Fail),
            }
            rig.bank.clone().call(call)
        });
        let error = asked.await.unwrap_err();
        let StepError::OutcomeUnknown { call: 1, retry_after: Some(_), why, .. } = &error else { panic!("{error:?}") };
        assert!(why.starts_with("connection reset, and then: the "), "{why}");
        assert_eq!(rig.bank.transfers(), 1);
    }
}

#[tokio::test]
async fn an_inquiry_whose_answer_cannot_be_recorded_leaves_the_step_in_doubt() {
    let rig = Rig::new(Recovery::Rerun, [Behaviour::CommitThenReset]);
    let held = rig.attempt("k").await;
    rig.transfer(&rig.holding(), held.attempt()).await.unwrap_err();
    rig.clock.advance(SETTLE);
    rig.store.next(Op::ResolveStep, Fault::Fail);
    let soon = retry_after(rig.transfer(&rig.reconciling(), held.attempt()).await);
    assert_eq!(soon, Some(Duration::from_secs(1)));
    assert_eq!(done(rig.transfer(&rig.reconciling(), held.attempt()).await).0, "found");
    assert_eq!(rig.bank.transfers(), 1);
}

/// The lease is renewed in time before each call, however long ago the wait for the first one began.
#[tokio::test]
async fn a_lease_is_waited_for_before_every_call() {
    let rig = Rig::new(Recovery::Rerun, [Behaviour::HalfABody]);
    let held = rig.attempt("k").await;
    let patient = Policy::retry(NonZeroU32::new(2).unwrap(), 3 * TIMEOUT);
    let guard = rig.guard(keyed().lease_margin(Duration::ZERO), patient);
    let too_short = Duration::from_millis(29_900);
    let lease = Lease::new(Duration::from_secs(30)).unwrap();
    let renewed_after = async |askings: usize| {
        while rig.store.calls(Op::BeginCall) < askings {
            sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(rig.store.renew(held.attempt().holder(), lease).await.unwrap(), Settled::Applied);
    };
    rig.clock.advance(too_short);
    let transfer = step("transfer", "10 EUR");
    let called = guard.call(held.attempt(), &transfer, |call| {
        if call.number() == 1 {
            rig.clock.advance(too_short);
        }
        rig.bank.clone().call(call)
    });
    let (called, ()) = tokio::join!(called, async {
        renewed_after(1).await;
        while rig.bank.requests().is_empty() {
            sleep(Duration::from_millis(1)).await;
        }
        renewed_after(rig.store.calls(Op::BeginCall) + 1).await;
    });
    assert!(!done(called).1);
    assert_eq!(rig.bank.requests().len(), 2);
}

#[tokio::test]
async fn an_operator_finds_inspects_and_resolves_a_held_step() {
    let rig = Rig::new(Recovery::Rerun, [Behaviour::CommitThen502]);
    let held = rig.attempt("k").await;
    rig.transfer(&rig.holding(), held.attempt()).await.unwrap_err();
    let list = ListSteps { state: Some(StepState::Unknown), ..ListSteps::default() };
    let page = rig.store.list_steps(&list).await.unwrap();
    assert_eq!((page.entries.len(), page.entries[0].call), (1, 1));
    let view = rig.view("k", "transfer").await;
    assert_eq!(view.calls[0].end, Some(LoggedEnd::Unknown("answered with status 502".to_owned())));
    let happened = StepVerdict::Happened(StepResult::Kept(Bytes::from_static(b"by hand")));
    assert_eq!(resolve(&rig, happened).await, StepResolved::Applied);
    assert_eq!(done(rig.transfer(&rig.holding(), held.attempt()).await), (Bytes::from_static(b"by hand"), true));
}
