//! What all private servers need: a user, a folder, a port, and an end.

use std::fmt::Write as _;
use std::io;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Output, Stdio};
use std::time::Duration;

/// Ends the server and removes its folder when the process of the tests ends, however it ends: nobody drops what is in a
/// `static`, and a killed process drops nothing. It is a shell that waits for the end of its input.
#[derive(Debug)]
pub(super) struct Keeper {
    child: Child,
    input: Option<ChildStdin>,
}

impl Keeper {
    /// `pid_file` is where the server writes its process id, in the first line, and that it removes when it ends by itself.
    pub(super) fn new(folder: &Path, pid_file: &Path) -> Self {
        const SCRIPT: &str = r#"
            trap '' INT TERM HUP
            read -r _
            pid=$(head -n 1 "$2" 2>/dev/null)
            # The number may be another program's by now; the server's command line names the folder.
            if [ -n "$pid" ] && grep -qF "$1" "/proc/$pid/cmdline"; then
                kill -QUIT "$pid"; kill -CONT "$pid"
                tries=0
                while kill -0 "$pid" && [ $tries -lt 50 ]; do sleep 0.1; tries=$((tries + 1)); done
                kill -KILL "$pid"
            fi
            rm -rf "$1"
        "#;
        let mut command = Command::new("sh");
        command.args(["-c", SCRIPT, "keeper"]).arg(folder).arg(pid_file);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().expect("a shell");
        let input = child.stdin.take();
        Self { child, input }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        drop(self.input.take());
        // An error means that it is gone already.
        let _ = self.child.wait();
    }
}

/// A new folder. The [`Keeper`] removes it.
pub(super) fn folder(prefix: &str) -> PathBuf {
    tempfile::Builder::new().prefix(prefix).tempdir().expect("a temporary folder").keep()
}

/// A port that nobody listens on.
pub(super) fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("a bound socket").port()
}

/// Who runs a server that refuses to be run by root.
#[derive(Clone, Debug)]
pub(super) struct Unprivileged(Option<&'static str>);

impl Unprivileged {
    /// This user where the tests are run by root, otherwise whoever runs them.
    pub(super) fn user(name: &'static str) -> Self {
        Self(rustix::process::geteuid().is_root().then_some(name))
    }

    /// Makes the folder theirs.
    pub(super) fn own(&self, folder: &Path) -> io::Result<()> {
        let Some(user) = self.0 else { return Ok(()) };
        let id = |flag| {
            let output = Command::new("id").args([flag, user]).output()?;
            String::from_utf8_lossy(&output.stdout).trim().parse::<u32>().map_err(io::Error::other)
        };
        std::os::unix::fs::chown(folder, Some(id("-u")?), Some(id("-g")?))
    }

    /// The program, run by them.
    pub(super) fn command(&self, program: &Path) -> Command {
        let Some(user) = self.0 else { return Command::new(program) };
        let mut command = Command::new("setpriv");
        command.args(["--reuid", user, "--regid", user, "--clear-groups"]).arg(program);
        command
    }
}

/// Runs a program that must succeed.
pub(super) fn succeed(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|error| panic!("cannot run {command:?}: {error}"));
    let mut said = String::from_utf8_lossy(&output.stdout).into_owned();
    let _ = write!(said, "{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?} failed: {said}");
    output
}

/// For a server to start or stop.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);
/// Between two looks whether it has.
pub(super) const MOMENT: Duration = Duration::from_millis(20);
