//! Explores every model with all of its rules, and without each of them, and prints what came of it:
//!
//! ```text
//! cargo run -p idempotency-model              all of them, as a table
//! cargo run -p idempotency-model -- --write   the same, and the table goes into tests/README.md
//! cargo run -p idempotency-model -- Abandon   those whose names hold the word, with the steps that break them
//! ```
//!
//! Ends with an error when a model is broken, or when one is not that lacks a rule.
#![allow(clippy::print_stdout, reason = "a program that prints a table")]

use std::error::Error;
use std::fs;

use idempotency_model::check::Explored;
use idempotency_model::suite::{mutants, whole};

fn main() -> Result<(), Box<dyn Error>> {
    let argument = std::env::args().nth(1);
    let write = argument.as_deref() == Some("--write");
    let only = argument.filter(|_| !write);
    let mut table = vec!["| model | states | deepest | what came of it |".to_owned(), "|---|---:|---:|---|".to_owned()];
    table.iter().for_each(|line| println!("{line}"));
    let (mut states, mut found, mut failures) = (0, 0, 0);
    let cases = whole().into_iter().chain(mutants());
    for case in cases.filter(|case| only.as_ref().is_none_or(|only| case.name.contains(only.as_str()))) {
        let mutant = case.mutant;
        let explored = case.explore();
        let line = row(&explored);
        println!("{line}");
        table.push(line);
        if let Some(broken) = explored.broken.as_ref().filter(|_| only.is_some()) {
            broken.trace.iter().for_each(|step| println!("    {step}"));
        }
        if mutant {
            found += usize::from(explored.broken.is_some());
        } else {
            states += explored.states;
        }
        failures += usize::from(explored.broken.is_some() != mutant || !mutant && !explored.unseen.is_empty());
    }
    let sum = format!("{states} states with all rules; {found} dropped rules found; {failures} failures.");
    println!("\n{sum}");
    if write {
        table.extend([String::new(), sum]);
        let readme = concat!(env!("CARGO_MANIFEST_DIR"), "/../README.md");
        fs::write(readme, with_table(&fs::read_to_string(readme)?, &table.join("\n"))?)?;
    }
    if failures == 0 { Ok(()) } else { Err(format!("{failures} failures").into()) }
}

fn row(explored: &Explored) -> String {
    let Explored { name, states, depth, broken, unseen, .. } = explored;
    let result = match broken {
        Some(broken) => format!("broken in {} steps: {}", broken.trace.len(), broken.property),
        None if unseen.is_empty() => "holds".to_owned(),
        None => format!("holds; never seen: {}", unseen.join(", ")),
    };
    format!("| {name} | {states} | {depth} | {result} |")
}

/// The page with this table in the place of its last one.
fn with_table(page: &str, table: &str) -> Result<String, Box<dyn Error>> {
    let (before, rest) = page.split_once(BEGIN).ok_or("tests/README.md has no place for the table")?;
    let (_, after) = rest.split_once(END).ok_or("the table in tests/README.md has no end")?;
    Ok(format!("{before}{BEGIN}\n\n{table}\n\n{END}{after}"))
}

const BEGIN: &str = "<!-- model: begin -->";
const END: &str = "<!-- model: end -->";
