//! A rig for tests that need the `testbed` program: it starts, stops, pauses and kills testbeds, talks to them over HTTP or over a
//! bare socket, and counts the effects they had.
//!
//! ```no_run
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! // In an integration test of this package: `let rig = idempotency_testbed::rig!();`
//! let rig = idempotency_testbed::Rig::new("/path/to/testbed");
//! let testbed = rig.start(&["--lease", "1s"]).await;
//! let first = testbed.post("/charge", "key-1", &serde_json::json!({ "amount": 10 })).await;
//! let again = testbed.post("/charge", "key-1", &serde_json::json!({ "amount": 10 })).await;
//! assert!(again.is_replay_of(&first));
//! assert_eq!(testbed.effects("key-1").await, 1);
//! # }
//! ```
//!
//! What goes wrong in the rig itself panics and so fails the test that uses it. Nothing here waits for a fixed time: see
//! [`eventually`].
#![expect(clippy::missing_panics_doc, reason = "a rig panics to fail the test that uses it")]

mod bank;
mod client;
pub mod faults;
mod process;
mod proxy;
mod raw;
mod reply;
pub mod requests;
mod rig;
pub mod servers;
mod testbed;
mod wait;

pub use bank::Bank;
pub use client::{Call, Client, SendError};
pub use process::Ended;
pub use proxy::{Fate, Proxy, Rule, Way};
pub use raw::{Raw, request_bytes};
pub use reply::Reply;
pub use rig::Rig;
pub use testbed::Testbed;
pub use wait::{eventually, within};
