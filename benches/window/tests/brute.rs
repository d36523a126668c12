//! The pass against the plainest way to find the same: every window by itself, a map of what is remembered, and every moment looked at.
#![allow(clippy::unwrap_used, reason = "a test fails loudly")]

use std::collections::HashMap;

use idempotency_window::bytes::Weights;
use idempotency_window::{Anchor, Arrival, Count, Grid, Pass, Settings};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

#[derive(Clone, Debug)]
struct Row {
    time: i64,
    key: String,
    size: u32,
    route: String,
    scope: String,
    took: i64,
}

/// A record's life under one window: from the arrival that made it to its end, and to the end of its body.
#[derive(Clone, Copy, Debug)]
struct Life {
    born: usize,
    end: i64,
    body_end: i64,
    size: u64,
}

#[test]
fn every_figure_is_that_of_brute_force_on_1500_random_traces() {
    let mut seen = [0; 5];
    for seed in 0..1500 {
        let mut random = StdRng::seed_from_u64(seed);
        let count = random.random_range(2..70);
        let rows = trace(&mut random, count, 20);
        let settings = settings(&mut random, &rows);
        check(seed, &rows, &settings, &mut seen);
    }
    // The traces are worth it: what is compared is mostly not zero.
    assert!(seen.iter().all(|seen| *seen > 1000), "{seen:?}");
}

/// Long enough for arrivals to be taken together by the hundred, which short ones are not.
#[test]
fn every_figure_is_that_of_brute_force_on_longer_traces() {
    let mut seen = [0; 5];
    for seed in 0..10 {
        let mut random = StdRng::seed_from_u64(seed);
        let rows = trace(&mut random, 3000, 1000);
        let settings = settings(&mut random, &rows);
        let grid = Grid::of(settings.grid.bounds().iter().copied().take(3).collect()).unwrap();
        check(seed, &rows, &Settings { grid, ..settings }, &mut seen);
    }
    assert!(seen[2] > 20, "{seen:?}");
}

fn trace(random: &mut StdRng, count: usize, keys: u32) -> Vec<Row> {
    let (keys, pace) = (random.random_range(1..keys), *[1, 3, 40].get(random.random_range(0..3)).unwrap());
    let mut time = random.random_range(0..1000);
    let mut rows: Vec<Row> = (0..count)
        .map(|_| {
            // Many at one time, and now and then a hole.
            time += if random.random_bool(0.05) { 500 } else { random.random_range(0..=pace) };
            Row {
                time,
                key: random.random_range(0..keys).to_string(),
                size: if random.random_bool(0.2) { 0 } else { random.random_range(1..1000) },
                route: random.random_range(0..2).to_string(),
                scope: random.random_range(0..2).to_string(),
                took: if random.random_bool(0.4) { 0 } else { random.random_range(0..60) },
            }
        })
        .collect();
    rows.last_mut().unwrap().time += 1;
    rows
}

fn settings(random: &mut StdRng, rows: &[Row]) -> Settings {
    let length = rows.last().unwrap().time - rows[0].time;
    let count = if random.random_bool(0.05) { 64 } else { random.random_range(1..=8) };
    let windows = (0..count).map(|_| random.random_range(1..=length / 2 + 2)).collect();
    let capacities = (0..random.random_range(1..6)).map(|_| random.random_range(1..12)).collect();
    let weights = |store: &str, record: f64, per_byte: f64, tombstone: f64| Weights {
        store: store.to_owned(),
        record,
        per_byte,
        tombstone,
        how: String::new(),
    };
    Settings {
        grid: Grid::of(windows).unwrap(),
        capacities: Grid::of(capacities).unwrap(),
        response: random.random_range(1..=length + 1),
        weights: vec![weights("a", 500.0, 1.0, 300.0), weights("b", 900.0, 2.0, 10.0)],
        ..Settings::default()
    }
}

fn check(seed: u64, rows: &[Row], settings: &Settings, seen: &mut [u64; 5]) {
    let mut pass = Pass::new(settings.clone());
    for Row { time, key, size, route, scope, took } in rows {
        pass.add(&Arrival { time: *time, key, size: *size, route, scope, took: *took }).unwrap();
    }
    let measured = pass.finish().unwrap();
    let (begin, end) = (rows[0].time, rows.last().unwrap().time);
    for (number, window) in measured.windows.iter().enumerate() {
        let length = window.length;
        assert_eq!(window.is_judged(), length <= (end - begin) / 3);
        for anchor in Anchor::ALL {
            let tally = window.of(anchor);
            let what = format!("seed {seed}, window {length}, {anchor:?}");
            let (ran, lives) = simulate(rows, length, anchor, settings.response);
            let all = |_: &Row| true;
            assert_eq!(tally.all, count(rows, &ran, all, |_, _| 1.0), "{what}");
            let judged = |first: &Row| first.time - begin >= length && end - first.time >= length;
            // Among those that judge, a key stands for as many as there are for each that has room for what was seen of it.
            let judging: Vec<i64> = by_key(rows)
                .iter()
                .map(|key| &rows[key[0]])
                .filter(|first| judged(first))
                .map(|first| first.time)
                .collect();
            let weight = |first: i64, last: i64| {
                let roomy = judging.iter().filter(|time| **time + (last - first) <= end).count();
                judging.len() as f64 / roomy as f64
            };
            assert_eq!(tally.judged, count(rows, &ran, judged, weight), "{what}");
            seen[4] += u64::from(tally.judged.weighed > tally.judged.escapes as f64);
            seen[0] += u64::from(tally.all.escapes > 0);
            seen[1] += u64::from(tally.judged.escapes > 0);

            let mut sum = 0;
            for group in &measured.groups {
                let here = |first: &Row| first.route == group.route && first.scope == group.scope;
                let (all, judging) = (&group.all[anchor as usize][number], &group.counts[anchor as usize][number]);
                assert_eq!(*all, count(rows, &ran, here, |_, _| 1.0), "{what}");
                assert_eq!(*judging, count(rows, &ran, |first| here(first) && judged(first), weight), "{what}");
                sum += group.counts[anchor as usize][number].escapes;
            }
            assert_eq!(sum, tally.judged.escapes);

            let Some(memory) = &tally.memory else { continue };
            seen[2] += 1;
            let peak = |of: &dyn Fn(u64, u64, u64) -> f64| {
                let moments = (0..rows.len()).map(|moment| {
                    let now = rows[moment].time;
                    let born: Vec<&Life> = lives.iter().filter(|life| life.born <= moment).collect();
                    let full: Vec<&&Life> = born.iter().filter(|life| life.body_end >= now).collect();
                    let records = born.iter().filter(|life| life.end >= now).count() as u64;
                    of(records, full.len() as u64, full.iter().map(|life| life.size).sum())
                });
                moments.fold(0.0, f64::max)
            };
            assert_eq!(memory.peak_records, peak(&|records, _, _| records as f64), "{what}");
            let mean = |of: &dyn Fn(&Life) -> (i64, u64)| {
                let held = |life: &Life| {
                    let (until, size) = of(life);
                    i128::from(until.min(end) - rows[life.born].time) * i128::from(size)
                };
                lives.iter().map(held).sum::<i128>() as f64 / (end - begin) as f64
            };
            let (records, full, body) = (
                mean(&|life| (life.end, 1)),
                mean(&|life| (life.body_end, 1)),
                mean(&|life| (life.body_end, life.size)),
            );
            assert_eq!(memory.mean_records, records, "{what}");
            for (i, Weights { record, per_byte, tombstone, .. }) in settings.weights.iter().enumerate() {
                let bytes = |records: u64, full: u64, body: u64| {
                    tombstone * (records - full) as f64 + record * full as f64 + per_byte * body as f64
                };
                assert_eq!(memory.peak_bytes[i], peak(&bytes), "{what}");
                let mean = tombstone * (records - full) + record * full + per_byte * body;
                assert!((memory.mean_bytes[i] - mean).abs() <= 1e-9 * mean, "{what}");
            }
        }
        for (place, capacity) in settings.capacities.bounds().iter().enumerate() {
            let escapes = least_recently_used(rows, length, *capacity as usize);
            assert_eq!(measured.capacity.escapes(number, place), escapes, "seed {seed}, {length}, {capacity}");
            seen[3] += u64::from(escapes > 0);
        }
    }
}

/// Which arrivals run, and how long what they record lives.
fn simulate(rows: &[Row], window: i64, anchor: Anchor, response: i64) -> (Vec<bool>, Vec<Life>) {
    let mut remembered: HashMap<(&str, &str), usize> = HashMap::new();
    let mut sizes: HashMap<(&str, &str), u32> = HashMap::new();
    let (mut ran, mut lives) = (Vec::new(), Vec::<Life>::new());
    for (number, row) in rows.iter().enumerate() {
        let id = (row.scope.as_str(), row.key.as_str());
        let size = sizes.entry(id).or_insert(row.size);
        if row.size > 0 {
            *size = row.size;
        }
        let live = remembered.get(&id).copied().filter(|life| row.time <= lives[*life].end);
        ran.push(live.is_none());
        match live {
            Some(life) if anchor == Anchor::Renewed => lives[life].end = row.time + window,
            Some(_) => {}
            None => {
                let from = if anchor == Anchor::Completion { row.time + row.took } else { row.time };
                remembered.insert(id, lives.len());
                let body_end = from + window.min(response);
                lives.push(Life { born: number, end: from + window, body_end, size: u64::from(*size) });
            }
        }
    }
    (ran, lives)
}

/// The arrivals of each key, in the order in which the keys came first.
fn by_key(rows: &[Row]) -> Vec<Vec<usize>> {
    let mut places: HashMap<(&str, &str), usize> = HashMap::new();
    let mut keys: Vec<Vec<usize>> = Vec::new();
    for (number, row) in rows.iter().enumerate() {
        let place = *places.entry((&row.scope, &row.key)).or_insert(keys.len());
        keys.resize(keys.len().max(place + 1), Vec::new());
        keys[place].push(number);
    }
    keys
}

/// The arrivals that ran although their key had run, of keys whose first arrival is as `judged` says. Each key stands for as many as `weight` says of
/// its first and its last time.
fn count(rows: &[Row], ran: &[bool], judged: impl Fn(&Row) -> bool, weight: impl Fn(i64, i64) -> f64) -> Count {
    let mut sum = Count::default();
    for key in by_key(rows).iter().filter(|key| judged(&rows[key[0]])) {
        let escapes = key[1..].iter().filter(|number| ran[**number]).count() as u64;
        sum.operations += 1;
        sum.escapes += escapes;
        sum.keys += u64::from(escapes > 0);
        let weighed =
            escapes as f64 * if escapes > 0 { weight(rows[key[0]].time, rows[key[key.len() - 1]].time) } else { 0.0 };
        sum.weighed += weighed;
        sum.squares += weighed * weighed;
    }
    sum
}

/// A list of keys with the time of their last use, the last used first.
fn least_recently_used(rows: &[Row], window: i64, capacity: usize) -> u64 {
    let mut list: Vec<((&str, &str), i64)> = Vec::new();
    let mut known: Vec<(&str, &str)> = Vec::new();
    let mut escapes = 0;
    for row in rows {
        let id = (row.scope.as_str(), row.key.as_str());
        let place = list.iter().position(|(listed, _)| *listed == id);
        let hit = place.is_some_and(|place| row.time - list[place].1 <= window);
        escapes += u64::from(!hit && known.contains(&id));
        known.push(id);
        place.map(|place| list.remove(place));
        list.insert(0, (id, row.time));
        list.truncate(capacity);
    }
    escapes
}
