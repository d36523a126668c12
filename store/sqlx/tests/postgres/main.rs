//! The PostgreSQL store: what only it can get wrong. What every store must do is in the conformance suite.
// The helpers of tests are tests.
#![allow(clippy::unwrap_used)]

#[path = "../common/mod.rs"]
mod common;
mod conformance;
mod contents;
mod faults;
mod fences;
mod forgetting;
mod groups;
mod isolation;
mod leases;
mod opening;
mod races;
mod support;
mod transactions;
