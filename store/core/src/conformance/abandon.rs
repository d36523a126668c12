//! Abandon, and the nonces that it kills.

use super::Harness;
use super::situation::Situation;
use super::support::{DEAD_FOR, LEASE, RESPONSE, Subject, TOMBSTONE, arrive, ok, outcome, replayed, sweep, tick};
use crate::{Claimed, Nonce, Settled, State, Store};

/// The claimer's abandon in every state: it frees what is unfinished and carries its nonce, and nothing else.
pub async fn an_abandon_frees_its_own_claim_in_every_state<H: Harness>(harness: &H) {
    for situation in Situation::ALL {
        let scene = situation.arrange(harness).await;
        let nonce = scene.holder.nonce;
        for _ in 0..2 {
            scene.subject.abandon(nonce).await;
            assert_eq!(scene.subject.claim_with(nonce).await, Claimed::Refused, "{situation:?}");
        }
        if situation.is_finished() {
            assert_eq!(scene.subject.state().await, situation.state(), "{situation:?}");
            assert_eq!(scene.attempt().complete().await, Settled::AlreadyApplied, "{situation:?}");
        } else {
            assert_eq!(scene.attempt().complete().await, Settled::Superseded, "{situation:?}");
            assert_eq!(scene.attempt().renew().await, Settled::Superseded, "{situation:?}");
            let next = scene.subject.grant().await;
            assert_eq!(next.grant.attempt, situation.attempts() + 1, "{situation:?}");
            assert!(next.holder.token > scene.holder.token, "{situation:?}");
        }
    }
}

/// An abandon by another nonce frees nothing in any state, but its nonce is dead all the same.
pub async fn an_abandon_leaves_the_claim_of_another_nonce_alone<H: Harness>(harness: &H) {
    for situation in Situation::ALL {
        let scene = situation.arrange(harness).await;
        let before = scene.subject.entry_without_age().await;
        let late = Nonce::random();
        scene.subject.abandon(late).await;
        assert_eq!(scene.subject.claim_with(late).await, Claimed::Refused, "{situation:?}");
        if situation.state().is_some() {
            assert_eq!(scene.subject.entry_without_age().await, before, "{situation:?}");
        }
        if situation.is_unfinished() {
            assert_eq!(scene.attempt().complete().await, Settled::Applied, "{situation:?}");
        }
    }
}

/// An abandon that comes before its claim leaves a stub, and the claim is refused when it arrives.
pub async fn an_abandon_that_overtakes_its_claim_refuses_it<H: Harness>(harness: &H) {
    let subject = Subject::new(harness);
    let nonce = Nonce::random();
    subject.abandon(nonce).await;
    let entry = subject.entry().await;
    assert_eq!((entry.state, entry.token, entry.attempt), (State::Released, None, 0));
    assert_eq!(subject.claim_with(nonce).await, Claimed::Refused);
    let attempt = subject.grant().await;
    assert_eq!(attempt.grant.attempt, 1);
    assert_eq!(attempt.complete().await, Settled::Applied);
}

/// The dead nonce is refused in every later state of the record, also to another request.
pub async fn a_dead_nonce_is_refused_through_all_later_states<H: Harness>(harness: &H) {
    let subject = Subject::rerun(harness);
    let dead = Nonce::random();
    let forever = LEASE + RESPONSE + 2 * TOMBSTONE;
    ok(harness.store().abandon(&subject.claim.id, dead, forever).await);
    assert_eq!(subject.claim_with(dead).await, Claimed::Refused, "stub");
    let first = subject.grant().await;
    assert_eq!(subject.claim_with(dead).await, Claimed::Refused, "in flight");
    harness.advance(LEASE).await;
    assert_eq!(subject.claim_with(dead).await, Claimed::Refused, "lease ended");
    let second = subject.grant().await;
    assert_eq!(subject.claim_with(dead).await, Claimed::Refused, "taken over");
    assert_eq!(second.mark(None).await, Settled::Applied);
    assert_eq!(subject.claim_with(dead).await, Claimed::Refused, "in doubt");
    assert_eq!(subject.did_not_happen(second.holder.token).await, crate::Resolved::Applied);
    assert_eq!(subject.claim_with(dead).await, Claimed::Refused, "resolved");
    let third = subject.grant().await;
    assert_eq!(third.release().await, Settled::Applied);
    assert_eq!(subject.claim_with(dead).await, Claimed::Refused, "released");
    let fourth = subject.grant().await;
    assert_eq!(fourth.complete().await, Settled::Applied);
    assert_eq!(subject.claim_with(dead).await, Claimed::Refused, "completed");
    harness.advance(RESPONSE).await;
    assert_eq!(subject.claim_with(dead).await, Claimed::Refused, "tombstone");
    sweep(harness).await;
    assert_eq!(subject.claim_with(dead).await, Claimed::Refused, "tombstone, swept");
    harness.advance(TOMBSTONE).await;
    assert_eq!(subject.claim_with(dead).await, Claimed::Refused, "expired");
    sweep(harness).await;
    assert_eq!(subject.claim_with(dead).await, Claimed::Refused, "expired, swept");
    assert_eq!(subject.grant().await.grant.attempt, 1);
    assert_eq!(subject.claim_with(dead).await, Claimed::Refused, "in its next life");
    first.is_superseded().await;
}

/// A nonce stays dead for as long as was said, and no longer.
pub async fn a_dead_nonce_lives_again_when_its_time_is_over<H: Harness>(harness: &H) {
    for claimed in [false, true] {
        let subject = Subject::new(harness);
        let nonce = if claimed { subject.grant().await.holder.nonce } else { Nonce::random() };
        subject.abandon(nonce).await;
        harness.advance(DEAD_FOR - tick(harness)).await;
        assert_eq!(subject.claim_with(nonce).await, Claimed::Refused);
        arrive(harness).await;
        arrive(harness).await;
        let again = subject.attempt(nonce, subject.claim_with(nonce).await);
        assert_eq!(again.complete().await, Settled::Applied);
    }
}

/// The list keeps every nonce that is still dead, in whatever order they were given up.
pub async fn many_nonces_are_dead_at_once<H: Harness>(harness: &H) {
    let subject = Subject::new(harness);
    let mut dead = Vec::new();
    for _ in 0..20 {
        let nonce = Nonce::random();
        subject.abandon(nonce).await;
        dead.push(nonce);
    }
    let attempt = subject.grant().await;
    for nonce in dead {
        assert_eq!(subject.claim_with(nonce).await, Claimed::Refused);
    }
    assert_eq!(attempt.complete().await, Settled::Applied);
}

/// More than anybody would keep: the record stays within its bounds, and the newest are still dead.
pub async fn a_storm_of_abandons_leaves_the_record_usable<H: Harness>(harness: &H) {
    let subject = Subject::new(harness);
    let dead: Vec<Nonce> = (0..1100).map(|_| Nonce::random()).collect();
    for nonce in &dead {
        subject.abandon(*nonce).await;
    }
    for nonce in dead.iter().rev().take(1000).step_by(37) {
        assert_eq!(subject.claim_with(*nonce).await, Claimed::Refused);
    }
    let forgotten = subject.attempt(dead[0], subject.claim_with(dead[0]).await);
    assert_eq!(forgotten.complete().await, Settled::Applied);
}

/// Giving up again keeps the nonce dead for longer.
pub async fn a_repeated_abandon_keeps_its_nonce_dead_for_longer<H: Harness>(harness: &H) {
    let subject = Subject::new(harness);
    let nonce = subject.grant().await.holder.nonce;
    subject.abandon(nonce).await;
    harness.advance(DEAD_FOR / 2).await;
    subject.abandon(nonce).await;
    harness.advance(DEAD_FOR - tick(harness)).await;
    assert_eq!(subject.claim_with(nonce).await, Claimed::Refused);
}

/// A claimer that finds its own claim in doubt and never ran gives it up and claims anew: nothing stays held.
pub async fn a_claimer_whose_reply_was_lost_frees_its_own_doubt<H: Harness>(harness: &H) {
    let subject = Subject::new(harness);
    let lost = subject.grant().await;
    harness.advance(LEASE).await;
    let Claimed::InDoubt(doubt) = subject.claim_with(lost.holder.nonce).await else { panic!("not in doubt") };
    assert!(doubt.own);
    subject.abandon(lost.holder.nonce).await;
    let attempt = subject.grant().await;
    assert_eq!(attempt.grant.attempt, 2);
    assert_eq!(attempt.complete().await, Settled::Applied);
}

/// A late abandon of an earlier claim leaves the attempt of a later one alone.
pub async fn a_late_abandon_does_not_free_the_next_attempt<H: Harness>(harness: &H) {
    let subject = Subject::rerun(harness);
    let first = subject.grant().await;
    harness.advance(LEASE).await;
    let second = subject.grant().await;
    subject.abandon(first.holder.nonce).await;
    assert!(matches!(subject.claim().await, Claimed::InFlight { .. }));
    assert_eq!(second.renew().await, Settled::Applied);
    assert_eq!(second.complete().await, Settled::Applied);
    subject.abandon(second.holder.nonce).await;
    assert_eq!(replayed(subject.claim().await), outcome());
}

/// An abandon of a key whose doubt is forgotten does not hide that it was in doubt.
pub async fn an_abandon_does_not_hide_a_possible_escape<H: Harness>(harness: &H) {
    let scene = Situation::DoubtExpired.arrange(harness).await;
    scene.subject.abandon(Nonce::random()).await;
    let attempt = scene.subject.grant().await;
    assert!(attempt.grant.possible_escape);
    assert_eq!(attempt.grant.attempt, 1);
}
