//! What counters must be.

use std::collections::{BTreeMap, BTreeSet};

use super::super::history::{Answered, Effect, History, Kind};
use super::{IN_ORDER, NO_LOST_UPDATE, TOKENS_GROW, Violation};

pub(super) fn of_all(history: &History<'_>) -> Vec<Violation> {
    let names: BTreeSet<&str> = history.effects.iter().filter_map(|effect| effect.resource.as_deref()).collect();
    let mut found = Vec::new();
    for name in names.into_iter().chain(history.counters.keys().copied()).collect::<BTreeSet<_>>() {
        let written = |effect: &&&Effect| effect.resource.as_deref() == Some(name);
        let effects: Vec<&Effect> = history.effects.iter().filter(written).copied().collect();
        found.extend(order(name, &effects));
        found.extend(tokens_of_leases(history, name, &effects));
        found.extend(sums(history, name, &effects));
    }
    found
}

/// In the ledger, an older token never comes after a newer one.
fn order(name: &str, effects: &[&Effect]) -> Option<Violation> {
    let two = effects.windows(2).find(|two| two[0].token > two[1].token)?;
    Some(Violation::new(IN_ORDER, name, format!("{:?} came after {:?}", two[1], two[0])))
}

/// A token belongs to one lease, and so to one request of `/counter`; of `/fenced`, to one that was given out.
fn tokens_of_leases(history: &History<'_>, name: &str, effects: &[&Effect]) -> Vec<Violation> {
    let mut holders = BTreeMap::<u64, &Effect>::new();
    let mut found = Vec::new();
    for effect in effects {
        let kind = effect.key.as_deref().and_then(|key| history.keys.get(key)?.first()).map(|sent| sent.kind);
        let Some(token) = effect.token else { continue };
        match kind {
            Some(Kind::Fenced) if !history.grants.iter().any(|grant| (grant.0, grant.1) == (name, token)) => {
                found.push(Violation::new(TOKENS_GROW, name, format!("nobody was given the token of {effect:?}")));
            }
            Some(Kind::Counter) => {
                if let Some(other) = holders.insert(token, effect) {
                    found.push(Violation::new(TOKENS_GROW, name, format!("{other:?} and {effect:?} share a token")));
                }
            }
            _ => {}
        }
    }
    found
}

/// The counter is the sum of its effects, and whoever was acknowledged was shown the sum up to the own one.
fn sums(history: &History<'_>, name: &str, effects: &[&Effect]) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut sum = 0;
    for effect in effects {
        sum += effect.amount;
        let Some(story) = effect.key.as_deref().and_then(|key| history.keys.get(key)) else { continue };
        let shown = |answered: &Answered| answered.is_success() && answered.value != Some(sum);
        if let Some((_, answered)) = story.answers().find(|(_, answered)| shown(answered)) {
            found.push(Violation::new(NO_LOST_UPDATE, name, format!("{sum} after {effect:?}, but {answered:?}")));
        }
    }
    let (value, token) = history.counters.get(name).copied().unwrap_or_default();
    let last = effects.last().and_then(|effect| effect.token);
    if (value, token) != (sum, last) {
        let what = format!("it shows {value} under {token:?} where its effects make {sum} under {last:?}");
        found.push(Violation::new(NO_LOST_UPDATE, name, what));
    }
    found
}
