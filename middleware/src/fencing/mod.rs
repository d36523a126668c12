//! Fencing tokens of callers who hold a lease elsewhere.
//!
//! A caller that took a lease sends its token along with each write ([`ForwardFencingToken`]); the service that receives it hands the
//! token to its handler ([`FencingLayer`]), and the handler to the [fence](https://docs.rs/idempotency-sqlx) of the data that is
//! written, which refuses older ones. Nothing before the fence can: whether a lease still holds is its holder's belief.

mod forward;
mod future;
mod header;
mod layer;

pub use forward::{ForwardFencingToken, ForwardFencingTokenService};
pub use future::FencingFuture;
pub use header::{FENCING_TOKEN, InvalidFencingToken};
#[cfg(feature = "fuzzing")]
pub(crate) use header::{parse, value};
pub use layer::{Fencing, FencingLayer};
