//! Random walks through the model of records, replayed against real stores: the same answers, step by step.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::time::Duration;

use idempotency::time::ManualClock;
use idempotency::{Entry, RecordId, State, Store, TOKEN_HOLD};
use idempotency_memory::MemoryStore;
use idempotency_model::records::message::Answer;
use idempotency_model::records::{Dropped, RECORD, Records};
use idempotency_model::ticks::ORIGIN;
use idempotency_sqlx::{SqliteStore, Synchronous};
use rand::SeedableRng as _;
use rand::rngs::StdRng;

/// The walks of one run; with another number in `MODEL_SEED`, others.
fn seed() -> u64 {
    std::env::var("MODEL_SEED").ok().map_or(1, |seed| seed.parse().unwrap())
}

#[tokio::test]
async fn walks_are_answered_alike_by_the_store_in_process() {
    let clock = ManualClock::new(ORIGIN);
    let store = MemoryStore::builder().clock(clock.clone()).build();
    // Its clock never steps back, and so it holds no row for its token.
    let walks = Walks { walks: 10_000, steps: 80, hold: Duration::ZERO, tidies: true, back: 0 };
    replay(&store, &clock, walks, None).await.unwrap_or_else(|wrong| panic!("{wrong}"));
}

/// The walks tell a model that lacks a rule of the store from the store.
#[tokio::test]
async fn walks_without_a_rule_are_answered_otherwise() {
    for rule in RULES_OF_THE_STORE {
        let clock = ManualClock::new(ORIGIN);
        let store = MemoryStore::builder().clock(clock.clone()).build();
        let walks = Walks { walks: 10_000, steps: 80, hold: Duration::ZERO, tidies: true, back: 0 };
        assert!(replay(&store, &clock, walks, Some(rule)).await.is_err(), "without {rule:?} all is answered alike");
    }
}

const RULES_OF_THE_STORE: [Dropped; 7] = [
    Dropped::LifeKept,
    Dropped::InFlightOutlivesWindows,
    Dropped::OwnClaimChangesNothing,
    Dropped::DeadNonces,
    Dropped::DeadNoncesSurvive,
    Dropped::ResolveCompares,
    Dropped::ResolveReplacesNonce,
];

#[tokio::test]
async fn walks_are_answered_alike_by_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    let clock = ManualClock::new(ORIGIN);
    let url = format!("sqlite:{}", folder.path().join("store.sqlite").display());
    let options = || SqliteStore::options(&url).synchronous(Synchronous::Normal).clock(clock.clone());
    options().migrate().await.unwrap();
    let store = options().open().await.unwrap();
    let walks = Walks { walks: 10_000, steps: 40, hold: TOKEN_HOLD, tidies: false, back: 2 };
    replay(&store, &clock, walks, None).await.unwrap_or_else(|wrong| panic!("{wrong}"));
}

struct Walks {
    walks: u64,
    steps: usize,
    /// How long a row is held for its token.
    hold: Duration,
    /// Whether claims clear away what is over.
    tidies: bool,
    /// How often the clock may step back.
    back: u8,
}

/// Replays walks of the model, or of one without a rule. The first answer that is another one, if there is one.
async fn replay(store: &impl Store, clock: &ManualClock, walks: Walks, dropped: Option<Dropped>) -> Result<(), String> {
    let (mut arrived, mut kinds) = (0_usize, std::collections::BTreeMap::<String, usize>::new());
    for number in 0..walks.walks {
        // Each about a record of its own, on a day of its own.
        let origin = ORIGIN.after(Duration::from_secs(86_400) * u32::try_from(number).unwrap());
        let model = Records { dropped, ..Records::to_walk(origin, walks.hold, walks.back) };
        let mut random = StdRng::seed_from_u64(seed().wrapping_mul(1_000_003).wrapping_add(number));
        let id = RecordId::from_bytes(std::array::from_fn(|n| number.to_be_bytes()[n % 8]));
        let walk = model.walk(walks.steps, walks.tidies, &mut random);
        for (n, arrival) in walk.iter().enumerate() {
            clock.set(arrival.at);
            let told = || {
                let walked: Vec<_> = walk[..=n].iter().map(|arrival| (arrival.at.micros(), arrival.op)).collect();
                format!("MODEL_SEED={}, walk {number}: {walked:#?}", seed())
            };
            match arrival.op {
                Some(op) => {
                    let answer = model.request(op, id).ask(store).await.unwrap();
                    *kinds.entry(kind(&answer)).or_default() += 1;
                    if Some(&answer) != arrival.answer.as_ref() {
                        return Err(format!("{answer:?} and not {:?}: {}", arrival.answer, told()));
                    }
                    arrived += 1;
                }
                None => drop(store.sweep(1000).await.unwrap()),
            }
            let entry = store.inspect(&id).await.unwrap();
            let (entry, modelled) = (seen(entry), seen(arrival.entry.clone()));
            if entry != modelled {
                return Err(format!("{entry:?} and not {modelled:?}: {}", told()));
            }
        }
    }
    eprintln!("{} walks, {arrived} answers alike: {kinds:?}", walks.walks);
    for kind in KINDS {
        assert!(kinds.get(kind).copied().unwrap_or(0) >= 100, "{kind} was hardly ever answered: {kinds:?}");
    }
    Ok(())
}

/// What must be answered often enough, or the walks show nothing.
const KINDS: [&str; 11] = [
    "Granted",
    "Replay",
    "Executed",
    "InFlight",
    "InDoubt",
    "Mismatch",
    "Refused",
    "Applied",
    "AlreadyApplied",
    "Superseded",
    "Abandoned",
];

/// What must be alike. Whether a released row is still there is the store's business.
fn seen(entry: Option<Entry>) -> Option<Entry> {
    let entry = entry.filter(|entry| entry.state != State::Released)?;
    Some(Entry { id: RECORD, ..entry })
}

fn kind(answer: &Answer) -> String {
    let text = match answer {
        Answer::Claimed(claimed) => format!("{claimed:?}"),
        Answer::Settled(settled) => format!("{settled:?}"),
        Answer::Resolved(resolved) => format!("Resolved{resolved:?}"),
        Answer::Abandoned => "Abandoned".to_owned(),
    };
    text.chars().take_while(|c| c.is_alphanumeric()).collect()
}
