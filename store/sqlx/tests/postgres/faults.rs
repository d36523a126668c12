//! The server dies, or stands still; somebody is between the store and the server.

use std::sync::Arc;

use idempotency::{Claimed, List, Settled, Store};
use idempotency_sqlx::{PostgresStore, Statements};
use idempotency_testbed::servers::PgBouncer;
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use crate::common::faults;
use crate::support::{DEAD_FOR, Place, claim, grant, outcome, server};

faults::faults_tests!(Place);

/// One session at the server may serve many of ours, a transaction at a time.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_proxy_that_pools_transactions_is_not_noticed() {
    let (place, proxied) = proxied("proxied").await;
    let store = proxied.real_options().connections(20).open().await.unwrap();
    let failures = storm(&store).await;
    assert!(failures.is_empty(), "{} failures, such as {:?}", failures.len(), failures[0]);
    // What was done through the proxy is what others see.
    let listed = place.real_options().open().await.unwrap().list(&List::default()).await.unwrap();
    assert_eq!(listed.entries.len(), 20);
    store.sweep(10).await.unwrap();
    let holder = grant(&store, &claim("released")).await;
    assert_eq!(store.release(&holder, DEAD_FOR).await.unwrap(), Settled::Applied);
}

/// The proof that the test above can see it.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn prepared_statements_do_not_survive_such_a_proxy() {
    let (_, proxied) = proxied("proxied_and_prepared").await;
    let options = proxied.real_options().connections(20).statements(Statements::PreparedOnce);
    let store = options.open().await.unwrap();
    assert!(!storm(&store).await.is_empty(), "sessions were never mixed: this proves nothing");
}

async fn proxied(database: &str) -> (Place, Place) {
    static PROXY: std::sync::OnceLock<PgBouncer> = std::sync::OnceLock::new();
    let place = Place::at(server().create_database(database));
    let proxied = Place::at(PROXY.get_or_init(|| PgBouncer::start(server())).url(database));
    proxied.real_options().migrate().await.unwrap();
    (place, proxied)
}

/// Twenty keys, each claimed twenty times at once and completed by its winner.
async fn storm(store: &PostgresStore) -> Vec<String> {
    const KEYS: usize = 20;
    const DUPLICATES: usize = 20;
    let barrier = Arc::new(Barrier::new(KEYS * DUPLICATES));
    let mut claims = JoinSet::new();
    for n in 0..KEYS * DUPLICATES {
        let (store, barrier) = (store.clone(), Arc::clone(&barrier));
        claims.spawn(async move {
            let request = claim(&(n % KEYS).to_string());
            barrier.wait().await;
            let grant = match store.claim(&request).await {
                Ok(Claimed::Granted(grant)) => grant,
                Ok(Claimed::InFlight { .. } | Claimed::Replay { .. }) => return None,
                other => return Some(format!("{other:?}")),
            };
            let holder = idempotency::Holder { id: request.id, token: grant.token, nonce: request.nonce };
            match store.complete(&holder, &outcome("answer")).await {
                Ok(Settled::Applied) => None,
                other => Some(format!("{other:?}")),
            }
        });
    }
    claims.join_all().await.into_iter().flatten().collect()
}
