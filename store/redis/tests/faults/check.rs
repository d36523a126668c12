//! What the check finds on real servers.

use idempotency_redis::{RedisStore, Severity, Topic};
use idempotency_testbed::eventually;
use idempotency_testbed::servers::Redis;

use crate::support::{Answer, Ledger, Service, store};

fn found(report: &idempotency_redis::Report, topic: Topic) -> Vec<(Severity, &str)> {
    let of_topic = report.findings.iter().filter(|finding| finding.topic == topic);
    of_topic.map(|finding| (finding.severity, finding.what.as_str())).collect()
}

#[tokio::test]
async fn a_server_as_it_comes() {
    let redis = Redis::start();
    let report = store(&redis.url()).await.check().await.unwrap().accepted().unwrap();
    assert_eq!(found(&report, Topic::Eviction), [(Severity::Info, "maxmemory is not set")]);
    assert_eq!(found(&report, Topic::Persistence), [(Severity::Warn, "no persistence")]);
    assert_eq!(found(&report, Topic::Replication), [(Severity::Info, "no replica")]);
    assert_eq!(report.findings.len(), 3, "{report}");
    assert_eq!(report.worst(), Some(Severity::Warn));
    assert!(report.to_string().starts_with("warn: no persistence: a restart loses every record"));
}

#[tokio::test]
async fn persistence_as_it_is_set() {
    let redis = Redis::start();
    let store = store(&redis.url()).await;
    for (settings, expected) in [
        (
            [("save", "3600 1"), ("appendonly", "no"), ("appendfsync", "everysec")],
            Some((Severity::Warn, "snapshots only")),
        ),
        (
            [("save", ""), ("appendonly", "yes"), ("appendfsync", "everysec")],
            Some((Severity::Info, "append-only file, appendfsync everysec")),
        ),
        (
            [("save", ""), ("appendonly", "yes"), ("appendfsync", "no")],
            Some((Severity::Warn, "append-only file, appendfsync no")),
        ),
        ([("save", ""), ("appendonly", "yes"), ("appendfsync", "always")], None),
    ] {
        settings.iter().for_each(|(name, value)| drop(redis.cli(&["CONFIG", "SET", name, value])));
        let report = store.check().await.unwrap();
        assert_eq!(found(&report, Topic::Persistence), Vec::from_iter(expected));
    }
}

#[tokio::test]
async fn replicas_and_what_bounds_their_loss() {
    let (primary, replica) = (Redis::start(), Redis::start());
    replica.replica_of(&primary);
    let store = store(&primary.url()).await;
    let unbound = store.check().await.unwrap();
    assert_eq!(found(&unbound, Topic::Replication), [(Severity::Warn, "1 replicas without min-replicas-to-write")]);
    primary.cli(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
    primary.cli(&["CONFIG", "SET", "min-replicas-max-lag", "7"]);
    let what = "replicas, with min-replicas-to-write and min-replicas-max-lag 7 s";
    // Redis counts the replicas that follow once a second.
    eventually("the bound is found", async || {
        found(&store.check().await.unwrap(), Topic::Replication) == [(Severity::Info, what)]
    })
    .await;
    let refused = crate::support::store(&replica.url()).await.check().await.unwrap().accepted().unwrap_err();
    assert_eq!(found(refused.report(), Topic::Replication), [(Severity::Refuse, "it is a replica")]);
}

/// As managed services have it. What serves requests needs none of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_who_may_not_look_is_told_so_and_works() {
    let redis = Redis::start();
    redis.cli(&["ACL", "SETUSER", "app", "on", ">secret", "~idem:*", "+@all", "-info", "-config", "-cluster"]);
    let url = format!("redis://app:secret@127.0.0.1:{}/0", redis.port());
    let store = store(&url).await;
    let report = store.check().await.unwrap();
    assert_eq!(found(&report, Topic::Permission), [(Severity::Warn, "not allowed to look (INFO)")]);
    assert_eq!(report.findings.len(), 1);
    let service = Service::of(store, &Ledger::default());
    assert!(matches!(service.post("key").await, Answer::Charged(_)));

    redis.cli(&["ACL", "SETUSER", "app", "+info"]);
    let report = crate::support::store(&url).await.check().await.unwrap();
    assert_eq!(found(&report, Topic::Permission), [(Severity::Info, "not allowed to look (CONFIG)")]);
    assert_eq!(found(&report, Topic::Persistence), [(Severity::Warn, "no append-only file")]);
}

#[tokio::test]
async fn a_clock_far_from_ours() {
    let redis = Redis::start_with_clock(&[]);
    let store = store(&redis.url()).await;
    redis.set_clock(4000);
    let report = store.check().await.unwrap();
    assert!(found(&report, Topic::Clock)[0].1.ends_with(" s ahead of ours"), "{report}");
}

#[cfg(feature = "serde")]
#[tokio::test]
async fn a_report_can_be_written_down() {
    let redis = Redis::start();
    let report = store(&redis.url()).await.check().await.unwrap();
    let json = serde_json::to_value(&report).unwrap();
    let first = &json["findings"][0];
    assert_eq!((first["severity"].as_str(), first["topic"].as_str()), (Some("warn"), Some("persistence")));
    assert!(first["fix"].is_string() && first["consequence"].is_string() && first["what"].is_string());
}

#[tokio::test]
async fn a_server_that_is_gone_cannot_be_looked_at() {
    let mut redis = Redis::start();
    let store: RedisStore = store(&redis.url()).await;
    redis.kill();
    assert!(store.check().await.is_err());
}
