//! Leases: the lock that yields a fencing token, and the loose one that yields none.

mod asking;
mod boxed;
mod contract;
mod held;
mod hold;
mod leaser;
mod loose;
pub mod protocol;
mod record;
mod settings;
mod sweeping;
mod view;

pub use boxed::BoxLeases;
pub use contract::{Acquired, Ask, LeaseEntry, LeaseGrant, LeaseHolder, Leases};
pub use held::{HeldLease, LeaseLost, RaiseError, Released};
pub use leaser::{Leaser, Taken};
pub use loose::{LooseLease, LooseLeases};
pub use record::LeaseRecord;
pub use settings::LeaseSettings;
pub use view::LeaseView;
