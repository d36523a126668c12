//! Four ways that look right and are not. They are run to show what the others are for, and that the run can see it.

mod expiry_alone;
mod look_then_write;
mod no_timeouts;
mod status_alone;

pub(crate) use expiry_alone::ExpiryAlone;
pub(crate) use look_then_write::LookThenWrite;
pub(crate) use no_timeouts::NoTimeouts;
pub(crate) use status_alone::StatusAlone;
