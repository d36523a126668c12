//! Writes that wait until replicas have them.

use std::error::Error;
use std::time::Duration;

use idempotency::outbound::{Begun, Ended, LoggedEnd, Steps};
use idempotency::{
    Acquired, Ask, Claimed, Engine, Fingerprint, Key, Lease, LeaseSettings, Leaser, Leases, Nonce, OpenError,
    Operation, Resource, ScopeId, Settings, Settled, Store, StoreError, StoreErrorKind,
};
use idempotency_redis::NotReplicated;
use idempotency_testbed::servers::Redis;
use tokio::time::timeout;

use crate::steps;
use crate::support::{PATIENT, Place, claim, duplicate, grant, granted, outcome, replayed, run};

#[track_caller]
fn assert_not_replicated(error: &StoreError) {
    assert_eq!(error.kind(), StoreErrorKind::Unavailable);
    let cause = error.source().and_then(|cause| cause.downcast_ref());
    assert_eq!(cause, Some(&NotReplicated { reached: 0, wanted: 1 }));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_that_reached_too_few_replicas_is_said_honestly() {
    let (primary, mut replica) = (Redis::start(), Redis::start());
    replica.replica_of(&primary);
    let place = Place::at(primary.url());
    let store = place.real_options().wait_for_replicas(1, Duration::from_millis(300)).open().await.unwrap();
    let patient = place.real_options().wait_for_replicas(1, Duration::from_secs(60)).open().await.unwrap();
    let (done, running, new) = (claim("done"), claim("running"), claim("new"));
    run(&patient, &done, &outcome("answer")).await;
    let holder = grant(&patient, &running).await;

    replica.pause();
    let ask =
        |nonce| Ask { resource: Resource::parse("account/7").unwrap(), nonce, lease: Lease::default(), above: None };
    assert_not_replicated(&store.claim(&new).await.unwrap_err());
    assert_not_replicated(&store.leases().try_acquire(&ask(Nonce::random())).await.unwrap_err());
    assert_eq!(store.claim(&new).await.unwrap(), Claimed::Refused, "it was given up");
    // Twice: the second one writes nothing new, and nobody has the first one either.
    assert_not_replicated(&store.complete(&holder, &outcome("answer")).await.unwrap_err());
    assert_not_replicated(&store.complete(&holder, &outcome("answer")).await.unwrap_err());
    // What writes nothing waits for nobody.
    assert_eq!(replayed(store.claim(&duplicate(&done)).await.unwrap()), outcome("answer"));

    replica.resume();
    assert_eq!(patient.complete(&holder, &outcome("answer")).await.unwrap(), Settled::AlreadyApplied);
    granted(patient.claim(&duplicate(&new)).await.unwrap());
    let acquired = patient.leases().try_acquire(&ask(Nonce::random())).await.unwrap();
    assert!(matches!(acquired, Acquired::Granted(_)));
}

/// Every grant is given up, and asking for another one would end no better.
#[tokio::test]
async fn whoever_asks_while_the_replicas_are_away_is_told_so() {
    let primary = Redis::start();
    let place = Place::at(primary.url());
    let store = place.real_options().wait_for_replicas(1, Duration::from_millis(100)).open().await.unwrap();
    let leaser = Leaser::new(store.leases(), LeaseSettings::default());
    let engine = Engine::new(store, Settings::default());
    let operation = Operation::new(ScopeId::global(), Key::parse("k").unwrap(), Fingerprint::of(["k"]));
    let claimed = timeout(PATIENT, engine.claim(&operation)).await.expect("it ends");
    assert_not_replicated(&claimed.unwrap_err());
    let account = Resource::parse("account/7").unwrap();
    let taken = leaser.acquire(&account, PATIENT);
    assert_not_replicated(&timeout(PATIENT, taken).await.expect("it ends").unwrap_err());
}

/// All of them lead to the server that did not answer, which may not be the primary any more.
#[tokio::test]
async fn after_a_timeout_no_idle_connection_is_used_again() {
    let mut primary = Redis::start();
    let place = Place::at(primary.url());
    let running = claim("running");
    grant(&place.real_store().await, &running).await;
    let options = place.real_options().response_timeout(Duration::from_secs(1));
    let store = options.wait_for_replicas(1, Duration::from_millis(100)).open().await.unwrap();
    let again = duplicate(&running);
    // Nothing is written, so that nobody is waited for.
    let both = tokio::join!(store.claim(&again), store.claim(&again));
    assert!(matches!(both, (Ok(Claimed::InFlight { .. }), Ok(Claimed::InFlight { .. }))));
    primary.pause();
    assert_eq!(store.claim(&again).await.unwrap_err().kind(), StoreErrorKind::Timeout);
    primary.resume();
    // Whoever asks for this has a connection as well.
    let connections = || primary.info("stats", "total_connections_received").parse::<u64>().unwrap();
    let before = connections();
    assert!(matches!(store.claim(&again).await, Ok(Claimed::InFlight { .. })));
    assert_eq!(connections() - before, 2);
}

/// Newer servers wait for what the same connection wrote last, and of a connection that wrote nothing for nothing.
#[tokio::test]
async fn what_is_on_record_of_a_call_is_written_once_more_when_its_message_comes_again() {
    let primary = Redis::start();
    let store = Place::at(primary.url()).real_store().await;
    let ask = steps::ask(grant(&store, &claim("k")).await);
    let never_began = steps::end(&steps::ask(ask.holder), LoggedEnd::NotDone("given up".to_owned()));
    let lost = steps::end(&ask, LoggedEnd::Unknown("no answer".to_owned()));
    let writes = || primary.info("persistence", "rdb_changes_since_last_save").parse::<u64>().unwrap();
    let mut last = writes();
    let mut wrote = || std::mem::replace(&mut last, writes()) < writes();
    for copy in ["the first", "the second"] {
        assert!(matches!(store.begin_call(&ask).await.unwrap(), Begun::Go { .. }));
        assert!(wrote(), "{copy}");
    }
    for copy in ["the first", "the second"] {
        assert_eq!(store.end_call(&never_began).await.unwrap(), Ended::NeverBegan);
        assert!(wrote(), "{copy}");
    }
    for copy in ["the first", "the second"] {
        assert!(matches!(store.end_call(&lost).await.unwrap(), Ended::Logged { .. }));
        assert!(wrote(), "{copy}");
    }
}

#[tokio::test]
async fn a_store_in_a_cluster_does_not_wait() {
    let options = Place::in_cluster().real_options().wait_for_replicas(1, Duration::from_secs(1));
    assert!(matches!(options.open().await.unwrap_err(), OpenError::Url(_)));
}
