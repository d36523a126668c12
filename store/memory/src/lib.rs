//! In-process stores for `idempotency`: [`MemoryStore`], [`MemoryLeases`], and [`NearCache`] in front of any other store.
//!
//! **A `MemoryStore` belongs to one process and is lost with it.** Behind a load balancer every instance would keep a
//! history of its own, and the same key would run once in each: two instances need a shared store. After a restart nothing
//! is remembered, and a duplicate of something done before it runs again (unless its key is time-ordered, see
//! [`MemoryStore`] and [`MemoryStoreBuilder::build_under`]). It is right for tests, for a program that is one process, and for effects that live in the same memory.
//!
//! ```
//! use bytes::Bytes;
//! use idempotency::{Claim, Claimed, Fingerprint, Holder, Key, Lease, Life, Nonce, Outcome, RecordId, ScopeId, Settled, Store};
//! use idempotency_memory::MemoryStore;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let store = MemoryStore::builder().max_records(100_000).build();
//! let claim = Claim {
//!     id: RecordId::new(&ScopeId::new(["tenant-a"]), &Key::parse("order-42")?),
//!     fingerprint: Fingerprint::of(["10 EUR"]),
//!     nonce: Nonce::random(),
//!     lease: Lease::default(),
//!     life: Life::default(),
//!     key_time: None,
//!     room: 1024,
//! };
//! let Claimed::Granted(grant) = store.claim(&claim).await? else { unreachable!("nobody else is here") };
//!
//! let holder = Holder { id: claim.id, token: grant.token, nonce: claim.nonce };
//! let outcome = Outcome::new(201, Bytes::from("charged"));
//! assert_eq!(store.complete(&holder, &outcome).await?, Settled::Applied);
//!
//! let duplicate = Claim { nonce: Nonce::random(), ..claim };
//! assert!(matches!(store.claim(&duplicate).await?, Claimed::Replay { outcome: replayed, .. } if replayed == outcome));
//! # Ok(())
//! # }
//! ```

mod builder;
mod ceiling;
mod floors;
mod leases;
mod monotone;
mod near_cache;
mod own;
mod packed;
mod room;
mod shard;
#[cfg(test)]
mod shrinking;
mod slot;
mod steps;
mod store;

pub use builder::MemoryStoreBuilder;
pub use ceiling::{Ceiling, CeilingError, MissingCeiling};
pub use leases::MemoryLeases;
pub use near_cache::{NearCache, NearCacheBuilder};
pub use room::RECORD_OVERHEAD;
pub use steps::CALL_OVERHEAD;
pub use store::MemoryStore;
