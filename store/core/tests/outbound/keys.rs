//! The provider's keys and their windows.

use super::*;

#[tokio::test]
async fn case_85_every_call_has_the_same_key_also_after_a_restart() {
    let plan = [Behaviour::CommitThenReset, Behaviour::HalfABody, Behaviour::CommitThen502];
    let rig = Rig::new(Recovery::Rerun, plan);
    let rig = Rig { bank: rig.bank.clone().honours_keys(), ..rig };
    let held = rig.attempt("k").await;
    rig.transfer(&rig.guard(keyed(), retry(3)), held.attempt()).await.unwrap_err();
    drop(held);
    let successor = rig.successor("k").await;
    assert!(!done(rig.transfer(&rig.guard(keyed(), retry(3)), successor.attempt()).await).1);
    let requests = rig.bank.requests();
    assert_eq!(requests.len(), 4);
    assert!(requests.iter().all(|request| *request == requests[0] && request.1.is_some()), "{requests:?}");
    assert_eq!(rig.bank.transfers(), 1);
}

#[tokio::test]
async fn case_86_every_step_has_a_key_of_its_own() {
    let rig = Rig::new(Recovery::Rerun, [Behaviour::HalfABody]);
    let guard = rig.guard(keyed(), retry(2));
    for key in ["k", "l"] {
        let held = rig.attempt(key).await;
        for label in ["create", "pay"] {
            done(guard.call(held.attempt(), &step(label, "x"), |call| rig.bank.clone().call(call)).await);
        }
    }
    let requests = rig.bank.requests();
    assert_eq!(requests[0], requests[1], "two calls of one step");
    let keys: std::collections::BTreeSet<_> = requests.iter().map(|(reference, _)| reference).collect();
    assert_eq!(keys.len(), 4);
    let label = StepLabel::parse("create").unwrap();
    assert_eq!(requests[0].0, keyed().key(&id("k"), &label).as_str(), "it can be told beforehand");
}

#[tokio::test]
async fn case_88_the_key_stays_while_the_request_does_and_is_refused_when_it_changes() {
    let rig = Rig::new(Recovery::Rerun, [Behaviour::TooMany, Behaviour::CommitThen502]);
    let rig = Rig { bank: rig.bank.clone().honours_keys(), ..rig };
    let held = rig.attempt("k").await;
    let guard = rig.guard(keyed(), retry(1));
    rig.transfer(&guard, held.attempt()).await.unwrap_err();
    rig.transfer(&guard, held.attempt()).await.unwrap_err();
    let changed = guard.call(held.attempt(), &step("transfer", "11 EUR"), |call| rig.bank.clone().call(call)).await;
    assert!(matches!(changed, Err(StepError::RequestChanged(_))), "{changed:?}");
    done(rig.transfer(&guard, held.attempt()).await);
    let requests = rig.bank.requests();
    assert_eq!(requests.len(), 3);
    assert!(requests.iter().all(|request| *request == requests[0]));
    assert_eq!(rig.bank.transfers(), 1);
}

/// 600 s, less a margin of 60 s and the call's own timeout.
#[tokio::test]
async fn no_call_is_repeated_when_the_providers_window_may_be_over() {
    let rig = Rig::new(Recovery::Rerun, [Behaviour::CommitThenReset, Behaviour::CommitThenReset]);
    let guard = rig.guard(keyed(), retry(1));
    let held = rig.attempt("k").await;
    rig.transfer(&guard, held.attempt()).await.unwrap_err();
    rig.clock.advance(Duration::from_secs(540) - TIMEOUT - Duration::from_micros(1));
    let second = rig.attempt("k").await;
    rig.transfer(&guard, second.attempt()).await.unwrap_err();
    assert_eq!(rig.bank.requests().len(), 2);
    rig.clock.advance(Duration::from_micros(1));
    assert_eq!(retry_after(rig.transfer(&guard, second.attempt()).await), None);
    assert_eq!(rig.bank.requests().len(), 2);
    // Somebody says that it did not happen: called, and without the key that the provider would take for a new one.
    let label = StepLabel::parse("transfer").unwrap();
    let (who, why) = ("ops".to_owned(), "asked the bank".to_owned());
    let verdict = StepVerdict::DidNotHappen;
    let resolve = ResolveStep { id: id("k"), label, call_seen: 2, verdict, who, why };
    assert_eq!(rig.store.resolve_step(&resolve).await.unwrap(), StepResolved::Applied);
    done(rig.transfer(&guard, second.attempt()).await);
    assert_eq!(rig.bank.requests()[2].1, None);
}

#[test]
fn keys_are_cut_to_the_limit_and_never_below_128_bits() {
    let label = StepLabel::parse("s").unwrap();
    let place = || KeyPlace::Field("reference".to_owned());
    let key = |encoding, longest| {
        let keys = KeySupport::new(place(), window(Duration::from_secs(600)), encoding, longest)?;
        Ok(bank().takes_key(keys)?.key(&id("k"), &label).as_str().to_owned())
    };
    let whole = key(KeyEncoding::Hex, 255).unwrap();
    assert_eq!((whole.len(), bank().key(&id("k"), &label).as_str()), (64, &*whole));
    assert_eq!(key(KeyEncoding::Hex, 32).unwrap(), whole[..32]);
    assert_eq!(key(KeyEncoding::Hex, 31), Err(InvalidProvider::ShortKeys { bits: 124 }));
    assert_eq!(key(KeyEncoding::Base64Url, 64).unwrap().len(), 43);
    assert_eq!(key(KeyEncoding::Base64Url, 22).unwrap().len(), 22);
    assert_eq!(key(KeyEncoding::Base64Url, 21), Err(InvalidProvider::ShortKeys { bits: 126 }));
}

#[test]
fn what_could_not_be_kept_is_refused_at_construction() {
    let store = MemoryStore::new();
    assert_eq!(Guard::new(store, bank(), retry(3)).unwrap_err(), InvalidPolicy::RetryWithoutKey);
    let keys = KeySupport::new(KeyPlace::Field("k".into()), window(Duration::from_millis(300)), KeyEncoding::Hex, 64);
    assert!(matches!(bank().takes_key(keys.unwrap()).unwrap_err(), InvalidProvider::ShortWindow { .. }));
    assert!(Provider::new("bank", Duration::ZERO).is_err());
}

#[test]
fn the_presets_can_be_made() {
    for keys in [KeySupport::stripe(), KeySupport::adyen(), KeySupport::paypal_orders(), KeySupport::sqs_fifo()] {
        assert!(bank().takes_key(keys.unwrap()).is_ok());
    }
}
