//! A lease for the time of a handler.

mod future;
mod layer;
mod service;

pub use future::LeasingFuture;
pub use layer::LeaseLayer;
pub use service::Leasing;
