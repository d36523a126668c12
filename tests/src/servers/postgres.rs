//! A private PostgreSQL.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::Instant;

use rustix::process::{Pid, Signal, kill_process};

use super::keeper::{self, Keeper, MOMENT, PATIENCE, Unprivileged, succeed};
use crate::process::Process;

/// A PostgreSQL server of our own, with the settings that one has in operation: commits are on disk. Stopped when it is
/// dropped, or else when the process ends.
///
/// Everybody on this machine is its superuser `postgres`.
#[derive(Debug)]
pub struct Postgres {
    programs: PathBuf,
    folder: PathBuf,
    port: u16,
    user: Unprivileged,
    /// None while it is down.
    server: Option<Process>,
    _keeper: Keeper,
}

impl Postgres {
    /// Starts the newest PostgreSQL that is installed, and waits until it is ready.
    ///
    /// # Panics
    /// When none is installed, or when it does not start.
    #[must_use]
    pub fn start() -> Self {
        let programs = programs().expect("PostgreSQL is missing: install the Debian package `postgresql`");
        let user = Unprivileged::user("postgres");
        let folder = keeper::folder("postgres-");
        let keeper = Keeper::new(&folder, &data(&folder).join("postmaster.pid"));
        user.own(&folder).expect("a user `postgres`, as the Debian package `postgresql` makes it");
        let port = keeper::free_port();
        let mut postgres = Self { programs, folder, port, user, server: None, _keeper: keeper };
        postgres.init();
        postgres.restart();
        postgres
    }

    /// Starts a replica of it, and waits until it is connected. From then on this server answers no commit before the replica has it on disk.
    ///
    /// # Panics
    /// When it does not start.
    #[must_use]
    pub fn replica(&self) -> Self {
        let folder = keeper::folder("postgres-");
        let keeper = Keeper::new(&folder, &data(&folder).join("postmaster.pid"));
        self.user.own(&folder).expect("a user `postgres`, as the Debian package `postgresql` makes it");
        let (programs, user, port) = (self.programs.clone(), self.user.clone(), keeper::free_port());
        let mut replica = Self { programs, folder, port, user, server: None, _keeper: keeper };
        let mut copy = replica.command("pg_basebackup");
        copy.args(["--write-recovery-conf", "--checkpoint=fast", "--no-sync", "--dbname", &self.url("postgres"), "-D"]);
        succeed(copy.arg(data(&replica.folder)));
        replica.restart();
        self.set("synchronous_standby_names", "*");
        let give_up = Instant::now() + PATIENCE;
        while self.sql("postgres", "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'") != "1" {
            assert!(Instant::now() < give_up, "the replica does not connect");
            sleep(MOMENT);
        }
        replica
    }

    /// Makes a replica a server that takes writes and has no replica, and waits until it does.
    pub fn promote(&self) {
        // In the copy is what its primary was told.
        self.set("synchronous_standby_names", "");
        assert_eq!(self.sql("postgres", "SELECT pg_promote()"), "t", "the replica is not promoted");
    }

    fn set(&self, setting: &str, value: &str) {
        self.sql("postgres", &format!("ALTER SYSTEM SET {setting} = '{value}'"));
        self.sql("postgres", "SELECT pg_reload_conf()");
    }

    fn init(&self) {
        let mut initdb = self.command("initdb");
        initdb.args(["--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync", "-D"]);
        succeed(initdb.arg(data(&self.folder)));
    }

    /// A URL for one of its databases.
    #[must_use]
    pub fn url(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.port)
    }

    pub(super) const fn port(&self) -> u16 {
        self.port
    }

    /// Makes a database, and gives its URL.
    #[must_use]
    pub fn create_database(&self, name: &str) -> String {
        self.sql("postgres", &format!("CREATE DATABASE {name}"));
        self.url(name)
    }

    /// Carries out statements in one of its databases, with psql, and gives what it prints: the values, one row a line.
    #[allow(clippy::must_use_candidate, reason = "most statements are run for what they do")]
    pub fn sql(&self, database: &str, statements: &str) -> String {
        let mut psql = Command::new(self.programs.join("psql"));
        psql.args(["-qAtX", "-v", "ON_ERROR_STOP=1", "-d", &self.url(database), "-c", statements]);
        String::from_utf8_lossy(&succeed(&mut psql).stdout).trim_end().to_owned()
    }

    /// Stops it in the middle of whatever it does: all of its processes. Connections stay open and silent.
    pub fn pause(&mut self) {
        let server = self.server.as_mut().expect("a server that is up");
        server.pause();
        for child in children(server.id()) {
            signal(child, Signal::STOP);
        }
    }

    /// Lets it go on after a pause.
    pub fn resume(&mut self) {
        let server = self.server.as_mut().expect("a server that is up");
        for child in children(server.id()) {
            signal(child, Signal::CONT);
        }
        server.signal(Signal::CONT);
    }

    /// Kills all of its processes. What was committed is on disk.
    pub fn kill(&mut self) {
        let Some(mut server) = self.server.take() else { return };
        // Stopped first: otherwise it would see its children die and start new ones.
        server.pause();
        for child in children(server.id()) {
            signal(child, Signal::KILL);
        }
        server.kill();
    }

    /// Stops it: open transactions are rolled back, and the files are in order.
    pub fn stop(&mut self) {
        let Some(mut server) = self.server.take() else { return };
        server.signal(Signal::INT);
        let give_up = Instant::now() + PATIENCE;
        while server.try_wait().is_none() {
            assert!(Instant::now() < give_up, "PostgreSQL does not stop; it wrote: {}", server.stderr());
            sleep(MOMENT);
        }
    }

    /// Starts it again on the same port, after stopping it if it is up, and waits until it is ready.
    pub fn restart(&mut self) {
        self.stop();
        let mut command = self.command("postgres");
        command.arg("-D").arg(data(&self.folder)).args(["-p", &self.port.to_string()]);
        command.arg("-k").arg(&self.folder);
        for setting in SETTINGS {
            command.args(["-c", setting]);
        }
        let mut server = Process::spawn(&mut command);
        let give_up = Instant::now() + PATIENCE;
        while !self.is_ready() {
            let ended = server.try_wait().is_some();
            assert!(!ended && Instant::now() < give_up, "PostgreSQL does not start; it wrote: {}", server.stderr());
            sleep(MOMENT);
        }
        self.server = Some(server);
    }

    fn is_ready(&self) -> bool {
        let mut ready = Command::new(self.programs.join("pg_isready"));
        ready.args(["-q", "-h", "127.0.0.1", "-p", &self.port.to_string()]);
        ready.status().is_ok_and(|status| status.success())
    }

    fn command(&self, program: &str) -> Command {
        let mut command = self.user.command(&self.programs.join(program));
        // Wherever the tests are run, that user may not be allowed to be.
        command.current_dir(&self.folder);
        command
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // The keeper removes the files.
        self.kill();
    }
}

fn data(folder: &Path) -> PathBuf {
    folder.join("data")
}

/// Where the newest server's programs are.
fn programs() -> Option<PathBuf> {
    let debian = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut versions: Vec<(u32, PathBuf)> = debian
        .filter_map(|version| Some((version.file_name().to_str()?.parse().ok()?, version.path().join("bin"))))
        .collect();
    versions.sort();
    let config = Command::new("pg_config").arg("--bindir").output();
    let elsewhere = config.ok().map(|output| PathBuf::from(String::from_utf8_lossy(&output.stdout).trim()));
    let candidates = versions.into_iter().rev().map(|(_, programs)| programs).chain(elsewhere);
    candidates.into_iter().find(|programs| programs.join("initdb").exists() && programs.join("postgres").exists())
}

/// The processes whose parent this is.
fn children(parent: u32) -> Vec<Pid> {
    let processes = std::fs::read_dir("/proc").expect("a list of processes").flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| parent_of(*pid) == Some(parent)).filter_map(Pid::from_raw).collect()
}

fn parent_of(pid: i32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // After the name, which is in brackets and may hold anything: the state, then the parent.
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

/// An error means that it has ended meanwhile.
fn signal(process: Pid, signal: Signal) {
    let _ = kill_process(process, signal);
}

/// Small, and otherwise what a server in operation has.
const SETTINGS: [&str; 6] = [
    "listen_addresses=127.0.0.1",
    "max_connections=300",
    "shared_buffers=16MB",
    "log_min_messages=warning",
    "log_min_error_statement=panic",
    // Of a replica whose primary was away.
    "wal_retrieve_retry_interval=200ms",
];
