//! Resolve: somebody found out.

use std::time::Duration;

use super::Harness;
use super::situation::Situation;
use super::support::{
    LEASE, RESPONSE, Subject, TOMBSTONE, almost, arrive, assert_lasts, ok, other_outcome, outcome, replayed,
};
use crate::{Claimed, FencingToken, Resolve, ResolveVerdict, Resolved, Settled, State, Store};

/// A resolve in every state: only a doubt can be resolved.
pub async fn only_a_doubt_can_be_resolved<H: Harness>(harness: &H) {
    for situation in Situation::ALL {
        for happened in [true, false] {
            let scene = situation.arrange(harness).await;
            let (subject, token) = (&scene.subject, scene.holder.token);
            let resolved = if happened { subject.happened(token).await } else { subject.did_not_happen(token).await };
            let (expected, after) = match situation.state() {
                None => (Resolved::Missing, None),
                Some(State::InDoubt) if happened => (Resolved::Applied, Some(State::Completed)),
                Some(State::InDoubt) => (Resolved::Applied, Some(State::Released)),
                Some(state) => (Resolved::NotInDoubt(state), Some(state)),
            };
            assert_eq!(resolved, expected, "{situation:?}");
            assert_eq!(subject.state().await, after, "{situation:?}");
        }
    }
}

/// What happened is replayed from then on, with both windows from the resolution.
pub async fn a_doubt_resolved_as_happened_is_replayed<H: Harness>(harness: &H) {
    let scene = Situation::InDoubtAnswered.arrange(harness).await;
    harness.advance(TOMBSTONE / 2).await;
    assert_eq!(scene.subject.happened(scene.holder.token).await, Resolved::Applied);
    let Claimed::Replay { outcome: found, age, time_left, .. } = scene.subject.claim().await else {
        panic!("not a replay")
    };
    assert_eq!(found, outcome());
    assert_lasts(harness, age, Duration::ZERO);
    assert_lasts(harness, time_left, RESPONSE);
    almost(harness, RESPONSE).await;
    assert_eq!(replayed(scene.subject.claim().await), outcome());
    arrive(harness).await;
    assert!(matches!(scene.subject.claim().await, Claimed::Executed(_)));
    harness.advance(TOMBSTONE - RESPONSE).await;
    assert_eq!(scene.subject.state().await, None);
}

/// What happened may have no answer to replay.
pub async fn a_doubt_may_be_resolved_without_an_answer<H: Harness>(harness: &H) {
    let scene = Situation::InDoubtByLease.arrange(harness).await;
    let verdict = ResolveVerdict::Happened(crate::Outcome::not_kept(200));
    assert_eq!(scene.subject.resolve(scene.holder.token, verdict).await, Resolved::Applied);
    assert!(matches!(scene.subject.claim().await, Claimed::Executed(tombstone) if tombstone.status == 200));
}

/// What did not happen is run again, as the same life's next attempt and with a larger token.
pub async fn a_doubt_resolved_as_not_happened_is_run_again<H: Harness>(harness: &H) {
    let scene = Situation::InDoubtMarked.arrange(harness).await;
    assert_eq!(scene.subject.did_not_happen(scene.holder.token).await, Resolved::Applied);
    let next = scene.subject.grant().await;
    assert_eq!(next.grant.attempt, 2);
    assert!(!next.grant.possible_escape);
    assert!(next.holder.token > scene.holder.token);
    assert_eq!(next.complete().await, Settled::Applied);
}

/// A resolver that saw another token looked at another attempt and decides nothing.
pub async fn a_resolver_that_saw_another_token_is_superseded<H: Harness>(harness: &H) {
    let scene = Situation::InDoubtMarked.arrange(harness).await;
    for seen in [scene.holder.token.get() - 1, scene.holder.token.get() + 1] {
        let seen = FencingToken::new(seen).expect("a token");
        assert_eq!(scene.subject.happened(seen).await, Resolved::Superseded);
        assert_eq!(scene.subject.did_not_happen(seen).await, Resolved::Superseded);
    }
    assert_eq!(scene.subject.state().await, Some(State::InDoubt));
    assert_eq!(scene.attempt().complete().await, Settled::Applied);
}

/// A repeated or late resolve does not free the attempt that runs because of the first one.
pub async fn a_repeated_resolve_frees_nobody_elses_attempt<H: Harness>(harness: &H) {
    let scene = Situation::InDoubtMarked.arrange(harness).await;
    let seen = scene.holder.token;
    assert_eq!(scene.subject.did_not_happen(seen).await, Resolved::Applied);
    assert_eq!(scene.subject.did_not_happen(seen).await, Resolved::NotInDoubt(State::Released));
    let second = scene.subject.grant().await;
    assert_eq!(scene.subject.did_not_happen(seen).await, Resolved::NotInDoubt(State::InFlight));
    assert_eq!(second.mark(None).await, Settled::Applied);
    assert_eq!(scene.subject.did_not_happen(seen).await, Resolved::Superseded);
    assert_eq!(scene.subject.happened(seen).await, Resolved::Superseded);
    assert_eq!(scene.subject.doubt().await.token, second.holder.token);
    assert_eq!(scene.subject.happened(second.holder.token).await, Resolved::Applied);
    assert_eq!(scene.subject.happened(second.holder.token).await, Resolved::NotInDoubt(State::Completed));
}

/// The old attempt wakes after the resolution and cannot contradict it.
pub async fn a_late_holder_cannot_contradict_a_resolution<H: Harness>(harness: &H) {
    for happened in [true, false] {
        let scene = Situation::InDoubtByLease.arrange(harness).await;
        let (subject, seen, late) = (&scene.subject, scene.holder.token, scene.attempt());
        let resolved = if happened { subject.happened(seen).await } else { subject.did_not_happen(seen).await };
        assert_eq!(resolved, Resolved::Applied);
        let before = subject.entry_without_age().await;
        assert_eq!(late.complete_with(&other_outcome()).await, Settled::Superseded);
        assert_eq!(late.renew().await, Settled::Superseded);
        assert_eq!(late.mark(Some(&other_outcome())).await, Settled::Superseded);
        // Whether a store remembers that nonce as dead is its own affair; it must not do anything.
        assert_ne!(late.release().await, Settled::Applied);
        assert_eq!(subject.entry_without_age().await, before);
        if happened {
            assert_eq!(replayed(subject.claim().await), outcome());
        } else {
            assert_eq!(subject.grant().await.complete().await, Settled::Applied);
            assert_eq!(late.complete_with(&other_outcome()).await, Settled::Superseded);
            assert_eq!(replayed(subject.claim().await), outcome());
        }
    }
}

/// An abandon by the resolved attempt comes too late as well.
pub async fn a_late_abandon_cannot_contradict_a_resolution<H: Harness>(harness: &H) {
    let scene = Situation::InDoubtByLease.arrange(harness).await;
    assert_eq!(scene.subject.happened(scene.holder.token).await, Resolved::Applied);
    scene.subject.abandon(scene.holder.nonce).await;
    assert_eq!(replayed(scene.subject.claim().await), outcome());
}

/// The token that the fence was opened with becomes the record's, so that the next grant is above it.
pub async fn the_next_grant_is_above_the_fence_token<H: Harness>(harness: &H) {
    let scene = Situation::InDoubtMarked.arrange(harness).await;
    let opened = FencingToken::new(scene.holder.token.get() + 1_000_000_000_000).expect("a token");
    let verdict = ResolveVerdict::DidNotHappen { fence_token: Some(opened) };
    assert_eq!(scene.subject.resolve(scene.holder.token, verdict).await, Resolved::Applied);
    assert_eq!(scene.subject.entry().await.token, Some(opened));
    let next = scene.subject.grant().await;
    assert_eq!(next.holder.token.get(), opened.get() + 1);
    assert_eq!(next.complete().await, Settled::Applied);
}

/// A smaller fence token does not take the record's own back.
pub async fn a_smaller_fence_token_lowers_nothing<H: Harness>(harness: &H) {
    let scene = Situation::InDoubtMarked.arrange(harness).await;
    let verdict = ResolveVerdict::DidNotHappen { fence_token: FencingToken::new(7).ok() };
    assert_eq!(scene.subject.resolve(scene.holder.token, verdict).await, Resolved::Applied);
    assert_eq!(scene.subject.entry().await.token, Some(scene.holder.token));
    assert!(scene.subject.grant().await.holder.token > scene.holder.token);
}

/// Who resolved and why is told with the record, whatever language they wrote it in.
pub async fn who_resolved_and_why_is_told<H: Harness>(harness: &H) {
    let texts = [("ops@example.com", "bank statement line 7"), ("Ångström Ω \u{1F5FD}", "'); DROP TABLE x; --\n\"\\")];
    for (who, why) in texts {
        for verdict in [ResolveVerdict::Happened(outcome()), ResolveVerdict::DidNotHappen { fence_token: None }] {
            let scene = Situation::InDoubtByLease.arrange(harness).await;
            assert_eq!(scene.subject.entry().await.resolution, None);
            let (who, why) = (who.to_owned(), why.to_owned());
            let resolution = Some((who.clone(), why.clone()));
            let resolve = Resolve { id: scene.subject.claim.id, token_seen: scene.holder.token, verdict, who, why };
            assert_eq!(ok(harness.store().resolve(&resolve).await), Resolved::Applied);
            assert_eq!(scene.subject.entry().await.resolution, resolution);
            harness.advance(LEASE).await;
            assert_eq!(scene.subject.entry().await.resolution, resolution);
        }
    }
}

/// The end of a doubt that was resolved does not come back later as an escape.
pub async fn a_resolved_doubt_is_no_escape<H: Harness>(harness: &H) {
    let subject = Subject::new(harness);
    let attempt = subject.grant().await;
    harness.advance(LEASE).await;
    assert_eq!(subject.happened(attempt.holder.token).await, Resolved::Applied);
    harness.advance(TOMBSTONE).await;
    assert!(!subject.grant().await.grant.possible_escape);
}
