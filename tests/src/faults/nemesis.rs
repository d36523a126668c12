//! Carries out a schedule.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep};

use super::history::{Event, Recorder, Struck};
use super::place::{Kind, Place};
use super::schedule::{Lane, Strike, What, Whom};
use super::server::Server;
use crate::servers::Absence;
use crate::{Fate, Proxy, Rule};

/// Does to one of them what its lane says, until the end; then all is well with it.
pub(super) async fn strike(place: &Place, kind: Kind, lane: &Lane, end: Instant, history: &Recorder) {
    for (turn, &strike) in lane.strikes.iter().enumerate() {
        sleep(strike.after).await;
        if Instant::now() >= end {
            return;
        }
        let from = history.now();
        let done = match lane.whom {
            Whom::Testbed(n) => at_testbed(place, n, strike).await,
            Whom::Door(n) => at_link(&place.slots[n].door().proxy, strike).await,
            Whom::StoreLink(n) => match &place.slots[n].store_link {
                Some(link) => at_link(link, strike).await,
                None => false,
            },
            Whom::Server => at_server(place, strike, turn).await,
            Whom::Memory => {
                server(place, |server| server.fill(true)).await;
                sleep(strike.lasts).await;
                server(place, |server| server.fill(false)).await;
                true
            }
            Whom::Clock => {
                server(place, move |server| server.set_clock(ahead(strike.what))).await;
                sleep(strike.lasts).await;
                server(place, |server| server.set_clock(0)).await;
                true
            }
        };
        if done {
            let forgets = lane.whom == Whom::Server && forgets(kind, strike.what);
            let (whom, what, ahead) = (lane.whom.to_string(), strike.what.to_string(), ahead(strike.what) * 1_000_000);
            history.add(Event::Struck(Struck { from, to: history.now(), whom, what, forgets, ahead }));
        }
    }
}

/// Whether the store forgets what it has answered.
fn forgets(kind: Kind, what: What) -> bool {
    match kind {
        Kind::RedisLossy => matches!(what, What::Flush | What::Kill),
        // Replicas are told after the answer.
        Kind::RedisSentinel | Kind::RedisCluster => matches!(what, What::FailOver | What::StandStill),
        _ => false,
    }
}

/// By how many seconds a clock is ahead.
fn ahead(what: What) -> i64 {
    if let What::Step(ahead) = what { ahead } else { 0 }
}

async fn at_testbed(place: &Place, n: usize, strike: Strike) -> bool {
    let slot = &place.slots[n];
    let mut running = slot.testbed.lock().await;
    let Some(testbed) = &mut *running else { return false };
    if strike.what == What::Pause {
        testbed.pause();
        sleep(strike.lasts).await;
        testbed.resume();
    } else {
        testbed.kill();
        *running = None;
        drop(running);
        sleep(strike.lasts).await;
        slot.restart(&place.rig).await;
    }
    true
}

async fn at_link(link: &Proxy, strike: Strike) -> bool {
    match strike.what {
        What::Cut => link.cut(),
        What::Blackhole(way) => link.blackhole(way),
        What::Hold(way) => link.hold(way),
        What::Delay => link.delay(Duration::ZERO..strike.lasts / 2),
        What::Reset => link.reset(),
        What::HalfClose(way) => link.half_close(way),
        What::Refuse => {
            link.refuse();
            link.reset();
        }
        _ => return false,
    }
    sleep(strike.lasts).await;
    link.heal();
    true
}

async fn at_server(place: &Place, strike: Strike, turn: usize) -> bool {
    let links: Vec<_> = place.slots.iter().filter_map(|slot| slot.store_link.clone()).collect();
    server(place, move |server| {
        match strike.what {
            What::Pause => {
                server.pause();
                std::thread::sleep(strike.lasts);
                server.resume();
            }
            What::Kill => {
                server.kill();
                std::thread::sleep(strike.lasts);
                server.restart();
            }
            What::FailOver => server.fail_over(Absence::Killed, turn, |port| {
                for link in &links {
                    link.redirect(port);
                    link.reset();
                }
            }),
            What::StandStill => server.fail_over(Absence::Paused, turn, |_| {}),
            What::Flush => server.flush(),
            What::FlushScripts => server.flush_scripts(),
            What::KillConnections => server.kill_connections(),
            _ => return false,
        }
        true
    })
    .await
}

/// Servers are started, stopped and asked by functions that wait; one at a time.
async fn server<T: Send + 'static>(place: &Place, change: impl FnOnce(&mut Server) -> T + Send + 'static) -> T {
    let server = Arc::clone(&place.server);
    let changed = spawn_blocking(move || change(&mut server.lock().unwrap_or_else(PoisonError::into_inner)));
    changed.await.expect("a server that obeys")
}

/// Which replies a link is to lose.
#[derive(Clone, Copy, Debug)]
pub(super) enum Loot {
    /// Successes of a testbed, once they have left it.
    /// The more often where there is no link to the store to lose anything on.
    Successes(Kind),
    /// What a store says about a change that it has made.
    Commits(Kind),
}

impl Loot {
    fn arm(self, proxy: &Proxy, nth: usize, fate: Fate) -> Rule {
        match self {
            Self::Successes(_) => proxy.on_reply("HTTP/1.1 20", nth, fate),
            Self::Commits(kind) if kind.is_redis() => proxy.on_reply_to("EVALSHA", nth, fate),
            Self::Commits(_) => proxy.on_reply_to("COMMIT", nth, fate),
        }
    }

    fn every(self) -> std::ops::Range<usize> {
        match self {
            Self::Successes(kind) if kind.has_link() => 1..5,
            Self::Successes(_) => 1..3,
            Self::Commits(_) => 10..60,
        }
    }

    /// Clients of a testbed would wait for long.
    fn fate(self, random: &mut StdRng) -> Fate {
        let silent = matches!(self, Self::Commits(_)) && random.random_bool(0.2);
        if silent { Fate::Silence } else { Fate::Reset }
    }

    fn whom(self, n: usize) -> Whom {
        match self {
            Self::Successes(_) => Whom::Door(n),
            Self::Commits(_) => Whom::StoreLink(n),
        }
    }

    fn what(self) -> &'static str {
        match self {
            Self::Successes(_) => LOST_REPLY,
            Self::Commits(_) => LOST_COMMIT,
        }
    }
}

/// Loses one reply after the other, until the end.
pub(super) async fn steal(place: &Place, n: usize, loot: Loot, seed: u64, done: &AtomicBool, history: &Recorder) {
    let mut random = StdRng::seed_from_u64(seed);
    let slot = &place.slots[n];
    while !done.load(Ordering::SeqCst) {
        let door = slot.door();
        let proxy = match loot {
            Loot::Successes(_) => &door.proxy,
            Loot::Commits(_) => slot.store_link.as_deref().expect("a link to a server"),
        };
        let (nth, fate) = (random.random_range(loot.every()), loot.fate(&mut random));
        let rule = loot.arm(proxy, nth, fate);
        let from = history.now();
        // A testbed that is started anew has another door.
        while !rule.has_fired() && Arc::ptr_eq(&door, &slot.door()) && !done.load(Ordering::SeqCst) {
            sleep(Duration::from_millis(10)).await;
        }
        if rule.has_fired() {
            let (whom, what) = (loot.whom(n).to_string(), loot.what().to_owned());
            history.add(Event::Struck(Struck { from, to: history.now(), whom, what, forgets: false, ahead: 0 }));
        }
        proxy.drop_rules();
        proxy.forget();
        if rule.has_fired() && fate == Fate::Silence {
            // Longer than a store is waited for. Whoever waits without a limit, such as a testbed that makes its tables, learns of it too.
            sleep(Duration::from_millis(1_200)).await;
            proxy.reset();
        }
    }
}

/// Makes all well again: no rule and no fault is left.
pub(super) async fn calm(place: &Place) {
    for slot in &place.slots {
        for proxy in [Some(&slot.door().proxy), slot.store_link.as_deref()].into_iter().flatten() {
            proxy.drop_rules();
            proxy.heal();
        }
    }
}

/// How many transactions stand open on a server where nobody works, after those of the last requests have had time to end.
pub(super) async fn open_transactions(place: &Place, patience: Duration) -> u64 {
    let give_up = Instant::now() + patience;
    loop {
        let count = server(place, |server| server.open_transactions()).await;
        if count == 0 || Instant::now() > give_up {
            return count;
        }
        sleep(Duration::from_millis(200)).await;
    }
}

/// A testbed's success that was lost.
pub(super) const LOST_REPLY: &str = "lose the reply";
/// A store's word about a commit that was lost.
pub(super) const LOST_COMMIT: &str = "lose the commit's reply";
