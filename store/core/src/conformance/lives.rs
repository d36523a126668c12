//! Life settings: what the first claim of a life decides for all that follow.

use super::Harness;
use super::situation::Situation;
use super::support::{LEASE, RESPONSE, Subject, TOMBSTONE, almost, arrive, assert_lasts, lease, life, windows};
use crate::{Claimed, Fingerprint, Life, Recovery, Settled, State};

/// A grant tells what the *record* says becomes of a lost attempt, whatever the claimer is configured with.
pub async fn a_grant_tells_the_recovery_of_the_first_claim<H: Harness>(harness: &H) {
    for (first, other) in [(Recovery::Hold, Recovery::Rerun), (Recovery::Rerun, Recovery::Hold)] {
        let subject = Subject::with(harness, life(first));
        let attempt = subject.grant().await;
        assert_eq!(attempt.grant.recovery, first);
        let differently = subject.with_life(life(other));
        let again = differently.claim_with(attempt.holder.nonce).await;
        assert_eq!(differently.attempt(attempt.holder.nonce, again).grant.recovery, first);
        assert_eq!(attempt.release().await, Settled::Applied);
        assert_eq!(differently.grant().await.grant.recovery, first);
    }
}

/// An attempt under Rerun is taken over however late, and never forgotten before: no window ends it.
pub async fn an_attempt_in_flight_ends_by_its_lease_and_by_no_window<H: Harness>(harness: &H) {
    let brief = Life::new(Recovery::Rerun, windows(LEASE / 2, LEASE / 2));
    let subject = Subject::with(harness, brief.clone());
    let first = subject.grant().await;
    almost(harness, LEASE).await;
    assert!(matches!(subject.claim().await, Claimed::InFlight { .. }));
    harness.advance(LEASE).await;
    assert_eq!(subject.grant().await.grant.attempt, 2);
    first.is_superseded().await;

    let held = Subject::with(harness, Life::new(Recovery::Hold, *brief.windows()));
    let first = held.grant().await;
    almost(harness, LEASE).await;
    assert!(matches!(held.claim().await, Claimed::InFlight { .. }));
    assert_eq!(first.complete().await, Settled::Applied);
}

/// A node configured Rerun does not run an attempt again that was claimed under Hold.
pub async fn a_duplicate_configured_rerun_does_not_take_over_a_held_attempt<H: Harness>(harness: &H) {
    let subject = Subject::new(harness);
    let first = subject.grant().await;
    harness.advance(LEASE).await;
    let rerun = subject.with_life(life(Recovery::Rerun));
    assert_eq!(rerun.doubt().await.token, first.holder.token);
    assert_eq!(first.complete().await, Settled::Applied);
}

/// A node configured Hold takes over an attempt that was claimed under Rerun.
pub async fn a_duplicate_configured_hold_takes_over_a_rerun_attempt<H: Harness>(harness: &H) {
    let subject = Subject::rerun(harness);
    subject.grant().await;
    harness.advance(LEASE).await;
    let second = subject.with_life(life(Recovery::Hold)).grant().await;
    assert_eq!(second.grant.attempt, 2);
    // And its own attempt is still under Rerun.
    harness.advance(LEASE).await;
    assert_eq!(subject.grant().await.grant.attempt, 3);
}

/// The windows of the first claim decide, whatever those are configured with who come later and take over.
pub async fn the_windows_of_the_first_claim_decide<H: Harness>(harness: &H) {
    let subject = Subject::rerun(harness);
    subject.grant().await;
    harness.advance(LEASE).await;
    let long = subject.with_life(Life::new(Recovery::Rerun, windows(100 * RESPONSE, 100 * TOMBSTONE)));
    assert_eq!(long.grant().await.complete().await, Settled::Applied);
    almost(harness, RESPONSE).await;
    assert!(matches!(long.claim().await, Claimed::Replay { .. }));
    arrive(harness).await;
    assert!(matches!(long.claim().await, Claimed::Executed(_)));
    almost(harness, TOMBSTONE - RESPONSE).await;
    assert!(matches!(long.claim().await, Claimed::Executed(_)));
    arrive(harness).await;
    assert_eq!(long.grant().await.grant.attempt, 1);
}

/// A release keeps the settings of the record's life; the next attempt is the same life's next.
pub async fn life_settings_are_kept_over_a_release<H: Harness>(harness: &H) {
    let subject = Subject::new(harness);
    assert_eq!(subject.grant().await.release().await, Settled::Applied);
    let other = subject.with_life(Life::new(Recovery::Rerun, windows(100 * RESPONSE, 100 * TOMBSTONE)));
    let second = other.grant().await;
    assert_eq!(second.grant.attempt, 2);
    harness.advance(LEASE).await;
    assert_eq!(other.doubt().await.attempt, 2);
    assert_eq!(second.complete().await, Settled::Applied);
    harness.advance(RESPONSE).await;
    assert!(matches!(other.claim().await, Claimed::Executed(_)));
    harness.advance(TOMBSTONE - RESPONSE).await;
    assert_eq!(other.state().await, None);
}

/// A record whose life is over begins a new one: attempt 1, the settings of this claim, a larger token.
pub async fn life_settings_are_fresh_after_expiry<H: Harness>(harness: &H) {
    for situation in [Situation::Expired, Situation::DoubtExpired] {
        let scene = situation.arrange(harness).await;
        let other = scene.subject.with_life(Life::new(Recovery::Rerun, windows(LEASE, 2 * LEASE)));
        let first = other.grant().await;
        assert_eq!(first.grant.attempt, 1);
        assert!(first.holder.token > scene.holder.token);
        scene.attempt().is_superseded().await;
        harness.advance(LEASE).await;
        let second = other.grant().await;
        assert_eq!(second.complete().await, Settled::Applied);
        harness.advance(LEASE).await;
        assert!(matches!(other.claim().await, Claimed::Executed(_)));
        harness.advance(LEASE).await;
        assert_eq!(other.state().await, None);
    }
}

/// Another request may use a key that was released or has expired, and then the key stands for that one.
pub async fn a_free_key_takes_the_fingerprint_of_its_next_claim<H: Harness>(harness: &H) {
    for situation in
        Situation::ALL.into_iter().filter(|situation| situation.state().is_none_or(|s| s == State::Released))
    {
        let scene = situation.arrange(harness).await;
        let other = scene.subject.with_fingerprint(Fingerprint::of(["another request"]));
        let attempt = other.grant().await;
        assert_eq!(scene.subject.claim().await, Claimed::Mismatch, "{situation:?}");
        assert_eq!(attempt.complete().await, Settled::Applied);
        assert_eq!(scene.subject.claim().await, Claimed::Mismatch, "{situation:?}");
        assert!(matches!(other.claim().await, Claimed::Replay { .. }), "{situation:?}");
    }
}

/// The longest lease and windows that a setting takes are held.
pub async fn the_longest_settings_are_held<H: Harness>(harness: &H) {
    use crate::time::LONGEST;
    let subject = Subject::with(harness, Life::new(Recovery::Hold, windows(LONGEST, LONGEST)));
    let attempt = subject.but(|claim| claim.lease = lease(LONGEST)).grant().await;
    harness.advance(LONGEST / 2).await;
    assert!(matches!(subject.claim().await, Claimed::InFlight { .. }));
    assert_eq!(attempt.renew_for(LONGEST).await, Settled::Applied);
    assert_eq!(attempt.complete().await, Settled::Applied);
    let Claimed::Replay { time_left, .. } = subject.claim().await else { panic!("not a replay") };
    assert_lasts(harness, time_left, LONGEST);
}
