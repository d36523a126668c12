//! Those who wait are told of what ends an attempt, or gives a lease back.

use std::time::Duration;

use idempotency::watch::Watch;
use idempotency::{
    Acquired, Ask, Claim, Claimed, Fingerprint, Holder, Key, Lease, LeaseHolder, Leases, Life, Nonce, Outcome,
    RecordId, Resolve, ResolveVerdict, Resource, ScopeId, Settled, Store,
};
use idempotency_memory::{MemoryLeases, MemoryStore, NearCache};
use tokio::time::timeout;

const DEAD_FOR: Duration = Duration::from_secs(61);

fn claim(key: &str) -> Claim {
    Claim {
        id: RecordId::new(&ScopeId::global(), &Key::parse(key).unwrap()),
        fingerprint: Fingerprint::of([key]),
        nonce: Nonce::random(),
        lease: Lease::default(),
        life: Life::default(),
        key_time: None,
        room: 0,
    }
}

async fn grant(store: &impl Store, claim: &Claim) -> Holder {
    let Claimed::Granted(grant) = store.claim(claim).await.unwrap() else { panic!("nobody else has it") };
    Holder { id: claim.id, token: grant.token, nonce: claim.nonce }
}

async fn is_told_now(watch: &mut Watch) -> bool {
    timeout(Duration::ZERO, watch.changed()).await.is_ok()
}

#[tokio::test]
async fn whatever_ends_an_attempt_is_told() {
    let store = NearCache::new(MemoryStore::new());
    let (ended, running) = (claim("ended"), claim("running"));
    let (mut told, mut other) = (store.watch(&ended.id), store.watch(&running.id));
    assert!(told.is_told());

    let another = grant(&store, &running).await;
    let holder = grant(&store, &ended).await;
    store.renew(&holder, Lease::default()).await.unwrap();
    assert!(!is_told_now(&mut told).await, "nothing has ended");

    assert_eq!(store.release(&holder, DEAD_FOR).await.unwrap(), Settled::Applied);
    assert!(is_told_now(&mut told).await, "released");

    let again = Claim { nonce: Nonce::random(), ..ended.clone() };
    grant(&store, &again).await;
    store.abandon(&again.id, again.nonce, DEAD_FOR).await.unwrap();
    assert!(is_told_now(&mut told).await, "abandoned");

    let again = Claim { nonce: Nonce::random(), ..ended.clone() };
    let holder = grant(&store, &again).await;
    assert_eq!(store.mark_in_doubt(&holder, None).await.unwrap(), Settled::Applied);
    assert!(is_told_now(&mut told).await, "in doubt");

    let verdict = ResolveVerdict::DidNotHappen { fence_token: None };
    let resolve = Resolve { id: ended.id, token_seen: holder.token, verdict, who: "a test".into(), why: "so".into() };
    let _ = store.resolve(&resolve).await.unwrap();
    assert!(is_told_now(&mut told).await, "resolved");

    let again = Claim { nonce: Nonce::random(), ..ended };
    let holder = grant(&store, &again).await;
    assert_eq!(store.complete(&holder, &Outcome::not_kept(201)).await.unwrap(), Settled::Applied);
    assert!(is_told_now(&mut told).await, "completed");

    assert!(!is_told_now(&mut other).await, "all that was another record");
    assert_eq!(store.complete(&another, &Outcome::not_kept(201)).await.unwrap(), Settled::Applied);
    assert!(is_told_now(&mut other).await);
}

#[tokio::test]
async fn whatever_gives_a_lease_back_is_told() {
    let leases = MemoryLeases::new();
    let account = Resource::parse("account/7").unwrap();
    let mut told = leases.watch(&account);
    let mut other = leases.watch(&Resource::parse("account/8").unwrap());
    let ask = || Ask { resource: account.clone(), nonce: Nonce::random(), lease: Lease::default(), above: None };

    let first = ask();
    let Acquired::Granted(grant) = leases.try_acquire(&first).await.unwrap() else { panic!("nobody else has it") };
    let holder = LeaseHolder { resource: account.clone(), token: grant.token, nonce: first.nonce };
    leases.renew(&holder, Lease::default()).await.unwrap();
    assert!(!is_told_now(&mut told).await, "nothing has ended");
    assert_eq!(leases.release(&holder, DEAD_FOR).await.unwrap(), Settled::Applied);
    assert!(is_told_now(&mut told).await, "released");

    let second = ask();
    assert!(matches!(leases.try_acquire(&second).await.unwrap(), Acquired::Granted(_)));
    leases.abandon(&account, second.nonce, DEAD_FOR).await.unwrap();
    assert!(is_told_now(&mut told).await, "abandoned");
    assert!(!is_told_now(&mut other).await);
}
