//! Claiming, keeping and settling, over an in-process store that misbehaves on command.
#![expect(clippy::unwrap_used, reason = "a test fails loudly")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use idempotency::faults::{Fault, FaultyStore, Op};
use idempotency::{
    Answer, Claim, Claimed, Engine, Entry, Fingerprint, Held, Holder, InFlight, Key, Lease, Life, List, Nonce,
    Operation, Outcome, Page, RecordId, Recorded, Recovery, Resolve, ResolveVerdict, Resolved, ScopeId, Settings,
    Settled, State, Store, StoreError, StoreErrorKind, Sweeper, Swept, Windows,
};
use idempotency_memory::MemoryStore;
use tokio::time::{sleep, timeout};

type Faulty = FaultyStore<MemoryStore>;

const LEASE: Duration = Duration::from_millis(300);

/// As a store does whose password is being changed: it may not last.
const REFUSED: Fault = Fault::FailAs(StoreErrorKind::Refused);
const UNREADABLE: Fault = Fault::FailAs(StoreErrorKind::Unreadable);

fn settings() -> Settings {
    let lease = Lease::new(LEASE).unwrap();
    Settings::default().lease(lease).store_timeout(Duration::from_millis(100)).unwrap()
}

fn rerun() -> Settings {
    settings().life(Life::new(Recovery::Rerun, Windows::default()))
}

fn engine(settings: Settings) -> (Engine<Faulty>, Faulty) {
    let store = FaultyStore::new(MemoryStore::new());
    (Engine::new(store.clone(), settings), store)
}

fn operation(key: &str) -> Operation {
    Operation::new(ScopeId::global(), Key::parse(key).unwrap(), Fingerprint::of(["body"]))
}

fn outcome() -> Outcome {
    Outcome::new(201, Bytes::from_static(b"done"))
}

async fn claim(engine: &Engine<Faulty>, key: &str) -> Answer<Faulty> {
    engine.claim(&operation(key)).await.unwrap()
}

async fn granted(engine: &Engine<Faulty>, key: &str) -> Held<Faulty> {
    match claim(engine, key).await {
        Answer::Run(held) => held,
        Answer::DoNot(claimed) => panic!("not granted: {claimed:?}"),
    }
}

async fn state(store: &Faulty, key: &str) -> Option<State> {
    let id = RecordId::new(&ScopeId::global(), &Key::parse(key).unwrap());
    store.inner().inspect(&id).await.unwrap().map(|entry| entry.state)
}

async fn eventually(store: &Faulty, key: &str, wanted: State) {
    let reached = async {
        while state(store, key).await != Some(wanted) {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(Duration::from_secs(10), reached).await.unwrap_or_else(|_| panic!("never {wanted:?}"));
}

#[tokio::test]
async fn a_running_attempt_is_renewed_past_its_lease() {
    let (engine, store) = engine(settings());
    let held = granted(&engine, "k").await;
    sleep(LEASE * 3).await;
    assert!(!held.attempt().is_lost());
    assert!(store.calls(Op::Renew) >= 3);
    assert!(matches!(claim(&engine, "k").await, Answer::DoNot(Claimed::InFlight { .. })));
    assert!(matches!(held.complete(outcome()).await, Recorded::Applied));
    assert!(matches!(claim(&engine, "k").await, Answer::DoNot(Claimed::Replay { .. })));
}

/// As of a cron job's, which nobody drives between two of its runs, while the server's goes on.
#[test]
fn a_runtime_that_stands_still_keeps_no_attempt_of_another_from_its_renewal() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (still, other) = (runtime(), runtime());
    let (engine, _store) = engine(settings());
    still.block_on(async { granted(&engine, "cron").await.complete(outcome()).await });
    other.block_on(async {
        let held = granted(&engine, "k").await;
        sleep(LEASE * 3).await;
        assert!(!held.attempt().is_lost());
    });
    drop(still);
}

/// Nor does one that ends with a renewal under way, or a store that panics in one.
#[test]
fn a_renewal_that_is_dropped_is_due_again() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (ends, other) = (runtime(), runtime());
    let (engine, store) = engine(settings());
    let held = other.block_on(granted(&engine, "k"));
    store.next(Op::Renew, Fault::Stall);
    ends.block_on(async {
        granted(&engine, "short").await.complete(outcome()).await;
        while store.calls(Op::Renew) == 0 {
            sleep(Duration::from_millis(1)).await;
        }
    });
    drop(ends);
    other.block_on(async {
        sleep(LEASE * 3).await;
        assert!(!held.attempt().is_lost());
    });
}

/// The claim that a runtime was giving up as it ended is given up by another.
#[test]
fn a_claim_is_given_up_although_its_runtime_ended() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (ends, other) = (runtime(), runtime());
    let (engine, store) = engine(settings());
    store.next(Op::Claim, Fault::StallReply);
    store.next(Op::Abandon, Fault::Stall);
    ends.block_on(async {
        engine.claim(&operation("k")).await.unwrap_err();
        while store.calls(Op::Abandon) == 0 {
            tokio::task::yield_now().await;
        }
    });
    drop(ends);
    other.block_on(async {
        // Whoever comes next has what is left.
        store.next(Op::Claim, Fault::StallReply);
        engine.claim(&operation("other")).await.unwrap_err();
        eventually(&store, "k", State::Released).await;
    });
}

#[tokio::test]
async fn an_attempt_that_ended_is_renewed_no_more() {
    let (engine, store) = engine(settings());
    granted(&engine, "k").await.complete(outcome()).await;
    sleep(LEASE * 2).await;
    assert_eq!(store.calls(Op::Renew), 0);
}

#[tokio::test]
async fn a_dropped_attempt_is_left_to_its_lease_and_never_released() {
    let (engine, store) = engine(settings());
    drop(granted(&engine, "k").await);
    assert_eq!(state(&store, "k").await, Some(State::InFlight));
    eventually(&store, "k", State::InDoubt).await;
    assert_eq!(store.calls(Op::Release), 0);
}

#[tokio::test]
async fn loss_is_signalled_when_somebody_took_over() {
    let (engine, store) = engine(rerun());
    store.always(Op::Renew, Fault::Stall); // the store is cut off from this attempt
    let first = granted(&engine, "k").await;
    let attempt = first.attempt().clone();
    timeout(LEASE * 4, attempt.lost()).await.expect("told at the lease's end");
    assert!(attempt.is_lost() && attempt.time_left().is_zero());

    store.heal();
    let second = granted(&engine, "k").await;
    assert!(second.attempt().token() > attempt.token());
    assert_eq!(second.attempt().number(), 2);
    assert!(matches!(first.complete(outcome()).await, Recorded::Superseded));
    assert!(matches!(second.complete(outcome()).await, Recorded::Applied));
}

#[tokio::test]
async fn case_82_a_holder_cut_off_from_the_store_is_told_at_its_leases_end() {
    let (engine, store) = engine(settings());
    let held = granted(&engine, "k").await;
    store.always(Op::Renew, Fault::Fail);
    timeout(LEASE * 2, held.attempt().lost()).await.expect("told");
    store.heal();
    // Nobody took over under Hold, so a late completion is still welcome.
    assert!(matches!(held.complete(outcome()).await, Recorded::Applied));
}

#[tokio::test]
async fn a_renewal_that_fails_once_is_not_a_loss() {
    let (engine, store) = engine(settings());
    store.next(Op::Renew, Fault::Fail);
    store.next(Op::Renew, Fault::LoseReply);
    let held = granted(&engine, "k").await;
    sleep(LEASE * 2).await;
    assert!(!held.attempt().is_lost());
    assert_eq!(state(&store, "k").await, Some(State::InFlight));
}

#[tokio::test]
async fn max_run_ends_the_renewal_of_work_that_never_ends() {
    let (engine, store) = engine(settings().max_run(Duration::from_millis(150)).unwrap());
    let held = granted(&engine, "k").await;
    timeout(LEASE * 4, held.attempt().lost()).await.expect("lost a lease after max run");
    assert_eq!(state(&store, "k").await, Some(State::InDoubt));
    drop(held);
}

#[tokio::test]
async fn a_claim_whose_reply_was_lost_does_not_hold_the_key() {
    for fault in [Fault::LoseReply, Fault::StallReply] {
        let (engine, store) = engine(settings());
        store.next(Op::Claim, fault);
        let error = engine.claim(&operation("k")).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Timeout);
        eventually(&store, "k", State::Released).await;
        assert_eq!(granted(&engine, "k").await.attempt().number(), 2);
    }
}

#[tokio::test]
async fn abandoning_goes_on_until_the_store_answers() {
    let (engine, store) = engine(settings());
    store.next(Op::Claim, Fault::StallReply);
    for fault in [Fault::Fail, Fault::LoseReply, Fault::Stall, REFUSED] {
        store.next(Op::Abandon, fault);
    }
    engine.claim(&operation("k")).await.unwrap_err();
    eventually(&store, "k", State::Released).await;
    assert!(engine.drain(Duration::from_secs(5)).await, "a drain waits for it");
    assert_eq!(store.calls(Op::Abandon), 5);
}

#[tokio::test]
async fn a_ghost_claim_that_is_applied_after_the_timeout_holds_nothing() {
    let (engine, store) = engine(settings());
    store.next(Op::Claim, Fault::Late(Duration::from_millis(250)));
    engine.claim(&operation("k")).await.unwrap_err();
    eventually(&store, "k", State::Released).await;
    sleep(Duration::from_millis(300)).await; // the ghost comes
    assert_eq!(state(&store, "k").await, Some(State::Released), "its nonce is dead");
    granted(&engine, "k").await;
}

/// Its connection broke, and the second try was answered without a grant.
#[tokio::test]
async fn a_first_try_that_arrives_after_the_second_was_answered_holds_nothing() {
    let (engine, store) = engine(settings());
    let first = granted(&engine, "k").await;
    store.next(Op::Claim, Fault::DisconnectLate(Duration::from_millis(100)));
    assert!(matches!(claim(&engine, "k").await, Answer::DoNot(Claimed::InFlight { .. })));
    first.release().await;
    sleep(Duration::from_millis(150)).await; // the first try comes
    assert_eq!(state(&store, "k").await, Some(State::Released), "its nonce is dead");
    granted(&engine, "k").await;
}

/// The second try was granted, that attempt was superseded, and the first comes when the key is free again, or before its own attempt knows.
#[tokio::test]
async fn a_first_try_that_arrives_after_its_attempt_was_superseded_holds_nothing() {
    for (late, knows) in [(LEASE * 3, true), (LEASE * 2, false)] {
        let (engine, store) = engine(rerun().without_renewal());
        store.next(Op::Claim, Fault::DisconnectLate(late));
        let first = granted(&engine, "k").await;
        eventually_free_to_take(&first).await;
        let second = granted(&engine, "k").await;
        second.release().await;
        if knows {
            assert!(matches!(first.complete(outcome()).await, Recorded::Superseded));
            sleep(late).await; // the first try comes
            assert_eq!(state(&store, "k").await, Some(State::Released), "its nonce is dead");
        } else {
            eventually(&store, "k", State::InFlight).await; // the first try comes
            assert!(matches!(first.complete(outcome()).await, Recorded::Superseded));
            eventually(&store, "k", State::Released).await;
        }
        granted(&engine, "k").await;
    }
}

#[tokio::test]
async fn a_grant_that_the_store_itself_gives_up_is_not_asked_for_without_end() {
    let engine = Engine::new(Unreplicated::default(), settings());
    let asked = timeout(Duration::from_secs(10), engine.claim(&operation("k"))).await.expect("it ends");
    assert_eq!(asked.unwrap_err().kind(), StoreErrorKind::Unavailable);
    assert_eq!(engine.store().claims.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_grant_that_arrives_after_its_lease_is_abandoned_until_that_is_done() {
    let (engine, store) = engine(settings().store_timeout(Duration::from_secs(5)).unwrap());
    store.next(Op::Claim, Fault::LateReply(LEASE + Duration::from_millis(50))); // as if this process had stood still
    for _ in 0..2 {
        store.next(Op::Abandon, Fault::Fail);
    }
    engine.claim(&operation("k")).await.unwrap_err();
    eventually(&store, "k", State::Released).await;
}

#[tokio::test]
async fn a_grant_that_arrives_after_its_lease_is_not_run() {
    let (engine, store) = engine(settings().store_timeout(Duration::from_secs(5)).unwrap());
    store.next(Op::Claim, Fault::LateReply(LEASE + Duration::from_millis(50))); // as if this process had stood still
    assert_eq!(engine.claim(&operation("k")).await.unwrap_err().kind(), StoreErrorKind::Timeout);
    assert_eq!(state(&store, "k").await, Some(State::Released));
    granted(&engine, "k").await;
}

#[tokio::test]
async fn a_store_that_was_busy_has_nothing_to_abandon() {
    let (engine, store) = engine(settings());
    store.next(Op::Claim, Fault::Fail);
    assert_eq!(engine.claim(&operation("k")).await.unwrap_err().kind(), StoreErrorKind::Busy);
    assert!(engine.drain(Duration::from_secs(5)).await);
    assert_eq!((state(&store, "k").await, store.calls(Op::Abandon)), (None, 0));
}

#[tokio::test]
async fn a_settlement_is_tried_for_longer_than_any_window() {
    let windows = Windows::new(Duration::from_millis(20), Duration::from_secs(60)).unwrap();
    let (engine, store) = engine(settings().life(Life::new(Recovery::Hold, windows)));
    for op in [Op::Complete, Op::Release, Op::MarkInDoubt] {
        store.always(op, Fault::Fail);
    }
    granted(&engine, "done").await.complete(outcome()).await;
    granted(&engine, "nothing done").await.release().await;
    sleep(Duration::from_millis(200)).await;
    store.heal();
    assert!(engine.drain(Duration::from_secs(10)).await);
    // Its window is short: by now it may be a tombstone.
    assert!(matches!(state(&store, "done").await, Some(State::Completed | State::Tombstone)));
    assert_eq!(state(&store, "nothing done").await, Some(State::Released));
}

#[tokio::test]
async fn a_wait_of_any_length_can_be_asked_for() {
    let (engine, _) = engine(settings().in_flight(InFlight::Wait(Duration::MAX)));
    granted(&engine, "k").await.complete(outcome()).await;
    assert!(matches!(claim(&engine, "k").await, Answer::DoNot(Claimed::Replay { .. })));
}

#[tokio::test]
async fn a_claim_dropped_while_it_is_asked_is_abandoned() {
    let (engine, store) = engine(settings());
    store.next(Op::Claim, Fault::LateReply(Duration::from_millis(80)));
    assert!(timeout(Duration::from_millis(20), engine.claim(&operation("k"))).await.is_err(), "cancelled");
    eventually(&store, "k", State::Released).await;
}

#[tokio::test]
async fn a_waiting_duplicate_gets_the_outcome() {
    let (engine, _) = engine(settings().in_flight(InFlight::Wait(Duration::from_secs(5))));
    let first = granted(&engine, "k").await;
    let waiting = tokio::spawn({
        let engine = engine.clone();
        async move { engine.claim(&operation("k")).await.unwrap() }
    });
    sleep(Duration::from_millis(50)).await;
    first.complete(outcome()).await;
    let answer = timeout(Duration::from_secs(2), waiting).await.unwrap().unwrap();
    assert!(matches!(answer, Answer::DoNot(Claimed::Replay { .. })));
}

#[tokio::test]
async fn waiting_is_bounded() {
    let (engine, store) = engine(settings().in_flight(InFlight::Wait(Duration::from_millis(100))));
    let _first = granted(&engine, "k").await;
    assert!(matches!(claim(&engine, "k").await, Answer::DoNot(Claimed::InFlight { .. })));
    assert!(store.calls(Op::Claim) > 2, "it asked more than once");
    assert_eq!(store.calls(Op::Abandon), 0, "nothing was granted, so nothing is abandoned");
}

#[tokio::test]
async fn a_waiting_duplicate_runs_when_the_first_released() {
    let (engine, _) = engine(settings().in_flight(InFlight::Wait(Duration::from_secs(5))));
    let first = granted(&engine, "k").await;
    let waiting = tokio::spawn({
        let engine = engine.clone();
        async move { engine.claim(&operation("k")).await.unwrap() }
    });
    sleep(Duration::from_millis(50)).await;
    first.release().await;
    let Answer::Run(second) = waiting.await.unwrap() else { panic!("free again") };
    assert_eq!(second.attempt().number(), 2);
}

/// With a lease that is not what wakes them.
fn patient() -> Settings {
    settings().lease(Lease::new(Duration::from_secs(3600)).unwrap()).in_flight(InFlight::Wait(Duration::from_secs(600)))
}

async fn waiter(engine: &Engine<Faulty>) -> tokio::task::JoinHandle<Answer<Faulty>> {
    let engine = engine.clone();
    let waiting = tokio::spawn(async move { claim(&engine, "k").await });
    // Long before one who is told asks again.
    sleep(Duration::from_millis(400)).await;
    waiting
}

#[tokio::test(start_paused = true)]
async fn a_waiting_duplicate_is_told_of_the_outcome() {
    let (engine, store) = engine(patient());
    let first = granted(&engine, "k").await;
    let waiting = waiter(&engine).await;
    assert_eq!(store.calls(Op::Claim), 1 + 2, "it asked, and once more when it had begun to listen");
    let since = tokio::time::Instant::now();
    first.complete(outcome()).await;
    assert!(matches!(waiting.await.unwrap(), Answer::DoNot(Claimed::Replay { .. })));
    assert_eq!(store.calls(Op::Claim), 1 + 3);
    assert_eq!(since.elapsed(), Duration::ZERO, "no time has to pass for it");
}

#[tokio::test(start_paused = true)]
async fn a_hint_that_never_comes_costs_a_poll() {
    let (engine, store) = engine(patient());
    store.always(Op::Watch, Fault::Stall);
    let first = granted(&engine, "k").await;
    let waiting = waiter(&engine).await;
    let since = tokio::time::Instant::now();
    first.complete(outcome()).await;
    assert!(matches!(waiting.await.unwrap(), Answer::DoNot(Claimed::Replay { .. })));
    assert!(since.elapsed() <= Duration::from_secs(1));
    assert_eq!(store.calls(Op::Claim), 1 + 3);
}

#[tokio::test(start_paused = true)]
async fn without_hints_it_is_asked_every_so_often() {
    let (engine, store) = engine(patient());
    store.always(Op::Watch, Fault::Fail);
    let first = granted(&engine, "k").await;
    let waiting = waiter(&engine).await;
    assert!(store.calls(Op::Claim) > 1 + 4);
    first.complete(outcome()).await;
    assert!(matches!(waiting.await.unwrap(), Answer::DoNot(Claimed::Replay { .. })));
}

#[tokio::test(start_paused = true)]
async fn only_who_waits_listens_and_once() {
    let (engine, store) = engine(patient());
    let first = granted(&engine, "k").await;
    assert_eq!(store.calls(Op::Watch), 0);
    let waiting = waiter(&engine).await;
    sleep(Duration::from_secs(20)).await;
    assert!(store.calls(Op::Claim) > 10);
    assert_eq!(store.calls(Op::Watch), 1);
    first.complete(outcome()).await;
    assert!(matches!(waiting.await.unwrap(), Answer::DoNot(Claimed::Replay { .. })));
    assert!(matches!(claim(&engine, "k").await, Answer::DoNot(Claimed::Replay { .. })));
    let engine = engine.with_settings(settings());
    let _second = granted(&engine, "l").await;
    assert!(matches!(claim(&engine, "l").await, Answer::DoNot(Claimed::InFlight { .. })));
    assert_eq!(store.calls(Op::Watch), 1);
}

/// No hint comes from an attempt whose process is gone.
#[tokio::test]
async fn a_waiter_asks_when_the_lease_ends() {
    let (engine, store) = engine(settings().in_flight(InFlight::Wait(Duration::from_secs(10))));
    store.always(Op::Renew, Fault::Fail);
    drop(granted(&engine, "k").await);
    assert!(matches!(claim(&engine, "k").await, Answer::DoNot(Claimed::InDoubt(_))));
    assert!(store.calls(Op::Claim) <= 1 + 4, "{}", store.calls(Op::Claim));
}

#[tokio::test]
async fn a_completion_that_fails_is_recorded_in_the_background() {
    for fault in [Fault::Fail, Fault::LoseReply, Fault::Stall, Fault::StallReply, REFUSED] {
        let (engine, store) = engine(settings());
        store.next(Op::Complete, fault);
        let recorded = granted(&engine, "k").await.complete(outcome()).await;
        assert!(matches!(recorded, Recorded::Pending(_)), "{fault:?}");
        eventually(&store, "k", State::Completed).await;
        assert!(engine.drain(Duration::from_secs(5)).await);
    }
}

#[tokio::test]
async fn what_can_never_be_read_is_given_up() {
    let (engine, store) = engine(settings());
    store.next(Op::Claim, Fault::StallReply);
    store.always(Op::Abandon, UNREADABLE);
    engine.claim(&operation("lost")).await.unwrap_err();
    for first in [UNREADABLE, Fault::Fail] {
        store.next(Op::Complete, first);
        store.always(Op::Complete, UNREADABLE);
        let recorded = granted(&engine, &format!("{first:?}")).await.complete(outcome()).await;
        assert!(matches!(recorded, Recorded::Pending(_)));
    }
    assert!(engine.drain(Duration::from_secs(5)).await, "nothing is left that goes on for ever");
    assert_eq!((store.calls(Op::Abandon), store.calls(Op::Complete)), (1, 3));
}

#[tokio::test]
async fn recording_in_the_background_yields_to_a_resolution() {
    let (engine, store) = engine(settings());
    store.always(Op::Complete, Fault::Fail);
    store.always(Op::Renew, Fault::Fail);
    let held = granted(&engine, "k").await;
    let token_seen = held.attempt().token();
    let id = *held.attempt().record_id();
    assert!(matches!(held.complete(outcome()).await, Recorded::Pending(_)));
    eventually(&store, "k", State::InDoubt).await;
    let other = Outcome::new(200, Bytes::from_static(b"resolved"));
    let verdict = ResolveVerdict::Happened(other.clone());
    let resolve = Resolve { id, token_seen, verdict, who: "ops".into(), why: "looked it up".into() };
    assert_eq!(store.resolve(&resolve).await.unwrap(), Resolved::Applied);
    store.heal();
    assert!(engine.drain(Duration::from_secs(10)).await, "superseded is an answer");
    let Answer::DoNot(Claimed::Replay { outcome, .. }) = claim(&engine, "k").await else { panic!("completed") };
    assert_eq!(outcome, other, "the late completion does not contradict it");
}

#[tokio::test]
async fn a_broken_connection_gets_one_safe_retry() {
    let (engine, store) = engine(settings());
    store.next(Op::Claim, Fault::Disconnect);
    assert_eq!(granted(&engine, "k").await.attempt().number(), 1);
    assert_eq!((store.calls(Op::Claim), store.calls(Op::Abandon)), (2, 0));

    store.next(Op::Claim, Fault::Disconnect);
    store.next(Op::Claim, Fault::Disconnect);
    let error = engine.claim(&operation("other")).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unavailable);
    eventually(&store, "other", State::Released).await;
}

#[tokio::test]
async fn a_superseded_attempt_takes_nothing_from_the_one_that_runs() {
    let (engine, store) = engine(rerun().without_renewal());
    let first = granted(&engine, "k").await;
    eventually_free_to_take(&first).await;
    let second = granted(&engine, "k").await;
    eventually_free_to_take(&second).await; // its lease is over as well, and nobody took over
    assert!(matches!(first.complete(outcome()).await, Recorded::Superseded));
    let told = engine.look(&operation("k")).await.unwrap();
    assert_eq!(told, Claimed::InFlight { lease_left: Duration::ZERO });
    assert_eq!(state(&store, "k").await, Some(State::InFlight));
    assert!(matches!(second.complete(outcome()).await, Recorded::Applied));
    assert!(matches!(engine.look(&operation("k")).await.unwrap(), Claimed::Replay { .. }));
}

async fn eventually_free_to_take(held: &Held<Faulty>) {
    held.attempt().lost().await;
    sleep(Duration::from_millis(5)).await;
}

#[tokio::test]
async fn a_sweeper_forgets_in_the_background() {
    let windows = Windows::new(Duration::from_millis(20), Duration::from_millis(60_000)).unwrap();
    let (engine, store) = engine(settings().life(Life::new(Recovery::Hold, windows)));
    let _sweeper = Sweeper::spawn(&engine, Duration::from_millis(10));
    granted(&engine, "k").await.complete(outcome()).await;
    eventually(&store, "k", State::Tombstone).await;
    assert!(store.calls(Op::Sweep) > 0);
}

#[tokio::test]
async fn drain_says_when_work_is_left() {
    let (engine, store) = engine(settings());
    store.always(Op::Complete, Fault::Fail);
    granted(&engine, "k").await.complete(outcome()).await;
    assert!(!engine.drain(Duration::from_millis(50)).await);
    store.heal();
    assert!(engine.drain(Duration::from_secs(10)).await);
}

/// Gives up all that it grants, as a store does whose replicas are away.
#[derive(Debug, Default)]
struct Unreplicated {
    store: MemoryStore,
    claims: AtomicUsize,
}

impl Store for Unreplicated {
    async fn claim(&self, claim: &Claim) -> Result<Claimed, StoreError> {
        self.claims.fetch_add(1, Ordering::SeqCst);
        let claimed = self.store.claim(claim).await?;
        if let Claimed::Granted(_) = claimed {
            tokio::task::yield_now().await; // so that a timeout can end who asks for ever
            self.store.abandon(&claim.id, claim.nonce, Duration::from_secs(60)).await?;
            return Err(StoreError::new(StoreErrorKind::Unavailable, "too few replicas have it"));
        }
        Ok(claimed)
    }

    async fn renew(&self, holder: &Holder, lease: Lease) -> Result<Settled, StoreError> {
        self.store.renew(holder, lease).await
    }

    async fn complete(&self, holder: &Holder, outcome: &Outcome) -> Result<Settled, StoreError> {
        self.store.complete(holder, outcome).await
    }

    async fn release(&self, holder: &Holder, dead_for: Duration) -> Result<Settled, StoreError> {
        self.store.release(holder, dead_for).await
    }

    async fn mark_in_doubt(&self, holder: &Holder, response: Option<&Outcome>) -> Result<Settled, StoreError> {
        self.store.mark_in_doubt(holder, response).await
    }

    async fn abandon(&self, id: &RecordId, nonce: Nonce, dead_for: Duration) -> Result<(), StoreError> {
        self.store.abandon(id, nonce, dead_for).await
    }

    async fn resolve(&self, resolve: &Resolve) -> Result<Resolved, StoreError> {
        self.store.resolve(resolve).await
    }

    async fn inspect(&self, id: &RecordId) -> Result<Option<Entry>, StoreError> {
        self.store.inspect(id).await
    }

    async fn list(&self, list: &List) -> Result<Page, StoreError> {
        self.store.list(list).await
    }

    async fn sweep(&self, limit: usize) -> Result<Swept, StoreError> {
        self.store.sweep(limit).await
    }
}
