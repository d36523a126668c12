//! Clients: each sends one key after the other, again and again until it is answered for good, and some of it twice.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::Method;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};

use super::history::{Answered, Event, Kind, Recorder, Sent};
use super::locks::Locks;
use super::place::Place;
use crate::Reply;

/// What all clients share.
#[derive(Debug)]
pub(super) struct World<'r> {
    pub(super) place: &'r Place,
    pub(super) history: &'r Recorder,
    pub(super) locks: Locks,
    pub(super) lease: Duration,
    /// No new keys from now on.
    pub(super) done: &'r AtomicBool,
    /// Unanswered keys are given up from now on.
    pub(super) hopeless: &'r AtomicBool,
}

/// One client.
#[derive(Debug)]
pub(super) struct Client<'w> {
    world: &'w World<'w>,
    name: String,
    kind: Kind,
    random: StdRng,
}

/// A request that is to have one effect.
#[derive(Clone, Debug)]
struct Order {
    key: String,
    kind: Kind,
    resource: Option<String>,
    amount: i64,
    path: String,
}

impl<'w> Client<'w> {
    pub(super) fn new(world: &'w World<'w>, n: u64, kind: Kind, seed: u64) -> Self {
        let random = StdRng::seed_from_u64(seed.wrapping_mul(1_000_003).wrapping_add(n));
        Self { world, name: format!("{kind:?}-{n}").to_lowercase(), kind, random }
    }

    /// Sends keys until the end.
    pub(super) async fn run(mut self) {
        let mut n = 0;
        while !self.world.done.load(Ordering::SeqCst) {
            let order = self.order(n);
            self.place(&order).await;
            n += 1;
            sleep(self.between(0, 60)).await;
        }
    }

    /// Sends one key, of a counter, when all is well again.
    pub(super) async fn probe(mut self, resource: usize) {
        let mut order = self.order(resource);
        order.resource = order.resource.map(|_| self.resource(resource));
        order.path = self.path(order.resource.as_deref(), 0);
        self.place(&order).await;
    }

    fn order(&mut self, n: usize) -> Order {
        let resource = matches!(self.kind, Kind::Counter | Kind::Fenced).then(|| {
            let resource = self.random.random_range(0..COUNTERS);
            self.resource(resource)
        });
        let pause = self.random.random_range(0..200);
        let path = self.path(resource.as_deref(), pause);
        let amount = self.random.random_range(1..1_000);
        Order { key: format!("{}-{n}", self.name), kind: self.kind, resource, amount, path }
    }

    fn resource(&self, n: usize) -> String {
        let letter = if self.kind == Kind::Fenced { 'f' } else { 'c' };
        format!("{letter}{n}")
    }

    fn path(&self, resource: Option<&str>, pause: u64) -> String {
        let resource = resource.unwrap_or_default();
        match self.kind {
            Kind::Hold | Kind::Rerun => format!("/charge?before={}&after={}", pause / 8, pause / 8),
            Kind::Transaction => format!("/tx-charge?before={}&after={}", pause / 8, pause / 8),
            Kind::Counter => format!("/counter/{resource}?think={}", 100 + pause * 3 / 2),
            Kind::Fenced => format!("/fenced/{resource}?think={}", pause / 10),
        }
    }

    /// Sends it until it is answered for good, and then now and then once more, or with another amount.
    async fn place(&mut self, order: &Order) {
        let acknowledged = loop {
            if self.world.hopeless.load(Ordering::SeqCst) {
                return;
            }
            let token = self.token(order).await;
            let twice = self.random.random_bool(0.25);
            let (one, other) = (self.testbed(order.kind), self.testbed(order.kind));
            let again = async { if twice { self.send(order, other, token, false).await } else { None } };
            let (first, second) = tokio::join!(self.send(order, one, token, false), again);
            let answers: Vec<Answered> = [first, second].into_iter().flatten().collect();
            if let (Some(resource), Some(token)) = (&order.resource, token) {
                self.world.locks.release(resource, token);
                if answers.iter().any(Answered::is_success) {
                    self.world.locks.wrote(resource, token);
                }
            }
            if let Some(last) = answers.iter().find(|answered| answered.is_final(order.kind)) {
                break last.is_success();
            }
            let wait = answers.iter().filter_map(|answered| answered.retry_after).min().map(Duration::from_secs);
            sleep(wait.unwrap_or_else(|| self.between(20, 150))).await;
        };
        if acknowledged && self.random.random_bool(0.2) {
            let (token, testbed) = (self.token(order).await, self.testbed(order.kind));
            self.send(order, testbed, token, false).await;
        }
        if acknowledged && self.random.random_bool(0.1) {
            let (token, testbed) = (self.token(order).await, self.testbed(order.kind));
            let another = Order { amount: order.amount + 1, ..order.clone() };
            self.send(&another, testbed, token, true).await;
        }
    }

    /// Of a lease that may have ended meanwhile.
    async fn token(&mut self, order: &Order) -> Option<u64> {
        if order.kind != Kind::Fenced {
            return None;
        }
        let World { locks, lease, history, done, .. } = self.world;
        let resource = order.resource.as_deref()?;
        let token = locks.acquire(resource, *lease, history).await;
        match self.random.random_range(0..10) {
            // Whoever is to be answered in time does not dawdle.
            _ if done.load(Ordering::SeqCst) => {}
            0..2 => sleep(lease.mul_f64(self.random.random_range(1.2..3.0))).await,
            // So that it is certainly too late, however slow the others are.
            2..5 => locks.outlived(resource, token, *lease * 10, done).await,
            _ => {}
        }
        Some(token)
    }

    fn testbed(&mut self, kind: Kind) -> usize {
        let all = self.world.place.slots.len();
        match kind {
            Kind::Hold => self.random.random_range(0..all / 2),
            Kind::Rerun => self.random.random_range(all / 2..all),
            Kind::Transaction | Kind::Counter | Kind::Fenced => self.random.random_range(0..all),
        }
    }

    fn between(&mut self, least: u64, most: u64) -> Duration {
        Duration::from_millis(self.random.random_range(least..most))
    }

    /// None when there is no whole answer in time.
    async fn send(&self, order: &Order, testbed: usize, token: Option<u64>, reused: bool) -> Option<Answered> {
        let history = self.world.history;
        let n = history.number();
        let door = self.world.place.slots[testbed].door();
        let mut call = door.client.call(Method::POST, &order.path).key(&order.key);
        if let Some(token) = token {
            call = call.header("fencing-token", &holder(token));
        }
        let call = call.json(&json!({ "amount": order.amount }));
        let Order { key, kind, resource, amount, .. } = order.clone();
        history.add(Event::Sent(Sent { n, at: history.now(), key, kind, resource, amount, token, testbed, reused }));
        let reply = timeout(PATIENCE, call.send()).await;
        let at = history.now();
        match reply {
            Ok(Ok(reply)) => {
                let answered = answered(n, at, &reply);
                history.add(Event::Answered(answered.clone()));
                Some(answered)
            }
            Ok(Err(_)) | Err(_) => {
                history.add(Event::Unanswered { n, at });
                None
            }
        }
    }
}

/// The token, and a holder that is its own: whoever has the same token is the same holder.
fn holder(token: u64) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    // 16 bytes in 22 letters of 6 bits, of which 9 say the token.
    let letters: String = (0..9).map(|n| char::from(ALPHABET[(token >> (6 * n) & 63) as usize])).collect();
    format!("{token};holder=:{letters}AAAAAAAAAAAAA==:")
}

fn answered(n: u64, at: u64, reply: &Reply) -> Answered {
    let body: Value = serde_json::from_slice(&reply.body).unwrap_or_default();
    let mut hasher = DefaultHasher::new();
    reply.body.hash(&mut hasher);
    let is_problem = reply.header("content-type") == Some("application/problem+json");
    let kind = body["type"].as_str().and_then(|kind| kind.rsplit([':', '/']).next());
    Answered {
        n,
        at,
        status: reply.status.as_u16(),
        problem: kind.filter(|_| is_problem).map(ToOwned::to_owned),
        body: format!("{:016x}", hasher.finish()),
        retry_after: reply.retry_after(),
        replayed: reply.is_replayed(),
        id: body["id"].as_i64(),
        value: body["value"].as_i64(),
        token: body["token"].as_u64(),
        current_token: body["current_token"].as_u64(),
    }
}

/// Waits until `over`, for at most this long.
pub(super) async fn wait_for(over: impl Future<Output = ()>, limit: Duration) -> bool {
    let until = Instant::now() + limit;
    tokio::time::timeout_at(until, over).await.is_ok()
}

/// How many counters there are of each kind.
pub(super) const COUNTERS: usize = 3;
/// How long a client waits for an answer.
const PATIENCE: Duration = Duration::from_secs(3);
