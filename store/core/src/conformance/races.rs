//! Many at once, on several threads: one winner.

use std::sync::Arc;

use tokio::sync::Barrier;
use tokio::task::JoinSet;

use super::Harness;
use super::support::{LEASE, Subject, TOMBSTONE, lease, ok, outcome, replayed, sweep};
use crate::{Claim, Claimed, Holder, Nonce, Resolve, ResolveVerdict, Resolved, Settled, State, Store, TOKEN_HOLD};

const ROUNDS: usize = 8;

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

/// Sends `count` claims of this key at the same time, and checks that one at most is granted.
pub(super) async fn race<H: Harness>(subject: &Subject<'_, H>, count: usize) -> Vec<(Nonce, Claimed)> {
    let claims = (0..count).map(|_| {
        let store = subject.harness.store().clone();
        let claim = Claim { nonce: Nonce::random(), ..subject.claim.clone() };
        async move { (claim.nonce, ok(store.claim(&claim).await)) }
    });
    let claimed = together(claims).await;
    let granted = claimed.iter().filter(|(_, claimed)| matches!(claimed, Claimed::Granted(_))).count();
    assert!(granted <= 1, "{granted} were granted");
    claimed
}

#[track_caller]
fn winner(claimed: &[(Nonce, Claimed)], subject: &Subject<'_, impl Harness>) -> Holder {
    let granted = claimed.iter().find_map(|(nonce, claimed)| match claimed {
        Claimed::Granted(grant) => Some(Holder { id: subject.claim.id, token: grant.token, nonce: *nonce }),
        _ => None,
    });
    granted.expect("one was granted")
}

/// Of 64 claimers of a new key one is granted, and the others are told that it is in flight.
pub async fn one_of_many_claimers_is_granted<H: Harness>(harness: &H) {
    for _ in 0..ROUNDS {
        let subject = Subject::new(harness);
        let claimed = race(&subject, 64).await;
        let holder = winner(&claimed, &subject);
        assert_eq!(claimed.iter().filter(|(_, claimed)| matches!(claimed, Claimed::InFlight { .. })).count(), 63);
        assert_eq!(ok(harness.store().complete(&holder, &outcome()).await), Settled::Applied);
        for (_, claimed) in race(&subject, 16).await {
            assert_eq!(replayed(claimed), outcome());
        }
    }
}

/// Of many that find a released, an abandoned or an expired record, one begins the next attempt.
pub async fn one_of_many_claims_a_freed_key<H: Harness>(harness: &H) {
    for round in 0..ROUNDS {
        let subject = Subject::new(harness);
        let attempt = subject.grant().await;
        match round % 3 {
            0 => assert_eq!(attempt.release().await, Settled::Applied),
            1 => subject.abandon(attempt.holder.nonce).await,
            _ => {
                assert_eq!(attempt.complete().await, Settled::Applied);
                harness.advance(TOMBSTONE).await;
            }
        }
        let holder = winner(&race(&subject, 32).await, &subject);
        assert!(holder.token > attempt.holder.token);
        assert_eq!(ok(harness.store().complete(&holder, &outcome()).await), Settled::Applied);
    }
}

/// Of many that find a lease ended under Rerun one takes over; under Hold nobody does.
pub async fn one_of_many_takes_over<H: Harness>(harness: &H) {
    for _ in 0..ROUNDS {
        let (rerun, hold) = (Subject::rerun(harness), Subject::new(harness));
        let stale = rerun.grant().await;
        hold.grant().await;
        harness.advance(LEASE).await;
        let claimed = race(&rerun, 32).await;
        let holder = winner(&claimed, &rerun);
        assert!(holder.token > stale.holder.token);
        assert_eq!(rerun.entry().await.attempt, 2);
        stale.is_superseded().await;
        assert_eq!(ok(harness.store().complete(&holder, &outcome()).await), Settled::Applied);
        assert!(race(&hold, 8).await.iter().all(|(_, claimed)| matches!(claimed, Claimed::InDoubt(_))));
    }
}

/// A takeover is a compare-and-set: either the late holder's completion applies, or somebody took over. Never both.
pub async fn a_late_completion_and_a_takeover_never_both_win<H: Harness>(harness: &H) {
    enum Did {
        Complete(Settled),
        Claim(Box<Claimed>),
    }
    for _ in 0..4 * ROUNDS {
        let subject = Subject::rerun(harness);
        let late = subject.grant().await.holder;
        harness.advance(LEASE).await;
        let starts = (0..4).map(|n| {
            let store = harness.store().clone();
            let claim = Claim { nonce: Nonce::random(), ..subject.claim.clone() };
            async move {
                match n {
                    0 => Did::Complete(ok(store.complete(&late, &outcome()).await)),
                    _ => Did::Claim(Box::new(ok(store.claim(&claim).await))),
                }
            }
        });
        let mut completed = false;
        let mut granted = 0;
        for did in together(starts).await {
            match did {
                Did::Complete(settled) => completed = settled == Settled::Applied,
                Did::Claim(claimed) if matches!(*claimed, Claimed::Granted(_)) => granted += 1,
                Did::Claim(_) => {}
            }
        }
        assert_eq!(granted, usize::from(!completed), "completed: {completed}");
        let state = if completed { State::Completed } else { State::InFlight };
        assert_eq!(subject.state().await, Some(state));
    }
}

/// A claim and its own abandon at once: whichever comes first, the key is free afterwards and the claim's copies refused.
pub async fn an_abandon_beside_its_claim_leaves_the_key_free<H: Harness>(harness: &H) {
    for _ in 0..4 * ROUNDS {
        let subject = Subject::new(harness);
        let claim = Claim { nonce: Nonce::random(), ..subject.claim.clone() };
        let starts = (0..3).map(|n| {
            let (store, claim) = (harness.store().clone(), claim.clone());
            async move {
                if n == 0 {
                    ok(store.abandon(&claim.id, claim.nonce, LEASE).await);
                } else {
                    let claimed = ok(store.claim(&claim).await);
                    assert!(matches!(claimed, Claimed::Granted(_) | Claimed::Refused), "{claimed:?}");
                }
            }
        });
        together(starts).await;
        assert_eq!(subject.claim_with(claim.nonce).await, Claimed::Refused);
        assert_eq!(subject.grant().await.complete().await, Settled::Applied);
    }
}

/// Copies of one claim at once get one grant between them: same token, same attempt.
pub async fn copies_of_one_claim_get_one_grant<H: Harness>(harness: &H) {
    for _ in 0..ROUNDS {
        let subject = Subject::new(harness);
        let starts = (0..16).map(|_| {
            let (store, claim) = (harness.store().clone(), subject.claim.clone());
            async move { ok(store.claim(&claim).await) }
        });
        let mut tokens = Vec::new();
        for claimed in together(starts).await {
            let grant = subject.attempt(subject.claim.nonce, claimed).grant;
            assert_eq!(grant.attempt, 1);
            tokens.push(grant.token);
        }
        tokens.dedup();
        assert_eq!(tokens.len(), 1);
    }
}

/// Two operators with two opinions: one of them decides.
pub async fn one_of_many_resolvers_decides<H: Harness>(harness: &H) {
    for _ in 0..ROUNDS {
        let subject = Subject::new(harness);
        let attempt = subject.grant().await;
        assert_eq!(attempt.mark(None).await, Settled::Applied);
        let starts = (0..8).map(|n| {
            let store = harness.store().clone();
            let verdict = match n % 2 {
                0 => ResolveVerdict::Happened(outcome()),
                _ => ResolveVerdict::DidNotHappen { fence_token: None },
            };
            let resolve = Resolve {
                id: subject.claim.id,
                token_seen: attempt.holder.token,
                verdict,
                who: format!("operator {n}"),
                why: String::new(),
            };
            async move { (n, ok(store.resolve(&resolve).await)) }
        });
        let applied: Vec<i32> =
            together(starts).await.into_iter().filter(|(_, r)| *r == Resolved::Applied).map(|(n, _)| n).collect();
        let [n] = applied[..] else { panic!("{applied:?} applied") };
        let entry = subject.entry().await;
        assert_eq!(entry.resolution.map(|(who, _)| who), Some(format!("operator {n}")));
        assert_eq!(entry.state, if n % 2 == 0 { State::Completed } else { State::Released });
    }
}

/// A sweep beside claims of the very rows that it is about to remove: one claim wins, and what it began stays.
pub async fn a_sweep_beside_claims_removes_no_live_record<H: Harness>(harness: &H) {
    for _ in 0..ROUNDS {
        let subjects: Vec<_> = (0..16).map(|_| Subject::new(harness)).collect();
        for (n, subject) in subjects.iter().enumerate() {
            let attempt = subject.grant().await;
            let settled = if n % 2 == 0 { attempt.complete().await } else { attempt.release().await };
            assert_eq!(settled, Settled::Applied);
        }
        harness.advance(TOMBSTONE + TOKEN_HOLD).await;
        let starts = (0..4 * subjects.len()).map(|n| {
            let store = harness.store().clone();
            let claim = Claim { nonce: Nonce::random(), ..subjects[n / 4].claim.clone() };
            async move {
                if n % 4 == 0 {
                    ok(store.sweep(5).await);
                    return None;
                }
                match ok(store.claim(&claim).await) {
                    Claimed::Granted(grant) => Some(Holder { id: claim.id, token: grant.token, nonce: claim.nonce }),
                    Claimed::InFlight { .. } => None,
                    claimed => panic!("{claimed:?}"),
                }
            }
        });
        let holders: Vec<Holder> = together(starts).await.into_iter().flatten().collect();
        assert_eq!(holders.len(), subjects.len());
        sweep(harness).await;
        for holder in holders {
            assert_eq!(ok(harness.store().renew(&holder, lease(LEASE)).await), Settled::Applied);
            assert_eq!(ok(harness.store().complete(&holder, &outcome()).await), Settled::Applied);
        }
    }
}

/// Sweepers at once remove every row once and count it once.
pub async fn sweepers_at_once_count_every_row_once<H: Harness>(harness: &H) {
    for n in 0..40 {
        let attempt = Subject::new(harness).grant().await;
        let settled = if n % 4 == 0 { attempt.mark(None).await } else { attempt.complete().await };
        assert_eq!(settled, Settled::Applied);
    }
    harness.advance(LEASE + 2 * TOMBSTONE).await;
    let starts = (0..8).map(|_| {
        let store = harness.store().clone();
        async move { ok(store.sweep(1000).await) }
    });
    let mut all = together(starts).await.into_iter().fold(crate::Swept::default(), crate::Swept::and);
    all = all.and(sweep(harness).await);
    assert_eq!((all.purged, all.escapes), (40, 10));
}

/// Different keys do not wait for each other or take each other's answers.
pub async fn different_keys_are_all_granted<H: Harness>(harness: &H) {
    let starts = (0..64).map(|_| {
        let (store, claim) = (harness.store().clone(), Subject::new(harness).claim);
        async move {
            let Claimed::Granted(grant) = ok(store.claim(&claim).await) else { panic!("not granted") };
            let holder = Holder { id: claim.id, token: grant.token, nonce: claim.nonce };
            assert_eq!(ok(store.complete(&holder, &outcome()).await), Settled::Applied);
            let again = Claim { nonce: Nonce::random(), ..claim };
            replayed(ok(store.claim(&again).await))
        }
    });
    assert!(together(starts).await.into_iter().all(|replayed| replayed == outcome()));
}

/// Abandoned claims of a new key beside one that is granted and completed: what it recorded stays.
pub async fn abandons_beside_a_first_run_lose_nothing<H: Harness>(harness: &H) {
    for _ in 0..8 * ROUNDS {
        let subject = Subject::new(harness);
        let starts = (0..8).map(|n| {
            let (store, claim) = (harness.store().clone(), Claim { nonce: Nonce::random(), ..subject.claim.clone() });
            async move {
                if n > 0 {
                    return ok(store.abandon(&claim.id, claim.nonce, LEASE).await);
                }
                let Claimed::Granted(grant) = ok(store.claim(&claim).await) else { panic!("nobody else claims") };
                let holder = Holder { id: claim.id, token: grant.token, nonce: claim.nonce };
                assert_eq!(ok(store.complete(&holder, &outcome()).await), Settled::Applied);
            }
        });
        together(starts).await;
        assert_eq!(replayed(subject.claim_with(Nonce::random()).await), outcome());
    }
}
