#![allow(clippy::unwrap_used)]

use super::super::server::Server;
use super::super::{Finding, Report, Severity, Topic};

/// A server that answers like this, with the fields that every one has.
fn server(info: &str, config: &[(&str, &str)]) -> Server {
    let usual = "redis_version:7.0.15\r\nmaxmemory_policy:noeviction\r\nmaxmemory:1000000\r\naof_enabled:1\r\nrole:master\r\n\
                 min_slaves_good_slaves:2\r\naof_last_write_status:ok\r\n";
    // The last one of a name counts.
    let usual_config = [("appendfsync", "always"), ("min-replicas-to-write", "2"), ("min-replicas-max-lag", "10")];
    Server::of(&format!("{usual}{info}"), usual_config.iter().chain(config))
}

fn found(server: Server) -> Vec<(Severity, Topic, String)> {
    let short = |finding: Finding| (finding.severity, finding.topic, finding.what);
    Report::of(&[server]).findings.into_iter().map(short).filter(|finding| finding.2 != USUAL).collect()
}

/// What there is to know of the best of servers.
const USUAL: &str = "replicas, with min-replicas-to-write and min-replicas-max-lag 10 s";

#[test]
fn a_server_that_keeps_everything_is_fine() {
    assert_eq!(found(server("", &[])), []);
    assert_eq!(Report::of(&[server("", &[])]).worst(), Some(Severity::Info));
}

#[test]
fn every_evicting_policy_is_refused_unless_it_is_allowed() {
    for policy in ["allkeys-lru", "allkeys-lfu", "allkeys-random", "volatile-lru", "volatile-lfu", "volatile-random"] {
        let report = Report::of(&[server(&format!("maxmemory_policy:{policy}\r\n"), &[])]);
        assert_eq!(report.worst(), Some(Severity::Refuse), "{policy}");
        let refused = report.clone().accepted().unwrap_err();
        assert!(refused.to_string().contains(policy), "{refused}");
        assert_eq!(report.allow_eviction().accepted().unwrap().worst(), Some(Severity::Warn));
    }
    // Not a reason to keep other reasons quiet.
    let replica = server("maxmemory_policy:volatile-ttl\r\nrole:slave\r\n", &[]);
    assert!(Report::of(&[replica]).allow_eviction().accepted().is_err());
}

#[test]
fn an_evicting_policy_without_a_limit_is_a_warning() {
    let found = found(server("maxmemory_policy:allkeys-lru\r\nmaxmemory:0\r\n", &[]));
    assert_eq!(found[0].0, Severity::Warn);
    assert_eq!(found.len(), 1);
}

#[test]
fn persistence_is_told_by_what_it_loses() {
    for (info, config, severity, what) in [
        ("aof_enabled:0", ("save", ""), Severity::Warn, "no persistence"),
        ("aof_enabled:0", ("save", "3600 1"), Severity::Warn, "snapshots only"),
        ("", ("appendfsync", "no"), Severity::Warn, "append-only file, appendfsync no"),
        ("", ("appendfsync", "everysec"), Severity::Info, "append-only file, appendfsync everysec"),
    ] {
        assert_eq!(found(server(info, &[config])), [(severity, Topic::Persistence, what.to_owned())]);
    }
    assert_eq!(found(server("aof_last_write_status:err", &[]))[0].2, "the last write to disk failed");
}

#[test]
fn replication_without_a_bound_is_a_warning() {
    let unbound = Server::of("redis_version:7.2.0\r\nrole:master\r\nconnected_slaves:2\r\n", std::iter::empty());
    assert!(found(unbound).iter().any(|(severity, topic, what)| {
        (*severity, *topic) == (Severity::Warn, Topic::Replication)
            && what == "2 replicas without min-replicas-to-write"
    }));
    let too_few = found(server("min_slaves_good_slaves:1\r\n", &[]));
    assert_eq!(too_few, [(Severity::Warn, Topic::Replication, "1 of 2 replicas follow".to_owned())]);
    assert_eq!(found(server("role:slave\r\n", &[]))[0].0, Severity::Refuse);
}

#[test]
fn a_release_that_cannot_carry_out_the_scripts_is_refused() {
    for (version, refused) in [("6.2.14", true), ("nonsense", true), ("7.0.0", false), ("8.2.1", false)] {
        let found = found(server(&format!("redis_version:{version}\r\n"), &[]));
        assert_eq!(found.iter().any(|finding| finding.0 == Severity::Refuse), refused, "{version}");
    }
}

#[test]
fn what_may_not_be_looked_at_is_said() {
    let found_without = |server| found(server).into_iter().map(|finding| (finding.0, finding.2)).collect::<Vec<_>>();
    assert_eq!(found_without(Server::default()), [(Severity::Warn, "not allowed to look (INFO)".to_owned())]);
    let mut server = server("", &[]);
    server.config = None;
    let found = found_without(server);
    assert!(found.contains(&(Severity::Info, "not allowed to look (CONFIG)".to_owned())), "{found:?}");
    assert!(found.iter().all(|finding| finding.0 == Severity::Info), "{found:?}");
}

#[test]
fn a_clock_that_is_far_from_ours_is_a_warning() {
    for (ahead, found_so) in [(Some(0), 0), (Some(59), 0), (Some(7200), 1), (Some(-90), 1), (None, 0)] {
        let mut server = server("", &[]);
        server.ahead = ahead;
        assert_eq!(found(server).len(), found_so, "{ahead:?}");
    }
}

#[test]
fn a_cluster_is_told_apart_and_its_state_told() {
    assert_eq!(found(server("cluster_enabled:1\r\n", &[]))[0].0, Severity::Refuse);
    let mut node = server("cluster_enabled:1\r\n", &[]);
    node.name = Some("10.0.0.1:6379".to_owned());
    node.cluster = Server::of("cluster_state:fail\r\n", std::iter::empty()).info;
    let report = Report::of(&[node]);
    assert_eq!(report.findings[0].topic, Topic::Cluster);
    assert!(report.to_string().starts_with("warn: 10.0.0.1:6379: cluster state fail: "), "{report}");
}

#[test]
fn the_gravest_comes_first_and_each_has_its_line() {
    let report = Report::of(&[server("maxmemory_policy:allkeys-lru\r\naof_enabled:0\r\n", &[("save", "")])]);
    let severities: Vec<Severity> = report.findings.iter().map(|finding| finding.severity).collect();
    assert_eq!(severities, [Severity::Refuse, Severity::Warn, Severity::Info]);
    assert_eq!(report.to_string().lines().count(), 3);
}
