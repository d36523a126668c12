//! The server's clock is set.

use std::time::Duration;

use idempotency::{Claimed, Settled, Store};
use idempotency_testbed::servers::Redis;

use crate::support::{Accounts, Answer, DEAD_FOR, LONG, Service, claim, grant, lease, leaser, outcome, store, take};

#[tokio::test]
async fn a_minute_back_between_two_grants_of_a_key_and_the_token_grows() {
    let redis = Redis::start_with_clock(&[]);
    let store = store(&redis.url()).await;
    let older = grant(&store, &claim("key")).await;
    assert_eq!(store.release(&older, DEAD_FOR).await.unwrap(), Settled::Applied);
    redis.set_clock(-60);
    let newer = grant(&store, &claim("key")).await;
    assert!(newer.token > older.token);
    let elsewhere = grant(&store, &claim("elsewhere")).await;
    assert!(elsewhere.token < older.token, "the clock was not set back: this proves nothing");
    assert_eq!(store.complete(&older, &outcome()).await.unwrap(), Settled::Superseded);
    assert_eq!(store.complete(&newer, &outcome()).await.unwrap(), Settled::Applied);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_minute_back_between_two_holders_of_a_lease_and_the_token_grows() {
    let redis = Redis::start_with_clock(&[]);
    let accounts = Accounts::new().await;
    let leaser = leaser(&store(&redis.url()).await, LONG);
    let older = take(&leaser).await;
    let ticket = older.ticket().unwrap();
    accounts.write(&ticket, "the older one").await.unwrap();
    older.release().await.unwrap();
    redis.set_clock(-60);
    let newer = take(&leaser).await;
    assert!(newer.token().unwrap() > ticket.token);
    accounts.write(&newer.ticket().unwrap(), "the newer one").await.unwrap();
    accounts.refuse(&ticket).await;
}

/// Lost and set back at once: what no source of tokens survives alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flush_and_a_minute_back_are_healed_by_the_fence() {
    let redis = Redis::start_with_clock(&[]);
    let accounts = Accounts::new().await;
    let leaser = leaser(&store(&redis.url()).await, LONG);
    let older = take(&leaser).await;
    let ticket = older.ticket().unwrap();
    accounts.write(&ticket, "the older one").await.unwrap();
    redis.set_clock(-60);
    redis.cli(&["FLUSHALL"]);
    let newer = take(&leaser).await;
    assert!(newer.token().unwrap() < ticket.token, "nothing went backwards: this proves nothing");
    accounts.write_healing(&newer, "the newer one").await.unwrap();
    assert!(newer.token().unwrap() > ticket.token);
    accounts.refuse(&ticket).await;
}

/// A lease that the clock made longer or shorter is still one holder's at a time.
#[tokio::test]
async fn a_minute_forward_ends_a_lease_and_what_ran_is_in_doubt_and_never_run_again() {
    let redis = Redis::start_with_clock(&[]);
    let service = Service::on(&redis).await;
    let store = store(&redis.url()).await;
    let mut request = claim("running");
    request.lease = lease(Duration::from_secs(30));
    let holder = grant(&store, &request).await;
    redis.set_clock(60);
    assert!(matches!(store.claim(&claim("running")).await.unwrap(), Claimed::InDoubt(_)));
    assert_eq!(service.post("running").await, Answer::InDoubt);
    assert_eq!(service.ledger.of("running"), 0);
    assert_eq!(store.complete(&holder, &outcome()).await.unwrap(), Settled::Applied);
}
