//! What goes wrong with a Redis, one after the other, on private servers: no effect happens twice, no key is stuck beyond its lease
//! because a message was lost, and what cannot be answered is an honest error. Where records are really lost, the check has
//! said so before, tokens still grow, and a fence refuses the older one.
#![allow(clippy::unwrap_used, reason = "a test")]

mod check;
mod clock;
mod cluster;
mod connections;
mod failover;
mod foreign;
mod leases;
mod memory;
mod pauses;
mod replies;
mod restarts;
mod scripts;
mod steps;
mod support;
