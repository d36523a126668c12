//! A server that is out of memory.

use idempotency::{
    Acquired, Ask, Claimed, Lease, LeaseHolder, Leases, Nonce, Resolve, ResolveVerdict, Resolved, Resource, Settled,
    Store, StoreErrorKind,
};
use idempotency_testbed::servers::Redis;

use crate::support::{DEAD_FOR, Place, claim, duplicate, grant, granted, outcome, replayed, run};

#[tokio::test]
async fn a_full_server_refuses_new_keys_and_nothing_else() {
    let server = Redis::start();
    let place = Place::at(server.url());
    let (store, leases) = (place.store().await, place.store().await.leases());
    let keys = ["done", "completed", "released", "marked", "lost", "renewed", "free"];
    let [done, completed, released, marked, lost, renewed, free] = keys.map(claim);
    run(&store, &done, &outcome("answer")).await;
    let completing = grant(&store, &completed).await;
    let releasing = grant(&store, &released).await;
    let marking = grant(&store, &marked).await;
    let renewing = grant(&store, &renewed).await;
    grant(&store, &lost).await;
    let freed = grant(&store, &free).await;
    assert_eq!(store.release(&freed, DEAD_FOR).await.unwrap(), Settled::Applied);
    let ask = |name: &str| Ask {
        resource: Resource::parse(name).unwrap(),
        nonce: Nonce::random(),
        lease: Lease::default(),
        above: None,
    };
    let held = ask("held");
    let Acquired::Granted(lease) = leases.try_acquire(&held).await.unwrap() else { panic!() };
    let holder = LeaseHolder { resource: held.resource.clone(), token: lease.token, nonce: held.nonce };

    server.cli(&["CONFIG", "SET", "maxmemory", "1"]);
    let new = claim("new");
    assert_eq!(store.claim(&new).await.unwrap(), Claimed::Full);
    assert_eq!(store.inspect(&new.id).await.unwrap(), None, "nothing was written");
    assert_eq!(replayed(store.claim(&duplicate(&done)).await.unwrap()), outcome("answer"));
    assert!(matches!(store.claim(&duplicate(&completed)).await.unwrap(), Claimed::InFlight { .. }));
    granted(store.claim(&completed).await.unwrap());
    assert_eq!(store.complete(&completing, &outcome("answer")).await.unwrap(), Settled::Applied);
    assert_eq!(store.renew(&renewing, Lease::default()).await.unwrap(), Settled::Applied);
    assert_eq!(store.release(&releasing, DEAD_FOR).await.unwrap(), Settled::Applied);
    assert_eq!(store.mark_in_doubt(&marking, Some(&outcome("sorry"))).await.unwrap(), Settled::Applied);
    store.abandon(&lost.id, lost.nonce, DEAD_FOR).await.unwrap();
    let resolve = Resolve {
        id: marked.id,
        token_seen: marking.token,
        verdict: ResolveVerdict::Happened(outcome("answer")),
        who: "ops".into(),
        why: "looked".into(),
    };
    assert_eq!(store.resolve(&resolve).await.unwrap(), Resolved::Applied);
    // There is room for it already.
    granted(store.claim(&duplicate(&free)).await.unwrap());
    let error = leases.try_acquire(&ask("other")).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unavailable);
    assert_eq!(leases.renew(&holder, Lease::default()).await.unwrap(), Settled::Applied);
    assert_eq!(leases.release(&holder, DEAD_FOR).await.unwrap(), Settled::Applied);

    server.cli(&["CONFIG", "SET", "maxmemory", "0"]);
    granted(store.claim(&new).await.unwrap());
}
