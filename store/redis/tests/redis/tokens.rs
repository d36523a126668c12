//! Tokens: whole numbers, and always larger.

use std::time::Duration;

use idempotency::time::{Clock as _, SystemClock};
use idempotency::{
    Acquired, Ask, Claimed, FencingToken, Lease, LeaseHolder, Leases, Nonce, Resolve, ResolveVerdict, Resolved,
    Resource, Settled, Store, Timestamp,
};
use idempotency_redis::RedisLeases;
use idempotency_testbed::servers::Redis;

use crate::support::{Place, claim, connection, duplicate, grant};

fn ask(name: &str) -> Ask {
    Ask { resource: Resource::parse(name).unwrap(), nonce: Nonce::random(), lease: Lease::default(), above: None }
}

async fn acquire(leases: &RedisLeases, ask: &Ask) -> FencingToken {
    match leases.try_acquire(ask).await.unwrap() {
        Acquired::Granted(grant) => grant.token,
        acquired => panic!("not granted: {acquired:?}"),
    }
}

/// Lua prints 14 digits of a number unless it is told otherwise.
#[tokio::test]
async fn no_digit_of_a_token_is_lost() {
    let place = Place::new();
    let (store, leases) = (place.store().await, place.store().await.leases());
    for micros in [100_000_000_000_001, 1_764_430_123_456_789, 4_503_599_627_370_497, 9_007_199_254_740_989] {
        place.clock.set(Timestamp::from_micros(micros));
        let (key, token) = (micros.to_string(), FencingToken::new(micros.unsigned_abs()).unwrap());
        let holder = grant(&store, &claim(&key)).await;
        assert_eq!(holder.token, token);
        assert_eq!(store.renew(&holder, Lease::default()).await.unwrap(), Settled::Applied);
        assert_eq!(store.inspect(&holder.id).await.unwrap().unwrap().token, Some(token));
        assert_eq!(store.release(&holder, Duration::from_secs(60)).await.unwrap(), Settled::Applied);
        assert_eq!(grant(&store, &claim(&key)).await.token.get(), token.get() + 1);
        assert_eq!(acquire(&leases, &ask(&key)).await, token);
    }
}

/// No clock comes so far before the year 2255, but a fence that somebody opened may have.
#[tokio::test]
async fn a_token_that_has_come_to_its_end_stays_there() {
    let store = Place::new().store().await;
    let holder = grant(&store, &claim("k")).await;
    assert_eq!(store.mark_in_doubt(&holder, None).await.unwrap(), Settled::Applied);
    let last = FencingToken::new(FencingToken::MAX).unwrap();
    let resolve = Resolve {
        id: holder.id,
        token_seen: holder.token,
        verdict: ResolveVerdict::DidNotHappen { fence_token: Some(last) },
        who: "ops".into(),
        why: "looked".into(),
    };
    assert_eq!(store.resolve(&resolve).await.unwrap(), Resolved::Applied);
    for _ in 0..2 {
        let holder = grant(&store, &claim("k")).await;
        assert_eq!(holder.token, last);
        assert_eq!(store.release(&holder, Duration::from_secs(60)).await.unwrap(), Settled::Applied);
    }
}

/// UUID-FENCE: over release, takeover and purge, on two stores with the server's own clock.
#[tokio::test]
async fn case_74_a_thousand_tokens_rise_over_two_stores() {
    let place = Place::new();
    let stores = [place.real_store().await, place.real_store().await];
    let mut connection = connection(&place.url).await;
    let (mut last, mut last_lease) = (None, None);
    for n in 0..1000 {
        let store = &stores[n % 2];
        let request = claim("k");
        let holder = grant(store, &request).await;
        assert!(Some(holder.token) > last, "{:?} after {last:?}", holder.token);
        last = Some(holder.token);
        let ask = ask("account/7");
        let token = acquire(&store.leases(), &ask).await;
        assert!(Some(token) > last_lease, "{token:?} after {last_lease:?}");
        last_lease = Some(token);
        if n % 10 == 9 {
            // As if it was purged, expired or evicted.
            for key in place.keys(&mut connection).await {
                redis::cmd("DEL").arg(key).exec_async(&mut connection).await.unwrap();
            }
            continue;
        }
        assert_eq!(store.release(&holder, Duration::from_secs(60)).await.unwrap(), Settled::Applied);
        let holder = LeaseHolder { resource: ask.resource.clone(), token, nonce: ask.nonce };
        assert_eq!(store.leases().release(&holder, Duration::from_secs(60)).await.unwrap(), Settled::Applied);
    }
}

/// RSN-6510: a counter that is lost begins at 1 again.
#[tokio::test]
async fn case_75_tokens_rise_over_a_flush() {
    let mut server = Redis::start();
    let store = Place::at(server.url()).real_store().await;
    let (request, ask) = (claim("k"), ask("account/7"));
    let mut before = (grant(&store, &request).await.token, acquire(&store.leases(), &ask).await);
    for flush in [true, false] {
        if flush {
            server.cli(&["FLUSHALL"]);
        } else {
            server.restart();
        }
        // Whoever asks is told of a broken connection; this finds it first, and is sent again.
        store.inspect(&request.id).await.unwrap();
        let after =
            (grant(&store, &duplicate(&request)).await.token, acquire(&store.leases(), &self::ask("account/7")).await);
        assert!(after.0 > before.0 && after.1 > before.1, "{after:?} after {before:?}");
        assert!(after.1.get().abs_diff(SystemClock.now().micros().unsigned_abs()) < 600_000_000, "{after:?}");
        before = after;
    }
    let Claimed::InFlight { .. } = store.claim(&request).await.unwrap() else { panic!("it is somebody else's now") };
}

/// The last one of a resource is remembered for a day, and with it what it was asked to be above.
#[tokio::test]
async fn a_raised_token_is_remembered() {
    let place = Place::new();
    let leases = place.store().await.leases();
    let first = ask("account/7");
    let token = acquire(&leases, &first).await;
    let above = FencingToken::new(token.get() + 1_000_000_000).unwrap();
    let raised = acquire(&leases, &Ask { above: Some(above), ..first.clone() }).await;
    assert!(raised > above);
    let holder = LeaseHolder { resource: first.resource.clone(), token: raised, nonce: first.nonce };
    assert_eq!(leases.release(&holder, Duration::from_secs(60)).await.unwrap(), Settled::Applied);
    assert!(acquire(&leases, &ask("account/7")).await > raised);
    let mut connection = connection(&place.url).await;
    let [key] = place.keys(&mut connection).await.try_into().unwrap();
    let left: u64 = redis::cmd("TTL").arg(&key).query_async(&mut connection).await.unwrap();
    assert!(left > 24 * 3600, "{left}");
    let name: String = redis::cmd("HGET").arg(&key).arg("n").query_async(&mut connection).await.unwrap();
    assert_eq!(name, "account/7");
}
