//! Random walks of what arrives about records and their steps, replayed against real stores: the same answers, step by step.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::collections::BTreeMap;
use std::time::Duration;

use idempotency::outbound::{Begun, Ended, Steps};
use idempotency::time::ManualClock;
use idempotency::{RecordId, Store, TOKEN_HOLD};
use idempotency_memory::MemoryStore;
use idempotency_model::step_walk::{Answer, Dropped, Op, StepWalk};
use idempotency_model::ticks::ORIGIN;
use idempotency_sqlx::{SqliteStore, Synchronous};
use rand::SeedableRng as _;
use rand::rngs::StdRng;

/// The walks of one run; with another number in `MODEL_SEED`, others.
fn seed() -> u64 {
    std::env::var("MODEL_SEED").ok().map_or(1, |seed| seed.parse().unwrap())
}

#[derive(Clone, Copy)]
struct Walks {
    walks: u32,
    arrivals: usize,
    hold: Duration,
    tidies: bool,
    /// An operator looks after every arrival, and not after the last one alone.
    looks: bool,
}

const MEMORY: Walks = Walks { walks: 10_000, arrivals: 40, hold: Duration::ZERO, tidies: true, looks: true };
const SQLITE: Walks = Walks { walks: 10_000, arrivals: 10, hold: TOKEN_HOLD, tidies: false, looks: false };

#[tokio::test]
async fn walks_are_answered_alike_by_steps_in_process() {
    let clock = ManualClock::new(ORIGIN);
    let store = MemoryStore::builder().clock(clock.clone()).build();
    are_alike(&replay(&store, &clock, MEMORY, None).await);
}

#[tokio::test]
async fn walks_are_answered_alike_by_steps_in_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    let clock = ManualClock::new(ORIGIN);
    let url = format!("sqlite:{}", folder.path().join("store.sqlite").display());
    let options = || SqliteStore::options(&url).synchronous(Synchronous::Normal).clock(clock.clone());
    options().migrate().await.unwrap();
    let store = options().open().await.unwrap();
    are_alike(&replay(&store, &clock, SQLITE, None).await);
}

/// The walks tell a model that lacks a rule of the store from the store.
#[tokio::test]
async fn walks_without_a_rule_are_answered_otherwise() {
    for rule in Dropped::ALL {
        let clock = ManualClock::new(ORIGIN);
        let store = MemoryStore::builder().clock(clock.clone()).build();
        let answered = replay(&store, &clock, MEMORY, Some(rule)).await;
        assert!(answered.is_err(), "without {rule:?} all is answered alike");
    }
}

/// No answer was another one, and each kind came often enough, or the walks show nothing.
fn are_alike(answered: &Result<BTreeMap<String, usize>, String>) {
    let answered = answered.as_ref().unwrap_or_else(|wrong| panic!("{wrong}"));
    eprintln!("{answered:?}");
    for kind in KINDS {
        assert!(answered.get(kind).copied().unwrap_or(0) >= 10, "{kind} was hardly ever answered: {answered:?}");
    }
}

const KINDS: [&str; 21] = [
    "Go",
    "Go again",
    "Stands Calling",
    "Stands Succeeded",
    "Stands Failed",
    "Stands Unknown",
    "RequestChanged",
    "Over",
    "Superseded",
    "LeaseTooShort",
    "Logged Calling",
    "Logged Succeeded",
    "Logged Failed",
    "Logged Unknown",
    "NeverBegan",
    "Missing",
    "Alarm",
    "Resolved Applied",
    "Resolved Superseded",
    "Resolved NotUnknown",
    "Resolved Missing",
];

/// How often each kind of answer came, or the first that is another one.
async fn replay<S: Store + Steps>(
    store: &S,
    clock: &ManualClock,
    walks: Walks,
    dropped: Option<Dropped>,
) -> Result<BTreeMap<String, usize>, String> {
    let Walks { walks, arrivals, hold, tidies, looks } = walks;
    let mut kinds = BTreeMap::new();
    for number in 0..walks {
        // Each about a record of its own, on a day of its own.
        let id = RecordId::from_bytes(std::array::from_fn(|n| number.to_be_bytes()[n % 4]));
        let origin = ORIGIN.after(Duration::from_secs(86_400) * number);
        let walk = StepWalk { id, origin, hold, tidies, dropped };
        let mut random = StdRng::seed_from_u64(seed().wrapping_mul(1_000_003).wrapping_add(number.into()));
        let walk = walk.walk(arrivals, &mut random);
        for (n, arrival) in walk.iter().enumerate() {
            clock.set(arrival.at);
            let answer = ask(store, &arrival.op).await;
            let view = match looks || n + 1 == walk.len() {
                true => store.inspect_step(&id, &arrival.label).await.unwrap(),
                false => arrival.view.clone(),
            };
            if answer != arrival.answer || view != arrival.view {
                let wrong = format!("{answer:?}, {view:?} and not {:?}, {:?}", arrival.answer, arrival.view);
                let walked: Vec<_> = walk[..=n].iter().map(|arrival| (arrival.at.micros(), &arrival.op)).collect();
                return Err(format!("{wrong}: MODEL_SEED={}, walk {number}: {walked:#?}", seed()));
            }
            for kind in kinds_of(&answer) {
                *kinds.entry(kind).or_default() += 1;
            }
        }
    }
    Ok(kinds)
}

fn kinds_of(answer: &Answer) -> Vec<String> {
    let word = |text: String| text.chars().take_while(|c| c.is_alphanumeric()).collect::<String>();
    match answer {
        Answer::Record(_) | Answer::Swept => Vec::new(),
        Answer::Begun(Begun::Go { call, .. }) if *call > 1 => vec!["Go again".to_owned()],
        Answer::Begun(Begun::Stands { standing, .. }) => vec![format!("Stands {:?}", standing.state())],
        Answer::Begun(begun) => vec![word(format!("{begun:?}"))],
        Answer::Ended(Ended::Logged { standing, alarm }) => {
            let alarm = alarm.map(|_| "Alarm".to_owned());
            alarm.into_iter().chain([format!("Logged {:?}", standing.state())]).collect()
        }
        Answer::Ended(ended) => vec![word(format!("{ended:?}"))],
        Answer::Resolved(resolved) => vec![format!("Resolved {}", word(format!("{resolved:?}")))],
    }
}

async fn ask<S: Store + Steps>(store: &S, op: &Op) -> Answer {
    match op {
        Op::Record(request) => Answer::Record(request.ask(store).await.unwrap()),
        Op::Begin(ask) => Answer::Begun(store.begin_call(ask).await.unwrap()),
        Op::End(report) => Answer::Ended(store.end_call(report).await.unwrap()),
        Op::Resolve(resolve) => Answer::Resolved(store.resolve_step(resolve).await.unwrap()),
        Op::Sweep => {
            store.sweep(usize::MAX).await.unwrap();
            Answer::Swept
        }
    }
}
