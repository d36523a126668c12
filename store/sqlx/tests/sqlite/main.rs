//! The SQLite store: what only it can get wrong. What every store must do is in the conformance suite.
// The helpers of tests are tests.
#![allow(clippy::unwrap_used)]

mod alone;
#[path = "../common/mod.rs"]
mod common;
mod conformance;
mod contents;
mod fences;
mod forgetting;
mod groups;
mod leases;
mod locking;
mod once;
mod opening;
mod support;
mod transactions;
