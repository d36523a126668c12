//! Many at once, on several threads: one winner.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Barrier;
use tokio::task::JoinSet;

use super::LeaseHarness;
use super::support::{DEAD_FOR, LEASE, Subject, granted, lease, ok, sweep, tick};
use crate::{Acquired, Ask, FencingToken, LeaseHolder, Leases, Nonce, Settled, TOKEN_HOLD};

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

/// `count` ask at the same time; one at most is granted, and all others are told that it is held.
async fn race<H: LeaseHarness>(subject: &Subject<'_, H>, count: usize) -> Option<LeaseHolder> {
    let askings = (0..count).map(|_| {
        let (leases, ask) = (subject.harness.leases().clone(), subject.ask(Nonce::random()));
        async move { (ask.nonce, ok(leases.try_acquire(&ask).await)) }
    });
    let mut winner = None;
    for (nonce, acquired) in together(askings).await {
        match acquired {
            Acquired::Granted(grant) => {
                let holder = LeaseHolder { resource: subject.resource.clone(), token: grant.token, nonce };
                assert_eq!(winner.replace(holder), None, "two were granted");
            }
            Acquired::Held { .. } => {}
            Acquired::Refused => panic!("refused"),
        }
    }
    winner
}

/// Of a resource that nobody knows.
pub async fn one_of_many_askers_is_granted<H: LeaseHarness>(harness: &H) {
    for _ in 0..ROUNDS {
        let subject = Subject::new(harness);
        let winner = race(&subject, 32).await.expect("one was granted");
        assert_eq!(race(&subject, 8).await, None);
        assert_eq!(ok(harness.leases().renew(&winner, lease(LEASE)).await), Settled::Applied);
    }
}

/// Of a resource that was given back, abandoned, or whose lease ended.
pub async fn one_of_many_takes_over<H: LeaseHarness>(harness: &H) {
    for round in 0..ROUNDS {
        let subject = Subject::new(harness);
        let before = subject.grant().await;
        match round % 3 {
            0 => assert_eq!(before.release().await, Settled::Applied),
            1 => subject.abandon(before.holder.nonce).await,
            _ => harness.advance(LEASE).await,
        }
        let winner = race(&subject, 32).await.expect("one was granted");
        assert!(winner.token > before.token());
    }
}

/// Copies of one asking at once: one token.
pub async fn copies_of_one_asking_get_one_grant<H: LeaseHarness>(harness: &H) {
    for _ in 0..ROUNDS {
        let subject = Subject::new(harness);
        let ask = subject.ask(Nonce::random());
        let copies = (0..16).map(|_| {
            let (leases, ask) = (harness.leases().clone(), ask.clone());
            async move { granted(ok(leases.try_acquire(&ask).await)).token }
        });
        let tokens: BTreeSet<FencingToken> = together(copies).await.into_iter().collect();
        assert_eq!(tokens.len(), 1);
    }
}

/// Whichever comes first, nobody has it afterwards, and its copies are refused.
pub async fn an_abandon_beside_its_asking_leaves_the_resource_free<H: LeaseHarness>(harness: &H) {
    for _ in 0..2 * ROUNDS {
        let subject = Subject::new(harness);
        let ask = subject.ask(Nonce::random());
        let starts = (0..4).map(|n| {
            let (leases, ask) = (harness.leases().clone(), ask.clone());
            async move {
                if n == 0 {
                    ok(leases.abandon(&ask.resource, ask.nonce, DEAD_FOR).await);
                } else {
                    let acquired = ok(leases.try_acquire(&ask).await);
                    assert!(matches!(acquired, Acquired::Granted(_) | Acquired::Refused), "{acquired:?}");
                }
            }
        });
        together(starts).await;
        assert_eq!(subject.send(&ask).await, Acquired::Refused);
        assert_eq!(subject.grant().await.release().await, Settled::Applied);
    }
}

/// A late release, a late renewal and askings at once: at most one lease comes of it, and it stays.
pub async fn a_late_release_and_a_takeover_free_nobody<H: LeaseHarness>(harness: &H) {
    for _ in 0..2 * ROUNDS {
        let subject = Subject::new(harness);
        let late = subject.grant().await.holder;
        harness.advance(LEASE).await;
        let starts = (0..6).map(|n| {
            let (leases, late, ask) = (harness.leases().clone(), late.clone(), subject.ask(Nonce::random()));
            async move {
                match n {
                    0 => drop(ok(leases.release(&late, DEAD_FOR).await)),
                    1 => assert_eq!(ok(leases.renew(&late, lease(LEASE)).await), Settled::Superseded),
                    _ => {
                        if let Acquired::Granted(grant) = ok(leases.try_acquire(&ask).await) {
                            return Some(LeaseHolder { resource: ask.resource, token: grant.token, nonce: ask.nonce });
                        }
                    }
                }
                None
            }
        });
        let winners: Vec<LeaseHolder> = together(starts).await.into_iter().flatten().collect();
        let [winner] = &winners[..] else { panic!("{winners:?} were granted") };
        assert_eq!(ok(harness.leases().renew(winner, lease(LEASE)).await), Settled::Applied);
    }
}

/// 8 askers take 50 leases of 1 ms each, while time goes on: 400 tokens, all different, and rising for each of them.
pub async fn short_leases_on_many_threads_have_rising_tokens<H: LeaseHarness>(harness: &H) {
    let subject = Subject::new(harness);
    let askers = (0..8).map(|_| {
        let (leases, resource) = (harness.leases().clone(), subject.resource.clone());
        async move {
            let mut tokens = Vec::new();
            while tokens.len() < 50 {
                let lease = lease(Duration::from_millis(1));
                let ask = Ask { resource: resource.clone(), nonce: Nonce::random(), lease, above: None };
                match ok(leases.try_acquire(&ask).await) {
                    Acquired::Granted(grant) => tokens.push(grant.token),
                    _ => tokio::task::yield_now().await,
                }
            }
            assert!(tokens.is_sorted_by(|a, b| a < b), "not rising: {tokens:?}");
            tokens
        }
    });
    let mut tasks = together_while(askers, || harness.advance(Duration::from_millis(1))).await;
    let all: BTreeSet<FencingToken> = tasks.drain(..).flatten().collect();
    assert_eq!(all.len(), 400);
}

/// The same as [`together`], doing something meanwhile, again and again.
async fn together_while<T, F, D>(starts: impl Iterator<Item = F>, mut meanwhile: impl FnMut() -> D) -> Vec<T>
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
    D: Future<Output = ()>,
{
    let mut all = tokio::spawn(together(starts.collect::<Vec<_>>()));
    loop {
        tokio::select! {
            done = &mut all => return done.expect("all of them ended well"),
            () = tokio::time::sleep(Duration::from_micros(300)) => meanwhile().await,
        }
    }
}

/// One asker of each resource wins, and what it was granted stays.
pub async fn a_sweep_beside_askings_removes_no_live_lease<H: LeaseHarness>(harness: &H) {
    for _ in 0..ROUNDS {
        let subjects: Vec<_> = (0..16).map(|_| Subject::new(harness)).collect();
        for subject in &subjects {
            subject.grant().await;
        }
        harness.advance(LEASE + TOKEN_HOLD + tick(harness)).await;
        let starts = (0..4 * subjects.len()).map(|n| {
            let (leases, ask) = (harness.leases().clone(), subjects[n / 4].ask(Nonce::random()));
            async move {
                if n % 4 == 0 {
                    ok(leases.sweep(5).await);
                    return None;
                }
                match ok(leases.try_acquire(&ask).await) {
                    Acquired::Granted(grant) => {
                        Some(LeaseHolder { resource: ask.resource, token: grant.token, nonce: ask.nonce })
                    }
                    Acquired::Held { .. } => None,
                    Acquired::Refused => panic!("refused"),
                }
            }
        });
        let winners: Vec<LeaseHolder> = together(starts).await.into_iter().flatten().collect();
        assert_eq!(winners.len(), subjects.len());
        sweep(harness).await;
        for winner in winners {
            assert_eq!(ok(harness.leases().renew(&winner, lease(LEASE)).await), Settled::Applied);
            assert_eq!(ok(harness.leases().release(&winner, DEAD_FOR).await), Settled::Applied);
        }
    }
}

/// Of all of them together.
pub async fn sweepers_at_once_count_every_row_once<H: LeaseHarness>(harness: &H) {
    for _ in 0..40 {
        Subject::new(harness).grant().await;
    }
    harness.advance(LEASE + TOKEN_HOLD + tick(harness)).await;
    let sweepers = (0..8).map(|_| {
        let leases = harness.leases().clone();
        async move { ok(leases.sweep(1000).await) }
    });
    let purged: usize = together(sweepers).await.into_iter().sum();
    assert_eq!(purged + sweep(harness).await, 40);
}

/// They do not wait for each other or take each other's answers.
pub async fn different_resources_are_all_granted<H: LeaseHarness>(harness: &H) {
    let starts = (0..64).map(|_| {
        let (leases, ask) = (harness.leases().clone(), Subject::new(harness).ask(Nonce::random()));
        async move {
            let token = granted(ok(leases.try_acquire(&ask).await)).token;
            let holder = LeaseHolder { resource: ask.resource, token, nonce: ask.nonce };
            ok(leases.release(&holder, Duration::ZERO).await)
        }
    });
    assert!(together(starts).await.into_iter().all(|released| released == Settled::Applied));
}
