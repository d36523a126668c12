//! Runs the program and reads its table.

#![expect(clippy::unwrap_used, reason = "a test")]

use std::process::{Command, Output};

use idempotency_testbed::servers::Postgres;

#[test]
fn every_job_is_done_once_and_every_fault_is_seen() {
    // Longer than by default: tests run beside others, and a worker that is slow is not to be taken for one that is stopped.
    let run = orders(&["--timeout", "3s"]);
    let table = stdout(&run);
    assert!(run.status.success(), "{table}{}", stderr(&run));

    let sections: Vec<_> = sections(&table);
    let titles: Vec<_> = sections.iter().map(|(title, _)| title.split_whitespace().next().unwrap()).collect();
    assert_eq!(titles, ["(a)", "(b)", "(c)", "(d)", "BROKEN:", "BROKEN:", "BROKEN:", "BROKEN:"]);
    for (title, rows) in &sections[..4] {
        assert_eq!(rows.len(), 6, "{title}");
        assert!(rows.iter().all(|row| row.ends_with("right") && effects(row) == 1), "{title}: {rows:#?}");
        for paused in rows.iter().filter(|row| row.contains("paused")) {
            assert!(paused.contains("refused: "), "{title}: {paused}");
        }
    }
    let faults: Vec<Vec<u32>> =
        sections[4..].iter().map(|(_, rows)| rows.iter().map(|row| effects(row)).collect()).collect();
    assert_eq!(faults, [[2, 1, 2], [1, 1, 1], [1, 1, 1], [1, 1, 2]]);
    assert!(sections[5].1[2].ends_with("THE LATE ONE FINISHED, as expected"), "{:?}", sections[5]);
    assert!(sections[6].1[2].ends_with("STUCK UNTIL IT WOKE, as expected"), "{:?}", sections[6]);
    assert!(table.ends_with("36 runs of two processes each, 0 not as expected\n"), "{table}");
}

#[test]
fn a_named_database_can_be_used_again() {
    let postgres = Postgres::start();
    let url = postgres.create_database("shop");
    for parcels in ["3", "6"] {
        let run = orders(&["--database", &url, "--timeout", "3s", "--only", "for-update"]);
        let table = stdout(&run);
        assert!(run.status.success(), "{table}{}", stderr(&run));
        assert!(table.ends_with("6 runs of two processes each, 0 not as expected\n"), "{table}");
        assert_eq!(postgres.sql("shop", "SELECT count(*) FROM parcels"), parcels);
    }
}

#[test]
fn a_database_that_does_not_answer_is_one_clear_line() {
    let run = orders(&["--database", "postgres://nobody@127.0.0.1:1/nothing"]);
    let said = stderr(&run);
    assert!(said.starts_with("orders: ") && said.lines().count() == 1, "{said}");
    assert_eq!((run.status.code(), stdout(&run).as_str()), (Some(1), ""));
}

fn orders(options: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_orders")).args(options).output().unwrap()
}

/// The titles, each with its rows.
fn sections(table: &str) -> Vec<(&str, Vec<&str>)> {
    let mut sections: Vec<(&str, Vec<&str>)> = Vec::new();
    for line in table.lines().skip(2).take_while(|line| !line.is_empty()) {
        match sections.last_mut() {
            Some((_, rows)) if line.starts_with("  ") => rows.push(line),
            _ => sections.push((line, Vec::new())),
        }
    }
    sections
}

/// The number in a row.
fn effects(row: &str) -> u32 {
    row.split_whitespace().find_map(|word| word.parse().ok()).unwrap()
}

fn stdout(run: &Output) -> String {
    String::from_utf8_lossy(&run.stdout).into_owned()
}

fn stderr(run: &Output) -> String {
    String::from_utf8_lossy(&run.stderr).into_owned()
}
