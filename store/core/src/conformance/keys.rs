//! Time-ordered keys: too old to be remembered is refused, not run.

use std::time::Duration;

use super::Harness;
use super::situation::Situation;
use super::support::{LEASE, RESPONSE, Subject, TOMBSTONE, lease, life, store_time, sweep, tick, windows};
use crate::{AgeLimit, Claimed, KeyClass, Life, Nonce, Recovery, Settled, State, TOKEN_HOLD, Timestamp};

const MAX_AGE: Duration = Duration::from_secs(3600);
const DRIFT: Duration = Duration::from_secs(60);

fn aged(recovery: Recovery, max_age: Duration, class: &str) -> Life {
    let limit = AgeLimit { max_age, drift: DRIFT, class: KeyClass::new(class) };
    let tombstone = TOMBSTONE.max(max_age + DRIFT + LEASE);
    Life::new(recovery, windows(RESPONSE, tombstone))
        .with_age(limit, lease(LEASE))
        .expect("the tombstone window covers the maximum age")
}

/// The store's time, once it is past what a store may refuse after its start: keys dated before that plus the drift.
async fn warm(harness: &impl Harness, max_age: Duration) -> Timestamp {
    harness.advance(max_age + DRIFT + Duration::from_secs(1)).await;
    store_time(harness).await
}

fn dated<H: Harness>(harness: &H, key_time: Timestamp) -> Subject<'_, H> {
    Subject::with(harness, aged(Recovery::Hold, MAX_AGE, "test")).but(|claim| claim.key_time = Some(key_time))
}

/// A key of the maximum age is too old, and one a tick younger is not.
pub async fn a_key_of_the_maximum_age_is_too_old<H: Harness>(harness: &H) {
    let oldest = warm(harness, MAX_AGE).await.before(MAX_AGE);
    for age in [Duration::ZERO, Duration::from_secs(1), MAX_AGE * 1000] {
        let key = dated(harness, oldest.before(age));
        assert_eq!(key.claim().await, Claimed::TooOld);
        assert_eq!(key.inspect().await, None);
    }
    assert_eq!(dated(harness, Timestamp::from_micros(0)).claim().await, Claimed::TooOld);
    dated(harness, oldest.after(tick(harness))).grant().await;
}

/// A key dated ahead by the drift is granted, and one a tick later is not.
pub async fn a_key_beyond_the_drift_is_from_the_future<H: Harness>(harness: &H) {
    let newest = warm(harness, MAX_AGE).await.after(DRIFT);
    let key = dated(harness, newest.after(tick(harness)));
    assert_eq!(key.claim().await, Claimed::FromTheFuture);
    assert_eq!(key.inspect().await, None);
    dated(harness, newest).grant().await;
    // It is no longer ahead when the clock has come nearer.
    harness.advance(tick(harness)).await;
    key.grant().await;
}

/// While there is a record, it answers, and the age of its key is not asked.
pub async fn a_record_answers_before_the_age_of_its_key_is_judged<H: Harness>(harness: &H) {
    let now = warm(harness, MAX_AGE).await;
    let done = dated(harness, now);
    assert_eq!(done.grant().await.complete().await, Settled::Applied);
    let doubtful = dated(harness, now);
    doubtful.grant().await;
    let running = dated(harness, now);
    let runner = running.grant().await;
    assert_eq!(runner.renew_for(2 * MAX_AGE).await, Settled::Applied);
    let rerun = dated(harness, now).with_life(aged(Recovery::Rerun, MAX_AGE, "test"));
    rerun.grant().await;
    harness.advance(MAX_AGE + DRIFT + LEASE).await;
    assert!(matches!(done.claim().await, Claimed::Executed(_)));
    assert!(matches!(doubtful.claim().await, Claimed::InDoubt(_)));
    assert!(matches!(running.claim().await, Claimed::InFlight { .. }));
    assert!(matches!(running.claim_with(runner.holder.nonce).await, Claimed::Granted(_)));
    assert_eq!(rerun.grant().await.grant.attempt, 2);
}

/// A dead nonce is refused before the age of its key is judged.
pub async fn a_dead_nonce_is_refused_before_its_key_is_too_old<H: Harness>(harness: &H) {
    let now = warm(harness, MAX_AGE).await;
    let key = dated(harness, now.before(MAX_AGE));
    let nonce = Nonce::random();
    key.abandon(nonce).await;
    assert_eq!(key.claim_with(nonce).await, Claimed::Refused);
    assert_eq!(key.claim().await, Claimed::TooOld);
}

/// A record stays until its key is too old, also beyond its tombstone window.
pub async fn a_record_stays_until_its_key_is_too_old<H: Harness>(harness: &H) {
    let now = warm(harness, MAX_AGE).await;
    let limit = AgeLimit { max_age: MAX_AGE, drift: DRIFT, class: KeyClass::new("test") };
    let brief = Life::new(Recovery::Hold, windows(LEASE, MAX_AGE + DRIFT + LEASE))
        .with_age(limit, lease(LEASE))
        .expect("the tombstone window is just long enough");
    let done = dated(harness, now.after(DRIFT)).with_life(brief.clone());
    assert_eq!(done.grant().await.complete().await, Settled::Applied);
    let end = 2 * DRIFT + MAX_AGE;
    harness.advance(end - tick(harness)).await;
    sweep(harness).await;
    assert!(matches!(done.claim().await, Claimed::Executed(_)));
    harness.advance(tick(harness)).await;
    assert_eq!(done.state().await, None);
    assert_eq!(done.claim().await, Claimed::TooOld);
}

/// A key that was executed is never granted again, at whatever time and whether or not somebody sweeps.
pub async fn a_key_is_never_run_twice_at_any_age<H: Harness>(harness: &H) {
    const MARGIN: Duration = Duration::from_secs(30);
    for sweeping in [false, true] {
        for age in [MAX_AGE - MARGIN, Duration::ZERO] {
            let made = warm(harness, MAX_AGE).await.after(DRIFT - MARGIN).before(age);
            let done = dated(harness, made);
            assert_eq!(done.grant().await.complete().await, Settled::Applied);
            let doubtful = dated(harness, made);
            doubtful.grant().await;
            for _ in 0..12 {
                harness.advance(TOMBSTONE / 10).await;
                if sweeping {
                    sweep(harness).await;
                }
                for key in [&done, &doubtful] {
                    let claimed = key.claim().await;
                    assert!(!matches!(claimed, Claimed::Granted(_)), "{claimed:?}");
                }
            }
            assert_eq!(done.claim().await, Claimed::TooOld);
            assert_eq!(doubtful.claim().await, Claimed::TooOld);
        }
    }
}

/// A released record is judged by its own age limit, not by the duplicate's, which may have none. Judged at the moment of the release,
/// since a store need not keep it for longer.
pub async fn a_released_key_is_judged_by_the_records_limit<H: Harness>(harness: &H) {
    let made = warm(harness, 3 * MAX_AGE).await.before(MAX_AGE - tick(harness));
    let strict = dated(harness, made);
    let lax = dated(harness, made).with_life(aged(Recovery::Hold, 3 * MAX_AGE, "test"));
    let (first, other) = (strict.grant().await, lax.grant().await);
    harness.advance(tick(harness)).await;
    assert_eq!(first.release().await, Settled::Applied);
    assert_eq!(other.release().await, Settled::Applied);
    assert_eq!(strict.with_life(lax.claim.life.clone()).claim().await, Claimed::TooOld);
    assert_eq!(strict.with_life(life(Recovery::Hold)).claim().await, Claimed::TooOld);
    assert_eq!(lax.with_life(strict.claim.life.clone()).grant().await.grant.attempt, 2);
}

/// A key without a time is not judged by age.
pub async fn a_key_without_a_time_has_no_age<H: Harness>(harness: &H) {
    let key = dated(harness, Timestamp::MIN).but(|claim| claim.key_time = None);
    assert_eq!(key.grant().await.complete().await, Settled::Applied);
    harness.advance(TOMBSTONE).await;
    assert_eq!(key.grant().await.grant.attempt, 1);
    let key = Subject::new(harness).but(|claim| claim.key_time = Some(Timestamp::from_micros(0)));
    key.grant().await;
}

/// Raising the maximum age does not admit a key whose record was forgotten under the smaller one, swept or not.
pub async fn raising_the_maximum_age_admits_no_forgotten_key<H: Harness>(harness: &H) {
    if !harness.keeps_floors() {
        return;
    }
    for sweeping in [false, true] {
        let now = warm(harness, MAX_AGE).await;
        // Each is younger than the one before, so that no floor but its own keeps it out.
        let mut second = Duration::ZERO;
        let mut made = || {
            second += Duration::from_secs(1);
            now.after(second)
        };
        let done = dated(harness, made());
        assert_eq!(done.grant().await.complete().await, Settled::Applied);
        let doubtful = dated(harness, made());
        doubtful.grant().await;
        let abandoned = dated(harness, made());
        assert_eq!(abandoned.grant().await.complete().await, Settled::Applied);
        let taken_over = dated(harness, made()).with_life(aged(Recovery::Rerun, MAX_AGE, "test"));
        taken_over.grant().await;
        harness.advance(LEASE).await;
        let opaque = taken_over.but(|claim| claim.key_time = None).with_life(Life::default());
        assert_eq!(opaque.grant().await.complete().await, Settled::Applied);
        harness.advance(LEASE + TOMBSTONE).await;
        abandoned.abandon(Nonce::random()).await;
        assert_eq!(done.state().await, None);
        if sweeping {
            harness.advance(TOKEN_HOLD).await;
            while sweep(harness).await.more {}
        }
        let raised = aged(Recovery::Hold, 100 * MAX_AGE, "test");
        for key in [&done, &doubtful, &abandoned, &taken_over] {
            assert_eq!(key.with_life(raised.clone()).claim().await, Claimed::TooOld, "sweeping: {sweeping}");
        }
        // A key made later was not forgotten.
        dated(harness, made()).with_life(raised).grant().await;
    }
}

/// Each class has its own floor.
pub async fn a_purge_raises_the_floor_of_its_own_class_only<H: Harness>(harness: &H) {
    if !harness.keeps_floors() {
        return;
    }
    let long = 100 * MAX_AGE;
    let now = warm(harness, long).await;
    let done = dated(harness, now);
    assert_eq!(done.grant().await.complete().await, Settled::Applied);
    harness.advance(TOMBSTONE + TOKEN_HOLD).await;
    while sweep(harness).await.more {}
    assert_eq!(dated(harness, now).with_life(aged(Recovery::Hold, long, "test")).claim().await, Claimed::TooOld);
    dated(harness, now).with_life(aged(Recovery::Hold, long, "other")).grant().await;
}

/// The purge of a released record raises no floor: nothing that ran is forgotten.
pub async fn the_purge_of_a_released_key_raises_no_floor<H: Harness>(harness: &H) {
    let long = 5 * MAX_AGE;
    let now = warm(harness, long).await;
    let free = dated(harness, now).with_life(aged(Recovery::Hold, long, "test"));
    assert_eq!(free.grant().await.release().await, Settled::Applied);
    harness.advance(TOKEN_HOLD + tick(harness)).await;
    while sweep(harness).await.more {}
    assert_eq!(free.inspect().await, None);
    assert_eq!(free.grant().await.grant.attempt, 1);
}

/// The stub of an abandon has no settings: the claim's own limit judges.
pub async fn a_stub_is_judged_by_the_claims_limit<H: Harness>(harness: &H) {
    let now = warm(harness, MAX_AGE).await;
    let scene = Situation::Stub.arrange(harness).await;
    let old = scene.subject.with_life(aged(Recovery::Hold, MAX_AGE, "test"));
    assert_eq!(old.but(|claim| claim.key_time = Some(now.before(MAX_AGE))).claim().await, Claimed::TooOld);
    assert_eq!(old.but(|claim| claim.key_time = Some(now.after(3 * DRIFT))).claim().await, Claimed::FromTheFuture);
    assert_eq!(old.state().await, Some(State::Released));
    old.but(|claim| claim.key_time = Some(now)).grant().await;
}
