//! What is done to whom, and when: all of it told by a seed.

use std::fmt;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

use super::place::Kind as Store;
use crate::Way;

/// Whom it is done to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whom {
    /// A testbed's process.
    Testbed(usize),
    /// The link between clients and a testbed.
    Door(usize),
    /// The link between a testbed and its store, which is its ledger too where that is the same server.
    StoreLink(usize),
    /// The store's server.
    Server,
    /// The room that Redis has.
    Memory,
    /// The clock of the store's server.
    Clock,
}

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// SIGSTOP, and SIGCONT after a while.
    Pause,
    /// SIGKILL, and a new start after a while.
    Kill,
    /// What goes one way is lost without a word.
    Blackhole(Way),
    /// What goes either way is lost without a word.
    Cut,
    /// Everything is late.
    Delay,
    /// What goes one way arrives late, all at once.
    Hold(Way),
    /// Every connection is reset.
    Reset,
    /// New connections are reset, too.
    Refuse,
    /// One way of every connection ends.
    HalfClose(Way),
    /// SIGKILL, and its replica takes its place.
    FailOver,
    /// SIGSTOP, and its replica takes its place; then SIGCONT.
    StandStill,
    /// The store forgets everything (FLUSHALL).
    Flush,
    /// The store forgets its scripts (SCRIPT FLUSH).
    FlushScripts,
    /// The server ends every connection (CLIENT KILL, `pg_terminate_backend`, KILL).
    KillConnections,
    /// It is full (CONFIG SET maxmemory), and has room again after a while.
    Full,
    /// It is so many seconds ahead, or behind if less than zero, and goes right again after a while.
    Step(i64),
}

/// One thing that is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Strike {
    /// How long after the end of the one before it.
    pub after: Duration,
    /// What.
    pub what: What,
    /// For how long, where that applies.
    pub lasts: Duration,
}

/// What is done to one of them, one after the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lane {
    /// Whom it is done to.
    pub whom: Whom,
    /// What.
    pub strikes: Vec<Strike>,
}

/// Everything that is done in a run, side by side.
#[must_use]
pub fn lanes(seed: u64, store: Store, testbeds: usize, lease: Duration, length: Duration) -> Vec<Lane> {
    let each = |whom: fn(usize) -> Whom| (0..testbeds).map(whom);
    let mut all: Vec<Whom> = each(Whom::Testbed).chain(each(Whom::Door)).collect();
    all.extend(each(Whom::StoreLink).filter(|_| store.has_link()));
    all.extend(store.has_server().then_some(Whom::Server));
    all.extend(store.is_redis().then_some(Whom::Memory));
    all.extend((store == Store::RedisClock).then_some(Whom::Clock));
    // Each has numbers of its own: a change in one lane leaves the others as they were.
    let lane = |(n, whom)| {
        let mut random = StdRng::seed_from_u64(seed ^ (n as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        Lane { whom, strikes: strikes(&mut random, whom, store, lease, length) }
    };
    all.into_iter().enumerate().map(lane).collect()
}

fn strikes(random: &mut StdRng, whom: Whom, store: Store, lease: Duration, length: Duration) -> Vec<Strike> {
    let choices = choices(whom, store);
    let mut strikes = Vec::new();
    let mut at = Duration::ZERO;
    while at < length {
        let after = pick(random, gap(whom, store));
        let what = choices[random.random_range(0..choices.len())];
        let lasts = match what {
            // Longer than a lease, so that somebody else takes over; the store may not be away for so long.
            What::Pause if whom == Whom::Server => pick(random, (lease / 2, lease * 2)),
            What::Pause => pick(random, (lease * 11 / 10, lease * 3)),
            What::Kill => pick(random, (Duration::ZERO, lease)),
            What::Blackhole(_) | What::Cut | What::Hold(_) | What::Refuse | What::Delay => {
                pick(random, (lease / 2, lease * 3))
            }
            What::Full => pick(random, (lease / 4, lease * 2)),
            What::Step(_) => pick(random, (lease, lease * 6)),
            _ => Duration::ZERO,
        };
        at += after + lasts;
        strikes.push(Strike { after, what, lasts });
    }
    strikes
}

/// What is written twice happens twice as often.
fn choices(whom: Whom, store: Store) -> Vec<What> {
    use Way::{ToClient, ToServer};
    use What::{
        Blackhole, Cut, Delay, FailOver, Flush, FlushScripts, Full, HalfClose, Hold, Kill, KillConnections, Pause,
        Refuse, Reset, StandStill, Step,
    };
    let links = [
        Cut,
        Blackhole(ToServer),
        Blackhole(ToClient),
        Hold(ToServer),
        Hold(ToClient),
        Delay,
        Reset,
        Refuse,
        HalfClose(ToServer),
        HalfClose(ToClient),
    ];
    match whom {
        Whom::Testbed(_) => vec![Pause, Pause, Pause, Kill],
        Whom::Door(_) | Whom::StoreLink(_) => links.to_vec(),
        Whom::Server => match store {
            Store::Sqlite => Vec::new(),
            Store::MariaDb => vec![Pause, Pause, Kill, KillConnections, KillConnections],
            Store::Postgres => vec![Pause, Pause, Kill, KillConnections, KillConnections],
            Store::PostgresPair => vec![Pause, Kill, FailOver, FailOver, KillConnections],
            Store::Redis | Store::RedisClock => vec![Pause, Pause, Kill, KillConnections, FlushScripts],
            Store::RedisLossy => vec![Pause, Kill, KillConnections, FlushScripts, Flush, Flush, Flush],
            Store::RedisSentinel | Store::RedisCluster => vec![FailOver, StandStill, KillConnections, FlushScripts],
        },
        Whom::Memory => vec![Full],
        Whom::Clock => vec![Step(1), Step(5), Step(-1), Step(-5)],
    }
}

/// Least and most time between two strikes.
fn gap(whom: Whom, store: Store) -> (Duration, Duration) {
    let millis = |least, most| (Duration::from_millis(least), Duration::from_millis(most));
    match whom {
        Whom::Testbed(_) => millis(300, 1_200),
        Whom::Door(_) => millis(1_500, 5_000),
        Whom::StoreLink(_) => millis(2_000, 7_000),
        // A failover takes seconds in which nothing else is seen.
        Whom::Server if store == Store::PostgresPair => millis(3_000, 7_000),
        Whom::Server => millis(1_000, 3_500),
        // Nobody gets a new key or a lease meanwhile.
        Whom::Memory => millis(2_500, 6_000),
        Whom::Clock => millis(500, 3_000),
    }
}

fn pick(random: &mut StdRng, (least, most): (Duration, Duration)) -> Duration {
    Duration::from_millis(random.random_range(least.as_millis() as u64..=most.as_millis() as u64))
}

impl fmt::Display for Whom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Testbed(n) => write!(f, "testbed {n}"),
            Self::Door(n) => write!(f, "door {n}"),
            Self::StoreLink(n) => write!(f, "store link {n}"),
            Self::Server => f.write_str("server"),
            Self::Memory => f.write_str("memory"),
            Self::Clock => f.write_str("clock"),
        }
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let said = match self {
            Self::Step(ahead @ 0..) => return write!(f, "{ahead} s ahead"),
            Self::Step(behind) => return write!(f, "{} s behind", behind.unsigned_abs()),
            Self::Pause => "pause",
            Self::Kill => "kill",
            Self::Blackhole(Way::ToServer) => "lose requests",
            Self::Blackhole(Way::ToClient) => "lose replies",
            Self::Cut => "cut",
            Self::Delay => "delay",
            Self::Hold(Way::ToServer) => "hold requests",
            Self::Hold(Way::ToClient) => "hold replies",
            Self::Reset => "reset",
            Self::Refuse => "refuse",
            Self::HalfClose(Way::ToServer) => "half-close to server",
            Self::HalfClose(Way::ToClient) => "half-close to client",
            Self::FailOver => "fail over",
            Self::Flush => "flush",
            Self::FlushScripts => "flush scripts",
            Self::KillConnections => "kill connections",
            Self::StandStill => "stand still",
            Self::Full => "full",
        };
        f.write_str(said)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(seed: u64) -> Vec<Lane> {
        over(Store::RedisLossy, seed)
    }

    fn over(store: Store, seed: u64) -> Vec<Lane> {
        lanes(seed, store, 4, Duration::from_millis(400), Duration::from_secs(60))
    }

    #[test]
    fn a_seed_tells_everything_and_another_tells_something_else() {
        assert_eq!(of(7), of(7));
        assert_ne!(of(7), of(8));
    }

    #[test]
    fn everybody_is_struck_by_everything_in_a_minute() {
        for (store, count) in [
            (Store::Sqlite, 8),
            (Store::Postgres, 13),
            (Store::RedisLossy, 14),
            (Store::RedisClock, 15),
            (Store::RedisCluster, 10),
        ] {
            let lanes = over(store, 7);
            assert_eq!(lanes.len(), count, "{store}");
            for whom in lanes.iter().map(|lane| lane.whom) {
                let same_kind = |lane: &&Lane| std::mem::discriminant(&lane.whom) == std::mem::discriminant(&whom);
                for what in choices(whom, store) {
                    let struck = lanes.iter().filter(same_kind).flat_map(|lane| &lane.strikes);
                    assert!(struck.clone().any(|strike| strike.what == what), "{whom} is never struck by {what}");
                }
            }
        }
    }

    #[test]
    fn a_store_that_keeps_everything_is_never_told_to_forget() {
        for store in Store::ALL.into_iter().filter(|store| *store != Store::RedisLossy) {
            let lanes = lanes(7, store, 4, Duration::from_millis(400), Duration::from_secs(600));
            assert!(!lanes.iter().flat_map(|lane| &lane.strikes).any(|strike| strike.what == What::Flush), "{store:?}");
        }
    }
}
