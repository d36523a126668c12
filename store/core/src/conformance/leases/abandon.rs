//! Giving up an asking whose answer never came.

use std::time::Duration;

use super::LeaseHarness;
use super::support::{DEAD_FOR, LEASE, Situation, Subject, almost, arrive, granted, ok, sweep};
use crate::{Acquired, Leases, Nonce, Settled};

/// Whether its lease still runs or not.
pub async fn an_abandon_frees_its_own_lease<H: LeaseHarness>(harness: &H) {
    for passed in [Duration::ZERO, LEASE] {
        let subject = Subject::new(harness);
        let held = subject.grant().await;
        harness.advance(passed).await;
        for _ in 0..2 {
            subject.abandon(held.holder.nonce).await;
            assert_eq!(subject.lease_left().await, None);
            assert_eq!(held.renew().await, Settled::Superseded);
        }
        assert!(subject.grant().await.token() > held.token());
    }
}

/// Somebody else's.
pub async fn an_abandon_leaves_the_lease_of_another_nonce_alone<H: LeaseHarness>(harness: &H) {
    let subject = Subject::new(harness);
    let held = subject.grant().await;
    subject.abandon(Nonce::random()).await;
    assert_eq!(held.renew().await, Settled::Applied);
    assert!(matches!(subject.asked().await, Acquired::Held { .. }));
}

/// Case 50 and its like: the store was told twice, and the second time after the asker had gone. Nobody is granted anything.
pub async fn a_late_copy_of_an_abandoned_asking_is_refused<H: LeaseHarness>(harness: &H) {
    // Before the asking came at all.
    let unknown = Subject::new(harness);
    let early = Nonce::random();
    unknown.abandon(early).await;
    assert_eq!(unknown.asked_with(early).await, Acquired::Refused);
    assert_eq!(unknown.lease_left().await, None);
    assert!(matches!(unknown.asked().await, Acquired::Granted(_)));

    // After it was granted.
    let known = Subject::new(harness);
    let late = known.grant().await.holder.nonce;
    known.abandon(late).await;
    assert_eq!(known.asked_with(late).await, Acquired::Refused);
    assert!(matches!(known.asked().await, Acquired::Granted(_)));
}

/// Whatever becomes of the resource meanwhile.
pub async fn a_dead_nonce_is_refused_through_all_later_situations<H: LeaseHarness>(harness: &H) {
    let dead = Nonce::random();
    for situation in Situation::ALL {
        let scene = situation.arrange(harness).await;
        scene.subject.abandon(dead).await;
        assert_eq!(scene.subject.asked_with(dead).await, Acquired::Refused, "{situation:?}");
        sweep(harness).await;
        if let Acquired::Granted(_) = scene.subject.asked().await {
            assert_eq!(scene.subject.asked_with(dead).await, Acquired::Refused, "{situation:?}, granted");
        }
        harness.advance(LEASE).await;
        assert_eq!(scene.subject.asked_with(dead).await, Acquired::Refused, "{situation:?}, ended");
        assert_eq!(scene.subject.grant().await.release().await, Settled::Applied);
        assert_eq!(scene.subject.asked_with(dead).await, Acquired::Refused, "{situation:?}, released");
    }
}

/// Strictly after it.
pub async fn a_dead_nonce_lives_again_when_its_time_is_over<H: LeaseHarness>(harness: &H) {
    let subject = Subject::new(harness);
    let dead = Nonce::random();
    subject.abandon(dead).await;
    // Said again, it counts from then.
    harness.advance(LEASE).await;
    subject.abandon(dead).await;
    almost(harness, DEAD_FOR).await;
    assert_eq!(subject.asked_with(dead).await, Acquired::Refused);
    if harness.exact_clock() {
        arrive(harness).await;
        assert_eq!(subject.asked_with(dead).await, Acquired::Refused);
    }
    arrive(harness).await;
    arrive(harness).await;
    assert!(granted(subject.asked_with(dead).await).token.get() > 0);
}

/// None pushes another one out.
pub async fn many_nonces_are_dead_at_once<H: LeaseHarness>(harness: &H) {
    let subject = Subject::new(harness);
    let dead: Vec<Nonce> = (0..40).map(|_| Nonce::random()).collect();
    for (n, nonce) in dead.iter().enumerate() {
        subject.abandon(*nonce).await;
        if n % 8 == 0 {
            assert_eq!(subject.grant().await.release().await, Settled::Applied);
        }
    }
    for nonce in &dead {
        assert_eq!(subject.asked_with(*nonce).await, Acquired::Refused);
    }
}

/// More than anybody would keep: the row stays within its bounds, and the newest are still dead.
pub async fn a_storm_of_abandons_leaves_the_resource_usable<H: LeaseHarness>(harness: &H) {
    let subject = Subject::new(harness);
    let dead: Vec<Nonce> = (0..1100).map(|_| Nonce::random()).collect();
    for nonce in &dead {
        ok(harness.leases().abandon(&subject.resource, *nonce, DEAD_FOR).await);
    }
    for nonce in dead.iter().rev().take(1000).step_by(37) {
        assert_eq!(subject.asked_with(*nonce).await, Acquired::Refused);
    }
    assert_eq!(subject.grant().await.release().await, Settled::Applied);
}
