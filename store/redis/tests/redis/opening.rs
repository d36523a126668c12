//! Opening: what is refused, what a user must be allowed, and that no password is said.

use std::error::Error;

use idempotency::outbound::{Begun, ListSteps, LoggedEnd, Steps};
use idempotency::{LeaseSettings, Leaser, List, OpenError, Resource, Store, StoreErrorKind, Taken};
use idempotency_redis::RedisStore;
use idempotency_testbed::servers::Redis;

use crate::steps::{ask, end};
use crate::support::{PATIENT, Place, claim, cluster, duplicate, granted, outcome, replayed, run, server};

#[tokio::test]
async fn the_url_chooses_the_server() {
    let place = Place::new();
    let request = claim(&place.prefix.replace(['*', '[', ']', '?', '\\'], "x"));
    for url in [place.url.clone(), cluster().url().replacen("redis://", "redis+cluster://", 1)] {
        let store = idempotency_redis::open(&url).await.unwrap();
        granted(store.claim(&request).await.unwrap());
    }
    for database in [0, 15] {
        let store = Place::at(server().url_of(database)).real_store().await;
        run(&store, &request, &outcome("answer")).await;
    }
}

#[tokio::test]
async fn a_server_that_is_not_there_is_unavailable_and_one_that_refuses_us_is_refused() {
    let locked = Redis::start_with(&["--requirepass", "s3cret"]);
    let wrong = format!("redis://:wr0ng@127.0.0.1:{}/", locked.port());
    let none = format!("redis://127.0.0.1:{}/", locked.port());
    for (url, kind) in [
        ("redis://127.0.0.1:1/".to_owned(), StoreErrorKind::Unavailable),
        ("redis+cluster://127.0.0.1:1".to_owned(), StoreErrorKind::Unavailable),
        ("redis+sentinel://127.0.0.1:1/main".to_owned(), StoreErrorKind::Unavailable),
        (server().url_of(99), StoreErrorKind::Refused),
        (wrong, StoreErrorKind::Refused),
        (none, StoreErrorKind::Refused),
    ] {
        let error = RedisStore::open(&url).await.unwrap_err();
        assert!(matches!(&error, OpenError::Store(error) if error.kind() == kind), "{url}: {error:?}");
        let cause = error.source().and_then(Error::source).expect("what the client said is kept");
        let said = format!("{error} {error:?} {cause}");
        assert!(!said.contains("s3cret") && !said.contains("wr0ng"), "{said}");
    }
    run(&RedisStore::open(&locked.url()).await.unwrap(), &claim("k"), &outcome("answer")).await;
}

#[tokio::test]
async fn other_urls_are_refused() {
    for url in [
        "",
        "redis:",
        "redis://",
        "redis://u:s3cret@",
        "redis://u:s3cret@h:x/",
        "redis://u:s3cret@h/x",
        "postgres://u:s3cret@h/d",
        "redis+sentinel://u:s3cret@h:1",
        "redis+sentinel://u:s3cret@h:1,/main",
        "redis+cluster://u:s3cret@h:1/3",
        "redis+cluster://u:s3cret@",
    ] {
        let error = RedisStore::open(url).await.unwrap_err();
        assert!(matches!(error, OpenError::Url(_)), "{url}: {error:?}");
        assert!(!format!("{error} {error:?}").contains("s3cret"), "{error:?}");
    }
    let options = RedisStore::options("redis://u:s3cret@h/").sentinel_credentials("u", "s3cret");
    assert!(!format!("{options:?}").contains("s3cret"));
    let place = Place::new();
    for prefix in ["a{b", "a}b", "{tag}"] {
        let error = place.real_options().prefix(prefix).open().await.unwrap_err();
        assert!(matches!(error, OpenError::Url(_)), "{error:?}");
    }
}

/// What the documentation of the store says.
#[tokio::test]
async fn a_user_with_the_documented_permissions_can_do_everything() {
    const SINGLE: &str =
        "-@all +evalsha +eval +time +hmget +hget +hset +hdel +exists +del +hkeys +pexpire +scan +select +wait";
    const HINTS: &str = "+publish +subscribe +unsubscribe";
    let server = Redis::start();
    let allow = |server: &Redis, more: &str| {
        let rules = format!("ACL SETUSER app on >s3cret ~idem:* resetchannels &idem:* {SINGLE} {HINTS} {more}");
        server.cli(&rules.split(' ').filter(|word| !word.is_empty()).collect::<Vec<_>>());
    };
    allow(&server, "");
    let cluster = idempotency_testbed::servers::RedisCluster::start();
    for node in 0..3 {
        allow(cluster.node(node), "+cluster|slots +ping");
    }
    for url in [
        format!("redis://app:s3cret@127.0.0.1:{}/2", server.port()),
        format!("redis+cluster://app:s3cret@127.0.0.1:{}", cluster.node(0).port()),
    ] {
        let store = RedisStore::open(&url).await.unwrap();
        let (request, released) = (claim("k"), claim("l"));
        run(&store, &request, &outcome("answer")).await;
        assert_eq!(replayed(store.claim(&duplicate(&request)).await.unwrap()), outcome("answer"));
        let holder = crate::support::grant(&store, &released).await;
        store.renew(&holder, idempotency::Lease::default()).await.unwrap();
        let call = ask(holder);
        assert!(matches!(store.begin_call(&call).await.unwrap(), Begun::Go { .. }));
        store.end_call(&end(&call, LoggedEnd::NotDone("not sent".to_owned()))).await.unwrap();
        assert!(store.inspect_step(&holder.id, &call.label).await.unwrap().is_some());
        assert_eq!(store.list_steps(&ListSteps::default()).await.unwrap().entries.len(), 1);
        store.mark_in_doubt(&holder, Some(&outcome("sorry"))).await.unwrap();
        store.release(&holder, crate::support::DEAD_FOR).await.unwrap();
        store.abandon(&request.id, idempotency::Nonce::random(), crate::support::DEAD_FOR).await.unwrap();
        assert_eq!(store.list(&List::default()).await.unwrap().entries.len(), 2);
        store.sweep(10).await.unwrap();
        let leaser = Leaser::new(store.leases(), LeaseSettings::default());
        let Taken::Yours(lease) = leaser.try_acquire(&Resource::parse("account/7").unwrap()).await.unwrap() else {
            panic!("nobody else asks")
        };
        lease.release().await.unwrap();
    }

    let store = RedisStore::open(&format!("redis://app:s3cret@127.0.0.1:{}/", server.port())).await.unwrap();
    let mut watch = store.watch(&claim("waited for").id);
    tokio::time::timeout(PATIENT, watch.changed()).await.expect("told that it listens");
    run(&store, &claim("waited for"), &outcome("answer")).await;
    tokio::time::timeout(PATIENT, watch.changed()).await.expect("told of the end");
    assert_eq!(server.cli(&["ACL", "LOG"]), "", "something was refused");
}

#[tokio::test]
async fn the_users_own_keys_are_out_of_reach_without_permission() {
    let server = Redis::start();
    server.cli(&["ACL", "SETUSER", "app", "on", ">s3cret", "~other:*", "+@all"]);
    let url = format!("redis://app:s3cret@127.0.0.1:{}/", server.port());
    let error = RedisStore::open(&url).await.unwrap_err();
    assert!(matches!(&error, OpenError::Store(error) if error.kind() == StoreErrorKind::Refused), "{error:?}");
}
