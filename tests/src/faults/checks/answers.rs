//! What the answers to one key must be.

use std::collections::BTreeSet;
use std::time::Duration;

use super::super::history::{Answered, History, Kind, OfKey, Sent};
use super::{HONEST, JUSTIFIED, LIVE, NOT_REUSED, ONE_ANSWER, Violation};

pub(super) fn of_key(history: &History<'_>, key: &str, story: &OfKey<'_>, patience: Duration) -> Vec<Violation> {
    let Some(first) = story.first() else { return Vec::new() };
    let mut found = Vec::new();
    found.extend(one(history, key, first, story));
    found.extend(settled(history, key, first, story));
    found.extend(reused(history, key, first, story));
    found.extend(dishonest(key, story));
    found.extend(superseded(history, key, story));
    found.extend(late(history, key, first, story, patience));
    found
}

/// Every success is the same answer. A record that is forgotten allows one more, unless the effect itself tells the answer.
fn one(history: &History<'_>, key: &str, first: &Sent, story: &OfKey<'_>) -> Option<Violation> {
    let successes = || story.answers().map(|(_, answered)| answered).filter(|answered| answered.is_success());
    let different: BTreeSet<(u16, &str)> =
        successes().map(|answered| (answered.status, answered.body.as_str())).collect();
    let last = successes().map(|answered| answered.at).max()?;
    let allowed = 1 + if first.kind.is_exact() { 0 } else { history.losses(first.at, last) };
    (different.len() > allowed).then(|| {
        let successes: Vec<&Answered> = successes().collect();
        Violation::new(ONE_ANSWER, key, format!("{} answers where {allowed} may be: {successes:?}", different.len()))
    })
}

/// After a success, whoever asks is told the same or that the store cannot say. Under `Hold` the success is sent even when it cannot be
/// recorded, so that the outcome is unknown to others.
fn settled(history: &History<'_>, key: &str, first: &Sent, story: &OfKey<'_>) -> Option<Violation> {
    let success = story.answers().map(|(_, answered)| answered).filter(|answered| answered.is_success());
    let since = success.map(|answered| answered.at).min()?;
    let (sent, answered) = story.answers().find(|(sent, answered)| {
        let unsettled = match answered.status {
            200..300 | 503 => false,
            409 => first.kind != Kind::Hold || answered.is("fencing-token-superseded"),
            _ => true,
        };
        unsettled && sent.at > since && history.losses(first.at, answered.at) == 0
    })?;
    Some(Violation::new(ONE_ANSWER, key, format!("acknowledged at {since}, and then {sent:?} was told {answered:?}")))
}

/// A key that is used for another request after its own was acknowledged is refused.
fn reused(history: &History<'_>, key: &str, first: &Sent, story: &OfKey<'_>) -> Option<Violation> {
    let answers = story.exchanges.iter().filter(|exchange| exchange.sent.reused);
    let executed = answers
        .filter_map(|exchange| exchange.answered)
        .find(|answered| answered.is_success() && history.losses(first.at, answered.at) == 0)?;
    Some(Violation::new(NOT_REUSED, key, format!("another request under it was told {executed:?}")))
}

/// Refusals are the documented ones, and those after which to ask again say when.
fn dishonest(key: &str, story: &OfKey<'_>) -> Option<Violation> {
    let answers = story.exchanges.iter().filter_map(|exchange| Some((exchange.sent, exchange.answered?)));
    let (sent, answered) = answers.into_iter().find(|(sent, answered)| {
        let again = answered.retry_after.is_some();
        let honest = match (answered.status, answered.problem.as_deref()) {
            (200..300, None) => true,
            (503, Some("store-unavailable" | "store-full")) => again,
            (409, Some("request-in-flight" | "lease-held")) => again,
            (409, Some("fencing-token-superseded")) => matches!(sent.kind, Kind::Counter | Kind::Fenced),
            (409, Some("outcome-unknown")) => sent.kind == Kind::Hold && !again,
            // The handler's own: whether it had its effect is not known.
            (500, Some("ledger-failed")) => true,
            (422, Some("idempotency-key-reused")) => sent.reused,
            _ => false,
        };
        !honest
    })?;
    Some(Violation::new(HONEST, key, format!("{sent:?} was told {answered:?}")))
}

/// A newer token was given out before the refusal.
fn superseded(history: &History<'_>, key: &str, story: &OfKey<'_>) -> Option<Violation> {
    let (sent, answered) = story.answers().find(|(sent, answered)| {
        if !answered.is("fencing-token-superseded") {
            return false;
        }
        let Some(current) = answered.current_token else { return true };
        let justified = match sent.token {
            Some(mine) => {
                let given = history.grants.iter().any(|(resource, token, at)| {
                    Some(*resource) == sent.resource.as_deref() && *token == current && *at <= answered.at
                });
                current > mine && given
            }
            // A lease's token is the time of its grant, as the store's clock says.
            None => current <= answered.at + SLACK + history.most_ahead(),
        };
        !justified
    })?;
    Some(Violation::new(JUSTIFIED, key, format!("{sent:?} was told {answered:?}")))
}

/// When all faults are over, and for what was sent by then, an answer comes in time.
fn late(history: &History<'_>, key: &str, first: &Sent, story: &OfKey<'_>, patience: Duration) -> Option<Violation> {
    let answered = story.answers().map(|(_, answered)| answered).find(|answered| answered.is_final(first.kind));
    let calm = history.calm.unwrap_or_default().max(first.at);
    let due = calm + u64::try_from(patience.as_micros()).unwrap_or(u64::MAX);
    match answered {
        Some(answered) if answered.at <= due => None,
        Some(answered) => Some(Violation::new(LIVE, key, format!("answered {} µs too late", answered.at - due))),
        None => Some(Violation::new(LIVE, key, format!("never answered: {:?}", story.exchanges.last()))),
    }
}

/// Between two readings of one clock, in microseconds.
const SLACK: u64 = 1_000_000;
