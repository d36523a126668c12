//! The stores of this crate, from outside.
#![allow(clippy::unwrap_used)] // Also in what the tests share.

mod bounds;
mod common;
mod conformance;
mod forgetting;
mod harness;
mod leases;
mod near_cache;
mod steps;
