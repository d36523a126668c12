//! Complete, renew, release, mark in doubt: what a holder may still do, and that nobody else may do anything.

use std::time::Duration;

use super::Harness;
use super::situation::Situation;
use super::support::{
    LEASE, RESPONSE, Subject, TOMBSTONE, almost, arrive, assert_lasts, ok, other_outcome, outcome, replayed,
};
use crate::{Claimed, FencingToken, Holder, Nonce, Outcome, Settled, State, Store};

/// The holder's completion in every state.
pub async fn a_completion_is_answered_in_every_state<H: Harness>(harness: &H) {
    for situation in Situation::ALL {
        let scene = situation.arrange(harness).await;
        let expected = if situation.is_unfinished() {
            Settled::Applied
        } else if situation.is_finished() {
            Settled::AlreadyApplied
        } else {
            Settled::Superseded
        };
        assert_eq!(scene.attempt().complete().await, expected, "{situation:?}");
        let state = if situation.is_unfinished() { Some(State::Completed) } else { situation.state() };
        assert_eq!(scene.subject.state().await, state, "{situation:?}");
        if situation.is_unfinished() {
            assert_eq!(replayed(scene.subject.claim().await), outcome(), "{situation:?}");
            assert_eq!(scene.attempt().complete().await, Settled::AlreadyApplied, "{situation:?}");
        }
    }
}

/// The holder's renewal in every state: only a lease that runs is renewed.
pub async fn a_renewal_is_answered_in_every_state<H: Harness>(harness: &H) {
    for situation in Situation::ALL {
        let scene = situation.arrange(harness).await;
        let runs = matches!(situation, Situation::InFlight | Situation::RerunInFlight);
        let expected = if runs { Settled::Applied } else { Settled::Superseded };
        assert_eq!(scene.attempt().renew().await, expected, "{situation:?}");
        assert_eq!(scene.subject.state().await, situation.state(), "{situation:?}");
    }
}

/// The holder's release in every state.
pub async fn a_release_is_answered_in_every_state<H: Harness>(harness: &H) {
    for situation in Situation::ALL {
        let scene = situation.arrange(harness).await;
        let expected = if situation.is_unfinished() {
            Settled::Applied
        } else if situation.nonce_is_dead() {
            Settled::AlreadyApplied
        } else {
            Settled::Superseded
        };
        assert_eq!(scene.attempt().release().await, expected, "{situation:?}");
        let state = if situation.is_unfinished() { Some(State::Released) } else { situation.state() };
        assert_eq!(scene.subject.state().await, state, "{situation:?}");
        if situation.is_unfinished() {
            assert_eq!(scene.attempt().release().await, Settled::AlreadyApplied, "{situation:?}");
            assert_eq!(scene.subject.claim_with(scene.holder.nonce).await, Claimed::Refused, "{situation:?}");
            assert_eq!(scene.subject.grant().await.grant.attempt, 2, "{situation:?}");
        }
    }
}

/// The holder's mark in every state, without a response.
pub async fn a_mark_is_answered_in_every_state<H: Harness>(harness: &H) {
    use Situation as S;
    for situation in Situation::ALL {
        let scene = situation.arrange(harness).await;
        let settled = scene.attempt().mark(None).await;
        let expected = match situation {
            S::InFlight | S::RerunInFlight | S::RerunLeaseEnded => settled == Settled::Applied,
            // In doubt by time alone: whether a store writes that down is its own affair.
            S::InDoubtByLease => settled != Settled::Superseded,
            S::InDoubtMarked | S::InDoubtAnswered | S::RerunInDoubt => settled == Settled::AlreadyApplied,
            _ => settled == Settled::Superseded,
        };
        assert!(expected, "{situation:?}: {settled:?}");
        let state = if situation.is_unfinished() { Some(State::InDoubt) } else { situation.state() };
        assert_eq!(scene.subject.state().await, state, "{situation:?}");
    }
}

/// The holder's mark in every state, with the response that was sent: it is added where there is none, and the first one
/// stays.
pub async fn a_response_is_added_to_a_doubt_once<H: Harness>(harness: &H) {
    let sent = Outcome::new(503, "try later".into());
    for situation in Situation::ALL {
        let scene = situation.arrange(harness).await;
        let expected = match situation {
            Situation::InDoubtAnswered => Settled::AlreadyApplied,
            _ if situation.is_unfinished() => Settled::Applied,
            _ => Settled::Superseded,
        };
        assert_eq!(scene.attempt().mark(Some(&sent)).await, expected, "{situation:?}");
        if situation.is_unfinished() {
            let first = if situation == Situation::InDoubtAnswered { other_outcome() } else { sent.clone() };
            assert_eq!(scene.subject.doubt().await.response, Some(first.clone()), "{situation:?}");
            assert_eq!(scene.attempt().mark(Some(&outcome())).await, Settled::AlreadyApplied, "{situation:?}");
            assert_eq!(scene.attempt().mark(None).await, Settled::AlreadyApplied, "{situation:?}");
            assert_eq!(scene.subject.doubt().await.response, Some(first), "{situation:?}");
        }
    }
}

/// Token and nonce must both be the record's, in every state.
pub async fn a_stranger_can_do_nothing_in_any_state<H: Harness>(harness: &H) {
    for situation in Situation::ALL {
        let scene = situation.arrange(harness).await;
        let before = scene.subject.entry_without_age().await;
        let mut stranger = scene.attempt();
        stranger.holder.nonce = Nonce::random();
        stranger.is_superseded().await;
        if situation.is_unfinished() {
            for token in [scene.holder.token.get() - 1, scene.holder.token.get() + 1] {
                let mut stranger = scene.attempt();
                stranger.holder.token = FencingToken::new(token).expect("a token");
                stranger.is_superseded().await;
            }
        }
        assert_eq!(scene.subject.entry_without_age().await, before, "{situation:?}");
    }
}

/// A completion of a key that was never claimed inserts nothing, and neither does any other message.
pub async fn nothing_but_a_claim_begins_a_record<H: Harness>(harness: &H) {
    let scene = Situation::Absent.arrange(harness).await;
    scene.attempt().is_superseded().await;
    assert_eq!(scene.subject.inspect().await, None);
    assert_eq!(scene.subject.grant().await.grant.attempt, 1);
}

/// A completion answers for its own record only.
pub async fn a_holder_settles_its_own_record_only<H: Harness>(harness: &H) {
    let mine = Subject::new(harness).grant().await;
    let other = Subject::new(harness);
    let theirs = other.grant().await;
    let confused = Holder { id: theirs.holder.id, ..mine.holder };
    assert_eq!(ok(harness.store().complete(&confused, &outcome()).await), Settled::Superseded);
    assert_eq!(ok(harness.store().release(&confused, LEASE).await), Settled::Superseded);
    assert_eq!(other.state().await, Some(State::InFlight));
    assert_eq!(theirs.complete().await, Settled::Applied);
}

/// A late completion is fine while nobody took over: in doubt by the end of its lease, or under Rerun.
pub async fn a_late_completion_applies_while_nobody_took_over<H: Harness>(harness: &H) {
    for subject in [Subject::new(harness), Subject::rerun(harness)] {
        let attempt = subject.grant().await;
        harness.advance(LEASE + TOMBSTONE / 2).await;
        assert_eq!(attempt.complete().await, Settled::Applied);
        let Claimed::Replay { outcome: first, age, time_left, .. } = subject.claim().await else {
            panic!("not a replay")
        };
        assert_eq!(first, outcome());
        assert_lasts(harness, age, Duration::ZERO);
        assert_lasts(harness, time_left, RESPONSE);
    }
}

/// A completion replaces the response that was kept with a doubt.
pub async fn a_late_completion_replaces_the_response_in_doubt<H: Harness>(harness: &H) {
    let scene = Situation::InDoubtAnswered.arrange(harness).await;
    assert_eq!(scene.attempt().complete().await, Settled::Applied);
    assert_eq!(replayed(scene.subject.claim().await), outcome());
}

/// A repeated completion says so, and the first outcome and its windows stay.
pub async fn a_repeated_completion_keeps_the_first_outcome<H: Harness>(harness: &H) {
    let subject = Subject::new(harness);
    let attempt = subject.grant().await;
    assert_eq!(attempt.complete().await, Settled::Applied);
    harness.advance(RESPONSE / 2).await;
    assert_eq!(attempt.complete_with(&other_outcome()).await, Settled::AlreadyApplied);
    assert_eq!(replayed(subject.claim().await), outcome());
    harness.advance(RESPONSE / 2).await;
    assert!(matches!(subject.claim().await, Claimed::Executed(_)));
    assert_eq!(attempt.complete_with(&other_outcome()).await, Settled::AlreadyApplied);
    assert_eq!(attempt.renew().await, Settled::Superseded);
    assert_eq!(attempt.mark(None).await, Settled::Superseded);
    assert_eq!(attempt.release().await, Settled::Superseded);
    assert_eq!(subject.state().await, Some(State::Tombstone));
}

/// Two owners: the one that was taken over from can do nothing, the new one everything.
pub async fn a_stale_holder_can_do_nothing_after_a_takeover<H: Harness>(harness: &H) {
    let subject = Subject::rerun(harness);
    let stale = subject.grant().await;
    harness.advance(LEASE).await;
    let fresh = subject.grant().await;
    stale.is_superseded().await;
    assert!(matches!(subject.claim_with(stale.holder.nonce).await, Claimed::InFlight { .. }));
    assert_eq!(fresh.renew().await, Settled::Applied);
    assert_eq!(fresh.complete().await, Settled::Applied);
    stale.is_superseded().await;
    assert_eq!(replayed(subject.claim().await), outcome());
    assert_eq!(subject.entry().await.attempt, 2);
}

/// Neither token nor nonce of an attempt help it after somebody else took over, mixed or not.
pub async fn a_stale_holder_gains_nothing_from_the_token_of_its_successor<H: Harness>(harness: &H) {
    let subject = Subject::rerun(harness);
    let mut stale = subject.grant().await;
    harness.advance(LEASE).await;
    let mut fresh = subject.grant().await;
    std::mem::swap(&mut stale.holder.token, &mut fresh.holder.token);
    stale.is_superseded().await;
    fresh.is_superseded().await;
    assert_eq!(subject.state().await, Some(State::InFlight));
}

/// Late copies of every message of a holder that released, after somebody else claimed and after they completed.
pub async fn a_released_holder_can_do_nothing_to_the_next_one<H: Harness>(harness: &H) {
    let subject = Subject::new(harness);
    let first = subject.grant().await;
    assert_eq!(first.release().await, Settled::Applied);
    let second = subject.grant().await;
    for finished in [false, true] {
        if finished {
            assert_eq!(second.complete().await, Settled::Applied);
        }
        let state = subject.entry_without_age().await;
        assert_eq!(first.complete_with(&other_outcome()).await, Settled::Superseded);
        assert_eq!(first.renew().await, Settled::Superseded);
        assert_eq!(first.mark(Some(&other_outcome())).await, Settled::Superseded);
        assert_eq!(first.release().await, Settled::AlreadyApplied);
        assert_eq!(subject.claim_with(first.holder.nonce).await, Claimed::Refused);
        assert_eq!(subject.entry_without_age().await, state);
    }
    assert_eq!(replayed(subject.claim().await), outcome());
}

/// A renewal holds the claim for a whole lease from its own time, again and again.
pub async fn renewals_hold_a_claim_beyond_its_first_lease<H: Harness>(harness: &H) {
    for subject in [Subject::new(harness), Subject::rerun(harness)] {
        let attempt = subject.grant().await;
        for _ in 0..5 {
            harness.advance(LEASE / 2).await;
            assert_eq!(attempt.renew().await, Settled::Applied);
            let Claimed::InFlight { lease_left } = subject.claim().await else { panic!("not in flight") };
            assert_lasts(harness, lease_left, LEASE);
        }
        almost(harness, LEASE).await;
        assert!(matches!(subject.claim().await, Claimed::InFlight { .. }));
        assert_eq!(attempt.complete().await, Settled::Applied);
    }
}

/// A renewal that comes when the lease has ended is a loss, even though nobody took over yet.
pub async fn a_lease_that_has_ended_is_not_renewed<H: Harness>(harness: &H) {
    for subject in [Subject::new(harness), Subject::rerun(harness)] {
        let attempt = subject.grant().await;
        almost(harness, LEASE).await;
        assert_eq!(attempt.renew().await, Settled::Applied);
        almost(harness, LEASE).await;
        arrive(harness).await;
        assert_eq!(attempt.renew().await, Settled::Superseded);
        assert!(!matches!(subject.claim().await, Claimed::InFlight { .. }));
    }
}

/// A renewal by a shorter lease leaves the longer one as it is.
pub async fn a_renewal_never_shortens_the_lease<H: Harness>(harness: &H) {
    let subject = Subject::new(harness);
    let attempt = subject.grant().await;
    assert_eq!(attempt.renew_for(10 * LEASE).await, Settled::Applied);
    assert_eq!(attempt.renew().await, Settled::Applied);
    let Claimed::InFlight { lease_left } = subject.claim().await else { panic!("not in flight") };
    assert_lasts(harness, lease_left, 10 * LEASE);
}

/// A doubt ends a tombstone window after the *last* lease, the renewed one.
pub async fn a_doubt_lasts_from_the_end_of_the_renewed_lease<H: Harness>(harness: &H) {
    let subject = Subject::new(harness);
    let attempt = subject.grant().await;
    harness.advance(LEASE / 2).await;
    assert_eq!(attempt.renew().await, Settled::Applied);
    almost(harness, LEASE + TOMBSTONE).await;
    subject.doubt().await;
    arrive(harness).await;
    assert!(subject.grant().await.grant.possible_escape);
}

/// Marking a record that is in doubt by time keeps since when it is, and it keeps its end.
pub async fn a_mark_does_not_postpone_the_end_of_a_doubt<H: Harness>(harness: &H) {
    let subject = Subject::new(harness);
    let attempt = subject.grant().await;
    harness.advance(LEASE).await;
    let since = subject.doubt().await.since;
    harness.advance(TOMBSTONE / 2).await;
    assert_eq!(attempt.mark(Some(&other_outcome())).await, Settled::Applied);
    let doubt = subject.doubt().await;
    assert_eq!(doubt.since, since);
    assert_eq!(doubt.response, Some(other_outcome()));
    almost(harness, TOMBSTONE / 2).await;
    subject.doubt().await;
    arrive(harness).await;
    assert_eq!(subject.state().await, None);
}

/// Under Rerun, what its holder marked in doubt is not run again.
pub async fn a_marked_doubt_is_not_taken_over<H: Harness>(harness: &H) {
    let scene = Situation::RerunInDoubt.arrange(harness).await;
    harness.advance(LEASE * 2).await;
    assert_eq!(scene.subject.doubt().await.token, scene.holder.token);
    assert_eq!(scene.attempt().complete().await, Settled::Applied);
}
