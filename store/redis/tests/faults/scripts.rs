//! The server forgets its scripts.

use std::sync::Arc;

use idempotency::{
    Acquired, Ask, Claimed, LeaseHolder, Leases, List, Nonce, Outcome, Resolve, ResolveVerdict, Resolved, Settled,
    State, Store,
};
use idempotency_testbed::servers::Redis;
use tokio::task::JoinSet;

use crate::support::{DEAD_FOR, LONG, Nemesis, Service, account, claim, grant, granted, keys, lease, outcome, store};

#[tokio::test]
async fn scripts_are_flushed_between_any_two_operations() {
    let redis = Redis::start();
    let store = store(&redis.url()).await;
    let flush = || redis.cli(&["SCRIPT", "FLUSH", "SYNC"]);

    let request = claim("completed");
    flush();
    let holder = grant(&store, &request).await;
    flush();
    assert_eq!(granted(store.claim(&request).await.unwrap()).token, holder.token);
    flush();
    assert_eq!(store.renew(&holder, lease(LONG)).await.unwrap(), Settled::Applied);
    flush();
    assert_eq!(store.complete(&holder, &outcome()).await.unwrap(), Settled::Applied);
    flush();
    assert!(matches!(store.claim(&claim("completed")).await.unwrap(), Claimed::Replay { .. }));
    flush();
    assert_eq!(store.inspect(&request.id).await.unwrap().unwrap().state, State::Completed);

    let released = grant(&store, &claim("released")).await;
    flush();
    assert_eq!(store.release(&released, DEAD_FOR).await.unwrap(), Settled::Applied);
    flush();
    let late = claim("abandoned");
    store.abandon(&late.id, late.nonce, DEAD_FOR).await.unwrap();
    flush();
    assert_eq!(store.claim(&late).await.unwrap(), Claimed::Refused);

    let doubtful = grant(&store, &claim("in doubt")).await;
    flush();
    assert_eq!(store.mark_in_doubt(&doubtful, None).await.unwrap(), Settled::Applied);
    let verdict = ResolveVerdict::Happened(Outcome::new(200, "yes".into()));
    let resolve =
        Resolve { id: doubtful.id, token_seen: doubtful.token, verdict, who: "a test".into(), why: "it looked".into() };
    flush();
    assert_eq!(store.resolve(&resolve).await.unwrap(), Resolved::Applied);
    flush();
    assert_eq!(store.list(&List::default()).await.unwrap().entries.len(), 4);
    flush();
    store.sweep(100).await.unwrap();
}

#[tokio::test]
async fn scripts_are_flushed_between_any_two_askings_for_a_lease() {
    let redis = Redis::start();
    let leases = store(&redis.url()).await.leases();
    let flush = || redis.cli(&["SCRIPT", "FLUSH", "SYNC"]);
    let ask = Ask { resource: account(), nonce: Nonce::random(), lease: lease(LONG), above: None };
    flush();
    let Acquired::Granted(grant) = leases.try_acquire(&ask).await.unwrap() else { panic!("nobody else is here") };
    let holder = LeaseHolder { resource: account(), token: grant.token, nonce: ask.nonce };
    flush();
    assert_eq!(leases.renew(&holder, lease(LONG)).await.unwrap(), Settled::Applied);
    flush();
    assert!(leases.inspect(&account()).await.unwrap().unwrap().lease_left.is_some());
    flush();
    assert_eq!(leases.release(&holder, DEAD_FOR).await.unwrap(), Settled::Applied);
    flush();
    leases.abandon(&account(), Nonce::random(), DEAD_FOR).await.unwrap();
    flush();
    leases.sweep(100).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scripts_are_flushed_all_the_time() {
    let redis = Arc::new(Redis::start());
    let service = Service::on(&redis).await;
    let flusher = Nemesis::start({
        let redis = Arc::clone(&redis);
        move || drop(redis.cli(&["SCRIPT", "FLUSH", "SYNC"]))
    });
    for round in 0.. {
        let keys = keys(&format!("flushed-{round}"), 100);
        let mut posts = JoinSet::new();
        for key in keys.iter().cycle().take(5 * keys.len()) {
            let (service, key) = (service.clone(), key.clone());
            posts.spawn(async move { service.post_until_answered(&key).await });
        }
        posts.join_all().await;
        service.ledger.has_each_once(&keys);
        if flusher.has_struck() {
            break;
        }
    }
    flusher.stop();
}
