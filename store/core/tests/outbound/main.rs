//! Calls to external APIs under the guard, with a provider that keeps its own ledger and misbehaves as it is told.
#![expect(clippy::unwrap_used, reason = "a test fails loudly")]

mod calling;
mod keys;
mod records;
mod unknown;

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
    Answer, Attempt, Claimed, Clock as _, Engine, Fingerprint, Held, Key, Lease, Life, Operation, RecordId, Recovery,
    Resolve, ResolveVerdict, Resolved, RunError, ScopeId, Settings, Settled, State, Store, StoreErrorKind, Timestamp,
    Windows, WorkError, run,
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
