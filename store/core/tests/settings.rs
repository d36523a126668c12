//! Settings that cannot be meant are errors where they are made.
#![expect(clippy::unwrap_used, reason = "a test fails loudly")]

mod log;

use std::time::Duration;

use idempotency::time::InvalidDuration;
use idempotency::{
    AgeLimit, Answer, Engine, Fingerprint, Key, KeyClass, Lease, Life, Operation, Recovery, ScopeId, Settings, Windows,
};
use idempotency_memory::MemoryStore;
use tracing::Level;

use crate::log::Log;

const SECOND: Duration = Duration::from_secs(1);

fn life(response: Duration, tombstone: Duration) -> Life {
    Life::new(Recovery::Hold, Windows::new(response, tombstone).unwrap())
}

fn age(max_age: Duration, drift: Duration) -> AgeLimit {
    AgeLimit { max_age, drift, class: KeyClass::new("uuid7") }
}

#[test]
fn durations_are_from_a_millisecond_to_a_hundred_years() {
    let lease = Lease::default();
    for given in [Duration::ZERO, Duration::from_micros(999)] {
        assert!(matches!(Windows::new(given, SECOND), Err(InvalidDuration::TooShort { .. })));
        assert!(matches!(Windows::new(SECOND, given), Err(InvalidDuration::TooShort { .. })));
        assert!(matches!(Lease::new(given), Err(InvalidDuration::TooShort { .. })));
        assert!(matches!(Settings::default().max_run(given), Err(InvalidDuration::TooShort { .. })));
        assert!(matches!(Settings::default().store_timeout(given), Err(InvalidDuration::TooShort { .. })));
        let young = Life::default().with_age(age(given, SECOND), lease);
        assert!(matches!(young, Err(InvalidDuration::TooShort { .. })));
        assert!(matches!(Life::default().with_age(age(SECOND, given), lease), Err(InvalidDuration::TooShort { .. })));
    }
    for given in [Duration::from_secs(36_501 * 86_400), Duration::MAX] {
        assert!(matches!(Windows::new(SECOND, given), Err(InvalidDuration::TooLong { .. })));
        assert!(matches!(Lease::new(given), Err(InvalidDuration::TooLong { .. })));
        assert!(matches!(Life::default().with_age(age(given, SECOND), lease), Err(InvalidDuration::TooLong { .. })));
        assert!(matches!(Life::default().with_age(age(SECOND, given), lease), Err(InvalidDuration::TooLong { .. })));
    }
}

#[test]
fn a_tombstone_window_covers_the_response_window() {
    let error = Windows::new(2 * SECOND, SECOND).unwrap_err();
    assert_eq!(error.to_string(), "the tombstone window (1s) must be at least 2s: it covers the response window");
    assert!(Windows::new(SECOND, SECOND).is_ok());
}

#[test]
fn hits_renew_up_to_a_cap_that_covers_the_window_they_renew() {
    let windows = Windows::new(SECOND, 2 * SECOND).unwrap();
    assert_eq!(windows.renewal_cap(), None);
    let error = windows.renewed_up_to(2 * SECOND - Duration::from_nanos(1)).unwrap_err();
    assert_eq!(error.to_string(), "the cap of renewals (1.999999999s) must be at least the tombstone window (2s)");
    assert!(matches!(windows.renewed_up_to(Duration::ZERO), Err(InvalidDuration::TooShort { .. })));
    assert!(matches!(windows.renewed_up_to(Duration::MAX), Err(InvalidDuration::TooLong { .. })));
    let renewed = windows.renewed_up_to(2 * SECOND).unwrap();
    assert_eq!(renewed.renewal_cap(), Some(2 * SECOND));
    assert_eq!((renewed.response(), renewed.tombstone()), (SECOND, 2 * SECOND));
}

#[test]
fn a_tombstone_window_covers_the_lease_whichever_was_set_last() {
    let lease = Lease::new(3 * SECOND).unwrap();
    let short = Settings::default().life(life(SECOND, 2 * SECOND)).lease(lease);
    assert_eq!(
        short.checked().unwrap_err().to_string(),
        "the tombstone window (2s) must be at least 3s: it covers the lease"
    );
    assert!(Settings::default().lease(lease).life(life(SECOND, 3 * SECOND)).checked().is_ok());
    assert!(Settings::default().checked().is_ok());
}

#[test]
fn a_tombstone_window_covers_the_age_of_keys_whichever_was_set_last() {
    let aged =
        life(SECOND, 10 * SECOND).with_age(age(5 * SECOND, 3 * SECOND), Lease::new(2 * SECOND).unwrap()).unwrap();
    let settings = Settings::default().life(aged).lease(Lease::new(2 * SECOND).unwrap());
    assert!(settings.clone().checked().is_ok());
    let longer = settings.lease(Lease::new(3 * SECOND).unwrap()).checked();
    assert!(matches!(longer, Err(InvalidDuration::TombstoneWindow { least, .. }) if least == 11 * SECOND));
}

#[test]
fn a_tombstone_window_covers_a_transaction_limit_that_is_set() {
    let lease = |seconds| Lease::new(seconds * SECOND).unwrap();
    let brief = Settings::default().life(life(SECOND, 2 * SECOND)).lease(lease(1));
    assert!(brief.clone().checked().is_ok(), "who sets none may use no transactions");
    assert!(brief.clone().transaction_limit(lease(2)).checked().is_ok());
    assert_eq!(
        brief.transaction_limit(lease(3)).checked().unwrap_err().to_string(),
        "the tombstone window (2s) must be at least 3s: it covers the transaction limit"
    );
    let aged = life(SECOND, 10 * SECOND).with_age(age(5 * SECOND, 3 * SECOND), lease(2)).unwrap();
    let aged = Settings::default().life(aged).lease(lease(2)).transaction_limit(lease(3)).checked();
    assert!(matches!(aged, Err(InvalidDuration::TombstoneWindow { least, .. }) if least == 11 * SECOND));
}

#[tokio::test]
async fn settings_that_were_not_checked_and_do_not_fit_are_in_the_log() {
    let (log, _here) = Log::begin();
    let grant = async |engine: &Engine<MemoryStore>, key| {
        let operation = Operation::new(ScopeId::global(), Key::parse(key).unwrap(), Fingerprint::of(["body"]));
        assert!(matches!(engine.claim(&operation).await.unwrap(), Answer::Run(_)));
    };
    let fits = Engine::new(MemoryStore::new(), Settings::default());
    grant(&fits, "a").await;
    let unfit = Settings::default().life(life(SECOND, 2 * SECOND)).lease(Lease::new(3 * SECOND).unwrap());
    // As a layer's setters do, one after the other.
    let later = fits.with_settings(unfit.clone());
    let passed_by = later.with_settings(Settings::default());
    grant(&passed_by, "b").await;
    assert_eq!(log.at(Level::ERROR), Vec::<String>::new());

    let engine = Engine::new(MemoryStore::new(), unfit);
    assert_eq!(log.at(Level::ERROR).len(), 1);
    grant(&engine, "a").await;
    assert_eq!(log.at(Level::ERROR).len(), 1, "once is enough");
    for key in ["c", "d"] {
        grant(&later, key).await;
    }
    let errors = log.at(Level::ERROR);
    assert_eq!(errors.len(), 2);
    assert!(errors.iter().all(|error| error.contains("must be at least 3s: it covers the lease")), "{errors:?}");
}
