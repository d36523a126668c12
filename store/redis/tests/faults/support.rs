//! Something to protect: services that charge, a ledger of what they charged, and accounts behind a fence.

mod accounts;
mod nemesis;
mod service;

use std::time::Duration;

use idempotency::{
    Claim, Claimed, Fingerprint, Grant, HeldLease, Holder, Key, Lease, LeaseSettings, Leaser, Leases, Life, Nonce,
    Operation, Outcome, RecordId, Recovery, Resource, ScopeId, Settings, Settled, Store, Taken, Windows,
};
use idempotency_redis::{RedisLeases, RedisStore};
use idempotency_testbed::servers::Redis;

pub(crate) use accounts::Accounts;
pub(crate) use nemesis::Nemesis;
pub(crate) use service::{Answer, Ledger, Service};

/// For one answer of the store, where one comes however busy the machine is.
pub(crate) const PATIENT: Duration = Duration::from_secs(10);
/// The same, where none comes.
pub(crate) const TIMEOUT: Duration = Duration::from_millis(500);
/// Much longer than any wait here: who waits for its end fails.
pub(crate) const LONG: Duration = Duration::from_secs(120);
pub(crate) const DEAD_FOR: Duration = Duration::from_secs(61);

pub(crate) async fn store(url: &str) -> RedisStore {
    RedisStore::options(url).response_timeout(PATIENT).open().await.unwrap()
}

/// One that is to run into its timeout.
pub(crate) async fn hasty(url: &str) -> RedisStore {
    RedisStore::options(url).response_timeout(TIMEOUT).open().await.unwrap()
}

/// From now on nothing new fits into it. One that was filled up would have room again whenever a buffer of its own shrinks.
pub(crate) fn full(redis: &Redis) {
    redis.cli(&["CONFIG", "SET", "maxmemory", "1"]);
    let probe = redis.try_cli(&["SET", "probe", "x"]);
    assert!(probe.unwrap_err().contains("OOM"), "it is not full: this proves nothing");
}

/// From now on it has room without a limit, and evicts nothing.
pub(crate) fn roomy(redis: &Redis) {
    redis.cli(&["CONFIG", "SET", "maxmemory", "0"]);
}

fn settings(store_timeout: Duration) -> Settings {
    Settings::default().lease(lease(LONG)).life(life()).store_timeout(store_timeout).unwrap()
}

fn life() -> Life {
    Life::new(Recovery::Hold, Windows::new(24 * HOUR, 30 * 24 * HOUR).unwrap())
}

const HOUR: Duration = Duration::from_secs(3600);

pub(crate) fn lease(length: Duration) -> Lease {
    Lease::new(length).unwrap()
}

pub(crate) fn operation(key: &str) -> Operation {
    Operation::new(ScopeId::global(), Key::parse(key).unwrap(), Fingerprint::of([key]))
}

pub(crate) fn keys(prefix: &str, count: usize) -> Vec<String> {
    (0..count).map(|n| format!("{prefix}-{n}")).collect()
}

pub(crate) fn claim(key: &str) -> Claim {
    Claim {
        id: id(key),
        fingerprint: Fingerprint::of([key]),
        nonce: Nonce::random(),
        lease: lease(LONG),
        life: life(),
        key_time: None,
        room: 1024,
    }
}

pub(crate) fn id(key: &str) -> RecordId {
    operation(key).record_id()
}

/// What a message about this key contains, and no other does.
pub(crate) fn about(key: &str) -> String {
    id(key).to_string()
}

#[track_caller]
pub(crate) fn granted(claimed: Claimed) -> Grant {
    match claimed {
        Claimed::Granted(grant) => grant,
        claimed => panic!("not granted: {claimed:?}"),
    }
}

pub(crate) async fn grant(store: &impl Store, claim: &Claim) -> Holder {
    let grant = granted(store.claim(claim).await.unwrap());
    Holder { id: claim.id, token: grant.token, nonce: claim.nonce }
}

pub(crate) fn outcome() -> Outcome {
    Outcome::new(201, "charged".into())
}

/// Has the server learn the scripts: where they are new, what fails to arrive is the question whether it knows them.
pub(crate) async fn warm(store: &RedisStore) {
    let elsewhere = Resource::parse("warm").unwrap();
    let taken = leaser(store, LONG).try_acquire(&elsewhere).await.unwrap();
    taken.yours().unwrap().release().await.unwrap();
    let holder = grant(store, &claim("warm")).await;
    assert_eq!(store.renew(&holder, lease(LONG)).await.unwrap(), Settled::Applied);
    assert_eq!(store.complete(&holder, &outcome()).await.unwrap(), Settled::Applied);
    assert_eq!(store.release(&holder, DEAD_FOR).await.unwrap(), Settled::Superseded);
    store.abandon(&holder.id, Nonce::random(), DEAD_FOR).await.unwrap();
}

pub(crate) fn leaser(store: &RedisStore, length: Duration) -> Leaser<RedisLeases> {
    Leaser::new(store.leases(), LeaseSettings::default().lease(lease(length)).store_timeout(PATIENT).unwrap())
}

/// One that is to run into its timeout.
pub(crate) async fn hasty_leaser(url: &str, length: Duration) -> Leaser<RedisLeases> {
    let settings = LeaseSettings::default().lease(lease(length)).store_timeout(TIMEOUT).unwrap();
    Leaser::new(hasty(url).await.leases(), settings)
}

pub(crate) fn account() -> Resource {
    Resource::parse("account/7").unwrap()
}

pub(crate) async fn take<L: Leases>(leaser: &Leaser<L>) -> HeldLease<L> {
    match leaser.acquire(&account(), Duration::from_secs(10)).await.unwrap() {
        Taken::Yours(lease) => lease,
        Taken::Held { lease_left } => panic!("held for {lease_left:?}"),
    }
}
