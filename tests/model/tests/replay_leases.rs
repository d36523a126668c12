//! Random walks of what arrives at leases and at a fence, replayed against real stores: the same answers, step by step.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::collections::BTreeMap;
use std::time::Duration;

use idempotency::time::ManualClock;
use idempotency::{FenceTicket, LeaseHolder, Leases, Resource, StoreErrorKind, TOKEN_HOLD, Timestamp, TokenSource};
use idempotency_memory::MemoryLeases;
use idempotency_model::lease_walk::{Answer, Dropped, LeaseWalk, Op};
use idempotency_sqlx::fence::{FenceError, Fences as _, SqliteFences};
use idempotency_sqlx::{SqliteStore, Synchronous};
use rand::SeedableRng as _;
use rand::rngs::StdRng;
use sqlx::sqlite::{SqliteConnectOptions, SqlitePoolOptions, SqliteSynchronous};

/// The walks of one run; with another number in `MODEL_SEED`, others.
fn seed() -> u64 {
    std::env::var("MODEL_SEED").ok().map_or(1, |seed| seed.parse().unwrap())
}

/// 1990-01-01. Fences are judged by the database's own clock, which refuses tokens that are ahead of it.
const ORIGIN: Timestamp = Timestamp::from_micros(631_152_000_000_000);

#[derive(Clone, Copy)]
struct Walks {
    walks: u32,
    steps: usize,
    hold: Duration,
    back: u8,
    /// An operator looks after every step, and not after the last one alone.
    looks: bool,
}

const MEMORY: Walks = Walks { walks: 10_000, steps: 40, hold: Duration::ZERO, back: 0, looks: true };
const SQLITE: Walks = Walks { walks: 10_000, steps: 10, hold: TOKEN_HOLD, back: 1, looks: false };

#[tokio::test]
async fn walks_are_answered_alike_by_leases_in_process() {
    let clock = ManualClock::new(ORIGIN);
    let leases = MemoryLeases::with_clock(clock.clone());
    are_alike(&replay(&leases, None, &clock, MEMORY, None).await, &KINDS);
}

#[tokio::test]
async fn walks_are_answered_alike_by_leases_and_fences_in_sqlite() {
    let (_folder, clock, leases, fences) = sqlite().await;
    let answered = replay(&leases, Some(&fences), &clock, SQLITE, None).await;
    are_alike(&answered, &KINDS);
    are_alike(&answered, &["Opened", "Superseded"]);
}

/// The walks tell a model that lacks a rule of the store from the store.
#[tokio::test]
async fn walks_without_a_rule_are_answered_otherwise() {
    for rule in Dropped::ALL {
        let (_folder, clock, leases, fences) = sqlite().await;
        let answered = replay(&leases, Some(&fences), &clock, SQLITE, Some(rule)).await;
        assert!(answered.is_err(), "without {rule:?} all is answered alike");
    }
}

/// No answer was another one, and each kind came often enough, or the walks show nothing.
fn are_alike(answered: &Result<BTreeMap<String, usize>, String>, kinds: &[&str]) {
    let answered = answered.as_ref().unwrap_or_else(|wrong| panic!("{wrong}"));
    eprintln!("{answered:?}");
    for kind in kinds {
        assert!(answered.get(*kind).copied().unwrap_or(0) >= 100, "{kind} was hardly ever answered: {answered:?}");
    }
}

const DAY: Duration = Duration::from_secs(86_400);

async fn sqlite() -> (tempfile::TempDir, ManualClock, impl Leases, SqliteFences) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("store.sqlite");
    let url = format!("sqlite:{}", file.display());
    let clock = ManualClock::new(ORIGIN);
    let options = || SqliteStore::options(&url).synchronous(Synchronous::Normal).clock(clock.clone());
    options().migrate().await.unwrap();
    let leases = options().open().await.unwrap().leases();
    let options = SqliteConnectOptions::new().filename(file).synchronous(SqliteSynchronous::Normal);
    let pool = SqlitePoolOptions::new().max_connections(1).connect_with(options).await.unwrap();
    (folder, clock, leases, SqliteFences::new(pool))
}

/// What leases answer.
const KINDS: [&str; 9] = [
    "AcquiredGrantedLeaseGrant",
    "AcquiredHeld",
    "AcquiredRefused",
    "TooFarAhead",
    "SettledApplied",
    "SettledAlreadyApplied",
    "SettledSuperseded",
    "Abandoned",
    "Swept",
];

/// How often each kind of answer came, or the first that is another one.
async fn replay(
    leases: &impl Leases,
    fences: Option<&SqliteFences>,
    clock: &ManualClock,
    walks: Walks,
    dropped: Option<Dropped>,
) -> Result<BTreeMap<String, usize>, String> {
    let Walks { walks, steps, hold, back, looks } = walks;
    let mut kinds = BTreeMap::new();
    for number in 0..walks {
        // Each about a resource of its own, on a day of its own.
        let resource = Resource::parse(&format!("r{number}")).unwrap();
        let origin = ORIGIN.after(DAY * number);
        let walk = LeaseWalk { resource: resource.clone(), origin, hold, back, fence: fences.is_some(), dropped };
        let mut random = StdRng::seed_from_u64(seed().wrapping_mul(1_000_003).wrapping_add(number.into()));
        let walk = walk.walk(steps, &mut random);
        for (n, arrival) in walk.iter().enumerate() {
            clock.set(arrival.at);
            let answer = ask(leases, fences, &resource, &arrival.op).await;
            let entry = match looks || n + 1 == walk.len() {
                true => leases.inspect(&resource).await.unwrap(),
                false => arrival.entry,
            };
            if answer != arrival.answer || entry != arrival.entry {
                let wrong = format!("{answer:?}, {entry:?} and not {:?}, {:?}", arrival.answer, arrival.entry);
                let walked: Vec<_> = walk[..=n].iter().map(|arrival| (arrival.at.micros(), &arrival.op)).collect();
                return Err(format!("{wrong}: MODEL_SEED={}, walk {number}: {walked:#?}", seed()));
            }
            *kinds.entry(kind(&answer)).or_default() += 1;
        }
    }
    Ok(kinds)
}

fn kind(answer: &Answer) -> String {
    let text = match answer {
        Answer::Superseded(_) => "Superseded".to_owned(),
        answer => format!("{answer:?}").replace('(', ""),
    };
    text.chars().take_while(|c| c.is_alphanumeric()).collect()
}

async fn ask(leases: &impl Leases, fences: Option<&SqliteFences>, resource: &Resource, op: &Op) -> Answer {
    match op {
        Op::Acquire(ask) => match leases.try_acquire(ask).await {
            Ok(acquired) => Answer::Acquired(acquired),
            Err(error) if error.kind() == StoreErrorKind::Refused => Answer::TooFarAhead,
            Err(error) => panic!("{error}"),
        },
        Op::Renew(holder, lease) => Answer::Settled(leases.renew(holder, *lease).await.unwrap()),
        Op::Release(holder, dead_for) => Answer::Settled(leases.release(holder, *dead_for).await.unwrap()),
        Op::Abandon(nonce, dead_for) => {
            leases.abandon(resource, *nonce, *dead_for).await.unwrap();
            Answer::Abandoned
        }
        Op::Open(holder) => open(fences.unwrap(), holder).await,
        Op::Sweep => {
            leases.sweep(usize::MAX).await.unwrap();
            Answer::Swept
        }
    }
}

async fn open(fences: &SqliteFences, holder: &LeaseHolder) -> Answer {
    let ticket = FenceTicket { token: holder.token, holder: Some(holder.nonce), source: TokenSource::LEASES };
    match fences.open_with(&holder.resource, &ticket).await {
        Ok(transaction) => {
            transaction.commit().await.unwrap();
            Answer::Opened
        }
        Err(FenceError::Superseded { current }) => Answer::Superseded(current),
        Err(error) => panic!("{error}"),
    }
}
