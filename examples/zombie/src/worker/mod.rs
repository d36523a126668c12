//! A process that works under a lock. It knows nothing of pauses.

mod fenced;
mod ttl_lock;
mod unique_row;

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines, Stdin};

use crate::Failure;
use crate::act::Act;
use crate::database::Database;
use crate::event::{Event, Gate, Message, What, Who};

/// What a worker is told when it is started.
#[derive(Args, Debug)]
pub(crate) struct Role {
    #[arg(long)]
    act: Act,

    #[arg(long)]
    who: Who,

    #[arg(long)]
    database: PathBuf,

    #[arg(long, value_parser = humantime::parse_duration)]
    lease: Duration,
}

impl Role {
    /// As command-line arguments.
    pub(crate) fn arguments(act: Act, who: Who, database: &Database, lease: Duration) -> Vec<OsString> {
        let mut arguments = ["worker", "--act", &name(&act), "--who", &name(&who)].map(OsString::from).to_vec();
        arguments.extend(["--lease".into(), format!("{}ms", lease.as_millis()).into()]);
        arguments.extend(["--database".into(), database.path().into()]);
        arguments
    }
}

/// As the command line has it.
fn name(value: &impl ValueEnum) -> String {
    value.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

/// Plays the role.
pub(crate) async fn work(role: Role) -> Result<(), Failure> {
    end_with_the_director()?;
    let database = Database::open(&role.database).await?;
    let mut worker =
        Worker { who: role.who, lease: role.lease, database, lines: BufReader::new(tokio::io::stdin()).lines() };
    worker.pass(Gate::Beginning).await?;
    match role.act {
        Act::TtlLock => ttl_lock::charge(worker, ttl_lock::Unlock::Delete).await,
        Act::OwnedLock => ttl_lock::charge(worker, ttl_lock::Unlock::CompareAndDelete).await,
        Act::CheckedAtWrite => fenced::deposit(worker, fenced::Check::AtWrite).await,
        Act::OpenedFirst => fenced::deposit(worker, fenced::Check::OpenedFirst).await,
        Act::UniqueRow => unique_row::charge(worker).await,
    }
}

/// What all of them have.
struct Worker {
    who: Who,
    lease: Duration,
    database: Database,
    lines: Lines<BufReader<Stdin>>,
}

impl Worker {
    fn tell(&self, what: What) -> Result<(), Failure> {
        say(&Message::Did(Event::now(self.who, what)))
    }

    /// Waits until the director lets it pass. A process that is stopped here finds the line when it wakes, and goes on
    /// as if nothing had been.
    async fn pass(&mut self, gate: Gate) -> Result<(), Failure> {
        say(&Message::At(gate))?;
        self.lines.next_line().await?.map(drop).ok_or_else(|| "the director is gone".into())
    }
}

fn say(message: &Message) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    serde_json::to_writer(&mut out, message)?;
    writeln!(out)?;
    Ok(out.flush()?)
}

/// A stopped process would outlive its director for ever.
fn end_with_the_director() -> Result<(), Failure> {
    #[cfg(target_os = "linux")]
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
    Ok(())
}

/// Rounded down: never more than there is.
fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
