//! A private Redis.

mod certificate;
mod clock;
mod cluster;
mod sentinel;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use self::certificate::Certificate;
use self::clock::Clock;
use super::keeper::{self, Keeper, MOMENT, PATIENCE};
use crate::process::Process;

/// How a server is away for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Absence {
    /// SIGKILL, and started again.
    Killed,
    /// SIGSTOP, and SIGCONT: its connections stay open and silent.
    Paused,
}

pub use cluster::{RedisCluster, SlotMove};
pub use sentinel::RedisSentinel;

/// A Redis server of our own. It keeps nothing on disk unless it is told to, and so loses everything when it ends. Stopped
/// when it is dropped, or else when the process ends.
#[derive(Debug)]
pub struct Redis {
    folder: PathBuf,
    port: u16,
    arguments: Vec<String>,
    certificate: Option<Certificate>,
    clock: Option<Clock>,
    /// None while it is down.
    server: Option<Process>,
    is_paused: bool,
    _keeper: Keeper,
}

impl Redis {
    /// Starts one without persistence, and waits until it is ready.
    ///
    /// # Panics
    /// When it is not installed, or when it does not start.
    #[must_use]
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// The same with these arguments of `redis-server`, such as `["--appendonly", "yes"]`. A password that `--requirepass`
    /// sets is in the URL, and `cli` knows it.
    #[must_use]
    pub fn start_with(arguments: &[&str]) -> Self {
        Self::started(arguments, false, false)
    }

    /// The same, but it speaks TLS only, with a [certificate](Self::certificate) that it signed itself.
    #[must_use]
    pub fn start_tls(arguments: &[&str]) -> Self {
        Self::started(arguments, true, false)
    }

    /// The same with a clock that can be [set](Self::set_clock).
    #[must_use]
    pub fn start_with_clock(arguments: &[&str]) -> Self {
        Self::started(arguments, false, true)
    }

    fn started(arguments: &[&str], tls: bool, clock: bool) -> Self {
        let folder = keeper::folder("redis-");
        let keeper = Keeper::new(&folder, &folder.join("pid"));
        std::fs::create_dir(folder.join("data")).expect("a folder of ours");
        let certificate = tls.then(|| Certificate::new(&folder));
        let clock = clock.then(|| Clock::new(&folder));
        let arguments = arguments.iter().map(ToString::to_string).collect();
        let mut redis =
            Self { folder, port: 0, arguments, certificate, clock, server: None, is_paused: false, _keeper: keeper };
        // Somebody else may take a free port before we do.
        let started = (0..10).any(|_| {
            redis.port = keeper::free_port();
            redis.try_start()
        });
        assert!(started, "no port stays free");
        redis
    }

    /// Its URL.
    #[must_use]
    pub fn url(&self) -> String {
        self.url_of(0)
    }

    /// A URL for one of its 16 databases.
    #[must_use]
    pub fn url_of(&self, database: u32) -> String {
        self.url_at(self.port, database)
    }

    /// The same through a proxy that listens on this port.
    #[must_use]
    pub fn url_at(&self, port: u16, database: u32) -> String {
        let scheme = if self.certificate.is_some() { "rediss" } else { "redis" };
        let user = self.password().map(|password| format!(":{password}@")).unwrap_or_default();
        format!("{scheme}://{user}127.0.0.1:{port}/{database}")
    }

    /// Where it listens, on 127.0.0.1.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// The certificate in PEM of a server that speaks TLS: its own authority.
    #[must_use]
    pub fn certificate(&self) -> &Path {
        self.certificate.as_ref().expect("a server that speaks TLS").file()
    }

    /// Sets how many seconds its clock is ahead of everybody else's, or behind if less than zero.
    pub fn set_clock(&self, ahead: i64) {
        self.clock.as_ref().expect("a server with a clock of its own").set(ahead);
    }

    /// Carries out a command with redis-cli, and gives what it prints: values, one a line.
    ///
    /// # Panics
    /// When the server answers with an error.
    #[allow(clippy::must_use_candidate, reason = "most commands are run for what they do")]
    pub fn cli(&self, command: &[&str]) -> String {
        self.try_cli(command).unwrap_or_else(|error| panic!("{command:?}: {error}"))
    }

    /// The same where an error is one of the right answers.
    ///
    /// # Errors
    /// What redis-cli says.
    pub fn try_cli(&self, command: &[&str]) -> Result<String, String> {
        let mut client = self.client();
        let output = client.arg("-e").args(command).output().expect(MISSING);
        let said = |bytes| String::from_utf8_lossy(bytes).trim_end().to_owned();
        if output.status.success() {
            Ok(said(&output.stdout))
        } else {
            Err(said(&[output.stdout, output.stderr].concat()))
        }
    }

    /// redis-cli for this server.
    fn client(&self) -> Command {
        let mut client = Command::new("redis-cli");
        client.args(["-h", "127.0.0.1", "-p", &self.port.to_string()]).env_remove("REDISCLI_AUTH");
        if let Some(password) = self.password() {
            client.env("REDISCLI_AUTH", password);
        }
        if let Some(certificate) = &self.certificate {
            client.args(["--tls", "--cacert"]).arg(certificate.file());
        }
        client
    }

    fn password(&self) -> Option<&str> {
        let at = self.arguments.iter().position(|argument| argument == "--requirepass")?;
        self.arguments.get(at + 1).map(String::as_str)
    }

    /// Stops it in the middle of whatever it does. Connections stay open and silent; what is sent to it meanwhile is carried
    /// out when it goes on.
    pub fn pause(&mut self) {
        self.server.as_mut().expect("a server that is up").pause();
        self.is_paused = true;
    }

    /// Lets it go on after a pause.
    pub fn resume(&mut self) {
        self.server.as_mut().expect("a server that is up").signal(Signal::CONT);
        self.is_paused = false;
    }

    /// Kills it. What it has on disk is what its settings put there.
    pub fn kill(&mut self) {
        if let Some(mut server) = self.server.take() {
            server.kill();
        }
        self.is_paused = false;
    }

    fn leave(&mut self, absence: Absence) {
        match absence {
            Absence::Killed => self.kill(),
            Absence::Paused => self.pause(),
        }
    }

    /// Comes back after another has taken its place, and waits until it follows that one.
    fn come_back(&mut self, absence: Absence) {
        match absence {
            Absence::Killed => self.restart(),
            Absence::Paused => self.resume(),
        }
        self.await_info("replication", "role", "slave");
        self.await_info("replication", "master_link_status", "up");
    }

    /// Whether it answers: whoever asks one that is [paused](Self::pause) waits until it goes on.
    fn is_awake(&self) -> bool {
        self.server.is_some() && !self.is_paused
    }

    /// Stops it in order: with the append-only file or save points, everything is on disk.
    pub fn stop(&mut self) {
        let Some(mut server) = self.server.take() else { return };
        server.signal(Signal::TERM);
        let give_up = Instant::now() + PATIENCE;
        while server.try_wait().is_none() {
            assert!(Instant::now() < give_up, "Redis does not stop; it wrote: {}", server.stdout());
            sleep(MOMENT);
        }
    }

    /// Starts it again on the same port with what is on its disk, after stopping it if it is up, and waits until it is ready.
    pub fn restart(&mut self) {
        self.stop();
        // A connection on its way out of this machine may have the port for a moment.
        let give_up = Instant::now() + PATIENCE;
        while !self.try_start() {
            assert!(Instant::now() < give_up, "port {} is taken", self.port);
            sleep(MOMENT);
        }
    }

    /// The same on a new disk.
    pub fn restart_empty(&mut self) {
        self.kill();
        let data = self.folder.join("data");
        std::fs::remove_dir_all(&data).and_then(|()| std::fs::create_dir(&data)).expect("a folder of ours");
        self.restart();
    }

    /// Makes it a replica of another, and waits until it has everything.
    pub fn replica_of(&self, primary: &Self) {
        self.replica_at(primary.port);
    }

    /// The same through a proxy that listens on this port.
    pub fn replica_at(&self, port: u16) {
        self.cli(&["REPLICAOF", "127.0.0.1", &port.to_string()]);
        self.await_info("replication", "master_link_status", "up");
    }

    /// Makes a replica a primary, as an operator or a Sentinel does.
    pub fn promote(&self) {
        self.cli(&["REPLICAOF", "NO", "ONE"]);
    }

    /// A field of `INFO`; empty if there is none.
    #[must_use]
    pub fn info(&self, section: &str, field: &str) -> String {
        let info = self.cli(&["INFO", section]);
        let fields = info.lines().filter_map(|line| line.trim_end().split_once(':'));
        fields.into_iter().find(|(name, _)| *name == field).map(|(_, value)| value.to_owned()).unwrap_or_default()
    }

    /// Waits until a replica of this primary has all that was written to it. A WAIT on a connection of its own would not: it asks for what
    /// was written on that one.
    ///
    /// # Panics
    /// When none has within a minute.
    pub fn await_replicated(&self) {
        let written: u64 = self.info("replication", "master_repl_offset").parse().expect("an offset");
        self.await_that("a replica has followed", || {
            let replica = self.info("replication", "slave0");
            let offset = replica.split(',').find_map(|field| field.strip_prefix("offset="));
            offset.and_then(|offset| offset.parse().ok()).is_some_and(|offset: u64| offset >= written)
        });
    }

    fn await_info(&self, section: &str, field: &str, value: &str) {
        self.await_that(&format!("{field} is {value}"), || self.info(section, field) == value);
    }

    fn await_that(&self, what: &str, condition: impl Fn() -> bool) {
        let give_up = Instant::now() + PATIENCE;
        while !condition() {
            assert!(Instant::now() < give_up, "waited in vain: {what}; it wrote: {}", self.log());
            sleep(MOMENT);
        }
    }

    /// What it has written to its log.
    #[must_use]
    pub fn log(&self) -> String {
        self.server.as_ref().map(Process::stdout).unwrap_or_default()
    }

    /// False when its port is taken.
    fn try_start(&mut self) -> bool {
        let mut server = Process::spawn(&mut self.command());
        let give_up = Instant::now() + PATIENCE;
        // It says PONG once its data is loaded; and whoever else has the port does not have this process number.
        while !server.stdout().contains("Ready to accept connections") || self.try_cli(&["PING"]).is_err() {
            if server.try_wait().is_some() {
                // The last of its output may be on its way.
                sleep(Duration::from_millis(50));
                let log = server.stdout();
                assert!(log.contains("already in use"), "Redis does not start: {log}{}", server.stderr());
                return false;
            }
            assert!(Instant::now() < give_up, "Redis does not start: {}", server.stdout());
            sleep(Duration::from_millis(5));
        }
        self.server = Some(server);
        true
    }

    fn command(&self) -> Command {
        let program = program().expect(MISSING);
        let mut command = Command::new(program);
        // A cleared title keeps the command line, by which the keeper knows the process.
        command.args(["--set-proc-title", "no", "--pidfile"]).arg(self.folder.join("pid"));
        command.args(SETTINGS).arg("--dir").arg(self.folder.join("data")).current_dir(&self.folder);
        let (plain, tls) = if self.certificate.is_some() { (0, self.port) } else { (self.port, 0) };
        command.args(["--port", &plain.to_string(), "--tls-port", &tls.to_string()]);
        if let Some(certificate) = &self.certificate {
            certificate.configure(&mut command);
        }
        if let Some(clock) = &self.clock {
            clock.configure(&mut command);
        }
        command.args(&self.arguments);
        command
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        // The keeper removes the files.
        self.kill();
    }
}

fn program() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // Where some systems have servers, which an ordinary user's path does not name.
    let folders = std::env::split_paths(&path).chain(["/usr/sbin".into()]);
    folders.map(|folder| folder.join("redis-server")).find(|program| program.is_file())
}

const MISSING: &str = "Redis is missing: install the Debian package `redis-server`";

/// Arguments that come after these take their place.
const SETTINGS: [&str; 12] = [
    "--bind",
    "127.0.0.1",
    "--save",
    "",
    "--appendonly",
    "no",
    "--enable-debug-command",
    "local",
    "--repl-diskless-sync-delay",
    "0",
    "--repl-ping-replica-period",
    "1",
];
