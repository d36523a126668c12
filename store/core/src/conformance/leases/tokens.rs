//! Fencing tokens: strictly increasing per resource, whatever happened in between.

use std::time::Duration;

use super::LeaseHarness;
use super::support::{LEASE, Situation, Subject, assert_lasts, granted, later, ok, sweep, tick, token};
use crate::{Acquired, Ask, LeaseHolder, Leases, Nonce, Settled, StoreErrorKind, TOKEN_HOLD};

/// Over release, expiry, abandon, a holder that crashed, and purge.
pub async fn case_74_tokens_rise_whatever_happens_in_between<H: LeaseHarness>(harness: &H) {
    let subject = Subject::new(harness);
    let mut last = token(1);
    for round in 0..4 {
        for end in 0..5 {
            let held = subject.grant().await;
            assert!(held.token() > last, "{:?} after {last:?}, {round}/{end}", held.token());
            last = held.token();
            match end {
                0 => assert_eq!(held.release_for(Duration::ZERO).await, Settled::Applied),
                1 => harness.advance(LEASE).await,
                2 => subject.abandon(held.holder.nonce).await,
                3 => {
                    harness.advance(LEASE / 2).await;
                    assert_eq!(held.renew().await, Settled::Applied);
                    harness.advance(LEASE).await;
                }
                _ => {
                    // Past the nonces that the abandon left as well.
                    harness.advance(3 * TOKEN_HOLD).await;
                    assert_eq!(sweep(harness).await, 1);
                    assert_eq!(subject.inspect().await, None);
                }
            }
        }
    }
}

/// However fast they follow each other.
pub async fn grants_in_one_microsecond_have_different_tokens<H: LeaseHarness>(harness: &H) {
    let subject = Subject::new(harness);
    let mut last = subject.grant().await;
    for _ in 0..100 {
        assert_eq!(last.release_for(Duration::ZERO).await, Settled::Applied);
        let next = subject.grant().await;
        assert!(next.token() > last.token());
        last = next;
    }
}

/// So that one whose predecessor nobody remembers is above it.
pub async fn a_token_is_at_least_the_clock<H: LeaseHarness>(harness: &H) {
    let before = Subject::new(harness).grant().await.token();
    harness.advance(LEASE).await;
    let subject = Subject::new(harness);
    let held = subject.grant().await;
    assert!(held.token() >= later(before, LEASE));
    assert_eq!(subject.inspect().await.and_then(|entry| entry.token), Some(held.token()));
}

/// By less than the token hold in total, whatever a sweep removed.
pub async fn case_74_tokens_rise_while_the_clock_steps_back<H: LeaseHarness>(harness: &H) {
    if !harness.steps_back() {
        return;
    }
    let subject = Subject::new(harness);
    let mut last = subject.grant().await;
    for step in [1, 600, 1200, 1798] {
        assert_eq!(last.release_for(Duration::ZERO).await, Settled::Applied);
        sweep(harness).await;
        harness.step_back(Duration::from_secs(step)).await;
        sweep(harness).await;
        let next = subject.grant().await;
        assert!(next.token() > last.token(), "{:?} after {:?}", next.token(), last.token());
        last = next;
    }
    assert_eq!(last.release_for(Duration::ZERO).await, Settled::Applied);
    // Past every step and the hold: now the row may go, and the clock alone keeps the order.
    harness.advance(2 * TOKEN_HOLD + tick(harness)).await;
    assert_eq!(sweep(harness).await, 1);
    harness.step_back(TOKEN_HOLD - Duration::from_secs(1)).await;
    assert!(subject.grant().await.token() > last.token());
}

/// A clock that steps back gives nobody's lease to somebody else, and revives no nonce.
pub async fn a_step_back_lets_nobody_in<H: LeaseHarness>(harness: &H) {
    if !harness.steps_back() {
        return;
    }
    let (subject, freed) = (Subject::new(harness), Subject::new(harness));
    let held = subject.grant().await;
    let dead = freed.grant().await;
    assert_eq!(dead.release().await, Settled::Applied);
    harness.step_back(LEASE / 2).await;
    assert!(matches!(subject.asked().await, Acquired::Held { .. }));
    assert_eq!(held.renew().await, Settled::Applied);
    assert_eq!(freed.asked_with(dead.holder.nonce).await, Acquired::Refused);
    assert!(matches!(freed.asked().await, Acquired::Granted(_)));
}

/// Of a resource that is free, so that a source of tokens which lost its memory is put right.
pub async fn a_grant_is_above_the_token_that_it_was_asked_to_be_above<H: LeaseHarness>(harness: &H) {
    let subject = Subject::new(harness);
    let first = subject.grant().await;
    assert_eq!(first.release_for(Duration::ZERO).await, Settled::Applied);
    let seen = later(first.token(), TOKEN_HOLD / 2);
    let ask = Ask { above: Some(seen), ..subject.ask(Nonce::random()) };
    let acquired = subject.send(&ask).await;
    let second = subject.held(ask.nonce, acquired);
    assert!(second.token() > seen);
    assert_eq!(second.release_for(Duration::ZERO).await, Settled::Applied);
    // And so are those after it, which ask for nothing.
    assert!(subject.grant().await.token() > second.token());

    let ask = Ask { above: Some(token(1)), ..Subject::new(harness).ask(Nonce::random()) };
    assert!(granted(subject.send(&ask).await).token >= first.token(), "a token that is behind holds nothing back");
}

/// Its old token is nobody's any more.
pub async fn a_holder_is_raised_above_a_token_and_keeps_its_lease<H: LeaseHarness>(harness: &H) {
    let subject = Subject::new(harness);
    let held = subject.grant().await;
    harness.advance(LEASE / 2).await;
    for seen in [held.token(), later(held.token(), TOKEN_HOLD / 2)] {
        let raise = Ask { above: Some(seen), lease: crate::Lease::default(), ..subject.ask(held.holder.nonce) };
        let grant = granted(subject.send(&raise).await);
        assert!(grant.token > seen);
        assert_lasts(harness, Some(grant.lease_left), LEASE / 2);
        assert_lasts(harness, subject.lease_left().await, LEASE / 2);
        assert!(matches!(subject.asked().await, Acquired::Held { .. }));
        assert_eq!(held.renew_for(LEASE / 2).await, Settled::Superseded);

        let raised = LeaseHolder { token: grant.token, ..held.holder.clone() };
        assert_eq!(ok(harness.leases().renew(&raised, crate::Lease::default()).await), Settled::Applied);
        harness.advance(LEASE / 2).await;
    }
}

/// Its answer was lost, and it comes again.
pub async fn a_repeated_raise_changes_nothing<H: LeaseHarness>(harness: &H) {
    let subject = Subject::new(harness);
    let held = subject.grant().await;
    let below = Ask { above: Some(token(held.token().get() - 1)), ..subject.ask(held.holder.nonce) };
    assert_eq!(granted(subject.send(&below).await).token, held.token(), "it is above that already");
    let raise = Ask { above: Some(held.token()), ..below };
    let raised = granted(subject.send(&raise).await).token;
    assert!(raised > held.token());
    for _ in 0..2 {
        assert_eq!(granted(subject.send(&raise).await).token, raised);
    }
}

/// Somebody else is told that it is held, and whoever has lost it is granted nothing under the old nonce.
pub async fn nobody_but_the_holder_is_raised<H: LeaseHarness>(harness: &H) {
    for situation in [Situation::Held, Situation::Ended, Situation::Released, Situation::TakenOver] {
        let scene = situation.arrange(harness).await;
        let before = scene.subject.inspect().await.and_then(|entry| entry.token);
        let above = Some(later(scene.first.token(), LEASE * 10));
        let stranger = Ask { above, ..scene.subject.ask(Nonce::random()) };
        let owner = Ask { above, ..scene.subject.ask(scene.first.holder.nonce) };
        if situation != Situation::Held {
            let acquired = scene.subject.send(&owner).await;
            assert!(matches!(acquired, Acquired::Refused | Acquired::Held { .. }), "{situation:?}: {acquired:?}");
        }
        if matches!(situation, Situation::Held | Situation::TakenOver) {
            assert!(matches!(scene.subject.send(&stranger).await, Acquired::Held { .. }));
        }
        assert_eq!(scene.subject.inspect().await.and_then(|entry| entry.token), before, "{situation:?}");
    }
}

/// One bad clock must not push the tokens of a resource to the year 2100.
pub async fn a_token_from_the_far_future_is_refused<H: LeaseHarness>(harness: &H) {
    let held = Subject::new(harness).grant().await;
    let (near, far) = (later(held.token(), TOKEN_HOLD), later(held.token(), TOKEN_HOLD + tick(harness)));
    let unknown = Subject::new(harness);
    let holder = Subject { harness, resource: held.holder.resource.clone() };
    for (subject, nonce) in [(&unknown, Nonce::random()), (&holder, held.holder.nonce)] {
        for above in [far, token(crate::FencingToken::MAX)] {
            let before = subject.inspect().await.and_then(|entry| entry.token);
            let refused = harness.leases().try_acquire(&Ask { above: Some(above), ..subject.ask(nonce) }).await;
            assert_eq!(refused.map_err(|error| error.kind()), Err(StoreErrorKind::Refused));
            assert_eq!(subject.inspect().await.and_then(|entry| entry.token), before, "nothing was written");
        }
        let raised = granted(subject.send(&Ask { above: Some(near), ..subject.ask(nonce) }).await);
        assert!(raised.token > near);
    }
}
