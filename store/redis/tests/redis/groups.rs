//! Operations that meet in one process.

use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::join_all;
use idempotency::{Claim, Claimed, Holder, Outcome, Settled, Store, StoreError, StoreErrorKind};
use idempotency_redis::RedisStore;
use idempotency_testbed::servers::Redis;
use idempotency_testbed::{Fate, Proxy};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::commands::sent;
use crate::support::{Place, claim, duplicate, grant, granted, outcome, replayed, run};

/// So many are sent alone before others wait for one of them.
const ALONE: usize = 8;

/// All at once, in this order.
async fn claims(store: &RedisStore, claims: &[Claim]) -> Vec<Result<Claimed, StoreError>> {
    join_all(claims.iter().map(|claim| store.claim(claim))).await
}

async fn completions(store: &RedisStore, all: &[(Holder, Outcome)]) -> Vec<Settled> {
    let completed = all.iter().map(|(holder, outcome)| store.complete(holder, outcome));
    join_all(completed).await.into_iter().map(Result::unwrap).collect()
}

fn fresh(name: &str, count: usize) -> Vec<Claim> {
    (0..count).map(|n| claim(&format!("{name}-{n}"))).collect()
}

fn holder(claim: &Claim, claimed: Claimed) -> Holder {
    Holder { id: claim.id, token: granted(claimed).token, nonce: claim.nonce }
}

#[tokio::test]
async fn those_that_meet_share_their_commands_and_each_is_told_its_own() {
    let server = Redis::start();
    let store = Place::at(server.url()).real_store().await;
    let (done, running, left) = (claim("done"), claim("running"), claim("left"));
    run(&store, &done, &outcome("answer")).await;
    let runs = grant(&store, &running).await;
    run(&store, &left, &Outcome::not_kept(201)).await;
    // The scripts for many are known.
    assert!(claims(&store, &fresh("warm", 2 * ALONE)).await.iter().all(Result::is_ok));

    let mut all = fresh("new", 60);
    let other = Claim { fingerprint: claim("other").fingerprint, ..duplicate(&done) };
    let special =
        [duplicate(&done), duplicate(&running), other, running.clone(), duplicate(&left), duplicate(&all[50])];
    all.extend(special);
    let mut answers = Vec::new();
    let names = sent(&server, async { answers = claims(&store, &all).await }).await;
    assert!(names.len() <= 2 * ALONE, "{} commands for {}", names.len(), all.len());
    let mut answers: Vec<_> = answers.into_iter().map(Result::unwrap).collect();
    let told = answers.split_off(60);
    let holders: Vec<_> = all.iter().zip(answers).map(|(claim, claimed)| holder(claim, claimed)).collect();
    let [replay, conflict, mismatch, own, executed, late] = told.try_into().unwrap();
    assert_eq!(replayed(replay), outcome("answer"));
    assert!(matches!(conflict, Claimed::InFlight { .. }));
    assert_eq!(mismatch, Claimed::Mismatch);
    granted(own);
    assert!(matches!(executed, Claimed::Executed(_)));
    assert!(matches!(late, Claimed::InFlight { .. }), "of two about one key the second one comes second: {late:?}");

    let outcome_of = |n: usize| match n % 4 {
        0 => outcome("plain").with_location(None),
        1 => outcome("moved").with_location(Some("/there")),
        2 => outcome("nowhere").with_location(Some("")),
        _ => Outcome::not_kept(204).with_location(Some("/gone")),
    };
    let mut ends: Vec<_> = holders.iter().enumerate().map(|(n, holder)| (*holder, outcome_of(n))).collect();
    let stranger = Holder { nonce: claim("stranger").nonce, ..runs };
    ends.push((stranger, outcome("not its own")));
    ends.push(ends[0].clone());
    let mut settled = Vec::new();
    let names = sent(&server, async { settled = completions(&store, &ends).await }).await;
    assert!(names.len() <= 30 + 2 * ALONE, "{} commands for {}", names.len(), ends.len());
    assert_eq!(settled.split_off(60), [Settled::Superseded, Settled::AlreadyApplied]);
    assert!(settled.iter().all(|settled| *settled == Settled::Applied));

    let again: Vec<_> = all[..60].iter().map(duplicate).collect();
    for (n, claimed) in claims(&store, &again).await.into_iter().enumerate() {
        match claimed.unwrap() {
            Claimed::Replay { outcome, .. } => assert_eq!(outcome, outcome_of(n)),
            Claimed::Executed(tombstone) => {
                assert_eq!((n % 4, tombstone.location.as_deref(), tombstone.status), (3, Some("/gone"), 204));
            }
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn a_full_server_refuses_those_of_a_group_that_are_new() {
    let server = Redis::start();
    let store = Place::at(server.url()).real_store().await;
    let done = claim("done");
    run(&store, &done, &outcome("answer")).await;
    assert!(claims(&store, &fresh("warm", 2 * ALONE)).await.iter().all(Result::is_ok));
    server.cli(&["CONFIG", "SET", "maxmemory", "1"]);
    let mut all = fresh("new", 2 * ALONE);
    all.push(duplicate(&done));
    let mut answers: Vec<_> = claims(&store, &all).await.into_iter().map(Result::unwrap).collect();
    assert_eq!(replayed(answers.pop().unwrap()), outcome("answer"));
    assert!(answers.iter().all(|claimed| *claimed == Claimed::Full), "{answers:?}");
}

/// What one server answers that is a cluster, to who takes it for one that is not.
#[tokio::test]
async fn a_server_that_minds_slots_is_asked_about_each_key_alone() {
    let server = Redis::start_with(&["--cluster-enabled", "yes"]);
    server.cli(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]);
    while !server.cli(&["CLUSTER", "INFO"]).contains("cluster_state:ok") {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let store = Place::at(server.url()).real_store().await;
    let first = fresh("first", 20);
    let held = claims(&store, &first).await;
    let ends: Vec<_> =
        first.iter().zip(held).map(|(claim, held)| (holder(claim, held.unwrap()), outcome("answer"))).collect();
    assert!(completions(&store, &ends).await.iter().all(|settled| *settled == Settled::Applied));
    let refused = || {
        let stats = server.info("commandstats", "cmdstat_evalsha");
        stats.split_once("rejected_calls=").unwrap().1.split(',').next().unwrap().parse::<u32>().unwrap()
    };
    let before = refused();
    assert!(before > 0, "it minds");
    for claimed in claims(&store, &fresh("second", 20)).await {
        granted(claimed.unwrap());
    }
    assert_eq!(refused(), before, "the store has learnt");
}

#[tokio::test]
async fn what_is_given_up_while_it_waits_is_not_sent_and_whoever_gives_up_leaves_its_place() {
    let mut server = Redis::start();
    let place = Place::at(server.url());
    let (store, direct) = (place.real_store().await, place.real_store().await);
    run(&store, &claim("warm"), &outcome("answer")).await;
    let all = fresh("k", ALONE + 4);
    server.pause();
    let mut under_way: Vec<_> = all[..ALONE].iter().map(|claim| Box::pin(store.claim(claim))).collect();
    let mut given_up = Box::pin(store.claim(&all[ALONE]));
    for operation in under_way.iter_mut().chain([&mut given_up]) {
        // Polled once, so that it is sent or waits.
        assert!(timeout(Duration::ZERO, operation).await.is_err());
    }
    let others: Vec<JoinHandle<_>> = all[ALONE + 1..]
        .iter()
        .map(|claim| {
            let (store, claim) = (store.clone(), claim.clone());
            tokio::spawn(async move { store.claim(&claim).await })
        })
        .collect();
    tokio::task::yield_now().await;
    drop(given_up);
    // They are under way, and nobody hears of them.
    drop(under_way);
    tokio::time::sleep(Duration::from_millis(50)).await;
    server.resume();
    for other in others {
        granted(other.await.unwrap().unwrap());
    }
    assert_eq!(direct.inspect(&all[ALONE].id).await.unwrap(), None);
    assert!(direct.inspect(&all[0].id).await.unwrap().is_some());
    let next = claims(&store, &fresh("next", 20)).await;
    assert!(next.into_iter().all(|claimed| granted(claimed.unwrap()).attempt == 1));
}

/// All are told that it is not known, and each that asks again is recognised.
#[tokio::test]
async fn a_group_whose_connection_breaks_before_the_answer_is_known_to_nobody() {
    let server = Redis::start();
    let proxy = Proxy::to(server.port());
    let store = Place::at(server.url_at(proxy.port(), 0)).real_store().await;
    let warm = claims(&store, &fresh("warm", 2 * ALONE)).await;
    assert!(warm.iter().all(Result::is_ok));
    let all = fresh("k", 20);
    let rule = proxy.on_reply_to(all[19].id.to_string(), 1, Fate::Reset);
    let answers = claims(&store, &all).await;
    assert!(rule.has_fired());
    let kinds: Vec<_> = answers.iter().map(|answer| answer.as_ref().map_err(StoreError::kind).err()).collect();
    assert!(kinds[ALONE..].iter().all(|kind| *kind == Some(StoreErrorKind::Unavailable)), "{kinds:?}");
    for claimed in claims(&store, &all).await {
        assert_eq!(granted(claimed.unwrap()).attempt, 1);
    }
}

#[tokio::test]
async fn whoever_stands_still_keeps_nobody_waiting() {
    let mut server = Redis::start();
    let store = Place::at(server.url()).real_store().await;
    let all = fresh("k", ALONE + 3);
    let mut kept: Vec<_> = all[..ALONE].iter().map(|claim| Box::pin(store.claim(claim))).collect();
    run(&store, &claim("warm"), &outcome("answer")).await;
    server.pause();
    for operation in &mut kept {
        assert!(timeout(Duration::ZERO, operation).await.is_err());
    }
    server.resume();
    // Nobody polls those from here on.
    for claimed in claims(&store, &all[ALONE..]).await {
        granted(claimed.unwrap());
    }
    assert!(join_all(kept).await.iter().all(Result::is_ok));
}

/// Nor by connecting, which goes on without whoever began it.
#[tokio::test]
async fn whoever_stands_still_as_it_connects_keeps_nobody_waiting() {
    let mut server = Redis::start();
    let options = Place::at(server.url()).real_options().response_timeout(Duration::from_secs(2));
    let store = options.open().await.unwrap();
    server.pause();
    assert!(store.claim(&claim("late")).await.is_err());
    let again = claim("again");
    let mut kept = Box::pin(store.claim(&again));
    assert!(kept.as_mut().now_or_never().is_none());
    server.resume();
    granted(store.claim(&claim("k")).await.unwrap());
    granted(kept.await.unwrap());
}

/// As when the task that is to send a group stands behind one that blocks its thread.
#[tokio::test]
async fn a_runtime_that_stands_still_keeps_nobody_of_another_waiting() {
    let mut server = Redis::start();
    let store = Place::at(server.url()).real_store().await;
    let still = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let all = fresh("k", ALONE + 5);
    let mut operations: Vec<_> = all.iter().map(|claim| Box::pin(store.claim(claim))).collect();
    run(&store, &claim("warm"), &outcome("answer")).await;
    server.pause();
    for (n, operation) in operations.iter_mut().enumerate() {
        // The first of those who wait is of the runtime that nobody drives, and so is the task.
        let _entered = (n == ALONE).then(|| still.enter());
        assert!(operation.as_mut().now_or_never().is_none());
    }
    server.resume();
    let first = operations.remove(ALONE);
    for claimed in join_all(operations).await {
        granted(claimed.unwrap());
    }
    // It ends, and leaves its places.
    still.shutdown_background();
    drop(first);
    let next = claims(&store, &fresh("next", 40)).await;
    assert!(next.into_iter().all(|claimed| granted(claimed.unwrap()).attempt == 1));
    let names = sent(&server, async {
        assert!(claims(&store, &fresh("shared", 40)).await.iter().all(Result::is_ok));
    });
    assert!(names.await.len() <= 2 * ALONE);
}

#[tokio::test]
async fn nothing_is_shared_where_it_must_not_be() {
    let server = Redis::start();
    let store = Place::at(server.url()).real_options().share_commands(false).open().await.unwrap();
    let names = sent(&server, async {
        assert!(claims(&store, &fresh("k", 30)).await.iter().all(Result::is_ok));
    });
    assert!(names.await.len() >= 30);
}

#[tokio::test]
async fn completions_whose_answer_is_lost_are_asked_for_again() {
    let server = Redis::start();
    let proxy = Proxy::to(server.port());
    let store = Place::at(server.url_at(proxy.port(), 0)).real_store().await;
    let all = fresh("k", 20);
    let held = claims(&store, &all).await;
    let ends: Vec<_> =
        all.iter().zip(held).map(|(claim, held)| (holder(claim, held.unwrap()), outcome("answer"))).collect();
    let rule = proxy.on_reply_to(all[19].id.to_string(), 1, Fate::Reset);
    for settled in completions(&store, &ends).await {
        assert!(matches!(settled, Settled::Applied | Settled::AlreadyApplied), "{settled:?}");
    }
    assert!(rule.has_fired());
}

#[tokio::test]
async fn tokens_of_a_group_differ_and_large_answers_come_alone() {
    let server = Redis::start();
    let store = Place::at(server.url()).real_store().await;
    let all = fresh("k", 40);
    let held = claims(&store, &all).await;
    let holders: Vec<_> = all.iter().zip(held).map(|(claim, held)| holder(claim, held.unwrap())).collect();
    let mut tokens: Vec<_> = holders[ALONE..].iter().map(|holder| holder.token).collect();
    tokens.sort_unstable();
    tokens.dedup();
    assert!(tokens.len() >= 31, "of a group no two have the same: {}", tokens.len());
    let large = Outcome::new(200, vec![b'x'; 100_000].into());
    let ends: Vec<_> = holders.into_iter().map(|holder| (holder, large.clone())).collect();
    assert!(completions(&store, &ends).await.iter().all(|settled| *settled == Settled::Applied));
    let again: Vec<_> = all.iter().map(duplicate).collect();
    let names = sent(&server, async {
        for claimed in claims(&store, &again).await {
            assert_eq!(replayed(claimed.unwrap()), large);
        }
    });
    assert!(names.await.len() > ALONE + 20, "two of these are in an answer at most");
}
