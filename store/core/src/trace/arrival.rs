//! One arrival, from when it came until it is known what came of it.

use std::fmt::Write as _;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::Trace;
use super::keeper::Keeper;
use super::secret::Hidden;
use crate::{Operation, Timestamp};

/// A line of the trace, on its way. Dropped, it has ended.
#[derive(Debug)]
pub(crate) struct Arrival {
    line: Arc<Line>,
    /// The keeper must not end before its arrivals have.
    _keeper: Arc<Keeper>,
}

#[derive(Debug)]
pub(super) struct Line {
    pub(super) time: Timestamp,
    key: Hidden,
    scope: Hidden,
    route: Arc<str>,
    end: OnceLock<End>,
}

#[derive(Clone, Copy, Debug, Default)]
struct End {
    size: usize,
    took: Option<Duration>,
}

impl Trace {
    /// This operation has arrived. None when its key is not in the sample.
    pub(crate) fn arrival(&self, operation: &Operation) -> Option<Arrival> {
        let keeper = &self.keeper;
        let key = keeper.secret.hide("key", operation.record_id().as_bytes());
        if !keeper.samples(&key) {
            return None;
        }
        let scope = keeper.secret.hide("scope", operation.scope.as_bytes());
        let route = Arc::clone(operation.route.as_ref().unwrap_or(&self.route));
        let line = keeper.add(|time| Line { time, key, scope, route, end: OnceLock::new() })?;
        Some(Arrival { line, _keeper: Arc::clone(keeper) })
    }
}

impl Arrival {
    /// It ran for so long, and so many bytes are recorded of it.
    pub(crate) fn ran(self, took: Duration, size: usize) {
        // It ends once, here or when it is dropped.
        let _ = self.line.end.set(End { size, took: Some(took) });
    }

    /// It did not run, and so many bytes are on record.
    pub(crate) fn answered(self, size: usize) {
        let _ = self.line.end.set(End { size, took: None });
    }
}

impl Drop for Arrival {
    fn drop(&mut self) {
        self.line.end.get_or_init(End::default);
    }
}

impl Line {
    pub(super) fn has_ended(&self) -> bool {
        self.end.get().is_some()
    }

    /// The columns, as [`HEAD`] names them.
    pub(super) fn columns(&self) -> [String; 6] {
        let End { size, took } = self.end.get().copied().unwrap_or_default();
        let micros = self.time.micros().max(0);
        [
            format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000),
            hex(&self.key),
            size.to_string(),
            self.route.to_string(),
            hex(&self.scope),
            took.map(|took| format!("{}.{:03}", took.as_millis(), took.subsec_micros() % 1000)).unwrap_or_default(),
        ]
    }
}

fn hex(hidden: &Hidden) -> String {
    hidden.iter().fold(String::with_capacity(32), |mut digits, byte| {
        // Writing to a string cannot fail.
        let _ = write!(digits, "{byte:02x}");
        digits
    })
}

/// The first line.
pub(super) const HEAD: [&str; 6] = ["time", "key", "size", "route", "scope", "took_ms"];
