//! What arrived when, as a file that the window tuner reads: how late duplicates come, and what a window would cost.
//!
//! A [`TraceWriter`] writes a line for every claim that a traced [`Engine`](crate::Engine) decides, with the columns
//!
//! | column | holds |
//! |---|---|
//! | `time` | when it arrived, in seconds since 1970 with six decimals; lines are in this order |
//! | `key` | which record it asked for: 32 hexadecimal digits of a keyed hash |
//! | `size` | what is recorded of it, in bytes; 0 when nothing is, or when that was not known yet at the end of a drain |
//! | `route` | what kind of work it is: [`Operation::route`](crate::Operation::route), else the name given to [`TraceWriter::route`] |
//! | `scope` | whose key it is, hashed likewise |
//! | `took_ms` | how long the work took, in milliseconds; empty when it did not run, or still ran at the end of a drain |
//!
//! 1. **No key and no scope is in it**, and whoever has the file but not its [secret](TraceSecret) cannot find one by trying.
//!    Routes are written as they are named.
//! 2. **It never holds up a request.** A thread of its own writes; what it cannot keep up with is dropped and counted in
//!    `idempotency_trace_dropped_total`.
//! 3. **A [sample](TraceOptions::sample) is of keys**: all arrivals of a key are in the file or none is.
//!
//! ```
//! use idempotency::trace::TraceWriter;
//! use idempotency::{Engine, Fingerprint, Key, Operation, ScopeId, Settings, WorkError, run};
//! use idempotency_memory::MemoryStore;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let directory = tempfile::tempdir()?;
//! # let path = directory.path().join("trace.csv");
//! let writer = TraceWriter::options().create(&path)?;
//! let engine = Engine::new(MemoryStore::new(), Settings::default().trace(writer.route("charge")));
//! let order = Operation::new(ScopeId::new(["tenant-a"]), Key::parse("order-42")?, Fingerprint::of(["10 EUR"]));
//! for _ in 0..2 {
//!     run(&engine, &order, async |_| Ok::<_, WorkError<std::io::Error>>("charged".to_owned())).await?;
//! }
//! writer.flush();
//!
//! let trace = std::fs::read_to_string(&path)?;
//! assert!(trace.starts_with("time,key,size,route,scope,took_ms\n"));
//! assert_eq!(trace.lines().count(), 3);
//! # Ok(())
//! # }
//! ```

mod arrival;
mod keeper;
mod secret;

use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

pub(crate) use self::arrival::Arrival;
use self::keeper::Keeper;
pub use self::secret::TraceSecret;
use crate::time::{Clock, SystemClock};

/// Writes a trace. Clones write the same one. It is whole after [`Engine::drain`](crate::Engine::drain), or when the last clone and the last
/// engine that has a [`Trace`] of it are gone, which dropping the last of them waits for.
#[derive(Clone, Debug)]
pub struct TraceWriter(Arc<Keeper>);

impl TraceWriter {
    /// How to write one.
    pub fn options() -> TraceOptions {
        TraceOptions { secret: None, share: 1.0, most_pending: 65_536, clock: Arc::new(SystemClock) }
    }

    /// This trace, for work that is called `name` unless its operation says otherwise.
    #[must_use]
    pub fn route(&self, name: &str) -> Trace {
        Trace { keeper: Arc::clone(&self.0), route: name.into() }
    }

    /// How many arrivals are missing so far, because the disk could not keep up or failed.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.0.dropped()
    }

    /// Waits until everything is in the file that ended before this call, except for what arrived after something that still
    /// runs. Blocks its thread for as long as the disk takes; [`Engine::drain`](crate::Engine::drain) does it in the background, and for what still
    /// runs as well.
    pub fn flush(&self) {
        self.0.flush(false);
    }
}

/// A [`TraceWriter`] and what work is called in it: what [`Settings::trace`](crate::Settings::trace) takes.
#[derive(Clone)]
pub struct Trace {
    keeper: Arc<Keeper>,
    route: Arc<str>,
}

impl Trace {
    /// Waits until everything is in the file that arrived before this call, whatever still runs.
    pub(crate) fn flush_all(&self) {
        self.keeper.flush(true);
    }
}

impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trace").field("route", &self.route).finish_non_exhaustive()
    }
}

/// How a trace is written.
#[derive(Clone)]
#[must_use]
pub struct TraceOptions {
    secret: Option<TraceSecret>,
    share: f64,
    most_pending: usize,
    clock: Arc<dyn Clock>,
}

impl TraceOptions {
    /// What keys and scopes are hashed with. Default: a secret that nobody learns, another one for each writer. Give all processes
    /// the same one if their traces are to be put together.
    pub fn secret(self, secret: TraceSecret) -> Self {
        Self { secret: Some(secret), ..self }
    }

    /// Which share of the keys is traced, above 0 and at most 1. Default 1. The secret decides which: no client can choose.
    ///
    /// # Errors
    /// [`InvalidShare`] for any other number.
    pub fn sample(self, share: f64) -> Result<Self, InvalidShare> {
        if share > 0.0 && share <= 1.0 { Ok(Self { share, ..self }) } else { Err(InvalidShare(share)) }
    }

    /// The most arrivals that wait in memory, about 200 bytes each, for what arrived before them to end or for the disk. Default
    /// 65536, at least 1. Beyond that one is dropped for each that comes.
    pub fn most_pending(self, arrivals: usize) -> Self {
        Self { most_pending: arrivals.max(1), ..self }
    }

    /// The clock that arrivals take their times from. Default: the system's wall clock. The tuner refuses times that are ahead of it, and
    /// puts traces of several processes in order by them. One that steps back stands still until it has caught up.
    pub fn clock(self, clock: impl Clock) -> Self {
        Self { clock: Arc::new(clock), ..self }
    }

    /// A trace in a new file in `directory`, which must be there. It is named after this start of this process, `trace-<microseconds since
    /// 1970>-<process id>.csv`, so that the next start finds its name free.
    ///
    /// # Errors
    /// The file's.
    pub fn create_in(self, directory: impl AsRef<Path>) -> Result<TraceWriter, io::Error> {
        let name = format!("trace-{}-{}.csv", SystemClock.now().micros(), std::process::id());
        self.create(directory.as_ref().join(name))
    }

    /// A trace in a new file at `path`: a service needs another one for each of its starts, as
    /// [`create_in`](TraceOptions::create_in) gives it.
    ///
    /// # Errors
    /// The file's: also when there is one already, which is never written over.
    pub fn create(self, path: impl AsRef<Path>) -> Result<TraceWriter, io::Error> {
        self.write_to(File::create_new(path)?)
    }

    /// A trace that is written to `file`, which is given whole batches of lines. Starts its thread.
    ///
    /// # Errors
    /// The file's, when it does not take the first line; that of starting a thread.
    pub fn write_to(self, file: impl Write + Send + 'static) -> Result<TraceWriter, io::Error> {
        Keeper::start(file, self).map(|keeper| TraceWriter(Arc::new(keeper)))
    }
}

impl fmt::Debug for TraceOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TraceOptions")
            .field("share", &self.share)
            .field("most_pending", &self.most_pending)
            .finish_non_exhaustive()
    }
}

/// A share of keys that is not above 0 and at most 1.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("the share of keys that is traced must be above 0 and at most 1, not {0}")]
pub struct InvalidShare(f64);
