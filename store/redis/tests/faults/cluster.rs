//! A cluster whose slots move and whose primaries go.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use idempotency::{List, Settled, Store};
use idempotency_redis::{Report, Severity, Topic};
use idempotency_testbed::servers::RedisCluster;
use tokio::task::JoinSet;

use crate::support::{
    Answer, LONG, Ledger, Service, TIMEOUT, about, claim, grant, hasty, keys, lease, leaser, outcome, store, take,
};

fn url(cluster: &RedisCluster) -> String {
    cluster.url().replace("redis://", "redis+cluster://")
}

/// While the first request runs and its duplicates come, the slot of its record moves to another node.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_moves_during_traffic() {
    let cluster = Arc::new(RedisCluster::start_with(1, &[]));
    let ledger = Ledger::default();
    let services =
        [Service::of(store(&url(&cluster)).await, &ledger), Service::of(store(&url(&cluster)).await, &ledger)];
    let keys = keys("moving", 30);
    let mut conflicts = 0;
    for key in &keys {
        let slot = crc_slot(key);
        let from = cluster.owner_of(slot);
        let moved = Arc::new(AtomicBool::new(false));
        let mover = tokio::task::spawn_blocking({
            let (cluster, moved) = (Arc::clone(&cluster), Arc::clone(&moved));
            move || {
                cluster.move_slot(slot, from, (from + 1) % 3);
                moved.store(true, Ordering::SeqCst);
            }
        });
        let mut posts = JoinSet::new();
        for n in 0..6 {
            let (service, key, moved) = (services[n % 2].clone(), key.clone(), Arc::clone(&moved));
            posts.spawn(async move {
                let (mut conflicts, mut number) = (0, None);
                while number.is_none() || !moved.load(Ordering::SeqCst) {
                    let answer = service.post_slowly(&key, Duration::from_millis(50)).await;
                    answer.is_honest();
                    conflicts += u32::from(answer == Answer::InFlight);
                    assert!(number.is_none() || answer.number().is_none_or(|now| number == Some(now)), "{answer:?}");
                    number = number.or(answer.number());
                }
                (number, conflicts)
            });
        }
        let answers = posts.join_all().await;
        mover.await.unwrap();
        assert!(answers.iter().all(|(number, _)| *number == answers[0].0), "{answers:?}");
        conflicts += answers.iter().map(|(_, conflicts)| conflicts).sum::<u32>();
        assert_eq!(cluster.owner_of(slot), (from + 1) % 3);
    }
    assert!(conflicts > 0, "nothing overlapped: this proves nothing");
    ledger.has_each_once(&keys);
}

/// The slot of a record, as a cluster takes it from the hash tag.
fn crc_slot(key: &str) -> u16 {
    let crc = about(key).bytes().fold(0_u16, |crc, byte| {
        (0..8)
            .fold(crc ^ (u16::from(byte) << 8), |crc, _| if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 })
    });
    crc % 16_384
}

/// A record that has moved, and one that is not there, while its slot is half on its way.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_that_is_half_moved_answers_as_ever() {
    let cluster = RedisCluster::start();
    let store = store(&url(&cluster)).await;
    let service = Service::of(store.clone(), &Ledger::default());
    let slot = crc_slot("here");
    assert_eq!(slot, cluster.slot_of(&about("here")));
    let holder = grant(&store, &claim("here")).await;
    let (from, to) = (cluster.owner_of(slot), (cluster.owner_of(slot) + 1) % 3);
    let moving = cluster.begin_move(slot, from, to);
    // Still on the old node.
    assert_eq!(store.renew(&holder, lease(LONG)).await.unwrap(), Settled::Applied);
    moving.migrate();
    // On the new one, which does not have the slot yet, nor the scripts.
    assert_eq!(store.renew(&holder, lease(LONG)).await.unwrap(), Settled::Applied);
    assert_eq!(service.post("here").await, Answer::InFlight);
    assert_eq!(store.complete(&holder, &outcome()).await.unwrap(), Settled::Applied);
    moving.end();
    assert_eq!(store.complete(&holder, &outcome()).await.unwrap(), Settled::AlreadyApplied);
    assert_eq!(service.ledger.of("here"), 0);
}

/// SLOT: everything of one record is in one slot, whatever its key looks like.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_56_braces_in_a_key_do_not_move_it() {
    let cluster = RedisCluster::start();
    let store = store(&url(&cluster)).await;
    for n in 0..100 {
        let key = [format!("{n}"), format!("{{{n}"), format!("{n}}}"), format!("{{}}{n}"), format!("{{a}}{n}{{b}}")]
            [n % 5]
            .clone();
        let holder = grant(&store, &claim(&key)).await;
        assert_eq!(store.renew(&holder, lease(LONG)).await.unwrap(), Settled::Applied, "{key}");
        assert_eq!(store.complete(&holder, &outcome()).await.unwrap(), Settled::Applied, "{key}");
    }
    let names: Vec<String> = (0..3).map(|node| cluster.node(node).cli(&["KEYS", "*"])).collect();
    let names: Vec<&str> = names.iter().flat_map(|names| names.lines()).collect();
    assert_eq!(names.len(), 100);
    for name in names {
        let tag = name.strip_prefix("idem:{").and_then(|rest| rest.split_once('}')).map(|(tag, _)| tag);
        assert!(tag.is_some_and(|tag| tag.len() == 64 && tag.bytes().all(|byte| byte.is_ascii_hexdigit())), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_of_six_is_killed_and_its_replica_takes_over() {
    let mut cluster = RedisCluster::start_with(1, &[]);
    let service = Service::hasty(&url(&cluster), &Ledger::default()).await;
    let leaser = leaser(service.engine.store(), LONG);
    let first = take(&leaser).await;
    let token = first.token().unwrap();
    first.release().await.unwrap();
    let number = service.post_until_answered("key").await;
    let slot = crc_slot("key");
    let owner = cluster.owner_of(slot);
    cluster.node(owner).await_replicated();
    cluster.nodes()[owner].kill();
    let _ = cluster.await_failover(slot);
    assert_eq!(service.post_until_answered("key").await, number);
    assert_eq!(service.ledger.of("key"), 1);
    service.post_until_answered("another").await;
    let mut newer = None;
    idempotency_testbed::eventually("the lease can be had", async || {
        newer = leaser.try_acquire(&crate::support::account()).await.ok().and_then(idempotency::Taken::yours);
        newer.is_some()
    })
    .await;
    assert!(newer.unwrap().token().unwrap() > token);
}

/// A machine that hangs, or is cut off without a word: its connections stay open and silent for as long as it does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_that_stands_still_is_left_for_the_replica_that_took_over() {
    let mut cluster = RedisCluster::start_with(1, &[]);
    let service = Service::hasty(&url(&cluster), &Ledger::default()).await;
    let number = service.post_until_answered("key").await;
    let slot = crc_slot("key");
    let owner = cluster.owner_of(slot);
    cluster.node(owner).await_replicated();
    cluster.nodes()[owner].pause();
    let next = cluster.await_failover(slot);
    assert_ne!(next, owner);
    assert_eq!(service.post_until_answered("key").await, number);
    assert_eq!(service.ledger.of("key"), 1);
    let elsewhere = keys("another", 30);
    for key in &elsewhere {
        service.post_until_answered(key).await;
    }
    // It learns that it is a replica now, and everything goes on.
    cluster.nodes()[owner].resume();
    for key in elsewhere.iter().chain(&keys("a-third", 30)) {
        service.post_until_answered(key).await;
    }
    service.ledger.has_each_once(&elsewhere);
}

/// Where nobody can take over, whoever asks it again and again does not make the others wait.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_that_stands_still_leaves_the_other_slots_as_they_were() {
    let mut cluster = RedisCluster::start_with(0, &["--cluster-require-full-coverage", "no"]);
    let service = Service::hasty(&url(&cluster), &Ledger::default()).await;
    let owner = cluster.owner_of(crc_slot("silent"));
    let elsewhere: Vec<String> =
        keys("elsewhere", 20).into_iter().filter(|key| cluster.owner_of(crc_slot(key)) != owner).collect();
    cluster.nodes()[owner].pause();
    let done = Arc::new(AtomicBool::new(false));
    let asking = tokio::spawn({
        let (service, done) = (service.clone(), Arc::clone(&done));
        async move {
            let mut asked = 0;
            while !done.load(Ordering::SeqCst) {
                assert!(matches!(service.post("silent").await, Answer::Unavailable(_)));
                asked += 1;
            }
            asked
        }
    });
    let (mut answered, mut refused) = (0, 0);
    let until = tokio::time::Instant::now() + 16 * TIMEOUT;
    for key in elsewhere.iter().cycle() {
        match service.post(key).await {
            Answer::Unavailable(_) => refused += 1,
            answer => answered += u32::from(answer.number().is_some()),
        }
        if tokio::time::Instant::now() > until {
            break;
        }
    }
    done.store(true, Ordering::SeqCst);
    assert!(asking.await.unwrap() > 3, "nobody asked it: this proves nothing");
    assert!(answered > 100 && refused * 100 < answered, "{refused} refused and {answered} answered");
    cluster.nodes()[owner].resume();
    service.post_until_answered("silent").await;
    assert_eq!(service.ledger.of("silent"), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_check_looks_at_every_primary() {
    let cluster = RedisCluster::start();
    cluster.node(1).cli(&["CONFIG", "SET", "maxmemory", "100mb"]);
    cluster.node(1).cli(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    let report: Report = store(&url(&cluster)).await.check().await.unwrap();
    let evicting: Vec<&Option<String>> = report
        .findings
        .iter()
        .filter(|finding| finding.severity == Severity::Refuse)
        .map(|finding| &finding.server)
        .collect();
    assert_eq!(evicting, [&Some(format!("127.0.0.1:{}", cluster.node(1).port()))], "{report}");
    let unsafe_to_lose = report.findings.iter().filter(|finding| finding.what == "no persistence").count();
    assert_eq!(unsafe_to_lose, 3);
    // A node of a cluster is no single server.
    let single = store_of_one_node(&cluster).await;
    assert!(single.findings.iter().any(|f| (f.topic, f.severity) == (Topic::Cluster, Severity::Refuse)), "{single}");
}

/// What a health page shows when it matters most.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_check_says_which_primary_does_not_answer() {
    let mut cluster = RedisCluster::start();
    let store = hasty(&url(&cluster)).await;
    let gone = format!("127.0.0.1:{}", cluster.node(1).port());
    cluster.nodes()[1].kill();
    let report = store.check().await.unwrap();
    let silent: Vec<_> = report.findings.iter().filter(|finding| finding.what == "does not answer").collect();
    assert_eq!(silent.len(), 1, "{report}");
    assert_eq!(
        (silent[0].server.as_ref(), silent[0].severity, silent[0].topic),
        (Some(&gone), Severity::Warn, Topic::Cluster)
    );
    let of_others = report.findings.iter().filter(|finding| finding.what == "no persistence");
    assert!(of_others.clone().all(|finding| finding.server.as_ref() != Some(&gone)));
    assert_eq!(of_others.count(), 2, "{report}");
    let listed = store.list(&List::default()).await;
    assert!(listed.is_err(), "a part is taken for the whole: {listed:?}");
    cluster.nodes().iter_mut().for_each(idempotency_testbed::servers::Redis::kill);
    assert!(store.check().await.is_err(), "nobody answers");
}

async fn store_of_one_node(cluster: &RedisCluster) -> Report {
    for node in 0..3 {
        // Opening runs a script on one key, which only the node of its slot does.
        let options = idempotency_redis::RedisStore::options(&cluster.node(node).url());
        if let Ok(store) = options.open().await {
            return store.check().await.unwrap();
        }
    }
    panic!("no node has the slot")
}
