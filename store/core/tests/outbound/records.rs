//! What steps mean for the record they belong to.

use super::*;

#[tokio::test]
async fn a_handler_that_is_run_again_replays_its_finished_steps_and_goes_on() {
    let rig = Rig::new(Recovery::Rerun, [Behaviour::Answer, Behaviour::RefuseConnection]);
    let guard = rig.holding();
    let runs = AtomicUsize::new(0);
    let payout = async || {
        run(&rig.engine, &operation("k"), async |attempt| {
            runs.fetch_add(1, Ordering::SeqCst);
            for label in ["charge", "transfer", "receipt"] {
                let outcome = guard.call(&attempt, &step(label, "x"), |call| rig.bank.clone().call(call)).await;
                let StepOutcome { .. } = outcome.map_err(WorkError::Unknown)?;
            }
            Ok::<_, WorkError<StepError>>("paid".to_owned())
        })
        .await
    };
    assert!(matches!(payout().await, Err(RunError::Work(WorkError::Unknown(StepError::NotDone(_))))));
    assert_eq!(rig.record("k").await, State::Released);
    assert_eq!(payout().await.unwrap().value, "paid");
    assert!(payout().await.unwrap().replayed);
    assert_eq!((runs.load(Ordering::SeqCst), rig.bank.transfers()), (2, 3));
}

#[tokio::test]
async fn case_93_after_a_crash_the_step_is_blocked_or_replayed_by_choice() {
    // Held by its record: nothing runs.
    let rig = Rig::new(Recovery::Hold, []);
    let held = rig.attempt("k").await;
    done(rig.transfer(&rig.holding(), held.attempt()).await);
    drop(held);
    rig.clock.advance(LEASES);
    assert!(matches!(rig.engine.claim(&operation("k")).await.unwrap(), Answer::DoNot(Claimed::InDoubt(_))));
    // Run again: the step is replayed if it was recorded, and blocked if it was not.
    for (behaviour, blocked) in [(Behaviour::Answer, false), (Behaviour::CommitThenStall, true)] {
        let rig = Rig::new(Recovery::Rerun, [behaviour]);
        let held = rig.attempt("k").await;
        let _ = rig.transfer(&rig.holding(), held.attempt()).await;
        drop(held);
        let successor = rig.successor("k").await;
        assert_eq!(rig.transfer(&rig.holding(), successor.attempt()).await.is_err(), blocked);
        assert_eq!(rig.bank.transfers(), 1);
    }
}

#[tokio::test]
async fn a_held_key_is_not_released_while_a_step_may_have_had_its_effect() {
    for (behaviour, state) in [
        (Behaviour::Answer, State::InDoubt),
        (Behaviour::CommitThenReset, State::InDoubt),
        (Behaviour::Decline, State::Released),
        (Behaviour::RefuseConnection, State::Released),
    ] {
        let rig = Rig::new(Recovery::Hold, [behaviour]);
        let held = rig.attempt("k").await;
        let _ = rig.transfer(&rig.holding(), held.attempt()).await;
        assert_eq!(held.may_release(), state == State::Released, "{behaviour:?}");
        held.release().await;
        assert_eq!(rig.record("k").await, state, "{behaviour:?}");
    }
    let rig = Rig::new(Recovery::Rerun, [Behaviour::CommitThenReset]);
    let held = rig.attempt("k").await;
    let _ = rig.transfer(&rig.holding(), held.attempt()).await;
    held.release().await;
    assert_eq!(rig.record("k").await, State::Released);
}

/// Two calls of one label at once: that one of them could not even be asked for says nothing of the other one.
#[tokio::test]
async fn a_step_stays_open_while_any_of_its_askings_left_it_so() {
    let rig = Rig::new(Recovery::Hold, [Behaviour::CommitThenReset]);
    let held = rig.attempt("k").await;
    rig.store.next(Op::BeginCall, Fault::Stall);
    let guard = rig.holding();
    let (first, second) = tokio::join!(rig.transfer(&guard, held.attempt()), async {
        while rig.store.calls(Op::BeginCall) == 0 {
            sleep(Duration::from_millis(1)).await;
        }
        rig.transfer(&guard, held.attempt()).await
    });
    assert!(matches!(first, Err(StepError::Store(_))), "{first:?}");
    assert_eq!(retry_after(second), None);
    assert!(!held.may_release());
    held.release().await;
    assert_eq!(rig.record("k").await, State::InDoubt);
}

#[tokio::test]
async fn an_unknown_outcome_carries_no_retry_after_under_a_held_record() {
    let rig = Rig::new(Recovery::Hold, [Behaviour::Stall]);
    let held = rig.attempt("k").await;
    assert_eq!(retry_after(rig.transfer(&rig.reconciling(), held.attempt()).await), None);
}

#[tokio::test]
async fn resolving_the_record_does_not_resolve_its_steps() {
    let rig = Rig::new(Recovery::Hold, [Behaviour::CommitThenReset]);
    let held = rig.attempt("k").await;
    rig.transfer(&rig.holding(), held.attempt()).await.unwrap_err();
    let token_seen = held.attempt().token();
    held.mark_in_doubt(None).await;
    let verdict = ResolveVerdict::DidNotHappen { fence_token: None };
    let resolve = Resolve { id: id("k"), token_seen, verdict, who: "ops".into(), why: "too early".into() };
    assert_eq!(rig.store.resolve(&resolve).await.unwrap(), Resolved::Applied);
    let again = rig.attempt("k").await;
    rig.transfer(&rig.holding(), again.attempt()).await.unwrap_err();
    assert_eq!(rig.bank.transfers(), 1);
    assert!(rig.clock.now() > Timestamp::MIN);
}
