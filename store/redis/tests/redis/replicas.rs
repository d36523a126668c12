//! Writes that wait until replicas have them.

use std::error::Error;
use std::time::Duration;

use idempotency::{
    Acquired, Ask, Claimed, Lease, Leases, Nonce, OpenError, Resource, Settled, Store, StoreError, StoreErrorKind,
};
use idempotency_redis::NotReplicated;
use idempotency_testbed::servers::Redis;

use crate::support::{Place, claim, duplicate, grant, granted, outcome, replayed, run};

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

#[tokio::test]
async fn a_store_in_a_cluster_does_not_wait() {
    let options = Place::in_cluster().real_options().wait_for_replicas(1, Duration::from_secs(1));
    assert!(matches!(options.open().await.unwrap_err(), OpenError::Url(_)));
}
