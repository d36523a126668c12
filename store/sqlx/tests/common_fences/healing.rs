//! Fences that are opened with leases.

use idempotency::time::ManualClock;
use idempotency::{HeldLease, LeaseSettings, Leaser, Resource, Timestamp, TokenSource};
use idempotency_memory::MemoryLeases;
use idempotency_sqlx::fence::{FenceError, Fences};

use super::{Rig, account, is_superseded, resource};

/// A lease store that knows nothing yet, as after a flush, and its clock.
struct Store {
    leaser: Leaser<MemoryLeases<ManualClock>>,
}

impl Store {
    async fn new<R: Rig>(rig: &R, behind_by: u64) -> Self {
        let now = rig.fences().open(&resource("clock")).await.unwrap();
        let micros = now.ticket().token.get() - behind_by;
        now.rollback().await;
        let clock = ManualClock::new(Timestamp::from_micros(i64::try_from(micros).unwrap()));
        Self { leaser: Leaser::new(MemoryLeases::with_clock(clock), LeaseSettings::default()) }
    }

    async fn lease(&self, resource: &Resource) -> HeldLease<MemoryLeases<ManualClock>> {
        self.leaser.try_acquire(resource).await.unwrap().yours().unwrap()
    }
}

/// The lease store was flushed, or failed over to a server whose clock is behind: its tokens are below what the fence
/// has seen, and every new holder would be refused.
pub(crate) async fn case_75_a_lease_store_that_lost_its_memory_is_healed<R: Rig>(rig: &R) {
    let fences = rig.fences();
    let before = Store::new(rig, 0).await;
    let old = before.lease(&account()).await;
    let seen = old.ticket().unwrap();
    fences.open_with(&account(), &seen).await.unwrap().commit().await.unwrap();

    let after = Store::new(rig, 60_000_000).await;
    let lease = after.lease(&account()).await;
    assert!(lease.token().unwrap() < seen.token);
    is_superseded(fences.open_with(&account(), &lease.ticket().unwrap()).await.unwrap_err(), seen.token.get());
    let healed = fences.open_healing(&account(), &lease).await.unwrap().commit().await.unwrap();
    assert!(healed.ticket().token > seen.token);
    assert_eq!(lease.ticket().unwrap(), healed.ticket());
    // And the stale one is refused for good.
    is_superseded(fences.open_with(&account(), &seen).await.unwrap_err(), healed.ticket().token.get());
}

pub(crate) async fn a_lease_that_is_not_held_any_more_is_not_healed<R: Rig>(rig: &R) {
    let fences = rig.fences();
    let newer = Store::new(rig, 0).await.lease(&account()).await.ticket().unwrap();
    fences.open_with(&account(), &newer).await.unwrap().commit().await.unwrap();

    // Its holder believes in it, and the store has given it away.
    let store = Store::new(rig, 60_000_000).await;
    let lease = store.lease(&account()).await;
    let holder = lease.ticket().unwrap().holder.unwrap();
    let dead = std::time::Duration::from_secs(60);
    idempotency::Leases::abandon(store.leaser.leases(), &account(), holder, dead).await.unwrap();
    is_superseded(fences.open_healing(&account(), &lease).await.unwrap_err(), newer.token.get());
    let lost = fences.open_healing(&account(), &lease).await.unwrap_err();
    assert!(matches!(lost, FenceError::LeaseLost(_)), "{lost:?}");
}

pub(crate) async fn a_lease_opens_a_fence_without_healing<R: Rig>(rig: &R) {
    let fences = rig.fences();
    let store = Store::new(rig, 0).await;
    let lease = store.lease(&account()).await;
    let opened = fences.open_healing(&account(), &lease).await.unwrap().commit().await.unwrap();
    assert_eq!(opened.ticket(), lease.ticket().unwrap());
    assert_eq!(opened.ticket().source, TokenSource::LEASES);
    // Healing is of regress only.
    fences.reset(&resource("other"), TokenSource::DATABASE).await.unwrap();
    let other = fences.open_healing(&resource("other"), &lease).await.unwrap_err();
    assert!(matches!(other, FenceError::SourceMismatch { .. }), "{other:?}");
}
