//! Hits that renew the window of a tombstone, where a setting says so.

use std::time::Duration;

use super::Harness;
use super::races::race;
use super::situation::Situation;
use super::support::{
    LEASE, RESPONSE, Subject, TOMBSTONE, almost, arrive, assert_lasts, lease, store_time, sweep, tick, windows,
};
use crate::{AgeLimit, Claimed, Fingerprint, KeyClass, Life, Recovery, Settled, State, Swept, Tombstone};

const CAP: Duration = TOMBSTONE.saturating_mul(4);

fn renewing(cap: Duration) -> Life {
    let windows = windows(RESPONSE, TOMBSTONE).renewed_up_to(cap).expect("a cap above the tombstone window");
    Life::new(Recovery::Hold, windows)
}

/// A key of this life that is completed, as duplicates see it.
async fn completed<H: Harness>(harness: &H, life: Life) -> Subject<'_, H> {
    let subject = Subject::with(harness, life);
    assert_eq!(subject.grant().await.complete().await, Settled::Applied);
    subject
}

async fn hit<H: Harness>(subject: &Subject<'_, H>) -> Tombstone {
    match subject.claim().await {
        Claimed::Executed(tombstone) => tombstone,
        claimed => panic!("not executed: {claimed:?}"),
    }
}

/// A hit keeps the tombstone for a window from that hit on, again and again. Its age goes on counting from completion.
pub async fn a_hit_on_a_tombstone_renews_its_window_if_that_is_set<H: Harness>(harness: &H) {
    for situation in [Situation::Completed, Situation::TombstoneAtOnce] {
        let scene = situation.arrange(harness).await;
        let subject = scene.subject.with_life(renewing(CAP));
        let mut hits = Vec::new();
        for number in 1..=3 {
            almost(harness, TOMBSTONE).await;
            let tombstone = hit(&subject).await;
            assert_lasts(harness, tombstone.age, (TOMBSTONE - tick(harness)) * number);
            hits.push((tombstone.status, tombstone.location, tombstone.completed_at));
        }
        assert!(hits.iter().all(|hit| *hit == hits[0]), "{hits:?}");
        assert_eq!(scene.attempt().complete().await, Settled::AlreadyApplied);
        almost(harness, TOMBSTONE).await;
        assert_eq!(subject.state().await, Some(State::Tombstone));
        arrive(harness).await;
        assert_eq!(subject.state().await, None);
        assert_eq!(subject.grant().await.grant.attempt, 1);
    }
}

/// However often it is hit, a tombstone ends at the cap from completion. The next life begins with a window of its own.
pub async fn no_hit_renews_a_window_beyond_its_cap<H: Harness>(harness: &H) {
    let subject = completed(harness, renewing(TOMBSTONE * 3 / 2)).await;
    for _ in 0..5 {
        harness.advance(TOMBSTONE / 4).await;
        hit(&subject).await;
    }
    almost(harness, TOMBSTONE / 4).await;
    hit(&subject).await;
    arrive(harness).await;
    assert_eq!(subject.state().await, None);
    assert_eq!(subject.grant().await.complete().await, Settled::Applied);
    almost(harness, TOMBSTONE).await;
    assert_eq!(subject.state().await, Some(State::Tombstone));
    arrive(harness).await;
    assert_eq!(subject.state().await, None);
}

/// A renewal that gains next to nothing need not be written, so a tombstone lasts for 99 hundredths of its window from
/// the last hit on, and for a whole one at most.
pub async fn hits_one_after_another_leave_out_a_hundredth_at_most<H: Harness>(harness: &H) {
    let subject = completed(harness, renewing(CAP)).await;
    harness.advance(RESPONSE).await;
    for _ in 0..25 {
        hit(&subject).await;
        harness.advance(TOMBSTONE / 1000).await;
    }
    let since_the_last = TOMBSTONE / 1000;
    almost(harness, TOMBSTONE / 100 * 99 - since_the_last).await;
    assert_eq!(subject.state().await, Some(State::Tombstone));
    harness.advance(TOMBSTONE / 100 + tick(harness)).await;
    assert_eq!(subject.state().await, None);
}

/// Whether a hit renews is for the claim that hits to say, whatever the record's first claim said, and it never shortens.
pub async fn the_setting_of_the_claim_that_hits_decides<H: Harness>(harness: &H) {
    let plain = completed(harness, Life::new(Recovery::Hold, windows(RESPONSE, TOMBSTONE))).await;
    let set = completed(harness, renewing(CAP)).await;
    almost(harness, TOMBSTONE).await;
    hit(&plain.with_life(renewing(CAP))).await;
    hit(&set.with_life(plain.claim.life.clone())).await;
    arrive(harness).await;
    assert_eq!(set.state().await, None, "the record's own setting does not decide");
    let brief = windows(LEASE, LEASE).renewed_up_to(LEASE * 2).expect("a cap above the tombstone window");
    hit(&plain.with_life(Life::new(Recovery::Hold, brief))).await;
    harness.advance(TOMBSTONE - 2 * tick(harness)).await;
    assert_eq!(plain.state().await, Some(State::Tombstone), "a shorter window does not shorten");
    arrive(harness).await;
    assert_eq!(plain.state().await, None);
}

/// A replay, a mismatch and a look renew nothing.
pub async fn only_a_hit_on_a_tombstone_renews<H: Harness>(harness: &H) {
    let subject = completed(harness, renewing(CAP)).await;
    almost(harness, RESPONSE).await;
    assert!(matches!(subject.claim().await, Claimed::Replay { .. }));
    harness.advance(TOMBSTONE - RESPONSE).await;
    assert_eq!(subject.state().await, Some(State::Tombstone));
    assert_eq!(subject.with_fingerprint(Fingerprint::of(["another request"])).claim().await, Claimed::Mismatch);
    arrive(harness).await;
    assert_eq!(subject.state().await, None);
}

/// A sweep purges a renewed tombstone when its renewed window is over, and not before. Its payload goes as ever, whether that was
/// before the hit or after.
pub async fn a_sweep_leaves_a_renewed_tombstone_alone<H: Harness>(harness: &H) {
    for swept_before in [false, true] {
        let subject = completed(harness, renewing(CAP)).await;
        harness.advance(RESPONSE).await;
        if swept_before {
            assert_eq!(sweep(harness).await, Swept { tombstoned: 1, ..Swept::default() });
        }
        almost(harness, TOMBSTONE - RESPONSE).await;
        hit(&subject).await;
        harness.advance(TOMBSTONE - tick(harness)).await;
        let tombstoned = usize::from(!swept_before);
        assert_eq!(sweep(harness).await, Swept { tombstoned, ..Swept::default() });
        assert_eq!(subject.state().await, Some(State::Tombstone));
        harness.advance(2 * tick(harness)).await;
        assert_eq!(sweep(harness).await, Swept { purged: 1, ..Swept::default() });
        assert_eq!(subject.grant().await.grant.attempt, 1);
        harness.advance(LEASE + 2 * CAP).await;
        while sweep(harness).await.more {}
    }
}

/// The record of a time-ordered key stays for its renewed window, and never shorter than until its key is too old.
pub async fn a_renewed_tombstone_stays_until_its_key_is_too_old<H: Harness>(harness: &H) {
    let drift = RESPONSE * 2;
    let max_age = TOMBSTONE - drift - LEASE;
    let limit = AgeLimit { max_age, drift, class: KeyClass::new("test") };
    let life = renewing(CAP).with_age(limit, lease(LEASE)).expect("the tombstone window covers the maximum age");
    // Past what a store may refuse after its start.
    harness.advance(TOMBSTONE).await;
    let key_time = store_time(harness).await.after(drift);
    let subject = Subject::with(harness, life).but(|claim| claim.key_time = Some(key_time));
    assert_eq!(subject.grant().await.complete().await, Settled::Applied);
    harness.advance(RESPONSE).await;
    hit(&subject).await;
    // The renewed window is over by then, and the key is not.
    almost(harness, drift + max_age + drift - RESPONSE).await;
    hit(&subject).await;
    almost(harness, TOMBSTONE).await;
    assert_eq!(subject.state().await, Some(State::Tombstone));
    arrive(harness).await;
    assert_eq!(subject.state().await, None);
    assert_eq!(subject.claim().await, Claimed::TooOld);
}

/// Many duplicates that renew one window at the same time are all told that it was executed.
pub async fn many_hits_at_once_are_all_answered<H: Harness>(harness: &H) {
    let subject = completed(harness, renewing(CAP)).await;
    almost(harness, TOMBSTONE).await;
    for (_, claimed) in race(&subject, 16).await {
        assert!(matches!(claimed, Claimed::Executed(_)), "{claimed:?}");
    }
    arrive(harness).await;
    assert_eq!(subject.state().await, Some(State::Tombstone));
}
