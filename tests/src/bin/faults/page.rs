//! The table of `tests/README.md`.

use std::collections::BTreeSet;
use std::fs;
use std::io;

use idempotency_testbed::faults::Ran;

/// Puts a table of runs into the place of the last one: a column for each store, with its run and the one without protection.
pub(super) fn write(runs: &[(Ran, Ran)]) -> io::Result<()> {
    let page = fs::read_to_string(PAGE)?;
    let parts = page.split_once(BEGIN).and_then(|(before, rest)| Some((before, rest.split_once(END)?.1)));
    let Some((before, after)) = parts else { return Err(io::Error::other(format!("no place for a table in {PAGE}"))) };
    fs::write(PAGE, format!("{before}{BEGIN}\n\n{}\n{END}{after}", table(runs)))
}

fn table(runs: &[(Ran, Ran)]) -> String {
    let protected = || runs.iter().map(|(ran, _)| ran);
    let mut table = row("", protected().map(|ran| ran.plan.store.to_string()));
    table += &row("---", runs.iter().map(|_| "---:".to_owned()));
    table += &row("seed", protected().map(|ran| ran.plan.seed.to_string()));
    table += &row("seconds of faults", protected().map(|ran| ran.plan.length.as_secs().to_string()));
    let injected: BTreeSet<&String> = protected().flat_map(|ran| ran.seen.injected.keys()).collect();
    for what in injected {
        let count = |ran: &Ran| ran.seen.injected.get(what).copied();
        table += &row(what, protected().map(|ran| count(ran).map_or("-".to_owned(), |count| count.to_string())));
    }
    let counts: Vec<_> = protected().map(|ran| ran.seen.counts()).collect();
    for (n, (what, _)) in
        counts.iter().flat_map(|counts| counts.iter().enumerate()).take(counts.first().map_or(0, Vec::len))
    {
        table += &row(what, counts.iter().map(|counts| counts[n].1.to_string()));
    }
    table += &row("**violations**", protected().map(|ran| format!("**{}**", ran.violations.len())));
    table += &row("double effects without protection", runs.iter().map(|(_, bare)| bare.double_effects().to_string()));
    table += &row("lost updates without protection", runs.iter().map(|(_, bare)| bare.lost_updates().to_string()));
    table + &row("in seconds", runs.iter().map(|(_, bare)| bare.plan.length.as_secs().to_string()))
}

fn row(first: &str, cells: impl Iterator<Item = String>) -> String {
    let cells: String = cells.map(|cell| format!(" {cell} |")).collect();
    format!("| {first} |{cells}\n")
}

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/README.md");
const BEGIN: &str = "<!-- faults: begin -->";
const END: &str = "<!-- faults: end -->";
