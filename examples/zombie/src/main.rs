//! Run with `cargo run -p zombie`: the holder of a lock is stopped, another takes over, the first one wakes and writes.
//!
//! Real processes and a real pause (SIGSTOP), in five acts: a lock with a TTL, the same with an owner, a token that is
//! checked at the write, a fence that is opened first, and no lock at all. Each act prints its timeline and counts from the
//! data what came of it. All of them are drawn in `zombie.svg`. The program fails when an act does not show what it must.

mod act;
mod actor;
mod database;
mod director;
mod event;
mod evidence;
mod picture;
mod report;
mod timeline;
mod verdict;
mod worker;

use std::error::Error;
use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};

use crate::act::Act;

/// What anything here fails with.
type Failure = Box<dyn Error + Send + Sync>;

/// Replays the classic timeline: a holder of a lock is stopped, another takes over, the first one wakes and writes.
#[derive(Parser)]
#[command(args_conflicts_with_subcommands = true)]
struct Options {
    /// Where the picture of the timelines is written.
    #[arg(long, value_name = "PATH", default_value = "zombie.svg")]
    svg: PathBuf,

    /// How long each lock is held without renewal: 100ms to 30s. A slow machine needs more.
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = lease)]
    lease: Duration,

    #[command(subcommand)]
    part: Option<Part>,
}

fn lease(text: &str) -> Result<Duration, String> {
    let lease = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    let limits = Duration::from_millis(100)..=Duration::from_secs(30);
    if limits.contains(&lease) { Ok(lease) } else { Err("not between 100ms and 30s".into()) }
}

#[derive(Subcommand)]
enum Part {
    /// What the program starts itself as.
    #[command(hide = true)]
    Worker(worker::Role),
}

#[tokio::main]
async fn main() -> ExitCode {
    let options = Options::parse();
    let ended = match options.part {
        Some(Part::Worker(role)) => worker::work(role).await.map(|()| true),
        None => perform(&options.svg, options.lease).await,
    };
    match ended {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            let first: &dyn Error = &*error;
            let causes = std::iter::successors(Some(first), |error| (*error).source());
            let causes: Vec<_> = causes.map(ToString::to_string).collect();
            eprintln!("zombie: {}", causes.join(": "));
            ExitCode::FAILURE
        }
    }
}

/// Plays all acts. Whether each has shown what it must.
async fn perform(svg: &Path, lease: Duration) -> Result<bool, Failure> {
    let cannot_write = |error| format!("cannot write {}: {error}", svg.display());
    let file = File::create(svg).map_err(cannot_write)?;
    let folder = tempfile::tempdir()?;
    let mut played = Vec::new();
    for act in Act::ALL {
        report::announce(&mut io::stdout(), act)?;
        let one = director::play(act, folder.path(), lease).await?;
        report::tell(&mut io::stdout(), &one)?;
        played.push(one);
    }
    report::table(&mut io::stdout(), &played)?;
    picture::draw(&played, file).map_err(cannot_write)?;
    writeln!(io::stdout(), "drawn in {}", svg.display())?;
    Ok(played.iter().all(|one| one.finding.is_as_it_must()))
}
