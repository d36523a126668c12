//! A private cluster.

use std::process::Command;
use std::thread::sleep;
use std::time::Instant;

use super::{Absence, Redis};
use crate::servers::keeper::{self, MOMENT, PATIENCE, succeed};

/// A cluster of three primaries, with or without a replica each. Stopped when it is dropped, or else when the process ends.
#[derive(Debug)]
pub struct RedisCluster {
    nodes: Vec<Redis>,
}

impl RedisCluster {
    /// Starts three primaries that share the slots, and waits until the cluster is up.
    #[must_use]
    pub fn start() -> Self {
        Self::start_with(0, &[])
    }

    /// The same with so many replicas for each primary, all with these arguments of `redis-server`.
    ///
    /// # Panics
    /// When Redis is not installed, or when the cluster does not come up.
    #[must_use]
    pub fn start_with(replicas: usize, arguments: &[&str]) -> Self {
        let nodes: Vec<Redis> = (0..3 * (1 + replicas)).map(|_| node(arguments)).collect();
        let mut create = Command::new("redis-cli");
        create.env_remove("REDISCLI_AUTH").args(["--cluster", "create"]);
        create.args(nodes.iter().map(|node| format!("127.0.0.1:{}", node.port())));
        succeed(create.args(["--cluster-replicas", &replicas.to_string(), "--cluster-yes"]));
        let cluster = Self { nodes };
        cluster.await_agreement();
        cluster
    }

    /// `127.0.0.1:PORT,…`: all nodes.
    #[must_use]
    pub fn addresses(&self) -> String {
        self.nodes.iter().map(|node| format!("127.0.0.1:{}", node.port())).collect::<Vec<_>>().join(",")
    }

    /// The URL of one of the nodes.
    #[must_use]
    pub fn url(&self) -> String {
        self.nodes[0].url()
    }

    /// All nodes; the first three began as the primaries.
    #[must_use]
    pub fn nodes(&mut self) -> &mut [Redis] {
        &mut self.nodes
    }

    /// One of the nodes.
    #[must_use]
    pub fn node(&self, node: usize) -> &Redis {
        &self.nodes[node]
    }

    /// The slot of a key.
    #[must_use]
    pub fn slot_of(&self, key: &str) -> u16 {
        self.nodes[0].cli(&["CLUSTER", "KEYSLOT", key]).parse().expect("a slot")
    }

    /// Which node has a slot, as the node itself says.
    ///
    /// # Panics
    /// When none does.
    #[must_use]
    pub fn owner_of(&self, slot: u16) -> usize {
        self.find_owner(slot).expect("a slot that a node has")
    }

    /// Waits until a node that answers has the slot: a replica takes over from a primary that is gone, or paused, after some seconds.
    ///
    /// # Panics
    /// When none does within a minute.
    #[must_use]
    pub fn await_failover(&self, slot: u16) -> usize {
        let give_up = Instant::now() + PATIENCE;
        loop {
            let owner = self.find_owner(slot).filter(|owner| is_up(&self.nodes[*owner]));
            if let Some(owner) = owner {
                return owner;
            }
            assert!(Instant::now() < give_up, "nobody takes over slot {slot}");
            sleep(MOMENT);
        }
    }

    /// Has the primary of a slot go away until its replica has taken its place, and come back as the replica of that one.
    ///
    /// # Panics
    /// When it has no replica, or when none takes over within a minute.
    pub fn fail_over(&mut self, slot: u16, absence: Absence) {
        let old = self.await_failover(slot);
        self.nodes[old].leave(absence);
        let _ = self.await_failover(slot);
        self.nodes[old].come_back(absence);
    }

    fn find_owner(&self, slot: u16) -> Option<usize> {
        let holds = |range: &str| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            first.parse::<u16>().is_ok_and(|first| first <= slot) && last.parse::<u16>().is_ok_and(|last| slot <= last)
        };
        self.nodes.iter().position(|node| {
            if !node.is_awake() {
                return false;
            }
            let nodes = node.try_cli(&["CLUSTER", "NODES"]).unwrap_or_default();
            let mine = nodes.lines().find(|line| line.contains("myself,master")).unwrap_or_default();
            mine.split_whitespace().skip(8).filter(|range| !range.starts_with('[')).any(holds)
        })
    }

    /// Moves a slot with all its keys from one node to another while both are in use.
    pub fn move_slot(&self, slot: u16, from: usize, to: usize) {
        let moving = self.begin_move(slot, from, to);
        moving.migrate();
        moving.end();
    }

    /// The first step of a move: from here on the old node answers ASK for what it does not have.
    pub fn begin_move(&self, slot: u16, from: usize, to: usize) -> SlotMove<'_> {
        let moving = SlotMove { cluster: self, slot: slot.to_string(), from, to };
        let (old, new) = (moving.id(from), moving.id(to));
        self.nodes[to].cli(&["CLUSTER", "SETSLOT", &moving.slot, "IMPORTING", &old]);
        self.nodes[from].cli(&["CLUSTER", "SETSLOT", &moving.slot, "MIGRATING", &new]);
        moving
    }

    /// Waits until every node says that the cluster is up.
    fn await_agreement(&self) {
        for node in &self.nodes {
            node.await_that("the cluster is up", || is_up(node));
        }
        let give_up = Instant::now() + PATIENCE;
        let known = self.nodes.len();
        while !self.nodes.iter().all(|node| node.cli(&["CLUSTER", "NODES"]).lines().count() == known) {
            assert!(Instant::now() < give_up, "the nodes do not know each other");
            sleep(MOMENT);
        }
        for node in &self.nodes {
            let role = node.info("replication", "role");
            if role == "slave" {
                node.await_info("replication", "master_link_status", "up");
            }
        }
    }
}

/// A slot on its way from one node to another.
#[derive(Debug)]
#[must_use = "a slot stays on its way until `end`"]
pub struct SlotMove<'c> {
    cluster: &'c RedisCluster,
    slot: String,
    from: usize,
    to: usize,
}

impl SlotMove<'_> {
    /// The second step: moves the keys that the old node has.
    pub fn migrate(&self) {
        let old = &self.cluster.nodes[self.from];
        let port = self.cluster.nodes[self.to].port().to_string();
        loop {
            let keys = old.cli(&["CLUSTER", "GETKEYSINSLOT", &self.slot, "100"]);
            let keys: Vec<&str> = keys.lines().filter(|key| !key.is_empty()).collect();
            if keys.is_empty() {
                return;
            }
            old.cli(&[&["MIGRATE", "127.0.0.1", &port, "", "0", "5000", "KEYS"], keys.as_slice()].concat());
        }
    }

    /// The last step: the new node has the slot.
    pub fn end(self) {
        let new = self.id(self.to);
        // The new owner first: otherwise nobody would have the slot for a moment.
        let others = (0..self.cluster.nodes.len()).filter(|node| *node != self.to);
        for node in std::iter::once(self.to).chain(others) {
            let node = &self.cluster.nodes[node];
            // A replica learns of it by itself.
            if node.info("replication", "role") == "master" {
                node.cli(&["CLUSTER", "SETSLOT", &self.slot, "NODE", &new]);
            }
        }
    }

    fn id(&self, node: usize) -> String {
        self.cluster.nodes[node].cli(&["CLUSTER", "MYID"])
    }
}

fn is_up(node: &Redis) -> bool {
    let info = node.cli(&["CLUSTER", "INFO"]);
    info.contains("cluster_state:ok") && info.contains("cluster_slots_ok:16384")
}

fn node(arguments: &[&str]) -> Redis {
    let bus = keeper::free_port().to_string();
    let settings = ["--cluster-enabled", "yes", "--cluster-port", &bus, "--cluster-node-timeout", "2000"];
    Redis::start_with(&[&settings, arguments].concat())
}
