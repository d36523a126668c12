//! What follows from what a server says of itself.

use super::server::{Fields, Server};
use super::{Finding, Severity, Topic};

pub(super) fn judge(server: &Server) -> Vec<Finding> {
    let mut judge = Judge { server, findings: Vec::new() };
    if server.is_silent {
        judge.silence();
        return judge.findings;
    }
    judge.permission();
    if let Some(info) = &server.info {
        judge.version(info);
        judge.eviction(info);
        judge.persistence(info);
        judge.replication(info);
        judge.cluster(info);
    }
    judge.clock();
    judge.findings
}

struct Judge<'s> {
    server: &'s Server,
    findings: Vec<Finding>,
}

impl Judge<'_> {
    fn find(
        &mut self,
        severity: Severity,
        topic: Topic,
        what: impl Into<String>,
        (consequence, fix): (&'static str, &'static str),
    ) {
        let server = self.server.name.clone();
        self.findings.push(Finding { severity, topic, server, what: what.into(), consequence, fix });
    }

    fn config(&self, name: &str) -> Option<&str> {
        self.server.config.as_ref()?.text(name)
    }

    fn silence(&mut self) {
        let then = (
            "claims of its slots are refused until it is back or a replica has taken over, and nothing else of it is known",
            "bring it back, and give every primary a replica",
        );
        self.find(Severity::Warn, Topic::Cluster, "does not answer", then);
    }

    fn permission(&mut self) {
        if self.server.info.is_none() {
            let then = (
                "whether it evicts records, loses them at a restart or in a failover is not known",
                "allow INFO to this user, or look by hand: noeviction, appendonly, min-replicas-to-write, release 7.0 or newer",
            );
            self.find(Severity::Warn, Topic::Permission, "not allowed to look (INFO)", then);
        } else if self.server.config.is_none() {
            let then = (
                "how often the append-only file is synced, whether there are snapshots, and min-replicas-max-lag are not known",
                "allow CONFIG GET to this user, or look them up where the service is managed",
            );
            self.find(Severity::Info, Topic::Permission, "not allowed to look (CONFIG)", then);
        }
    }

    fn version(&mut self, info: &Fields) {
        let version = info.text("redis_version").unwrap_or("unknown");
        let major: Option<u32> = version.split('.').next().and_then(|major| major.parse().ok());
        if major.is_none_or(|major| major < 7) {
            let then = (
                "it does not understand scripts that say what they may do (`#!lua flags=allow-oom`): nothing works",
                "use release 7.0 or newer, or Valkey",
            );
            self.find(Severity::Refuse, Topic::Version, format!("release {version}"), then);
        }
    }

    fn eviction(&mut self, info: &Fields) {
        let limit = info.number("maxmemory").or_else(|| self.config("maxmemory")?.parse().ok());
        let policy = info.text("maxmemory_policy").or_else(|| self.config("maxmemory-policy")).map(str::to_owned);
        let Some(policy) = policy else {
            let then = ("whether records are evicted when memory is full is not known", "see that it is noeviction");
            return self.find(Severity::Warn, Topic::Eviction, "does not tell its maxmemory-policy", then);
        };
        match (policy.as_str(), limit) {
            ("noeviction", Some(0)) => {
                let then = (
                    "when the machine's memory is full the system may kill it",
                    "set maxmemory: new claims are then refused, and what runs is still recorded",
                );
                self.find(Severity::Info, Topic::Eviction, "maxmemory is not set", then);
            }
            ("noeviction", _) => {}
            (_, Some(0)) => {
                let then = (
                    "nothing is evicted as long as maxmemory is not set",
                    "set maxmemory-policy noeviction before somebody sets maxmemory",
                );
                self.find(
                    Severity::Warn,
                    Topic::Eviction,
                    format!("maxmemory-policy {policy} without maxmemory"),
                    then,
                );
            }
            _ => {
                // All of ours have an expiry, so that policies named volatile do not spare them.
                let then = (
                    "when memory is full it deletes records that are still needed, and their duplicates run again",
                    "set maxmemory-policy noeviction, or give this its own server",
                );
                self.find(Severity::Refuse, Topic::Eviction, format!("maxmemory-policy {policy}"), then);
            }
        }
    }

    fn persistence(&mut self, info: &Fields) {
        self.write_failures(info);
        if info.is_set("aof_enabled") == Some(true) {
            return match self.config("appendfsync") {
                Some("always") => {}
                Some("no") => {
                    let then = (
                        "a machine that fails loses up to half a minute of records; their duplicates run again",
                        "set appendfsync always, or everysec",
                    );
                    self.find(Severity::Warn, Topic::Persistence, "append-only file, appendfsync no", then);
                }
                known => {
                    let what =
                        if known.is_some() { ", appendfsync everysec" } else { ", it is not known how often synced" };
                    let then = (
                        "a machine that fails loses about the last second of records; their duplicates run again",
                        "set appendfsync always where that matters, and fence the effects",
                    );
                    self.find(Severity::Info, Topic::Persistence, format!("append-only file{what}"), then);
                }
            };
        }
        match self.config("save") {
            Some("") => {
                let then = (
                    "a restart loses every record: duplicates run again, and what was in flight is forgotten. Its replicas \
                     forget with it",
                    "set appendonly yes",
                );
                self.find(Severity::Warn, Topic::Persistence, "no persistence", then);
            }
            known => {
                let what = if known.is_some() { "snapshots only" } else { "no append-only file" };
                let then = (
                    "a restart after a failure loses all records since the last snapshot: their duplicates run again",
                    "set appendonly yes",
                );
                self.find(Severity::Warn, Topic::Persistence, what, then);
            }
        }
    }

    fn write_failures(&mut self, info: &Fields) {
        let failed = |name| info.text(name).is_some_and(|status| status != "ok");
        if failed("aof_last_write_status") || failed("rdb_last_bgsave_status") {
            let then = (
                "it may refuse every write until that works again, and claims with it",
                "see its log: the disk is full, or not its own",
            );
            self.find(Severity::Warn, Topic::Persistence, "the last write to disk failed", then);
        }
        if info.is_set("loading") == Some(true) {
            let then = ("it refuses everything until that has ended", "wait");
            self.find(Severity::Warn, Topic::Persistence, "it is loading its data", then);
        }
    }

    fn replication(&mut self, info: &Fields) {
        if info.text("role") == Some("slave") {
            let then =
                ("it refuses every write", "connect to its primary, or by redis+sentinel:// or redis+cluster://");
            return self.find(Severity::Refuse, Topic::Replication, "it is a replica", then);
        }
        let replicas = info.number("connected_slaves").unwrap_or(0);
        // Says how many are good enough, and is only there when some are asked for.
        if let Some(good) = info.number("min_slaves_good_slaves") {
            let wanted: i64 = self.config("min-replicas-to-write").and_then(|wanted| wanted.parse().ok()).unwrap_or(1);
            if good < wanted {
                let then = (
                    "it refuses every write until enough of them follow",
                    "bring replicas back, or lower min-replicas-to-write",
                );
                self.find(Severity::Warn, Topic::Replication, format!("{good} of {wanted} replicas follow"), then);
            }
            let lag = self.config("min-replicas-max-lag").map(|lag| format!(" {lag} s")).unwrap_or_default();
            let then = (
                "a failover can forget the last grants and outcomes, for as long as that lag",
                "wait for replicas where that matters, and fence the effects",
            );
            let what = format!("replicas, with min-replicas-to-write and min-replicas-max-lag{lag}");
            return self.find(Severity::Info, Topic::Replication, what, then);
        }
        if replicas > 0 {
            let then = (
                "a primary that is cut off goes on granting without a limit, and the failover forgets all of it: duplicates \
                 run again",
                "set min-replicas-to-write 1 and min-replicas-max-lag, and fence the effects",
            );
            self.find(
                Severity::Warn,
                Topic::Replication,
                format!("{replicas} replicas without min-replicas-to-write"),
                then,
            );
        } else {
            let then = ("when its disk is lost, everything is", "add a replica, with min-replicas-to-write");
            self.find(Severity::Info, Topic::Replication, "no replica", then);
        }
    }

    fn cluster(&mut self, info: &Fields) {
        if info.is_set("cluster_enabled") == Some(true) && self.server.name.is_none() {
            let then = ("keys of other nodes are refused", "connect by redis+cluster://");
            self.find(Severity::Refuse, Topic::Cluster, "a node of a cluster, taken for a single server", then);
        }
        let Some(cluster) = &self.server.cluster else { return };
        let state = cluster.text("cluster_state").unwrap_or("unknown").to_owned();
        if state != "ok" {
            let then =
                ("keys of some slots are refused", "see CLUSTER NODES: a primary is gone, or slots have no node");
            self.find(Severity::Warn, Topic::Cluster, format!("cluster state {state}"), then);
        }
    }

    fn clock(&mut self) {
        // A fence takes no token that is more than an hour ahead of its own clock.
        let Some(ahead) = self.server.ahead.filter(|ahead| ahead.abs() > 60) else { return };
        let by = if ahead > 0 { format!("{ahead} s ahead of") } else { format!("{} s behind", -ahead) };
        let then = (
            "tokens are taken from that clock: after an hour's step back they may fall, and fences refuse those of an hour ahead",
            "let both take their time from one source",
        );
        self.find(Severity::Warn, Topic::Clock, format!("its clock is {by} ours"), then);
    }
}

#[cfg(test)]
mod tests;
