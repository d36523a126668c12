//! A private primary with replicas, and the three Sentinels that watch it.

use std::path::PathBuf;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::{Absence, MISSING, Redis, program};
use crate::process::Process;
use crate::servers::keeper::{self, Keeper, MOMENT, PATIENCE, succeed};

/// A primary, replicas, and three Sentinels that make a replica the primary when they have not heard of the primary for half
/// a second, unless they are more patient. Stopped when it is dropped, or else when the process ends.
#[derive(Debug)]
pub struct RedisSentinel {
    nodes: Vec<Redis>,
    sentinels: Vec<Sentinel>,
}

impl RedisSentinel {
    /// What the Sentinels call the primary.
    pub const NAME: &'static str = "payments";

    /// Starts everything with one replica, and waits until the Sentinels know it all.
    #[must_use]
    pub fn start() -> Self {
        Self::start_with(1, &[])
    }

    /// The same with so many replicas, all with these arguments of `redis-server`.
    ///
    /// # Panics
    /// When Redis is not installed, or when something does not start.
    #[must_use]
    pub fn start_with(replicas: usize, arguments: &[&str]) -> Self {
        Self::start_patient(Duration::from_millis(500), replicas, arguments)
    }

    /// The same with Sentinels that wait for so long.
    ///
    /// # Panics
    /// As [`start_with`](Self::start_with).
    #[must_use]
    pub fn start_patient(patience: Duration, replicas: usize, arguments: &[&str]) -> Self {
        let nodes: Vec<Redis> = (0..=replicas).map(|_| Redis::start_with(arguments)).collect();
        nodes[1..].iter().for_each(|replica| replica.replica_of(&nodes[0]));
        let sentinels: Vec<Sentinel> = (0..3).map(|_| Sentinel::start(nodes[0].port(), patience)).collect();
        let known = |field, count: usize| move |sentinel: &Sentinel| sentinel.field(field) == count.to_string();
        for sentinel in &sentinels {
            sentinel.await_that("it knows the replicas", known("num-slaves", replicas));
            sentinel.await_that("it knows the other two", known("num-other-sentinels", 2));
            sentinel.await_that("the primary is up", |sentinel| sentinel.field("flags") == "master");
        }
        Self { nodes, sentinels }
    }

    /// Where the Sentinels listen, on 127.0.0.1.
    #[must_use]
    pub fn ports(&self) -> Vec<u16> {
        self.sentinels.iter().map(|sentinel| sentinel.port).collect()
    }

    /// `127.0.0.1:PORT,127.0.0.1:PORT,127.0.0.1:PORT`: the Sentinels.
    #[must_use]
    pub fn addresses(&self) -> String {
        self.ports().iter().map(|port| format!("127.0.0.1:{port}")).collect::<Vec<_>>().join(",")
    }

    /// All servers, whoever is the primary.
    #[must_use]
    pub fn nodes(&mut self) -> &mut [Redis] {
        &mut self.nodes
    }

    /// Which of the nodes the Sentinels take for the primary; none while they do not agree.
    #[must_use]
    pub fn primary(&self) -> Option<usize> {
        let mut ports: Vec<u16> = self.sentinels.iter().filter_map(Sentinel::primary).collect();
        let asked = ports.len();
        ports.dedup();
        let [port] = ports[..] else { return None };
        self.nodes.iter().position(|node| node.port() == port).filter(|_| asked == self.sentinels.len())
    }

    /// Has the primary go away until a replica has taken its place, and come back as a replica of that one.
    ///
    /// # Panics
    /// When the Sentinels do not agree within a minute.
    pub fn fail_over(&mut self, absence: Absence) {
        let give_up = Instant::now() + PATIENCE;
        let old = loop {
            if let Some(primary) = self.primary() {
                break primary;
            }
            assert!(Instant::now() < give_up, "the Sentinels do not agree on a primary");
            sleep(MOMENT);
        };
        self.nodes[old].leave(absence);
        let _ = self.await_failover(old);
        self.nodes[old].come_back(absence);
    }

    /// Waits until the Sentinels agree on another primary than this node, and gives it.
    ///
    /// # Panics
    /// When they do not within a minute.
    #[must_use]
    pub fn await_failover(&self, from: usize) -> usize {
        let give_up = Instant::now() + PATIENCE;
        loop {
            let now = self.primary().filter(|primary| *primary != from);
            if let Some(primary) = now.filter(|primary| self.nodes[*primary].info("replication", "role") == "master") {
                return primary;
            }
            assert!(Instant::now() < give_up, "no failover; a Sentinel wrote: {}", self.sentinels[0].server.stdout());
            sleep(MOMENT);
        }
    }
}

#[derive(Debug)]
struct Sentinel {
    port: u16,
    server: Process,
    _keeper: Keeper,
}

impl Sentinel {
    fn start(primary: u16, patience: Duration) -> Self {
        let folder = keeper::folder("sentinel-");
        let keeper = Keeper::new(&folder, &folder.join("pid"));
        let port = keeper::free_port();
        let configuration = configure(&folder, port, primary, patience);
        let mut command = Command::new(program().expect(MISSING));
        let server = Process::spawn(command.arg(configuration).arg("--sentinel").current_dir(&folder));
        let sentinel = Self { port, server, _keeper: keeper };
        sentinel.await_that("it answers", |sentinel| {
            sentinel.command(&["PING"]).output().is_ok_and(|output| output.status.success())
        });
        sentinel
    }

    fn command(&self, command: &[&str]) -> Command {
        let mut client = Command::new("redis-cli");
        client.env_remove("REDISCLI_AUTH").args(["-e", "-p", &self.port.to_string()]).args(command);
        client
    }

    /// A field of what it knows of the primary.
    fn field(&self, field: &str) -> String {
        let output = succeed(&mut self.command(&["SENTINEL", "MASTER", RedisSentinel::NAME]));
        let fields = String::from_utf8_lossy(&output.stdout).into_owned();
        fields.lines().skip_while(|line| *line != field).nth(1).unwrap_or_default().to_owned()
    }

    fn primary(&self) -> Option<u16> {
        self.field("port").parse().ok()
    }

    fn await_that(&self, what: &str, condition: impl Fn(&Self) -> bool) {
        let give_up = Instant::now() + PATIENCE;
        while !condition(self) {
            assert!(Instant::now() < give_up, "waited in vain: {what}; it wrote: {}", self.server.stdout());
            sleep(Duration::from_millis(5));
        }
    }
}

fn configure(folder: &std::path::Path, port: u16, primary: u16, patience: Duration) -> PathBuf {
    let file = folder.join("sentinel.conf");
    let name = RedisSentinel::NAME;
    let configuration = format!(
        "port {port}\n\
         bind 127.0.0.1\n\
         dir {folder}\n\
         pidfile {folder}/pid\n\
         set-proc-title no\n\
         sentinel monitor {name} 127.0.0.1 {primary} 2\n\
         sentinel down-after-milliseconds {name} {patience}\n\
         sentinel failover-timeout {name} 3000\n",
        folder = folder.display(),
        patience = patience.as_millis()
    );
    std::fs::write(&file, configuration).expect("a folder of ours");
    file
}
