//! Fault runs: `cargo run --release -p idempotency-testbed --bin faults -- --store redis --seed 7 --duration 60s`. Says what was injected, what
//! was seen, and a verdict, and ends with an error unless that is good. Without a store it runs over each.
#![allow(clippy::print_stdout, reason = "a program that prints a report")]

mod page;

use std::env;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use clap::Parser;
use idempotency_testbed::faults::{Minimum, Plan, Ran, Store, run};

/// Several testbeds over one store, clients that ask again, and faults told by a seed; then a verdict on what happened.
#[derive(Debug, Parser)]
#[command(name = "faults", version)]
struct Options {
    /// The store: sqlite, postgres, postgres-pair (with a replica that takes over), mariadb, redis, redis-clock (whose clock is set), redis-lossy
    /// (flushed, and nothing on disk), redis-sentinel or redis-cluster (with replicas that take over). Default: each but the last two, one after
    /// the other.
    #[arg(long)]
    store: Vec<Store>,
    /// Tells every fault. Default: a random one.
    #[arg(long)]
    seed: Option<u64>,
    /// For how long there are faults.
    #[arg(long, value_parser = humantime::parse_duration, default_value = "60s")]
    duration: Duration,
    /// Testbeds without protection: then there must be a double effect.
    #[arg(long)]
    unprotected: bool,
    /// Where histories are left: in a folder for each run, history.jsonl and report.txt. Default: a new folder among temporary ones.
    #[arg(long, value_name = "DIR")]
    history: Option<PathBuf>,
    /// What must have been seen: overlaps of holders, superseded answers, lost replies. For runs that are shorter than a minute.
    #[arg(long, value_name = "N,N,N", default_value = "20,20,100")]
    minimum: Minimum,
    /// Runs a few seconds without protection too, and puts the figures into tests/README.md.
    #[arg(long, conflicts_with = "unprotected")]
    write: bool,
    /// The program. Default: the one beside this.
    #[arg(long, value_name = "PATH")]
    testbed: Option<PathBuf>,
}

#[tokio::main(worker_threads = 4)]
async fn main() -> io::Result<ExitCode> {
    let options = Options::parse();
    let testbed = match options.testbed {
        Some(testbed) => testbed,
        None => beside_this()?,
    };
    let folder = match options.history {
        Some(folder) => folder,
        None => tempfile::Builder::new().prefix("faults-").tempdir()?.keep(),
    };
    let seed = options.seed.unwrap_or_else(|| u64::from(rand::random::<u32>()));
    let one_server = || Store::ALL.into_iter().filter(|store| !store.has_many());
    let stores = if options.store.is_empty() { one_server().collect() } else { options.store };
    let (mut sound, mut runs) = (true, Vec::new());
    for store in stores {
        let mut plan = Plan::new(store, seed);
        plan.length = options.duration;
        plan.protected = !options.unprotected;
        plan.minimum = options.minimum;
        let ran = one(&testbed, &folder, &plan).await;
        sound &= ran.faults().is_empty();
        if options.write {
            plan.protected = false;
            plan.length = UNPROTECTED.min(plan.length);
            let bare = one(&testbed, &folder, &plan).await;
            sound &= bare.faults().is_empty();
            runs.push((ran, bare));
        }
    }
    if options.write {
        page::write(&runs)?;
    }
    Ok(if sound { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn one(testbed: &Path, folder: &Path, plan: &Plan) -> Ran {
    let unprotected = if plan.protected { "" } else { "-unprotected" };
    let folder = folder.join(format!("{}-{}{unprotected}", plan.store, plan.seed));
    println!("faults {}", plan.arguments());
    let ran = run(testbed, &Plan { folder: Some(folder.clone()), ..plan.clone() }).await;
    print!("{ran}");
    println!("history: {}\n", folder.display());
    ran
}

/// The testbed in this program's folder, built anew under `cargo run`, which builds this program alone.
fn beside_this() -> io::Result<PathBuf> {
    if let Some(cargo) = env::var_os("CARGO") {
        let mut build = Command::new(cargo);
        build.args(["build", "--quiet", "--package", "idempotency-testbed", "--bin", "testbed"]);
        if !cfg!(debug_assertions) {
            build.arg("--release");
        }
        if !build.status()?.success() {
            return Err(io::Error::other("the testbed cannot be built"));
        }
    }
    let testbed = env::current_exe()?.with_file_name("testbed");
    if testbed.is_file() { Ok(testbed) } else { Err(io::Error::other(format!("no program {}", testbed.display()))) }
}

/// How long runs without protection are that stand beside others.
const UNPROTECTED: Duration = Duration::from_secs(10);
