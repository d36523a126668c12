//! Runs the program and reads its story.

#![expect(clippy::unwrap_used, reason = "a test")]

use std::process::Command;

/// Whether it ended well, and what it said.
fn payout(arguments: &[&str]) -> (bool, String) {
    let run = Command::new(env!("CARGO_BIN_EXE_payout")).args(arguments).output().unwrap();
    (run.status.success(), String::from_utf8(run.stdout).unwrap())
}

fn scenes(story: &str) -> Vec<&str> {
    story.split("\n== ").skip(1).collect()
}

#[test]
fn every_order_is_charged_once_and_paid_out_once() {
    let (all_once, story) = payout(&[]);
    assert!(all_once, "{story}");
    let scenes = scenes(&story);
    assert_eq!(scenes.len(), 7, "{story}");
    for scene in &scenes {
        assert!(scene.contains("the provider's books: 1 charge(s); the bank's: 1 transfer(s)"), "{scene}");
        assert!(scene.contains("(replayed)"), "{scene}");
    }
    // An unknown outcome is called that, and the one that asks again finds out.
    for scene in &scenes[2..] {
        assert!(scene.contains("409 outcome-unknown, Retry-After: "), "{scene}");
        assert!(scene.contains("transfer unknown, call 1"), "{scene}");
    }
    for scene in &scenes[2..5] {
        assert!(
            scene.contains("transfer succeeded, call 1, after the reconcile hook of bank had resolved it"),
            "{scene}"
        );
    }
    for scene in &scenes[5..] {
        assert!(scene.contains("transfer succeeded, call 2"), "{scene}");
    }
    // With a key that the provider honours there is nothing to find out.
    assert!(scenes[1].contains("charge succeeded, call 2") && !scenes[1].contains("409"), "{}", scenes[1]);
}

#[test]
fn without_the_guard_money_moves_twice() {
    let (all_once, story) = payout(&["--unguarded"]);
    assert!(!all_once && story.contains("MONEY WAS MOVED TWICE"), "{story}");
    let twice =
        scenes(&story).into_iter().filter(|scene| scene.contains("2 charge(s)") || scene.contains("2 transfer(s)"));
    assert!(twice.count() >= 4, "{story}");
}
