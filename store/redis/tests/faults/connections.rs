//! Connections that break, and connections that are refused.

use std::sync::Arc;
use std::time::Duration;

use idempotency::{OpenError, StoreErrorKind};
use idempotency_redis::RedisStore;
use idempotency_testbed::servers::Redis;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::support::{Answer, Nemesis, PATIENT, Service, keys, store};

fn kill_clients(redis: &Redis) {
    redis.cli(&["CLIENT", "KILL", "TYPE", "NORMAL", "SKIPME", "yes"]);
}

/// SPIN-2976: the first command after a drop is either carried out after one safe try more, or an honest refusal with nothing run.
#[tokio::test]
async fn case_55_every_connection_is_killed_before_a_request_and_before_its_duplicate() {
    let redis = Redis::start();
    let service = Service::on(&redis).await;
    for key in keys("killed", 50) {
        kill_clients(&redis);
        let first = match service.post(&key).await {
            Answer::Charged(number) => number,
            Answer::Unavailable(_) => {
                assert_eq!(service.ledger.of(&key), 0, "refused, and charged");
                service.post_until_answered(&key).await
            }
            answer => panic!("{answer:?}"),
        };
        kill_clients(&redis);
        assert_eq!(service.post_until_answered(&key).await, first);
        assert_eq!(service.ledger.of(&key), 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_55_every_connection_is_killed_again_and_again_during_traffic() {
    let redis = Arc::new(Redis::start());
    let service = Service::on(&redis).await;
    let killer = Nemesis::start({
        let redis = Arc::clone(&redis);
        move || kill_clients(&redis)
    });
    for round in 0.. {
        let keys = keys(&format!("storm-{round}"), 100);
        let mut posts = JoinSet::new();
        for (n, key) in keys.iter().cycle().take(5 * keys.len()).cloned().enumerate() {
            let service = service.clone();
            posts.spawn(async move {
                let takes = Duration::from_millis(n as u64 % 50);
                service.post_slowly(&key, takes).await.is_honest();
                service.post_until_answered(&key).await
            });
        }
        posts.join_all().await;
        service.ledger.has_each_once(&keys);
        if killer.has_struck() {
            break;
        }
    }
    killer.stop();
}

/// The same through `rediss://`: a connection that breaks in the middle of TLS is a broken connection like any other.
#[cfg(feature = "tls")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_55_over_tls_every_connection_is_killed_and_the_server_too() {
    let mut redis = Redis::start_tls(&["--appendonly", "yes", "--appendfsync", "always"]);
    let certificate = std::fs::read(redis.certificate()).unwrap();
    let options = RedisStore::options(&redis.url()).root_certificates(&certificate).response_timeout(PATIENT);
    let service = Service::of(options.open().await.unwrap(), &crate::support::Ledger::default());
    for (n, key) in keys("killed", 20).iter().enumerate() {
        kill_clients(&redis);
        service.post(key).await.is_honest();
        if n % 10 == 5 {
            redis.kill();
            redis.restart();
        } else {
            kill_clients(&redis);
        }
        service.post_until_answered(key).await;
        assert_eq!(service.ledger.of(key), 1);
    }
}

#[tokio::test]
async fn a_wrong_password_is_refused_at_once_and_never_repeated() {
    let redis = Redis::start_with(&["--requirepass", "the right one"]);
    for user in ["", ":SECRET@", "nobody:SECRET@"] {
        let url = format!("redis://{user}127.0.0.1:{}/0", redis.port());
        let since = Instant::now();
        let error = RedisStore::options(&url).response_timeout(PATIENT).open().await.unwrap_err();
        assert!(since.elapsed() < PATIENT / 2, "it was tried for long");
        assert_kind(&error, StoreErrorKind::Refused);
        let said = format!("{error} {error:?}");
        assert!(!said.contains("SECRET"), "{said}");
    }
}

/// As when an operator changes it under a running service.
#[tokio::test]
async fn a_password_that_changes_is_an_honest_refusal_until_it_is_right_again() {
    let redis = Redis::start();
    let service = Service::on(&redis).await;
    redis.cli(&["CONFIG", "SET", "requirepass", "new"]);
    // The connection of this very command is not asked for it.
    with_password(&redis, "new", &["CLIENT", "KILL", "TYPE", "NORMAL", "SKIPME", "yes"]);
    let answer = service.post("refused").await;
    assert!(matches!(answer, Answer::Unavailable(_)), "{answer:?}");
    assert_eq!(service.ledger.of("refused"), 0);
    with_password(&redis, "new", &["CONFIG", "SET", "requirepass", ""]);
    service.post_until_answered("refused").await;
    assert_eq!(service.ledger.of("refused"), 1);
}

fn with_password(redis: &Redis, password: &str, command: &[&str]) {
    redis.cli(&[&["-a", password, "--no-auth-warning"], command].concat());
}

#[tokio::test]
async fn a_database_that_is_not_there_is_refused_at_once() {
    let redis = Redis::start();
    let since = Instant::now();
    let error = RedisStore::options(&redis.url_of(99)).response_timeout(PATIENT).open().await.unwrap_err();
    assert!(since.elapsed() < PATIENT / 2, "it was tried for long");
    assert_kind(&error, StoreErrorKind::Refused);
}

/// Two services that were to share records and do not: nothing can tell them, but nothing is mixed up either.
#[tokio::test]
async fn another_database_is_another_store() {
    let redis = Redis::start();
    let one = Service::on(&redis).await;
    let other = Service::of(store(&redis.url_of(1)).await, &one.ledger);
    one.post("key").await.is_honest();
    assert!(matches!(other.post("key").await, Answer::Charged(_)));
    assert!(matches!(one.post("key").await, Answer::Replayed(_)));
    redis.cli(&["-n", "1", "FLUSHDB"]);
    assert!(matches!(one.post("key").await, Answer::Replayed(_)));
}

#[tokio::test]
async fn a_server_that_is_not_there_is_unavailable_and_says_so_in_time() {
    let redis = Redis::start();
    let url = redis.url();
    drop(redis);
    let since = Instant::now();
    let error = RedisStore::options(&url).response_timeout(PATIENT).open().await.unwrap_err();
    assert!(since.elapsed() < PATIENT / 2);
    assert_kind(&error, StoreErrorKind::Unavailable);
}

#[track_caller]
fn assert_kind(error: &OpenError, kind: StoreErrorKind) {
    match error {
        OpenError::Store(error) => assert_eq!(error.kind(), kind, "{error:?}"),
        error => panic!("{error:?}"),
    }
}
