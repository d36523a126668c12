//! Bad histories, each of which one check must find, and good ones that look like them.

use std::time::Duration;

use super::super::history::{Answered, Effect, Event, History, Kind, Sent, Struck};
use super::{Violation, check};

/// A history in the making. A step is a millisecond.
#[derive(Clone, Default)]
struct Made {
    events: Vec<Event>,
    now: u64,
    effects: i64,
}

impl Made {
    fn at(&mut self) -> u64 {
        self.now += 1_000;
        START + self.now
    }

    fn sends(&mut self, kind: Kind, key: &str, amount: i64) -> u64 {
        let resource = matches!(kind, Kind::Counter | Kind::Fenced).then(|| "c0".to_owned());
        let (n, at) = (self.now, self.at());
        let sent = Sent { n, at, key: key.into(), kind, resource, amount, token: None, testbed: 0, reused: false };
        self.events.push(Event::Sent(sent));
        n
    }

    fn presents(&mut self, key: &str, amount: i64, token: u64) -> u64 {
        let n = self.sends(Kind::Fenced, key, amount);
        let Some(Event::Sent(sent)) = self.events.last_mut() else { unreachable!("just sent") };
        sent.token = Some(token);
        n
    }

    fn reuses(&mut self, kind: Kind, key: &str, amount: i64) -> u64 {
        let n = self.sends(kind, key, amount);
        let Some(Event::Sent(sent)) = self.events.last_mut() else { unreachable!("just sent") };
        sent.reused = true;
        n
    }

    fn is_told(&mut self, n: u64, status: u16, change: impl FnOnce(&mut Answered)) {
        let mut answered = Answered { n, at: self.at(), status, body: status.to_string(), ..Answered::default() };
        change(&mut answered);
        self.events.push(Event::Answered(answered));
    }

    fn charged(&mut self, n: u64, id: i64) {
        self.is_told(n, 201, |answered| (answered.id, answered.body) = (Some(id), id.to_string()));
    }

    fn added(&mut self, n: u64, value: i64, token: u64) {
        self.is_told(n, 200, |answered| {
            (answered.value, answered.token, answered.body) = (Some(value), Some(token), format!("{value} {token}"));
        });
    }

    fn refused(&mut self, n: u64, status: u16, problem: &str, retry_after: Option<u64>) {
        self.is_told(n, status, |answered| {
            (answered.problem, answered.retry_after) = (Some(problem.into()), retry_after);
        });
    }

    fn superseded(&mut self, n: u64, current: u64) {
        self.refused(n, 409, "fencing-token-superseded", None);
        let Some(Event::Answered(answered)) = self.events.last_mut() else { unreachable!("just answered") };
        answered.current_token = Some(current);
    }

    fn has_effect(&mut self, key: &str, amount: i64, attempt: u32, token: u64) -> i64 {
        self.writes(key, "/charge", None, amount, attempt, token)
    }

    fn adds(&mut self, key: &str, amount: i64, token: u64) {
        self.writes(key, "/counter/{resource}", Some("c0"), amount, 1, token);
    }

    fn writes(&mut self, key: &str, route: &str, on: Option<&str>, amount: i64, attempt: u32, token: u64) -> i64 {
        self.effects += 1;
        let effect = Effect {
            seq: self.effects,
            key: Some(key.into()),
            route: route.into(),
            resource: on.map(Into::into),
            amount,
            token: Some(token),
            attempt: Some(attempt),
            process: 1,
            at: self.at() / 1_000,
        };
        self.events.push(Event::Effect(effect));
        self.effects
    }

    fn grants(&mut self, token: u64) {
        let at = self.at();
        self.events.push(Event::Granted { at, resource: "c0".into(), token });
    }

    fn forgets(&mut self) {
        let (from, to) = (self.at(), self.at());
        self.events.push(Event::Struck(Struck {
            from,
            to,
            whom: "server".into(),
            what: "flush".into(),
            forgets: true,
            ahead: 0,
        }));
    }

    fn calms(&mut self) {
        let at = self.at();
        self.events.push(Event::Calm { at });
    }

    fn shows(&mut self, value: i64, token: u64) {
        self.events.push(Event::Counter { resource: "c0".into(), value, token: Some(token) });
    }

    fn found(&self) -> Vec<Violation> {
        check(&History::new(&self.events), Duration::from_millis(100))
    }

    #[track_caller]
    fn is_good(&self) {
        assert_eq!(self.found(), []);
    }

    #[track_caller]
    fn breaks(&self, invariant: &str) {
        let found = self.found();
        let named: Vec<&str> = found.iter().map(|violation| violation.invariant).collect();
        assert_eq!(named, [invariant], "{found:#?}");
    }
}

/// A key that is charged and acknowledged.
fn charged(kind: Kind) -> Made {
    let mut made = Made::default();
    let n = made.sends(kind, "k", 5);
    let id = made.has_effect("k", 5, 1, 10);
    made.charged(n, id);
    made
}

/// A counter that was added to under the tokens 10 and 20.
fn counted() -> Made {
    let mut made = Made::default();
    let first = made.sends(Kind::Counter, "a", 5);
    made.adds("a", 5, 10);
    made.added(first, 5, 10);
    let second = made.sends(Kind::Counter, "b", 7);
    made.adds("b", 7, 20);
    made.added(second, 12, 20);
    made
}

#[test]
fn one_effect_and_one_answer_are_good() {
    for kind in [Kind::Hold, Kind::Rerun, Kind::Transaction] {
        let mut made = charged(kind);
        let again = made.sends(kind, "k", 5);
        made.charged(again, 1);
        made.calms();
        made.is_good();
    }
}

#[test]
fn a_second_effect_is_found() {
    for kind in [Kind::Hold, Kind::Transaction] {
        let mut made = charged(kind);
        made.has_effect("k", 5, 2, 20);
        made.breaks("I5 one effect");
    }
}

#[test]
fn a_second_attempt_may_have_an_effect_under_rerun_and_no_attempt_two() {
    let mut made = charged(Kind::Rerun);
    made.has_effect("k", 5, 2, 20);
    made.is_good();
    made.has_effect("k", 5, 2, 20);
    let found = made.found();
    assert!(found.iter().any(Violation::is_double_effect), "{found:?}");
}

#[test]
fn effects_without_any_claim_are_double_under_rerun_too() {
    let mut made = charged(Kind::Rerun);
    made.has_effect("k", 5, 1, 20);
    for event in &mut made.events {
        if let Event::Effect(effect) = event {
            (effect.token, effect.attempt) = (None, None);
        }
    }
    made.breaks("I5 one effect");
}

#[test]
fn each_loss_of_records_allows_one_more_effect_and_no_two() {
    let mut made = Made::default();
    made.sends(Kind::Hold, "k", 5);
    made.has_effect("k", 5, 1, 10);
    made.forgets();
    made.has_effect("k", 5, 1, 20);
    let n = made.sends(Kind::Hold, "k", 5);
    made.charged(n, 2);
    made.is_good();
    made.has_effect("k", 5, 1, 30);
    made.breaks("I5 one effect");
}

#[test]
fn a_loss_before_the_first_request_or_after_the_last_effect_allows_nothing() {
    let mut before = Made::default();
    before.forgets();
    before.sends(Kind::Hold, "k", 5);
    before.has_effect("k", 5, 1, 10);
    before.has_effect("k", 5, 2, 20);
    let n = before.sends(Kind::Hold, "k", 5);
    before.charged(n, 1);
    before.breaks("I5 one effect");
    let mut after = charged(Kind::Hold);
    after.has_effect("k", 5, 2, 20);
    after.at();
    after.forgets();
    after.breaks("I5 one effect");
}

#[test]
fn a_loss_of_records_allows_no_second_effect_where_the_effect_has_a_marker() {
    let mut made = Made::default();
    let n = made.sends(Kind::Counter, "k", 5);
    made.adds("k", 5, 10);
    made.forgets();
    made.adds("k", 5, 20);
    made.added(n, 10, 20);
    made.shows(10, 20);
    let found = made.found();
    assert!(found.iter().any(Violation::is_double_effect), "{found:?}");
}

#[test]
fn attempts_with_falling_or_equal_tokens_are_found() {
    for token in [9, 10] {
        let mut made = charged(Kind::Rerun);
        made.has_effect("k", 5, 2, token);
        let found = made.found();
        assert!(found.iter().any(|violation| violation.invariant == "I1 tokens grow"), "{found:?}");
    }
}

#[test]
fn an_effect_of_nobody_or_of_another_request_is_found() {
    let mut made = charged(Kind::Hold);
    made.has_effect("other", 5, 1, 10);
    made.breaks("I5 one effect");
    let mut made = Made::default();
    let n = made.sends(Kind::Hold, "k", 5);
    made.has_effect("k", 6, 1, 10);
    made.charged(n, 1);
    made.breaks("I5 one request per key");
}

#[test]
fn an_acknowledgement_without_its_effect_is_found() {
    let mut made = charged(Kind::Hold);
    let n = made.sends(Kind::Hold, "l", 5);
    made.charged(n, 1);
    made.breaks("I5 acknowledged is done");
}

#[test]
fn two_different_answers_are_found() {
    let mut made = charged(Kind::Rerun);
    made.has_effect("k", 5, 2, 20);
    let n = made.sends(Kind::Rerun, "k", 5);
    made.charged(n, 2);
    made.breaks("I5 one answer");
    let mut forgotten = charged(Kind::Rerun);
    forgotten.forgets();
    forgotten.has_effect("k", 5, 1, 20);
    let n = forgotten.sends(Kind::Rerun, "k", 5);
    forgotten.charged(n, 2);
    forgotten.is_good();
}

#[test]
fn whoever_asks_after_a_success_is_told_it_or_that_the_store_is_away() {
    for (kind, status, problem, good) in [
        (Kind::Rerun, 503, "store-unavailable", true),
        (Kind::Rerun, 409, "request-in-flight", false),
        (Kind::Hold, 409, "request-in-flight", true),
        (Kind::Transaction, 500, "ledger-failed", false),
    ] {
        let mut made = charged(kind);
        let n = made.sends(kind, "k", 5);
        made.refused(n, status, problem, Some(1));
        if good { made.is_good() } else { made.breaks("I5 one answer") }
    }
}

#[test]
fn a_key_that_is_used_for_another_request_is_refused() {
    let mut made = charged(Kind::Hold);
    let n = made.reuses(Kind::Hold, "k", 6);
    made.refused(n, 422, "idempotency-key-reused", None);
    made.is_good();
    let n = made.reuses(Kind::Hold, "k", 6);
    made.charged(n, 1);
    made.breaks("I5 one request per key");
}

#[test]
fn a_key_that_was_forgotten_may_be_used_for_another_request() {
    let mut made = charged(Kind::Hold);
    made.forgets();
    let n = made.reuses(Kind::Hold, "k", 6);
    let id = made.has_effect("k", 6, 1, 20);
    made.charged(n, id);
    made.is_good();
}

#[test]
fn undocumented_refusals_are_found() {
    for (status, problem, retry_after) in [
        (502, "bad-gateway", None),
        (500, "handler-panicked", None),
        (503, "store-unavailable", None),
        (409, "request-in-flight", None),
        (409, "outcome-unknown", Some(1)),
        (422, "idempotency-key-reused", None),
    ] {
        let mut made = Made::default();
        let n = made.sends(Kind::Hold, "k", 5);
        made.refused(n, status, problem, retry_after);
        let n = made.sends(Kind::Hold, "k", 5);
        made.has_effect("k", 5, 1, 10);
        made.charged(n, 1);
        made.breaks("honesty");
    }
}

#[test]
fn a_key_without_an_answer_or_with_a_late_one_is_found() {
    let mut made = Made::default();
    made.calms();
    let n = made.sends(Kind::Hold, "k", 5);
    made.breaks("I7 answered in time");
    made.has_effect("k", 5, 1, 10);
    let mut late = made.clone();
    made.charged(n, 1);
    made.is_good();
    late.now += 200_000;
    late.charged(n, 1);
    late.breaks("I7 answered in time");
}

#[test]
fn that_nobody_knows_is_an_answer_under_hold_alone() {
    for (kind, good) in [(Kind::Hold, true), (Kind::Rerun, false)] {
        let mut made = Made::default();
        let n = made.sends(kind, "k", 5);
        made.refused(n, 409, "outcome-unknown", None);
        assert_eq!(made.found().is_empty(), good, "{:?}", made.found());
    }
}

#[test]
fn a_counter_that_is_the_sum_of_its_effects_is_good() {
    let mut made = counted();
    made.shows(12, 20);
    made.is_good();
}

#[test]
fn a_lost_update_is_found() {
    let mut made = counted();
    made.shows(7, 20);
    made.breaks("I3 no lost update");
    let mut made = counted();
    made.shows(12, 20);
    let stale = made.sends(Kind::Counter, "d", 1);
    made.adds("d", 1, 30);
    made.added(stale, 6, 30);
    made.shows(13, 30);
    made.breaks("I3 no lost update");
}

#[test]
fn a_superseded_write_is_found() {
    let mut made = counted();
    let late = made.sends(Kind::Counter, "d", 1);
    made.adds("d", 1, 15);
    made.added(late, 13, 15);
    made.shows(13, 15);
    made.breaks("I2 no superseded write");
}

#[test]
fn a_token_of_two_leases_or_of_nobody_is_found() {
    let mut made = counted();
    let twin = made.sends(Kind::Counter, "d", 1);
    made.adds("d", 1, 20);
    made.added(twin, 13, 20);
    made.shows(13, 20);
    made.breaks("I1 tokens grow");
    let mut made = Made::default();
    let n = made.presents("f", 5, 10);
    made.adds("f", 5, 10);
    made.added(n, 5, 10);
    made.shows(5, 10);
    made.breaks("I1 tokens grow");
}

#[test]
fn a_refusal_in_the_name_of_nobody_is_found() {
    for (current, good) in [(20, true), (30, false), (10, false)] {
        let mut made = Made::default();
        made.grants(10);
        made.grants(20);
        let n = made.presents("f", 5, 10);
        made.superseded(n, current);
        let n = made.presents("f", 5, 20);
        made.adds("f", 5, 20);
        made.added(n, 5, 20);
        made.shows(5, 20);
        if good { made.is_good() } else { made.breaks("I4 superseded by somebody") }
    }
    let mut made = Made::default();
    let n = made.sends(Kind::Counter, "a", 5);
    made.superseded(n, START * 2);
    let n = made.sends(Kind::Counter, "a", 5);
    made.adds("a", 5, 10);
    made.added(n, 5, 10);
    made.shows(5, 10);
    made.breaks("I4 superseded by somebody");
}

#[test]
fn a_transaction_that_stands_open_is_found() {
    let mut made = Made::default();
    made.events.push(Event::OpenTransactions { count: 1 });
    made.breaks("I10 no open transaction");
}

const START: u64 = 1_700_000_000_000_000;
