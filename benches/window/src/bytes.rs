//! What a record weighs in each store.

use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// Bytes in one store, as they were measured there.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Weights {
    /// The store.
    pub store: String,
    /// A live record with an outcome, without the bytes of its body.
    pub record: f64,
    /// One byte of its body.
    pub per_byte: f64,
    /// A tombstone: a record whose body is gone.
    pub tombstone: f64,
    /// What was measured, and how.
    pub how: String,
}

impl Weights {
    /// What so many live records weigh, of which `full` still have their bodies, of `body` bytes together.
    #[must_use]
    pub fn bytes(&self, records: u64, full: u64, body: u64) -> f64 {
        self.tombstone * records as f64 + (self.record - self.tombstone) * full as f64 + self.per_byte * body as f64
    }

    /// The stores of this project, as `cargo bench -p idempotency-benches --bench bytes` measured them.
    ///
    /// # Errors
    /// When the table that is part of this crate is damaged.
    pub fn measured() -> io::Result<Vec<Self>> {
        Self::parse(include_str!("../bytes.json"))
    }

    /// A table of one's own, as that bench writes it.
    ///
    /// # Errors
    /// When it cannot be read, or a weight is no positive number, or a tombstone weighs more than its record did.
    pub fn read(path: &Path) -> io::Result<Vec<Self>> {
        Self::parse(&std::fs::read_to_string(path)?)
    }

    fn parse(text: &str) -> io::Result<Vec<Self>> {
        let all: Vec<Self> = serde_json::from_str(text)?;
        for weights in &all {
            let Self { store, record, per_byte, tombstone, .. } = weights;
            let positive = [record, per_byte, tombstone].iter().all(|bytes| bytes.is_finite() && **bytes >= 0.0);
            if !positive || tombstone > record {
                let wrong = format!("{store}: weights must be numbers from 0, and a tombstone at most its record");
                return Err(io::Error::new(io::ErrorKind::InvalidData, wrong));
            }
        }
        Ok(all)
    }
}
