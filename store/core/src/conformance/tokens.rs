//! Fencing tokens: strictly increasing per record, whatever happened in between.

use std::time::Duration;

use super::Harness;
use super::situation::Situation;
use super::support::{LEASE, Subject, TOMBSTONE, arrive, ok, store_time, sweep, tick, windows};
use crate::{
    Claimed, FencingToken, Life, Nonce, Recovery, ResolveVerdict, Resolved, Settled, State, Store, TOKEN_HOLD,
};

/// Tokens rise over release, takeover, abandon, resolution, expiry and purge.
pub async fn tokens_rise_whatever_happens_in_between<H: Harness>(harness: &H) {
    let subject = Subject::rerun(harness);
    let mut last = FencingToken::new(1).expect("1 is a token");
    for round in 0..4 {
        for end in 0..7 {
            let attempt = subject.grant().await;
            assert!(attempt.holder.token > last, "{:?} after {last:?}, {round}/{end}", attempt.holder.token);
            last = attempt.holder.token;
            match end {
                0 => assert_eq!(attempt.release().await, Settled::Applied),
                1 => harness.advance(LEASE).await,
                2 => subject.abandon(attempt.holder.nonce).await,
                3 => {
                    assert_eq!(attempt.mark(None).await, Settled::Applied);
                    assert_eq!(subject.did_not_happen(last).await, Resolved::Applied);
                }
                4 => {
                    assert_eq!(attempt.complete().await, Settled::Applied);
                    harness.advance(TOMBSTONE).await;
                }
                5 => {
                    assert_eq!(attempt.mark(None).await, Settled::Applied);
                    harness.advance(LEASE + TOMBSTONE).await;
                }
                _ => {
                    assert_eq!(attempt.release().await, Settled::Applied);
                    harness.advance(TOKEN_HOLD + tick(harness)).await;
                    while sweep(harness).await.more {}
                    assert_eq!(subject.inspect().await, None);
                }
            }
        }
    }
}

/// Two grants never share a token, however fast they follow each other: in one microsecond too.
pub async fn grants_in_one_microsecond_have_different_tokens<H: Harness>(harness: &H) {
    let subject = Subject::new(harness);
    let mut last = subject.grant().await;
    for _ in 0..200 {
        assert_eq!(last.release().await, Settled::Applied);
        let next = subject.grant().await;
        assert!(next.holder.token > last.holder.token);
        // A late duplicate of the release frees nothing.
        assert_ne!(last.release().await, Settled::Applied);
        assert_eq!(subject.state().await, Some(State::InFlight));
        last = next;
    }
}

/// A first token is the store's clock in microseconds, so that one whose predecessor nobody remembers is above it.
pub async fn a_token_is_at_least_the_clock<H: Harness>(harness: &H) {
    let before = store_time(harness).await;
    harness.advance(LEASE).await;
    let subject = Subject::new(harness);
    let token = subject.grant().await.holder.token;
    assert!(token.get() >= before.after(LEASE).micros().unsigned_abs());
    assert!(token.get() < 1 << 53);
    assert_eq!(subject.entry().await.token, Some(token));
}

/// A row outlives its token by the token hold, strictly, even when nothing else keeps it.
pub async fn a_row_stays_while_its_token_is_held<H: Harness>(harness: &H) {
    if harness.token_hold() < TOKEN_HOLD {
        return;
    }
    let subject = Subject::new(harness);
    let attempt = subject.grant().await;
    assert_eq!(attempt.release().await, Settled::Applied);
    harness.advance(TOKEN_HOLD - tick(harness)).await;
    assert_eq!(sweep(harness).await.purged, 0);
    if harness.exact_clock() {
        arrive(harness).await;
        assert_eq!(sweep(harness).await.purged, 0, "it stays until the clock is strictly past its hold");
    }
    assert_eq!(subject.entry().await.token, Some(attempt.holder.token));
    arrive(harness).await;
    arrive(harness).await;
    assert_eq!(sweep(harness).await.purged, 1);
    assert_eq!(subject.inspect().await, None);
}

/// A fence token that is ahead of the clock is held from its own time on.
pub async fn a_row_stays_while_a_fence_token_ahead_of_the_clock_is_held<H: Harness>(harness: &H) {
    let ahead = 2 * TOMBSTONE;
    let scene = Situation::InDoubtMarked.arrange(harness).await;
    let now = store_time(harness).await;
    let opened = FencingToken::new(now.after(ahead).micros().unsigned_abs()).expect("a token");
    let verdict = ResolveVerdict::DidNotHappen { fence_token: Some(opened) };
    assert_eq!(scene.subject.resolve(scene.holder.token, verdict).await, Resolved::Applied);
    harness.advance(ahead + harness.token_hold() / 2 - tick(harness)).await;
    while sweep(harness).await.more {}
    assert_eq!(scene.subject.entry().await.token, Some(opened));
    assert!(scene.subject.grant().await.holder.token > opened);
}

/// A new life takes its first token above the old life's last one, also when that is ahead of the clock.
pub async fn a_token_ahead_of_the_clock_is_kept_over_expiry<H: Harness>(harness: &H) {
    let brief = Life::new(Recovery::Hold, windows(LEASE, LEASE));
    for completed in [true, false] {
        let subject = Subject::with(harness, brief.clone());
        let first = subject.grant().await;
        assert_eq!(first.mark(None).await, Settled::Applied);
        let ahead = FencingToken::new(first.holder.token.get() + 1_000_000_000).expect("a token");
        let verdict = ResolveVerdict::DidNotHappen { fence_token: Some(ahead) };
        assert_eq!(subject.resolve(first.holder.token, verdict).await, Resolved::Applied);
        let last = subject.grant().await;
        if completed {
            assert_eq!(last.complete().await, Settled::Applied);
        }
        harness.advance(2 * LEASE).await;
        assert_eq!(subject.state().await, None);
        let next = subject.grant().await;
        assert_eq!((next.grant.attempt, next.grant.possible_escape), (1, !completed));
        assert!(next.holder.token > last.holder.token);
    }
}

/// Tokens rise while the store's clock steps back by less than the token hold in total, whatever a sweep removed.
pub async fn tokens_rise_while_the_clock_steps_back<H: Harness>(harness: &H) {
    if !harness.steps_back() {
        return;
    }
    let subject = Subject::new(harness);
    let mut last = subject.grant().await;
    for step in [1, 600, 1200, 1798] {
        assert_eq!(last.release().await, Settled::Applied);
        sweep(harness).await;
        harness.step_back(Duration::from_secs(step)).await;
        sweep(harness).await;
        let next = subject.grant().await;
        assert!(next.holder.token > last.holder.token, "{:?} after {:?}", next.holder.token, last.holder.token);
        last = next;
    }
    assert_eq!(last.release().await, Settled::Applied);
    // Past every step and the hold: now the row may go, and the clock alone keeps the order.
    harness.advance(2 * TOKEN_HOLD + tick(harness)).await;
    assert_eq!(sweep(harness).await.purged, 1);
    harness.step_back(TOKEN_HOLD - Duration::from_secs(1)).await;
    assert!(subject.grant().await.holder.token > last.holder.token);
}

/// A clock that steps back brings nobody's claim into two hands, and nothing is forgotten earlier.
pub async fn a_step_back_lets_nobody_in<H: Harness>(harness: &H) {
    if !harness.steps_back() {
        return;
    }
    let held = Subject::rerun(harness);
    let attempt = held.grant().await;
    let done = Situation::Completed.arrange(harness).await;
    let nonce = Nonce::random();
    ok(harness.store().abandon(&done.subject.claim.id, nonce, LEASE).await);
    harness.step_back(LEASE / 2).await;
    assert!(matches!(held.claim().await, Claimed::InFlight { .. }));
    assert_eq!(done.subject.claim_with(nonce).await, Claimed::Refused);
    assert!(matches!(done.subject.claim().await, Claimed::Replay { .. }));
    assert_eq!(attempt.complete().await, Settled::Applied);
}
