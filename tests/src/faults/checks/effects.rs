//! What the effects of one key must be.

use std::collections::BTreeMap;

use super::super::history::{Effect, History, Kind, OfKey, Sent};
use super::{ACKNOWLEDGED, NOT_REUSED, ONE_EFFECT, TOKENS_GROW, Violation};

pub(super) fn of_key(history: &History<'_>, key: &str, story: &OfKey<'_>) -> Vec<Violation> {
    let Some(first) = story.first() else {
        return vec![Violation::new(ONE_EFFECT, key, "an effect that nobody asked for")];
    };
    let mut found = Vec::new();
    found.extend(count(history, key, first, story));
    found.extend(of_another_request(history, key, first, story));
    found.extend(tokens(history, key, first, story));
    found.extend(missing(key, first.kind, story));
    found
}

/// One effect; under `Rerun` one per attempt. A record that is forgotten allows one more, where nothing but the record stands against it.
fn count(history: &History<'_>, key: &str, first: &Sent, story: &OfKey<'_>) -> Option<Violation> {
    let mut most_of_one = 0;
    let mut by_attempt = BTreeMap::<Option<u64>, usize>::new();
    for effect in &story.effects {
        // What is not under a claim has no attempts.
        let attempt = if first.kind == Kind::Rerun { effect.token } else { None };
        let count = by_attempt.entry(attempt).or_default();
        *count += 1;
        most_of_one = most_of_one.max(*count);
    }
    let allowed = 1 + if first.kind == Kind::Hold { losses(history, first, &story.effects) } else { 0 };
    (most_of_one > allowed).then(|| {
        let what = format!("{most_of_one} effects where {allowed} may be: {:?}", story.effects);
        Violation::new(ONE_EFFECT, key, what)
    })
}

/// How often the key's record may have been forgotten before its last effect.
fn losses(history: &History<'_>, first: &Sent, effects: &[&Effect]) -> usize {
    let last = effects.iter().map(|effect| (effect.at + 1) * 1000).max().unwrap_or(first.at);
    history.losses(first.at, last)
}

/// Another request under the key has no effect, unless the key was forgotten and nothing but the record stood against it.
fn of_another_request(history: &History<'_>, key: &str, first: &Sent, story: &OfKey<'_>) -> Option<Violation> {
    let forgotten = !first.kind.is_exact() && losses(history, first, &story.effects) > 0;
    let is_other = |effect: &&&Effect| effect.amount != first.amount || effect.resource != first.resource;
    let other = story.effects.iter().find(is_other).filter(|_| !forgotten)?;
    Some(Violation::new(NOT_REUSED, key, format!("{first:?} had the effect {other:?}")))
}

/// Later attempts have larger tokens. Attempts of a forgotten record are counted from 1 again.
fn tokens(history: &History<'_>, key: &str, first: &Sent, story: &OfKey<'_>) -> Option<Violation> {
    if matches!(first.kind, Kind::Counter | Kind::Fenced) || losses(history, first, &story.effects) > 0 {
        return None;
    }
    let mut attempts: Vec<(u32, u64)> =
        story.effects.iter().filter_map(|effect| Some((effect.attempt?, effect.token?))).collect();
    attempts.sort_unstable();
    let grows = attempts.windows(2).all(|two| two[0].0 < two[1].0 && two[0].1 < two[1].1);
    (!grows).then(|| Violation::new(TOKENS_GROW, key, format!("attempts and their tokens: {attempts:?}")))
}

/// Whoever was told that it was done can find it.
fn missing(key: &str, kind: Kind, story: &OfKey<'_>) -> Option<Violation> {
    let (_, answered) = story.answers().find(|(_, answered)| {
        let named = |effect: &&&Effect| match kind {
            Kind::Counter | Kind::Fenced => effect.token == answered.token,
            Kind::Hold | Kind::Rerun | Kind::Transaction => Some(effect.seq) == answered.id,
        };
        answered.is_success() && story.effects.iter().find(named).is_none()
    })?;
    let what = format!("{answered:?} names none of the effects {:?}", story.effects);
    Some(Violation::new(ACKNOWLEDGED, key, what))
}
