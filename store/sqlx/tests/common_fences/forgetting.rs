//! Purges of fences and markers.

use std::time::Duration;

use idempotency::{FenceTicket, Nonce, TokenSource};
use idempotency_sqlx::fence::{FenceError, Fences, Once, once};

use super::{Rig, account, admitted, fresh, id, number, refused, resource, run, token};

const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(86_400);

/// A ticket of leases, as if it was granted so long ago.
async fn granted<R: Rig>(rig: &R, ago: Duration) -> FenceTicket {
    let now = rig.fences().open(&resource("clock")).await.unwrap();
    let number = now.ticket().token.get() - u64::try_from(ago.as_micros()).unwrap();
    now.rollback().await;
    FenceTicket { token: token(number), holder: Some(Nonce::random()), source: TokenSource::LEASES }
}

pub(crate) async fn old_fences_are_forgotten_and_their_tokens_refused<R: Rig>(rig: &R) {
    let fences = rig.fences();
    let (old, new) = (granted(rig, 3 * DAY).await, granted(rig, HOUR).await);
    admitted(&fences, &resource("old"), &old).await;
    admitted(&fences, &resource("new"), &new).await;
    assert_eq!(fences.purge(DAY, 100).await.unwrap(), 1);
    assert_eq!(fences.purge(DAY, 100).await.unwrap(), 0);

    // Its own holder too: nobody can tell whether somebody newer was here.
    let answer = refused(&fences, &resource("old"), &old).await;
    assert!(matches!(answer, FenceError::BelowWatermark { least } if least > old.token), "{answer:?}");
    let answer = refused(&fences, &resource("never seen"), &granted(rig, 2 * DAY).await).await;
    assert!(matches!(answer, FenceError::BelowWatermark { .. }), "{answer:?}");
    admitted(&fences, &resource("old"), &granted(rig, HOUR).await).await;
    admitted(&fences, &resource("new"), &new).await;
    // The database's own tokens have a watermark of their own.
    fences.open(&resource("another")).await.unwrap().rollback().await;
}

/// A counter that is deleted restarts, and a stale high token passes.
pub(crate) async fn case_75_a_purged_fence_admits_no_older_token<R: Rig>(rig: &R) {
    let fences = rig.fences();
    let (stale, newer) = (granted(rig, 3 * DAY).await, granted(rig, 2 * DAY).await);
    admitted(&fences, &account(), &newer).await;
    assert_eq!(fences.purge(DAY, 100).await.unwrap(), 1);
    for late in [stale, newer] {
        let answer = refused(&fences, &account(), &late).await;
        assert!(matches!(answer, FenceError::BelowWatermark { .. }), "{answer:?}");
    }
    // What the database mints is above all that it has forgotten.
    let minted = fences.open(&resource("minted")).await.unwrap().commit().await.unwrap();
    run(rig, "UPDATE idempotency_fences SET token = token - 172800000000, opened_at = opened_at - 172800000000").await;
    assert_eq!(fences.purge(DAY, 100).await.unwrap(), 1);
    let answer = fences.reopen(&minted).await.unwrap_err();
    assert!(matches!(answer, FenceError::Rewound), "{answer:?}");
    run(rig, "UPDATE idempotency_fence_watermarks SET least_token = least_token + 172800000000 WHERE source = 0").await;
    let least = number(rig, "SELECT least_token FROM idempotency_fence_watermarks WHERE source = 0").await;
    let next = fences.open(&resource("minted")).await.unwrap();
    assert_eq!(next.ticket().token.get(), u64::try_from(least).unwrap());
}

pub(crate) async fn fences_of_other_sources_are_never_forgotten<R: Rig>(rig: &R) {
    let fences = rig.fences();
    admitted(&fences, &account(), &fresh(33)).await;
    assert_eq!(fences.purge(Duration::ZERO, 100).await.unwrap(), 0);
    admitted(&fences, &account(), &fresh(34)).await;
    admitted(&fences, &resource("other"), &fresh(1)).await;
    // An hour is kept whatever is said.
    admitted(&fences, &resource("of a lease"), &granted(rig, HOUR / 2).await).await;
    assert_eq!(fences.purge(Duration::ZERO, 100).await.unwrap(), 0);
}

pub(crate) async fn a_purge_deletes_no_more_than_its_limit<R: Rig>(rig: &R) {
    let fences = rig.fences();
    for name in ["a", "b", "c"] {
        admitted(&fences, &resource(name), &granted(rig, 3 * DAY).await).await;
    }
    for purged in [2, 1, 0] {
        assert_eq!(fences.purge(DAY, 2).await.unwrap(), purged);
    }
}

/// Whoever makes a fence keeps the watermark where it is until it has committed: a purge between its look and its
/// insert would make a stale token a new one.
pub(crate) async fn an_open_admission_holds_a_purge_up<R: Rig>(rig: &R) {
    let (fences, other) = (rig.fences(), rig.fences());
    let open = fences.open_with(&account(), &granted(rig, 3 * DAY).await).await.unwrap();
    let (purged, ()) = tokio::join!(other.purge(DAY, 100), async {
        rig.until_waiting().await;
        open.commit().await.unwrap();
    });
    assert_eq!(purged.unwrap(), 1);
}

/// The other way around: the watermark is raised and the fence deleted, not yet committed, and a stale token comes.
pub(crate) async fn an_admission_behind_a_purge_is_refused<R: Rig>(rig: &R) {
    let fences = rig.fences();
    let (stale, newer) = (granted(rig, 4 * DAY).await, granted(rig, 3 * DAY).await);
    let account = account();
    admitted(&fences, &account, &newer).await;
    let mut purge = rig.begin().await;
    // Above both.
    let raise = "UPDATE idempotency_fence_watermarks SET least_token = 9007199254740991 WHERE source = 1";
    R::execute(&mut purge, raise).await;
    R::execute(&mut purge, "DELETE FROM idempotency_fences WHERE source = 1").await;
    let (answer, ()) = tokio::join!(refused(&fences, &account, &stale), async {
        rig.until_waiting().await;
        purge.commit().await.unwrap();
    });
    assert!(matches!(answer, FenceError::BelowWatermark { .. }), "{answer:?}");
}

pub(crate) async fn old_markers_are_forgotten<R: Rig>(rig: &R) {
    let fences = rig.fences();
    let mark = async |key| {
        let mut transaction = fences.open(&account()).await.unwrap();
        let answer = once(&mut transaction, &id(key)).await.unwrap();
        transaction.commit().await.unwrap();
        answer
    };
    assert_eq!(mark("old").await, Once::First);
    run(rig, "UPDATE idempotency_once SET done_at = done_at - 172800000000").await;
    assert_eq!(mark("new").await, Once::First);
    assert_eq!(fences.forget_once(DAY, 0).await.unwrap(), 0);
    assert_eq!(fences.forget_once(DAY, 100).await.unwrap(), 1);
    assert_eq!((mark("old").await, mark("new").await), (Once::First, Once::Already));
}
