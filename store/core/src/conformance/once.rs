//! Time-ordered keys run once: random claims of forged and honest keys, with clocks that step, purges, settings that change,
//! messages that come late and restarts, until a key runs twice or a number of claims is reached.
//!
//! [`play`] says what it saw and asserts nothing, so that the same schedules can show that a store with one rule less does run
//! a key twice.

use std::collections::VecDeque;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

use super::support::{DEAD_FOR, lease, ok, outcome, windows};
use crate::{
    AgeLimit, Claim, Claimed, Fingerprint, Holder, KeyClass, Life, Nonce, RecordId, Recovery, Settled, Store,
    StoreError, Timestamp,
};

/// A store and all that surrounds it: its clock, and what a restart leaves of it.
pub trait World: Send + Sync {
    /// The store.
    type Store: Store;

    /// The store, as it is since the last restart.
    fn store(&self) -> &Self::Store;

    /// What the store's clock shows.
    fn now(&self) -> Timestamp;

    /// Sets the store's clock, forward or back.
    fn set(&mut self, now: Timestamp);

    /// Ends the store as a crash does, and starts it anew.
    fn restart(&mut self) -> impl Future<Output = ()> + Send;

    /// Delivers a claim that was sent when the clock showed `sent`. A world that breaks a rule does it here.
    fn claim(&self, claim: Claim, sent: Timestamp) -> impl Future<Output = Result<Claimed, StoreError>> + Send {
        let _ = sent;
        async move { self.store().claim(&claim).await }
    }
}

/// What is played.
#[derive(Clone, Copy, Debug)]
pub struct Schedule {
    /// Where its random numbers start: the same schedule is played again with the same one.
    pub seed: u64,
    /// How many claims it has.
    pub claims: u64,
    /// The time that all others are multiples of: keys are up to 300 old, clocks go on by up to 8 and leap by up to 200. A second, or
    /// more where rows stay for longer than keys are young.
    pub unit: Duration,
    /// How far the clock steps back at most; zero for a clock that never does.
    pub steps_back: Duration,
    /// Whether how far ahead keys may be dated changes in between, as the maximum age does.
    pub drift_changes: bool,
}

/// What was seen.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    /// Claims that were made.
    pub claims: u64,
    /// Claims that were granted.
    pub granted: u64,
    /// Keys that were refused as too old.
    pub too_old: u64,
    /// Keys that were answered by their record.
    pub answered: u64,
    /// Restarts.
    pub restarts: u64,
    /// Grants of keys whose effect may have happened before.
    pub twice: u64,
}

/// Plays a schedule to its end, or until a key has run twice.
pub async fn play(world: &mut impl World, schedule: Schedule) -> Seen {
    let mut play = Play {
        random: StdRng::seed_from_u64(schedule.seed),
        keys: Vec::new(),
        recent: VecDeque::new(),
        made: 0,
        late: Vec::new(),
        unit: schedule.unit,
        life: aged(60 * schedule.unit, LONGEST_DRIFT * schedule.unit),
        true_time: world.now(),
        seen: Seen::default(),
    };
    while play.seen.claims < schedule.claims && play.seen.twice == 0 {
        play.step(world, schedule).await;
        play.true_time = play.true_time.max(world.now());
    }
    play.seen
}

/// A claim as it is where no purge raises a floor: its class is one that nobody else has.
#[must_use]
pub fn without_floors(claim: Claim) -> Claim {
    let windows = *claim.life.windows();
    let own = |limit: AgeLimit| AgeLimit { class: KeyClass::new(&format!("{:?}", claim.nonce.as_bytes())), ..limit };
    let limit = claim.life.age().cloned().map(own);
    let life = Life::from_stored(claim.life.recovery(), windows.response(), windows.tombstone(), limit);
    Claim { life, ..claim }
}

/// A claim as it is where the age is judged when it is sent: one that passes says a time that passes whenever it is delivered.
#[must_use]
pub fn judged_when_sent(claim: Claim, sent: Timestamp, now: Timestamp) -> Claim {
    let passes = match (claim.life.age(), claim.key_time) {
        (Some(limit), Some(time)) => time > sent.before(limit.max_age) && time <= sent.after(limit.drift),
        _ => false,
    };
    if passes { Claim { key_time: claim.key_time.max(Some(now)), ..claim } } else { claim }
}

struct Play {
    random: StdRng,
    keys: Vec<KnownKey>,
    /// Where the newest of them are.
    recent: VecDeque<usize>,
    made: u64,
    /// Claims on their way: which key, and when they were sent.
    late: Vec<(usize, Claim, Timestamp)>,
    unit: Duration,
    life: Life,
    /// What the clocks of honest clients show, whatever the store's does.
    true_time: Timestamp,
    seen: Seen,
}

#[derive(Clone, Copy)]
struct KnownKey {
    id: RecordId,
    time: Timestamp,
    /// Its effect may have happened.
    ran: bool,
}

impl Play {
    async fn step(&mut self, world: &mut impl World, schedule: Schedule) {
        match self.random.random_range(0..1000) {
            0..900 => self.claim(world).await,
            900..930 => self.send_late(world),
            930..964 => {
                let by = self.up_to(8);
                world.set(world.now().after(by));
            }
            964..968 => {
                let by = self.up_to(200);
                world.set(world.now().after(by));
            }
            968..970 => {
                let by = self.up_to(200).min(schedule.steps_back);
                world.set(world.now().before(by));
            }
            970..990 => {
                let limit = self.random.random_range(1..200);
                ok(world.store().sweep(limit).await);
            }
            990..998 => {
                let max_age = [20, 60, 300][self.random.random_range(0..3)];
                let drift = [1, 5, LONGEST_DRIFT][self.random.random_range(0..3)];
                let drift = if schedule.drift_changes { drift } else { LONGEST_DRIFT };
                self.life = aged(max_age * self.unit, drift * self.unit);
            }
            _ => {
                self.seen.restarts += 1;
                world.restart().await;
            }
        }
    }

    /// A claim of a new key or of one that was claimed before, or one that was sent long ago.
    async fn claim(&mut self, world: &mut impl World) {
        let (which, claim, sent) = if !self.late.is_empty() && self.random.random_range(0..20) == 0 {
            let next = self.random.random_range(0..self.late.len());
            self.late.swap_remove(next)
        } else {
            let which = self.pick();
            (which, self.claim_of(which), world.now())
        };
        self.seen.claims += 1;
        match ok(world.claim(claim.clone(), sent).await) {
            Claimed::Granted(grant) => {
                self.seen.granted += 1;
                self.seen.twice += u64::from(self.keys[which].ran);
                let holder = Holder { id: claim.id, token: grant.token, nonce: claim.nonce };
                self.keys[which].ran |= self.settle(world.store(), &holder).await;
            }
            Claimed::TooOld => self.seen.too_old += 1,
            Claimed::Replay { .. } | Claimed::Executed(_) | Claimed::InDoubt(_) => self.seen.answered += 1,
            _ => {}
        }
    }

    /// Ends an attempt in one of the ways that attempts end; whether its effect may have happened.
    async fn settle(&mut self, store: &impl Store, holder: &Holder) -> bool {
        let settled = match self.random.random_range(0..10) {
            0..6 => store.complete(holder, &outcome()).await,
            6 => store.mark_in_doubt(holder, None).await,
            7 => return true,
            _ => {
                let settled = ok(store.release(holder, DEAD_FOR).await);
                assert_eq!(settled, Settled::Applied, "a release of a claim that was just granted");
                return false;
            }
        };
        assert_eq!(ok(settled), Settled::Applied, "the end of an attempt that was just granted");
        true
    }

    fn send_late(&mut self, world: &impl World) {
        let which = self.pick();
        if self.late.len() < 50 {
            let claim = self.claim_of(which);
            self.late.push((which, claim, world.now()));
        }
    }

    fn claim_of(&mut self, which: usize) -> Claim {
        let key = self.keys[which];
        let nonce = Nonce::from_bytes(self.random.random());
        Claim {
            id: key.id,
            fingerprint: Fingerprint::from_bytes([Fingerprint::VERSION; 33]),
            nonce,
            lease: lease(LEASE),
            life: self.life.clone(),
            key_time: Some(key.time),
            room: 100,
        }
    }

    /// A key that is known, or a new one in the place of another.
    fn pick(&mut self) -> usize {
        if !self.keys.is_empty() && self.random.random_bool(0.6) {
            // Most retries come soon.
            let soon = self.random.random_bool(0.7).then(|| self.random.random_range(0..SOON));
            let recent = soon.and_then(|back| self.recent.iter().rev().nth(back).copied());
            return recent.unwrap_or_else(|| self.random.random_range(0..self.keys.len()));
        }
        // Most clients are honest; the others say what they like.
        let (back, ahead) = if self.random.random_bool(0.7) { (3, 1) } else { (400, 60) };
        let time = self.true_time.before(self.up_to(back)).after(self.up_to(ahead));
        self.made += 1;
        let mut id = [0; 32];
        id[..8].copy_from_slice(&self.made.to_be_bytes());
        let key = KnownKey { id: RecordId::from_bytes(id), time, ran: false };
        // A claim on its way keeps its key's place.
        let which = if self.keys.len() < KEYS { self.keys.len() } else { self.random.random_range(0..KEYS) };
        if which == self.keys.len() {
            self.keys.push(key);
        } else if !self.late.iter().any(|(late, ..)| *late == which) {
            self.keys[which] = key;
        }
        self.recent.push_back(which);
        if self.recent.len() > SOON {
            self.recent.pop_front();
        }
        which
    }

    fn up_to(&mut self, units: u32) -> Duration {
        self.random.random_range(Duration::ZERO..=units * self.unit)
    }
}

/// The shortest windows that such keys may have.
fn aged(max_age: Duration, drift: Duration) -> Life {
    let limit = AgeLimit { max_age, drift, class: KeyClass::new("random") };
    Life::new(Recovery::Hold, windows(Duration::from_secs(1), max_age + drift + LEASE))
        .with_age(limit, lease(LEASE))
        .expect("the tombstone window is just long enough")
}

/// Short, so that doubts end soon.
const LEASE: Duration = Duration::from_secs(2);

/// What a schedule begins with, in its unit.
const LONGEST_DRIFT: u32 = 30;

/// How many keys are known at a time.
const KEYS: usize = 600;

/// How many of them are recent.
const SOON: usize = 30;
