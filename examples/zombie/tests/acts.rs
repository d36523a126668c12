//! The program itself: what it shows, what it draws, and that its pause is real.

#![expect(clippy::unwrap_used, reason = "a test")]

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use roxmltree::{Document, Node};

#[test]
fn each_act_shows_what_it_must() {
    let folder = tempfile::tempdir().unwrap();
    let picture = folder.path().join("acts.svg");
    let run = zombie().arg("--svg").arg(&picture).output().unwrap();
    let said = String::from_utf8(run.stdout).unwrap();
    assert!(run.status.success(), "{said}{}", String::from_utf8_lossy(&run.stderr));

    for row in [
        ["1", "TTL lock", "2 charges, balance 40", "1 charge, balance 70", "CHARGED TWICE", "as it must"],
        [
            "2",
            "TTL lock, compare-and-delete",
            "2 charges, balance 40",
            "1 charge, balance 70",
            "CHARGED TWICE",
            "as it must",
        ],
        [
            "3",
            "lease, token checked at the write",
            "A +5, B +7, balance 107",
            "balance 112",
            "UPDATE LOST",
            "as it must",
        ],
        ["4", "lease, fence opened first", "B +7, A +5, balance 112", "balance 112", "nothing lost", "as it must"],
        ["5", "UNIQUE row, no lock", "1 charge, balance 70", "1 charge, balance 70", "charged once", "as it must"],
    ] {
        assert!(said.lines().any(|line| cells(line) == row), "{row:?} is not in:\n{said}");
    }
    assert!(said.contains("5 of 5 acts show what they must"));
    assert_eq!(said.matches("IS STOPPED (SIGSTOP)").count(), 5);
    assert_eq!(said.matches("REFUSED: superseded by token").count(), 1);
    assert!(said.contains("deleted, and it was B's"));
    look_at(&picture);
}

/// Two lanes an act, and in them what has happened.
fn look_at(picture: &Path) {
    let text = std::fs::read_to_string(picture).unwrap();
    let document = Document::parse(&text).unwrap();
    assert_eq!(document.root_element().tag_name().name(), "svg");
    assert_eq!(classed(document.root(), "legend").len(), 1);

    let acts = classed(document.root(), "act");
    assert_eq!(acts.len(), 5);
    for (act, number) in acts.iter().zip(1..) {
        let lanes = lanes(*act);
        assert_eq!(lanes.map(|lane| lane.attribute("data-who")), [Some("A"), Some("B")]);
        assert_eq!(lanes.map(|lane| classed(lane, "paused").len()), [1, 0], "act {number}");
        let of_a = ["late", "write", "refused"].map(|mark| marks(lanes[0], mark));
        let (of_a_expected, held) = match number {
            1..=3 => ([1, 0, 0], [1, 1]),
            4 => ([0, 1, 1], [2, 1]),
            _ => ([0, 0, 1], [0, 0]),
        };
        assert_eq!(of_a, of_a_expected, "act {number}");
        assert_eq!(lanes.map(|lane| classed(lane, "held").len()), held, "act {number}");
        assert_eq!(["late", "write", "refused"].map(|mark| marks(lanes[1], mark)), [0, 1, 0], "act {number}");
        let opened = if number == 4 { [2, 1] } else { [0, 0] };
        assert_eq!(lanes.map(|lane| marks(lane, "opens")), opened, "act {number}");
    }
}

#[test]
fn a_picture_that_cannot_be_written_is_said_before_anything_is_played() {
    let folder = tempfile::tempdir().unwrap();
    let run = zombie().arg("--svg").arg(folder.path().join("missing/acts.svg")).output().unwrap();
    let said = String::from_utf8(run.stderr).unwrap();
    assert_eq!(run.status.code(), Some(1));
    assert!(run.stdout.is_empty());
    assert!(said.starts_with("zombie: cannot write ") && said.lines().count() == 1, "{said}");
}

/// Also when the director is killed while a worker is stopped: nobody would wake it any more.
#[cfg(target_os = "linux")]
#[test]
fn a_worker_is_really_stopped_and_ends_with_its_director() {
    let folder = tempfile::tempdir().unwrap();
    let mut director = zombie();
    let director = director.arg("--svg").arg(folder.path().join("acts.svg")).args(["--lease", "30s"]);
    let mut director = director.stdout(Stdio::piped()).spawn().unwrap();
    let mut first = String::new();
    BufReader::new(director.stdout.take().unwrap()).read_line(&mut first).unwrap();
    assert!(first.starts_with("Act 1: "), "{first}");

    let mut stopped = None;
    wait_until("a worker is stopped", || {
        stopped = children(director.id()).into_iter().find(|child| state(*child) == Some('T'));
        stopped.is_some()
    });
    let stopped = stopped.unwrap();
    director.kill().unwrap();
    director.wait().unwrap();
    wait_until("it has ended", || matches!(state(stopped), None | Some('Z' | 'X')));
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let give_up = Instant::now() + Duration::from_secs(20);
    while !is_so() {
        assert!(Instant::now() < give_up, "not within 20 s: {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

fn children(of: u32) -> Vec<u32> {
    let tasks = std::fs::read_dir(format!("/proc/{of}/task")).unwrap();
    let of_task = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
    let all: String = tasks.flatten().map(of_task).collect();
    all.split_whitespace().map(|pid| pid.parse().unwrap()).collect()
}

/// The letter after the name in brackets.
fn state(of: u32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{of}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

fn zombie() -> Command {
    Command::new(env!("CARGO_BIN_EXE_zombie"))
}

fn cells(line: &str) -> Vec<&str> {
    line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect()
}

fn lanes<'a, 'i>(act: Node<'a, 'i>) -> [Node<'a, 'i>; 2] {
    let lanes: Vec<_> = classed(act, "lane").into_iter().filter(|node| node.tag_name().name() == "g").collect();
    lanes.try_into().unwrap()
}

fn marks(lane: Node<'_, '_>, class: &str) -> usize {
    classed(lane, class).iter().filter(|node| node.tag_name().name() == "g").count()
}

fn classed<'a, 'i>(node: Node<'a, 'i>, class: &str) -> Vec<Node<'a, 'i>> {
    node.descendants().filter(|node| node.attribute("class") == Some(class)).collect()
}
