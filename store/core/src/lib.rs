//! Idempotency keys, claims, fencing tokens and the store protocol they are kept by.
//!
//! A client times out and retries, a worker pauses and wakes: the same operation arrives twice. This crate
//! decides, with one atomic operation of a dedup store, who runs; it records what came of it; and a duplicate
//! gets the recorded outcome. `tower-idempotency` puts it around HTTP handlers; [`run`] around any function:
//!
//! ```
//! use idempotency::{Engine, Fingerprint, Key, Operation, ScopeId, Settings, WorkError, run};
//! use idempotency_memory::MemoryStore;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let engine = Engine::new(MemoryStore::new(), Settings::default());
//! let operation = Operation::new(ScopeId::new(["tenant-a"]), Key::parse("order-42")?, Fingerprint::of(["10 EUR"]));
//! for replayed in [false, true] {
//!     let charge = run(&engine, &operation, async |_| Ok::<_, WorkError<std::io::Error>>("charged".to_owned()));
//!     assert_eq!(charge.await?.replayed, replayed);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! The rules, in short:
//!
//! 1. [`Store::claim`] is the one operation that decides. Everything else names record, token and nonce, and a holder that
//!    was superseded can do nothing.
//! 2. One clock: the store's, at statement time.
//! 3. Bounded means refusing, never forgetting.
//! 4. An outcome nobody knows is *in doubt* and, by default, is not tried again until somebody knows.
//!
//! Beside records there are leases: a [`Leaser`] takes one on a [`Resource`] and yields a [`FencingToken`] for whoever receives the
//! holder's writes; [`LooseLeases`] are for efficiency only and yield none.
//!
//! Calls to external APIs that are not idempotent are made through [`outbound`].
//!
//! What each store operation answers in each state is in [`protocol`]; a store is held against it by the
//! conformance suite (feature `conformance`, which also has a store that misbehaves on command).

mod abandoning;
mod attempt;
mod belief;
mod boxed;
mod claim;
#[cfg(feature = "conformance")]
pub mod conformance;
mod engine;
#[cfg(feature = "conformance")]
pub mod faults;
mod fingerprint;
mod held;
mod identity;
mod key;
mod leases;
mod life;
mod observing;
pub mod outbound;
mod outcome;
mod patience;
pub mod protocol;
mod record;
mod renewals;
mod resource;
mod run;
mod run_in;
mod settings;
mod store;
mod sweeper;
mod ticket;
pub mod time;
mod token;
pub mod trace;
pub mod transaction;
mod waiters;
pub mod watch;

pub use attempt::Attempt;
pub use boxed::BoxStore;
pub use claim::{
    Claim, Claimed, Doubt, Entry, Grant, Holder, List, Page, Resolve, ResolveVerdict, Resolved, Settled, Swept,
};
pub use engine::{Answer, Engine, Operation};
pub use fingerprint::{Fingerprint, FingerprintHasher};
pub use held::{Held, Recorded};
pub use identity::{InvalidRecordId, Nonce, RecordId, ScopeId};
pub use key::{InvalidKey, Key, KeyRules};
pub use leases::{
    Acquired, Ask, BoxLeases, HeldLease, LeaseEntry, LeaseGrant, LeaseHolder, LeaseLost, LeaseRecord, LeaseSettings,
    LeaseView, Leaser, Leases, LooseLease, LooseLeases, RaiseError, Released, Taken, protocol as lease_protocol,
};
pub use life::{AgeLimit, KeyClass, Life, Recovery, Windows};
pub use outcome::{LONGEST_LOCATION, Outcome, Tombstone};
pub use record::{DeadNonces, Record, Standing, State, Stored, TOKEN_HOLD};
pub use resource::{InvalidResource, Resource};
pub use run::{Ran, RunError, WorkError, recorded, run};
pub use run_in::run_in;
pub use settings::{InFlight, Settings};
pub use store::{OpenError, Store, StoreError, StoreErrorKind, dead_for};
pub use sweeper::Sweeper;
pub use ticket::{FenceTicket, TokenSource};
pub use time::{Clock, Lease, Timestamp};
pub use token::{FencingToken, InvalidToken};
