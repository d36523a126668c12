//! Every model holds, and every rule is missed when it is dropped. The figures: `cargo run -p idempotency-model`.

use idempotency_model::suite::{mutants, whole};

fn hold(models: &[&str], least: usize) {
    let mut states = 0;
    for case in whole().into_iter().filter(|case| models.iter().any(|model| case.name.starts_with(model))) {
        let explored = case.explore();
        eprintln!("{explored}");
        assert!(explored.broken.is_none(), "{explored:#?}");
        assert!(explored.unseen.is_empty(), "never seen: {explored:#?}");
        states += explored.states;
    }
    assert!(states >= least, "{states} states prove little");
}

#[test]
fn records_hold_with_all_of_their_rules() {
    hold(&["records"], 1_000_000);
}

#[test]
fn leases_transactions_steps_and_ages_hold_with_all_of_their_rules() {
    hold(&["leases", "transactions", "steps", "ages"], 500_000);
}

#[test]
fn every_rule_is_missed_when_it_is_dropped() {
    for case in mutants() {
        let explored = case.explore();
        eprintln!("{explored}");
        assert!(explored.broken.is_some(), "nothing breaks: {explored:#?}");
    }
}
