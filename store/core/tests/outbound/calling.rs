//! One call, and what is on record of it.

use super::*;

#[tokio::test]
async fn a_step_is_called_once_and_replayed() {
    let rig = Rig::new(Recovery::Rerun, []);
    let held = rig.attempt("k").await;
    assert_eq!(done(rig.transfer(&rig.holding(), held.attempt()).await), (Bytes::from_static(b"201"), false));
    assert_eq!(done(rig.transfer(&rig.holding(), held.attempt()).await), (Bytes::from_static(b"201"), true));
    drop(held);
    let successor = rig.successor("k").await;
    assert_eq!(done(rig.transfer(&rig.holding(), successor.attempt()).await), (Bytes::from_static(b"201"), true));
    assert_eq!(rig.bank.transfers(), 1);
}

#[tokio::test]
async fn the_call_is_on_record_before_it_is_made() {
    let rig = Rig::new(Recovery::Rerun, []);
    let held = rig.attempt("k").await;
    let (guard, transfer) = (rig.holding(), step("transfer", "x"));
    let seen = guard.call(held.attempt(), &transfer, |call| {
        let rig = &rig;
        async move {
            let view = rig.view("k", "transfer").await;
            assert_eq!((view.entry.state, view.entry.call), (StepState::Calling, call.number()));
            assert!(call.time_left() <= TIMEOUT);
            CallEnd::Done(Bytes::new())
        }
    });
    done(seen.await);
}

#[tokio::test]
async fn a_documented_refusal_is_final_and_replayed() {
    let rig = Rig::new(Recovery::Rerun, [Behaviour::Decline]);
    let held = rig.attempt("k").await;
    for replayed in [false, true] {
        let outcome = rig.transfer(&rig.holding(), held.attempt()).await.unwrap();
        assert_eq!(outcome, StepOutcome { decision: Decision::Refused(Bytes::from_static(b"402")), replayed });
    }
    assert_eq!(rig.bank.requests().len(), 1);
}

#[tokio::test]
async fn without_its_record_no_call_is_made() {
    for (fault, op) in
        [(Fault::Fail, Op::BeginCall), (Fault::LoseReply, Op::BeginCall), (Fault::StallReply, Op::BeginCall)]
    {
        let rig = Rig::new(Recovery::Hold, []);
        let held = rig.attempt("k").await;
        rig.store.next(op, fault);
        assert!(matches!(rig.transfer(&rig.holding(), held.attempt()).await, Err(StepError::Store(_))), "{fault:?}");
        assert_eq!(rig.bank.requests().len(), 0);
        // And what may have been begun was taken back.
        assert!(held.may_release(), "{fault:?}");
        assert!(!done(rig.transfer(&rig.holding(), held.attempt()).await).1);
    }
}

#[tokio::test]
async fn an_asking_that_comes_late_begins_nothing() {
    let rig = Rig::new(Recovery::Rerun, []);
    let held = rig.attempt("k").await;
    rig.store.next(Op::BeginCall, Fault::Late(Duration::from_millis(250)));
    let asked = rig.transfer(&rig.holding(), held.attempt()).await;
    assert!(matches!(asked, Err(StepError::Store(_))), "{asked:?}");
    sleep(Duration::from_millis(300)).await;
    assert!(rig.store.list_steps(&ListSteps::default()).await.unwrap().entries.is_empty());
    assert!(!done(rig.transfer(&rig.holding(), held.attempt()).await).1);
}

/// The store took longer to begin it than it may take: it is not made any more, and that is certain.
#[tokio::test]
async fn a_call_whose_time_was_over_before_it_was_made_is_not_done() {
    let rig = Rig::new(Recovery::Hold, []);
    let held = rig.attempt("k").await;
    rig.store.next(Op::BeginCall, Fault::LateReply(Duration::from_millis(100)));
    let guard = rig.guard(Provider::new("bank", Duration::from_millis(50)).unwrap(), Policy::Hold);
    let asked = rig.transfer(&guard, held.attempt()).await;
    assert!(matches!(asked, Err(StepError::NotDone(_))), "{asked:?}");
    assert_eq!((rig.bank.requests().len(), rig.state("k").await), (0, StepState::Failed));
    assert!(held.may_release());
    assert!(!done(rig.transfer(&rig.holding(), held.attempt()).await).1);
}

#[tokio::test]
async fn dropped_while_asking_nothing_was_sent_and_that_is_recorded() {
    let rig = Rig::new(Recovery::Rerun, []);
    let held = rig.attempt("k").await;
    rig.store.next(Op::BeginCall, Fault::StallReply);
    let _ = tokio::time::timeout(Duration::from_millis(50), rig.transfer(&rig.holding(), held.attempt())).await;
    assert!(rig.engine.drain(Duration::from_secs(10)).await);
    assert_eq!(rig.state("k").await, StepState::Failed);
    assert_eq!(rig.bank.requests().len(), 0);
}

#[tokio::test]
async fn a_success_that_is_not_recorded_at_once_is_given_and_recorded_later() {
    for fault in [Fault::Fail, Fault::FailAs(StoreErrorKind::Refused)] {
        let rig = Rig::new(Recovery::Hold, []);
        let held = rig.attempt("k").await;
        rig.store.next(Op::EndCall, fault);
        rig.store.next(Op::EndCall, fault);
        done(rig.transfer(&rig.holding(), held.attempt()).await);
        assert!(rig.engine.drain(Duration::from_secs(10)).await);
        assert_eq!(rig.state("k").await, StepState::Succeeded, "{fault:?}");
    }
}

#[tokio::test]
async fn a_call_that_panics_is_unknown() {
    let rig = Rig::new(Recovery::Rerun, []);
    let held = rig.attempt("k").await;
    let guard = rig.holding();
    let attempt = held.attempt().clone();
    let panicking = tokio::spawn(async move {
        guard.call(&attempt, &step("transfer", "10 EUR"), |_| async { panic!("in the client") }).await
    });
    assert!(panicking.await.unwrap_err().is_panic());
    assert_eq!(rig.state("k").await, StepState::Unknown);
    assert_eq!(retry_after(rig.transfer(&rig.holding(), held.attempt()).await), None);
}

#[tokio::test]
async fn a_changed_request_is_refused_and_the_step_is_named() {
    let rig = Rig::new(Recovery::Rerun, []);
    let held = rig.attempt("k").await;
    done(rig.transfer(&rig.holding(), held.attempt()).await);
    let changed =
        rig.holding().call(held.attempt(), &step("transfer", "99 EUR"), |call| rig.bank.clone().call(call)).await;
    let error = changed.unwrap_err();
    assert!(matches!(&error, StepError::RequestChanged(label) if label.as_str() == "transfer"));
    assert!(error.to_string().contains("`transfer`"), "{error}");
    assert_eq!(rig.bank.transfers(), 1);
}

#[tokio::test]
async fn a_call_that_the_lease_does_not_outlast_is_not_made() {
    let rig = Rig::new(Recovery::Rerun, []);
    let held = rig.attempt("k").await;
    rig.clock.advance(Duration::from_secs(29));
    let asked = rig.transfer(&rig.holding(), held.attempt()).await;
    assert!(matches!(asked, Err(StepError::LeaseTooShort { .. })), "{asked:?}");
    rig.clock.advance(Duration::from_secs(2));
    assert!(matches!(rig.transfer(&rig.holding(), held.attempt()).await, Err(StepError::Superseded)));
    assert_eq!(rig.bank.requests().len(), 0);
}

#[tokio::test]
async fn a_result_too_long_to_keep_is_given_once() {
    let rig = Rig::new(Recovery::Rerun, []);
    let held = rig.attempt("k").await;
    let long = Bytes::from(vec![b'x'; idempotency::outbound::LONGEST_RESULT + 1]);
    for end in [CallEnd::Done(long.clone()), CallEnd::Refused(long.clone())] {
        let guard = rig.holding();
        let step = step(if matches!(end, CallEnd::Done(_)) { "done" } else { "refused" }, "x");
        let call = || guard.call(held.attempt(), &step, |_| std::future::ready(end.clone()));
        let (Decision::Done(first) | Decision::Refused(first)) = call().await.unwrap().decision;
        assert_eq!(first, long);
        let again = call().await.unwrap_err();
        let StepError::ResultNotKept { step: label, decided } = &again else { panic!("{again:?}") };
        assert_eq!(decided.to_string(), label.as_str());
        assert!(again.to_string().contains(&format!("was {decided}, and")), "{again}");
    }
}

#[tokio::test]
async fn a_full_store_refuses_the_call_and_not_its_end() {
    let store = MemoryStore::builder().max_bytes(idempotency_memory::RECORD_OVERHEAD + 64 * 1024 + 600).build();
    let engine = Engine::new(store.clone(), Settings::default());
    let Answer::Run(held) = engine.claim(&operation("k")).await.unwrap() else { panic!("not granted") };
    let guard = Guard::new(store, bank(), Policy::Hold).unwrap();
    let long = Bytes::from(vec![b'x'; 1000]);
    let first = guard.call(held.attempt(), &step("a", "x"), |_| std::future::ready(CallEnd::Done(long.clone()))).await;
    done(first);
    let second = guard.call(held.attempt(), &step("b", "x"), |_| std::future::ready(CallEnd::Done(long.clone()))).await;
    assert!(matches!(second, Err(StepError::Full)), "{second:?}");
    let replay = guard.call(held.attempt(), &step("a", "x"), |_| std::future::ready(CallEnd::Done(long.clone()))).await;
    assert!(done(replay).1);
}

#[tokio::test]
async fn steps_may_be_boxed() {
    let rig = Rig::new(Recovery::Rerun, []);
    let held = rig.attempt("k").await;
    let guard = Guard::new(BoxSteps::new(rig.store.clone()), bank(), Policy::Hold).unwrap();
    for replayed in [false, true] {
        let outcome = guard.call(held.attempt(), &step("transfer", "10 EUR"), |call| rig.bank.clone().call(call)).await;
        assert_eq!(done(outcome).1, replayed);
    }
}
