//! Calls to external APIs, while Redis loses replies, scripts, its memory, or has no room.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use idempotency::outbound::{
    Again, BeginCall, Begun, CallEnd, Decision, EndCall, Ended, Guard, ListSteps, LoggedEnd, Policy, Provider,
    ResolveStep, Step, StepError, StepLabel, StepResolved, StepResult, StepStanding, StepVerdict, Steps,
};
use idempotency::{Fingerprint, Holder, Nonce, RunError, Settled, Store, StoreErrorKind, WorkError, run};
use idempotency_redis::RedisStore;
use idempotency_testbed::servers::Redis;
use idempotency_testbed::{Fate, Proxy};

use crate::support::{DEAD_FOR, Ledger, Service, about, claim, full, grant, hasty, operation, outcome, roomy, store};

fn label() -> StepLabel {
    StepLabel::parse("transfer").unwrap()
}

fn ask(holder: Holder) -> BeginCall {
    BeginCall {
        holder,
        label: label(),
        request: Fingerprint::of(["10 EUR"]),
        nonce: Nonce::random(),
        timeout: Duration::from_secs(60),
        quiet: Duration::from_secs(5),
        lease_needed: Duration::from_secs(61),
        again: Again::Never,
    }
}

fn end(ask: &BeginCall, end: LoggedEnd) -> EndCall {
    EndCall { id: ask.holder.id, label: ask.label.clone(), nonce: ask.nonce, end }
}

fn done() -> LoggedEnd {
    LoggedEnd::Done(paid())
}

fn paid() -> StepResult {
    StepResult::Kept("paid".into())
}

fn not_done() -> LoggedEnd {
    LoggedEnd::NotDone("the asking was given up".to_owned())
}

fn succeeded() -> Ended {
    Ended::Logged { standing: StepStanding::Succeeded(paid()), alarm: None }
}

async fn begin(store: &RedisStore, ask: &BeginCall) -> u32 {
    match store.begin_call(ask).await.unwrap() {
        Begun::Go { call, .. } => call,
        begun => panic!("not begun: {begun:?}"),
    }
}

/// Has the server learn the scripts: where they are new, what fails to arrive is the question whether it knows them.
async fn warm(store: &RedisStore) {
    crate::support::warm(store).await;
    let ask = ask(grant(store, &claim("warm steps")).await);
    begin(store, &ask).await;
    store.end_call(&end(&ask, LoggedEnd::Unknown("no answer".to_owned()))).await.unwrap();
    assert_eq!(settle(store, &ask.holder, StepVerdict::DidNotHappen).await, StepResolved::Applied);
}

async fn settle(store: &RedisStore, holder: &Holder, verdict: StepVerdict) -> StepResolved {
    let (who, why) = ("ops".to_owned(), "looked".to_owned());
    let resolve = ResolveStep { id: holder.id, label: label(), call_seen: 1, verdict, who, why };
    store.resolve_step(&resolve).await.unwrap()
}

/// A server, the way there, and stores on both.
struct Rig {
    redis: Redis,
    proxy: Proxy,
    direct: RedisStore,
}

impl Rig {
    async fn start() -> Self {
        let redis = Redis::start();
        let direct = store(&redis.url()).await;
        warm(&direct).await;
        Self { proxy: Proxy::to(redis.port()), direct, redis }
    }

    fn url(&self) -> String {
        self.redis.url_at(self.proxy.port(), 0)
    }
}

/// It is on record. Whoever asked asks again under the same nonce, and it is the same call.
#[tokio::test]
async fn a_call_whose_asking_was_answered_too_late_is_recognised_by_its_nonce() {
    for fate in [Fate::Hold, Fate::Silence] {
        let rig = Rig::start().await;
        let store = hasty(&rig.url()).await;
        let ask = ask(grant(&rig.direct, &claim("late")).await);
        let rule = rig.proxy.on_reply_to(about("late"), 1, fate);
        assert_eq!(store.begin_call(&ask).await.unwrap_err().kind(), StoreErrorKind::Timeout);
        assert!(rule.has_fired());
        // It was carried out: nobody else calls.
        let other = BeginCall { nonce: Nonce::random(), ..ask.clone() };
        let begun = rig.direct.begin_call(&other).await.unwrap();
        assert!(matches!(begun, Begun::Stands { standing: StepStanding::Calling { .. }, .. }), "{begun:?}");
        rig.proxy.release();
        assert_eq!(begin(&store, &ask).await, 1);
        assert_eq!(store.end_call(&end(&ask, done())).await.unwrap(), succeeded());
        assert_eq!(rig.direct.inspect_step(&ask.holder.id, &label()).await.unwrap().unwrap().calls.len(), 1);
    }
}

/// Or whoever asked gives up and says so, before the asking arrives or after it.
#[tokio::test]
async fn a_call_that_was_given_up_is_not_begun_by_a_late_copy() {
    let rig = Rig::start().await;
    let store = hasty(&rig.url()).await;
    let ask = ask(grant(&rig.direct, &claim("given up")).await);
    let rule = rig.proxy.on_request(about("given up"), 1, Fate::Hold);
    assert_eq!(store.begin_call(&ask).await.unwrap_err().kind(), StoreErrorKind::Timeout);
    assert!(rule.has_fired());
    assert_eq!(rig.direct.end_call(&end(&ask, not_done())).await.unwrap(), Ended::NeverBegan);
    // The copy arrives.
    rig.proxy.release();
    assert_eq!(store.begin_call(&ask).await.unwrap(), Begun::Over);
    assert_eq!(rig.direct.inspect_step(&ask.holder.id, &label()).await.unwrap(), None);
    assert_eq!(begin(&store, &BeginCall { nonce: Nonce::random(), ..ask }).await, 1);
}

#[tokio::test]
async fn a_call_whose_connection_drops_before_the_reply_is_one_call() {
    let rig = Rig::start().await;
    let store = hasty(&rig.url()).await;
    let ask = ask(grant(&store, &claim("dropped")).await);
    let rule = rig.proxy.on_reply_to(about("dropped"), 1, Fate::Reset);
    assert_eq!(store.begin_call(&ask).await.unwrap_err().kind(), StoreErrorKind::Unavailable);
    assert!(rule.has_fired());
    assert_eq!(begin(&store, &ask).await, 1);
    assert_eq!(rig.direct.inspect_step(&ask.holder.id, &label()).await.unwrap().unwrap().calls.len(), 1);
}

/// Evidence that was carried out is so when it is repeated, and it is told the same.
#[tokio::test]
async fn an_end_whose_reply_is_lost_is_logged_once() {
    for fate in [Fate::Hold, Fate::Silence] {
        let rig = Rig::start().await;
        let store = hasty(&rig.url()).await;
        let ask = ask(grant(&rig.direct, &claim("ended")).await);
        begin(&rig.direct, &ask).await;
        let rule = rig.proxy.on_reply_to(about("ended"), 1, fate);
        assert_eq!(store.end_call(&end(&ask, done())).await.unwrap_err().kind(), StoreErrorKind::Timeout);
        assert!(rule.has_fired());
        let before = rig.direct.inspect_step(&ask.holder.id, &label()).await.unwrap().unwrap();
        assert_eq!(before.standing, StepStanding::Succeeded(paid()));
        rig.proxy.release();
        assert_eq!(store.end_call(&end(&ask, done())).await.unwrap(), succeeded());
        assert_eq!(rig.direct.inspect_step(&ask.holder.id, &label()).await.unwrap().unwrap().calls, before.calls);
    }
}

/// The client sends it again by itself, and the second copy is no resolver that came too late.
#[tokio::test]
async fn a_resolution_whose_connection_drops_before_the_reply_was_applied() {
    for verdict in [StepVerdict::DidNotHappen, StepVerdict::Happened(paid())] {
        let rig = Rig::start().await;
        let store = store(&rig.url()).await;
        let ask = ask(grant(&store, &claim("resolved")).await);
        begin(&store, &ask).await;
        store.end_call(&end(&ask, LoggedEnd::Unknown("no answer".to_owned()))).await.unwrap();
        let rule = rig.proxy.on_reply_to(about("resolved"), 1, Fate::Reset);
        assert_eq!(settle(&store, &ask.holder, verdict.clone()).await, StepResolved::Applied);
        assert!(rule.has_fired());
        assert_ne!(settle(&store, &ask.holder, verdict).await, StepResolved::Applied, "another one comes too late");
    }
}

#[tokio::test]
async fn scripts_are_flushed_between_any_two_operations_on_steps() {
    let redis = Redis::start();
    let store = store(&redis.url()).await;
    let flush = || redis.cli(&["SCRIPT", "FLUSH", "SYNC"]);
    let ask = ask(grant(&store, &claim("k")).await);
    flush();
    assert_eq!(begin(&store, &ask).await, 1);
    flush();
    store.end_call(&end(&ask, LoggedEnd::Unknown("no answer".to_owned()))).await.unwrap();
    flush();
    assert_eq!(settle(&store, &ask.holder, StepVerdict::DidNotHappen).await, StepResolved::Applied);
    flush();
    assert!(store.inspect_step(&ask.holder.id, &label()).await.unwrap().is_some());
    flush();
    assert_eq!(store.list_steps(&ListSteps::default()).await.unwrap().entries.len(), 1);
    flush();
    assert_eq!(store.release(&ask.holder, DEAD_FOR).await.unwrap(), Settled::Applied);
    flush();
    store.sweep(100).await.unwrap();
    flush();
    let again = grant(&store, &claim("k")).await;
    flush();
    assert_eq!(begin(&store, &BeginCall { holder: again, nonce: Nonce::random(), ..ask }).await, 2);
}

/// While a call was being made everything was lost. Its end has nowhere to go, and says so; its attempt begins nothing any more. What a
/// retry of the client does then is a new life of its key: that a store without persistence loses is in the docs.
#[tokio::test]
async fn a_flush_between_a_call_and_its_end_is_told() {
    let redis = Redis::start();
    let store = store(&redis.url()).await;
    let ask = ask(grant(&store, &claim("k")).await);
    begin(&store, &ask).await;
    redis.cli(&["FLUSHALL"]);
    assert_eq!(store.end_call(&end(&ask, done())).await.unwrap(), Ended::Missing);
    assert_eq!(store.begin_call(&ask).await.unwrap(), Begun::Superseded);
    assert_eq!(
        store.begin_call(&BeginCall { nonce: Nonce::random(), ..ask.clone() }).await.unwrap(),
        Begun::Superseded
    );
    assert_eq!(settle(&store, &ask.holder, StepVerdict::DidNotHappen).await, StepResolved::Missing);
    assert_eq!(store.complete(&ask.holder, &outcome()).await.unwrap(), Settled::Superseded);
    assert_eq!(redis.cli(&["DBSIZE"]), "0", "nothing was written for it");
    // Of a later life the old call's end is none.
    let next = BeginCall { holder: grant(&store, &claim("k")).await, nonce: Nonce::random(), ..ask.clone() };
    assert!(next.holder.token > ask.holder.token);
    begin(&store, &next).await;
    assert_eq!(store.end_call(&end(&ask, done())).await.unwrap(), Ended::Missing);
}

/// The same with everything around it: the handler is told, and its answer is not sent as if it were on record.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flush_while_a_handler_calls_is_not_answered_as_if_nothing_were() {
    let redis = Redis::start();
    let service = Service::of(store(&redis.url()).await, &Ledger::default());
    let calls = AtomicU32::new(0);
    let bank = Provider::new("bank", Duration::from_secs(5)).unwrap();
    let guard = Guard::new(store(&redis.url()).await, bank, Policy::Hold).unwrap();
    let transfer = Step::new("transfer", Fingerprint::of(["10 EUR"])).unwrap();
    let payout = operation("k");
    let ran = run(&service.engine, &payout, async |attempt| {
        let first = guard.call(&attempt, &transfer, |_| async {
            calls.fetch_add(1, Ordering::SeqCst);
            redis.cli(&["FLUSHALL"]);
            CallEnd::Done(Bytes::from_static(b"paid"))
        });
        let decided = first.await.map(|outcome| outcome.decision);
        // Whatever the handler makes of it, it calls nobody else.
        let second = guard.call(&attempt, &transfer, |_| async {
            calls.fetch_add(1, Ordering::SeqCst);
            CallEnd::Done(Bytes::from_static(b"paid twice"))
        });
        assert!(matches!(second.await, Err(StepError::Superseded)));
        match decided? {
            Decision::Done(_) | Decision::Refused(_) => Ok::<_, WorkError<StepError>>(0),
        }
    });
    let ran = ran.await;
    assert!(!matches!(&ran, Ok(_) | Err(RunError::Full)), "{ran:?}");
    assert_eq!(calls.load(Ordering::SeqCst), 1);
}

/// A call that cannot be written down is not made. What is known is told, and what was called is logged.
#[tokio::test]
async fn without_room_no_call_is_begun_and_every_end_is_logged() {
    let redis = Redis::start();
    let store = store(&redis.url()).await;
    let (calling, new) = (ask(grant(&store, &claim("calling")).await), ask(grant(&store, &claim("new")).await));
    begin(&store, &calling).await;
    full(&redis);
    assert_eq!(store.begin_call(&new).await.unwrap(), Begun::Full);
    assert_eq!(store.inspect_step(&new.holder.id, &label()).await.unwrap(), None);
    assert_eq!(begin(&store, &calling).await, 1);
    assert_eq!(store.end_call(&end(&calling, done())).await.unwrap(), succeeded());
    let other = BeginCall { nonce: Nonce::random(), ..calling };
    let begun = store.begin_call(&other).await.unwrap();
    assert!(matches!(begun, Begun::Stands { standing: StepStanding::Succeeded(_), .. }), "{begun:?}");
    roomy(&redis);
    begin(&store, &new).await;
}
