//! Steps: judged as the protocol says, in one command, beside their record, and never taken for something else.

mod twins;

use std::collections::BTreeMap;
use std::time::Duration;

use idempotency::outbound::{
    Again, BeginCall, Begun, EndCall, Ended, ListSteps, LoggedEnd, ResolveStep, StepLabel, StepResolved, StepResult,
    StepStanding, StepState, StepVerdict, Steps,
};
use idempotency::{Fingerprint, Holder, Lease, Nonce, RecordId, Settled, Store, StoreError, StoreErrorKind};
use idempotency_redis::{NotReplicated, RedisStore};
use idempotency_testbed::servers::Redis;
use redis::aio::MultiplexedConnection;

use crate::commands::sent;
use crate::support::{HOUR, Place, claim, connection, grant, id, outcome};

const SECOND: Duration = Duration::from_secs(1);

pub(crate) fn label(name: &str) -> StepLabel {
    StepLabel::parse(name).unwrap()
}

pub(crate) fn ask(holder: Holder) -> BeginCall {
    BeginCall {
        holder,
        label: label("transfer"),
        request: Fingerprint::of(["10 EUR"]),
        nonce: Nonce::random(),
        timeout: 5 * SECOND,
        quiet: 5 * SECOND,
        lease_needed: 6 * SECOND,
        again: Again::Never,
    }
}

pub(crate) fn end(ask: &BeginCall, end: LoggedEnd) -> EndCall {
    EndCall { id: ask.holder.id, label: ask.label.clone(), nonce: ask.nonce, end }
}

fn done(result: &'static str) -> LoggedEnd {
    LoggedEnd::Done(StepResult::Kept(result.into()))
}

/// Says of the first call that it did not happen.
async fn settle(store: &impl Steps, ask: &BeginCall) -> Result<StepResolved, StoreError> {
    let (who, why) = ("ops".to_owned(), "looked".to_owned());
    let (id, label, verdict) = (ask.holder.id, ask.label.clone(), StepVerdict::DidNotHappen);
    store.resolve_step(&ResolveStep { id, label, call_seen: 1, verdict, who, why }).await
}

async fn begin(store: &impl Steps, ask: &BeginCall) {
    let begun = store.begin_call(ask).await.unwrap();
    assert!(matches!(begun, Begun::Go { .. }), "{begun:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_operation_on_a_step_takes_one_command() {
    let server = Redis::start();
    let store = Place::at(server.url()).real_store().await;
    let holder = grant(&store, &claim("k")).await;
    let operations = async |name: &str| {
        let ask = BeginCall { label: label(name), ..ask(holder) };
        begin(&store, &ask).await;
        store.end_call(&end(&ask, LoggedEnd::Unknown("no answer".to_owned()))).await.unwrap();
        assert_eq!(settle(&store, &ask).await.unwrap(), StepResolved::Applied);
        store.inspect_step(&holder.id, &label(name)).await.unwrap().unwrap();
        let of_one = ListSteps { id: Some(holder.id), ..ListSteps::default() };
        store.list_steps(&of_one).await.unwrap();
    };
    // The server gets to know the scripts.
    operations("warm").await;
    assert_eq!(sent(&server, operations("transfer")).await, ["evalsha"; 5]);
}

/// It was counted out by whoever said so; the call after it is as open as before.
#[tokio::test]
async fn a_late_refusal_of_a_call_that_was_said_not_to_have_happened_resolves_no_other() {
    let store = Place::new().store().await;
    let first = ask(grant(&store, &claim("k")).await);
    let second = BeginCall { nonce: Nonce::random(), ..first.clone() };
    let lost = LoggedEnd::Unknown("no answer".to_owned());
    begin(&store, &first).await;
    store.end_call(&end(&first, lost.clone())).await.unwrap();
    assert_eq!(settle(&store, &first).await.unwrap(), StepResolved::Applied);
    begin(&store, &second).await;
    store.end_call(&end(&second, lost)).await.unwrap();
    let refused = LoggedEnd::Refused(StepResult::Kept("no".into()));
    let ended = store.end_call(&end(&first, refused)).await.unwrap();
    assert!(matches!(ended, Ended::Logged { standing: StepStanding::Unknown { .. }, alarm: None }), "{ended:?}");
}

struct Put {
    store: RedisStore,
    ask: BeginCall,
    key: String,
    other: MultiplexedConnection,
}

impl Put {
    /// A record with a call that is being made.
    async fn new(key: &str) -> Self {
        let place = Place::new();
        let store = place.store().await;
        let ask = ask(grant(&store, &claim(key)).await);
        begin(&store, &ask).await;
        let other = connection(&place.url).await;
        let key = place.key(&ask.holder.id);
        Self { store, ask, key, other }
    }

    async fn command(&mut self, words: &[&[u8]]) {
        let mut command = redis::Cmd::new();
        for word in words {
            command.arg(*word);
        }
        command.exec_async(&mut self.other).await.unwrap();
    }

    /// In the order of the names: that of a dump changes by itself while the server's table of them grows.
    async fn contents(&mut self) -> BTreeMap<Vec<u8>, Vec<u8>> {
        redis::cmd("HGETALL").arg(&self.key).query_async(&mut self.other).await.unwrap()
    }

    /// Nobody calls, nobody crashes, and nothing is overwritten.
    async fn is_unreadable(&mut self, what: &str) {
        let before = self.contents().await;
        let (id, label) = (self.ask.holder.id, self.ask.label.clone());
        unreadable(self.store.begin_call(&BeginCall { nonce: Nonce::random(), ..self.ask.clone() }).await, what);
        unreadable(self.store.begin_call(&self.ask).await, what);
        unreadable(self.store.end_call(&end(&self.ask, done("paid"))).await, what);
        unreadable(self.store.inspect_step(&id, &label).await, what);
        unreadable(settle(&self.store, &self.ask).await, what);
        // Others are listed.
        let sound = ask(grant(&self.store, &claim(&format!("beside {what}"))).await);
        begin(&self.store, &sound).await;
        let listed = self.store.list_steps(&ListSteps::default()).await.unwrap().entries;
        assert!(listed.iter().any(|entry| entry.id == sound.holder.id), "{what}");
        assert!(listed.iter().all(|entry| entry.id != id), "{what}");
        self.store.sweep(100).await.unwrap();
        assert_eq!(self.contents().await, before, "{what}");
    }
}

#[track_caller]
fn unreadable<T: std::fmt::Debug>(answer: Result<T, StoreError>, what: &str) {
    assert_eq!(answer.unwrap_err().kind(), StoreErrorKind::Unreadable, "{what}");
}

#[tokio::test]
async fn steps_with_impossible_values_are_unreadable_and_left_alone() {
    let mut put = Put::new("k").await;
    let key = put.key.clone();
    let step: Vec<u8> = redis::cmd("HGET").arg(&key).arg("stransfer").query_async(&mut put.other).await.unwrap();
    let damaged = |at: usize, byte: u8| {
        let mut step = step.clone();
        step[at] = byte;
        step
    };
    // State; a result that there is none of, or of no kind; the token's sign; its length.
    let damages = [damaged(33, 0), damaged(33, 6), damaged(33, 2), damaged(34, 2), damaged(34, 3), damaged(63, 0x80)];
    for (n, damage) in damages.iter().map(Vec::as_slice).chain([b"".as_slice(), &step[1..]]).enumerate() {
        put.command(&[b"HSET", key.as_bytes(), b"stransfer", damage]).await;
        put.is_unreadable(&format!("step {n}")).await;
    }
    put.command(&[b"HSET", key.as_bytes(), b"stransfer", &step]).await;

    let name = [b"ctransfer\0".as_slice(), put.ask.nonce.as_bytes()].concat();
    let call: Vec<u8> = redis::cmd("HGET").arg(&key).arg(&name).query_async(&mut put.other).await.unwrap();
    // How it ended, of no kind, without why, and without a result; its length.
    for (n, (at, byte)) in [(28, 9), (28, 1), (28, 4), (29, 2)].into_iter().enumerate() {
        let mut damage = call.clone();
        damage[at] = byte;
        put.command(&[b"HSET", key.as_bytes(), &name, &damage]).await;
        unreadable(put.store.begin_call(&put.ask).await, &format!("call {n}"));
        unreadable(put.store.end_call(&end(&put.ask, done("paid"))).await, &format!("call {n}"));
        unreadable(put.store.inspect_step(&put.ask.holder.id, &put.ask.label).await, &format!("call {n}"));
    }
    put.command(&[b"HSET", key.as_bytes(), &name, &call]).await;
    begin(&put.store, &put.ask).await;
}

#[tokio::test]
async fn a_record_of_an_unknown_format_has_no_steps_to_tell_of() {
    let mut put = Put::new("k").await;
    let record = put.key.clone();
    put.command(&[b"HSET", record.as_bytes(), b"v", b"2"]).await;
    put.is_unreadable("the record").await;
}

/// Those of a page that were skipped because they are over do not end the list.
#[tokio::test]
async fn steps_of_records_whose_life_is_over_are_not_listed() {
    let place = Place::new();
    let store = place.store().await;
    let mut expected: Vec<RecordId> = Vec::new();
    for n in 0..20 {
        let holder = grant(&store, &claim(&n.to_string())).await;
        begin(&store, &ask(holder)).await;
        if n % 2 == 0 {
            assert_eq!(store.complete(&holder, &outcome("answer")).await.unwrap(), Settled::Applied);
        } else {
            store.renew(&holder, Lease::new(100 * HOUR).unwrap()).await.unwrap();
            expected.push(id(&n.to_string()));
        }
    }
    place.clock.advance(24 * HOUR);
    expected.sort();
    let mut list = ListSteps { limit: 3, state: Some(StepState::Unknown), ..ListSteps::default() };
    let mut seen = Vec::new();
    loop {
        let page = store.list_steps(&list).await.unwrap();
        seen.extend(page.entries.into_iter().map(|entry| entry.id));
        list.after = page.next;
        if list.after.is_none() {
            break;
        }
    }
    assert_eq!(seen, expected);
    assert!(store.list_steps(&ListSteps { limit: 0, ..list }).await.unwrap().entries.is_empty());
}

/// A call that too few replicas know of is not made, and is taken back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_reached_too_few_replicas_is_said_honestly() {
    let (primary, mut replica) = (Redis::start(), Redis::start());
    replica.replica_of(&primary);
    let place = Place::at(primary.url());
    // Each with a connection of its own, that has written nothing yet.
    let store = async || {
        let options = place.real_options().wait_for_replicas(1, Duration::from_millis(300));
        options.open().await.unwrap()
    };
    let patient = place.real_options().wait_for_replicas(1, Duration::from_secs(60)).open().await.unwrap();
    let ask = ask(grant(&patient, &claim("k")).await);
    replica.pause();
    let not_replicated = |error: StoreError| {
        let cause = std::error::Error::source(&error).and_then(|cause| cause.downcast_ref());
        assert_eq!(cause, Some(&NotReplicated { reached: 0, wanted: 1 }));
    };
    // Twice: the second one writes nothing new, and nobody has the first one either.
    not_replicated(store().await.begin_call(&ask).await.unwrap_err());
    not_replicated(store().await.begin_call(&ask).await.unwrap_err());
    let never_made = end(&ask, LoggedEnd::NotDone("the asking for it was given up".to_owned()));
    not_replicated(store().await.end_call(&never_made).await.unwrap_err());
    not_replicated(store().await.end_call(&never_made).await.unwrap_err());
    replica.resume();
    let ended = patient.end_call(&never_made).await.unwrap();
    assert_eq!(ended, Ended::Logged { standing: StepStanding::Failed(None), alarm: None });
    assert_eq!(patient.begin_call(&ask).await.unwrap(), Begun::Over);
}
