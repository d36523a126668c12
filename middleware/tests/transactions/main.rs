//! Handlers that record their answer in their effect's own transaction: what their clients get, what is on record, and how many
//! effects there are.

#![allow(clippy::unwrap_used)] // Also in what the tests share.

#[path = "../common/mod.rs"]
mod common;
#[path = "../../../store/core/tests/log/mod.rs"]
mod log;

mod committed;
mod doubtful;
mod rolled_back;
mod shop;
mod whole;
