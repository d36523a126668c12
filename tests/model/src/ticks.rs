//! Time in the models: whole ticks of a minute, which is as short as the core lets a resolved nonce be dead in a few of them.

use std::time::Duration;

use idempotency::Timestamp;

/// One tick.
pub const TICK: Duration = Duration::from_secs(60);

/// So many ticks.
#[must_use]
pub const fn ticks(n: u8) -> Duration {
    Duration::from_secs(60 * n as u64)
}

/// The time at which models begin.
pub const ORIGIN: Timestamp = Timestamp::from_micros(1_800_000_000_000_000);
