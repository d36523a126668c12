//! A ceiling on disk: a time-ordered key runs once, whatever ends the store that ran it.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use idempotency::time::{Clock as _, ManualClock};
use idempotency::{
    AgeLimit, Answer, Claim, Claimed, Engine, Fingerprint, Key, KeyClass, Life, Operation, Outcome, Recovery, ScopeId,
    Settings, Settled, Store, StoreErrorKind, Timestamp, Windows,
};
use idempotency_memory::{Ceiling, CeilingError, MemoryStore, MissingCeiling};
use tempfile::TempDir;
use tracing::Level;

use crate::common::{SECOND, body, claim, granted};
use crate::log::Log;

const AHEAD: Duration = Duration::from_secs(5);
const DRIFT: Duration = Duration::from_secs(60);
const MAX_AGE: Duration = Duration::from_secs(3600);

/// A place for a ceiling, and the clock of all stores under it.
struct Place {
    directory: TempDir,
    clock: ManualClock,
    missing: MissingCeiling,
}

impl Place {
    fn new(missing: MissingCeiling) -> Self {
        let clock = ManualClock::new(Timestamp::from_micros(1_800_000_000_000_000));
        Self { directory: TempDir::new().unwrap(), clock, missing }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("ceiling")
    }

    fn start(&self) -> Result<MemoryStore<ManualClock>, CeilingError> {
        let ceiling = Ceiling::at(self.path()).ahead(AHEAD).unwrap().missing(self.missing);
        MemoryStore::builder().clock(self.clock.clone()).build_under(&ceiling)
    }

    fn now(&self) -> Timestamp {
        self.clock.now()
    }
}

fn dated(n: u32, key_time: Timestamp) -> Claim {
    let limit = AgeLimit { max_age: MAX_AGE, drift: DRIFT, class: KeyClass::new("uuid7") };
    let windows = Windows::new(SECOND, 2 * MAX_AGE).unwrap();
    let life = Life::new(Recovery::Hold, windows).with_age(limit, claim(n).lease).unwrap();
    Claim { key_time: Some(key_time), life, ..claim(n) }
}

#[tokio::test]
async fn what_ran_before_a_restart_is_too_old_after_it() {
    let place = Place::new(MissingCeiling::NothingRan);
    let store = place.start().unwrap();
    let times = [place.now().before(60 * SECOND), place.now(), place.now().after(AHEAD), place.now().after(DRIFT)];
    for (n, time) in (0..).zip(times) {
        let holder = granted(&store, &dated(n, time)).await;
        assert_eq!(store.complete(&holder, &body(1)).await.unwrap(), Settled::Applied);
    }
    drop(store);
    let again = place.start().unwrap();
    for (n, time) in (0..).zip(times) {
        assert_eq!(again.claim(&dated(n, time)).await.unwrap(), Claimed::TooOld, "{n}");
    }
    // Opaque keys have no age, and what ran before is forgotten.
    granted(&again, &claim(0)).await;
}

#[tokio::test]
async fn a_restart_refuses_for_as_long_as_the_ceiling_is_ahead_and_no_longer() {
    let place = Place::new(MissingCeiling::NothingRan);
    granted(&place.start().unwrap(), &dated(0, place.now())).await;
    let again = place.start().unwrap();
    place.clock.advance(AHEAD);
    assert_eq!(again.claim(&dated(1, place.now())).await.unwrap(), Claimed::TooOld);
    place.clock.advance(Duration::from_micros(1));
    granted(&again, &dated(1, place.now())).await;
}

#[tokio::test]
async fn a_key_above_the_ceiling_waits_for_the_next_one() {
    let place = Place::new(MissingCeiling::NothingRan);
    let store = place.start().unwrap();
    let ceiling = || fs::read_to_string(place.path()).unwrap();
    let first = ceiling();
    assert!(first.contains(&format!("ceiling {}\n", place.now().after(AHEAD).micros())), "{first}");
    let ahead = place.now().after(DRIFT);
    granted(&store, &dated(0, ahead)).await;
    assert!(
        ceiling().contains(&format!("ceiling {}\n", ahead.after(AHEAD).micros())),
        "it is durable before the grant"
    );
    assert_eq!(store.claim(&dated(1, ahead.after(Duration::from_micros(1)))).await.unwrap(), Claimed::FromTheFuture);
    // After a long silence too.
    place.clock.advance(1000 * SECOND);
    granted(&store, &dated(2, place.now())).await;
}

#[tokio::test]
async fn a_ceiling_never_falls() {
    let place = Place::new(MissingCeiling::NothingRan);
    granted(&place.start().unwrap(), &dated(0, place.now().after(DRIFT))).await;
    let left = fs::read(place.path()).unwrap();
    place.clock.set(place.now().before(1000 * SECOND));
    let again = place.start().unwrap();
    assert_eq!(fs::read(place.path()).unwrap(), left);
    assert_eq!(again.claim(&dated(1, place.now())).await.unwrap(), Claimed::TooOld);
    drop(again);
    drop(place.start().unwrap());
    assert_eq!(fs::read(place.path()).unwrap(), left);
}

#[tokio::test]
async fn a_missing_file_says_nothing_unless_it_is_told_to() {
    let place = Place::new(MissingCeiling::SaysNothing);
    let start = place.now();
    // The second start finds a file, and still nothing is known of the time before the first.
    for _ in 0..2 {
        let store = place.start().unwrap();
        assert_eq!(store.claim(&dated(0, start.after(DRIFT))).await.unwrap(), Claimed::TooOld);
        place.clock.advance(SECOND);
    }
    let store = place.start().unwrap();
    granted(&store, &dated(0, start.after(DRIFT).after(Duration::from_micros(1)))).await;

    let place = Place::new(MissingCeiling::NothingRan);
    granted(&place.start().unwrap(), &dated(0, place.now())).await;
}

#[test]
fn of_two_stores_on_one_file_the_second_is_refused() {
    let place = Place::new(MissingCeiling::SaysNothing);
    let first = place.start().unwrap();
    assert!(matches!(place.start(), Err(CeilingError::Held { .. })));
    let clone = first.clone();
    drop(first);
    assert!(matches!(place.start(), Err(CeilingError::Held { .. })));
    let other = place.directory.path().join("other");
    std::os::unix::fs::symlink(place.path(), &other).unwrap();
    assert!(matches!(MemoryStore::builder().build_under(&Ceiling::at(&other)), Err(CeilingError::Held { .. })));
    drop(clone);
    place.start().unwrap();
}

#[tokio::test]
async fn a_store_whose_lock_was_removed_raises_nothing() {
    let place = Place::new(MissingCeiling::NothingRan);
    let first = place.start().unwrap();
    granted(&first, &dated(0, place.now())).await;
    fs::remove_file(place.directory.path().join("ceiling.lock")).unwrap();
    place.clock.advance(100 * SECOND);
    let refused = async |n| {
        let error = first.claim(&dated(n, place.now())).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Busy);
        let why = std::error::Error::source(&error).unwrap().to_string();
        assert!(why.contains("ceiling.lock was removed"), "{why}");
    };
    refused(1).await;
    // There is another one, and another store holds that.
    let second = place.start().unwrap();
    place.clock.advance(100 * SECOND);
    granted(&second, &dated(2, place.now())).await;
    drop(second);
    let left = fs::read(place.path()).unwrap();
    place.clock.advance(100 * SECOND);
    refused(2).await;
    assert_eq!(fs::read(place.path()).unwrap(), left);
    drop(first);
    // Whoever starts now has a lock that all meet, and refuses what ran.
    let third = place.start().unwrap();
    assert_eq!(third.claim(&dated(2, place.now().before(100 * SECOND))).await.unwrap(), Claimed::TooOld);
}

#[test]
fn a_ceiling_far_ahead_of_the_clock_is_said_in_the_log() {
    let place = Place::new(MissingCeiling::NothingRan);
    let (log, _here) = Log::begin();
    let now = place.now();
    drop(place.start().unwrap());
    place.clock.set(now.before(3600 * SECOND));
    drop(place.start().unwrap());
    assert_eq!(log.at(Level::ERROR), Vec::<String>::new());
    place.clock.set(now.before(25 * 3600 * SECOND));
    drop(place.start().unwrap());
    let errors = log.at(Level::ERROR);
    assert_eq!(errors.len(), 1);
    let path = place.path().canonicalize().unwrap();
    assert!(errors[0].contains(path.to_str().unwrap()) && errors[0].contains("delete the file"), "{errors:?}");
}

#[test]
fn what_is_not_a_whole_ceiling_is_an_error() {
    let place = Place::new(MissingCeiling::NothingRan);
    drop(place.start().unwrap());
    let whole = fs::read(place.path()).unwrap();
    let longer = [whole.clone(), b"\n".to_vec()].concat();
    let foreign = [b"".to_vec(), b"hello".to_vec(), vec![0xff; 10_000], longer];
    let torn = (0..whole.len()).map(|length| whole[..length].to_vec());
    for bytes in foreign.into_iter().chain(torn) {
        fs::write(place.path(), &bytes).unwrap();
        assert!(matches!(place.start(), Err(CeilingError::Foreign { .. })), "{:?}", String::from_utf8_lossy(&bytes));
        assert_eq!(fs::read(place.path()).unwrap(), bytes, "it is left as it was found");
    }
    fs::write(place.path(), &whole).unwrap();
    // What a crash left of a write that was never finished means nothing.
    fs::write(place.directory.path().join("ceiling.new"), &whole[..10]).unwrap();
    place.start().unwrap();
}

#[test]
fn a_place_where_no_file_can_be_is_an_error() {
    let place = Place::new(MissingCeiling::NothingRan);
    let in_nothing = Ceiling::at(place.directory.path().join("missing/ceiling"));
    assert!(matches!(MemoryStore::builder().build_under(&in_nothing), Err(CeilingError::Unreadable { .. })));
    fs::create_dir(place.path()).unwrap();
    assert!(matches!(place.start(), Err(CeilingError::Unreadable { .. })));
    fs::create_dir(place.directory.path().join("free.new")).unwrap();
    let no_new = Ceiling::at(place.directory.path().join("free"));
    assert!(matches!(MemoryStore::builder().build_under(&no_new), Err(CeilingError::Unwritable { .. })));
    assert!(Ceiling::at("x").ahead(Duration::ZERO).is_err());
    assert!(Ceiling::at("x").ahead(Duration::MAX).is_err());
}

#[tokio::test]
async fn while_the_ceiling_cannot_be_raised_nothing_above_it_runs() {
    let place = Place::new(MissingCeiling::NothingRan);
    let store = place.start().unwrap();
    let limit = place.now().after(AHEAD);
    // The next write fails: its file cannot be made.
    let blocked = place.directory.path().join("ceiling.new");
    fs::create_dir(&blocked).unwrap();
    place.clock.advance(100 * SECOND);
    for n in 0..10 {
        let error = store.claim(&dated(n, place.now())).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Busy);
        let why = std::error::Error::source(&error).unwrap().to_string();
        assert!(why.contains("ceiling"), "{why}");
    }
    assert!(store.is_empty(), "a refused claim leaves nothing");
    granted(&store, &dated(10, limit)).await;
    assert_eq!(
        store.claim(&dated(11, limit.after(Duration::from_micros(1)))).await.unwrap_err().kind(),
        StoreErrorKind::Busy
    );
    granted(&store, &claim(12)).await;
    fs::remove_dir(&blocked).unwrap();
    granted(&store, &dated(0, place.now())).await;
}

#[tokio::test]
async fn a_record_answers_whatever_the_ceiling_is() {
    let place = Place::new(MissingCeiling::NothingRan);
    let store = place.start().unwrap();
    let running = dated(0, place.now());
    granted(&store, &running).await;
    fs::create_dir(place.directory.path().join("ceiling.new")).unwrap();
    place.clock.advance(20 * SECOND);
    // A duplicate that says another time of the same key is answered by the record.
    let later = Claim { nonce: idempotency::Nonce::random(), ..dated(0, place.now()) };
    assert!(matches!(store.claim(&later).await.unwrap(), Claimed::InFlight { .. }));
    assert!(matches!(store.claim(&running).await.unwrap(), Claimed::Granted(_)));
}

#[test]
fn many_threads_wait_for_one_ceiling() {
    let place = Place::new(MissingCeiling::NothingRan);
    let store = place.start().unwrap();
    std::thread::scope(|scope| {
        for thread in 0..8_u32 {
            let (store, place) = (&store, &place);
            scope.spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
                for n in 0..50 {
                    place.clock.advance(SECOND);
                    runtime.block_on(granted(store, &dated(thread * 1000 + n, place.now().after(DRIFT / 2))));
                }
            });
        }
    });
    assert_eq!(store.len(), 400);
}

/// What renews in the background keeps nothing of it.
#[tokio::test]
async fn an_engine_that_is_dropped_lets_go_of_its_ceiling_at_once() {
    let place = Place::new(MissingCeiling::NothingRan);
    let engine = Engine::new(place.start().unwrap(), Settings::default());
    let operation = Operation::new(ScopeId::global(), Key::parse("k").unwrap(), Fingerprint::of(["body"]));
    let Answer::Run(held) = engine.claim(&operation).await.unwrap() else { panic!("granted") };
    held.complete(Outcome::not_kept(201)).await;
    // The task sleeps by now.
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert!(matches!(place.start(), Err(CeilingError::Held { .. })), "one at a time");
    drop(engine);
    place.start().unwrap();
}
