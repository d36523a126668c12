//! What is in the tables: who sees it, and what is not taken for something else.

use idempotency::{Claim, Claimed, List, OpenError, Store};
use idempotency_sqlx::PostgresStore;
use sqlx::PgPool;

use crate::common::contents;
use crate::support::{HOUR, Place, claim, duplicate, grant, outcome, replayed, run};

contents::contents_tests!(Place);

#[tokio::test]
async fn a_store_on_the_programs_own_pool_shares_the_records() {
    let place = Place::migrated().await;
    let request = claim("k");
    run(&place.real_options().open().await.unwrap(), &request, &outcome("answer")).await;
    let store = PostgresStore::from_pool(PgPool::connect(place.url()).await.unwrap()).await.unwrap();
    assert_eq!(replayed(store.claim(&duplicate(&request)).await.unwrap()), outcome("answer"));
    run(&store, &claim("l"), &outcome("another")).await;
    let nothing = PgPool::connect(Place::empty().await.url()).await.unwrap();
    let error = PostgresStore::from_pool(nothing).await.unwrap_err();
    assert!(matches!(error, OpenError::Schema { found: 0, .. }), "{error:?}");
}

/// No record has such an id, and the table does not refuse it.
#[tokio::test]
async fn a_row_whose_id_is_none_holds_up_neither_a_sweep_nor_a_list() {
    let place = Place::migrated().await;
    let store = place.store().await;
    run(&store, &claim("over"), &outcome("answer")).await;
    place
        .execute(
            "CREATE TEMPORARY TABLE copied AS SELECT * FROM idempotency_records;
             UPDATE copied SET id = '\\x00', due = 0;
             INSERT INTO idempotency_records SELECT * FROM copied;",
        )
        .await;
    assert_eq!(store.list(&List::default()).await.unwrap().entries.len(), 1);
    place.clock.advance(48 * HOUR);
    assert_eq!(store.sweep(10).await.unwrap().purged, 1);
}

/// Not even a no-op: an update by a duplicate makes a handler at REPEATABLE READ that reads the row fail to serialise.
#[tokio::test]
async fn a_duplicate_neither_writes_nor_locks_the_row() {
    let place = Place::migrated().await;
    let (done, running) = (claim("done"), claim("running"));
    let stores = place.real_stores().await;
    run(&stores[0], &done, &outcome("answer")).await;
    grant(&stores[0], &running).await;
    let version = async || {
        let rows = sqlx::query_scalar(
            "SELECT string_agg(ctid::text || xmin || xmax, ',' ORDER BY id) FROM idempotency_records",
        );
        rows.fetch_one(&mut place.connection().await).await.unwrap()
    };
    let before: String = version().await;
    for store in &stores {
        for request in [&done, &running] {
            store.claim(&duplicate(request)).await.unwrap();
            let mismatch = Claim { fingerprint: claim("other").fingerprint, ..duplicate(request) };
            assert_eq!(store.claim(&mismatch).await.unwrap(), Claimed::Mismatch);
        }
        store.claim(&running).await.unwrap();
        store.inspect(&done.id).await.unwrap();
        store.list(&List::default()).await.unwrap();
        store.sweep(10).await.unwrap();
    }
    assert_eq!(version().await, before);
}
