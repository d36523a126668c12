//! A child process whose output is collected.

use std::io::Read;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use tokio::time::{Instant, sleep};

/// What a program left behind.
#[derive(Clone, Debug)]
pub struct Ended {
    /// How it ended.
    pub status: ExitStatus,
    /// All it wrote to standard output.
    pub stdout: String,
    /// All it wrote to standard error.
    pub stderr: String,
}

/// A running program. Killed when dropped.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    ended: Option<ExitStatus>,
    stdout: Output,
    stderr: Output,
}

impl Process {
    pub(crate) fn spawn(command: &mut Command) -> Self {
        let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
        let stdout = Output::collect(child.stdout.take());
        let stderr = Output::collect(child.stderr.take());
        Self { child, ended: None, stdout, stderr }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn stdout(&self) -> String {
        self.stdout.text()
    }

    pub(crate) fn stderr(&self) -> String {
        self.stderr.text()
    }

    pub(crate) fn try_wait(&mut self) -> Option<ExitStatus> {
        if self.ended.is_none() {
            self.ended = self.child.try_wait().expect("a child of ours");
        }
        self.ended
    }

    /// Waits for its end, and for the last of its output.
    pub(crate) async fn wait(&mut self, limit: Duration) -> Ended {
        let give_up = Instant::now() + limit;
        let status = loop {
            if let Some(status) = self.try_wait() {
                break status;
            }
            assert!(Instant::now() < give_up, "it runs on after {limit:?}; it wrote: {}", self.stderr());
            sleep(Duration::from_millis(5)).await;
        };
        Ended { status, stdout: self.stdout.whole(), stderr: self.stderr.whole() }
    }

    /// Sends a signal, unless it has ended: its number may belong to another by now.
    pub(crate) fn signal(&mut self, signal: Signal) {
        if self.try_wait().is_none() {
            kill_process(self.pid(), signal).expect("a child of ours");
        }
    }

    pub(crate) fn kill(&mut self) {
        if self.ended.is_none() {
            // An error means that it is gone already.
            let _ = self.child.kill();
            self.ended = self.child.wait().ok();
        }
    }

    /// Stops it, and waits until it stands: one that waits for a busy disk does so first when that has answered.
    pub(crate) fn pause(&mut self) {
        self.signal(Signal::STOP);
        let give_up = Instant::now() + PATIENCE;
        while Instant::now() < give_up {
            let stopped = waitid(WaitId::Pid(self.pid()), WaitIdOptions::STOPPED | WaitIdOptions::NOHANG);
            if stopped.expect("a child of ours").is_some() {
                return;
            }
            thread::sleep(Duration::from_millis(1));
        }
        panic!("the process does not stop");
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// One stream of a program's output, read by a thread so that the program never waits for us.
#[derive(Debug)]
struct Output {
    bytes: Arc<Mutex<Vec<u8>>>,
    reader: Option<JoinHandle<()>>,
}

impl Output {
    fn collect(stream: Option<impl Read + Send + 'static>) -> Self {
        let bytes = Arc::<Mutex<Vec<u8>>>::default();
        let mut stream = stream.expect("a piped stream");
        let reader = thread::spawn({
            let bytes = Arc::clone(&bytes);
            move || {
                let mut buffer = [0; 4096];
                while let Ok(n @ 1..) = stream.read(&mut buffer) {
                    bytes.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(&buffer[..n]);
                }
            }
        });
        Self { bytes, reader: Some(reader) }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes.lock().unwrap_or_else(PoisonError::into_inner)).into_owned()
    }

    /// After the end of the program.
    fn whole(&mut self) -> String {
        if let Some(reader) = self.reader.take() {
            reader.join().expect("a reader that does not panic");
        }
        self.text()
    }
}

/// How long a process may take to stand still.
const PATIENCE: Duration = Duration::from_secs(60);
