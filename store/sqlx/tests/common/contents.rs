//! What is in the tables: who sees it, and what is not taken for something else.

use idempotency::{
    Claim, Claimed, FencingToken, Fingerprint, Holder, Lease, List, Nonce, Outcome, Resolve, ResolveVerdict, Settled,
    State, Store, StoreErrorKind, Swept, Timestamp,
};

use super::Database;
use idempotency_testbed::requests::{DEAD_FOR, HOUR, claim, duplicate, grant, id, outcome, replayed, run};

pub(crate) async fn a_second_store_on_the_tables_sees_everything_at_once<D: Database>() {
    let place = D::migrated().await;
    let stores = place.real_stores().await;
    for (n, first) in stores.iter().enumerate() {
        let second = stores.get(n + 1).unwrap_or(&stores[0]);
        let request = claim(&n.to_string());
        let holder = grant(first, &request).await;
        assert!(matches!(second.claim(&duplicate(&request)).await.unwrap(), Claimed::InFlight { .. }));
        assert_eq!(second.renew(&holder, Lease::default()).await.unwrap(), Settled::Applied);
        assert_eq!(second.complete(&holder, &outcome("answer")).await.unwrap(), Settled::Applied);
        assert_eq!(replayed(first.claim(&duplicate(&request)).await.unwrap()), outcome("answer"));
        let listed = first.list(&List::default()).await.unwrap();
        assert!(listed.entries.iter().any(|entry| entry.id == request.id));
    }
}

pub(crate) async fn a_reopened_store_still_replays<D: Database>() {
    let place = D::migrated().await;
    let request = claim("k");
    let holder = run(&place.store().await, &request, &outcome("answer")).await;
    let store = place.store().await;
    assert_eq!(replayed(store.claim(&duplicate(&request)).await.unwrap()), outcome("answer"));
    assert_eq!(store.complete(&holder, &outcome("other")).await.unwrap(), Settled::AlreadyApplied);
}

pub(crate) async fn a_large_payload_of_all_bytes_comes_back_whole<D: Database>() {
    let place = D::migrated().await;
    let body: Vec<u8> = (0..1_000_000_u32).map(|n| (n % 256) as u8).collect();
    let large = Outcome::new(200, body.into());
    let empty = Outcome::new(204, Vec::new().into());
    for (n, store) in place.real_stores().await.iter().enumerate() {
        for (key, outcome) in [("large", &large), ("empty", &empty)] {
            let request = claim(&format!("{key}-{n}"));
            run(store, &request, outcome).await;
            assert_eq!(&replayed(store.claim(&duplicate(&request)).await.unwrap()), outcome);
        }
    }
}

pub(crate) async fn a_row_of_an_unknown_format_is_unreadable_and_not_new<D: Database>() {
    let place = D::migrated().await;
    let store = place.store().await;
    let request = claim("k");
    let holder = run(&store, &request, &outcome("answer")).await;
    place.execute("UPDATE idempotency_records SET format = 99, state = 'unheard-of';").await;
    unreadable(&store, &request, holder).await;

    place.execute("UPDATE idempotency_records SET format = 1, state = 'completed';").await;
    assert_eq!(replayed(store.claim(&duplicate(&request)).await.unwrap()), outcome("answer"), "it was left alone");
}

pub(crate) async fn a_row_with_impossible_values_is_unreadable_and_not_new<D: Database>() {
    let place = D::migrated().await;
    let store = place.store().await;
    let request = claim("k");
    let holder = run(&store, &request, &outcome("answer")).await;
    let (one, none) = (D::bytes("00"), D::bytes(""));
    for damage in [
        "state = 'unheard-of'",
        "state = 'completed', status = NULL",
        "status = 99999999",
        &format!("status = 200, dead_nonces = {one}"),
        &format!("dead_nonces = {none}, token = -1"),
        "token = 1, recovery = 'unheard-of'",
        "recovery = 'hold', tombstone_window = -1",
        "tombstone_window = NULL",
    ] {
        place.execute(&format!("UPDATE idempotency_records SET {damage};")).await;
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

pub(crate) async fn sweeps_go_around_rows_that_they_cannot_read<D: Database>() {
    let place = D::migrated().await;
    let store = place.store().await;
    for key in ["newer", "damaged", "plain"] {
        run(&store, &claim(key), &outcome("answer")).await;
    }
    for (key, damage) in [("newer", "format = 2"), ("damaged", "state = 'unheard-of'")] {
        let id = D::bytes(&id(key).to_string());
        place.execute(&format!("UPDATE idempotency_records SET {damage} WHERE id = {id};")).await;
    }
    place.clock().advance(100 * 24 * HOUR);
    let mut purged = 0;
    for _ in 0..3 {
        purged += store.sweep(1).await.unwrap().purged;
    }
    assert_eq!(purged, 1, "the unreadable ones are not in the way");
    assert_eq!(store.list(&List::default()).await.unwrap().entries.len(), 2);
    assert_eq!(store.sweep(1).await.unwrap(), Swept::default());
}

pub(crate) async fn a_fingerprint_of_another_version_is_unreadable<D: Database>() {
    let place = D::migrated().await;
    let store = place.store().await;
    let request = claim("k");
    let mut bytes = request.fingerprint.to_bytes();
    bytes[0] += 1;
    let newer = Claim { fingerprint: Fingerprint::from_bytes(bytes), ..request.clone() };
    run(&store, &newer, &outcome("answer")).await;
    assert_eq!(store.claim(&duplicate(&request)).await.unwrap(), Claimed::Unreadable);
}

/// Rows as release 0.1 wrote them: every later release must go on reading them.
pub(crate) async fn rows_of_format_1_are_read<D: Database>() {
    let place = D::empty().await;
    place.execute(D::FIXTURE).await;
    place.migrate().await.unwrap();
    let store = place.store().await;

    let nonce = |n| Nonce::from_bytes([n; 16]);
    let token = |n: u64| FencingToken::new(1_800_000_000_000_000 + n).unwrap();
    let claimed = async |key| store.claim(&claim(key)).await.unwrap();

    let Claimed::Replay { outcome: replayed, completed_at, .. } = claimed("completed").await else { panic!() };
    assert_eq!(replayed, outcome("{\"id\":1}"));
    assert_eq!(completed_at, Timestamp::from_micros(1_800_000_000_000_000));
    let Claimed::Executed(tombstone) = claimed("tombstone").await else { panic!() };
    assert_eq!((tombstone.status, tombstone.location.as_deref()), (204, None));
    let Claimed::InFlight { lease_left } = claimed("in-flight").await else { panic!() };
    assert_eq!(lease_left, Lease::default().length() + std::time::Duration::from_micros(2));
    let Claimed::InDoubt(doubt) = claimed("in-doubt").await else { panic!() };
    assert_eq!((doubt.token, doubt.attempt, doubt.response), (token(3), 1, Some(outcome("sorry"))));
    let stub = Claim { nonce: nonce(9), ..claim("stub") };
    assert_eq!(store.claim(&stub).await.unwrap(), Claimed::Refused);
    assert_eq!(claimed("aged").await, Claimed::Mismatch, "its request was another one");

    let resolved = store.inspect(&id("resolved")).await.unwrap().unwrap();
    assert_eq!(resolved.state, State::Released);
    assert_eq!(resolved.resolution, Some(("ops".into(), "nothing at the bank".into())));
    let next = store.claim(&claim("resolved")).await.unwrap();
    let Claimed::Granted(next) = next else { panic!("{next:?}") };
    assert_eq!(next.attempt, 2);

    let holder = Holder { id: id("in-flight"), token: token(2), nonce: nonce(2) };
    assert_eq!(store.complete(&holder, &outcome("done")).await.unwrap(), Settled::Applied);
    assert_eq!(store.list(&List::default()).await.unwrap().entries.len(), 7);
}

macro_rules! contents_tests {
    ($database:ty) => {
        crate::common::tests_of! { $database, contents:
            a_second_store_on_the_tables_sees_everything_at_once
            a_reopened_store_still_replays
            a_large_payload_of_all_bytes_comes_back_whole
            a_row_of_an_unknown_format_is_unreadable_and_not_new
            a_row_with_impossible_values_is_unreadable_and_not_new
            sweeps_go_around_rows_that_they_cannot_read
            a_fingerprint_of_another_version_is_unreadable
            rows_of_format_1_are_read
        }
    };
}
pub(crate) use contents_tests;
