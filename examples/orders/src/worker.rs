//! A worker: a process of its own, told what to do line by line.

use std::io::BufRead as _;
use std::time::Duration;

use clap::Args;
use rustix::process::{Signal, set_parent_process_death_signal};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::sleep;

use crate::approach::{Approach, Finished, Taken, Work};
use crate::approaches::{Conditional, Fenced, ForUpdate, UniqueRow};
use crate::broken::{ExpiryAlone, LookThenWrite, NoTimeouts, StatusAlone};
use crate::job::{Job, Workflow};
use crate::say::Said;
use crate::way::Way;
use crate::{Failure, database};

/// What a worker is started with. The database is in its environment, since a URL may hold a password.
#[derive(Args)]
pub(crate) struct WorkerOptions {
    #[arg(long)]
    pub(crate) way: Way,
    #[arg(long)]
    pub(crate) workflow: Workflow,
    #[arg(long)]
    pub(crate) reference: String,
    #[arg(long)]
    pub(crate) name: String,
    /// By which its sessions are found.
    #[arg(long)]
    pub(crate) sessions: String,
    #[arg(long, value_parser = humantime::parse_duration)]
    pub(crate) timeout: Duration,
}

/// Does one job, or is told that it is done or somebody else's.
pub(crate) async fn run(options: WorkerOptions) -> Result<(), Failure> {
    // Whoever started it may be killed while it stands still.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let pool = database::connect(&std::env::var(DATABASE)?, &options.sessions).await?;
    let WorkerOptions { way, workflow, reference, name, timeout, .. } = options;
    let work = Work { pool, job: Job { workflow, reference }, worker: name, timeout };
    match way {
        Way::Conditional => once(Conditional(work)).await,
        Way::ForUpdate => once(ForUpdate(work)).await,
        Way::UniqueRow => once(UniqueRow(work)).await,
        Way::Fenced => once(Fenced::new(work).await?).await,
        Way::LookThenWrite => once(LookThenWrite(work)).await,
        Way::StatusAlone => once(StatusAlone::new(work)).await,
        Way::NoTimeouts => once(NoTimeouts::new(work)).await,
        Way::ExpiryAlone => once(ExpiryAlone(work)).await,
    }
}

async fn once<A: Approach>(approach: A) -> Result<(), Failure> {
    let mut told = lines();
    Said::Ready.say();
    hear(&mut told).await?; // go
    let held = loop {
        match approach.take().await? {
            Taken::Started(held) => break held,
            Taken::AlreadyDone => {
                Said::AlreadyDone.say();
                return Ok(());
            }
            Taken::Busy => Said::Busy.say(),
        }
        sleep(ASK_AGAIN).await;
    };
    Said::Started.say();
    hear(&mut told).await?; // finish: here is where the work is done
    match approach.finish(held).await? {
        Finished::Done => Said::Done.say(),
        Finished::Refused(why) => Said::Refused(why).say(),
    }
    Ok(())
}

async fn hear(told: &mut UnboundedReceiver<String>) -> Result<String, Failure> {
    told.recv().await.ok_or_else(|| "whoever started this worker is gone".into())
}

/// Read by a thread of its own, which keeps nobody from ending.
fn lines() -> UnboundedReceiver<String> {
    let (sender, receiver) = unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    receiver
}

/// The environment variable with the database's URL.
pub(crate) const DATABASE: &str = "ORDERS_DATABASE";
const ASK_AGAIN: Duration = Duration::from_millis(20);
