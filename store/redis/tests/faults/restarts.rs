//! The server is killed and started again, with and without what it had.

use idempotency::{Claimed, Settled, Store, Taken};
use idempotency_redis::{Severity, Topic};
use idempotency_testbed::eventually;
use idempotency_testbed::servers::Redis;

use crate::support::{Accounts, LONG, Service, account, claim, grant, leaser, outcome, store, take};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_the_append_only_file_nothing_is_lost() {
    for sync in ["always", "everysec"] {
        let mut redis = Redis::start_with(&["--appendonly", "yes", "--appendfsync", sync]);
        let service = Service::on(&redis).await;
        let store = store(&redis.url()).await;
        let report = store.check().await.unwrap();
        assert!(
            report
                .findings
                .iter()
                .all(|finding| finding.topic != Topic::Persistence || finding.severity > Severity::Warn)
        );
        let number = service.post_until_answered("completed").await;
        let holder = grant(&store, &claim("running")).await;
        let leaser = leaser(&store, LONG);
        let lease = take(&leaser).await;

        redis.kill();
        assert!(store.complete(&holder, &outcome()).await.is_err());
        redis.restart();
        eventually("it is back", async || store.check().await.is_ok()).await;

        assert_eq!(service.post_until_answered("completed").await, number);
        let duplicate = store.claim(&claim("running")).await.unwrap();
        assert!(matches!(duplicate, Claimed::InFlight { .. }), "{duplicate:?}");
        assert_eq!(store.complete(&holder, &outcome()).await.unwrap(), Settled::Applied);
        assert!(matches!(leaser.try_acquire(&account()).await.unwrap(), Taken::Held { .. }));
        assert!(lease.still_held().await.unwrap());
        assert_eq!(service.ledger.of("completed"), 1);
    }
}

/// Records are really lost here, and so duplicates run again. The check said so; and what is fenced is safe.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_persistence_the_check_warned_tokens_grow_and_the_fence_refuses_the_older() {
    let mut redis = Redis::start();
    let accounts = Accounts::new().await;
    let service = Service::on(&redis).await;
    let store = store(&redis.url()).await;
    let report = store.check().await.unwrap();
    assert!(report.findings.iter().any(|finding| {
        (finding.topic, finding.severity) == (Topic::Persistence, Severity::Warn) && finding.what == "no persistence"
    }));
    service.post("completed").await.is_honest();
    let holder = grant(&store, &claim("running")).await;
    let older = take(&leaser(&store, LONG)).await;
    let ticket = older.ticket().unwrap();
    accounts.write_healing(&older, "the older one").await.unwrap();

    redis.kill();
    redis.restart();
    eventually("it is back", async || store.check().await.is_ok()).await;

    // A newer attempt of the same key has a larger token, and the old one cannot settle it.
    let newer = grant(&store, &claim("running")).await;
    assert!(newer.token > holder.token);
    assert_eq!(store.complete(&holder, &outcome()).await.unwrap(), Settled::Superseded);
    assert_eq!(store.complete(&newer, &outcome()).await.unwrap(), Settled::Applied);

    let lease = take(&leaser(&store, LONG)).await;
    assert!(lease.token().unwrap() > ticket.token);
    accounts.write_healing(&lease, "the newer one").await.unwrap();
    accounts.refuse(&ticket).await;
    assert!(!older.still_held().await.unwrap());

    // The loss itself, so that it is not forgotten: this is what the warning is about.
    service.post("completed").await.is_honest();
    assert_eq!(service.ledger.of("completed"), 2);
}

/// RSN-6510: the same by hand.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_75_after_a_flush_tokens_grow_and_the_fence_refuses_the_older() {
    let redis = Redis::start();
    let accounts = Accounts::new().await;
    let leaser = leaser(&store(&redis.url()).await, LONG);
    let older = take(&leaser).await;
    let ticket = older.ticket().unwrap();
    accounts.write(&ticket, "the older one").await.unwrap();
    redis.cli(&["FLUSHALL"]);
    let newer = take(&leaser).await;
    assert!(newer.token().unwrap() > ticket.token);
    accounts.write_healing(&newer, "the newer one").await.unwrap();
    accounts.refuse(&ticket).await;
}
