//! The stores of this crate, from outside.
#![allow(clippy::unwrap_used)] // Also in what the tests share.

mod bounds;
mod ceiling;
mod common;
mod conformance;
mod forgetting;
mod harness;
mod leases;
#[path = "../../../core/tests/log/mod.rs"]
mod log;
mod near_cache;
mod packing;
mod steps;
mod watching;
