//! Leases on the database's own clock, and rows that cannot be read.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use idempotency::time::SystemClock;
use idempotency::{
    Acquired, Ask, Clock as _, FencingToken, Lease, LeaseSettings, Leaser, Leases, Nonce, Released, Resource,
    StoreErrorKind, Taken,
};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::Database;

const PATIENCE: Duration = Duration::from_secs(60);

fn account() -> Resource {
    Resource::parse("account/7").unwrap()
}

fn ask(length: Duration) -> Ask {
    Ask { resource: account(), nonce: Nonce::random(), lease: Lease::new(length).unwrap(), above: None }
}

/// Many take leases of 1 ms and give none back: all tokens differ, and each asker's rise.
pub(crate) async fn short_leases_have_rising_tokens<L: Leases + Clone>(stores: Vec<L>) {
    let mut askers = JoinSet::new();
    for n in 0..8 {
        let leases = stores[n % stores.len()].clone();
        askers.spawn(async move {
            let mut tokens = Vec::new();
            while tokens.len() < 25 {
                if let Acquired::Granted(grant) = leases.try_acquire(&ask(Duration::from_millis(1))).await.unwrap() {
                    tokens.push(grant.token);
                }
            }
            assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
            tokens
        });
    }
    let tokens = timeout(PATIENCE, askers.join_all()).await.expect("in time");
    let all: BTreeSet<FencingToken> = tokens.into_iter().flatten().collect();
    assert_eq!(all.len(), 200);
    let now = SystemClock.now().micros().unsigned_abs();
    assert!(all.iter().all(|token| token.get().abs_diff(now) < 600_000_000), "microseconds of the clock");
}

/// Holders that wait for each other, renew and give back are never two.
pub(crate) async fn holders_are_one_at_a_time<L: Leases + Clone>(stores: Vec<L>) {
    let inside = Arc::new(AtomicU32::new(0));
    let settings = LeaseSettings::default().store_timeout(Duration::from_secs(20)).unwrap();
    let mut workers = JoinSet::new();
    for n in 0..8 {
        let leaser = Leaser::new(stores[n % stores.len()].clone(), settings);
        let inside = Arc::clone(&inside);
        workers.spawn(async move {
            let mut last = None;
            for _ in 0..5 {
                let Taken::Yours(lease) = leaser.acquire(&account(), PATIENCE).await.unwrap() else {
                    panic!("nobody holds it for long")
                };
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two at once");
                assert!(lease.still_held().await.unwrap());
                let token = Some(lease.token().unwrap());
                assert!(token > last);
                last = token;
                inside.fetch_sub(1, Ordering::SeqCst);
                assert_eq!(lease.release().await.unwrap(), Released::Released);
            }
        });
    }
    timeout(PATIENCE * 2, workers.join_all()).await.expect("in time");
}

/// It is nobody's, and nobody is granted it; everything else goes on.
pub(crate) async fn a_row_that_cannot_be_read_is_not_free<D: Database, L: Leases>(place: &D, leases: L) {
    let granted = leases.try_acquire(&ask(Duration::from_secs(30))).await.unwrap();
    assert!(matches!(granted, Acquired::Granted(_)));
    let broken = D::bytes("0102");
    place.execute(&format!("UPDATE idempotency_leases SET dead_nonces = {broken};")).await;
    let kind = |error: idempotency::StoreError| error.kind();
    let again = leases.try_acquire(&ask(Duration::from_secs(30))).await;
    assert_eq!(again.map_err(kind), Err(StoreErrorKind::Unreadable));
    let abandoned = leases.abandon(&account(), Nonce::random(), Duration::from_secs(1)).await;
    assert_eq!(abandoned.map_err(kind), Err(StoreErrorKind::Unreadable));
    assert_eq!(leases.inspect(&account()).await.map_err(kind), Err(StoreErrorKind::Unreadable));
    let other = Ask { resource: Resource::parse("account/8").unwrap(), ..ask(Duration::from_secs(30)) };
    assert!(matches!(leases.try_acquire(&other).await.unwrap(), Acquired::Granted(_)));
}

/// Tests of the behaviours above, over this database.
macro_rules! lease_tests {
    ($database:ty) => {
        #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
        async fn short_leases_have_rising_tokens() {
            let place = <$database as crate::common::Database>::migrated().await;
            let stores = crate::common::Database::real_stores(&place).await;
            crate::common::leases::short_leases_have_rising_tokens(stores.iter().map(|s| s.leases()).collect()).await;
        }

        #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
        async fn holders_are_one_at_a_time() {
            let place = <$database as crate::common::Database>::migrated().await;
            let stores = crate::common::Database::real_stores(&place).await;
            crate::common::leases::holders_are_one_at_a_time(stores.iter().map(|s| s.leases()).collect()).await;
        }

        #[tokio::test]
        async fn a_row_that_cannot_be_read_is_not_free() {
            let place = <$database as crate::common::Database>::migrated().await;
            let leases = crate::common::Database::store(&place).await.leases();
            crate::common::leases::a_row_that_cannot_be_read_is_not_free(&place, leases).await;
        }
    };
}
pub(crate) use lease_tests;
