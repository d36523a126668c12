//! What somebody found out.

use super::support::{Caller, Situation, done, kept, number, stands};
use crate::conformance::Harness;
use crate::outbound::{StepResolved, StepStanding, StepVerdict, Steps};
use crate::{Nonce, RecordId};

/// That it happened may also be said after a no.
pub async fn only_an_unknown_step_is_resolved<H: Harness>(harness: &H)
where
    H::Store: Steps,
{
    for situation in Situation::ALL {
        for verdict in [StepVerdict::Happened(kept("found")), StepVerdict::DidNotHappen] {
            let caller = Caller::new(harness).await;
            situation.arrange(&caller).await;
            let happened = verdict != StepVerdict::DidNotHappen;
            let resolved = caller.resolve(1, verdict).await;
            match situation {
                Situation::Silent | Situation::Unknown => assert_eq!(resolved, StepResolved::Applied),
                Situation::No if happened => assert_eq!(resolved, StepResolved::Applied),
                _ => {
                    assert_eq!(resolved, StepResolved::NotUnknown(situation.standing().state()), "{situation:?}");
                    assert_eq!(caller.standing().await, Some(situation.standing()));
                    continue;
                }
            }
            if happened {
                assert_eq!(stands(caller.begin().await), StepStanding::Succeeded(kept("found")));
            } else {
                assert_eq!(number(&caller.begin().await), 2);
            }
        }
    }
}

/// A late or repeated resolution decides nothing about a newer call.
pub async fn a_resolver_that_saw_another_call_is_superseded<H: Harness>(harness: &H)
where
    H::Store: Steps,
{
    let caller = Caller::new(harness).await;
    Situation::No.arrange(&caller).await;
    let second = caller.call().await;
    assert_eq!(caller.resolve(1, StepVerdict::DidNotHappen).await, StepResolved::Superseded);
    caller.end(second, super::support::unknown()).await;
    for seen in [0, 1, 3] {
        assert_eq!(caller.resolve(seen, StepVerdict::DidNotHappen).await, StepResolved::Superseded);
        assert_eq!(caller.resolve(seen, StepVerdict::Happened(kept("x"))).await, StepResolved::Superseded);
    }
    caller.did_not_happen(2).await;
}

/// To whoever looks at it.
pub async fn who_resolved_a_step_and_why_is_told<H: Harness>(harness: &H)
where
    H::Store: Steps,
{
    for situation in [Situation::No, Situation::Yes] {
        let caller = Caller::new(harness).await;
        Situation::arrange(situation, &caller).await;
        let view = caller.view().await.expect("a step");
        assert_eq!(view.entry.resolution, Some(("ops".to_owned(), "looked".to_owned())));
    }
}

/// A late report of the call that was resolved as having happened confirms it.
pub async fn a_late_success_confirms_a_yes<H: Harness>(harness: &H)
where
    H::Store: Steps,
{
    let caller = Caller::new(harness).await;
    let nonce = Situation::Yes.arrange(&caller).await;
    caller.ends(nonce, done("reported"), StepStanding::Succeeded(kept("paid"))).await;
}

/// By its name, or by its record.
pub async fn a_step_that_nobody_knows_is_missing<H: Harness>(harness: &H)
where
    H::Store: Steps,
{
    let caller = Caller::new(harness).await;
    assert_eq!(caller.resolve(0, StepVerdict::DidNotHappen).await, StepResolved::Missing);
    caller.call().await;
    assert_eq!(caller.named("other").resolve(1, StepVerdict::DidNotHappen).await, StepResolved::Missing);
    let mut id = [0; 32];
    id[..16].copy_from_slice(Nonce::random().as_bytes());
    let mut elsewhere = caller.named("transfer");
    elsewhere.holder.id = RecordId::from_bytes(id);
    assert_eq!(elsewhere.resolve(1, StepVerdict::DidNotHappen).await, StepResolved::Missing);
    assert_eq!(elsewhere.view().await, None);
}
