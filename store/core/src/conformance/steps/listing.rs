//! What operators see.

use super::support::{Caller, QUIET, Situation, TIMEOUT, label};
use crate::conformance::Harness;
use crate::conformance::support::ok;
use crate::outbound::{ListSteps, StepState, Steps};

/// Whatever the size of the pages.
pub async fn pages_show_every_step_once_in_order<H: Harness>(harness: &H)
where
    H::Store: Steps,
{
    let mut all = Vec::new();
    for _ in 0..4 {
        let caller = Caller::new(harness).await;
        for name in ["b", "a", "c"] {
            caller.named(name).call().await;
            all.push((caller.holder.id, label(name)));
        }
    }
    all.sort();
    for limit in [1, 2, 5, 12, 100] {
        let mut seen = Vec::new();
        let mut list = ListSteps { limit, ..ListSteps::default() };
        loop {
            let page = ok(harness.store().list_steps(&list).await);
            assert!(page.entries.len() <= limit);
            seen.extend(page.entries.into_iter().map(|entry| (entry.id, entry.label)));
            list.after = page.next;
            if list.after.is_none() {
                break;
            }
        }
        assert_eq!(seen, all, "{limit}");
    }
}

/// States follow the clock.
pub async fn steps_are_listed_by_record_and_by_state<H: Harness>(harness: &H)
where
    H::Store: Steps,
{
    let caller = Caller::new(harness).await;
    Situation::Unknown.arrange(&caller.named("asked")).await;
    Situation::Done.arrange(&caller.named("paid")).await;
    caller.named("calling").call().await;
    Situation::Unknown.arrange(&Caller::new(harness).await).await;
    let own = ListSteps { id: Some(caller.holder.id), ..ListSteps::default() };
    assert_eq!(caller.list(&own).await, [label("asked"), label("calling"), label("paid")]);
    let unknown = ListSteps { state: Some(StepState::Unknown), ..own.clone() };
    assert_eq!(caller.list(&unknown).await, [label("asked")]);
    assert_eq!(caller.list(&ListSteps { id: None, ..unknown.clone() }).await.len(), 2);
    harness.advance(TIMEOUT + QUIET).await; // listings follow the clock
    assert_eq!(caller.list(&unknown).await, [label("asked"), label("calling")]);
}
