//! The Redis store: what only it can get wrong. What every store must do is in the conformance suite.
// The helpers of tests are tests.
#![allow(clippy::unwrap_used)]

mod commands;
mod conformance;
mod contents;
mod expiry;
mod forgetting;
mod groups;
mod hints;
mod leases;
mod memory;
mod opening;
mod replicas;
mod slots;
mod steps;
mod support;
#[cfg(feature = "tls")]
mod tls;
mod tokens;
