//! Somebody else wrote under our names.

use idempotency::{
    Claimed, Leases, List, Nonce, Resolve, ResolveVerdict, Settled, State, Store, StoreError, StoreErrorKind,
};
use idempotency_testbed::servers::Redis;

use crate::support::{Answer, DEAD_FOR, LONG, Service, account, claim, grant, id, lease, leaser, outcome, store, take};

/// What could be under a name of ours.
const GARBAGE: &[(&str, &[&str])] = &[
    ("a string", &["SET", "KEY", "locked"]),
    ("a counter", &["SET", "KEY", "17"]),
    ("a list", &["RPUSH", "KEY", "a", "b"]),
    ("a set", &["SADD", "KEY", "a"]),
    ("a sorted set", &["ZADD", "KEY", "1", "a"]),
    ("a stream", &["XADD", "KEY", "*", "a", "b"]),
    ("a hash with other fields", &["HSET", "KEY", "state", "done", "owner", "somebody"]),
    ("a hash with our fields and other values", &["HSET", "KEY", "v", "1", "r", "x", "c", "y", "d", "z"]),
    ("a hash of another format", &["HSET", "KEY", "v", "99", "r", "x", "c", "y"]),
    ("a hash with an empty field of ours", &["HSET", "KEY", "v", ""]),
];

/// The only key there is.
fn our_key(redis: &Redis) -> String {
    let keys = redis.cli(&["KEYS", "*"]);
    assert_eq!(keys.lines().count(), 1, "{keys}");
    keys
}

fn put(redis: &Redis, key: &str, garbage: &[&str]) -> String {
    redis.cli(&["FLUSHALL"]);
    let command: Vec<&str> = garbage.iter().map(|word| if *word == "KEY" { key } else { word }).collect();
    redis.cli(&command);
    contents(redis, key)
}

fn contents(redis: &Redis, key: &str) -> String {
    format!("{} {}", redis.cli(&["DUMP", key]), redis.cli(&["PTTL", key]))
}

#[track_caller]
fn unreadable<T: std::fmt::Debug>(answer: Result<T, StoreError>, what: &str) {
    assert_eq!(answer.unwrap_err().kind(), StoreErrorKind::Unreadable, "{what}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_that_is_none_of_ours_is_refused_by_every_operation_and_never_overwritten() {
    let redis = Redis::start();
    let store = store(&redis.url()).await;
    let service = Service::on(&redis).await;
    let holder = grant(&store, &claim("key")).await;
    let key = our_key(&redis);
    for (what, garbage) in GARBAGE {
        let before = put(&redis, &key, garbage);
        assert_eq!(store.claim(&claim("key")).await.unwrap(), Claimed::Unreadable, "{what}");
        unreadable(store.renew(&holder, lease(LONG)).await, what);
        unreadable(store.complete(&holder, &outcome()).await, what);
        unreadable(store.release(&holder, DEAD_FOR).await, what);
        unreadable(store.mark_in_doubt(&holder, Some(&outcome())).await, what);
        unreadable(store.abandon(&holder.id, Nonce::random(), DEAD_FOR).await, what);
        // The operator sees it, and that nobody knows.
        let entry = store.inspect(&id("key")).await.unwrap().unwrap();
        assert_eq!((entry.state, entry.token), (State::InDoubt, None), "{what}");
        let verdict = ResolveVerdict::DidNotHappen { fence_token: None };
        let (who, why) = ("a test".to_owned(), "it looked".to_owned());
        unreadable(store.resolve(&Resolve { id: holder.id, token_seen: holder.token, verdict, who, why }).await, what);
        assert_eq!(service.post("key").await, Answer::Unreadable, "{what}");
        assert_eq!(service.ledger.of("key"), 0);
        assert_eq!(contents(&redis, &key), before, "{what} was overwritten");
    }
}

/// Others are not held up by it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_that_is_none_of_ours_does_not_keep_others_from_being_listed_and_swept() {
    let redis = Redis::start();
    let store = store(&redis.url()).await;
    grant(&store, &claim("key")).await;
    let key = our_key(&redis);
    for (what, garbage) in GARBAGE {
        let before = put(&redis, &key, garbage);
        let other = grant(&store, &claim("other")).await;
        assert_eq!(store.complete(&other, &outcome()).await.unwrap(), Settled::Applied);
        let listed = store.list(&List::default()).await.unwrap();
        assert!(listed.entries.iter().any(|entry| entry.id == other.id), "{what}");
        store.sweep(100).await.unwrap();
        assert_eq!(contents(&redis, &key), before, "{what} was swept");
    }
}

/// A name that only looks like ours.
#[tokio::test]
async fn a_name_under_our_prefix_that_is_none_of_ours_is_left_alone() {
    let redis = Redis::start();
    let store = store(&redis.url()).await;
    for name in ["idem:", "idem:config", "idem:{}:r", "idem:{abc}:r", "idem:{zz}:l", "idem:{\u{e9}}:r"] {
        redis.cli(&["SET", name, "theirs"]);
    }
    let holder = grant(&store, &claim("key")).await;
    assert_eq!(store.complete(&holder, &outcome()).await.unwrap(), Settled::Applied);
    assert_eq!(store.list(&List::default()).await.unwrap().entries.len(), 1);
    store.sweep(100).await.unwrap();
    store.leases().sweep(100).await.unwrap();
    assert_eq!(redis.cli(&["DBSIZE"]), "7");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_that_is_none_of_ours_is_refused_and_never_overwritten() {
    let redis = Redis::start();
    let leaser = leaser(&store(&redis.url()).await, LONG);
    take(&leaser).await.release().await.unwrap();
    let key = our_key(&redis);
    for (what, garbage) in GARBAGE {
        let before = put(&redis, &key, garbage);
        unreadable(leaser.try_acquire(&account()).await, what);
        unreadable(leaser.leases().abandon(&account(), Nonce::random(), DEAD_FOR).await, what);
        unreadable(leaser.leases().inspect(&account()).await, what);
        leaser.leases().sweep(100).await.unwrap();
        assert_eq!(contents(&redis, &key), before, "{what} was overwritten");
    }
}
