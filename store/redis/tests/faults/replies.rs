//! Replies that are late or lost although what they answer was carried out.

use std::time::Duration;

use idempotency::{Acquired, Ask, Claimed, LeaseHolder, Leases, Nonce, Settled, State, Store, StoreErrorKind, Taken};
use idempotency_redis::RedisStore;
use idempotency_testbed::servers::Redis;
use idempotency_testbed::{Fate, Proxy, Rule, Way, eventually};
use tokio::task::JoinSet;

use crate::support::{
    Answer, DEAD_FOR, LONG, Ledger, PATIENT, Service, TIMEOUT, about, account, claim, grant, granted, hasty, id, keys,
    lease, leaser, operation, outcome, store, take, warm,
};

struct Rig {
    redis: Redis,
    proxy: Proxy,
}

impl Rig {
    async fn start() -> Self {
        let redis = Redis::start();
        warm(&store(&redis.url()).await).await;
        Self { proxy: Proxy::to(redis.port()), redis }
    }

    async fn direct(&self) -> RedisStore {
        store(&self.redis.url()).await
    }

    /// Through the proxy.
    fn url(&self) -> String {
        self.redis.url_at(self.proxy.port(), 0)
    }

    /// The connections end for who sent something that this rule holds on its way.
    async fn break_off(&self, rule: &Rule) {
        eventually("it is on its way", async || rule.has_fired()).await;
        self.proxy.half_close(Way::ToClient);
    }

    /// What was held on its way arrives.
    async fn deliver(&self) {
        let scripts_run = || self.redis.info("commandstats", "cmdstat_evalsha");
        let before = scripts_run();
        self.proxy.release();
        eventually("it arrives", async || scripts_run() != before).await;
    }
}

/// GOREDIS-2985: applied, and the reply comes after the client has given up. It asks again, and gets what it was given.
#[tokio::test]
async fn case_50_a_claim_whose_reply_is_late_is_recognised_by_its_nonce() {
    let rig = Rig::start().await;
    let (store, direct) = (hasty(&rig.url()).await, store(&rig.redis.url()).await);
    let request = claim("late");
    let rule = rig.proxy.on_reply_to(about("late"), 1, Fate::Hold);
    assert_eq!(store.claim(&request).await.unwrap_err().kind(), StoreErrorKind::Timeout);
    assert!(rule.has_fired());
    // It was carried out: others are told so.
    assert!(matches!(direct.claim(&claim("late")).await.unwrap(), Claimed::InFlight { .. }));
    let holder = grant(&store, &request).await;
    assert_eq!(granted(direct.claim(&request).await.unwrap()).token, holder.token);
    // The late reply answers nothing else.
    rig.proxy.release();
    assert_eq!(store.complete(&holder, &outcome()).await.unwrap(), Settled::Applied);
    assert!(matches!(store.claim(&claim("late")).await.unwrap(), Claimed::Replay { .. }));
}

/// The connection drops between the write and its reply, and the client's second try is its own.
#[tokio::test]
async fn case_50_a_claim_whose_connection_drops_before_the_reply_is_no_conflict() {
    let rig = Rig::start().await;
    let store = hasty(&rig.url()).await;
    let request = claim("dropped");
    let rule = rig.proxy.on_reply_to(about("dropped"), 1, Fate::Reset);
    assert_eq!(store.claim(&request).await.unwrap_err().kind(), StoreErrorKind::Unavailable);
    assert!(rule.has_fired());
    let first = granted(store.claim(&request).await.unwrap());
    assert_eq!((first.attempt, granted(store.claim(&request).await.unwrap()).token), (1, first.token));
}

/// The connection breaks while the claim is on its way, the second try is answered, and then the first arrives.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_arrives_after_its_second_try_was_answered_holds_nothing() {
    let rig = Rig::start().await;
    let (engine, direct) = (Service::of(store(&rig.url()).await, &Ledger::default()).engine, rig.direct().await);
    let holder = grant(&direct, &claim("late")).await;
    let rule = rig.proxy.on_request(about("late"), 1, Fate::Hold);
    let operation = operation("late");
    let (answer, ()) = tokio::join!(engine.claim(&operation), rig.break_off(&rule));
    let answer = answer.unwrap();
    assert!(matches!(answer, idempotency::Answer::DoNot(Claimed::InFlight { .. })), "{answer:?}");
    assert!(engine.drain(PATIENT).await);
    assert_eq!(direct.release(&holder, DEAD_FOR).await.unwrap(), Settled::Applied);
    rig.deliver().await;
    assert_eq!(direct.inspect(&id("late")).await.unwrap().unwrap().state, State::Released, "its nonce is dead");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_asking_for_a_lease_that_arrives_after_its_second_try_was_answered_holds_nothing() {
    let rig = Rig::start().await;
    let (asker, direct) = (leaser(&store(&rig.url()).await, LONG), rig.direct().await);
    let held = take(&leaser(&direct, LONG)).await;
    let rule = rig.proxy.on_request(account().as_bytes(), 1, Fate::Hold);
    let account = account();
    let (answer, ()) = tokio::join!(asker.try_acquire(&account), rig.break_off(&rule));
    let answer = answer.unwrap();
    assert!(matches!(answer, Taken::Held { .. }), "{answer:?}");
    assert!(asker.drain(PATIENT).await);
    held.release().await.unwrap();
    rig.deliver().await;
    let left = direct.leases().inspect(&account).await.unwrap().and_then(|entry| entry.lease_left);
    assert_eq!(left, None, "its nonce is dead");
}

/// On connections that wait for replicas too: whoever asks is told, also when it was broken for long before.
#[tokio::test]
async fn what_grants_is_not_sent_again_by_the_store() {
    let rig = Rig::start().await;
    let patient = || RedisStore::options(&rig.url()).response_timeout(PATIENT);
    for options in [patient(), patient().wait_for_replicas(1, Duration::from_millis(10))] {
        let store = options.open().await.unwrap();
        // There is a connection, whatever comes of this.
        let _ = store.claim(&claim("elsewhere")).await;
        rig.proxy.forget();
        let rule = rig.proxy.on_request(about("claimed"), 1, Fate::Reset);
        assert_eq!(store.claim(&claim("claimed")).await.unwrap_err().kind(), StoreErrorKind::Unavailable);
        assert!(rule.has_fired());
        assert_eq!(rig.proxy.count(about("claimed")), 1);
        let _ = store.claim(&claim("elsewhere")).await;
        rig.proxy.forget();
        let rule = rig.proxy.on_request(account().as_bytes(), 1, Fate::Reset);
        let ask = Ask { resource: account(), nonce: Nonce::random(), lease: lease(LONG), above: None };
        assert_eq!(store.leases().try_acquire(&ask).await.unwrap_err().kind(), StoreErrorKind::Unavailable);
        assert!(rule.has_fired());
        assert_eq!(rig.proxy.count(account().as_bytes()), 1);
    }
}

/// Busy would say that nothing was carried out. The second copy was not; the first was.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_busy_when_a_message_is_sent_again_says_nothing_of_the_first_copy() {
    let rig = Rig::start().await;
    let (store, direct) = (store(&rig.url()).await, rig.direct().await);
    let holder = grant(&store, &claim("busy")).await;
    rig.redis.cli(&["CONFIG", "SET", "busy-reply-threshold", "1"]);
    let rule = rig.proxy.on_reply_to(about("busy"), 1, Fate::Hold);
    let completing = tokio::spawn(async move { store.complete(&holder, &outcome()).await });
    let completed = async || direct.inspect(&id("busy")).await.unwrap().unwrap().state == State::Completed;
    eventually("it is carried out", completed).await;
    let mut other = redis::Client::open(rig.redis.url()).unwrap().get_multiplexed_async_connection().await.unwrap();
    let script = tokio::spawn(async move {
        redis::cmd("EVAL").arg("while true do end").arg(0).query_async::<redis::Value>(&mut other).await
    });
    eventually("it is busy", async || rig.redis.try_cli(&["ECHO", "hello"]) != Ok("hello".to_owned())).await;
    assert!(rule.has_fired());
    rig.proxy.reset();
    let error = completing.await.unwrap().unwrap_err();
    rig.redis.cli(&["SCRIPT", "KILL"]);
    assert!(script.await.unwrap().is_err());
    assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error:?}");
}

#[tokio::test]
async fn case_50_settling_that_was_carried_out_is_so_when_it_is_repeated() {
    let rig = Rig::start().await;
    let store = hasty(&rig.url()).await;
    for fate in [Fate::Hold, Fate::Silence] {
        let completed = grant(&store, &claim(&format!("completed-{fate:?}"))).await;
        rig.proxy.on_reply_to(completed.id.to_string(), 1, fate);
        assert_eq!(store.complete(&completed, &outcome()).await.unwrap_err().kind(), StoreErrorKind::Timeout);
        assert_eq!(store.complete(&completed, &outcome()).await.unwrap(), Settled::AlreadyApplied);
        let released = grant(&store, &claim(&format!("released-{fate:?}"))).await;
        rig.proxy.on_reply_to(released.id.to_string(), 1, fate);
        assert_eq!(store.release(&released, DEAD_FOR).await.unwrap_err().kind(), StoreErrorKind::Timeout);
        assert_eq!(store.release(&released, DEAD_FOR).await.unwrap(), Settled::AlreadyApplied);
        rig.proxy.release();
    }
}

#[tokio::test]
async fn case_50_a_lease_whose_reply_is_late_is_recognised_by_its_nonce() {
    let rig = Rig::start().await;
    let leases = hasty(&rig.url()).await.leases();
    let ask = Ask { resource: account(), nonce: Nonce::random(), lease: lease(LONG), above: None };
    rig.proxy.hold(Way::ToClient);
    assert_eq!(leases.try_acquire(&ask).await.unwrap_err().kind(), StoreErrorKind::Timeout);
    rig.proxy.heal();
    let Acquired::Granted(grant) = leases.try_acquire(&ask).await.unwrap() else { panic!("not its own") };
    let holder = LeaseHolder { resource: account(), token: grant.token, nonce: ask.nonce };
    assert_eq!(leases.release(&holder, DEAD_FOR).await.unwrap(), Settled::Applied);
}

/// A reply is not lost for ever: a connection on which nothing comes any more is given up, also when whoever waited for the answer
/// went away first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_has_gone_silent_is_given_up() {
    let rig = Rig::start().await;
    let service = Service::hasty(&rig.url(), &Ledger::default()).await;
    service.post("before").await.is_honest();
    let before = rig.proxy.connections();
    rig.proxy.on_reply_to(about("silent"), 1, Fate::Silence);
    assert!(matches!(service.post("silent").await, Answer::Unavailable(_)));
    // Long before TCP notices.
    service.post_until_answered("silent").await;
    assert!(rig.proxy.connections() > before);
    assert_eq!(service.ledger.of("silent"), 1);
}

/// Nor does it stay when those who ask wait for a shorter time than the store does, and so are never there to see its timeout.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_has_gone_silent_is_given_up_although_nobody_waits_for_its_timeout() {
    let rig = Rig::start().await;
    let patient = RedisStore::options(&rig.url()).response_timeout(3 * TIMEOUT).open().await.unwrap();
    let service = Service::with_timeout(patient, &Ledger::default(), TIMEOUT);
    service.post("before").await.is_honest();
    rig.proxy.on_reply_to(about("silent"), 1, Fate::Silence);
    assert!(matches!(service.post("silent").await, Answer::Unavailable(_)));
    service.post_until_answered("silent").await;
    assert_eq!(service.ledger.of("silent"), 1);
}

/// IAPI-23: answers that take up to two seconds, where nobody waits for longer than half a second.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_51_random_latency_makes_nothing_run_twice() {
    let rig = Rig::start().await;
    let ledger = Ledger::default();
    let mut services = Vec::new();
    for _ in 0..2 {
        services.push(Service::hasty(&rig.url(), &ledger).await);
    }
    rig.proxy.delay(Duration::ZERO..Duration::from_secs(2));
    let keys = keys("slow", 200);
    let mut posts = JoinSet::new();
    for (n, key) in keys.iter().cycle().take(5 * keys.len()).cloned().enumerate() {
        let service = services[n % 2].clone();
        posts.spawn(async move { service.post(&key).await });
    }
    let answers = posts.join_all().await;
    answers.iter().for_each(|answer| answer.is_honest());
    let refused = answers.iter().filter(|answer| answer.number().is_none()).count();
    assert!(refused > 0, "nothing was late: this proves nothing");
    assert!(keys.iter().all(|key| ledger.of(key) <= 1));
    rig.proxy.heal();
    // Nobody's lost message holds a key: all are answered long before a lease ends.
    let mut posts = JoinSet::new();
    for (n, key) in keys.iter().cloned().enumerate() {
        let service = services[n % 2].clone();
        posts.spawn(async move { service.post_until_answered(&key).await });
    }
    posts.join_all().await;
    ledger.has_each_once(&keys);
}

/// The other half: only the recording of the outcome is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_51_a_completion_whose_reply_is_lost_is_not_forgotten() {
    for (fate, carried_out) in
        [(Fate::Silence, true), (Fate::Reset, true), (Fate::Silence, false), (Fate::Reset, false)]
    {
        let rig = Rig::start().await;
        let service = Service::hasty(&rig.url(), &Ledger::default()).await;
        let other = Service::of(store(&rig.redis.url()).await, &service.ledger);
        let rule = if carried_out {
            rig.proxy.on_reply_to(about("key"), 2, fate)
        } else {
            rig.proxy.on_request(about("key"), 2, fate)
        };
        let Answer::Charged(number) = service.post("key").await else { panic!("it was to run") };
        assert!(rule.has_fired());
        assert_eq!(other.post_until_answered("key").await, number, "{fate:?}");
        assert_eq!(service.ledger.of("key"), 1);
    }
}
