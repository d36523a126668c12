//! What is in the tables: who sees it, and what is not taken for something else.

use idempotency::{
    Claim, Claimed, Fingerprint, Holder, Lease, List, Nonce, Resolve, ResolveVerdict, Settled, State, Store,
    StoreErrorKind,
};
use idempotency_sqlx::PostgresStore;
use sqlx::PgPool;

use crate::support::{DEAD_FOR, HOUR, Place, claim, duplicate, grant, id, outcome, replayed, run};

#[tokio::test]
async fn a_second_store_on_the_tables_sees_everything_at_once() {
    let place = Place::migrated().await;
    let [first, second] = place.real_stores().await;
    let request = claim("k");
    let holder = grant(&first, &request).await;
    assert!(matches!(second.claim(&duplicate(&request)).await.unwrap(), Claimed::InFlight { .. }));
    assert_eq!(second.renew(&holder, Lease::default()).await.unwrap(), Settled::Applied);
    assert_eq!(second.complete(&holder, &outcome("answer")).await.unwrap(), Settled::Applied);
    assert_eq!(replayed(first.claim(&duplicate(&request)).await.unwrap()), outcome("answer"));
    let listed = first.list(&List::default()).await.unwrap();
    assert_eq!(listed.entries.iter().map(|entry| entry.id).collect::<Vec<_>>(), [request.id]);
}

#[tokio::test]
async fn a_store_on_the_programs_own_pool_shares_the_records() {
    let place = Place::migrated().await;
    let request = claim("k");
    run(&place.real_options().open().await.unwrap(), &request, &outcome("answer")).await;
    let store = PostgresStore::from_pool(PgPool::connect(place.url()).await.unwrap()).await.unwrap();
    assert_eq!(replayed(store.claim(&duplicate(&request)).await.unwrap()), outcome("answer"));
    run(&store, &claim("l"), &outcome("another")).await;
}

#[tokio::test]
async fn a_large_payload_of_all_bytes_comes_back_whole() {
    let place = Place::migrated().await;
    let body: Vec<u8> = (0..1_000_000_u32).map(|n| (n % 256) as u8).collect();
    let large = idempotency::Outcome::new(200, body.into());
    let empty = idempotency::Outcome::new(204, Vec::new().into());
    for (n, store) in place.real_stores().await.iter().enumerate() {
        for (key, outcome) in [("large", &large), ("empty", &empty)] {
            let request = claim(&format!("{key}-{n}"));
            run(store, &request, outcome).await;
            assert_eq!(&replayed(store.claim(&duplicate(&request)).await.unwrap()), outcome);
        }
    }
}

#[tokio::test]
async fn a_row_of_an_unknown_format_is_unreadable_and_not_new() {
    let place = Place::migrated().await;
    let store = place.store().await;
    let request = claim("k");
    let holder = run(&store, &request, &outcome("answer")).await;
    place.execute("UPDATE idempotency_records SET format = 99, state = 'unheard-of';").await;
    unreadable(&store, &request, holder).await;

    place.execute("UPDATE idempotency_records SET format = 1, state = 'completed';").await;
    assert_eq!(replayed(store.claim(&duplicate(&request)).await.unwrap()), outcome("answer"), "it was left alone");
}

#[tokio::test]
async fn a_row_with_impossible_values_is_unreadable_and_not_new() {
    let place = Place::migrated().await;
    let store = place.store().await;
    let request = claim("k");
    let holder = run(&store, &request, &outcome("answer")).await;
    for damage in [
        "UPDATE idempotency_records SET state = 'unheard-of';",
        "UPDATE idempotency_records SET state = 'completed', status = NULL;",
        "UPDATE idempotency_records SET status = 99999999;",
        "UPDATE idempotency_records SET status = 200, dead_nonces = '\\x00';",
        "UPDATE idempotency_records SET dead_nonces = '', token = -1;",
        "UPDATE idempotency_records SET token = 1, recovery = 'unheard-of';",
        "UPDATE idempotency_records SET recovery = 'hold', tombstone_window = -1;",
        "UPDATE idempotency_records SET tombstone_window = NULL;",
    ] {
        place.execute(damage).await;
        unreadable(&store, &request, holder).await;
    }
}

/// Claims are refused, the other operations say that they cannot say, operators see it, sweeps leave it alone.
async fn unreadable(store: &impl Store, request: &Claim, holder: Holder) {
    assert_eq!(store.claim(&duplicate(request)).await.unwrap(), Claimed::Unreadable);
    let resolve = Resolve {
        id: request.id,
        token_seen: holder.token,
        verdict: ResolveVerdict::DidNotHappen { fence_token: None },
        who: "ops".into(),
        why: "looked".into(),
    };
    let errors = [
        store.complete(&holder, &outcome("other")).await.map(drop),
        store.renew(&holder, Lease::default()).await.map(drop),
        store.release(&holder, DEAD_FOR).await.map(drop),
        store.mark_in_doubt(&holder, None).await.map(drop),
        store.abandon(&request.id, Nonce::random(), DEAD_FOR).await,
        store.resolve(&resolve).await.map(drop),
    ];
    for error in errors {
        assert_eq!(error.unwrap_err().kind(), StoreErrorKind::Unreadable);
    }
    let inspected = store.inspect(&request.id).await.unwrap().expect("it is not hidden");
    assert_eq!((inspected.id, inspected.state), (request.id, State::InDoubt));
    let listed = store.list(&List { state: Some(State::InDoubt), ..List::default() }).await.unwrap();
    assert_eq!(listed.entries, [inspected]);
    store.sweep(10).await.unwrap();
    assert!(store.inspect(&request.id).await.unwrap().is_some());
}

#[tokio::test]
async fn sweeps_go_around_rows_that_they_cannot_read() {
    let place = Place::migrated().await;
    let store = place.store().await;
    for key in ["newer", "damaged", "plain"] {
        run(&store, &claim(key), &outcome("answer")).await;
    }
    for (key, damage) in [
        ("newer", "UPDATE idempotency_records SET format = 2 WHERE id = $1"),
        ("damaged", "UPDATE idempotency_records SET state = 'unheard-of' WHERE id = $1"),
    ] {
        let damage = sqlx::query(damage).bind(id(key).as_bytes().to_vec());
        damage.execute(&mut place.connection().await).await.unwrap();
    }
    place.clock.advance(100 * 24 * HOUR);
    let mut purged = 0;
    for _ in 0..3 {
        purged += store.sweep(1).await.unwrap().purged;
    }
    assert_eq!(purged, 1, "the unreadable ones are not in the way");
    assert_eq!(store.list(&List::default()).await.unwrap().entries.len(), 2);
    assert_eq!(store.sweep(1).await.unwrap(), idempotency::Swept::default());
}

#[tokio::test]
async fn a_fingerprint_of_another_version_is_unreadable() {
    let place = Place::migrated().await;
    let store = place.store().await;
    let request = claim("k");
    let mut bytes = request.fingerprint.to_bytes();
    bytes[0] += 1;
    let newer = Claim { fingerprint: Fingerprint::from_bytes(bytes), ..request.clone() };
    run(&store, &newer, &outcome("answer")).await;
    assert_eq!(store.claim(&duplicate(&request)).await.unwrap(), Claimed::Unreadable);
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
