//! Steps live as long as their record.

use super::support::{Caller, Situation, done, number, stands};
use crate::conformance::Harness;
use crate::conformance::support::{LEASE, Subject, TOMBSTONE, arrive, sweep, tick};
use crate::outbound::{Ended, ListSteps, StepStanding, Steps};
use crate::{Settled, TOKEN_HOLD};

/// A handler that is run again meets what was done.
pub async fn steps_survive_release_takeover_and_resolution<H: Harness>(harness: &H)
where
    H::Store: Steps,
{
    for way in 0..4 {
        let subject = if way == 1 { Subject::rerun(harness) } else { Subject::new(harness) };
        let attempt = subject.grant().await;
        let caller = Caller::of(&attempt);
        Situation::Done.arrange(&caller).await;
        match way {
            0 => assert_eq!(attempt.release().await, Settled::Applied),
            1 => harness.advance(LEASE).await,
            2 => {
                assert_eq!(attempt.mark(None).await, Settled::Applied);
                assert_eq!(subject.did_not_happen(attempt.holder.token).await, crate::Resolved::Applied);
            }
            _ => subject.abandon(attempt.holder.nonce).await,
        }
        let next = Caller::of(&subject.grant().await);
        assert_eq!(stands(next.begin().await), Situation::Done.standing(), "{way}");
    }
}

/// A tombstone window after its release, strictly.
pub async fn a_released_record_stays_for_its_steps<H: Harness>(harness: &H)
where
    H::Store: Steps,
{
    let subject = Subject::new(harness);
    let attempt = subject.grant().await;
    let caller = Caller::of(&attempt);
    Situation::Unknown.arrange(&caller).await;
    assert_eq!(attempt.release().await, Settled::Applied);
    harness.advance(TOKEN_HOLD + tick(harness)).await; // all else is over
    sweep(harness).await;
    harness.advance(TOMBSTONE - TOKEN_HOLD - tick(harness) * 2).await;
    assert_eq!(sweep(harness).await.purged, 0);
    assert_eq!(caller.standing().await, Some(Situation::Unknown.standing()));
    let still = caller.list(&ListSteps { id: Some(caller.holder.id), ..ListSteps::default() }).await;
    assert_eq!(still.len(), 1);
    harness.advance(tick(harness) * 3).await;
    assert_eq!(caller.view().await, None);
    assert_eq!(sweep(harness).await.purged, 1);
    assert_eq!(subject.inspect().await, None);
}

/// It goes with its token.
pub async fn a_released_record_without_steps_does_not<H: Harness>(harness: &H)
where
    H::Store: Steps,
{
    let attempt = Subject::new(harness).grant().await;
    assert_eq!(attempt.release().await, Settled::Applied);
    harness.advance(TOKEN_HOLD + tick(harness)).await;
    assert_eq!(sweep(harness).await.purged, 1);
}

/// Whether or not somebody swept.
pub async fn a_new_life_begins_without_steps<H: Harness>(harness: &H)
where
    H::Store: Steps,
{
    for swept in [false, true] {
        let subject = Subject::new(harness);
        let attempt = subject.grant().await;
        let caller = Caller::of(&attempt);
        let nonce = Situation::Done.arrange(&caller).await;
        assert_eq!(attempt.complete().await, Settled::Applied);
        harness.advance(TOMBSTONE).await;
        assert_eq!(caller.view().await, None);
        assert!(caller.list(&ListSteps { id: Some(caller.holder.id), ..ListSteps::default() }).await.is_empty());
        if swept {
            arrive(harness).await;
            assert_eq!(sweep(harness).await.purged, 1);
        }
        assert_eq!(caller.end(nonce, done("late")).await, Ended::Missing);
        let next = Caller::of(&subject.grant().await);
        assert_eq!(caller.end(nonce, done("later")).await, Ended::Missing);
        assert_eq!(next.view().await, None);
        assert_eq!(number(&next.begin().await), 1);
    }
}

/// The same of a released record whose steps are over.
pub async fn steps_of_a_released_record_are_over_after_a_tombstone_window<H: Harness>(harness: &H)
where
    H::Store: Steps,
{
    let subject = Subject::new(harness);
    let attempt = subject.grant().await;
    let caller = Caller::of(&attempt);
    Situation::Unknown.arrange(&caller).await;
    assert_eq!(attempt.release().await, Settled::Applied);
    harness.advance(TOMBSTONE + tick(harness)).await;
    let next = Caller::of(&subject.grant().await);
    assert_eq!(number(&next.begin().await), 1);
}

/// A sweep that purges another record leaves the steps of this one.
pub async fn a_purge_takes_the_steps_of_its_own_record_only<H: Harness>(harness: &H)
where
    H::Store: Steps,
{
    let gone = Subject::new(harness).grant().await;
    Situation::Done.arrange(&Caller::of(&gone)).await;
    assert_eq!(gone.complete().await, Settled::Applied);
    harness.advance(TOMBSTONE).await;
    let caller = Caller::of(&Subject::new(harness).grant().await);
    Situation::Unknown.arrange(&caller).await;
    arrive(harness).await;
    assert_eq!(sweep(harness).await.purged, 1);
    assert!(matches!(caller.standing().await, Some(StepStanding::Unknown { .. })));
}
