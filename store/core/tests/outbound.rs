//! Calls to external APIs under the guard, with a provider that keeps its own ledger and misbehaves as it is told.
#![expect(clippy::unwrap_used, reason = "a test fails loudly")]

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use idempotency::faults::{Fault, FaultyStore, Op};
use idempotency::outbound::{
    Anchor, BoxSteps, Call, CallEnd, Decision, Found, Guard, InvalidPolicy, InvalidProvider, KeyEncoding, KeyPlace,
    KeySupport, ListSteps, LoggedEnd, Policy, Provider, ResolveStep, Step, StepError, StepLabel, StepOutcome,
    StepResolved, StepResult, StepState, StepVerdict, StepView, Steps, Window,
};
use idempotency::time::ManualClock;
use idempotency::{
    Answer, Attempt, Claimed, Clock as _, Engine, Fingerprint, Held, Key, Life, Operation, RecordId, Recovery, Resolve,
    ResolveVerdict, Resolved, RunError, ScopeId, Settings, State, Store, Timestamp, Windows, WorkError, run,
};
use idempotency_memory::MemoryStore;
use parking_lot::Mutex;
use tokio::time::sleep;

type Faulty = FaultyStore<MemoryStore<ManualClock>>;

const TIMEOUT: Duration = Duration::from_millis(300);
const QUIET: Duration = Duration::from_secs(2);
const SETTLE: Duration = Duration::from_secs(5);
/// Past every lease.
const LEASES: Duration = Duration::from_secs(31);

/// What the provider does with the next call.
#[derive(Clone, Copy, Debug)]
enum Behaviour {
    Answer,
    /// The connection is refused.
    RefuseConnection,
    /// It accepts and never answers, and does nothing.
    Stall,
    CommitThenStall,
    CommitThenReset,
    CommitThen502,
    /// Breaks off half-way through the request.
    HalfABody,
    /// 402, documented.
    Decline,
    /// 404 because it is gone, documented as a refusal.
    Gone,
    TooMany,
}

/// An external API with a ledger of its own.
#[derive(Clone, Default)]
struct Bank(Arc<Mutex<Ledger>>);

#[derive(Default)]
struct Ledger {
    plan: std::collections::VecDeque<Behaviour>,
    /// References, one a transfer.
    transfers: Vec<String>,
    /// What it was sent: reference, and key if there was one.
    requests: Vec<(String, Option<String>)>,
    honours_keys: bool,
}

impl Bank {
    fn that(plan: impl IntoIterator<Item = Behaviour>) -> Self {
        let bank = Self::default();
        bank.0.lock().plan.extend(plan);
        bank
    }

    fn honours_keys(self) -> Self {
        self.0.lock().honours_keys = true;
        self
    }

    fn transfers(&self) -> usize {
        self.0.lock().transfers.len()
    }

    fn requests(&self) -> Vec<(String, Option<String>)> {
        self.0.lock().requests.clone()
    }

    fn has(&self, reference: &str) -> bool {
        self.0.lock().transfers.iter().any(|known| known == reference)
    }

    fn commit(&self, call: &Call) {
        let mut ledger = self.0.lock();
        let reference = call.reference().to_string();
        let known = ledger.honours_keys && call.idempotency_key().is_some() && ledger.transfers.contains(&reference);
        if !known {
            ledger.transfers.push(reference);
        }
    }

    async fn call(self, call: Call) -> CallEnd {
        let behaviour = self.0.lock().plan.pop_front().unwrap_or(Behaviour::Answer);
        if matches!(behaviour, Behaviour::RefuseConnection) {
            return CallEnd::NotDone("connection refused".to_owned());
        }
        let key = call.idempotency_key().map(|(_, key)| key.to_string());
        self.0.lock().requests.push((call.reference().to_string(), key));
        let answer = |status: u16| {
            let body = Bytes::from(format!("{status}"));
            bank().ending(status, &body, body.clone())
        };
        match behaviour {
            Behaviour::Answer => {
                self.commit(&call);
                answer(201)
            }
            Behaviour::CommitThenStall => {
                self.commit(&call);
                std::future::pending().await
            }
            Behaviour::CommitThenReset => {
                self.commit(&call);
                CallEnd::Unknown("connection reset".to_owned())
            }
            Behaviour::CommitThen502 => {
                self.commit(&call);
                answer(502)
            }
            Behaviour::Stall => std::future::pending().await,
            Behaviour::HalfABody => CallEnd::Unknown("connection reset".to_owned()),
            Behaviour::Decline => answer(402),
            Behaviour::Gone => answer(404),
            Behaviour::TooMany => answer(429),
            Behaviour::RefuseConnection => unreachable!("returned above"),
        }
    }
}

fn bank() -> Provider {
    let bank = Provider::new("bank", TIMEOUT).unwrap().quiet_period(QUIET).unwrap().settle_time(SETTLE).unwrap();
    bank.refuses([402, 404])
}

fn window(length: Duration) -> Window {
    Window::new(length, Anchor::FirstRequest).unwrap()
}

fn keyed() -> Provider {
    let place = KeyPlace::Header("Idempotency-Key".to_owned());
    let keys = KeySupport::new(place, window(Duration::from_secs(600)), KeyEncoding::Hex, 255).unwrap();
    bank().takes_key(keys).unwrap()
}

fn retry(calls: u32) -> Policy {
    Policy::retry(NonZeroU32::new(calls).unwrap(), Duration::from_millis(1))
}

/// An engine over a store whose clock is moved by hand, and the bank.
struct Rig {
    clock: ManualClock,
    store: Faulty,
    engine: Engine<Faulty>,
    bank: Bank,
}

impl Rig {
    fn new(recovery: Recovery, plan: impl IntoIterator<Item = Behaviour>) -> Self {
        let clock = ManualClock::new(Timestamp::from_micros(1_800_000_000_000_000));
        let store = FaultyStore::new(MemoryStore::builder().clock(clock.clone()).build());
        let life = Life::new(recovery, Windows::default());
        let settings =
            Settings::default().life(life).without_renewal().store_timeout(Duration::from_millis(200)).unwrap();
        Self { engine: Engine::new(store.clone(), settings), clock, store, bank: Bank::that(plan) }
    }

    fn guard(&self, provider: Provider, policy: Policy) -> Guard<Faulty> {
        Guard::new(self.store.clone(), provider, policy).unwrap()
    }

    fn holding(&self) -> Guard<Faulty> {
        self.guard(bank(), Policy::Hold)
    }

    fn reconciling(&self) -> Guard<Faulty> {
        let bank_asked = self.bank.clone();
        self.guard(
            bank(),
            Policy::reconcile(move |inquiry| {
                let happened = bank_asked.has(inquiry.reference.as_str());
                async move { if happened { Found::Happened(Bytes::from_static(b"found")) } else { Found::DidNotHappen } }
            }),
        )
    }

    async fn attempt(&self, key: &str) -> Held<Faulty> {
        match self.engine.claim(&operation(key)).await.unwrap() {
            Answer::Run(held) => held,
            Answer::DoNot(claimed) => panic!("not granted: {claimed:?}"),
        }
    }

    /// The attempt stops here, for ever or not; somebody else takes over.
    async fn successor(&self, key: &str) -> Held<Faulty> {
        self.clock.advance(LEASES);
        self.attempt(key).await
    }

    async fn transfer(&self, guard: &Guard<Faulty>, attempt: &Attempt) -> Result<StepOutcome, StepError> {
        guard.call(attempt, &step("transfer", "10 EUR"), |call| self.bank.clone().call(call)).await
    }

    async fn view(&self, key: &str, label: &str) -> StepView {
        let label = StepLabel::parse(label).unwrap();
        self.store.inner().inspect_step(&id(key), &label).await.unwrap().expect("a step")
    }

    async fn state(&self, key: &str) -> StepState {
        self.view(key, "transfer").await.entry.state
    }

    async fn record(&self, key: &str) -> State {
        self.store.inner().inspect(&id(key)).await.unwrap().unwrap().state
    }
}

fn step(label: &str, request: &str) -> Step {
    Step::new(label, Fingerprint::of([request])).unwrap()
}

fn operation(key: &str) -> Operation {
    Operation::new(ScopeId::global(), Key::parse(key).unwrap(), Fingerprint::of(["body"]))
}

fn id(key: &str) -> RecordId {
    RecordId::new(&ScopeId::global(), &Key::parse(key).unwrap())
}

#[track_caller]
fn done(outcome: Result<StepOutcome, StepError>) -> (Bytes, bool) {
    match outcome.unwrap() {
        StepOutcome { decision: Decision::Done(result), replayed } => (result, replayed),
        other => panic!("not done: {other:?}"),
    }
}

#[track_caller]
fn retry_after(outcome: Result<StepOutcome, StepError>) -> Option<Duration> {
    match outcome.unwrap_err() {
        StepError::OutcomeUnknown { retry_after, .. } => retry_after,
        other => panic!("not unknown: {other:?}"),
    }
}

mod calling {
    use super::*;

    #[tokio::test]
    async fn a_step_is_called_once_and_replayed() {
        let rig = Rig::new(Recovery::Rerun, []);
        let held = rig.attempt("k").await;
        assert_eq!(done(rig.transfer(&rig.holding(), held.attempt()).await), (Bytes::from_static(b"201"), false));
        assert_eq!(done(rig.transfer(&rig.holding(), held.attempt()).await), (Bytes::from_static(b"201"), true));
        drop(held);
        let successor = rig.successor("k").await;
        assert_eq!(done(rig.transfer(&rig.holding(), successor.attempt()).await), (Bytes::from_static(b"201"), true));
        assert_eq!(rig.bank.transfers(), 1);
    }

    #[tokio::test]
    async fn the_call_is_on_record_before_it_is_made() {
        let rig = Rig::new(Recovery::Rerun, []);
        let held = rig.attempt("k").await;
        let (guard, transfer) = (rig.holding(), step("transfer", "x"));
        let seen = guard.call(held.attempt(), &transfer, |call| {
            let rig = &rig;
            async move {
                let view = rig.view("k", "transfer").await;
                assert_eq!((view.entry.state, view.entry.call), (StepState::Calling, call.number()));
                assert!(call.time_left() <= TIMEOUT);
                CallEnd::Done(Bytes::new())
            }
        });
        done(seen.await);
    }

    #[tokio::test]
    async fn a_documented_refusal_is_final_and_replayed() {
        let rig = Rig::new(Recovery::Rerun, [Behaviour::Decline]);
        let held = rig.attempt("k").await;
        for replayed in [false, true] {
            let outcome = rig.transfer(&rig.holding(), held.attempt()).await.unwrap();
            assert_eq!(outcome, StepOutcome { decision: Decision::Refused(Bytes::from_static(b"402")), replayed });
        }
        assert_eq!(rig.bank.requests().len(), 1);
    }

    #[tokio::test]
    async fn without_its_record_no_call_is_made() {
        for (fault, op) in
            [(Fault::Fail, Op::BeginCall), (Fault::LoseReply, Op::BeginCall), (Fault::StallReply, Op::BeginCall)]
        {
            let rig = Rig::new(Recovery::Hold, []);
            let held = rig.attempt("k").await;
            rig.store.next(op, fault);
            assert!(
                matches!(rig.transfer(&rig.holding(), held.attempt()).await, Err(StepError::Store(_))),
                "{fault:?}"
            );
            assert_eq!(rig.bank.requests().len(), 0);
            // And what may have been begun was taken back.
            assert!(held.may_release(), "{fault:?}");
            assert!(!done(rig.transfer(&rig.holding(), held.attempt()).await).1);
        }
    }

    #[tokio::test]
    async fn an_asking_that_comes_late_begins_nothing() {
        let rig = Rig::new(Recovery::Rerun, []);
        let held = rig.attempt("k").await;
        rig.store.next(Op::BeginCall, Fault::Late(Duration::from_millis(250)));
        let asked = rig.transfer(&rig.holding(), held.attempt()).await;
        assert!(matches!(asked, Err(StepError::Store(_))), "{asked:?}");
        sleep(Duration::from_millis(300)).await;
        assert!(rig.store.list_steps(&ListSteps::default()).await.unwrap().entries.is_empty());
        assert!(!done(rig.transfer(&rig.holding(), held.attempt()).await).1);
    }

    #[tokio::test]
    async fn dropped_while_asking_nothing_was_sent_and_that_is_recorded() {
        let rig = Rig::new(Recovery::Rerun, []);
        let held = rig.attempt("k").await;
        rig.store.next(Op::BeginCall, Fault::StallReply);
        let _ = tokio::time::timeout(Duration::from_millis(50), rig.transfer(&rig.holding(), held.attempt())).await;
        assert!(rig.engine.drain(Duration::from_secs(10)).await);
        assert_eq!(rig.state("k").await, StepState::Failed);
        assert_eq!(rig.bank.requests().len(), 0);
    }

    #[tokio::test]
    async fn a_success_that_is_not_recorded_at_once_is_given_and_recorded_later() {
        let rig = Rig::new(Recovery::Hold, []);
        let held = rig.attempt("k").await;
        rig.store.next(Op::EndCall, Fault::Fail);
        rig.store.next(Op::EndCall, Fault::Fail);
        done(rig.transfer(&rig.holding(), held.attempt()).await);
        assert!(rig.engine.drain(Duration::from_secs(10)).await);
        assert_eq!(rig.state("k").await, StepState::Succeeded);
    }

    #[tokio::test]
    async fn a_call_that_panics_is_unknown() {
        let rig = Rig::new(Recovery::Rerun, []);
        let held = rig.attempt("k").await;
        let guard = rig.holding();
        let attempt = held.attempt().clone();
        let panicking = tokio::spawn(async move {
            guard.call(&attempt, &step("transfer", "10 EUR"), |_| async { panic!("in the client") }).await
        });
        assert!(panicking.await.unwrap_err().is_panic());
        assert_eq!(rig.state("k").await, StepState::Unknown);
        assert_eq!(retry_after(rig.transfer(&rig.holding(), held.attempt()).await), None);
    }

    #[tokio::test]
    async fn a_changed_request_is_refused_and_the_step_is_named() {
        let rig = Rig::new(Recovery::Rerun, []);
        let held = rig.attempt("k").await;
        done(rig.transfer(&rig.holding(), held.attempt()).await);
        let changed =
            rig.holding().call(held.attempt(), &step("transfer", "99 EUR"), |call| rig.bank.clone().call(call)).await;
        let error = changed.unwrap_err();
        assert!(matches!(&error, StepError::RequestChanged(label) if label.as_str() == "transfer"));
        assert!(error.to_string().contains("`transfer`"), "{error}");
        assert_eq!(rig.bank.transfers(), 1);
    }

    #[tokio::test]
    async fn a_call_that_the_lease_does_not_outlast_is_not_made() {
        let rig = Rig::new(Recovery::Rerun, []);
        let held = rig.attempt("k").await;
        rig.clock.advance(Duration::from_secs(29));
        let asked = rig.transfer(&rig.holding(), held.attempt()).await;
        assert!(matches!(asked, Err(StepError::LeaseTooShort { .. })), "{asked:?}");
        rig.clock.advance(Duration::from_secs(2));
        assert!(matches!(rig.transfer(&rig.holding(), held.attempt()).await, Err(StepError::Superseded)));
        assert_eq!(rig.bank.requests().len(), 0);
    }

    #[tokio::test]
    async fn a_result_too_long_to_keep_is_given_once() {
        let rig = Rig::new(Recovery::Rerun, []);
        let held = rig.attempt("k").await;
        let long = Bytes::from(vec![b'x'; idempotency::outbound::LONGEST_RESULT + 1]);
        let call = || rig.holding();
        let first =
            call().call(held.attempt(), &step("s", "x"), |_| std::future::ready(CallEnd::Done(long.clone()))).await;
        assert_eq!(done(first).0, long);
        let again =
            call().call(held.attempt(), &step("s", "x"), |_| std::future::ready(CallEnd::Done(long.clone()))).await;
        assert!(matches!(again, Err(StepError::ResultNotKept(_))), "{again:?}");
    }

    #[tokio::test]
    async fn a_full_store_refuses_the_call_and_not_its_end() {
        let store = MemoryStore::builder().max_bytes(idempotency_memory::RECORD_OVERHEAD + 64 * 1024 + 600).build();
        let engine = Engine::new(store.clone(), Settings::default());
        let Answer::Run(held) = engine.claim(&operation("k")).await.unwrap() else { panic!("not granted") };
        let guard = Guard::new(store, bank(), Policy::Hold).unwrap();
        let long = Bytes::from(vec![b'x'; 1000]);
        let first =
            guard.call(held.attempt(), &step("a", "x"), |_| std::future::ready(CallEnd::Done(long.clone()))).await;
        done(first);
        let second =
            guard.call(held.attempt(), &step("b", "x"), |_| std::future::ready(CallEnd::Done(long.clone()))).await;
        assert!(matches!(second, Err(StepError::Full)), "{second:?}");
        let replay =
            guard.call(held.attempt(), &step("a", "x"), |_| std::future::ready(CallEnd::Done(long.clone()))).await;
        assert!(done(replay).1);
    }

    #[tokio::test]
    async fn steps_may_be_boxed() {
        let rig = Rig::new(Recovery::Rerun, []);
        let held = rig.attempt("k").await;
        let guard = Guard::new(BoxSteps::new(rig.store.clone()), bank(), Policy::Hold).unwrap();
        for replayed in [false, true] {
            let outcome =
                guard.call(held.attempt(), &step("transfer", "10 EUR"), |call| rig.bank.clone().call(call)).await;
            assert_eq!(done(outcome).1, replayed);
        }
    }
}

mod unknown {
    use super::*;

    #[tokio::test]
    async fn case_89_only_a_call_that_was_not_sent_is_made_again() {
        let ambiguous = [
            Behaviour::Stall,
            Behaviour::HalfABody,
            Behaviour::CommitThen502,
            Behaviour::CommitThenReset,
            Behaviour::TooMany,
        ];
        for behaviour in ambiguous {
            let rig = Rig::new(Recovery::Rerun, [behaviour]);
            let held = rig.attempt("k").await;
            for _ in 0..3 {
                assert_eq!(retry_after(rig.transfer(&rig.holding(), held.attempt()).await), None, "{behaviour:?}");
            }
            assert_eq!(rig.bank.requests().len(), 1, "{behaviour:?}");
            assert_eq!(rig.state("k").await, StepState::Unknown);
        }
        let rig = Rig::new(Recovery::Rerun, [Behaviour::RefuseConnection, Behaviour::RefuseConnection]);
        let held = rig.attempt("k").await;
        for _ in 0..2 {
            assert!(matches!(rig.transfer(&rig.holding(), held.attempt()).await, Err(StepError::NotDone(_))));
        }
        assert!(!done(rig.transfer(&rig.holding(), held.attempt()).await).1);
        assert_eq!(rig.bank.transfers(), 1);
    }

    #[tokio::test]
    async fn case_84_a_slow_success_is_one_call_and_unknown_until_somebody_looked() {
        let rig = Rig::new(Recovery::Rerun, [Behaviour::CommitThenStall]);
        let held = rig.attempt("k").await;
        assert_eq!(retry_after(rig.transfer(&rig.reconciling(), held.attempt()).await), Some(SETTLE));
        held.release().await;
        // The client comes back with the same key.
        let again = rig.attempt("k").await;
        assert!(retry_after(rig.transfer(&rig.reconciling(), again.attempt()).await) <= Some(SETTLE));
        rig.clock.advance(SETTLE);
        let found = done(rig.transfer(&rig.reconciling(), again.attempt()).await);
        assert_eq!(found, (Bytes::from_static(b"found"), true));
        assert_eq!((rig.bank.transfers(), rig.bank.requests().len()), (1, 1));
    }

    #[tokio::test]
    async fn case_92_a_refused_repetition_is_no_failure() {
        // A deletion that was slow, and its repetition finds nothing to delete.
        let rig = Rig::new(Recovery::Rerun, [Behaviour::CommitThenStall, Behaviour::Gone, Behaviour::Gone]);
        let held = rig.attempt("k").await;
        let guard = rig.guard(keyed(), retry(2));
        let asked = rig.transfer(&guard, held.attempt()).await;
        assert!(retry_after(asked).is_some());
        assert_eq!(rig.state("k").await, StepState::Unknown);
        assert_eq!(rig.view("k", "transfer").await.calls.len(), 2);
    }

    #[tokio::test]
    async fn a_provider_that_knows_nothing_is_called_again_after_its_settle_time() {
        let rig = Rig::new(Recovery::Rerun, [Behaviour::Stall]);
        let held = rig.attempt("k").await;
        rig.transfer(&rig.reconciling(), held.attempt()).await.unwrap_err();
        rig.clock.advance(SETTLE - Duration::from_micros(1));
        assert_eq!(retry_after(rig.transfer(&rig.reconciling(), held.attempt()).await), Some(Duration::from_micros(1)));
        rig.clock.advance(Duration::from_micros(1));
        assert!(!done(rig.transfer(&rig.reconciling(), held.attempt()).await).1);
        assert_eq!((rig.bank.transfers(), rig.bank.requests().len()), (1, 2));
        let (who, _) = rig.view("k", "transfer").await.entry.resolution.unwrap();
        assert_eq!(who, "reconcile hook of bank");
    }

    #[tokio::test]
    async fn a_hook_that_hangs_panics_or_does_not_know_changes_nothing() {
        for kind in 0..3 {
            let rig = Rig::new(Recovery::Rerun, [Behaviour::Stall]);
            let policy = Policy::reconcile(move |_| async move {
                match kind {
                    0 => std::future::pending().await,
                    1 => panic!("in the hook"),
                    _ => Found::StillUnknown,
                }
            });
            let guard = rig.guard(bank(), policy);
            let held = rig.attempt("k").await;
            rig.transfer(&guard, held.attempt()).await.unwrap_err();
            rig.clock.advance(SETTLE);
            assert_eq!(retry_after(rig.transfer(&guard, held.attempt()).await), Some(SETTLE), "{kind}");
            assert_eq!(rig.state("k").await, StepState::Unknown);
            assert_eq!(rig.bank.requests().len(), 1);
        }
    }

    #[tokio::test]
    async fn a_successor_waits_for_deadline_and_quiet_period() {
        let rig = Rig::new(Recovery::Rerun, [Behaviour::CommitThenStall]);
        let first = rig.attempt("k").await;
        rig.clock.advance(Duration::from_secs(28));
        let stopped =
            tokio::time::timeout(Duration::from_millis(50), rig.transfer(&rig.reconciling(), first.attempt())).await;
        assert!(stopped.is_err(), "it is killed while it calls");
        rig.clock.advance(Duration::from_secs(2));
        let successor = rig.attempt("k").await;
        assert_eq!(retry_after(rig.transfer(&rig.reconciling(), successor.attempt()).await), Some(TIMEOUT));
        rig.clock.advance(TIMEOUT);
        assert_eq!(retry_after(rig.transfer(&rig.reconciling(), successor.attempt()).await), Some(SETTLE));
        rig.clock.advance(SETTLE);
        assert_eq!(done(rig.transfer(&rig.reconciling(), successor.attempt()).await).0, "found");
        assert_eq!(rig.bank.transfers(), 1);
    }

    /// The first worker stands still across its call; its success is reported before or after somebody said no.
    #[tokio::test]
    async fn a_late_success_is_evidence_before_and_after_a_no() {
        for resolved in [false, true] {
            let rig = Rig::new(Recovery::Rerun, []);
            let held = rig.attempt("k").await;
            let guard = rig.holding();
            let attempt = held.attempt().clone();
            let bank_called = rig.bank.clone();
            let first = tokio::spawn(async move {
                let slow = |call| {
                    let bank = bank_called.clone();
                    async move {
                        sleep(Duration::from_millis(150)).await;
                        bank.call(call).await
                    }
                };
                guard.call(&attempt, &step("transfer", "10 EUR"), slow).await
            });
            while rig.store.calls(Op::BeginCall) == 0 {
                sleep(Duration::from_millis(1)).await;
            }
            sleep(Duration::from_millis(20)).await;
            let successor = rig.successor("k").await;
            assert_eq!(retry_after(rig.transfer(&rig.holding(), successor.attempt()).await), None);
            if resolved {
                assert_eq!(resolve(&rig, StepVerdict::DidNotHappen).await, StepResolved::Applied);
            }
            done(first.await.unwrap());
            assert_eq!(
                done(rig.transfer(&rig.holding(), successor.attempt()).await),
                (Bytes::from_static(b"201"), true)
            );
            assert_eq!(rig.bank.transfers(), 1);
        }
    }

    async fn resolve(rig: &Rig, verdict: StepVerdict) -> StepResolved {
        let label = StepLabel::parse("transfer").unwrap();
        let (who, why) = ("ops".to_owned(), "asked the bank".to_owned());
        let resolve = ResolveStep { id: id("k"), label, call_seen: 1, verdict, who, why };
        rig.store.resolve_step(&resolve).await.unwrap()
    }

    #[tokio::test]
    async fn an_operator_finds_inspects_and_resolves_a_held_step() {
        let rig = Rig::new(Recovery::Rerun, [Behaviour::CommitThen502]);
        let held = rig.attempt("k").await;
        rig.transfer(&rig.holding(), held.attempt()).await.unwrap_err();
        let list = ListSteps { state: Some(StepState::Unknown), ..ListSteps::default() };
        let page = rig.store.list_steps(&list).await.unwrap();
        assert_eq!((page.entries.len(), page.entries[0].call), (1, 1));
        let view = rig.view("k", "transfer").await;
        assert_eq!(view.calls[0].end, Some(LoggedEnd::Unknown("answered with status 502".to_owned())));
        let happened = StepVerdict::Happened(StepResult::Kept(Bytes::from_static(b"by hand")));
        assert_eq!(resolve(&rig, happened).await, StepResolved::Applied);
        assert_eq!(done(rig.transfer(&rig.holding(), held.attempt()).await), (Bytes::from_static(b"by hand"), true));
    }
}

mod keys {
    use super::*;

    #[tokio::test]
    async fn case_85_every_call_has_the_same_key_also_after_a_restart() {
        let plan = [Behaviour::CommitThenReset, Behaviour::HalfABody, Behaviour::CommitThen502];
        let rig = Rig::new(Recovery::Rerun, plan);
        let rig = Rig { bank: rig.bank.clone().honours_keys(), ..rig };
        let held = rig.attempt("k").await;
        rig.transfer(&rig.guard(keyed(), retry(3)), held.attempt()).await.unwrap_err();
        drop(held);
        let successor = rig.successor("k").await;
        assert!(!done(rig.transfer(&rig.guard(keyed(), retry(3)), successor.attempt()).await).1);
        let requests = rig.bank.requests();
        assert_eq!(requests.len(), 4);
        assert!(requests.iter().all(|request| *request == requests[0] && request.1.is_some()), "{requests:?}");
        assert_eq!(rig.bank.transfers(), 1);
    }

    #[tokio::test]
    async fn case_86_every_step_has_a_key_of_its_own() {
        let rig = Rig::new(Recovery::Rerun, [Behaviour::HalfABody]);
        let guard = rig.guard(keyed(), retry(2));
        for key in ["k", "l"] {
            let held = rig.attempt(key).await;
            for label in ["create", "pay"] {
                done(guard.call(held.attempt(), &step(label, "x"), |call| rig.bank.clone().call(call)).await);
            }
        }
        let requests = rig.bank.requests();
        assert_eq!(requests[0], requests[1], "two calls of one step");
        let keys: std::collections::BTreeSet<_> = requests.iter().map(|(reference, _)| reference).collect();
        assert_eq!(keys.len(), 4);
        let label = StepLabel::parse("create").unwrap();
        assert_eq!(requests[0].0, keyed().key(&id("k"), &label).as_str(), "it can be told beforehand");
    }

    #[tokio::test]
    async fn case_88_the_key_stays_while_the_request_does_and_is_refused_when_it_changes() {
        let rig = Rig::new(Recovery::Rerun, [Behaviour::TooMany, Behaviour::CommitThen502]);
        let rig = Rig { bank: rig.bank.clone().honours_keys(), ..rig };
        let held = rig.attempt("k").await;
        let guard = rig.guard(keyed(), retry(1));
        rig.transfer(&guard, held.attempt()).await.unwrap_err();
        rig.transfer(&guard, held.attempt()).await.unwrap_err();
        let changed = guard.call(held.attempt(), &step("transfer", "11 EUR"), |call| rig.bank.clone().call(call)).await;
        assert!(matches!(changed, Err(StepError::RequestChanged(_))), "{changed:?}");
        done(rig.transfer(&guard, held.attempt()).await);
        let requests = rig.bank.requests();
        assert_eq!(requests.len(), 3);
        assert!(requests.iter().all(|request| *request == requests[0]));
        assert_eq!(rig.bank.transfers(), 1);
    }

    /// 600 s, less a margin of 60 s and the call's own timeout.
    #[tokio::test]
    async fn no_call_is_repeated_when_the_providers_window_may_be_over() {
        let rig = Rig::new(Recovery::Rerun, [Behaviour::CommitThenReset, Behaviour::CommitThenReset]);
        let guard = rig.guard(keyed(), retry(1));
        let held = rig.attempt("k").await;
        rig.transfer(&guard, held.attempt()).await.unwrap_err();
        rig.clock.advance(Duration::from_secs(540) - TIMEOUT - Duration::from_micros(1));
        let second = rig.attempt("k").await;
        rig.transfer(&guard, second.attempt()).await.unwrap_err();
        assert_eq!(rig.bank.requests().len(), 2);
        rig.clock.advance(Duration::from_micros(1));
        assert_eq!(retry_after(rig.transfer(&guard, second.attempt()).await), None);
        assert_eq!(rig.bank.requests().len(), 2);
        // Somebody says that it did not happen: called, and without the key that the provider would take for a new one.
        let label = StepLabel::parse("transfer").unwrap();
        let (who, why) = ("ops".to_owned(), "asked the bank".to_owned());
        let verdict = StepVerdict::DidNotHappen;
        let resolve = ResolveStep { id: id("k"), label, call_seen: 2, verdict, who, why };
        assert_eq!(rig.store.resolve_step(&resolve).await.unwrap(), StepResolved::Applied);
        done(rig.transfer(&guard, second.attempt()).await);
        assert_eq!(rig.bank.requests()[2].1, None);
    }

    #[test]
    fn keys_are_cut_to_the_limit_and_never_below_128_bits() {
        let label = StepLabel::parse("s").unwrap();
        let place = || KeyPlace::Field("reference".to_owned());
        let key = |encoding, longest| {
            let keys = KeySupport::new(place(), window(Duration::from_secs(600)), encoding, longest)?;
            Ok(bank().takes_key(keys)?.key(&id("k"), &label).as_str().to_owned())
        };
        let whole = key(KeyEncoding::Hex, 255).unwrap();
        assert_eq!((whole.len(), bank().key(&id("k"), &label).as_str()), (64, &*whole));
        assert_eq!(key(KeyEncoding::Hex, 32).unwrap(), whole[..32]);
        assert_eq!(key(KeyEncoding::Hex, 31), Err(InvalidProvider::ShortKeys { bits: 124 }));
        assert_eq!(key(KeyEncoding::Base64Url, 64).unwrap().len(), 43);
        assert_eq!(key(KeyEncoding::Base64Url, 22).unwrap().len(), 22);
        assert_eq!(key(KeyEncoding::Base64Url, 21), Err(InvalidProvider::ShortKeys { bits: 126 }));
    }

    #[test]
    fn what_could_not_be_kept_is_refused_at_construction() {
        let store = MemoryStore::new();
        assert_eq!(Guard::new(store, bank(), retry(3)).unwrap_err(), InvalidPolicy::RetryWithoutKey);
        let keys =
            KeySupport::new(KeyPlace::Field("k".into()), window(Duration::from_millis(300)), KeyEncoding::Hex, 64);
        assert!(matches!(bank().takes_key(keys.unwrap()).unwrap_err(), InvalidProvider::ShortWindow { .. }));
        assert!(Provider::new("bank", Duration::ZERO).is_err());
    }

    #[test]
    fn the_presets_can_be_made() {
        for keys in [KeySupport::stripe(), KeySupport::adyen(), KeySupport::paypal_orders(), KeySupport::sqs_fifo()] {
            assert!(bank().takes_key(keys.unwrap()).is_ok());
        }
    }
}

mod records {
    use super::*;

    #[tokio::test]
    async fn a_handler_that_is_run_again_replays_its_finished_steps_and_goes_on() {
        let rig = Rig::new(Recovery::Rerun, [Behaviour::Answer, Behaviour::RefuseConnection]);
        let guard = rig.holding();
        let runs = AtomicUsize::new(0);
        let payout = async || {
            run(&rig.engine, &operation("k"), async |attempt| {
                runs.fetch_add(1, Ordering::SeqCst);
                for label in ["charge", "transfer", "receipt"] {
                    let outcome = guard.call(&attempt, &step(label, "x"), |call| rig.bank.clone().call(call)).await;
                    let StepOutcome { .. } = outcome.map_err(WorkError::Unknown)?;
                }
                Ok::<_, WorkError<StepError>>("paid".to_owned())
            })
            .await
        };
        assert!(matches!(payout().await, Err(RunError::Work(WorkError::Unknown(StepError::NotDone(_))))));
        assert_eq!(rig.record("k").await, State::Released);
        assert_eq!(payout().await.unwrap().value, "paid");
        assert!(payout().await.unwrap().replayed);
        assert_eq!((runs.load(Ordering::SeqCst), rig.bank.transfers()), (2, 3));
    }

    #[tokio::test]
    async fn case_93_after_a_crash_the_step_is_blocked_or_replayed_by_choice() {
        // Held by its record: nothing runs.
        let rig = Rig::new(Recovery::Hold, []);
        let held = rig.attempt("k").await;
        done(rig.transfer(&rig.holding(), held.attempt()).await);
        drop(held);
        rig.clock.advance(LEASES);
        assert!(matches!(rig.engine.claim(&operation("k")).await.unwrap(), Answer::DoNot(Claimed::InDoubt(_))));
        // Run again: the step is replayed if it was recorded, and blocked if it was not.
        for (behaviour, blocked) in [(Behaviour::Answer, false), (Behaviour::CommitThenStall, true)] {
            let rig = Rig::new(Recovery::Rerun, [behaviour]);
            let held = rig.attempt("k").await;
            let _ = rig.transfer(&rig.holding(), held.attempt()).await;
            drop(held);
            let successor = rig.successor("k").await;
            assert_eq!(rig.transfer(&rig.holding(), successor.attempt()).await.is_err(), blocked);
            assert_eq!(rig.bank.transfers(), 1);
        }
    }

    #[tokio::test]
    async fn a_held_key_is_not_released_while_a_step_may_have_had_its_effect() {
        for (behaviour, state) in [
            (Behaviour::Answer, State::InDoubt),
            (Behaviour::CommitThenReset, State::InDoubt),
            (Behaviour::Decline, State::Released),
            (Behaviour::RefuseConnection, State::Released),
        ] {
            let rig = Rig::new(Recovery::Hold, [behaviour]);
            let held = rig.attempt("k").await;
            let _ = rig.transfer(&rig.holding(), held.attempt()).await;
            assert_eq!(held.may_release(), state == State::Released, "{behaviour:?}");
            held.release().await;
            assert_eq!(rig.record("k").await, state, "{behaviour:?}");
        }
        let rig = Rig::new(Recovery::Rerun, [Behaviour::CommitThenReset]);
        let held = rig.attempt("k").await;
        let _ = rig.transfer(&rig.holding(), held.attempt()).await;
        held.release().await;
        assert_eq!(rig.record("k").await, State::Released);
    }

    #[tokio::test]
    async fn an_unknown_outcome_carries_no_retry_after_under_a_held_record() {
        let rig = Rig::new(Recovery::Hold, [Behaviour::Stall]);
        let held = rig.attempt("k").await;
        assert_eq!(retry_after(rig.transfer(&rig.reconciling(), held.attempt()).await), None);
    }

    #[tokio::test]
    async fn resolving_the_record_does_not_resolve_its_steps() {
        let rig = Rig::new(Recovery::Hold, [Behaviour::CommitThenReset]);
        let held = rig.attempt("k").await;
        rig.transfer(&rig.holding(), held.attempt()).await.unwrap_err();
        let token_seen = held.attempt().token();
        held.mark_in_doubt(None).await;
        let verdict = ResolveVerdict::DidNotHappen { fence_token: None };
        let resolve = Resolve { id: id("k"), token_seen, verdict, who: "ops".into(), why: "too early".into() };
        assert_eq!(rig.store.resolve(&resolve).await.unwrap(), Resolved::Applied);
        let again = rig.attempt("k").await;
        rig.transfer(&rig.holding(), again.attempt()).await.unwrap_err();
        assert_eq!(rig.bank.transfers(), 1);
        assert!(rig.clock.now() > Timestamp::MIN);
    }
}
