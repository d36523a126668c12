//! A folder with a store and a ledger, and the program that runs on them.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;

use crate::process::Process;
use crate::{Bank, Ended, Testbed};

/// A new folder with a ledger that all testbeds of this rig share, and with a SQLite store for those that want it.
#[derive(Debug)]
pub struct Rig {
    program: PathBuf,
    folder: TempDir,
}

/// A [`Rig`](crate::Rig) for the testbed that this package's integration tests were built with.
#[macro_export]
macro_rules! rig {
    () => {
        $crate::Rig::new(env!("CARGO_BIN_EXE_testbed"))
    };
}

impl Rig {
    /// A rig for the testbed program at this absolute path. Integration tests of this package say [`rig!`](crate::rig).
    #[must_use]
    pub fn new(program: impl Into<PathBuf>) -> Self {
        let folder = tempfile::Builder::new().prefix("rig-").tempdir().expect("a temporary folder");
        Self { program: program.into(), folder }
    }

    /// The folder; it goes with the rig.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// A URL for `--store`, the same for all testbeds of this rig.
    #[must_use]
    pub fn sqlite_store(&self) -> String {
        self.sqlite("store.sqlite")
    }

    /// The URL of the ledger that all testbeds of this rig share.
    #[must_use]
    pub fn ledger(&self) -> String {
        self.sqlite("ledger.sqlite")
    }

    fn sqlite(&self, file: &str) -> String {
        format!("sqlite:{}", self.folder().join(file).display())
    }

    /// Starts a testbed with these options beside the rig's ledger, and waits until it is ready.
    pub async fn start(&self, options: &[&str]) -> Testbed {
        let ledger = self.ledger();
        self.start_alone(&[&["--ledger", ledger.as_str()], options].concat()).await
    }

    /// Starts a testbed with exactly these options, and so with a ledger of its own if they name none.
    pub async fn start_alone(&self, options: &[&str]) -> Testbed {
        Testbed::start(&mut self.program(options)).await
    }

    /// The same while its store may be away: then what the testbed says of that.
    pub(crate) async fn try_start_alone(&self, options: &[&str]) -> Result<Testbed, String> {
        Testbed::try_start(&mut self.program(options)).await
    }

    /// Starts a testbed on the rig's SQLite store beside its ledger. The store's tables are made if they are not there.
    pub async fn start_on_sqlite(&self, options: &[&str]) -> Testbed {
        let store = self.sqlite_store();
        self.start(&[&["--migrate", "--store", store.as_str()], options].concat()).await
    }

    /// The same with a clock that is ahead of everybody else's by so many seconds.
    pub async fn start_ahead(&self, seconds: u32, options: &[&str]) -> Testbed {
        let faketime = Path::new("/usr/bin/faketime");
        assert!(faketime.exists(), "faketime is missing: install the Debian package `faketime`");
        let mut command = Command::new(faketime);
        command.args(["-f", &format!("+{seconds}s")]).arg(&self.program);
        Testbed::start(self.at_home(command.args(options))).await
    }

    /// Starts a bank with these options on the rig's books of a bank, and waits until it is ready. One at a time: a later one goes on with
    /// the same books.
    pub async fn start_bank(&self, options: &[&str]) -> Bank {
        self.start_bank_at(&[&["--ledger", "bank.sqlite"], options].concat()).await
    }

    /// The same with exactly these options, and so with books of its own if they name none.
    pub async fn start_bank_at(&self, options: &[&str]) -> Bank {
        Bank::new(self.start_alone(&[&["bank"], options].concat()).await)
    }

    /// Runs the program with exactly these arguments until it ends by itself, which it must within 20 s.
    pub async fn run(&self, arguments: &[&str]) -> Ended {
        let mut process = Process::spawn(&mut self.program(arguments));
        process.wait(Duration::from_secs(20)).await
    }

    /// The program in the rig's folder, with its own defaults whatever the environment of the tests says.
    fn program(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        self.at_home(command.args(arguments));
        command
    }

    fn at_home<'c>(&self, command: &'c mut Command) -> &'c mut Command {
        command.current_dir(self.folder()).env("TMPDIR", self.folder());
        command.env_remove("RUST_LOG").env("RUST_BACKTRACE", "0")
    }
}
