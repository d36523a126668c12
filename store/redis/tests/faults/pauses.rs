//! A server that stands still for longer than anybody waits, and goes on.

use std::time::Duration;

use idempotency::{Claimed, Settled, State, Store, StoreErrorKind};
use idempotency_testbed::servers::Redis;
use idempotency_testbed::{Fate, Proxy, eventually};
use tokio::time::Instant;

use crate::support::{
    Answer, LONG, Ledger, Service, TIMEOUT, about, account, claim, grant, hasty, hasty_leaser, id, lease, outcome,
    store, take, warm,
};

/// What was sent is carried out when the server goes on: it grants a claim that nobody waits for any more. The claim is abandoned,
/// so that the key is free at once and not when its lease ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ghost_claim_does_not_hold_the_key() {
    let mut redis = Redis::start();
    let service = Service::hasty(&redis.url(), &Ledger::default()).await;
    service.post("before").await.is_honest();
    redis.pause();
    let since = Instant::now();
    assert!(matches!(service.post("ghost").await, Answer::Unavailable(_)));
    assert!(since.elapsed() < 10 * TIMEOUT, "{:?}", since.elapsed());
    redis.resume();
    let since = Instant::now();
    service.post_until_answered("ghost").await;
    assert!(since.elapsed() < LONG / 10);
    assert_eq!(service.ledger.of("ghost"), 1);
    assert!(service.engine.drain(Duration::from_secs(10)).await);
}

/// Nobody abandons: the proof that the ghost above is one.
#[tokio::test]
async fn without_abandoning_the_ghost_holds_the_key() {
    let mut redis = Redis::start();
    let store = hasty(&redis.url()).await;
    warm(&store).await;
    let ghost = claim("ghost");
    redis.pause();
    assert_eq!(store.claim(&ghost).await.unwrap_err().kind(), StoreErrorKind::Timeout);
    redis.resume();
    eventually(
        "the ghost is granted",
        async || matches!(store.inspect(&ghost.id).await, Ok(Some(entry)) if entry.state == State::InFlight),
    )
    .await;
    let answer = store.claim(&claim("ghost")).await.unwrap();
    assert!(matches!(answer, Claimed::InFlight { .. }), "{answer:?}");
}

/// The abandoning overtakes the claim on another connection: its nonce is dead when the claim arrives.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_arrives_after_it_was_abandoned_is_granted_to_nobody() {
    let redis = Redis::start();
    let proxy = Proxy::to(redis.port());
    let service = Service::hasty(&redis.url_at(proxy.port(), 0), &Ledger::default()).await;
    warm(service.engine.store()).await;
    let late = proxy.on_request(about("late"), 1, Fate::Hold);
    assert!(matches!(service.post("late").await, Answer::Unavailable(_)));
    assert!(late.has_fired());
    // The abandoning was carried out; and when it is released, the claim is.
    assert!(service.engine.drain(Duration::from_secs(10)).await);
    let carried_out = || redis.info("commandstats", "cmdstat_evalsha");
    let before = carried_out();
    proxy.release();
    eventually("the claim arrives", async || carried_out() != before).await;
    let direct = store(&redis.url()).await;
    assert_eq!(direct.inspect(&id("late")).await.unwrap().unwrap().state, State::Released);
    assert!(matches!(service.post("late").await, Answer::Charged(_)));
    assert_eq!(service.ledger.of("late"), 1);
}

#[tokio::test]
async fn an_attempt_that_ran_through_the_pause_is_recorded() {
    let mut redis = Redis::start();
    let store = hasty(&redis.url()).await;
    warm(&store).await;
    let mut request = claim("long");
    request.lease = lease(Duration::from_secs(1));
    let holder = grant(&store, &request).await;
    redis.pause();
    let renewed = store.renew(&holder, lease(LONG)).await;
    assert_eq!(renewed.unwrap_err().kind(), StoreErrorKind::Timeout);
    tokio::time::sleep(request.lease.length()).await;
    redis.resume();
    // Its lease is over, and nobody took over meanwhile.
    eventually("the server answers", async || store.inspect(&request.id).await.is_ok()).await;
    assert_eq!(store.complete(&holder, &outcome()).await.unwrap(), Settled::Applied);
    assert!(matches!(store.claim(&claim("long")).await.unwrap(), Claimed::Replay { .. }));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ghost_lease_keeps_nobody_out() {
    let mut redis = Redis::start();
    let leaser = hasty_leaser(&redis.url(), LONG).await;
    drop(take(&leaser).await.release().await);
    redis.pause();
    assert!(leaser.try_acquire(&account()).await.is_err());
    redis.resume();
    // `take` waits for ten seconds, and the ghost has two minutes.
    let _lease = eventually_taken(&leaser).await;
}

async fn eventually_taken(
    leaser: &idempotency::Leaser<idempotency_redis::RedisLeases>,
) -> idempotency::HeldLease<idempotency_redis::RedisLeases> {
    let mut taken = None;
    eventually("the lease can be had", async || {
        taken = leaser.try_acquire(&account()).await.ok().and_then(idempotency::Taken::yours);
        taken.is_some()
    })
    .await;
    taken.unwrap()
}
