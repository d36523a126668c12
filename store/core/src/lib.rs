//! Idempotency keys, claims, fencing tokens and the store protocol they are kept by.

mod boxed;
mod claim;
mod fingerprint;
mod identity;
mod key;
mod life;
mod outcome;
pub mod protocol;
mod record;
mod store;
pub mod time;
mod token;

pub use boxed::BoxStore;
pub use claim::{
    Claim, Claimed, Doubt, Entry, Grant, Holder, List, Page, Resolve, ResolveVerdict, Resolved, Settled, Swept,
};
pub use fingerprint::{Fingerprint, FingerprintHasher};
pub use identity::{InvalidRecordId, Nonce, RecordId, ScopeId};
pub use key::{InvalidKey, Key, KeyRules};
pub use life::{AgeLimit, KeyClass, Life, Recovery, Windows};
pub use outcome::{LONGEST_LOCATION, Outcome, Tombstone};
pub use record::{DeadNonces, Record, Standing, State, Stored, TOKEN_HOLD};
pub use store::{OpenError, Store, StoreError, StoreErrorKind, dead_for};
pub use time::{Clock, Lease, Timestamp};
pub use token::{FencingToken, InvalidToken};
