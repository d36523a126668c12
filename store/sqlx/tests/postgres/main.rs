//! The PostgreSQL store: what only it can get wrong. What every store must do is in the conformance suite.
// The helpers of tests are tests.
#![allow(clippy::unwrap_used)]

mod conformance;
mod contents;
mod faults;
mod forgetting;
mod opening;
mod races;
mod support;
