//! The link between a holder and the server is cut.

use std::time::Duration;

use idempotency::{Leaser, Taken};
use idempotency_redis::RedisLeases;
use idempotency_testbed::Proxy;
use idempotency_testbed::servers::Redis;
use tokio::time::{Instant, timeout};

use crate::support::{Accounts, Answer, Ledger, Service, TIMEOUT, account, hasty_leaser, leaser, store, take};

const LEASE: Duration = Duration::from_secs(2);

/// SIMBA-460: a holder that is cut off for three leases is told at the end of the first, writes nothing more, and somebody else
/// has taken over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_82_a_holder_that_is_cut_off_is_told_that_its_lease_is_lost() {
    let redis = Redis::start();
    let link = Proxy::to(redis.port());
    let accounts = Accounts::new().await;
    let cut_off = hasty_leaser(&redis.url_at(link.port(), 0), LEASE).await;
    let other = leaser(&store(&redis.url()).await, LEASE);
    let older = take(&cut_off).await;
    let ticket = older.ticket().unwrap();
    accounts.write(&ticket, "the older one").await.unwrap();
    link.cut();
    let since = Instant::now();
    timeout(2 * LEASE, older.lost()).await.expect("it is told");
    assert!(older.token().is_err(), "an outbound call asks for the token right before it is made");

    let newer = take(&other).await;
    assert!(newer.token().unwrap() > ticket.token);
    accounts.write(&newer.ticket().unwrap(), "the newer one").await.unwrap();
    tokio::time::sleep_until(since + 3 * LEASE).await;
    link.heal();
    accounts.refuse(&ticket).await;
    assert!(!older.still_held().await.unwrap_or(false));
    assert!(older.token().is_err());
    assert!(newer.still_held().await.unwrap());
}

/// HZ-17260: cut and healed twenty times, every asking ends within its limit, and tokens rise.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_83_after_every_healed_cut_leases_are_taken_in_time_and_tokens_rise() {
    const LIMIT: Duration = Duration::from_secs(5);
    let redis = Redis::start();
    let link = Proxy::to(redis.port());
    let leaser = hasty_leaser(&redis.url_at(link.port(), 0), LEASE).await;
    let (mut last, mut failed) = (0, 0);
    for round in 0..20 {
        match round % 3 {
            0 => link.cut(),
            1 => link.reset(),
            _ => {
                link.refuse();
                link.reset();
            }
        }
        failed += u32::from(in_time(&leaser, LIMIT).await.is_none());
        link.heal();
        let since = Instant::now();
        let token = loop {
            if let Some(token) = in_time(&leaser, LIMIT).await {
                break token;
            }
            assert!(since.elapsed() < LIMIT, "nothing is taken after the link healed");
        };
        assert!(token > last, "round {round}: {token} after {last}");
        last = token;
    }
    assert!(failed > 0, "the link was never cut: this proves nothing");
}

/// Takes the lease and gives it back; none when that failed.
async fn in_time(leaser: &Leaser<RedisLeases>, limit: Duration) -> Option<u64> {
    let since = Instant::now();
    let taken = leaser.acquire(&account(), limit - 2 * TIMEOUT).await;
    assert!(since.elapsed() < limit, "it took {:?}", since.elapsed());
    let Ok(Taken::Yours(lease)) = taken else { return None };
    let token = lease.token().ok()?.get();
    let _ = lease.release().await;
    Some(token)
}

/// The same for keys: nothing runs twice, and everything is answered once the link is there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_83_the_same_for_keys() {
    let redis = Redis::start();
    let link = Proxy::to(redis.port());
    let service = Service::hasty(&redis.url_at(link.port(), 0), &Ledger::default()).await;
    let mut failed = 0;
    for round in 0..20 {
        let key = format!("cut-{round}");
        link.cut();
        let since = Instant::now();
        failed += u32::from(matches!(service.post(&key).await, Answer::Unavailable(_)));
        assert!(since.elapsed() < 10 * TIMEOUT);
        link.heal();
        service.post_until_answered(&key).await;
        assert_eq!(service.ledger.of(&key), 1);
    }
    assert_eq!(failed, 20);
}
