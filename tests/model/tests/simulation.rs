//! The engine, under `run` and under the layer, over a store that misbehaves by a seed: answers that are late or lost after the operation
//! was carried out, operations carried out late or twice, broken connections, cancelled callers, and a clock that jumps. On paused time,
//! so that minutes take microseconds.
//!
//! `SIM_SEED=7 SIM_RUNS=100 cargo test -p idempotency-model --test simulation` runs one seed again, a hundred times: pauses between tries are
//! jittered by a generator that no seed governs, so that one run of a seed is not always like another.
#![allow(clippy::unwrap_used, reason = "a test")]

mod sim;

use std::collections::BTreeMap;

use sim::{Broken, Door, Setting, simulate};

/// How many seeds a run takes; more with `SIM_SEEDS`.
const SEEDS: u64 = 3_000;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|number| number.parse().unwrap())
}

fn seeds(unless_told: u64) -> Vec<u64> {
    match number("SIM_SEED") {
        Some(seed) => vec![seed; usize::try_from(number("SIM_RUNS").unwrap_or(1)).unwrap()],
        None => (0..number("SIM_SEEDS").unwrap_or(unless_told)).collect(),
    }
}

#[test]
fn nothing_is_done_twice_and_every_key_ends() {
    holds(Setting::default(), SEEDS);
}

/// The same through the layer, as HTTP: a request that is dropped leaves its handler running.
#[test]
fn nothing_is_done_twice_through_the_layer() {
    holds(Setting { door: Door::Layer, late_first_tries: true, ..Setting::default() }, SEEDS / 3);
}

#[test]
fn without_protection_effects_happen_twice() {
    let open = Setting { door: Door::Open, ..Setting::default() };
    let twice = |seed: &u64| simulate(*seed, open).is_err_and(|wrong| wrong.contains(" effects"));
    let seeds = (0..100).filter(twice).count();
    assert!(seeds > 50, "{seeds} of 100 seeds have a key with two effects");
}

/// Tries whose connection broke arrive after their second one was answered.
#[test]
fn every_key_ends_when_first_tries_arrive_late() {
    holds(Setting { late_first_tries: true, ..Setting::default() }, SEEDS);
}

fn holds(setting: Setting, unless_told: u64) {
    let mut seen = BTreeMap::new();
    for seed in seeds(unless_told) {
        match simulate(seed, setting) {
            Ok(sights) => sights.into_iter().for_each(|(sight, n)| *seen.entry(sight).or_insert(0) += n),
            Err(wrong) => panic!("SIM_SEED={seed}: {wrong}"),
        }
    }
    eprintln!("{seen:?}");
    if number("SIM_SEED").is_none() {
        for sight in sim::SIGHTS {
            assert!(seen.get(sight).copied().unwrap_or(0) >= 100, "{sight} was hardly ever seen: {seen:?}");
        }
    }
}

fn is_found(broken: Broken) {
    let found = (0..SEEDS).find_map(|seed| {
        simulate(seed, Setting { broken: Some(broken), ..Setting::default() }).err().map(|wrong| (seed, wrong))
    });
    let (seed, wrong) = found.unwrap_or_else(|| panic!("{SEEDS} seeds do not find {broken:?}"));
    eprintln!("{broken:?}: seed {seed}: {wrong}");
}

#[test]
fn a_store_that_forgets_to_kill_nonces_is_found() {
    is_found(Broken::NoDeadNonces);
}

#[test]
fn claims_that_nobody_abandons_are_found() {
    is_found(Broken::NoAbandon);
}

#[test]
fn a_store_that_ignores_nonces_is_found() {
    is_found(Broken::NoncesIgnored);
}

#[test]
fn a_store_that_forgets_in_flight_is_found() {
    is_found(Broken::InFlightForgotten);
}
