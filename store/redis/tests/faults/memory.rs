//! The server's memory is full.

use std::time::Duration;

use idempotency::{Claimed, Settled, Store, StoreErrorKind};
use idempotency_redis::{RedisStore, Severity, Topic};
use idempotency_testbed::servers::Redis;

use crate::support::{
    Accounts, Answer, LONG, Ledger, Service, claim, full, grant, leaser, outcome, roomy, store, take,
};

/// Fills it with keys that last longer than ours and are asked for more often, so that whatever evicts takes ours too, until `enough`.
fn fill(redis: &Redis, enough: impl Fn() -> bool) {
    const FILL: &str = "for i = 1, 200 do
        local key = 'fill:' .. ARGV[1] .. ':' .. i
        redis.call('SET', key, string.rep('x', 1000), 'PX', '9000000000')
        for _ = 1, 40 do redis.call('STRLEN', key) end
    end";
    for round in 0..400 {
        if enough() || redis.try_cli(&["EVAL", FILL, "0", &round.to_string()]).is_err() {
            return;
        }
    }
}

fn start(policy: &str) -> Redis {
    // Looks at all keys: the samples of an approximation may miss ours for long.
    let exact = ["--maxmemory-samples", "64", "--lfu-log-factor", "0"];
    Redis::start_with(&[&["--maxmemory", "6mb", "--maxmemory-policy", policy], &exact[..]].concat())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn noeviction_refuses_new_claims_and_records_what_runs() {
    let redis = start("noeviction");
    let store = store(&redis.url()).await;
    let service = Service::of(store.clone(), &Ledger::default());
    let report = store.check().await.unwrap().accepted().unwrap();
    assert!(report.findings.iter().all(|finding| finding.topic != Topic::Eviction), "{report}");
    let number = service.post_until_answered("before").await;
    let (running, released) = (grant(&store, &claim("running")).await, grant(&store, &claim("released")).await);
    let lease = take(&leaser(&store, LONG)).await;
    full(&redis);

    // Refused, and nothing runs.
    assert_eq!(service.post("new").await, Answer::Full);
    assert_eq!(service.ledger.of("new"), 0);
    // What is known is answered.
    assert_eq!(service.post("before").await, Answer::Replayed(number));
    assert!(matches!(store.claim(&claim("running")).await.unwrap(), Claimed::InFlight { .. }));
    // What runs is recorded, kept and freed.
    assert_eq!(store.renew(&running, crate::support::lease(LONG)).await.unwrap(), Settled::Applied);
    assert_eq!(store.complete(&running, &outcome()).await.unwrap(), Settled::Applied);
    assert_eq!(store.release(&released, crate::support::DEAD_FOR).await.unwrap(), Settled::Applied);
    assert!(lease.still_held().await.unwrap());
    lease.release().await.unwrap();

    roomy(&redis);
    service.post_until_answered("new").await;
    assert_eq!(service.ledger.of("new"), 1);
    assert!(service.engine.drain(Duration::from_secs(10)).await);
}

/// The claim was not carried out, and says so; a lease likewise.
#[tokio::test]
async fn noeviction_is_an_honest_error_of_the_store() {
    let redis = start("noeviction");
    let store = store(&redis.url()).await;
    full(&redis);
    assert_eq!(store.claim(&claim("new")).await.unwrap(), Claimed::Full);
    let refused = leaser(&store, LONG).try_acquire(&crate::support::account()).await;
    assert_eq!(refused.unwrap_err().kind(), StoreErrorKind::Unavailable);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn allkeys_lru_is_refused_and_where_allowed_tokens_grow_and_the_fence_holds() {
    evicting("allkeys-lru").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn allkeys_lfu_is_refused_and_where_allowed_tokens_grow_and_the_fence_holds() {
    evicting("allkeys-lfu").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn allkeys_random_is_refused_and_where_allowed_tokens_grow_and_the_fence_holds() {
    evicting("allkeys-random").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn volatile_lru_is_refused_and_where_allowed_tokens_grow_and_the_fence_holds() {
    evicting("volatile-lru").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn volatile_lfu_is_refused_and_where_allowed_tokens_grow_and_the_fence_holds() {
    evicting("volatile-lfu").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn volatile_random_is_refused_and_where_allowed_tokens_grow_and_the_fence_holds() {
    evicting("volatile-random").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn volatile_ttl_is_refused_and_where_allowed_tokens_grow_and_the_fence_holds() {
    evicting("volatile-ttl").await;
}

/// What is evicted is lost without a word: the check refuses the policy. Whoever allows it still has tokens that grow.
async fn evicting(policy: &str) {
    let redis = start(policy);
    let store = store(&redis.url()).await;
    refused_unless_allowed(&store, policy).await;
    let accounts = Accounts::new().await;
    let holder = grant(&store, &claim("evicted")).await;
    let older = take(&leaser(&store, LONG)).await;
    let ticket = older.ticket().unwrap();
    accounts.write(&ticket, "the older one").await.unwrap();

    let ours = || redis.cli(&["EVAL", "return #redis.call('KEYS', 'idem:*')", "0"]) != "0";
    assert!(ours());
    fill(&redis, || !ours());
    assert!(!ours(), "nothing was evicted: this proves nothing");
    // What comes now is not evicted in its turn.
    roomy(&redis);

    let newer = grant(&store, &claim("evicted")).await;
    assert!(newer.token > holder.token);
    assert_eq!(store.complete(&holder, &outcome()).await.unwrap(), Settled::Superseded);
    assert_eq!(store.complete(&newer, &outcome()).await.unwrap(), Settled::Applied);
    let lease = take(&leaser(&store, LONG)).await;
    assert!(lease.token().unwrap() > ticket.token);
    accounts.write_healing(&lease, "the newer one").await.unwrap();
    accounts.refuse(&ticket).await;
}

async fn refused_unless_allowed(store: &RedisStore, policy: &str) {
    let report = store.check().await.unwrap();
    let refused = report.clone().accepted().unwrap_err();
    assert!(refused.to_string().contains(policy), "{refused}");
    let allowed = report.allow_eviction().accepted().unwrap();
    assert_eq!(allowed.findings[0].topic, Topic::Eviction);
    assert_eq!(allowed.findings[0].severity, Severity::Warn);
}
