//! Renewing and giving back.

use std::time::Duration;

use super::LeaseHarness;
use super::support::{
    DEAD_FOR, LEASE, Situation, Subject, almost, arrive, assert_lasts, granted, lease, ok, tick, token,
};
use crate::{Acquired, LeaseHolder, Leases, Nonce, Settled};

/// Only its holder renews, and only while the lease runs.
pub async fn a_renewal_is_answered_in_every_situation<H: LeaseHarness>(harness: &H) {
    for situation in Situation::ALL {
        let scene = situation.arrange(harness).await;
        let expected = if situation == Situation::Held { Settled::Applied } else { Settled::Superseded };
        assert_eq!(scene.first.renew().await, expected, "{situation:?}");
    }
}

/// Only its holder gives back, late too while nobody took over, and twice is once.
pub async fn a_release_is_answered_in_every_situation<H: LeaseHarness>(harness: &H) {
    for situation in Situation::ALL {
        let scene = situation.arrange(harness).await;
        let expected = match situation {
            Situation::Held | Situation::Ended => Settled::Applied,
            Situation::Released | Situation::Abandoned => Settled::AlreadyApplied,
            Situation::TakenOver | Situation::TakenOverAndReleased | Situation::Forgotten => Settled::Superseded,
        };
        assert_eq!(scene.first.release().await, expected, "{situation:?}");
        let again = if expected == Settled::Applied { Settled::AlreadyApplied } else { expected };
        assert_eq!(scene.first.release().await, again, "{situation:?}, again");
        let taken = situation == Situation::TakenOver;
        assert_eq!(matches!(scene.subject.asked().await, Acquired::Held { .. }), taken, "{situation:?}");
    }
}

/// Neither the token nor the nonce alone is enough.
pub async fn a_stranger_can_do_nothing_in_any_situation<H: LeaseHarness>(harness: &H) {
    for situation in Situation::ALL {
        let scene = situation.arrange(harness).await;
        let before = scene.subject.inspect().await;
        let first = &scene.first.holder;
        let mut strangers = vec![
            LeaseHolder { nonce: Nonce::random(), ..first.clone() },
            LeaseHolder { nonce: Nonce::random(), token: token(1), ..first.clone() },
        ];
        // The nonce of what is dead says that it is over, to whoever knows it.
        if !matches!(situation, Situation::Released | Situation::Abandoned) {
            let number = first.token.get();
            strangers.extend([number - 1, number + 1].map(|n| LeaseHolder { token: token(n), ..first.clone() }));
        }
        for stranger in strangers {
            let renewed = harness.leases().renew(&stranger, lease(LEASE * 2)).await;
            assert_eq!(ok(renewed), Settled::Superseded, "{situation:?} {stranger:?}");
            let released = harness.leases().release(&stranger, DEAD_FOR).await;
            assert_eq!(ok(released), Settled::Superseded, "{situation:?} {stranger:?}");
        }
        if harness.exact_clock() {
            assert_eq!(scene.subject.inspect().await, before, "{situation:?}");
        }
    }
}

/// The same token and nonce on another resource are a stranger's.
pub async fn a_holder_settles_its_own_resource_only<H: LeaseHarness>(harness: &H) {
    let (ours, other) = (Subject::new(harness), Subject::new(harness));
    let held = ours.grant().await;
    let theirs = other.grant().await;
    let stranger = LeaseHolder { resource: other.resource.clone(), ..held.holder.clone() };
    assert_eq!(ok(harness.leases().release(&stranger, DEAD_FOR).await), Settled::Superseded);
    assert_eq!(held.release().await, Settled::Applied);
    assert_eq!(theirs.renew().await, Settled::Applied);
}

/// For as long as it is renewed.
pub async fn renewals_hold_beyond_the_first_lease<H: LeaseHarness>(harness: &H) {
    let subject = Subject::new(harness);
    let held = subject.grant().await;
    for _ in 0..10 {
        harness.advance(LEASE / 2).await;
        assert_eq!(held.renew().await, Settled::Applied);
        assert_lasts(harness, subject.lease_left().await, LEASE);
    }
    assert_eq!(subject.inspect().await.and_then(|entry| entry.token), Some(held.token()));
    almost(harness, LEASE).await;
    assert!(matches!(subject.asked().await, Acquired::Held { .. }));
    arrive(harness).await;
    assert!(matches!(subject.asked().await, Acquired::Granted(_)));
}

/// A late copy of an earlier, shorter renewal takes nothing away.
pub async fn a_renewal_never_shortens_the_lease<H: LeaseHarness>(harness: &H) {
    let subject = Subject::new(harness);
    let held = subject.grant().await;
    assert_eq!(held.renew_for(LEASE * 4).await, Settled::Applied);
    assert_eq!(held.renew_for(LEASE).await, Settled::Applied);
    assert_lasts(harness, subject.lease_left().await, LEASE * 4);
}

/// Even though nobody else has it.
pub async fn a_lease_that_has_ended_is_not_renewed<H: LeaseHarness>(harness: &H) {
    let subject = Subject::new(harness);
    let held = subject.grant().await;
    almost(harness, LEASE).await;
    assert_eq!(held.renew_for(LEASE / 2).await, Settled::Applied);
    almost(harness, LEASE / 2).await;
    arrive(harness).await;
    assert_eq!(held.renew().await, Settled::Superseded);
    assert_eq!(subject.lease_left().await, None);
}

/// A holder stood still; another one came, wrote and left. What the first one sends when it wakes is refused, and it learns that it
/// lost the lease.
pub async fn case_79_a_late_renewal_brings_no_lease_back<H: LeaseHarness>(harness: &H) {
    let subject = Subject::new(harness);
    let first = subject.grant().await;
    harness.advance(LEASE).await;
    let second = subject.grant().await;
    assert_eq!(second.release().await, Settled::Applied);
    assert_eq!(first.renew().await, Settled::Superseded);
    assert_eq!(subject.lease_left().await, None);
    assert!(second.token() > first.token());
}

/// Whatever it sends.
pub async fn a_stale_holder_can_do_nothing_after_a_takeover<H: LeaseHarness>(harness: &H) {
    let subject = Subject::new(harness);
    let stale = subject.grant().await;
    harness.advance(LEASE).await;
    let next = subject.grant().await;
    for _ in 0..2 {
        assert_eq!(stale.renew().await, Settled::Superseded);
        assert_eq!(stale.release().await, Settled::Superseded);
        assert!(matches!(subject.asked_with(stale.holder.nonce).await, Acquired::Held { .. }));
        // Nor does it gain anything by the token of its successor.
        let thief = LeaseHolder { token: next.token(), ..stale.holder.clone() };
        assert_eq!(ok(harness.leases().renew(&thief, lease(LEASE)).await), Settled::Superseded);
        assert_eq!(ok(harness.leases().release(&thief, DEAD_FOR).await), Settled::Superseded);
    }
    subject.abandon(stale.holder.nonce).await;
    assert_eq!(next.renew().await, Settled::Applied);
}

/// A late copy of a release finds the next holder, and leaves it alone.
pub async fn a_late_release_frees_nobody_elses_lease<H: LeaseHarness>(harness: &H) {
    let subject = Subject::new(harness);
    let first = subject.grant().await;
    assert_eq!(first.release_for(Duration::ZERO).await, Settled::Applied);
    harness.advance(tick(harness)).await;
    let second = subject.grant().await;
    assert_eq!(first.release_for(Duration::ZERO).await, Settled::Superseded);
    assert_eq!(first.renew().await, Settled::Superseded);
    assert_eq!(second.renew().await, Settled::Applied);
}

/// For the time that its release named a copy of its asking is refused.
pub async fn a_released_nonce_is_dead_for_as_long_as_it_was_said<H: LeaseHarness>(harness: &H) {
    let subject = Subject::new(harness);
    let held = subject.grant().await;
    assert_eq!(held.release().await, Settled::Applied);
    almost(harness, DEAD_FOR).await;
    assert_eq!(subject.asked_with(held.holder.nonce).await, Acquired::Refused);
    arrive(harness).await;
    arrive(harness).await;
    assert!(granted(subject.asked_with(held.holder.nonce).await).token > held.token());
}
