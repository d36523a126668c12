//! Another server becomes the primary.

use std::time::Duration;

use idempotency::{Claimed, Settled, Store, StoreErrorKind};
use idempotency_redis::{RedisStore, Severity, Topic};
use idempotency_testbed::servers::{Redis, RedisSentinel};
use idempotency_testbed::{Proxy, within};
use tokio::time::Instant;

use crate::support::{Accounts, Answer, LONG, Ledger, Service, claim, grant, leaser, outcome, store, take};

/// A primary, and a replica behind a link that can be cut. A replica that stands still is not cut off: what is in its socket is
/// applied when it goes on.
struct Pair {
    primary: Redis,
    replica: Redis,
    link: Proxy,
}

impl Pair {
    fn start(replica: Redis) -> Self {
        let primary = Redis::start();
        let link = Proxy::to(primary.port());
        replica.replica_at(link.port());
        Self { primary, replica, link }
    }

    /// Whatever was written to the primary so far is on the replica.
    fn catch_up(&self) {
        self.primary.await_replicated();
    }
}

/// INFRA-9450: what was granted after the link was cut is lost. The check warned; a second worker gets the key and the lease, with
/// larger tokens, and the fence refuses the first one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_52_a_replica_promoted_behind_a_cut_link_grants_larger_tokens() {
    let mut pair = Pair::start(Redis::start());
    let accounts = Accounts::new().await;
    let old = store(&pair.primary.url()).await;
    let report = old.check().await.unwrap();
    assert!(report.findings.iter().any(|finding| {
        (finding.topic, finding.severity) == (Topic::Replication, Severity::Warn)
            && finding.what == "1 replicas without min-replicas-to-write"
    }));
    let service = Service::of(old.clone(), &Ledger::default());
    let number = service.post_until_answered("before").await;
    let kept = grant(&old, &claim("kept")).await;
    pair.catch_up();
    pair.link.cut();
    let lost = grant(&old, &claim("lost")).await;
    let older = take(&leaser(&old, LONG)).await;
    let ticket = older.ticket().unwrap();
    accounts.write_healing(&older, "the older one").await.unwrap();

    pair.primary.kill();
    pair.replica.promote();
    let new = store(&pair.replica.url()).await;

    // What the replica had is answered.
    let after = Service::of(new.clone(), &service.ledger);
    assert_eq!(after.post("before").await, Answer::Replayed(number));
    assert!(matches!(new.claim(&claim("kept")).await.unwrap(), Claimed::InFlight { .. }));
    assert_eq!(new.complete(&kept, &outcome()).await.unwrap(), Settled::Applied);
    // What it had not is granted again, above the lost one.
    let again = grant(&new, &claim("lost")).await;
    assert!(again.token > lost.token);
    assert_eq!(new.complete(&lost, &outcome()).await.unwrap(), Settled::Superseded);
    assert_eq!(new.complete(&again, &outcome()).await.unwrap(), Settled::Applied);
    let newer = take(&leaser(&new, LONG)).await;
    assert!(newer.token().unwrap() > ticket.token);
    accounts.write_healing(&newer, "the newer one").await.unwrap();
    accounts.refuse(&ticket).await;
}

/// The new primary's clock is behind the old one's: its tokens are too, and the fence has seen larger ones. It heals.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_52_a_promoted_replica_whose_clock_is_behind_is_healed_by_the_fence() {
    let mut pair = Pair::start(Redis::start_with_clock(&[]));
    pair.replica.set_clock(-60);
    let accounts = Accounts::new().await;
    pair.catch_up();
    pair.link.cut();
    let older = take(&leaser(&store(&pair.primary.url()).await, LONG)).await;
    let ticket = older.ticket().unwrap();
    accounts.write_healing(&older, "the older one").await.unwrap();
    pair.primary.kill();
    pair.replica.promote();

    let newer = take(&leaser(&store(&pair.replica.url()).await, LONG)).await;
    let regressed = newer.ticket().unwrap();
    assert!(regressed.token < ticket.token, "nothing went backwards: this proves nothing");
    accounts.refuse(&regressed).await;
    accounts.write_healing(&newer, "the newer one").await.unwrap();
    assert!(newer.token().unwrap() > ticket.token);
    assert_eq!(accounts.writer().await, "the newer one");
    accounts.refuse(&ticket).await;
}

/// With a bound on what may be lost, a primary that is cut off refuses after a while: honestly, and nothing runs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_52_a_primary_that_must_have_replicas_refuses_when_it_is_cut_off() {
    let pair = Pair::start(Redis::start());
    pair.primary.cli(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
    pair.primary.cli(&["CONFIG", "SET", "min-replicas-max-lag", "1"]);
    let store = store(&pair.primary.url()).await;
    let service = Service::of(store.clone(), &Ledger::default());
    service.post_until_answered("before").await;
    pair.link.cut();
    within(Duration::from_secs(10), "the primary notices", async || {
        pair.primary.info("replication", "min_slaves_good_slaves") == "0"
    })
    .await;
    assert_eq!(store.claim(&claim("refused")).await.unwrap_err().kind(), StoreErrorKind::Unavailable);
    assert!(matches!(service.post("refused").await, Answer::Unavailable(_)));
    assert_eq!(service.ledger.of("refused"), 0);
    let report = store.check().await.unwrap();
    assert!(report.findings.iter().any(|finding| finding.what == "0 of 1 replicas follow"), "{report}");
    pair.link.heal();
    service.post_until_answered("refused").await;
    assert_eq!(service.ledger.of("refused"), 1);
}

/// The service stays where it is, and the server under it stops being the primary.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentinels_lead_a_running_service_to_the_new_primary() {
    let mut redis = RedisSentinel::start();
    let url = format!("redis+sentinel://{}/{}", redis.addresses(), RedisSentinel::NAME);
    let service = Service::hasty(&url, &Ledger::default()).await;
    let leaser = leaser(service.engine.store(), LONG);
    let number = service.post_until_answered("before").await;
    let first = take(&leaser).await;
    let token = first.token().unwrap();
    first.release().await.unwrap();
    redis.nodes()[0].await_replicated();

    redis.nodes()[0].kill();
    let since = Instant::now();
    assert!(matches!(service.post("meanwhile").await, Answer::Unavailable(_)));
    assert!(since.elapsed() < Duration::from_secs(3));
    let primary = redis.await_failover(0);
    service.post_until_answered("meanwhile").await;
    assert_eq!(service.ledger.of("meanwhile"), 1);
    assert_eq!(service.post("before").await, Answer::Replayed(number));
    assert!(take(&leaser).await.token().unwrap() > token);
    assert_eq!(redis.nodes()[primary].info("replication", "role"), "master");
}

/// A sentinel that is listed first and answers nothing: neither whoever opens a store nor one that lost its connection waits for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_sentinel_that_is_listed_first_holds_nobody_up() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut redis = RedisSentinel::start();
    let url =
        format!("redis+sentinel://{},{}/{}", silent.local_addr().unwrap(), redis.addresses(), RedisSentinel::NAME);
    let service = Service::of(RedisStore::open(&url).await.unwrap(), &Ledger::default());
    for key in ["first", "second", "third"] {
        assert!(matches!(service.post(key).await, Answer::Charged(_)));
        redis.nodes()[0].cli(&["CLIENT", "KILL", "TYPE", "normal"]);
    }
}

/// The same where the old primary hangs, and its connections with it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentinels_lead_a_running_service_away_from_a_primary_that_stands_still() {
    let mut redis = RedisSentinel::start();
    let url = format!("redis+sentinel://{}/{}", redis.addresses(), RedisSentinel::NAME);
    let service = Service::hasty(&url, &Ledger::default()).await;
    let number = service.post_until_answered("before").await;
    redis.nodes()[0].await_replicated();

    redis.nodes()[0].pause();
    let _ = redis.await_failover(0);
    let meanwhile = service.post_until_answered("meanwhile").await;
    assert_eq!(service.post_until_answered("before").await, number);
    redis.nodes()[0].resume();
    assert_eq!(service.post_until_answered("meanwhile").await, meanwhile);
    assert_eq!(service.ledger.of("meanwhile"), 1);
}

/// READONLY: the connection leads to a server that is a replica now.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_that_became_a_replica_is_an_honest_refusal() {
    let (other, redis) = (Redis::start(), Redis::start());
    let service = Service::on(&redis).await;
    service.post("before").await.is_honest();
    redis.replica_of(&other);
    let answer = service.post("refused").await;
    assert!(matches!(answer, Answer::Unavailable(_)), "{answer:?}");
    assert_eq!(service.ledger.of("refused"), 0);
    redis.promote();
    service.post_until_answered("refused").await;
    assert_eq!(service.ledger.of("refused"), 1);
}
