//! A worker, as the director has it in hand: a child process that can be stopped.

use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::Failure;
use crate::act::Act;
use crate::database::Database;
use crate::event::{Event, Gate, Message, What, Who};
use crate::worker::Role;

/// A running worker. Killed when dropped, also while it is stopped.
#[derive(Debug)]
pub(crate) struct Actor {
    who: Who,
    child: Child,
    pid: Pid,
    stdin: ChildStdin,
    stdout: Lines<BufReader<ChildStdout>>,
    events: Vec<Event>,
    stopped: Option<Instant>,
}

impl Actor {
    /// Starts this very program as a worker, and waits until it is ready.
    pub(crate) async fn start(act: Act, who: Who, database: &Database, lease: Duration) -> Result<Self, Failure> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(Role::arguments(act, who, database, lease))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let id = child.id().and_then(|id| i32::try_from(id).ok());
        let pid = id.and_then(Pid::from_raw).ok_or("the worker has ended")?;
        let stdin = child.stdin.take().ok_or("the worker has no input")?;
        let stdout = BufReader::new(child.stdout.take().ok_or("the worker has no output")?).lines();
        let mut actor = Self { who, child, pid, stdin, stdout, events: Vec::new(), stopped: None };
        actor.until(Gate::Beginning).await?;
        Ok(actor)
    }

    /// Lets it pass the gate where it is, or will be.
    pub(crate) async fn go(&mut self) -> Result<(), Failure> {
        self.stdin.write_all(b"go\n").await?;
        Ok(self.stdin.flush().await?)
    }

    /// Waits until it is at this gate.
    pub(crate) async fn until(&mut self, gate: Gate) -> Result<(), Failure> {
        match self.next().await? {
            Some(at) if at == gate => Ok(()),
            Some(at) => Err(format!("{} is at {at}, not at {gate}", self.who.name()).into()),
            None => Err(format!("{} has ended before {gate}", self.who.name()).into()),
        }
    }

    /// Waits until it has done this.
    pub(crate) async fn until_it(&mut self, did: impl Fn(&What) -> bool) -> Result<(), Failure> {
        loop {
            match self.message().await? {
                Some(Message::Did(event)) => {
                    let done = did(&event.what);
                    self.events.push(event);
                    if done {
                        return Ok(());
                    }
                }
                Some(Message::At(gate)) => return Err(format!("{} is at {gate} already", self.who.name()).into()),
                None => return Err(format!("{} has ended too early", self.who.name()).into()),
            }
        }
    }

    /// Stops it, and waits until it stands still.
    pub(crate) async fn stop(&mut self) -> Result<(), Failure> {
        kill_process(self.pid, Signal::STOP)?;
        let give_up = Instant::now() + PATIENCE;
        while waitid(WaitId::Pid(self.pid), WaitIdOptions::STOPPED | WaitIdOptions::NOHANG)?.is_none() {
            if Instant::now() > give_up {
                return Err(format!("{} does not stop", self.who.name()).into());
            }
            sleep(Duration::from_micros(200)).await;
        }
        self.stopped = Some(Instant::now());
        self.events.push(Event::now(self.who, What::Stopped));
        Ok(())
    }

    /// Lets it go on after it stood still for so long at least.
    pub(crate) async fn wake(&mut self, at_least: Duration) -> Result<(), Failure> {
        let since = self.stopped.take().ok_or("it is not stopped")?;
        sleep_until(since + at_least).await;
        let pause = since.elapsed();
        let after_ms = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX);
        self.events.push(Event::now(self.who, What::Woke { after_ms }));
        Ok(kill_process(self.pid, Signal::CONT)?)
    }

    /// Lets it pass all gates until it has ended, and gives what it did.
    pub(crate) async fn finish(mut self) -> Result<Vec<Event>, Failure> {
        while self.next().await?.is_some() {
            self.go().await?;
        }
        let status = timeout(PATIENCE, self.child.wait()).await.map_err(|_| "a worker does not end")??;
        if status.success() { Ok(self.events) } else { Err(format!("{} failed: {status}", self.who.name()).into()) }
    }

    /// The next gate where it waits; none when it has ended.
    async fn next(&mut self) -> Result<Option<Gate>, Failure> {
        loop {
            match self.message().await? {
                Some(Message::Did(event)) => self.events.push(event),
                Some(Message::At(gate)) => return Ok(Some(gate)),
                None => return Ok(None),
            }
        }
    }

    async fn message(&mut self) -> Result<Option<Message>, Failure> {
        let line = timeout(PATIENCE, self.stdout.next_line());
        let line = line.await.map_err(|_| format!("{} says nothing any more", self.who.name()))??;
        Ok(line.map(|line| serde_json::from_str(&line)).transpose()?)
    }
}

/// Longer than any lease that is waited for.
const PATIENCE: Duration = Duration::from_secs(60);
