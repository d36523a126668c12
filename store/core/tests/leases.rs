//! Taking, keeping and giving back leases, over in-process leases that misbehave on command.
#![expect(clippy::unwrap_used, reason = "a test fails loudly")]

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use idempotency::faults::{Fault, FaultyStore, Op};
use idempotency::{
    Acquired, Ask, FencingToken, HeldLease, Lease, LeaseEntry, LeaseHolder, LeaseLost, LeaseSettings, Leaser, Leases,
    LooseLeases, Nonce, RaiseError, Released, Resource, Settled, StoreError, StoreErrorKind, Sweeper, TOKEN_HOLD,
    Taken, TokenSource,
};
use idempotency_memory::MemoryLeases;
use tokio::time::{sleep, timeout};

type Faulty = FaultyStore<MemoryLeases>;

const LEASE: Duration = Duration::from_millis(300);
const PATIENCE: Duration = Duration::from_secs(10);

/// As a store does whose password is being changed: it may not last.
const REFUSED: Fault = Fault::FailAs(StoreErrorKind::Refused);

fn settings() -> LeaseSettings {
    let lease = Lease::new(LEASE).unwrap();
    LeaseSettings::default().lease(lease).store_timeout(Duration::from_millis(100)).unwrap()
}

fn leaser(settings: LeaseSettings) -> (Leaser<Faulty>, Faulty) {
    let leases = FaultyStore::new(MemoryLeases::new());
    (Leaser::new(leases.clone(), settings), leases)
}

fn account() -> Resource {
    Resource::parse("account/7").unwrap()
}

async fn take<L: Leases>(leaser: &Leaser<L>) -> HeldLease<L> {
    leaser.try_acquire(&account()).await.unwrap().yours().expect("it is free")
}

async fn is_held(leases: &Faulty) -> bool {
    leases.inner().inspect(&account()).await.unwrap().is_some_and(|entry| entry.lease_left.is_some())
}

async fn eventually_free(leases: &Faulty) {
    let freed = async {
        while is_held(leases).await {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, freed).await.expect("freed");
}

/// The store takes the lease from its holder, who does not know it, and another one has it now.
async fn taken_over(leaser: &Leaser<Faulty>, leases: &Faulty, held: &HeldLease<Faulty>) -> HeldLease<Faulty> {
    let nonce = held.ticket().unwrap().holder.unwrap();
    leases.inner().abandon(&account(), nonce, Duration::ZERO).await.unwrap();
    take(leaser).await
}

mod taking {
    use super::*;

    #[tokio::test]
    async fn a_lease_is_held_until_it_is_released() {
        let (leaser, _) = leaser(settings());
        let held = take(&leaser).await;
        let Taken::Held { lease_left } = leaser.try_acquire(&account()).await.unwrap() else { panic!("two have it") };
        assert!(lease_left <= LEASE);
        let first = held.token().unwrap();
        assert_eq!(held.release().await.unwrap(), Released::Released);
        assert!(take(&leaser).await.token().unwrap() > first);
    }

    #[tokio::test]
    async fn case_50_an_asking_whose_reply_was_lost_is_its_own_when_it_comes_again() {
        let leases = FaultyStore::new(MemoryLeases::new());
        leases.next(Op::TryAcquire, Fault::LoseReply);
        let lease = Lease::new(LEASE).unwrap();
        let ask = Ask { resource: account(), nonce: Nonce::random(), lease, above: None };
        leases.try_acquire(&ask).await.unwrap_err();
        let token = leases.inner().inspect(&account()).await.unwrap().unwrap().token;
        let Acquired::Granted(grant) = leases.try_acquire(&ask).await.unwrap() else { panic!("our own lease") };
        assert_eq!(Some(grant.token), token);
    }

    #[tokio::test]
    async fn a_broken_connection_gets_one_safe_retry() {
        let (leaser, leases) = leaser(settings());
        leases.next(Op::TryAcquire, Fault::Disconnect);
        drop(take(&leaser).await);
        assert_eq!((leases.calls(Op::TryAcquire), leases.calls(Op::Abandon)), (2, 0));
        assert!(leaser.drain(PATIENCE).await);

        leases.next(Op::TryAcquire, Fault::Disconnect);
        leases.next(Op::TryAcquire, Fault::Disconnect);
        let error = leaser.try_acquire(&account()).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Unavailable);
        assert!(leaser.drain(PATIENCE).await);
        assert_eq!(leases.calls(Op::Abandon), 1);
    }

    #[tokio::test]
    async fn a_grant_that_is_given_up_by_the_store_itself_is_not_asked_for_without_end() {
        let spy = Spy { is_unreplicated: true, ..Spy::default() };
        let leaser = Leaser::new(spy.clone(), settings());
        let asked = timeout(PATIENCE, leaser.acquire(&account(), PATIENCE)).await.expect("it ends");
        assert_eq!(asked.unwrap_err().kind(), StoreErrorKind::Unavailable);
        assert_eq!(spy.asked.lock().unwrap().len(), 2);
    }

    #[tokio::test]
    async fn an_asking_whose_reply_was_lost_keeps_nobody_out() {
        for fault in [Fault::LoseReply, Fault::StallReply] {
            let (leaser, leases) = leaser(settings());
            leases.next(Op::TryAcquire, fault);
            assert_eq!(leaser.try_acquire(&account()).await.unwrap_err().kind(), StoreErrorKind::Timeout);
            assert!(is_held(&leases).await || leases.calls(Op::Abandon) > 0);
            let started = Instant::now();
            eventually_free(&leases).await;
            assert!(started.elapsed() < LEASE, "freed by its abandon and not by its lease");
            take(&leaser).await;
        }
    }

    #[tokio::test]
    async fn abandoning_goes_on_until_the_store_answers() {
        let (leaser, leases) = leaser(settings());
        leases.next(Op::TryAcquire, Fault::StallReply);
        for fault in [Fault::Fail, Fault::LoseReply, Fault::Stall, REFUSED] {
            leases.next(Op::Abandon, fault);
        }
        leaser.try_acquire(&account()).await.unwrap_err();
        assert!(leaser.drain(PATIENCE).await, "a drain waits for it");
        assert_eq!(leases.calls(Op::Abandon), 5);
        assert!(!is_held(&leases).await);
    }

    /// What it may have been granted has ended by itself by then.
    #[tokio::test(start_paused = true)]
    async fn abandoning_ends_when_nothing_can_be_held_any_more() {
        let (leaser, leases) = leaser(settings());
        leases.always(Op::TryAcquire, Fault::StallReply);
        leases.always(Op::Abandon, Fault::Fail);
        for _ in 0..100 {
            leaser.try_acquire(&account()).await.unwrap_err();
        }
        assert!(!leaser.drain(Duration::from_secs(30)).await, "copies may come");
        assert!(leaser.drain(Duration::from_secs(40)).await);
    }

    #[tokio::test]
    async fn a_ghost_that_is_carried_out_after_the_timeout_holds_nothing() {
        let (leaser, leases) = leaser(settings());
        leases.next(Op::TryAcquire, Fault::Late(Duration::from_millis(200)));
        leaser.try_acquire(&account()).await.unwrap_err();
        assert!(leaser.drain(PATIENCE).await);
        sleep(Duration::from_millis(250)).await; // the ghost comes
        assert!(!is_held(&leases).await, "its nonce is dead");
    }

    #[tokio::test]
    async fn a_future_dropped_while_it_asks_keeps_nobody_out() {
        let (leaser, leases) = leaser(settings());
        leases.next(Op::TryAcquire, Fault::LateReply(Duration::from_millis(80)));
        assert!(timeout(Duration::from_millis(20), leaser.try_acquire(&account())).await.is_err(), "cancelled");
        assert!(leaser.drain(PATIENCE).await);
        assert!(!is_held(&leases).await);
        assert_eq!(leases.calls(Op::Abandon), 1);
    }

    #[tokio::test]
    async fn a_store_that_was_busy_has_nothing_to_abandon() {
        let (leaser, leases) = leaser(settings());
        leases.next(Op::TryAcquire, Fault::Fail);
        assert_eq!(leaser.try_acquire(&account()).await.unwrap_err().kind(), StoreErrorKind::Busy);
        assert!(leaser.drain(PATIENCE).await);
        assert_eq!(leases.calls(Op::Abandon), 0);
    }

    #[tokio::test]
    async fn a_grant_that_arrives_after_its_lease_is_not_handed_out() {
        let (leaser, leases) = leaser(settings().store_timeout(PATIENCE).unwrap());
        leases.next(Op::TryAcquire, Fault::LateReply(LEASE + Duration::from_millis(50))); // as if this process had stood still
        assert_eq!(leaser.try_acquire(&account()).await.unwrap_err().kind(), StoreErrorKind::Timeout);
        assert!(leaser.drain(PATIENCE).await);
        assert_eq!(leases.calls(Op::Abandon), 1);
        take(&leaser).await;
    }

    #[tokio::test]
    async fn case_83_every_acquire_ends_in_time_while_the_store_comes_and_goes() {
        let (leaser, leases) = leaser(settings());
        let mut last = FencingToken::new(1).unwrap();
        let mut granted = 0;
        for round in 0..20 {
            let faults = [Fault::Stall, Fault::StallReply, Fault::LoseReply, Fault::Disconnect];
            for op in [Op::TryAcquire, Op::Renew, Op::Release, Op::Abandon] {
                leases.always(op, faults[round % faults.len()]);
            }
            let cut = timeout(Duration::from_secs(5), leaser.acquire(&account(), Duration::from_millis(50))).await;
            assert!(cut.expect("it ended in time").is_err());
            leases.heal();
            let account = account();
            let healed = leaser.acquire(&account, Duration::from_secs(4));
            let taken = timeout(Duration::from_secs(5), healed).await.expect("it ended in time").unwrap();
            let held = taken.yours().expect("nobody has it for long");
            assert!(held.token().unwrap() > last);
            last = held.token().unwrap();
            granted += usize::from(held.release().await.unwrap() == Released::Released);
        }
        assert_eq!(granted, 20);
    }
}

mod waiting {
    use super::*;

    #[tokio::test]
    async fn whoever_waits_has_it_when_it_is_released() {
        let (leaser, leases) = leaser(settings());
        let held = take(&leaser).await;
        let waiting = tokio::spawn({
            let leaser = leaser.clone();
            async move { leaser.acquire(&account(), PATIENCE).await.unwrap().yours() }
        });
        sleep(Duration::from_millis(50)).await;
        held.release().await.unwrap();
        let next = timeout(Duration::from_secs(2), waiting).await.unwrap().unwrap().expect("it was released");
        assert!(!next.is_lost());
        assert!(leases.calls(Op::TryAcquire) > 2, "it asked more than once");
        assert_eq!(leases.calls(Op::Abandon), 0);
    }

    #[tokio::test]
    async fn waiting_is_bounded() {
        let (leaser, leases) = leaser(settings());
        let _held = take(&leaser).await;
        let started = Instant::now();
        let waited = leaser.acquire(&account(), Duration::from_millis(100)).await.unwrap();
        assert!(matches!(waited, Taken::Held { .. }));
        assert!(started.elapsed() >= Duration::from_millis(100) && started.elapsed() < PATIENCE);
        assert_eq!(leases.calls(Op::Abandon), 0, "nothing was granted, so nothing is abandoned");
    }

    #[tokio::test]
    async fn a_wait_of_any_length_can_be_asked_for() {
        let (leaser, _) = leaser(settings());
        assert!(leaser.acquire(&account(), Duration::MAX).await.unwrap().yours().is_some());
    }

    #[tokio::test]
    async fn case_80_after_a_long_wait_next_to_all_of_the_lease_is_left() {
        let (leaser, _) = leaser(settings());
        let brief = leaser.with_settings(settings().without_renewal());
        let _held = take(&brief).await; // for one lease, and never released
        let started = Instant::now();
        let next = leaser.acquire(&account(), PATIENCE).await.unwrap().yours().expect("it ended");
        assert!(started.elapsed() >= LEASE / 2, "it waited");
        let left = next.time_left();
        assert!(left > LEASE * 2 / 3 && left <= LEASE, "{left:?} of {LEASE:?}");
        assert!(next.token().is_ok());
    }

    #[tokio::test]
    async fn whoever_waits_is_the_same_asker_at_every_asking() {
        let spy = Spy::default();
        let leaser = Leaser::new(spy.clone(), settings());
        let held = take(&leaser).await;
        let (leaser, account) = (&leaser, account());
        let waits = async { leaser.acquire(&account, PATIENCE).await.map(drop) };
        let has_asked = async {
            while spy.asked.lock().unwrap().len() < 4 {
                sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::select! {
            waited = waits => panic!("it was given the lease: {waited:?}"),
            () = has_asked => {}
        }
        drop(held);
        let asked = spy.asked.lock().unwrap().clone();
        assert!(asked[1..].iter().all(|nonce| *nonce == asked[1]), "{asked:?}");
        assert_ne!(asked[0], asked[1]);
    }

    /// Its connection broke, the second try met another holder, and the first comes when nobody asks any more.
    #[tokio::test]
    async fn a_first_try_that_arrives_after_the_asking_was_given_up_holds_nothing() {
        for is_dropped in [false, true] {
            let (leaser, leases) = leaser(settings());
            let held = take(&leaser).await;
            leases.next(Op::TryAcquire, Fault::DisconnectLate(Duration::from_millis(150)));
            let account = account();
            let asking = leaser.acquire(&account, if is_dropped { PATIENCE } else { Duration::ZERO });
            let asked = timeout(Duration::from_millis(50), asking).await;
            assert_eq!(asked.is_err(), is_dropped, "{asked:?}");
            if let Ok(asked) = asked {
                assert!(matches!(asked.unwrap(), Taken::Held { .. }));
            }
            held.release().await.unwrap();
            assert!(leaser.drain(PATIENCE).await);
            sleep(Duration::from_millis(200)).await; // the first try comes
            assert!(!is_held(&leases).await, "its nonce is dead");
        }
    }

    /// And to one who still waits it brings the lease, under the nonce it waits with.
    #[tokio::test]
    async fn a_first_try_that_arrives_while_its_asker_waits_is_its_own() {
        let (leaser, leases) = leaser(settings());
        leases.always(Op::Watch, Fault::Fail);
        let held = take(&leaser).await;
        leases.next(Op::TryAcquire, Fault::DisconnectLate(Duration::from_millis(100)));
        let waiting = tokio::spawn({
            let leaser = leaser.clone();
            async move { leaser.acquire(&account(), PATIENCE).await.unwrap().yours().expect("its own") }
        });
        sleep(Duration::from_millis(80)).await;
        held.release().await.unwrap();
        let next = waiting.await.unwrap();
        sleep(Duration::from_millis(50)).await;
        assert!(next.still_held().await.unwrap());
        assert_eq!(next.release().await.unwrap(), Released::Released);
        assert!(!is_held(&leases).await);
    }

    /// The second try was granted, the lease went to another holder, and the first comes when that one has gone.
    #[tokio::test]
    async fn a_first_try_that_arrives_after_the_lease_was_lost_holds_nothing() {
        let (leaser, leases) = leaser(settings());
        leases.next(Op::TryAcquire, Fault::DisconnectLate(Duration::from_millis(200)));
        let held = take(&leaser).await;
        let other = taken_over(&leaser, &leases, &held).await;
        assert_eq!(held.release().await.unwrap(), Released::NotHeld);
        assert_eq!(other.release().await.unwrap(), Released::Released);
        assert!(leaser.drain(PATIENCE).await);
        sleep(Duration::from_millis(250)).await; // the first try comes
        assert!(!is_held(&leases).await, "its nonce is dead");
    }

    #[tokio::test]
    async fn a_nonce_whose_askings_were_all_answered_is_not_remembered() {
        let spy = Spy::default();
        let leaser = Leaser::new(spy.clone(), settings());
        take(&leaser).await.release().await.unwrap();
        assert_eq!(*spy.dead_for.lock().unwrap(), [Duration::ZERO]);
    }

    #[tokio::test]
    async fn a_nonce_with_an_asking_that_may_come_late_is_dead_for_long() {
        let spy = Spy { break_next: Arc::new(Mutex::new(true)), ..Spy::default() };
        let leaser = Leaser::new(spy.clone(), settings());
        take(&leaser).await.release().await.unwrap();
        assert_eq!(spy.asked.lock().unwrap().len(), 2);
        assert!(spy.dead_for.lock().unwrap()[0] >= Duration::from_secs(60));
    }
}

mod keeping {
    use super::*;

    #[tokio::test]
    async fn a_lease_is_renewed_while_its_guard_lives() {
        let (leaser, leases) = leaser(settings());
        let held = take(&leaser).await;
        let token = held.token().unwrap();
        sleep(LEASE * 3).await;
        assert!(!held.is_lost());
        assert!(leases.calls(Op::Renew) >= 3);
        assert_eq!(held.token().unwrap(), token);
        assert!(matches!(leaser.try_acquire(&account()).await.unwrap(), Taken::Held { .. }));
    }

    #[tokio::test]
    async fn a_ticket_says_whose_token_it_is() {
        let (leaser, _) = leaser(settings());
        let held = take(&leaser).await;
        let ticket = held.ticket().unwrap();
        assert_eq!((ticket.token, ticket.source), (held.token().unwrap(), TokenSource::LEASES));
        assert!(ticket.holder.is_some());
        assert_eq!(held.view().ticket().unwrap(), ticket);
        held.release().await.unwrap();
        assert_ne!(take(&leaser).await.ticket().unwrap().holder, ticket.holder);
    }

    #[tokio::test]
    async fn a_renewal_that_fails_once_is_not_a_loss() {
        let (leaser, leases) = leaser(settings());
        leases.next(Op::Renew, Fault::Fail);
        leases.next(Op::Renew, Fault::LoseReply);
        let held = take(&leaser).await;
        sleep(LEASE * 2).await;
        assert!(!held.is_lost() && held.still_held().await.unwrap());
    }

    #[tokio::test]
    async fn a_loss_is_told_at_the_next_renewal() {
        let (leaser, leases) = leaser(settings());
        let held = take(&leaser).await;
        let view = held.view();
        let nonce = held.ticket().unwrap().holder.unwrap();
        leases.inner().abandon(&account(), nonce, LEASE).await.unwrap(); // as if the store had lost it
        let started = Instant::now();
        timeout(LEASE, view.lost()).await.expect("told before the lease ends");
        assert!(started.elapsed() < LEASE * 2 / 3);
        assert_eq!((held.token(), view.token()), (Err(LeaseLost), Err(LeaseLost)));
        assert!(view.ticket().is_err() && view.time_left().is_zero() && view.is_lost());
        assert!(!held.still_held().await.unwrap());
    }

    #[tokio::test]
    async fn case_79_a_holder_that_stood_still_learns_that_another_one_came_and_went() {
        let (leaser, leases) = leaser(settings());
        let first = take(&leaser).await;
        leases.always(Op::Renew, Fault::Stall); // as if it stood still
        let old = first.token().unwrap();
        first.lost().await;
        let second = leaser.acquire(&account(), PATIENCE).await.unwrap().yours().expect("it ended");
        assert!(second.token().unwrap() > old);
        second.release().await.unwrap();
        leases.heal();

        assert!(!first.still_held().await.unwrap(), "a late renewal takes nothing");
        assert_eq!(first.token(), Err(LeaseLost));
        assert!(!is_held(&leases).await);
        assert_eq!(first.release().await.unwrap(), Released::NotHeld);
    }

    #[tokio::test]
    async fn case_82_a_holder_cut_off_from_the_store_is_told_at_its_leases_end() {
        let (leaser, leases) = leaser(settings());
        let held = take(&leaser).await;
        leases.always(Op::Renew, Fault::Fail);
        let mut calls = 0;
        let started = Instant::now();
        let work = async {
            loop {
                sleep(Duration::from_millis(20)).await;
                // Each call to the outside asks for its token right before.
                let Ok(_token) = held.token() else { return };
                calls += 1;
            }
        };
        timeout(LEASE * 3, work).await.expect("it noticed");
        assert!(started.elapsed() < LEASE * 2 && calls > 0);
        timeout(Duration::from_millis(50), held.lost()).await.expect("told");

        leases.heal();
        sleep(LEASE).await;
        assert!(held.is_lost(), "what is lost stays lost");
        take(&leaser).await;
    }

    #[tokio::test]
    async fn a_renewal_that_is_answered_after_the_end_revives_nothing() {
        let (leaser, leases) = leaser(settings().store_timeout(PATIENCE).unwrap());
        leases.next(Op::Renew, Fault::LateReply(LEASE * 2));
        let held = take(&leaser).await;
        held.lost().await;
        sleep(LEASE * 2).await;
        assert!(held.is_lost());
        assert_eq!(leases.calls(Op::Renew), 1);
    }

    #[tokio::test]
    async fn max_hold_ends_the_renewal_of_work_that_never_ends() {
        let (leaser, leases) = leaser(settings().max_hold(LEASE).unwrap());
        let held = take(&leaser).await;
        timeout(LEASE * 4, held.lost()).await.expect("lost a lease after max hold");
        eventually_free(&leases).await;
    }

    #[tokio::test]
    async fn without_renewal_it_ends_with_its_lease() {
        let (leaser, leases) = leaser(settings().without_renewal());
        let held = take(&leaser).await;
        timeout(LEASE * 2, held.lost()).await.expect("it ended");
        assert_eq!(leases.calls(Op::Renew), 0);
        assert!(held.token().is_err());
    }
}

mod giving_back {
    use super::*;

    #[tokio::test]
    async fn a_dropped_lease_is_given_back() {
        let (leaser, leases) = leaser(settings());
        let held = take(&leaser).await;
        let view = held.view();
        drop(held);
        assert!(view.is_lost(), "at once");
        assert!(leaser.drain(PATIENCE).await);
        assert!(!is_held(&leases).await);
        assert_eq!(leases.calls(Op::Release), 1);
        sleep(LEASE).await;
        assert_eq!(leases.calls(Op::Renew), 0, "and renewed no more");
    }

    #[tokio::test]
    async fn a_release_that_nobody_knows_of_goes_on_in_the_background() {
        for fault in [Fault::Fail, Fault::LoseReply, Fault::Stall, Fault::StallReply, Fault::Disconnect, REFUSED] {
            let (leaser, leases) = leaser(settings());
            let held = take(&leaser).await;
            leases.next(Op::Release, fault);
            held.release().await.unwrap_err();
            assert!(leaser.drain(PATIENCE).await);
            assert!(!is_held(&leases).await, "{fault:?}");
            assert_eq!(leases.calls(Op::Release), 2, "{fault:?}");
        }
    }

    #[tokio::test]
    async fn there_is_no_token_once_the_release_was_sent() {
        let (leaser, leases) = leaser(settings());
        let held = take(&leaser).await;
        let view = held.view();
        leases.next(Op::Release, Fault::LateReply(Duration::from_millis(80)));
        let release = tokio::spawn(held.release());
        let next = leaser.acquire(&account(), PATIENCE).await.unwrap().yours().expect("it was given back");
        assert!(!release.is_finished(), "its answer is on the way");
        assert_eq!(view.token(), Err(LeaseLost), "somebody else has it by now");
        view.lost().await;
        assert_eq!(release.await.unwrap().unwrap(), Released::Released);
        assert!(next.still_held().await.unwrap());
    }

    #[tokio::test]
    async fn a_release_that_is_dropped_goes_on_in_the_background() {
        let (leaser, leases) = leaser(settings());
        let held = take(&leaser).await;
        leases.next(Op::Release, Fault::Stall);
        assert!(timeout(Duration::from_millis(20), held.release()).await.is_err(), "cancelled");
        assert!(leaser.drain(PATIENCE).await);
        assert!(!is_held(&leases).await);
    }

    #[tokio::test]
    async fn nobody_goes_on_after_the_lease_is_surely_over() {
        let (leaser, leases) = leaser(settings());
        let held = take(&leaser).await;
        leases.always(Op::Release, Fault::Stall);
        held.release().await.unwrap_err();
        assert!(!leaser.drain(LEASE / 2).await, "something is left");
        assert!(leaser.drain(LEASE * 4).await, "not for ever");
        take(&leaser).await;
    }

    #[tokio::test]
    async fn a_late_release_frees_nobody_else() {
        let (leaser, leases) = leaser(settings().without_renewal());
        let first = take(&leaser).await;
        first.lost().await;
        let second = leaser.acquire(&account(), PATIENCE).await.unwrap().yours().expect("it ended");
        drop(first);
        assert!(leaser.drain(PATIENCE).await);
        assert!(is_held(&leases).await && second.still_held().await.unwrap());
    }

    #[tokio::test]
    async fn a_guard_dropped_outside_a_runtime_is_left_to_its_lease() {
        let leases = FaultyStore::new(MemoryLeases::new());
        let leaser = Leaser::new(leases.clone(), settings());
        let held = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(take(&leaser))
        });
        let held = held.join().unwrap();
        std::thread::spawn(move || drop(held)).join().unwrap();
        assert!(is_held(&leases).await);
        eventually_free(&leases).await;
    }
}

mod raising {
    use super::*;

    fn ahead(of: FencingToken, by: Duration) -> FencingToken {
        FencingToken::new(of.get() + u64::try_from(by.as_micros()).unwrap()).unwrap()
    }

    #[tokio::test]
    async fn a_holder_is_raised_above_what_a_fence_has_seen() {
        let (leaser, leases) = leaser(settings());
        let held = take(&leaser).await;
        let (view, before) = (held.view(), held.ticket().unwrap());
        let seen = ahead(before.token, TOKEN_HOLD / 2);
        let raised = held.raise_above(seen).await.unwrap();
        assert!(raised > seen);
        assert_eq!((held.token(), view.token()), (Ok(raised), Ok(raised)));
        assert_eq!(view.ticket().unwrap().holder, before.holder);
        sleep(LEASE * 2).await;
        assert!(held.still_held().await.unwrap(), "its renewals name the new token");
        assert_eq!(held.release().await.unwrap(), Released::Released);
        assert!(!is_held(&leases).await);
        assert!(take(&leaser).await.token().unwrap() > raised);
    }

    #[tokio::test]
    async fn a_raise_whose_reply_was_lost_is_no_loss_of_the_lease() {
        let (leaser, leases) = leaser(settings());
        let held = take(&leaser).await;
        let before = held.token().unwrap();
        leases.next(Op::TryAcquire, Fault::LoseReply);
        assert!(matches!(held.raise_above(before).await, Err(RaiseError::Store(_))));
        sleep(LEASE * 2).await;
        assert!(held.still_held().await.unwrap(), "the next renewal found out");
        assert!(held.token().unwrap() > before);
    }

    #[tokio::test]
    async fn a_lease_whose_token_is_not_known_is_given_back() {
        let (leaser, leases) = leaser(settings());
        let held = take(&leaser).await;
        leases.next(Op::TryAcquire, Fault::LoseReply);
        held.raise_above(held.token().unwrap()).await.unwrap_err();
        assert_eq!(held.release().await.unwrap(), Released::Released);
        assert!(!is_held(&leases).await);
    }

    #[tokio::test]
    async fn a_raise_that_is_carried_out_after_the_release_holds_nothing() {
        let (leaser, leases) = leaser(settings());
        let held = take(&leaser).await;
        leases.next(Op::TryAcquire, Fault::Late(Duration::from_millis(200)));
        assert!(matches!(held.raise_above(held.token().unwrap()).await, Err(RaiseError::Store(_))));
        held.raise_above(held.token().unwrap()).await.unwrap(); // answered, while the first one is on its way
        assert_eq!(held.release().await.unwrap(), Released::Released);
        sleep(Duration::from_millis(250)).await; // the ghost comes
        assert!(!is_held(&leases).await, "its nonce is dead");
    }

    /// It was late, the second one met another holder, and the first comes when that one has gone.
    #[tokio::test]
    async fn a_raise_that_is_carried_out_after_the_lease_was_lost_holds_nothing() {
        for is_released in [true, false] {
            let (leaser, leases) = leaser(settings().lease(Lease::new(PATIENCE).unwrap()).without_renewal());
            let held = take(&leaser).await;
            let ticket = held.ticket().unwrap();
            leases.next(Op::TryAcquire, Fault::Late(Duration::from_millis(300)));
            assert!(matches!(held.raise_above(ticket.token).await, Err(RaiseError::Store(_))));
            let other = taken_over(&leaser, &leases, &held).await;
            assert!(matches!(held.raise_above(ticket.token).await, Err(RaiseError::Lost(LeaseLost))));
            if is_released {
                assert_eq!(held.release().await.unwrap(), Released::NotHeld);
            } else {
                drop(held);
            }
            assert_eq!(other.release().await.unwrap(), Released::Released);
            assert!(leaser.drain(PATIENCE).await);
            sleep(Duration::from_millis(350)).await; // the ghost comes
            assert!(!is_held(&leases).await, "its nonce is dead");
        }
    }

    #[tokio::test]
    async fn nobody_comes_by_a_lease_by_raising_its_token() {
        let (leaser, leases) = leaser(settings().without_renewal().store_timeout(PATIENCE).unwrap());
        let held = take(&leaser).await;
        let ticket = held.ticket().unwrap();
        // The store lost it, so this asking is granted as a new one; and its answer comes when the lease we know of is over.
        leases.inner().abandon(&account(), ticket.holder.unwrap(), Duration::ZERO).await.unwrap();
        sleep(LEASE / 2).await;
        leases.next(Op::TryAcquire, Fault::LateReply(LEASE * 2 / 3));
        assert!(matches!(held.raise_above(ticket.token).await, Err(RaiseError::Lost(LeaseLost))));
        assert!(is_held(&leases).await, "nobody knows that it has it");
        assert_eq!(held.token(), Err(LeaseLost));
        drop(held);
        assert!(leaser.drain(PATIENCE).await);
        assert!(!is_held(&leases).await);
    }

    #[tokio::test]
    async fn somebody_else_has_it_so_nothing_is_raised() {
        let (leaser, leases) = leaser(settings());
        let held = take(&leaser).await;
        let ticket = held.ticket().unwrap();
        let other = taken_over(&leaser, &leases, &held).await;
        assert!(matches!(held.raise_above(ticket.token).await, Err(RaiseError::Lost(LeaseLost))));
        assert!(held.is_lost() && other.still_held().await.unwrap());
    }

    #[tokio::test]
    async fn a_token_from_the_far_future_is_refused() {
        let (leaser, _) = leaser(settings());
        let held = take(&leaser).await;
        let before = held.token().unwrap();
        let Err(RaiseError::Store(error)) = held.raise_above(ahead(before, TOKEN_HOLD * 2)).await else {
            panic!("raised to the far future")
        };
        assert_eq!(error.kind(), StoreErrorKind::Refused);
        assert_eq!(held.token(), Ok(before));
        assert!(held.still_held().await.unwrap());
    }
}

mod loose {
    use super::*;

    #[tokio::test]
    async fn a_loose_lease_is_taken_kept_and_given_back_like_another() {
        let leases = FaultyStore::new(MemoryLeases::new());
        let loose = LooseLeases::new(leases.clone(), settings());
        let held = loose.try_acquire(&account()).await.unwrap().yours().expect("it is free");
        assert!(matches!(loose.acquire(&account(), LEASE * 2).await.unwrap(), Taken::Held { .. }));
        assert!(held.still_held().await.unwrap() && !held.is_lost() && held.time_left() <= LEASE);
        assert!(!format!("{held:?}").contains("oken"));
        assert_eq!(held.release().await.unwrap(), Released::Released);

        let dropped = loose.acquire(&account(), LEASE).await.unwrap();
        drop(dropped);
        assert!(loose.drain(PATIENCE).await);
        assert!(!is_held(&leases).await);

        let cut_off = loose.try_acquire(&account()).await.unwrap().yours().expect("it is free again");
        leases.always(Op::Renew, Fault::Stall);
        timeout(LEASE * 2, cut_off.lost()).await.expect("told");
    }
}

mod hints {
    use super::*;

    /// With a lease that is not what wakes them.
    fn patient() -> (Leaser<Faulty>, Faulty) {
        leaser(settings().lease(Lease::new(Duration::from_secs(3600)).unwrap()))
    }

    async fn taker(leaser: &Leaser<Faulty>) -> tokio::task::JoinHandle<HeldLease<Faulty>> {
        let leaser = leaser.clone();
        let taking =
            async move { leaser.acquire(&account(), Duration::from_secs(600)).await.unwrap().yours().unwrap() };
        let taking = tokio::spawn(taking);
        // Long before one who is told asks again.
        sleep(Duration::from_millis(400)).await;
        taking
    }

    #[tokio::test(start_paused = true)]
    async fn a_taker_is_told_when_the_lease_is_given_back() {
        let (leaser, leases) = patient();
        let first = take(&leaser).await;
        assert_eq!(leases.calls(Op::Watch), 0);
        let taking = taker(&leaser).await;
        assert_eq!(leases.calls(Op::TryAcquire), 1 + 2, "it asked, and once more when it had begun to listen");
        let since = tokio::time::Instant::now();
        first.release().await.unwrap();
        let second = taking.await.unwrap();
        assert_eq!((leases.calls(Op::TryAcquire), leases.calls(Op::Watch)), (1 + 3, 1));
        assert_eq!(since.elapsed(), Duration::ZERO, "no time has to pass for it");
        second.release().await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_hint_that_never_comes_costs_a_poll() {
        let (leaser, leases) = patient();
        leases.always(Op::Watch, Fault::Stall);
        let first = take(&leaser).await;
        let taking = taker(&leaser).await;
        let since = tokio::time::Instant::now();
        first.release().await.unwrap();
        taking.await.unwrap().release().await.unwrap();
        assert!(since.elapsed() <= Duration::from_secs(1));
        assert_eq!(leases.calls(Op::TryAcquire), 1 + 3);
    }

    #[tokio::test(start_paused = true)]
    async fn without_hints_it_is_asked_every_so_often() {
        let (leaser, leases) = patient();
        leases.always(Op::Watch, Fault::Fail);
        let first = take(&leaser).await;
        let taking = taker(&leaser).await;
        assert!(leases.calls(Op::TryAcquire) > 1 + 4);
        first.release().await.unwrap();
        taking.await.unwrap().release().await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn many_who_are_told_take_it_one_after_the_other() {
        const TAKERS: usize = 20;
        let (leaser, _) = patient();
        let first = take(&leaser).await;
        let mut takers = tokio::task::JoinSet::new();
        for _ in 0..TAKERS {
            let leaser = leaser.clone();
            takers.spawn(async move {
                let taken = leaser.acquire(&account(), Duration::from_secs(600)).await.unwrap();
                let lease = taken.yours().unwrap();
                let token = lease.token().unwrap();
                sleep(Duration::from_millis(1)).await;
                lease.release().await.unwrap();
                token
            });
        }
        sleep(Duration::from_millis(10)).await;
        first.release().await.unwrap();
        let tokens = takers.join_all().await;
        let different: std::collections::BTreeSet<_> = tokens.iter().collect();
        assert_eq!(different.len(), TAKERS);
    }

    /// Whatever a store tells, and however often, is worth no more askings than there are without.
    #[tokio::test(start_paused = true)]
    async fn a_storm_of_hints_is_no_busy_loop() {
        let (leaser, leases) = patient();
        let first = take(&leaser).await;
        let taking = taker(&leaser).await;
        let before = leases.calls(Op::TryAcquire);
        for _ in 0..10_000 {
            // Gives up what nobody has asked for, and so changes nothing.
            leases.inner().abandon(&account(), Nonce::random(), Duration::ZERO).await.unwrap();
            sleep(Duration::from_millis(1)).await;
        }
        // The first five pauses are shorter than 125 ms, and no later one.
        assert!(leases.calls(Op::TryAcquire) - before <= 5 + 1 + 10_000 / 125, "{}", leases.calls(Op::TryAcquire));
        first.release().await.unwrap();
        taking.await.unwrap().release().await.unwrap();
    }
}

#[tokio::test]
async fn a_sweeper_forgets_in_the_background() {
    let (leaser, leases) = leaser(settings());
    let _sweeper = Sweeper::of_leases(&leaser, Duration::from_millis(10));
    take(&leaser).await.release().await.unwrap();
    let gone = async {
        while !leases.inner().is_empty() {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, gone).await.expect("swept");
    assert_eq!(leaser.inspect(&account()).await.unwrap(), None);
}

/// Notes who asks, and for how long a released nonce is dead.
#[derive(Clone, Debug, Default)]
struct Spy {
    leases: MemoryLeases,
    asked: Arc<Mutex<Vec<Nonce>>>,
    dead_for: Arc<Mutex<Vec<Duration>>>,
    /// The next asking's connection breaks after it was sent.
    break_next: Arc<Mutex<bool>>,
    /// Gives up all that it grants, as leases do whose replicas are away.
    is_unreplicated: bool,
}

impl Leases for Spy {
    async fn try_acquire(&self, ask: &Ask) -> Result<Acquired, StoreError> {
        self.asked.lock().unwrap().push(ask.nonce);
        let acquired = self.leases.try_acquire(ask).await;
        if std::mem::take(&mut *self.break_next.lock().unwrap()) {
            return Err(StoreError::new(StoreErrorKind::Unavailable, "made to break"));
        }
        if self.is_unreplicated && matches!(acquired, Ok(Acquired::Granted(_))) {
            tokio::task::yield_now().await; // so that a timeout can end who asks for ever
            self.leases.abandon(&ask.resource, ask.nonce, Duration::from_secs(60)).await?;
            return Err(StoreError::new(StoreErrorKind::Unavailable, "too few replicas have it"));
        }
        acquired
    }

    async fn renew(&self, holder: &LeaseHolder, lease: Lease) -> Result<Settled, StoreError> {
        self.leases.renew(holder, lease).await
    }

    async fn release(&self, holder: &LeaseHolder, dead_for: Duration) -> Result<Settled, StoreError> {
        self.dead_for.lock().unwrap().push(dead_for);
        self.leases.release(holder, dead_for).await
    }

    async fn abandon(&self, resource: &Resource, nonce: Nonce, dead_for: Duration) -> Result<(), StoreError> {
        self.leases.abandon(resource, nonce, dead_for).await
    }

    async fn inspect(&self, resource: &Resource) -> Result<Option<LeaseEntry>, StoreError> {
        self.leases.inspect(resource).await
    }

    async fn sweep(&self, limit: usize) -> Result<usize, StoreError> {
        self.leases.sweep(limit).await
    }
}
