//! Sweep: removes what is over, counts what it forgets, and touches nothing else.

use super::Harness;
use super::situation::Situation;
use super::support::{
    DEAD_FOR, LEASE, RESPONSE, Subject, TOMBSTONE, almost, arrive, lease, ok, outcome, sweep, tick, windows,
};
use crate::{Claimed, Life, Nonce, Outcome, Recovery, Settled, State, Store, Swept, TOKEN_HOLD};

/// Nothing is purged whose state, token or dead nonces still count.
pub async fn a_sweep_removes_nothing_that_counts<H: Harness>(harness: &H) {
    for situation in Situation::ALL {
        let scene = situation.arrange(harness).await;
        let before = scene.subject.entry_without_age().await;
        let claimed = scene.subject.claim_with(scene.holder.nonce).await;
        sweep(harness).await;
        if situation.state().is_some() {
            assert_eq!(scene.subject.entry_without_age().await, before, "{situation:?}");
            let again = scene.subject.claim_with(scene.holder.nonce).await;
            assert_eq!(std::mem::discriminant(&again), std::mem::discriminant(&claimed), "{situation:?}");
        }
    }
}

/// When the response window is over a sweep drops the payload, once, and the tombstone answers as before.
pub async fn a_sweep_drops_payloads_whose_window_is_over<H: Harness>(harness: &H) {
    let scene = Situation::Completed.arrange(harness).await;
    almost(harness, RESPONSE).await;
    assert_eq!(sweep(harness).await, Swept::default());
    assert!(matches!(scene.subject.claim().await, Claimed::Replay { .. }));
    arrive(harness).await;
    let tombstone = scene.subject.claim().await;
    assert_eq!(sweep(harness).await, Swept { tombstoned: 1, ..Swept::default() });
    assert_eq!(sweep(harness).await, Swept::default());
    let (Claimed::Executed(before), Claimed::Executed(after)) = (tombstone, scene.subject.claim().await) else {
        panic!("not a tombstone")
    };
    assert_eq!((after.status, &after.location), (201, &before.location));
    assert_eq!(after.completed_at, before.completed_at);
    assert_eq!(scene.attempt().complete().await, Settled::AlreadyApplied);
}

/// A claim that is renewed outlives every window and its own token's hold, whatever sweeps beside it.
pub async fn a_sweep_leaves_a_renewed_claim_alone<H: Harness>(harness: &H) {
    for recovery in [Recovery::Hold, Recovery::Rerun] {
        let subject = Subject::with(harness, Life::new(recovery, windows(LEASE, LEASE)));
        let long = TOKEN_HOLD / 2;
        let attempt = subject.but(|claim| claim.lease = lease(long)).grant().await;
        for _ in 0..6 {
            almost(harness, long).await;
            assert_eq!(sweep(harness).await.purged, 0);
            assert!(matches!(subject.claim().await, Claimed::InFlight { .. }));
            assert_eq!(attempt.renew_for(long).await, Settled::Applied);
        }
        almost(harness, long).await;
        assert_eq!(attempt.complete().await, Settled::Applied);
        assert!(matches!(subject.claim().await, Claimed::Replay { .. }));
        harness.advance(2 * TOKEN_HOLD).await;
        while sweep(harness).await.more {}
    }
}

/// A completed record is purged strictly after its tombstone window, and is no escape.
pub async fn a_tombstone_is_purged_when_its_window_is_over<H: Harness>(harness: &H) {
    for situation in [Situation::Completed, Situation::TombstoneAtOnce] {
        let scene = situation.arrange(harness).await;
        harness.advance(TOMBSTONE - tick(harness)).await;
        assert_eq!(sweep(harness).await.purged, 0);
        assert_eq!(scene.subject.state().await, Some(State::Tombstone));
        arrive(harness).await;
        arrive(harness).await;
        assert_eq!(sweep(harness).await, Swept { purged: 1, ..Swept::default() });
        assert_eq!(scene.attempt().complete().await, Settled::Superseded);
        assert_eq!(scene.subject.grant().await.grant.attempt, 1);
        assert_eq!(sweep(harness).await, Swept::default());
    }
}

/// A record whose windows are shorter than the token hold stays for its token, and is absent all the same.
pub async fn an_expired_row_stays_for_its_token<H: Harness>(harness: &H) {
    if harness.token_hold() < TOKEN_HOLD {
        return;
    }
    let brief = Life::new(Recovery::Hold, windows(LEASE, LEASE));
    let subject = Subject::with(harness, brief);
    let attempt = subject.grant().await;
    assert_eq!(attempt.complete_with(&Outcome::not_kept(200)).await, Settled::Applied);
    harness.advance(TOKEN_HOLD - tick(harness)).await;
    assert_eq!(sweep(harness).await.purged, 0);
    assert_eq!(subject.inspect().await, None);
    arrive(harness).await;
    arrive(harness).await;
    assert_eq!(sweep(harness).await.purged, 1);
}

/// Purging a doubt forgets something that may have run: it is counted, by whichever way it came into doubt.
pub async fn the_purge_of_a_doubt_is_counted_as_an_escape<H: Harness>(harness: &H) {
    let marked = Subject::new(harness);
    assert_eq!(marked.grant().await.mark(Some(&outcome())).await, Settled::Applied);
    let lapsed = Subject::new(harness);
    lapsed.grant().await;
    harness.advance(LEASE + TOMBSTONE - tick(harness)).await;
    assert_eq!(sweep(harness).await.purged, 0);
    assert_eq!(marked.state().await, Some(State::InDoubt));
    arrive(harness).await;
    arrive(harness).await;
    assert_eq!(sweep(harness).await, Swept { purged: 2, escapes: 2, ..Swept::default() });
    assert_eq!(sweep(harness).await, Swept::default());
    assert_eq!(lapsed.grant().await.grant.attempt, 1);
}

/// An attempt under Rerun that nobody came back for goes a tombstone window after its lease. It is no doubt.
pub async fn an_attempt_nobody_came_back_for_is_purged<H: Harness>(harness: &H) {
    let subject = Subject::rerun(harness);
    let attempt = subject.grant().await;
    harness.advance(LEASE + TOMBSTONE - tick(harness)).await;
    assert_eq!(sweep(harness).await.purged, 0);
    assert_eq!(subject.state().await, Some(State::InFlight));
    arrive(harness).await;
    arrive(harness).await;
    assert_eq!(sweep(harness).await, Swept { purged: 1, ..Swept::default() });
    assert_eq!(attempt.complete().await, Settled::Superseded);
    assert_eq!(subject.grant().await.grant.attempt, 1);
}

/// A stub stays for its dead nonces, and so does any record.
pub async fn a_row_stays_for_its_dead_nonces<H: Harness>(harness: &H) {
    let stub = Subject::new(harness);
    let nonce = Nonce::random();
    stub.abandon(nonce).await;
    harness.advance(DEAD_FOR - tick(harness)).await;
    assert_eq!(sweep(harness).await.purged, 0);
    assert_eq!(stub.claim_with(nonce).await, Claimed::Refused);
    arrive(harness).await;
    arrive(harness).await;
    assert_eq!(sweep(harness).await, Swept { purged: 1, ..Swept::default() });

    let released = Subject::new(harness);
    let attempt = released.grant().await;
    let long = 3 * TOKEN_HOLD;
    assert_eq!(ok(harness.store().release(&attempt.holder, long).await), Settled::Applied);
    harness.advance(long - tick(harness)).await;
    assert_eq!(sweep(harness).await.purged, 0);
    assert_eq!(released.claim_with(attempt.holder.nonce).await, Claimed::Refused);
    arrive(harness).await;
    arrive(harness).await;
    assert_eq!(sweep(harness).await.purged, 1);
}

/// A sweep takes no more than its limit and says when there may be more.
pub async fn a_sweep_keeps_to_its_limit<H: Harness>(harness: &H) {
    for _ in 0..10 {
        assert_eq!(Subject::new(harness).grant().await.complete().await, Settled::Applied);
    }
    harness.advance(RESPONSE).await;
    assert_eq!(batches(harness, 4).await, Swept { tombstoned: 10, ..Swept::default() });
    harness.advance(TOMBSTONE).await;
    assert_eq!(batches(harness, 3).await, Swept { purged: 10, ..Swept::default() });
    assert_eq!(ok(harness.store().list(&crate::List::default()).await).entries, []);
}

/// Sweeps in batches until there is no more, and adds them up.
async fn batches(harness: &impl Harness, limit: usize) -> Swept {
    let mut all = Swept::default();
    for _ in 0..100 {
        let swept = ok(harness.store().sweep(limit).await);
        let rows = swept.purged + swept.tombstoned;
        assert!(rows <= limit, "{swept:?} is more than {limit}");
        all = all.and(swept);
        if !swept.more {
            return all;
        }
    }
    panic!("there is always more: {all:?}");
}

/// A payload that nobody swept in time goes with its row.
pub async fn a_late_sweep_purges_at_once<H: Harness>(harness: &H) {
    let scene = Situation::Completed.arrange(harness).await;
    harness.advance(2 * TOMBSTONE).await;
    let swept = batches(harness, 100).await;
    assert_eq!((swept.purged, swept.escapes), (1, 0));
    assert_eq!(scene.subject.inspect().await, None);
}

/// An expired row that began a new life is not purged for its old one.
pub async fn a_new_life_is_not_purged_for_the_old_one<H: Harness>(harness: &H) {
    for situation in [Situation::Completed, Situation::InDoubtMarked, Situation::Released] {
        let scene = situation.arrange(harness).await;
        harness.advance(LEASE + 2 * TOMBSTONE).await;
        let attempt = scene.subject.grant().await;
        sweep(harness).await;
        assert_eq!(scene.subject.state().await, Some(State::InFlight), "{situation:?}");
        assert_eq!(attempt.complete().await, Settled::Applied, "{situation:?}");
        assert_eq!(sweep(harness).await.purged, 0, "{situation:?}");
        harness.advance(2 * TOMBSTONE).await;
        while sweep(harness).await.more {}
    }
}
