//! Run with `cargo run -p orders`: a paid order is shipped once and the books of a night are closed once, by what PostgreSQL can
//! do alone, and by a fenced lease.
//!
//! Each way is in a module of its own, which says what it is right for, what it costs and what breaks it: four that are
//! right in `approaches`, four that look right in `broken`. Each job is done by two processes at once; one of them is left
//! alone, killed or stopped. The table says what came of it, and the exit code whether that is as it should be.

mod approach;
mod approaches;
mod broken;
mod database;
mod director;
mod job;
mod process;
mod report;
mod say;
mod way;
mod worker;

use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand, ValueEnum as _};
use tokio::task::JoinSet;

use crate::database::Database;
use crate::director::{Director, Situation};
use crate::report::Cell;
use crate::way::Way;
use crate::worker::WorkerOptions;

type Failure = Box<dyn Error + Send + Sync>;

/// Has an order shipped once and a night's books closed once, in several ways, by two processes at once.
#[derive(Parser)]
struct Options {
    /// The PostgreSQL database to use: an empty one, in which tables are made. Without it, a private PostgreSQL is started in a
    /// temporary folder, and is gone afterwards.
    #[arg(long, value_name = "URL")]
    database: Option<String>,

    /// How long a worker that says nothing keeps the others out.
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = humantime::parse_duration)]
    timeout: Duration,

    /// Only these ways.
    #[arg(long, value_name = "WAY")]
    only: Vec<Way>,

    #[command(subcommand)]
    worker: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// One of the two. The program starts them itself.
    #[command(hide = true)]
    Worker(WorkerOptions),
}

#[tokio::main]
async fn main() -> ExitCode {
    let options = Options::parse();
    let went = match options.worker {
        Some(Command::Worker(worker)) => worker::run(worker).await.map(|()| true),
        None => direct(options).await,
    };
    match went {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            let error: &dyn Error = &*error;
            let causes = std::iter::successors(Some(error), |error| (*error).source());
            let causes: Vec<_> = causes.map(ToString::to_string).collect();
            eprintln!("orders: {}", causes.join(": "));
            ExitCode::FAILURE
        }
    }
}

/// Whether everything went as expected.
async fn direct(options: Options) -> Result<bool, Failure> {
    let database = Database::open(options.database).await?;
    let pool = database::connect(&database.url, "orders director").await?;
    let director = Director { url: database.url.clone(), pool, timeout: options.timeout };
    let (mut seen, mut unexpected) = (0, 0);
    print(&report::head());
    for way in Way::value_variants().iter().filter(|way| options.only.is_empty() || options.only.contains(way)) {
        print(way.title());
        for cell in play(&director, *way).await? {
            print(&cell.to_string());
            seen += 1;
            unexpected += usize::from(!cell.is_expected());
        }
    }
    print(&format!("\n{seen} runs of two processes each, {unexpected} not as expected"));
    Ok(unexpected == 0)
}

/// All jobs and situations at once: they have nothing in common but the server.
async fn play(director: &Director, way: Way) -> Result<Vec<Cell>, Failure> {
    let mut plays = JoinSet::new();
    for workflow in way.workflows() {
        for situation in SITUATIONS {
            plays.spawn(director.clone().play(way, *workflow, situation));
        }
    }
    let mut cells = plays.join_all().await.into_iter().collect::<Result<Vec<_>, _>>()?;
    cells.sort_by_key(|cell| (cell.workflow as usize, cell.situation as usize));
    Ok(cells)
}

#[expect(clippy::print_stdout, reason = "the table is what the example is run for")]
fn print(line: &str) {
    println!("{line}");
}

const SITUATIONS: [Situation; 3] = [Situation::TwoAtOnce, Situation::Killed, Situation::Paused];
