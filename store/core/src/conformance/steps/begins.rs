//! Who may call.

use super::support::{Caller, LONG_LEASE, NEEDED, QUIET, Situation, TIMEOUT, WINDOW, done, number, stands, unknown};
use crate::conformance::Harness;
use crate::conformance::support::{LEASE, Subject, almost, arrive, lease, tick};
use crate::outbound::{Again, BeginCall, Begun, StepStanding, StepState, Steps};
use crate::{Fingerprint, Holder, Nonce, Settled};

/// And is on record when it is.
pub async fn a_first_call_is_begun<H: Harness>(harness: &H)
where
    H::Store: Steps,
{
    let caller = Caller::new(harness).await;
    assert_eq!(caller.view().await, None);
    let begun = caller.begin().await;
    assert!(matches!(begun, Begun::Go { call: 1, window_age } if window_age.is_zero()), "{begun:?}");
    let view = caller.view().await.expect("it is on record");
    assert_eq!((view.entry.state, view.entry.call, view.entry.token), (StepState::Calling, 1, caller.holder.token));
    let [call] = &view.calls[..] else { panic!("{:?}", view.calls) };
    assert_eq!((call.number, call.token, &call.end), (1, Some(caller.holder.token), &None));
}

/// Without the provider's key: only what failed for certain without a refusal, or was said not to have happened, is called again.
pub async fn an_asking_is_answered_in_every_situation<H: Harness>(harness: &H)
where
    H::Store: Steps,
{
    for situation in Situation::ALL {
        let caller = Caller::new(harness).await;
        situation.arrange(&caller).await;
        let begun = caller.begin().await;
        match situation {
            Situation::NotSent | Situation::No => assert_eq!(number(&begun), 2, "{situation:?}"),
            _ => assert_eq!(stands(begun), situation.standing(), "{situation:?}"),
        }
    }
}

/// The same under the provider's key: only an unknown outcome is answered otherwise.
pub async fn the_providers_key_lets_a_call_follow_an_unknown_one<H: Harness>(harness: &H)
where
    H::Store: Steps,
{
    for situation in Situation::ALL {
        let caller = Caller::new(harness).await;
        situation.arrange(&caller).await;
        let begun = caller.begin_again().await;
        match situation {
            Situation::NotSent | Situation::No | Situation::Silent | Situation::Unknown => {
                assert_eq!(number(&begun), 2, "{situation:?}");
            }
            _ => assert_eq!(stands(begun), situation.standing(), "{situation:?}"),
        }
    }
}

/// Counted from the first call that may have been sent, whatever was called since.
pub async fn the_providers_window_ends_at_its_end<H: Harness>(harness: &H)
where
    H::Store: Steps,
{
    let caller = Caller::new(harness).await;
    let first = caller.call().await;
    caller.end(first, unknown()).await;
    harness.advance(WINDOW / 2).await;
    let second = caller.call().await;
    caller.end(second, unknown()).await;
    almost(harness, WINDOW / 2).await;
    let third = caller.call().await;
    caller.end(third, unknown()).await;
    arrive(harness).await;
    assert!(matches!(stands(caller.begin_again().await), StepStanding::Unknown { .. }));
}

/// What was never sent begins no window.
pub async fn the_providers_window_begins_with_what_was_sent<H: Harness>(harness: &H)
where
    H::Store: Steps,
{
    let caller = Caller::new(harness).await;
    Situation::NotSent.arrange(&caller).await;
    harness.advance(WINDOW * 2).await;
    let begun = caller.begin().await;
    assert!(matches!(begun, Begun::Go { call: 2, window_age } if window_age.is_zero()), "{begun:?}");
}

/// The same label stands for one request.
pub async fn another_request_is_refused_in_every_situation<H: Harness>(harness: &H)
where
    H::Store: Steps,
{
    for situation in Situation::ALL {
        let caller = Caller::new(harness).await;
        situation.arrange(&caller).await;
        let before = caller.standing().await;
        let ask = BeginCall { request: Fingerprint::of(["99 EUR"]), ..caller.ask(Nonce::random()) };
        assert_eq!(caller.send(&ask).await, Begun::RequestChanged, "{situation:?}");
        assert_eq!(caller.standing().await, before);
    }
}

/// Its deadline counts from the first time.
pub async fn a_repeated_asking_is_one_call<H: Harness>(harness: &H)
where
    H::Store: Steps,
{
    let caller = Caller::new(harness).await;
    let ask = caller.ask(Nonce::random());
    assert_eq!(number(&caller.send(&ask).await), 1);
    harness.advance(TIMEOUT).await;
    assert_eq!(number(&caller.send(&ask).await), 1);
    assert_eq!(caller.view().await.expect("a step").calls.len(), 1);
    harness.advance(QUIET).await; // counted from the first asking
    assert_eq!(caller.send(&ask).await, Begun::Over);
    assert_eq!(caller.state().await, Some(StepState::Unknown));
}

/// Whatever became of the call that its nonce began.
pub async fn a_late_copy_of_an_asking_begins_nothing<H: Harness>(harness: &H)
where
    H::Store: Steps,
{
    for situation in Situation::ALL {
        let caller = Caller::new(harness).await;
        let nonce = situation.arrange(&caller).await;
        if situation != Situation::Calling {
            let copy = BeginCall { again: Again::Within(WINDOW), ..caller.ask(nonce) };
            assert_eq!(caller.send(&copy).await, Begun::Over, "{situation:?}");
            assert_eq!(caller.standing().await, Some(situation.standing()));
        }
    }
}

/// Whether it gave the claim up, lost it, or never had it.
pub async fn whoever_does_not_hold_the_claim_begins_nothing<H: Harness>(harness: &H)
where
    H::Store: Steps,
{
    for end in 0..6 {
        let subject = Subject::rerun(harness);
        let attempt = subject.grant().await;
        let caller = Caller::of(&attempt);
        match end {
            0 => assert_eq!(attempt.release().await, Settled::Applied),
            1 => assert_eq!(attempt.complete().await, Settled::Applied),
            2 => assert_eq!(attempt.mark(None).await, Settled::Applied),
            3 => harness.advance(LEASE).await,
            4 => {
                harness.advance(LEASE).await;
                subject.grant().await;
            }
            _ => {
                let stranger = Caller { holder: Holder { nonce: Nonce::random(), ..caller.holder }, ..caller };
                assert_eq!(stranger.begin().await, Begun::Superseded);
                continue;
            }
        }
        assert_eq!(caller.begin().await, Begun::Superseded, "{end}");
        assert_eq!(caller.view().await, None);
    }
    let nobody = Caller::of(&Subject::new(harness).grant().await);
    let nobody =
        Caller { holder: Holder { id: crate::conformance::support::named("nobody"), ..nobody.holder }, ..nobody };
    assert_eq!(nobody.begin().await, Begun::Superseded);
}

/// By more than it needs.
pub async fn a_call_begins_only_if_the_lease_outlasts_it<H: Harness>(harness: &H)
where
    H::Store: Steps,
{
    let (_, caller) = Caller::with_short_lease(harness).await;
    harness.advance(LEASE - NEEDED - tick(harness)).await;
    let other = caller.named("other");
    assert_eq!(number(&other.begin().await), 1);
    arrive(harness).await;
    let begun = caller.begin().await;
    assert!(matches!(begun, Begun::LeaseTooShort { lease_left } if lease_left <= NEEDED), "{begun:?}");
    assert_eq!(caller.view().await, None);
}

/// No call is made, so none has to be outlasted.
pub async fn a_finished_step_is_told_however_short_the_lease_is<H: Harness>(harness: &H)
where
    H::Store: Steps,
{
    let (_, caller) = Caller::with_short_lease(harness).await;
    Situation::Done.arrange(&caller).await;
    harness.advance(LEASE - tick(harness) * 2).await;
    assert_eq!(stands(caller.begin().await), Situation::Done.standing());
}

/// A successor waits for the deadline of its predecessor and the quiet period.
pub async fn a_call_keeps_others_away_until_its_quiet_period_is_over<H: Harness>(harness: &H)
where
    H::Store: Steps,
{
    let quiet = LEASE * 2;
    let (subject, caller) = Caller::with_short_lease(harness).await;
    let begun = caller.send(&BeginCall { quiet, ..caller.ask(Nonce::random()) }).await;
    assert_eq!(number(&begun), 1);
    harness.advance(LEASE).await;
    let subject = subject.but(|claim| claim.lease = lease(LONG_LEASE));
    let successor = Caller::of(&subject.grant().await);
    assert!(matches!(stands(successor.begin_again().await), StepStanding::Calling { .. }));
    almost(harness, TIMEOUT + quiet - LEASE).await;
    assert!(matches!(stands(successor.begin_again().await), StepStanding::Calling { .. }));
    arrive(harness).await;
    let ask = BeginCall { again: Again::Within(quiet * 2), ..successor.ask(Nonce::random()) };
    assert_eq!(number(&successor.send(&ask).await), 2);
}

/// Labels are compared byte by byte.
pub async fn steps_of_other_names_and_records_are_others<H: Harness>(harness: &H)
where
    H::Store: Steps,
{
    let caller = Caller::new(harness).await;
    Situation::Done.arrange(&caller).await;
    for other in [caller.named("Transfer"), caller.named("transfer2"), Caller::new(harness).await] {
        assert_eq!(other.view().await, None);
        let nonce = other.call().await;
        other.ends(nonce, done("another"), StepStanding::Succeeded(super::support::kept("another"))).await;
    }
    assert_eq!(caller.standing().await, Some(Situation::Done.standing()));
}
