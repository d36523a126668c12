//! What a dedup window costs: the duplicates that run again because they came after it, and the memory it takes until then.
//!
//! A [`Pass`] takes arrivals in the order of time, once, and answers for every window of a [`Grid`] at the same time:
//!
//! 1. *Double runs*: arrivals that run although the same key ran before. For windows that count from the arrival that ran
//!    ([`Anchor::Arrival`]), from its completion ([`Anchor::Completion`]), and for windows that every hit renews ([`Anchor::Renewed`]).
//! 2. *Memory*: live records and their bytes in each store, mean and peak, exact and not by buckets of time.
//! 3. *Capacity*: the same for a bound on the number of records that evicts the one that was used the longest ago.
//!
//! Windows longer than a third of the trace are not judged: it says nothing about gaps that it hardly has room for.
//!
//! ```
//! use idempotency_window::{Anchor, Arrival, Grid, Pass, Settings};
//!
//! const MINUTE: i64 = 60_000_000; // times are in microseconds
//! let grid = Grid::of(vec![MINUTE, 10 * MINUTE, 60 * MINUTE])?;
//! let mut pass = Pass::new(Settings { grid, ..Settings::default() });
//! for (minute, key) in [(0, "a"), (5, "b"), (30, "a"), (31, "a"), (200, "c")] {
//!     pass.add(&Arrival { time: minute * MINUTE, key, size: 100, route: "/charge", scope: "tenant", took: 0 })?;
//! }
//! let measured = pass.finish()?;
//! // The second "a" is 30 minutes late: it escapes windows of 1 and of 10 minutes, not one of an hour.
//! let escapes: Vec<u64> = measured.windows.iter().map(|window| window.of(Anchor::Arrival).all.escapes).collect();
//! assert_eq!(escapes, [1, 1, 0]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod bounds;
pub mod bytes;
pub mod client;
mod distance;
pub mod generate;
mod grid;
mod groups;
mod order;
pub mod output;
mod pass;
pub mod plot;
pub mod presets;
mod reader;
pub mod recommend;
pub mod report;
mod result;
mod runs;
pub mod schedule;
mod sweep;
mod trace_error;

pub use grid::{Grid, GridError};
pub use order::Order;
pub use pass::{Arrival, Pass, PassError, Sample, Settings};
pub use reader::{HEADER, Reader, Unrecorded};
pub use result::{Anchor, Capacity, Count, Group, Measured, Memory, Tally, Window};
pub use trace_error::{TraceError, Wrong};
