//! Those who wait are told of what ends, by one connection for all; and where they are not, they ask every so often.

use std::time::Duration;

use idempotency::faults::{FaultyStore, Op};
use idempotency::watch::Watch;
use idempotency::{
    Acquired, Answer, Ask, Claim, Claimed, Engine, Fingerprint, InFlight, Key, Lease, LeaseHolder, LeaseSettings,
    Leaser, Leases, Nonce, Operation, RecordId, Resolve, ResolveVerdict, Resource, ScopeId, Settings, Settled, Store,
    Taken,
};
use idempotency_redis::RedisStore;
use idempotency_testbed::Proxy;
use idempotency_testbed::servers::Redis;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use crate::support::{DEAD_FOR, Place, claim, grant, outcome, run};

/// Much longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(30);

/// Who is told asks again after so long at the earliest.
const SHORTEST_POLL: Duration = Duration::from_millis(500);

async fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let until = async {
        while !is_so() {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(PATIENCE, until).await.unwrap_or_else(|_| panic!("never: {what}"));
}

async fn told(watch: &mut Watch) {
    timeout(PATIENCE, watch.changed()).await.expect("told");
}

async fn listening(watch: &mut Watch) {
    eventually("listening", || watch.is_told()).await;
    is_told_now(watch).await;
}

async fn is_told_now(watch: &mut Watch) -> bool {
    timeout(Duration::ZERO, watch.changed()).await.is_ok()
}

/// What is done before this has been told of by now: hints of one connection come in their order.
async fn after_all_hints(store: &RedisStore) {
    let last = claim("the last");
    let mut watch = store.watch(&last.id);
    listening(&mut watch).await;
    let holder = grant(store, &Claim { nonce: Nonce::random(), ..last }).await;
    assert_eq!(store.release(&holder, DEAD_FOR).await.unwrap(), Settled::Applied);
    told(&mut watch).await;
}

fn subscribers(server: &Redis, channel: &str) -> String {
    server.cli(&["PUBSUB", "NUMSUB", channel]).lines().nth(1).unwrap().to_owned()
}

fn listeners(server: &Redis) -> usize {
    server.cli(&["CLIENT", "LIST", "TYPE", "pubsub"]).lines().filter(|line| !line.is_empty()).count()
}

#[tokio::test]
async fn whatever_ends_an_attempt_is_told() {
    let server = Redis::start();
    let store = Place::at(server.url()).real_store().await;
    let (ended, running) = (claim("ended"), claim("running"));
    let again = || Claim { nonce: Nonce::random(), ..ended.clone() };
    let (mut watch, mut other) = (store.watch(&ended.id), store.watch(&running.id));
    listening(&mut watch).await;
    listening(&mut other).await;

    grant(&store, &running).await;
    let holder = grant(&store, &again()).await;
    store.renew(&holder, Lease::default()).await.unwrap();
    store.abandon(&ended.id, Nonce::random(), DEAD_FOR).await.unwrap();
    after_all_hints(&store).await;
    assert!(!is_told_now(&mut watch).await, "nothing has ended");

    assert_eq!(store.release(&holder, DEAD_FOR).await.unwrap(), Settled::Applied);
    told(&mut watch).await;
    let lost = again();
    grant(&store, &lost).await;
    store.abandon(&lost.id, lost.nonce, DEAD_FOR).await.unwrap();
    told(&mut watch).await;
    let holder = grant(&store, &again()).await;
    assert_eq!(store.mark_in_doubt(&holder, None).await.unwrap(), Settled::Applied);
    told(&mut watch).await;
    let verdict = ResolveVerdict::DidNotHappen { fence_token: None };
    let resolve = Resolve { id: ended.id, token_seen: holder.token, verdict, who: "a test".into(), why: "so".into() };
    let _ = store.resolve(&resolve).await.unwrap();
    told(&mut watch).await;
    let holder = grant(&store, &again()).await;
    assert_eq!(store.complete(&holder, &outcome("answer")).await.unwrap(), Settled::Applied);
    told(&mut watch).await;

    assert_eq!(store.release(&holder, DEAD_FOR).await.unwrap(), Settled::Superseded);
    after_all_hints(&store).await;
    assert!(!is_told_now(&mut watch).await, "refused");
    assert!(!is_told_now(&mut other).await, "all that was another record");
}

#[tokio::test]
async fn whatever_gives_a_lease_back_is_told() {
    let server = Redis::start();
    let store = Place::at(server.url()).real_store().await;
    let leases = store.leases();
    let account = Resource::parse("account/7").unwrap();
    let mut watch = leases.watch(&account);
    listening(&mut watch).await;
    let ask = || Ask { resource: account.clone(), nonce: Nonce::random(), lease: Lease::default(), above: None };

    let first = ask();
    let Acquired::Granted(grant) = leases.try_acquire(&first).await.unwrap() else { panic!("nobody else has it") };
    let holder = LeaseHolder { resource: account.clone(), token: grant.token, nonce: first.nonce };
    leases.renew(&holder, Lease::default()).await.unwrap();
    leases.abandon(&account, Nonce::random(), DEAD_FOR).await.unwrap();
    after_all_hints(&store).await;
    assert!(!is_told_now(&mut watch).await, "nothing has ended");

    assert_eq!(leases.release(&holder, DEAD_FOR).await.unwrap(), Settled::Applied);
    told(&mut watch).await;
    let second = ask();
    assert!(matches!(leases.try_acquire(&second).await.unwrap(), Acquired::Granted(_)));
    leases.abandon(&account, second.nonce, DEAD_FOR).await.unwrap();
    told(&mut watch).await;
}

/// A waiter and what it waits for: an attempt that has begun, in an engine whose askings are counted.
struct Waiting {
    store: FaultyStore<RedisStore>,
    channel: String,
    first: idempotency::Held<FaultyStore<RedisStore>>,
    waiter: JoinHandle<Answer<FaultyStore<RedisStore>>>,
}

impl Waiting {
    async fn on(place: &Place, key: &str) -> Self {
        let store = FaultyStore::new(place.real_store().await);
        let settings = Settings::default().in_flight(InFlight::Wait(PATIENCE * 2)).store_timeout(PATIENCE).unwrap();
        let engine = Engine::new(store.clone(), settings);
        let operation = Operation::new(ScopeId::global(), Key::parse(key).unwrap(), Fingerprint::of([key]));
        let Answer::Run(first) = engine.claim(&operation).await.unwrap() else { panic!("it is new") };
        let channel = place.key(&operation.record_id());
        let waiter = tokio::spawn(async move { engine.claim(&operation).await.unwrap() });
        Self { store, channel, first, waiter }
    }

    fn askings(&self) -> usize {
        self.store.calls(Op::Claim)
    }

    async fn ends_with_the_outcome(self) {
        assert!(matches!(self.first.complete(outcome("answer")).await, idempotency::Recorded::Applied));
        let answer = timeout(PATIENCE, self.waiter).await.expect("in time").unwrap();
        assert!(matches!(answer, Answer::DoNot(Claimed::Replay { .. })));
    }
}

#[tokio::test]
async fn a_waiter_that_is_told_asks_seldom_and_holds_no_connection_of_its_own() {
    let server = Redis::start();
    let waiting = Waiting::on(&Place::at(server.url()), "k").await;
    eventually("subscribed", || subscribers(&server, &waiting.channel) == "1").await;
    // It asks once more when it has heard of that.
    sleep(SHORTEST_POLL / 2).await;
    let (before, since) = (waiting.askings(), Instant::now());
    sleep(4 * SHORTEST_POLL).await;
    let most = since.elapsed().as_millis() / SHORTEST_POLL.as_millis() + 1;
    let asked = waiting.askings() - before;
    assert!(asked as u128 <= most, "{asked} askings, and at most {most} were due");
    // The store's own, the one that listens, and that of this very command.
    let clients = server.cli(&["CLIENT", "LIST"]).lines().count();
    assert_eq!(clients, 3);
    waiting.ends_with_the_outcome().await;
}

#[tokio::test]
async fn many_waiters_share_one_connection_and_one_subscription_which_ends_with_the_last() {
    let server = Redis::start();
    let place = Place::at(server.url());
    let store = place.real_store().await;
    let (id, other) = (claim("k").id, claim("l").id);
    assert_eq!(listeners(&server), 0, "nobody waits");
    let mut waiters: Vec<Watch> = (0..50).map(|_| store.clone().watch(&id)).collect();
    let mut last = store.watch(&other);
    for watch in waiters.iter_mut().chain([&mut last]) {
        listening(watch).await;
    }
    let account = Resource::parse("account/7").unwrap();
    let mut leases: Vec<Watch> = (0..50).map(|_| store.leases().watch(&account)).collect();
    for watch in &mut leases {
        listening(watch).await;
    }
    assert_eq!(listeners(&server), 1);
    let channels = || server.cli(&["PUBSUB", "CHANNELS"]).lines().filter(|line| !line.is_empty()).count();
    assert_eq!((subscribers(&server, &place.key(&id)).as_str(), channels()), ("1", 3));

    waiters.truncate(1);
    run(&store, &claim("k"), &outcome("answer")).await;
    told(&mut waiters[0]).await;
    waiters.clear();
    eventually("unsubscribed", || subscribers(&server, &place.key(&id)) == "0").await;
    leases.clear();
    eventually("unsubscribed", || channels() == 1).await;
    // One that comes back is told again.
    let mut again = store.watch(&id);
    listening(&mut again).await;
    drop((again, last));
    eventually("unsubscribed", || channels() == 0).await;
}

#[tokio::test]
async fn the_loss_of_the_connection_that_listens_costs_polls_only_and_it_comes_back() {
    let server = Redis::start();
    let waiting = Waiting::on(&Place::at(server.url()), "k").await;
    eventually("subscribed", || subscribers(&server, &waiting.channel) == "1").await;
    for _ in 0..3 {
        server.cli(&["CLIENT", "KILL", "TYPE", "pubsub"]);
        eventually("subscribed again", || subscribers(&server, &waiting.channel) == "1").await;
    }
    server.cli(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    waiting.ends_with_the_outcome().await;
}

#[tokio::test]
async fn those_who_wait_learn_when_nobody_listens_any_more_and_when_somebody_does_again() {
    let server = Redis::start();
    let store = Place::at(server.url()).real_store().await;
    let mut watch = store.watch(&claim("k").id);
    listening(&mut watch).await;
    server.cli(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    told(&mut watch).await;
    listening(&mut watch).await;
    run(&store, &claim("k"), &outcome("answer")).await;
    told(&mut watch).await;
}

/// A link that is cut without a word looks as one on which nothing is published.
#[tokio::test]
async fn those_who_wait_learn_when_the_runtime_that_listened_has_ended() {
    let server = Redis::start();
    let store = Place::at(server.url()).real_store().await;
    let (first, second) = (claim("first").id, claim("second").id);
    let listened = tokio::task::spawn_blocking({
        let store = store.clone();
        move || {
            let other = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            other.block_on(async {
                let mut watch = store.watch(&first);
                listening(&mut watch).await;
                watch
            })
        }
    });
    let watch = listened.await.unwrap();
    assert!(!watch.is_told());
    listening(&mut store.watch(&second)).await;
    assert!(watch.is_told(), "the one that listens now tells of all");
}

#[tokio::test]
async fn a_connection_that_went_silent_is_noticed_and_replaced() {
    let server = Redis::start();
    let proxy = Proxy::to(server.port());
    let place = Place::at(server.url_at(proxy.port(), 0));
    let store = place.options().response_timeout(Duration::from_secs(1)).open().await.unwrap();
    let mut watch = store.watch(&claim("k").id);
    listening(&mut watch).await;
    proxy.cut();
    told(&mut watch).await;
    assert!(!watch.is_told());
    proxy.heal();
    listening(&mut watch).await;
    let other = Place { prefix: place.prefix, ..Place::at(server.url()) }.store().await;
    run(&other, &claim("k"), &outcome("answer")).await;
    told(&mut watch).await;
}

#[tokio::test]
async fn the_connection_ends_when_nobody_has_waited_for_a_while_and_begins_again() {
    let server = Redis::start();
    let store = Place::at(server.url()).real_store().await;
    for _ in 0..2 {
        let mut watch = store.watch(&claim("k").id);
        listening(&mut watch).await;
        assert_eq!(listeners(&server), 1);
        drop(watch);
        eventually("closed", || listeners(&server) == 0).await;
    }
}

/// An error after the write would be a disaster: the attempt is over, and nobody knows.
#[tokio::test]
async fn a_user_who_may_not_publish_can_do_everything_else() {
    let server = Redis::start();
    const OTHERS: &str = "+evalsha +eval +time +hmget +hget +hset +hdel +exists +del +pexpire +scan";
    for (user, rules) in [
        ("neither", "resetchannels -@all"),
        ("no-channel", "resetchannels -@all +publish +subscribe +unsubscribe"),
        ("no-publish", "resetchannels &* -@all +subscribe +unsubscribe"),
    ] {
        let rules = format!("ACL SETUSER {user} on >s3cret ~* {rules} {OTHERS}");
        server.cli(&rules.split(' ').collect::<Vec<_>>());
        let place = Place::at(format!("redis://{user}:s3cret@127.0.0.1:{}/", server.port()));
        let store = place.real_store().await;

        let holder = grant(&store, &claim("completed")).await;
        assert_eq!(store.complete(&holder, &outcome("answer")).await.unwrap(), Settled::Applied, "{user}");
        assert_eq!(store.complete(&holder, &outcome("answer")).await.unwrap(), Settled::AlreadyApplied);
        let holder = grant(&store, &claim("released")).await;
        assert_eq!(store.release(&holder, DEAD_FOR).await.unwrap(), Settled::Applied);
        let lost = claim("abandoned");
        grant(&store, &lost).await;
        store.abandon(&lost.id, lost.nonce, DEAD_FOR).await.unwrap();
        assert_eq!(store.claim(&lost).await.unwrap(), Claimed::Refused);
        let holder = grant(&store, &claim("doubtful")).await;
        assert_eq!(store.mark_in_doubt(&holder, None).await.unwrap(), Settled::Applied);
        let resolve = Resolve {
            id: RecordId::clone(&holder.id),
            token_seen: holder.token,
            verdict: ResolveVerdict::Happened(outcome("yes")),
            who: "a test".into(),
            why: "so".into(),
        };
        assert_eq!(store.resolve(&resolve).await.unwrap(), idempotency::Resolved::Applied);
        let leaser = Leaser::new(store.leases(), LeaseSettings::default());
        let account = Resource::parse("account/7").unwrap();
        let Taken::Yours(lease) = leaser.try_acquire(&account).await.unwrap() else { panic!("nobody else asks") };
        assert_eq!(lease.release().await.unwrap(), idempotency::Released::Released);

        let waiting = Waiting::on(&place, "waited for").await;
        // It goes on asking, as one does who is not told, or is promised to be and is not.
        eventually("asked again and again", || waiting.askings() > 5).await;
        waiting.ends_with_the_outcome().await;
    }
}

#[tokio::test]
async fn in_a_cluster_nothing_is_published_and_waiters_ask() {
    let place = Place::in_cluster();
    let published = || {
        let nodes = (0..3).map(|node| crate::support::cluster().node(node).cli(&["INFO", "commandstats"]));
        nodes.filter(|stats| stats.contains("cmdstat_publish")).count()
    };
    let waiting = Waiting::on(&place, "k").await;
    eventually("asked again and again", || waiting.askings() > 5).await;
    assert!(!waiting.store.watch(&claim("k").id).is_told());
    waiting.ends_with_the_outcome().await;
    assert_eq!(published(), 0);
}
