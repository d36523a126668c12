//! The protocol as models that are explored state by state, and its rules, each of which is missed when it is dropped.

pub mod ages;
pub mod check;
pub mod lease_walk;
pub mod leases;
pub mod records;
pub mod step_walk;
pub mod steps;
pub mod suite;
pub mod ticks;
pub mod transactions;
