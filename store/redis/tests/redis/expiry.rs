//! Every key has an expiry, after every operation.

use std::time::Duration;

use idempotency::conformance::Harness;
use idempotency::outbound::{
    BeginCall, Begun, EndCall, Ended, ListSteps, LoggedEnd, ResolveStep, StepLabel, StepPage, StepResolved, StepView,
    Steps,
};
use idempotency::time::Clock;
use idempotency::{
    AgeLimit, Claim, Claimed, Entry, Holder, KeyClass, Lease, Life, List, Nonce, Outcome, Page, RecordId, Recovery,
    Resolve, Resolved, Settled, Store, StoreError, Swept, Windows,
};
use idempotency_redis::RedisStore;
use redis::aio::MultiplexedConnection;

use crate::steps::{ask, end};
use crate::support::{DEAD_FOR, HOUR, Place, claim, connection, duplicate, grant, outcome, renewing, run};

/// How long the key of a record still has: none when there is no key.
async fn time_to_live(connection: &mut MultiplexedConnection, key: &str) -> Option<Duration> {
    let left: i64 = redis::cmd("PTTL").arg(key).query_async(connection).await.unwrap();
    assert_ne!(left, -1, "{key} has no expiry");
    u64::try_from(left).ok().map(Duration::from_millis)
}

/// A store that looks at the expiry of its keys after every operation.
#[derive(Clone)]
struct Watched {
    store: RedisStore,
    prefix: String,
    connection: MultiplexedConnection,
}

impl Watched {
    async fn watched<T>(&self, id: &RecordId, answer: Result<T, StoreError>) -> Result<T, StoreError> {
        time_to_live(&mut self.connection.clone(), &format!("{}{{{id}}}:r", self.prefix)).await;
        answer
    }
}

impl Store for Watched {
    async fn claim(&self, claim: &Claim) -> Result<Claimed, StoreError> {
        self.watched(&claim.id, self.store.claim(claim).await).await
    }
    async fn renew(&self, holder: &Holder, lease: Lease) -> Result<Settled, StoreError> {
        self.watched(&holder.id, self.store.renew(holder, lease).await).await
    }
    async fn complete(&self, holder: &Holder, outcome: &Outcome) -> Result<Settled, StoreError> {
        self.watched(&holder.id, self.store.complete(holder, outcome).await).await
    }
    async fn release(&self, holder: &Holder, dead_for: Duration) -> Result<Settled, StoreError> {
        self.watched(&holder.id, self.store.release(holder, dead_for).await).await
    }
    async fn mark_in_doubt(&self, holder: &Holder, response: Option<&Outcome>) -> Result<Settled, StoreError> {
        self.watched(&holder.id, self.store.mark_in_doubt(holder, response).await).await
    }
    async fn abandon(&self, id: &RecordId, nonce: Nonce, dead_for: Duration) -> Result<(), StoreError> {
        self.watched(id, self.store.abandon(id, nonce, dead_for).await).await
    }
    async fn resolve(&self, resolve: &Resolve) -> Result<Resolved, StoreError> {
        self.watched(&resolve.id, self.store.resolve(resolve).await).await
    }
    async fn inspect(&self, id: &RecordId) -> Result<Option<Entry>, StoreError> {
        self.store.inspect(id).await
    }
    async fn list(&self, list: &List) -> Result<Page, StoreError> {
        self.store.list(list).await
    }
    async fn sweep(&self, limit: usize) -> Result<Swept, StoreError> {
        let swept = self.store.sweep(limit).await;
        for entry in self.store.list(&List { limit: 200, ..List::default() }).await.unwrap().entries {
            self.watched(&entry.id, Ok(())).await.unwrap();
        }
        swept
    }
}

impl Steps for Watched {
    async fn begin_call(&self, ask: &BeginCall) -> Result<Begun, StoreError> {
        self.watched(&ask.holder.id, self.store.begin_call(ask).await).await
    }
    async fn end_call(&self, report: &EndCall) -> Result<Ended, StoreError> {
        self.watched(&report.id, self.store.end_call(report).await).await
    }
    async fn resolve_step(&self, resolve: &ResolveStep) -> Result<StepResolved, StoreError> {
        self.watched(&resolve.id, self.store.resolve_step(resolve).await).await
    }
    async fn inspect_step(&self, id: &RecordId, label: &StepLabel) -> Result<Option<StepView>, StoreError> {
        self.watched(id, self.store.inspect_step(id, label).await).await
    }
    async fn list_steps(&self, list: &ListSteps) -> Result<StepPage, StoreError> {
        self.store.list_steps(list).await
    }
}

struct WatchedRedis {
    place: Place,
    store: Watched,
}

impl WatchedRedis {
    async fn empty() -> Self {
        let place = Place::new();
        let store = Watched {
            store: place.store().await,
            prefix: place.prefix.clone(),
            connection: connection(&place.url).await,
        };
        Self { place, store }
    }
}

impl Harness for WatchedRedis {
    type Store = Watched;

    fn store(&self) -> &Watched {
        &self.store
    }
    async fn advance(&self, by: Duration) {
        self.place.clock.advance(by);
    }
    async fn step_back(&self, by: Duration) {
        self.place.clock.set(self.place.clock.now().before(by));
    }
    fn exact_clock(&self) -> bool {
        true
    }
    fn steps_back(&self) -> bool {
        true
    }
    fn keeps_floors(&self) -> bool {
        false
    }
}

mod after_every_operation {
    use super::WatchedRedis;

    idempotency::conformance_tests!(WatchedRedis::empty().await);

    mod on_steps {
        use super::WatchedRedis;

        idempotency::step_conformance_tests!(WatchedRedis::empty().await);
    }
}

#[track_caller]
fn about(left: Option<Duration>, expected: Duration) {
    let left = left.expect("there is a key");
    assert!(left <= expected && expected - left < Duration::from_secs(60), "{left:?} is not about {expected:?}");
}

const TOMBSTONE: Duration = Duration::from_secs(24 * 3600);

#[tokio::test]
async fn a_key_outlives_what_it_is_kept_for_by_an_hour() {
    let place = Place::new();
    let store = place.store().await;
    let mut other = connection(&place.url).await;
    let lease = Lease::default().length();

    let request = claim("k");
    let holder = grant(&store, &request).await;
    about(time_to_live(&mut other, &place.key(&request.id)).await, lease + TOMBSTONE + HOUR);
    let longer = Lease::new(10 * HOUR).unwrap();
    assert_eq!(store.renew(&holder, longer).await.unwrap(), Settled::Applied);
    about(time_to_live(&mut other, &place.key(&request.id)).await, longer.length() + TOMBSTONE + HOUR);
    assert_eq!(store.complete(&holder, &outcome("answer")).await.unwrap(), Settled::Applied);
    about(time_to_live(&mut other, &place.key(&request.id)).await, TOMBSTONE + HOUR);
    // Asking keeps nothing alive.
    place.clock.advance(2 * HOUR);
    assert!(matches!(store.claim(&duplicate(&request)).await.unwrap(), Claimed::Executed(_)));
    about(time_to_live(&mut other, &place.key(&request.id)).await, TOMBSTONE + HOUR);
    assert_eq!(store.sweep(10).await.unwrap().tombstoned, 1);
    about(time_to_live(&mut other, &place.key(&request.id)).await, TOMBSTONE - 2 * HOUR + HOUR);

    let released = claim("released");
    let holder = grant(&store, &released).await;
    assert_eq!(store.release(&holder, DEAD_FOR).await.unwrap(), Settled::Applied);
    about(time_to_live(&mut other, &place.key(&released.id)).await, HOUR + HOUR);
    assert_eq!(store.release(&grant(&store, &duplicate(&released)).await, 5 * HOUR).await.unwrap(), Settled::Applied);
    about(time_to_live(&mut other, &place.key(&released.id)).await, 5 * HOUR + HOUR);

    let stub = claim("stub");
    store.abandon(&stub.id, Nonce::random(), DEAD_FOR).await.unwrap();
    about(time_to_live(&mut other, &place.key(&stub.id)).await, DEAD_FOR + HOUR);
}

/// Released too, where it would go with its token without them.
#[tokio::test]
async fn a_record_with_steps_is_kept_for_them() {
    let place = Place::new();
    let store = place.store().await;
    let mut other = connection(&place.url).await;
    let lease = Lease::default().length();
    let mut lives = async |id: &RecordId, expected: Duration| {
        about(time_to_live(&mut other, &place.key(id)).await, expected);
    };

    let request = claim("k");
    let holder = grant(&store, &request).await;
    let call = ask(holder);
    assert!(matches!(store.begin_call(&call).await.unwrap(), Begun::Go { .. }));
    lives(&request.id, lease + TOMBSTONE + HOUR).await;
    let longer = Lease::new(10 * HOUR).unwrap();
    assert_eq!(store.renew(&holder, longer).await.unwrap(), Settled::Applied);
    lives(&request.id, longer.length() + TOMBSTONE + HOUR).await;
    assert_eq!(store.mark_in_doubt(&holder, None).await.unwrap(), Settled::Applied);
    lives(&request.id, longer.length() + TOMBSTONE + HOUR).await;
    assert_eq!(store.complete(&holder, &outcome("answer")).await.unwrap(), Settled::Applied);
    lives(&request.id, TOMBSTONE + HOUR).await;
    // Evidence keeps nothing alive.
    place.clock.advance(2 * HOUR);
    let late = end(&call, LoggedEnd::Unknown("no answer".to_owned()));
    assert!(matches!(store.end_call(&late).await.unwrap(), Ended::Logged { .. }));
    lives(&request.id, TOMBSTONE - 2 * HOUR + HOUR).await;

    // Without steps it would go with its token.
    let released = claim("released");
    let holder = grant(&store, &released).await;
    let never_made = end(&ask(holder), LoggedEnd::NotDone("given up".to_owned()));
    assert_eq!(store.end_call(&never_made).await.unwrap(), Ended::NeverBegan);
    assert_eq!(store.release(&holder, DEAD_FOR).await.unwrap(), Settled::Applied);
    lives(&released.id, TOMBSTONE + HOUR).await;
    // And they stay for the next attempt.
    let again = duplicate(&released);
    grant(&store, &again).await;
    lives(&released.id, lease + TOMBSTONE + HOUR).await;
}

#[tokio::test]
async fn a_hit_that_renews_a_tombstone_postpones_its_expiry() {
    let place = Place::new();
    let store = place.store().await;
    let request = claim("k");
    run(&store, &request, &outcome("answer")).await;
    place.clock.advance(HOUR);
    assert!(matches!(store.claim(&renewing(&request)).await.unwrap(), Claimed::Executed(_)));
    let left = time_to_live(&mut connection(&place.url).await, &place.key(&request.id)).await;
    about(left, 2 * TOMBSTONE);
}

/// There are no floors: its record stays until its key is too old, also for a clock that has stepped back by an hour.
#[tokio::test]
async fn the_record_of_a_time_ordered_key_stays_longer_by_what_the_clock_may_step_back() {
    let place = Place::new();
    let store = place.store().await;
    let age = AgeLimit { max_age: 23 * HOUR, drift: HOUR / 2, class: KeyClass::new("uuid7") };
    let windows = Windows::new(HOUR, TOMBSTONE).unwrap();
    let life = Life::new(Recovery::Hold, windows).with_age(age, Lease::default()).unwrap();
    let request = Claim { life, key_time: Some(place.clock.now().after(HOUR / 2)), ..claim("k") };
    run(&store, &request, &outcome("answer")).await;
    let left = time_to_live(&mut connection(&place.url).await, &place.key(&request.id)).await;
    about(left, 23 * HOUR + HOUR / 2 + HOUR / 2 + HOUR + HOUR);
    place.clock.advance(TOMBSTONE + HOUR);
    assert_eq!(store.sweep(10).await.unwrap().purged, 0);
    assert_eq!(store.inspect(&request.id).await.unwrap(), None);
    place.clock.set(place.clock.now().before(HOUR));
    assert_eq!(store.claim(&duplicate(&request)).await.unwrap(), Claimed::TooOld);
    place.clock.advance(HOUR + Duration::from_micros(1));
    assert_eq!(store.sweep(10).await.unwrap().purged, 1);
}
