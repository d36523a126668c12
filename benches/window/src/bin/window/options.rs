//! What can be said on the command line.

use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytesize::ByteSize;
use clap::{Args, Parser, Subcommand, ValueEnum};
use idempotency_window::bytes::Weights;
use idempotency_window::client::Client;
use idempotency_window::generate::Mixture;
use idempotency_window::recommend::Target;
use idempotency_window::{Anchor, Grid, Sample, Settings, Unrecorded};

/// What a dedup window costs: the duplicates that run again because they came after it, and the memory it takes until then.
#[derive(Debug, Parser)]
#[command(version)]
pub(crate) struct Options {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Judges windows over a trace, or over a made-up one when none is named.
    Tune(Box<Tune>),
    /// Writes a made-up trace.
    Generate {
        /// The file; gzip when its name ends so.
        #[arg(long, value_name = "FILE")]
        out: PathBuf,
        #[command(flatten)]
        made: Made,
    },
    /// Lists the kinds of clients that are known.
    Presets,
    /// Writes the worked example of benches/README.md: all presets in one mixture.
    Example {
        /// Where.
        #[arg(default_value = "benches/window")]
        folder: PathBuf,
    },
}

#[derive(Args, Debug)]
pub(crate) struct Tune {
    /// A trace: CSV with the header `time,key,size,route,scope,took_ms`, plain or gzip. Traces of several processes may stand in it one behind the
    /// other, each with its header (`cat`), and are then to be sorted (`--sort`).
    #[arg(conflicts_with = "Made")]
    pub(crate) trace: Option<PathBuf>,
    /// Writes PREFIX.md, PREFIX.csv, PREFIX-capacity.csv and PREFIX.svg.
    #[arg(long, value_name = "PREFIX")]
    pub(crate) out: Option<PathBuf>,
    /// At most so many double runs per operation.
    #[arg(long, value_name = "RATE", default_value = "1e-6", value_parser = rate)]
    target: f64,
    /// At most so many bytes, such as 2GiB, at the worst moment.
    #[arg(long, value_name = "BYTES")]
    memory: Option<ByteSize>,
    /// What the recommended window counts from.
    #[arg(long, value_enum, default_value = "completion")]
    anchor: From,
    /// The shortest window.
    #[arg(long, value_name = "DUR", default_value = "1m", value_parser = duration)]
    shortest: Duration,
    /// The longest window.
    #[arg(long, value_name = "DUR", default_value = "60d", value_parser = duration)]
    longest: Duration,
    /// How many windows, at most 64.
    #[arg(long, value_name = "N", default_value_t = 64)]
    windows: usize,
    /// These windows and no others, such as 5m,24h,30d.
    #[arg(long, value_name = "DUR", value_delimiter = ',', value_parser = duration, conflicts_with_all = ["shortest", "longest", "windows"])]
    at: Vec<Duration>,
    /// How long the bodies of outcomes are kept, where the window is not shorter.
    #[arg(long, value_name = "DUR", default_value = "24h", value_parser = duration)]
    response: Duration,
    /// Looks at this share of the keys, with all arrivals of each.
    #[arg(long, value_name = "SHARE", default_value_t = 1.0)]
    sample: f64,
    /// Only this store, of those whose records were weighed. May be given again.
    #[arg(long, value_name = "NAME")]
    store: Vec<String>,
    /// Weights of records measured elsewhere, as `--bench bytes` writes them.
    #[arg(long, value_name = "FILE")]
    weights: Option<PathBuf>,
    /// Puts lines in order that are earlier than one before them by at most so much.
    #[arg(long, value_name = "DUR", default_value = "1s", value_parser = humantime::parse_duration, conflicts_with = "sort", requires = "trace")]
    tolerance: Duration,
    /// Sorts the whole trace. Takes memory for all of it.
    #[arg(long, requires = "trace")]
    sort: bool,
    /// Leaves out arrivals that ran and recorded nothing (a time taken, size 0), since their handler failed and its key was free again, and those
    /// that were refused before anything of their key had run (no time, size 0).
    #[arg(long, requires = "trace")]
    skip_unrecorded: bool,
    #[command(flatten)]
    pub(crate) made: Made,
}

/// What a made-up trace is like.
#[derive(Args, Debug)]
#[command(next_help_heading = "Made-up traces")]
pub(crate) struct Made {
    /// A kind of client: a preset, or `NAME,n=5,base=1,mult=2,cap=60,jitter=full,timeout=10,weight=2`, or with
    /// `table=5;300;1800`, `give_up=S`, `stop_on_success=false`. May be given again. All presets when there is none.
    #[arg(long, value_name = "CLIENT")]
    client: Vec<Client>,
    /// Operations a second.
    #[arg(long, default_value_t = Mixture::default().rate)]
    rate: f64,
    /// How long the trace is. It begins on 2026-01-01, or so much earlier that it ends by now.
    #[arg(long, value_name = "DUR", default_value = "90d", value_parser = duration)]
    duration: Duration,
    /// The share of first answers that is lost.
    #[arg(long, default_value_t = Mixture::default().loss)]
    loss: f64,
    /// The share of answers that is lost when the one before was.
    #[arg(long, default_value_t = Mixture::default().loss_again)]
    loss_again: f64,
    /// The share of attempts that fail before anything is claimed.
    #[arg(long, default_value_t = Mixture::default().failures)]
    failures: f64,
    /// How many scopes.
    #[arg(long, default_value_t = Mixture::default().scopes)]
    scopes: u32,
    /// The median size of an outcome, in bytes.
    #[arg(long, default_value_t = Mixture::default().size)]
    size: f64,
    /// The median time that a handler takes.
    #[arg(long, value_name = "DUR", default_value = "80ms", value_parser = duration)]
    took: Duration,
    /// The same seed makes the same trace.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum From {
    Arrival,
    Completion,
    Renewed,
}

impl Tune {
    pub(crate) fn settings(&self) -> Result<Settings, Box<dyn std::error::Error>> {
        let grid = match self.at.as_slice() {
            [] => Grid::logarithmic(self.shortest, self.longest, self.windows)?,
            windows => Grid::durations(windows)?,
        };
        let mut weights = match &self.weights {
            None => Weights::measured()?,
            Some(path) => Weights::read(path).map_err(|error| format!("{}: {error}", path.display()))?,
        };
        for store in &self.store {
            if !weights.iter().any(|weights| weights.store == *store) {
                let names: Vec<&str> = weights.iter().map(|weights| weights.store.as_str()).collect();
                return Err(format!("no store `{store}` was weighed, only {}", names.join(", ")).into());
            }
        }
        weights.retain(|weights| self.store.is_empty() || self.store.contains(&weights.store));
        let sample = Sample::new(self.sample).ok_or("a sample is a share above 0 and at most 1")?;
        Ok(Settings { grid, response: micros(self.response)?, weights, sample, ..Settings::default() })
    }

    pub(crate) fn target(&self) -> Target {
        let anchor = match self.anchor {
            From::Arrival => Anchor::Arrival,
            From::Completion => Anchor::Completion,
            From::Renewed => Anchor::Renewed,
        };
        Target { rate: self.target, memory: self.memory.map(|bytes| bytes.as_u64()), anchor }
    }

    pub(crate) fn tolerance(&self) -> Result<i64, &'static str> {
        if self.sort { Ok(i64::MAX) } else { micros(self.tolerance) }
    }

    pub(crate) fn unrecorded(&self) -> Unrecorded {
        if self.skip_unrecorded { Unrecorded::Skip } else { Unrecorded::Count }
    }
}

impl Made {
    pub(crate) fn mixture(&self) -> Result<Mixture, &'static str> {
        let default = Mixture::default();
        let clients = match self.client.as_slice() {
            [] => default.clients,
            clients => clients.iter().map(|client| (client.preset.clone(), client.weight)).collect(),
        };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let latest = now.saturating_sub(self.duration.as_secs() + 1);
        Ok(Mixture {
            clients,
            rate: self.rate,
            duration: micros(self.duration)? as f64 / 1e6,
            loss: self.loss,
            loss_again: self.loss_again,
            failures: self.failures,
            scopes: self.scopes,
            size: self.size,
            took: self.took.as_secs_f64(),
            begin: default.begin.min(latest.cast_signed()),
            seed: self.seed,
        })
    }
}

fn duration(text: &str) -> Result<Duration, String> {
    match humantime::parse_duration(text) {
        Ok(Duration::ZERO) => Err("must be longer than zero".to_owned()),
        Ok(duration) => Ok(duration),
        Err(error) => Err(error.to_string()),
    }
}

fn rate(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(rate) if rate > 0.0 && rate <= 1.0 => Ok(rate),
        _ => Err("a target is a rate above 0 and at most 1".to_owned()),
    }
}

fn micros(duration: Duration) -> Result<i64, &'static str> {
    let micros = i64::try_from(duration.as_micros()).ok().filter(|micros| *micros <= 36_500 * 86_400_000_000);
    micros.ok_or("a duration is longer than 36500 days")
}
