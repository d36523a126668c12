//! An HTTP server over any idempotency store, whose handlers have effects that can be counted and faults that can be
//! switched on. The tests drive it from outside.

mod answer;
mod app;
mod bank;
mod call;
mod error;
mod ledger;
mod options;
mod payouts;
mod problem;
mod protection;
mod routes;
mod server;
mod store;
mod switches;
mod values;

use std::process::ExitCode;

use clap::Parser as _;
use tracing_subscriber::EnvFilter;

use crate::error::StartError;
use crate::options::{Command, CommandLine};

fn main() -> ExitCode {
    let command_line = match CommandLine::try_parse() {
        Ok(command_line) => command_line,
        // Help and version are answers, not errors.
        Err(answer) if !answer.use_stderr() => answer.exit(),
        Err(error) => return fail(&StartError::of_clap(&error)),
    };
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("warn,testbed=info"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(false).init();
    // Panics are switched on here; each is a line of the log like any other.
    std::panic::set_hook(Box::new(|panic| tracing::error!("{panic}")));
    match run(command_line) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error),
    }
}

fn run(command_line: CommandLine) -> Result<(), StartError> {
    // A blocked worker must leave others free, on a small machine too.
    let workers = std::thread::available_parallelism().map_or(4, |n| n.get().max(4));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(workers).enable_all().build();
    let runtime = runtime.map_err(StartError::Runtime)?;
    let result = match &command_line.command {
        Some(Command::Bank(options)) => runtime.block_on(bank::run(options)),
        None => runtime.block_on(server::run(&command_line.options)),
    };
    // What is left belongs to nobody: connections that clients did not finish.
    runtime.shutdown_background();
    result
}

/// Says in one line why there is no server.
fn fail(error: &StartError) -> ExitCode {
    eprintln!("testbed: {}", error.line());
    ExitCode::from(error.exit_code())
}
