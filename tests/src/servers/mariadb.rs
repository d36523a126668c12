//! A private MariaDB.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::Instant;

use rustix::process::Signal;

use super::keeper::{self, Keeper, MOMENT, PATIENCE, Unprivileged, succeed};
use crate::process::Process;

/// A MariaDB server of our own, with the settings that one has in operation: commits are on disk, the isolation level is
/// REPEATABLE READ. Stopped when it is dropped, or else when the process ends.
///
/// Everybody on this machine is its superuser `app`.
#[derive(Debug)]
pub struct MariaDb {
    programs: Programs,
    folder: PathBuf,
    port: u16,
    user: Unprivileged,
    /// None while it is down.
    server: Option<Process>,
    _keeper: Keeper,
}

impl MariaDb {
    /// Starts it, and waits until it is ready.
    ///
    /// # Panics
    /// When it is not installed, or when it does not start.
    #[must_use]
    pub fn start() -> Self {
        let programs = Programs::find().expect("MariaDB is missing: install the Debian package `mariadb-server`");
        let user = Unprivileged::user("mysql");
        let folder = keeper::folder("mariadb-");
        let keeper = Keeper::new(&folder, &folder.join("pid"));
        std::fs::write(folder.join("init.sql"), INIT).expect("a folder of ours");
        user.own(&folder).expect("a user `mysql`, as the Debian package `mariadb-server` makes it");
        let port = keeper::free_port();
        let mut mariadb = Self { programs, folder, port, user, server: None, _keeper: keeper };
        mariadb.init();
        mariadb.restart();
        mariadb
    }

    fn init(&self) {
        let mut install = self.command(&self.programs.install);
        install.args(["--no-defaults", "--auth-root-authentication-method=normal", "--skip-test-db"]);
        install.args(["--skip-name-resolve", "--innodb-flush-log-at-trx-commit=0"]).args(SIZES);
        succeed(install.arg(option("--datadir", &self.folder.join("data"))));
    }

    /// A URL for one of its databases.
    #[must_use]
    pub fn url(&self, database: &str) -> String {
        format!("mysql://app@127.0.0.1:{}/{database}", self.port)
    }

    /// Makes a database, and gives its URL.
    #[must_use]
    pub fn create_database(&self, name: &str) -> String {
        self.sql("", &format!("CREATE DATABASE {name}"));
        self.url(name)
    }

    /// Carries out statements in one of its databases, or in none, with its client, and gives what it prints: the values,
    /// with tabs between them, one row a line.
    #[allow(clippy::must_use_candidate, reason = "most statements are run for what they do")]
    pub fn sql(&self, database: &str, statements: &str) -> String {
        let mut client = self.client();
        client.args([&format!("--execute={statements}"), database]);
        String::from_utf8_lossy(&succeed(&mut client).stdout).trim_end().to_owned()
    }

    /// Ends all connections to one of its databases (KILL).
    pub fn kill_connections(&self, database: &str) {
        let ids = self.sql("", &format!("SELECT id FROM information_schema.processlist WHERE db = '{database}'"));
        for id in ids.lines() {
            // One that has ended meanwhile is an error, and no other comes from here.
            let _ = self.client().arg(format!("--execute=KILL CONNECTION {id}")).output();
        }
    }

    /// Stops it in the middle of whatever it does. Connections stay open and silent.
    pub fn pause(&mut self) {
        self.server.as_mut().expect("a server that is up").pause();
    }

    /// Lets it go on after a pause.
    pub fn resume(&mut self) {
        self.server.as_mut().expect("a server that is up").signal(Signal::CONT);
    }

    /// Kills it. What was committed is on disk.
    pub fn kill(&mut self) {
        if let Some(mut server) = self.server.take() {
            server.kill();
        }
    }

    /// Stops it: open transactions are rolled back, and the files are in order.
    pub fn stop(&mut self) {
        let Some(mut server) = self.server.take() else { return };
        server.signal(Signal::TERM);
        let give_up = Instant::now() + PATIENCE;
        while server.try_wait().is_none() {
            assert!(Instant::now() < give_up, "MariaDB does not stop; it wrote: {}", server.stderr());
            sleep(MOMENT);
        }
    }

    /// Starts it again on the same port, after stopping it if it is up, and waits until it is ready.
    pub fn restart(&mut self) {
        self.stop();
        let mut command = self.command(&self.programs.server);
        command.arg("--no-defaults").args(SETTINGS).args(SIZES).arg(format!("--port={}", self.port));
        for (name, file) in [("datadir", "data"), ("socket", "socket"), ("pid-file", "pid"), ("init-file", "init.sql")]
        {
            command.arg(option(&format!("--{name}"), &self.folder.join(file)));
        }
        let mut server = Process::spawn(&mut command);
        let give_up = Instant::now() + PATIENCE;
        while !self.is_ready() {
            let ended = server.try_wait().is_some();
            assert!(!ended && Instant::now() < give_up, "MariaDB does not start; it wrote: {}", server.stderr());
            sleep(MOMENT);
        }
        self.server = Some(server);
    }

    fn is_ready(&self) -> bool {
        self.client().arg("--execute=DO 1").output().is_ok_and(|output| output.status.success())
    }

    fn client(&self) -> Command {
        let mut client = Command::new(&self.programs.client);
        client.args(["--no-defaults", "--batch", "--skip-column-names", "--host=127.0.0.1", "--user=app"]);
        client.arg(format!("--port={}", self.port));
        client
    }

    fn command(&self, program: &Path) -> Command {
        let mut command = self.user.command(program);
        // Wherever the tests are run, that user may not be allowed to be.
        command.current_dir(&self.folder);
        command
    }
}

impl Drop for MariaDb {
    fn drop(&mut self) {
        // The keeper removes the files.
        self.kill();
    }
}

#[derive(Debug)]
struct Programs {
    server: PathBuf,
    install: PathBuf,
    client: PathBuf,
}

impl Programs {
    fn find() -> Option<Self> {
        Some(Self {
            server: program(&["mariadbd"])?,
            install: program(&["mariadb-install-db", "mysql_install_db"])?,
            client: program(&["mariadb", "mysql"])?,
        })
    }
}

/// The first of these that is installed.
fn program(names: &[&str]) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // Where Debian has servers, which an ordinary user's path does not name.
    let folders: Vec<PathBuf> = std::env::split_paths(&path).chain(["/usr/sbin".into()]).collect();
    names.iter().flat_map(|name| folders.iter().map(move |folder| folder.join(name))).find(|program| program.is_file())
}

fn option(name: &str, path: &Path) -> String {
    format!("{name}={}", path.display())
}

/// One statement a line.
const INIT: &str = "\
CREATE USER IF NOT EXISTS app@'127.0.0.1';
GRANT ALL PRIVILEGES ON *.* TO app@'127.0.0.1' WITH GRANT OPTION;
";

const SIZES: [&str; 4] = [
    "--innodb-buffer-pool-size=24M",
    "--innodb-log-file-size=16M",
    "--key-buffer-size=1M",
    "--aria-pagecache-buffer-size=8M",
];

/// Otherwise what a server in operation has.
const SETTINGS: [&str; 6] = [
    "--skip-networking=0",
    "--bind-address=127.0.0.1",
    "--skip-name-resolve",
    "--max-connections=300",
    "--innodb-flush-log-at-trx-commit=1",
    "--log-warnings=1",
];
