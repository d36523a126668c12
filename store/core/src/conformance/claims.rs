//! Claim: the one operation that decides.

use super::Harness;
use super::situation::Situation;
use super::support::{
    LEASE, RESPONSE, Subject, TOMBSTONE, almost, arrive, assert_lasts, lease, life, ok, other_outcome, outcome, tick,
};
use crate::{Claim, Claimed, Fingerprint, Nonce, Recovery, Settled, State, Store, Timestamp};

/// A key nobody has claimed is granted: attempt 1, a whole lease, nothing forgotten.
pub async fn an_absent_key_is_granted<H: Harness>(harness: &H) {
    let subject = Subject::new(harness);
    assert_eq!(subject.state().await, None);
    let attempt = subject.grant().await;
    assert_eq!(attempt.grant.attempt, 1);
    assert_eq!(attempt.grant.lease_left, LEASE);
    assert!(!attempt.grant.possible_escape);
    assert_eq!(subject.state().await, Some(State::InFlight));
}

/// What a duplicate with a nonce of its own is told in every state.
pub async fn a_duplicate_is_answered_in_every_state<H: Harness>(harness: &H) {
    use Situation as S;
    for situation in Situation::ALL {
        let scene = situation.arrange(harness).await;
        let claimed = scene.subject.claim().await;
        let expected = match (situation, &claimed) {
            (S::Absent | S::Stub | S::Expired, Claimed::Granted(grant)) => {
                grant.attempt == 1 && grant.lease_left == LEASE && !grant.possible_escape
            }
            (S::DoubtExpired, Claimed::Granted(grant)) => grant.attempt == 1 && grant.possible_escape,
            (S::Released | S::Abandoned | S::RerunLeaseEnded, Claimed::Granted(grant)) => {
                grant.attempt == 2 && grant.token > scene.holder.token && !grant.possible_escape
            }
            (S::InFlight | S::RerunInFlight, Claimed::InFlight { lease_left }) => {
                lease_left.abs_diff(LEASE) <= tick(harness)
            }
            (S::Completed, Claimed::Replay { outcome: replayed, .. }) => *replayed == outcome(),
            (S::TombstoneByTime | S::TombstoneAtOnce, Claimed::Executed(tombstone)) => {
                tombstone.status == 201 && tombstone.location.as_deref() == Some("/charges/1")
            }
            (S::InDoubtByLease | S::InDoubtMarked | S::RerunInDoubt, Claimed::InDoubt(doubt)) => {
                !doubt.own && doubt.response.is_none() && doubt.token == scene.holder.token && doubt.attempt == 1
            }
            (S::InDoubtAnswered, Claimed::InDoubt(doubt)) => {
                !doubt.own && doubt.response == Some(other_outcome()) && doubt.token == scene.holder.token
            }
            _ => false,
        };
        assert!(expected, "{situation:?}: {claimed:?}");
    }
}

/// What the same claim is told when it comes again, in every state.
pub async fn a_repeated_claim_is_answered_in_every_state<H: Harness>(harness: &H) {
    use Situation as S;
    for situation in Situation::ALL {
        let scene = situation.arrange(harness).await;
        let claimed = scene.subject.claim_with(scene.holder.nonce).await;
        let expected = match (situation, &claimed) {
            (S::Absent, Claimed::Granted(grant)) => grant.attempt == 1,
            (S::Expired | S::DoubtExpired, Claimed::Granted(grant)) => {
                grant.attempt == 1 && grant.token > scene.holder.token
            }
            (S::InFlight | S::RerunInFlight, Claimed::Granted(grant)) => {
                grant.attempt == 1 && grant.token == scene.holder.token && !grant.lease_left.is_zero()
            }
            (S::RerunLeaseEnded, Claimed::Granted(grant)) => {
                grant.attempt == 1 && grant.token == scene.holder.token && grant.lease_left.is_zero()
            }
            (S::InDoubtByLease | S::InDoubtMarked | S::RerunInDoubt, Claimed::InDoubt(doubt)) => {
                doubt.own && doubt.response.is_none()
            }
            (S::InDoubtAnswered, Claimed::InDoubt(doubt)) => doubt.own && doubt.response == Some(other_outcome()),
            (S::Completed, Claimed::Replay { outcome: replayed, .. }) => *replayed == outcome(),
            (S::TombstoneByTime | S::TombstoneAtOnce, Claimed::Executed(_)) => true,
            _ => situation.nonce_is_dead() && claimed == Claimed::Refused,
        };
        assert!(expected, "{situation:?}: {claimed:?}");
    }
}

/// Another request with the key is a mismatch in every state that knows its request, and starts anew in all others.
pub async fn another_request_is_a_mismatch_in_every_state<H: Harness>(harness: &H) {
    differs_in_every_state(harness, Fingerprint::of(["another request"]), &Claimed::Mismatch).await;
}

/// A fingerprint of another version is refused, and is never taken for another request or for a new one.
pub async fn another_fingerprint_version_is_unreadable_in_every_state<H: Harness>(harness: &H) {
    let mut bytes = Fingerprint::of(["the request"]).to_bytes();
    bytes[0] += 1;
    differs_in_every_state(harness, Fingerprint::from_bytes(bytes), &Claimed::Unreadable).await;
}

async fn differs_in_every_state(harness: &impl Harness, fingerprint: Fingerprint, answer: &Claimed) {
    for situation in Situation::ALL {
        let scene = situation.arrange(harness).await;
        let other = scene.subject.with_fingerprint(fingerprint);
        for nonce in [scene.holder.nonce, Nonce::random()] {
            let claimed = other.claim_with(nonce).await;
            if situation.has_fingerprint() {
                assert_eq!(claimed, *answer, "{situation:?}");
            } else if situation.nonce_is_dead() && nonce == scene.holder.nonce {
                assert_eq!(claimed, Claimed::Refused, "{situation:?}");
            } else {
                assert_eq!(other.attempt(nonce, claimed).complete().await, Settled::Applied, "{situation:?}");
                break;
            }
        }
    }
}

/// A repeated claim is granted as before and changes nothing: not the lease, not the settings, not the attempt.
pub async fn a_repeated_claim_changes_nothing<H: Harness>(harness: &H) {
    let subject = Subject::new(harness);
    let attempt = subject.grant().await;
    harness.advance(LEASE / 2).await;
    let longer = subject.with_life(life(Recovery::Rerun)).but(|claim| claim.lease = lease(10 * LEASE));
    let again = longer.attempt(attempt.holder.nonce, longer.claim_with(attempt.holder.nonce).await);
    assert_eq!(again.holder, attempt.holder);
    assert_eq!(again.grant.attempt, 1);
    assert_lasts(harness, again.grant.lease_left, LEASE / 2);
    harness.advance(LEASE / 2).await;
    assert!(!longer.doubt().await.own);
    assert_eq!(attempt.complete().await, Settled::Applied);
}

/// A repeated claim whose lease is over is granted with no lease left, and gets no new one.
pub async fn a_repeated_claim_does_not_revive_its_lease<H: Harness>(harness: &H) {
    let scene = Situation::RerunLeaseEnded.arrange(harness).await;
    let again = scene.subject.attempt(scene.holder.nonce, scene.subject.claim_with(scene.holder.nonce).await);
    assert!(again.grant.lease_left.is_zero());
    assert_eq!(again.renew().await, Settled::Superseded);
    assert_eq!(scene.subject.grant().await.grant.attempt, 2);
    again.is_superseded().await;
}

/// A duplicate that is not granted leaves no trace: the lease ends when it would have, the holder stays the holder.
pub async fn a_duplicate_that_is_not_granted_writes_nothing<H: Harness>(harness: &H) {
    let subject = Subject::new(harness);
    let attempt = subject.grant().await;
    almost(harness, LEASE).await;
    for _ in 0..3 {
        let impatient = subject.but(|claim| claim.lease = lease(10 * LEASE));
        assert!(matches!(impatient.claim().await, Claimed::InFlight { .. }));
        let other = impatient.with_fingerprint(Fingerprint::of(["another request"]));
        assert_eq!(other.claim().await, Claimed::Mismatch);
    }
    assert_eq!(subject.entry().await.token, Some(attempt.holder.token));
    arrive(harness).await;
    assert_eq!(subject.state().await, Some(State::InDoubt));
    assert_eq!(attempt.complete().await, Settled::Applied);
}

/// Under Hold a lease that ended leaves the record in doubt since that moment: not earlier, and not since it was asked.
pub async fn a_held_record_is_in_doubt_since_the_end_of_its_lease<H: Harness>(harness: &H) {
    let subject = Subject::new(harness);
    let attempt = subject.grant().await;
    almost(harness, LEASE).await;
    assert!(matches!(subject.claim().await, Claimed::InFlight { .. }));
    assert_eq!(subject.state().await, Some(State::InFlight));
    arrive(harness).await;
    let since = subject.doubt().await.since;
    harness.advance(LEASE).await;
    let doubt = subject.doubt().await;
    assert_eq!(doubt.since, since);
    assert_lasts(harness, doubt.age, LEASE);
    assert_eq!((doubt.attempt, doubt.token, doubt.response), (1, attempt.holder.token, None));
    assert_lasts(harness, subject.entry().await.age, LEASE);
}

/// Under Rerun a duplicate takes over when the lease has ended, at that moment and not before.
pub async fn a_rerun_record_is_taken_over_at_the_end_of_its_lease<H: Harness>(harness: &H) {
    let subject = Subject::rerun(harness);
    let first = subject.grant().await;
    almost(harness, LEASE).await;
    assert!(matches!(subject.claim().await, Claimed::InFlight { .. }));
    arrive(harness).await;
    let second = subject.grant().await;
    assert_eq!(second.grant.attempt, 2);
    assert_eq!(second.grant.lease_left, LEASE);
    assert!(second.holder.token > first.holder.token);
    assert!(matches!(subject.claim().await, Claimed::InFlight { .. }));
}

/// A replay says when it completed, how long ago that was and how long it is still kept.
pub async fn a_replay_tells_its_age_and_the_time_left<H: Harness>(harness: &H) {
    let subject = Subject::new(harness);
    let attempt = subject.grant().await;
    harness.advance(LEASE).await;
    assert_eq!(attempt.complete().await, Settled::Applied);
    harness.advance(RESPONSE / 4).await;
    let Claimed::Replay { completed_at, age, time_left, .. } = subject.claim().await else { panic!("not a replay") };
    assert_lasts(harness, age, RESPONSE / 4);
    assert_lasts(harness, time_left, RESPONSE - RESPONSE / 4);
    let claimed_at = Timestamp::from_micros(attempt.holder.token.get().cast_signed());
    assert_lasts(harness, completed_at.since(claimed_at), LEASE);
    harness.advance(RESPONSE).await;
    let Claimed::Executed(tombstone) = subject.claim().await else { panic!("not a tombstone") };
    assert_eq!(tombstone.completed_at, completed_at);
    assert_lasts(harness, tombstone.age, RESPONSE + RESPONSE / 4);
}

/// A grant that was made because a record in doubt is forgotten says that the effect may happen twice, and only that one.
pub async fn forgetting_a_doubt_is_a_possible_escape<H: Harness>(harness: &H) {
    for mark in [false, true] {
        let subject = Subject::new(harness);
        let first = subject.grant().await;
        if mark {
            assert_eq!(first.mark(Some(&other_outcome())).await, Settled::Applied);
        }
        almost(harness, LEASE + TOMBSTONE).await;
        assert_eq!(subject.doubt().await.token, first.holder.token);
        arrive(harness).await;
        assert_eq!(subject.state().await, None);
        let second = subject.grant().await;
        assert!(second.grant.possible_escape);
        assert_eq!(second.grant.attempt, 1);
        assert_eq!(second.release().await, Settled::Applied);
        assert!(!subject.grant().await.grant.possible_escape);
        first.is_superseded().await;
    }
}

/// The room a claim asks for is no part of what a duplicate must repeat.
pub async fn a_duplicate_may_ask_for_other_room<H: Harness>(harness: &H) {
    let subject = Subject::new(harness);
    let attempt = subject.grant().await;
    let claim = Claim { nonce: attempt.holder.nonce, room: 0, ..subject.claim.clone() };
    assert!(matches!(ok(harness.store().claim(&claim).await), Claimed::Granted(_)));
    assert_eq!(attempt.complete().await, Settled::Applied);
    assert!(matches!(subject.but(|claim| claim.room = 9).claim().await, Claimed::Replay { .. }));
}
