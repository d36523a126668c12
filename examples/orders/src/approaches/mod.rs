//! Four ways that are right.

mod conditional;
mod fenced;
mod for_update;
mod unique_row;

pub(crate) use conditional::Conditional;
pub(crate) use fenced::Fenced;
pub(crate) use for_update::ForUpdate;
pub(crate) use unique_row::UniqueRow;
