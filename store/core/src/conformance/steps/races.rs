//! Many at once, on several threads: one call.

use std::sync::Arc;

use tokio::sync::Barrier;
use tokio::task::JoinSet;

use super::support::{Caller, Situation, done, kept, refused, stands, unknown};
use crate::Nonce;
use crate::conformance::Harness;
use crate::conformance::support::ok;
use crate::outbound::{Begun, EndCall, ResolveStep, StepResolved, StepStanding, StepVerdict, Steps};

const ROUNDS: usize = 6;

/// Starts these together, each on a task of its own, and waits for all of them.
async fn together<T, F>(starts: impl IntoIterator<Item = F>) -> Vec<T>
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    let starts: Vec<F> = starts.into_iter().collect();
    let barrier = Arc::new(Barrier::new(starts.len()));
    let mut tasks = JoinSet::new();
    for start in starts {
        let barrier = Arc::clone(&barrier);
        tasks.spawn(async move {
            barrier.wait().await;
            start.await
        });
    }
    tasks.join_all().await
}

fn calls(begun: &[Begun]) -> usize {
    begun.iter().filter(|begun| matches!(begun, Begun::Go { .. })).count()
}

/// Of a step that is new, failed, or retryable.
pub async fn one_of_many_callers_calls<H: Harness>(harness: &H)
where
    H::Store: Steps,
{
    for round in 0..ROUNDS {
        let caller = Caller::new(harness).await;
        match round % 3 {
            0 => {}
            1 => drop(Situation::NotSent.arrange(&caller).await),
            _ => drop(Situation::No.arrange(&caller).await),
        }
        let askings = (0..16).map(|_| {
            let (store, ask) = (harness.store().clone(), caller.ask(Nonce::random()));
            async move { ok(store.begin_call(&ask).await) }
        });
        assert_eq!(calls(&together(askings).await), 1);
    }
}

/// All of them are told to go, and it is one call in the log.
pub async fn copies_of_one_asking_are_one_call<H: Harness>(harness: &H)
where
    H::Store: Steps,
{
    for _ in 0..ROUNDS {
        let caller = Caller::new(harness).await;
        let ask = caller.ask(Nonce::random());
        let copies = (0..8).map(|_| {
            let (store, ask) = (harness.store().clone(), ask.clone());
            async move { ok(store.begin_call(&ask).await) }
        });
        assert_eq!(calls(&together(copies).await), 8);
        assert_eq!(caller.view().await.expect("a step").calls.len(), 1);
    }
}

/// Whichever comes first, nobody calls under it.
pub async fn giving_up_beside_the_asking_leaves_no_call<H: Harness>(harness: &H)
where
    H::Store: Steps,
{
    for _ in 0..2 * ROUNDS {
        let caller = Caller::new(harness).await;
        let ask = caller.ask(Nonce::random());
        let starts = (0..4).map(|n| {
            let (store, ask) = (harness.store().clone(), ask.clone());
            async move {
                if n == 0 {
                    let end = super::support::not_sent();
                    let report = EndCall { id: ask.holder.id, label: ask.label.clone(), nonce: ask.nonce, end };
                    ok(store.end_call(&report).await);
                } else {
                    let begun = ok(store.begin_call(&ask).await);
                    assert!(matches!(begun, Begun::Go { .. } | Begun::Over), "{begun:?}");
                }
            }
        });
        together(starts).await;
        assert_eq!(caller.send(&ask).await, Begun::Over);
        assert!(matches!(caller.begin().await, Begun::Go { .. }));
    }
}

/// Yes, no, a late success and a second worker at once: whatever they come to, a success that was reported is not lost.
pub async fn a_late_success_is_never_lost<H: Harness>(harness: &H)
where
    H::Store: Steps,
{
    for _ in 0..2 * ROUNDS {
        let caller = Caller::new(harness).await;
        let first = Situation::Unknown.arrange(&caller).await;
        let starts = (0..4).map(|n| {
            let store = harness.store().clone();
            let (id, label, ask) = (caller.holder.id, caller.label.clone(), caller.ask(Nonce::random()));
            async move {
                match n {
                    0 => {
                        let report = EndCall { id, label, nonce: first, end: done("paid") };
                        ok(store.end_call(&report).await);
                    }
                    1 => {
                        let (who, why) = ("ops".to_owned(), "looked".to_owned());
                        let verdict = StepVerdict::DidNotHappen;
                        let no = ResolveStep { id, label, call_seen: 1, verdict, who, why };
                        let _ = ok(store.resolve_step(&no).await);
                    }
                    _ => {
                        if let Begun::Go { .. } = ok(store.begin_call(&ask).await) {
                            let report = EndCall { id, label, nonce: ask.nonce, end: unknown() };
                            ok(store.end_call(&report).await);
                        }
                    }
                }
            }
        });
        together(starts).await;
        assert_eq!(stands(caller.begin().await), StepStanding::Succeeded(kept("paid")));
    }
}

/// The others are told that it is not unknown any more.
pub async fn one_of_many_resolvers_of_a_step_decides<H: Harness>(harness: &H)
where
    H::Store: Steps,
{
    for _ in 0..ROUNDS {
        let caller = Caller::new(harness).await;
        Situation::Unknown.arrange(&caller).await;
        let resolvers = (0..8).map(|n| {
            let (store, id, label) = (harness.store().clone(), caller.holder.id, caller.label.clone());
            async move {
                let verdict = StepVerdict::Happened(kept(["a", "b"][n % 2]));
                let resolve =
                    ResolveStep { id, label, call_seen: 1, verdict, who: n.to_string(), why: "looked".to_owned() };
                ok(store.resolve_step(&resolve).await)
            }
        });
        let applied = together(resolvers).await.into_iter().filter(|resolved| *resolved == StepResolved::Applied);
        assert_eq!(applied.count(), 1);
    }
}

/// Copies of reports at once count once.
pub async fn reports_at_once_count_once<H: Harness>(harness: &H)
where
    H::Store: Steps,
{
    for _ in 0..ROUNDS {
        let caller = Caller::new(harness).await;
        let first = Situation::Unknown.arrange(&caller).await;
        let second = caller.call().await;
        let reports = (0..8).map(|n| {
            let (store, id, label) = (harness.store().clone(), caller.holder.id, caller.label.clone());
            let report = EndCall { id, label, nonce: if n < 7 { first } else { second }, end: refused("no") };
            async move { ok(store.end_call(&report).await) }
        });
        together(reports).await;
        assert_eq!(stands(caller.begin().await), StepStanding::Failed(Some(kept("no"))));
    }
}
