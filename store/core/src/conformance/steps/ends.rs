//! What becomes of a step when a call ended, late or not.

use bytes::Bytes;

use super::support::{
    Caller, QUIET, Situation, TIMEOUT, done, kept, not_sent, number, refused, stands, timeless, unknown,
};
use crate::conformance::Harness;
use crate::conformance::support::{LEASE, Subject};
use crate::outbound::{Alarm, Begun, Ended, LONGEST_RESULT, LoggedEnd, StepResult, StepStanding, Steps};
use crate::{Nonce, Settled};

/// Of any bytes, and up to the longest.
pub async fn results_are_kept_exactly<H: Harness>(harness: &H)
where
    H::Store: Steps,
{
    let results = [
        StepResult::of(Bytes::new()),
        StepResult::of((0..=255).collect()),
        StepResult::of(vec![b'x'; LONGEST_RESULT].into()),
        StepResult::of(vec![b'x'; LONGEST_RESULT + 1].into()),
    ];
    assert_eq!(results[3], StepResult::TooLong);
    for result in results {
        let caller = Caller::new(harness).await;
        let nonce = caller.call().await;
        caller.ends(nonce, LoggedEnd::Done(result.clone()), StepStanding::Succeeded(result.clone())).await;
        assert_eq!(stands(caller.begin().await), StepStanding::Succeeded(result.clone()));
        let refusing = caller.named("refused");
        let nonce = refusing.call().await;
        refusing.ends(nonce, LoggedEnd::Refused(result.clone()), StepStanding::Failed(Some(result.clone()))).await;
        let view = refusing.view().await.expect("a step");
        assert_eq!(view.standing, StepStanding::Failed(Some(result.clone())));
        assert_eq!(view.calls[0].end, Some(LoggedEnd::Refused(result)));
    }
}

/// A report whose answer was lost comes again.
pub async fn a_repeated_end_changes_nothing<H: Harness>(harness: &H)
where
    H::Store: Steps,
{
    for end in [done("paid"), refused("no"), not_sent(), unknown()] {
        let caller = Caller::new(harness).await;
        let nonce = caller.call().await;
        caller.end(nonce, end.clone()).await;
        let before = caller.view().await;
        let Ended::Logged { standing, alarm: None } = caller.end(nonce, end).await else { panic!("not logged") };
        assert_eq!(Some(timeless(standing)), caller.standing().await);
        if harness.exact_clock() {
            assert_eq!(caller.view().await, before);
        }
    }
}

/// An unknown outcome becomes a known one, and no known one another.
pub async fn better_evidence_replaces_weaker<H: Harness>(harness: &H)
where
    H::Store: Steps,
{
    let ends = [unknown(), refused("no"), done("paid")];
    for (strength, end) in ends.iter().enumerate() {
        for (later_strength, later) in ends.iter().enumerate() {
            let caller = Caller::new(harness).await;
            let nonce = caller.call().await;
            caller.end(nonce, end.clone()).await;
            let before = caller.standing().await;
            caller.end(nonce, later.clone()).await;
            let stronger = later_strength > strength;
            assert_eq!(caller.standing().await != before, stronger, "{end:?}, then {later:?}");
            let kept = if stronger { later } else { end };
            assert_eq!(caller.view().await.expect("a step").calls[0].end.as_ref(), Some(kept));
        }
    }
}

/// By somebody who does not hold the claim any more: it is evidence.
pub async fn a_late_success_of_a_superseded_worker_counts<H: Harness>(harness: &H)
where
    H::Store: Steps,
{
    let (subject, caller) = Caller::with_short_lease(harness).await;
    let nonce = caller.call().await;
    harness.advance(LEASE).await;
    let successor = Caller::of(&subject.grant().await);
    assert!(matches!(stands(successor.begin().await), StepStanding::Unknown { .. }));
    caller.ends(nonce, done("paid"), StepStanding::Succeeded(kept("paid"))).await;
    assert_eq!(stands(successor.begin().await), StepStanding::Succeeded(kept("paid")));
}

/// In every state of its record.
pub async fn an_end_is_logged_whatever_became_of_the_record<H: Harness>(harness: &H)
where
    H::Store: Steps,
{
    for end in 0..3 {
        let attempt = Subject::new(harness).grant().await;
        let caller = Caller::of(&attempt);
        let nonce = caller.call().await;
        let settled = match end {
            0 => attempt.release().await,
            1 => attempt.complete().await,
            _ => attempt.mark(None).await,
        };
        assert_eq!(settled, Settled::Applied);
        caller.ends(nonce, done("paid"), StepStanding::Succeeded(kept("paid"))).await;
    }
}

/// Somebody said that it did not happen, and it did.
pub async fn a_late_success_after_a_no_makes_it_succeeded<H: Harness>(harness: &H)
where
    H::Store: Steps,
{
    let caller = Caller::new(harness).await;
    let nonce = Situation::No.arrange(&caller).await;
    assert_eq!(caller.alarms(nonce, done("paid")).await, Some(Alarm::DoneAfterAll));
    assert_eq!(stands(caller.begin().await), StepStanding::Succeeded(kept("paid")));
}

/// While another call is being made it is logged, and outweighs whatever else becomes of that one.
pub async fn a_late_success_beside_a_call_waits_for_that_call<H: Harness>(harness: &H)
where
    H::Store: Steps,
{
    for end in [Some(refused("no")), Some(not_sent()), Some(unknown()), None] {
        let caller = Caller::new(harness).await;
        let first = Situation::No.arrange(&caller).await;
        let second = caller.call().await;
        assert_eq!(caller.alarms(first, done("first")).await, Some(Alarm::DoneWhileCalling));
        assert!(matches!(stands(caller.begin().await), StepStanding::Calling { .. }));
        assert_eq!(caller.view().await.expect("a step").calls[0].end, Some(done("first")));
        match end {
            Some(end) => caller.ends(second, end, StepStanding::Succeeded(kept("first"))).await,
            None => harness.advance(TIMEOUT + QUIET).await,
        }
        assert_eq!(stands(caller.begin().await), StepStanding::Succeeded(kept("first")));
    }
}

/// Nothing can be undone, but somebody must look.
pub async fn two_calls_that_were_done_are_told<H: Harness>(harness: &H)
where
    H::Store: Steps,
{
    let caller = Caller::new(harness).await;
    let first = Situation::No.arrange(&caller).await;
    let second = caller.call().await;
    caller.end(first, done("first")).await;
    assert_eq!(caller.alarms(second, done("second")).await, Some(Alarm::DoneTwice));
    assert_eq!(caller.standing().await, Some(StepStanding::Succeeded(kept("second"))));

    let caller = Caller::new(harness).await;
    let first = Situation::Unknown.arrange(&caller).await;
    let second = caller.call().await;
    caller.ends(second, done("second"), StepStanding::Succeeded(kept("second"))).await;
    assert_eq!(caller.alarms(first, done("first")).await, Some(Alarm::DoneTwice));
    assert_eq!(caller.standing().await, Some(StepStanding::Succeeded(kept("second"))));
}

/// A refusal may be one of the repetition: already there, already gone.
pub async fn case_92_a_refusal_proves_nothing_while_an_earlier_call_is_unresolved<H: Harness>(harness: &H)
where
    H::Store: Steps,
{
    for end in [refused("404"), not_sent()] {
        for situation in [Situation::Unknown, Situation::Silent] {
            let caller = Caller::new(harness).await;
            situation.arrange(&caller).await;
            let second = caller.call().await;
            let Ended::Logged { standing, alarm: None } = caller.end(second, end.clone()).await else {
                panic!("not logged")
            };
            assert!(matches!(standing, StepStanding::Unknown { .. }), "{standing:?}");
            assert!(matches!(stands(caller.begin().await), StepStanding::Unknown { .. }));
        }
    }
}

/// By evidence, or by somebody's word.
pub async fn a_refusal_counts_once_all_earlier_calls_are_resolved<H: Harness>(harness: &H)
where
    H::Store: Steps,
{
    // By evidence.
    let caller = Caller::new(harness).await;
    let first = Situation::Unknown.arrange(&caller).await;
    let second = caller.call().await;
    caller.end(second, refused("second")).await;
    caller.ends(first, refused("first"), StepStanding::Failed(Some(kept("first")))).await;

    // While the next one is being made.
    let caller = Caller::new(harness).await;
    let first = Situation::Unknown.arrange(&caller).await;
    let second = caller.call().await;
    let Ended::Logged { standing: StepStanding::Calling { .. }, alarm: None } = caller.end(first, not_sent()).await
    else {
        panic!("another call is being made")
    };
    caller.end(first, not_sent()).await;
    caller.ends(second, refused("second"), StepStanding::Failed(Some(kept("second")))).await;

    // By somebody's word.
    let caller = Caller::new(harness).await;
    let first = Situation::No.arrange(&caller).await;
    let second = caller.call().await;
    caller.end(first, refused("counted already")).await;
    caller.ends(second, refused("second"), StepStanding::Failed(Some(kept("second")))).await;
}

/// Also one whose quiet period is over.
pub async fn a_late_refusal_settles_the_only_call<H: Harness>(harness: &H)
where
    H::Store: Steps,
{
    for situation in [Situation::Silent, Situation::Unknown] {
        let caller = Caller::new(harness).await;
        let nonce = situation.arrange(&caller).await;
        caller.ends(nonce, refused("no"), StepStanding::Failed(Some(kept("no")))).await;
        let caller = Caller::new(harness).await;
        let nonce = situation.arrange(&caller).await;
        caller.ends(nonce, not_sent(), StepStanding::Failed(None)).await;
        assert_eq!(number(&caller.begin().await), 2);
    }
}

/// Whoever gave up its asking says so, and a late copy of it begins nothing.
pub async fn a_call_given_up_before_it_began_never_begins<H: Harness>(harness: &H)
where
    H::Store: Steps,
{
    let caller = Caller::new(harness).await;
    let ask = caller.ask(Nonce::random());
    for _ in 0..2 {
        assert_eq!(caller.end(ask.nonce, not_sent()).await, Ended::NeverBegan);
    }
    assert_eq!(caller.send(&ask).await, Begun::Over);
    assert_eq!(caller.view().await, None);
    assert_eq!(number(&caller.begin().await), 1);
    assert_eq!(caller.send(&ask).await, Begun::Over);
    assert_eq!(caller.view().await.expect("a step").calls.len(), 1);
}

/// Only that nothing was sent is worth a note.
pub async fn an_end_of_what_is_not_known_is_missing<H: Harness>(harness: &H)
where
    H::Store: Steps,
{
    let caller = Caller::new(harness).await;
    for end in [done("paid"), refused("no"), unknown()] {
        assert_eq!(caller.end(Nonce::random(), end).await, Ended::Missing);
    }
}
