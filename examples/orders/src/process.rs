//! A worker's process, from outside.

use std::process::Stdio;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use clap::ValueEnum;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::{Instant, sleep, timeout};

use crate::Failure;
use crate::job::Job;
use crate::say::Said;
use crate::way::Way;
use crate::worker::DATABASE;

/// A worker in a process of its own: this program, started again. Killed when dropped.
pub(crate) struct Worker {
    pub(crate) name: &'static str,
    /// The `application_name` of its sessions.
    pub(crate) sessions: String,
    child: Child,
    input: ChildStdin,
    said: Lines<BufReader<ChildStdout>>,
    started: bool,
}

impl Worker {
    /// Starts one, and waits until it is connected.
    pub(crate) async fn start(
        name: &'static str,
        url: &str,
        way: Way,
        job: &Job,
        patience: Duration,
    ) -> Result<Self, Failure> {
        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        let sessions = format!("orders {}.{number} {name}", std::process::id());
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["worker", "--way", &value(way), "--workflow", &value(job.workflow)]);
        command.args(["--reference", &job.reference, "--name", name, "--sessions", &sessions]);
        command.args(["--timeout", &humantime::format_duration(patience).to_string()]).env(DATABASE, url);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true).spawn()?;
        let input = child.stdin.take().ok_or("a worker without an input")?;
        let said = BufReader::new(child.stdout.take().ok_or("a worker without an output")?).lines();
        let mut worker = Self { name, sessions, child, input, said, started: false };
        match worker.hear().await? {
            Said::Ready => Ok(worker),
            other => Err(format!("a worker that is not ready but {other:?}").into()),
        }
    }

    /// Lets it go on: start, or finish.
    pub(crate) async fn tell(&mut self, word: &str) {
        // One that has ended does not hear it. What it said last is still to be heard.
        let _ = self.input.write_all(format!("{word}\n").as_bytes()).await;
    }

    /// Whether it has said that it has the job.
    pub(crate) fn has_started(&self) -> bool {
        self.started
    }

    /// The next thing it says within this time. Nothing is lost if it says nothing.
    pub(crate) async fn hear_within(&mut self, limit: Duration) -> Result<Option<Said>, Failure> {
        timeout(limit, self.hear()).await.map_or(Ok(None), |said| said.map(Some))
    }

    /// Waits until it has the job, at most for this time.
    pub(crate) async fn take_over(&mut self, limit: Duration) -> Result<(), Failure> {
        let give_up = Instant::now() + limit;
        while !self.started {
            match self.hear_within(give_up.saturating_duration_since(Instant::now())).await? {
                None => return Ok(()),
                Some(Said::AlreadyDone) => return Err(self.trouble("finds nothing to take over")),
                Some(_) => {}
            }
        }
        Ok(())
    }

    /// Lets it finish what it has started or will start, and gives the last thing that it says.
    pub(crate) async fn end(&mut self) -> Result<Said, Failure> {
        self.tell("finish").await;
        let last = loop {
            match self.hear().await? {
                Said::Busy | Said::Started => {}
                said => break said,
            }
        };
        self.child.wait().await?;
        Ok(last)
    }

    async fn hear(&mut self) -> Result<Said, Failure> {
        let line = timeout(PATIENCE, self.said.next_line()).await.map_err(|_| self.trouble("says nothing"))??;
        let line = line.ok_or_else(|| self.trouble("has ended"))?;
        let said = Said::parse(&line).ok_or_else(|| self.trouble("cannot be understood"))?;
        self.started |= said == Said::Started;
        Ok(said)
    }

    /// `kill -9`
    pub(crate) async fn kill(&mut self) -> Result<(), Failure> {
        Ok(self.child.kill().await?)
    }

    /// SIGSTOP: the process stands still wherever it is, and does not notice.
    pub(crate) async fn pause(&self) -> Result<(), Failure> {
        kill_process(self.pid()?, Signal::STOP)?;
        while waitid(WaitId::Pid(self.pid()?), WaitIdOptions::STOPPED | WaitIdOptions::NOHANG)?.is_none() {
            sleep(Duration::from_millis(1)).await;
        }
        Ok(())
    }

    /// SIGCONT
    pub(crate) fn resume(&self) -> Result<(), Failure> {
        Ok(kill_process(self.pid()?, Signal::CONT)?)
    }

    fn pid(&self) -> Result<Pid, Failure> {
        let id = self.child.id().and_then(|id| Pid::from_raw(id.try_into().ok()?));
        id.ok_or_else(|| self.trouble("has ended"))
    }

    fn trouble(&self, what: &str) -> Failure {
        format!("the {} worker {what}", self.name).into()
    }
}

fn value(value: impl ValueEnum) -> String {
    value.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

static STARTED: AtomicU32 = AtomicU32::new(0);
/// For a worker to say anything, also one that waits for a timeout.
const PATIENCE: Duration = Duration::from_secs(60);
