//! The fuzz targets on the stable toolchain, for a moment: first what once failed or nearly did, then bytes made from that, and made up.
//!
//! `FUZZ_ROUNDS` and `FUZZ_SEED` say how many per target (default 3000), and from which seed. For longer runs see `tests/README.md`.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;

use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{RngExt as _, SeedableRng as _};

#[path = "../../fuzz/src/lib.rs"]
#[allow(unreachable_pub, missing_docs, reason = "a crate of its own for cargo-fuzz")]
mod targets;

#[test]
fn every_target_holds() {
    let number = |name| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let rounds = number("FUZZ_ROUNDS").unwrap_or(3000);
    let seed = number("FUZZ_SEED").unwrap_or_else(rand::random);
    for (name, target) in targets::TARGETS {
        let corpus = corpus(name);
        for input in &corpus {
            attempt(name, target, input, seed);
        }
        // Its own seed, so that one target can be run again alone.
        let mut dice = StdRng::seed_from_u64(seed);
        for _ in 0..rounds {
            attempt(name, target, &made(&mut dice, &corpus), seed);
        }
    }
}

/// What is committed for this target.
fn corpus(name: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/regressions").join(name);
    let mut files: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(files.len() >= 5, "{folder:?} holds next to nothing");
    files.iter().map(|file| fs::read(file).unwrap()).collect()
}

fn attempt(name: &str, target: fn(&[u8]), input: &[u8], seed: u64) {
    if let Err(failed) = catch_unwind(AssertUnwindSafe(|| target(input))) {
        let digits: String = input.iter().map(|byte| format!("{byte:02x}")).collect();
        eprintln!(
            "the target {name} fails, FUZZ_SEED={seed}, on {:?}, in hexadecimal {digits}",
            input.escape_ascii().to_string()
        );
        resume_unwind(failed);
    }
}

/// One of the corpus with some changes, or bytes made up.
fn made(dice: &mut StdRng, corpus: &[Vec<u8>]) -> Vec<u8> {
    let length = dice.random_range(0..80);
    if dice.random_range(0..8) == 0 {
        return (0..length).map(|_| dice.random()).collect();
    }
    let mut bytes = corpus.choose(dice).unwrap().clone();
    for _ in 0..dice.random_range(1..5) {
        let at = dice.random_range(0..=bytes.len());
        let end = dice.random_range(at..=bytes.len().min(at + 16));
        match dice.random_range(0..7) {
            0 if at < bytes.len() => bytes[at] ^= 1 << dice.random_range(0..8),
            1 => bytes.insert(at, *INTERESTING.choose(dice).unwrap()),
            2 => drop(bytes.drain(at..end)),
            3 => {
                let again = bytes[at..end].to_vec();
                bytes.splice(end..end, again);
            }
            4 => bytes.truncate(at),
            5 => {
                let other = corpus.choose(dice).unwrap();
                let from = dice.random_range(0..=other.len());
                bytes.splice(at.., other[from..].iter().copied());
            }
            _ => bytes.insert(at, dice.random()),
        }
    }
    bytes
}

/// Bytes that mean something to one reader or another.
const INTERESTING: &[u8] = b"\"\\,;:= \t\r\n{}[]-+.0129eE/u'\x00\x01\x7f\x80\xc3\xff";
