//! The two windows, both from completion, judged when asked and not when swept.

use std::time::Duration;

use super::Harness;
use super::situation::Situation;
use super::support::{
    LEASE, RESPONSE, Subject, TOMBSTONE, almost, arrive, other_outcome, outcome, replayed, sweep, windows,
};
use crate::{Claimed, Life, Recovery, Settled, State};

/// The outcome is replayed until the response window is over, to the moment.
pub async fn the_response_window_ends_at_its_end<H: Harness>(harness: &H) {
    let scene = Situation::Completed.arrange(harness).await;
    almost(harness, RESPONSE).await;
    assert_eq!(replayed(scene.subject.claim().await), outcome());
    assert_eq!(scene.subject.state().await, Some(State::Completed));
    arrive(harness).await;
    let Claimed::Executed(tombstone) = scene.subject.claim().await else { panic!("not a tombstone") };
    assert_eq!((tombstone.status, tombstone.location.as_deref()), (201, Some("/charges/1")));
    assert_eq!(scene.subject.state().await, Some(State::Tombstone));
}

/// The fact is remembered until the tombstone window is over, to the moment; then the key is new.
pub async fn the_tombstone_window_ends_at_its_end<H: Harness>(harness: &H) {
    for situation in [Situation::Completed, Situation::TombstoneAtOnce] {
        let scene = situation.arrange(harness).await;
        almost(harness, TOMBSTONE).await;
        assert!(matches!(scene.subject.claim().await, Claimed::Executed(_)));
        arrive(harness).await;
        assert_eq!(scene.subject.state().await, None);
        assert_eq!(scene.subject.grant().await.grant.attempt, 1);
    }
}

/// Both windows count from completion; the tombstone's does not begin where the response's ends.
pub async fn the_windows_do_not_add_up<H: Harness>(harness: &H) {
    let even = Life::new(Recovery::Hold, windows(RESPONSE, RESPONSE));
    let subject = Subject::with(harness, even);
    assert_eq!(subject.grant().await.complete().await, Settled::Applied);
    almost(harness, RESPONSE).await;
    assert!(matches!(subject.claim().await, Claimed::Replay { .. }));
    arrive(harness).await;
    assert!(matches!(subject.claim().await, Claimed::Granted(_)));
}

/// The windows count from completion, not from the claim, however long the attempt ran.
pub async fn the_windows_count_from_completion<H: Harness>(harness: &H) {
    let subject = Subject::new(harness);
    let attempt = subject.grant().await;
    for _ in 0..50 {
        harness.advance(LEASE / 2).await;
        assert_eq!(attempt.renew().await, Settled::Applied);
    }
    assert_eq!(attempt.complete().await, Settled::Applied);
    almost(harness, RESPONSE).await;
    assert!(matches!(subject.claim().await, Claimed::Replay { .. }));
}

/// Asking does not keep a record alive, unless that is set: neither replays nor refusals renew a window.
pub async fn a_duplicate_does_not_renew_a_window<H: Harness>(harness: &H) {
    let scene = Situation::Completed.arrange(harness).await;
    for _ in 0..4 {
        harness.advance(RESPONSE / 4).await;
        scene.subject.claim().await;
    }
    assert!(matches!(scene.subject.claim().await, Claimed::Executed(_)));
    for _ in 0..4 {
        harness.advance((TOMBSTONE - RESPONSE) / 4).await;
        if scene.subject.state().await.is_some() {
            assert!(matches!(scene.subject.claim().await, Claimed::Executed(_)));
        }
    }
    assert_eq!(scene.subject.state().await, None);
}

/// An outcome without a payload is a tombstone at once.
pub async fn an_outcome_that_is_not_kept_is_a_tombstone_at_once<H: Harness>(harness: &H) {
    let subject = Subject::new(harness);
    assert_eq!(subject.grant().await.complete_with(&crate::Outcome::not_kept(204)).await, Settled::Applied);
    let Claimed::Executed(tombstone) = subject.claim().await else { panic!("not a tombstone") };
    assert_eq!((tombstone.status, tombstone.location), (204, None));
    assert_eq!(subject.state().await, Some(State::Tombstone));
}

/// A doubt ends a tombstone window after its lease, whether it was marked early, late or not at all.
pub async fn a_doubt_ends_a_tombstone_window_after_its_lease<H: Harness>(harness: &H) {
    for mark_after in [None, Some(Duration::ZERO), Some(LEASE + RESPONSE)] {
        let subject = Subject::new(harness);
        let attempt = subject.grant().await;
        if let Some(after) = mark_after {
            harness.advance(after).await;
            assert_eq!(attempt.mark(Some(&other_outcome())).await, Settled::Applied);
        }
        almost(harness, LEASE + TOMBSTONE - mark_after.unwrap_or_default()).await;
        assert_eq!(subject.state().await, Some(State::InDoubt));
        arrive(harness).await;
        assert_eq!(subject.state().await, None);
    }
}

/// A record answers the same whether or not a sweeper came by.
pub async fn a_sweep_changes_no_answer<H: Harness>(harness: &H) {
    for situation in Situation::ALL {
        let scene = situation.arrange(harness).await;
        let before = scene.subject.entry_without_age().await;
        sweep(harness).await;
        assert_eq!(scene.subject.entry_without_age().await, before, "{situation:?}");
        if situation.is_unfinished() {
            assert_eq!(scene.attempt().complete().await, Settled::Applied, "{situation:?}");
        } else if situation.is_finished() {
            assert_eq!(scene.attempt().complete().await, Settled::AlreadyApplied, "{situation:?}");
        } else if situation.nonce_is_dead() {
            assert_eq!(scene.subject.claim_with(scene.holder.nonce).await, Claimed::Refused, "{situation:?}");
        }
    }
}

/// The shortest windows and lease that a setting takes are kept.
pub async fn the_shortest_settings_are_kept<H: Harness>(harness: &H) {
    if !harness.exact_clock() {
        return;
    }
    let shortest = Duration::from_millis(1);
    let subject = Subject::with(harness, Life::new(Recovery::Rerun, windows(shortest, shortest)));
    let brief = subject.but(|claim| claim.lease = super::support::lease(shortest));
    brief.grant().await;
    almost(harness, shortest).await;
    assert!(matches!(brief.claim().await, Claimed::InFlight { .. }));
    arrive(harness).await;
    let second = brief.grant().await;
    assert_eq!(second.grant.attempt, 2);
    assert_eq!(second.complete().await, Settled::Applied);
    almost(harness, shortest).await;
    assert!(matches!(brief.claim().await, Claimed::Replay { .. }));
    arrive(harness).await;
    assert_eq!(brief.grant().await.grant.attempt, 1);
}
