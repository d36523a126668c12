//! Forgetting what is over, and nothing else.

use super::LeaseHarness;
use super::support::{DEAD_FOR, LEASE, Situation, Subject, arrive, later, ok, sweep, tick};
use crate::{Acquired, Ask, Leases, Nonce, Settled, TOKEN_HOLD};

/// A sweep beside it changes no answer in any situation.
pub async fn a_sweep_removes_nothing_that_counts<H: LeaseHarness>(harness: &H) {
    for situation in Situation::ALL {
        let scene = situation.arrange(harness).await;
        let before = scene.subject.inspect().await;
        sweep(harness).await;
        if harness.exact_clock() {
            assert_eq!(scene.subject.inspect().await, before, "{situation:?}");
        }
        let expected = if situation == Situation::Held { Settled::Applied } else { Settled::Superseded };
        assert_eq!(scene.first.renew().await, expected, "{situation:?}");
        let held = matches!(scene.subject.asked().await, Acquired::Held { .. });
        assert_eq!(held, matches!(situation, Situation::Held | Situation::TakenOver), "{situation:?}");
    }
}

/// By the token hold, strictly, even when nothing else keeps it.
pub async fn a_row_stays_for_its_token<H: LeaseHarness>(harness: &H) {
    let subject = Subject::new(harness);
    let held = subject.grant().await;
    assert_eq!(held.release_for(tick(harness) / 2).await, Settled::Applied);
    if harness.token_hold() == TOKEN_HOLD {
        harness.advance(TOKEN_HOLD - tick(harness)).await;
        assert_eq!(sweep(harness).await, 0);
        if harness.exact_clock() {
            arrive(harness).await;
            assert_eq!(sweep(harness).await, 0, "it stays until the clock is strictly past its hold");
        }
        assert_eq!(subject.inspect().await.and_then(|entry| entry.token), Some(held.token()));
        arrive(harness).await;
    }
    arrive(harness).await;
    assert_eq!(subject.inspect().await, None, "over, whether or not anybody sweeps");
    assert_eq!(sweep(harness).await, 1);
}

/// From that token's own time on.
pub async fn a_row_stays_for_a_token_ahead_of_the_clock<H: LeaseHarness>(harness: &H) {
    let subject = Subject::new(harness);
    let held = subject.grant().await;
    let seen = later(held.token(), TOKEN_HOLD / 2);
    let raise = Ask { above: Some(seen), ..subject.ask(held.holder.nonce) };
    let acquired = subject.send(&raise).await;
    let raised = subject.held(held.holder.nonce, acquired);
    assert_eq!(raised.release_for(tick(harness) / 2).await, Settled::Applied);
    harness.advance(TOKEN_HOLD / 2 + harness.token_hold() - tick(harness)).await;
    assert_eq!(sweep(harness).await, 0);
    assert!(subject.grant().await.token() > raised.token());
}

/// On a resource that is known for nothing else, too.
pub async fn a_row_stays_for_its_dead_nonces<H: LeaseHarness>(harness: &H) {
    let (stub, released) = (Subject::new(harness), Subject::new(harness));
    stub.abandon(Nonce::random()).await;
    assert_eq!(released.grant().await.release().await, Settled::Applied);
    harness.advance(DEAD_FOR - tick(harness)).await;
    assert_eq!(sweep(harness).await, 0);
    arrive(harness).await;
    arrive(harness).await;
    arrive(harness).await;
    assert_eq!(sweep(harness).await, 2);
}

/// A lease that outlasts every hold.
pub async fn a_row_stays_for_its_lease<H: LeaseHarness>(harness: &H) {
    let (renewed, long) = (Subject::new(harness), Subject::new(harness));
    let held = renewed.grant().await;
    let other = long.grant_for(8 * TOKEN_HOLD).await;
    assert_eq!(held.renew_for(8 * TOKEN_HOLD).await, Settled::Applied);
    harness.advance(6 * TOKEN_HOLD).await;
    assert_eq!(sweep(harness).await, 0);
    assert_eq!(held.renew().await, Settled::Applied);
    assert_eq!(other.renew().await, Settled::Applied);
    harness.advance(3 * TOKEN_HOLD).await;
    assert_eq!(sweep(harness).await, 2);
}

/// And says how much it did.
pub async fn a_sweep_keeps_to_its_limit<H: LeaseHarness>(harness: &H) {
    for _ in 0..7 {
        Subject::new(harness).grant().await;
    }
    harness.advance(LEASE + TOKEN_HOLD + tick(harness)).await;
    let held = Subject::new(harness).grant().await;
    let leases = harness.leases();
    assert_eq!(ok(leases.sweep(0).await), 0);
    assert_eq!(ok(leases.sweep(3).await), 3);
    assert_eq!(ok(leases.sweep(3).await), 3);
    assert_eq!(ok(leases.sweep(3).await), 1);
    assert_eq!(ok(leases.sweep(3).await), 0);
    assert_eq!(held.renew().await, Settled::Applied);
}

/// A row that was over and is held again stays.
pub async fn a_new_lease_is_not_purged_for_the_old_one<H: LeaseHarness>(harness: &H) {
    let subject = Subject::new(harness);
    let old = subject.grant().await;
    harness.advance(LEASE + TOKEN_HOLD + tick(harness)).await;
    let new = subject.grant().await;
    assert!(new.token() > old.token());
    assert_eq!(sweep(harness).await, 0);
    assert_eq!(new.renew().await, Settled::Applied);
}
