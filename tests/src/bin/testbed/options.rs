//! The command line.

use std::net::SocketAddr;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use idempotency::{InFlight, Recovery};
use tower_idempotency::{Outage, RecordPolicy};

use crate::values::{Keys, ScopeFrom, Sweep, duration, http_url, in_flight, keys, rate, scope, sweep};

/// An HTTP server over an idempotency store, with countable effects and fault switches.
#[derive(Debug, Parser)]
#[command(name = "testbed", version, args_conflicts_with_subcommands = true)]
pub(crate) struct CommandLine {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    #[command(flatten)]
    pub(crate) options: Options,
}

/// Servers other than the testbed itself.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// The external API that /payout calls: POST and GET /transfers. What it did is at GET /ledger, /calls and /faults.
    Bank(BankOptions),
}

/// Options of the bank.
#[derive(Debug, Args)]
pub(crate) struct BankOptions {
    /// Where to listen; port 0 picks a free one.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
    pub(crate) listen: SocketAddr,
    /// The SQLite file of its transfers and calls. Default: a temporary file.
    #[arg(long, value_name = "PATH")]
    pub(crate) ledger: Option<String>,
    /// The share of references whose first call fails, from 0 to 1; each further call fails half as often.
    #[arg(long, value_name = "RATE", default_value_t = 0.0, value_parser = rate, allow_negative_numbers = true)]
    pub(crate) faults: f64,
    /// Where its random numbers start.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) seed: u64,
    /// How long after a transfer a look-up still says that there is none.
    #[arg(long, value_name = "DUR", default_value = "500ms", value_parser = duration, allow_hyphen_values = true)]
    pub(crate) settle: Duration,
}

/// Options of the testbed. Durations are written 500ms, 2s, 5m, 24h, 30d.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Where to listen; port 0 picks a free one.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
    pub(crate) listen: SocketAddr,
    /// The store: memory:, sqlite:PATH, postgres://…, mysql://…, redis://…, redis+sentinel://… or redis+cluster://….
    #[arg(long, value_name = "URL", default_value = "memory:")]
    pub(crate) store: String,
    /// Where effects are written: sqlite:PATH, postgres://… or mysql://…. Several testbeds may share one. Default: a temporary file.
    #[arg(long, value_name = "URL")]
    pub(crate) ledger: Option<String>,
    /// Create or upgrade the store's tables first.
    #[arg(long)]
    pub(crate) migrate: bool,
    /// How long a claim is held without renewal.
    #[arg(long, value_name = "DUR", default_value = "2s", value_parser = duration, allow_hyphen_values = true)]
    pub(crate) lease: Duration,
    /// How long answers are kept.
    #[arg(long, value_name = "DUR", default_value = "60s", value_parser = duration, allow_hyphen_values = true)]
    pub(crate) response_window: Duration,
    /// How long the fact of execution is kept.
    #[arg(long, value_name = "DUR", default_value = "180s", value_parser = duration, allow_hyphen_values = true)]
    pub(crate) tombstone_window: Duration,
    /// How often forgotten records are removed, or off.
    #[arg(long, value_name = "DUR", default_value = "1s", value_parser = sweep, allow_hyphen_values = true)]
    pub(crate) sweep: Sweep,
    /// What becomes of an attempt without a known outcome.
    #[arg(long, value_enum, default_value_t = RecoveryOption::Hold)]
    pub(crate) recovery: RecoveryOption,
    /// What a duplicate does while the first is running: reject, or wait:DUR.
    #[arg(long, value_name = "POLICY", default_value = "reject", value_parser = in_flight)]
    pub(crate) in_flight: InFlight,
    /// Which answers are recorded.
    #[arg(long, value_enum, default_value_t = RecordOption::Default)]
    pub(crate) record: RecordOption,
    /// Whose keys they are: global, or header:NAME.
    #[arg(long, value_name = "SCOPE", default_value = "global", value_parser = scope)]
    pub(crate) scope: ScopeFrom,
    /// What keys look like: opaque, or uuid7:MAXAGE or uuid7:MAXAGE,DRIFT.
    #[arg(long, value_name = "FORMAT", default_value = "opaque", value_parser = keys)]
    pub(crate) keys: Keys,
    /// What happens while the store cannot be reached.
    #[arg(long, value_enum, default_value_t = OutageOption::Refuse)]
    pub(crate) on_store_error: OutageOption,
    /// How long one answer of the store is waited for.
    #[arg(long, value_name = "DUR", default_value = "1s", value_parser = duration, allow_hyphen_values = true)]
    pub(crate) store_timeout: Duration,
    /// The longest request body of a keyed request.
    #[arg(long, value_name = "BYTES", default_value_t = 2 * 1024 * 1024, allow_negative_numbers = true)]
    pub(crate) max_request: usize,
    /// The longest response body that is stored.
    #[arg(long, value_name = "BYTES", default_value_t = 256 * 1024, allow_negative_numbers = true)]
    pub(crate) max_response: usize,
    /// How long a running handler is renewed at most.
    #[arg(long, value_name = "DUR", default_value = "15m", value_parser = duration, allow_hyphen_values = true)]
    pub(crate) max_run: Duration,
    /// The most records that the memory store holds.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(crate) max_records: Option<usize>,
    /// Never renew a lease.
    #[arg(long)]
    pub(crate) no_renew: bool,
    /// No idempotency and no fence: what fault runs compare against.
    #[arg(long)]
    pub(crate) unprotected: bool,
    /// The external API that /payout calls, as http://HOST:PORT.
    #[arg(long, value_name = "URL", value_parser = http_url)]
    pub(crate) bank: Option<String>,
}

/// [`Recovery`] on the command line.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum RecoveryOption {
    Hold,
    Rerun,
}

impl From<RecoveryOption> for Recovery {
    fn from(option: RecoveryOption) -> Self {
        match option {
            RecoveryOption::Hold => Self::Hold,
            RecoveryOption::Rerun => Self::Rerun,
        }
    }
}

/// [`RecordPolicy`] on the command line.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum RecordOption {
    Default,
    Stripe,
    SuccessOnly,
}

impl From<RecordOption> for RecordPolicy {
    fn from(option: RecordOption) -> Self {
        match option {
            RecordOption::Default => Self::Default,
            RecordOption::Stripe => Self::Stripe,
            RecordOption::SuccessOnly => Self::SuccessOnly,
        }
    }
}

/// [`Outage`] on the command line.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum OutageOption {
    Refuse,
    Pass,
}

impl From<OutageOption> for Outage {
    fn from(option: OutageOption) -> Self {
        match option {
            OutageOption::Refuse => Self::Refuse,
            OutageOption::Pass => Self::Pass,
        }
    }
}
