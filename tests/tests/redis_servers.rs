//! The private Redis servers themselves: what they lose and keep, and that they do what the fault tests need of them.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::process::Command;

use idempotency_testbed::servers::{Redis, RedisCluster, RedisSentinel};

#[test]
fn a_killed_server_has_what_its_settings_put_on_disk() {
    for (arguments, kept) in [(&[][..], ""), (&["--appendonly", "yes", "--appendfsync", "always"], "here")] {
        let mut redis = Redis::start_with(arguments);
        redis.cli(&["SET", "key", "here"]);
        redis.kill();
        redis.restart();
        assert_eq!(redis.cli(&["GET", "key"]), kept, "{arguments:?}");
        redis.restart_empty();
        assert_eq!(redis.cli(&["DBSIZE"]), "0", "{arguments:?}");
    }
}

#[test]
fn a_paused_server_carries_out_what_it_was_sent_when_it_goes_on() {
    let mut redis = Redis::start();
    redis.pause();
    let port = redis.port().to_string();
    let mut asked = Command::new("redis-cli").args(["-p", &port, "SET", "key", "here"]).spawn().unwrap();
    assert!(asked.try_wait().unwrap().is_none());
    redis.resume();
    assert!(asked.wait().unwrap().success());
    assert_eq!(redis.cli(&["GET", "key"]), "here");
}

#[test]
fn a_password_is_in_the_url_and_errors_are_told() {
    let redis = Redis::start_with(&["--requirepass", "secret"]);
    assert_eq!(redis.url_of(3), format!("redis://:secret@127.0.0.1:{}/3", redis.port()));
    assert_eq!(redis.cli(&["PING"]), "PONG");
    assert!(redis.try_cli(&["GET"]).unwrap_err().contains("wrong number of arguments"));
}

#[test]
fn a_server_that_speaks_tls_speaks_nothing_else() {
    let redis = Redis::start_tls(&[]);
    assert_eq!(redis.cli(&["PING"]), "PONG");
    assert!(redis.url().starts_with("rediss://"));
    let plain = Command::new("redis-cli").args(["-e", "-p", &redis.port().to_string(), "PING"]).output().unwrap();
    assert!(!plain.status.success());
}

#[test]
fn a_clock_is_set_for_scripts_and_for_expiry() {
    let redis = Redis::start_with_clock(&[]);
    let clock = || redis.cli(&["EVAL", "return redis.call('TIME')[1]", "0"]).parse::<i64>().unwrap();
    redis.cli(&["SET", "key", "here", "EX", "100"]);
    let before = clock();
    redis.set_clock(-60);
    assert!((before - 60..before - 55).contains(&clock()));
    redis.set_clock(101);
    assert_eq!(redis.cli(&["GET", "key"]), "");
}

#[test]
fn a_promoted_replica_has_what_it_got_in_time() {
    let (mut primary, replica) = (Redis::start(), Redis::start());
    replica.replica_of(&primary);
    primary.cli(&["SET", "key", "here"]);
    primary.await_replicated();
    primary.kill();
    replica.promote();
    assert_eq!(replica.cli(&["GET", "key"]), "here");
    replica.cli(&["SET", "key", "there"]);
}

#[test]
fn sentinels_replace_a_primary_that_is_gone() {
    let mut redis = RedisSentinel::start();
    assert_eq!(redis.primary(), Some(0));
    redis.nodes()[0].kill();
    let primary = redis.await_failover(0);
    redis.nodes()[primary].cli(&["SET", "key", "here"]);
}

#[test]
fn a_slot_moves_with_its_keys() {
    let cluster = RedisCluster::start();
    let slot = cluster.slot_of("key");
    let (from, to) = (cluster.owner_of(slot), (cluster.owner_of(slot) + 1) % 3);
    cluster.node(from).cli(&["SET", "key", "here"]);
    let moving = cluster.begin_move(slot, from, to);
    moving.migrate();
    assert!(cluster.node(from).try_cli(&["GET", "key"]).unwrap_err().contains("ASK"));
    moving.end();
    assert_eq!(cluster.owner_of(slot), to);
    assert_eq!(cluster.node(to).cli(&["GET", "key"]), "here");
    assert!(cluster.node(from).try_cli(&["GET", "key"]).unwrap_err().contains("MOVED"));
    cluster.move_slot(slot, to, from);
    assert_eq!(cluster.node(from).cli(&["GET", "key"]), "here");
}

#[test]
fn a_cluster_of_six_replaces_a_primary_that_is_gone() {
    let mut cluster = RedisCluster::start_with(1, &[]);
    let slot = cluster.slot_of("key");
    let owner = cluster.owner_of(slot);
    cluster.node(owner).cli(&["SET", "key", "here"]);
    cluster.node(owner).await_replicated();
    cluster.nodes()[owner].kill();
    let owner = cluster.await_failover(slot);
    assert_eq!(cluster.node(owner).cli(&["GET", "key"]), "here");
}

#[test]
fn nothing_is_left_behind() {
    let (pid, folder) = {
        let redis = Redis::start();
        (redis.info("server", "process_id"), redis.cli(&["CONFIG", "GET", "dir"]).lines().nth(1).unwrap().to_owned())
    };
    assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
    assert!(!std::path::Path::new(&folder).parent().unwrap().exists());
}
