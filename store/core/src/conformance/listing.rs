//! Inspect and list: what an operator sees, judged when asked.

use std::collections::BTreeSet;
use std::time::Duration;

use super::Harness;
use super::situation::Situation;
use super::support::{LEASE, RESPONSE, Subject, TOMBSTONE, assert_lasts, ok, other_outcome};
use crate::{Entry, List, RecordId, Settled, State, Store};

/// Inspect shows the state in every situation, whether or not anybody swept.
pub async fn inspect_shows_the_state_in_every_situation<H: Harness>(harness: &H) {
    for situation in Situation::ALL {
        let scene = situation.arrange(harness).await;
        let entry = scene.subject.inspect().await;
        assert_eq!(entry.as_ref().map(|entry| entry.state), situation.state(), "{situation:?}");
        let Some(entry) = entry else { continue };
        assert_eq!(entry.id, scene.subject.claim.id);
        assert_eq!(entry.attempt, situation.attempts(), "{situation:?}");
        let token = (situation != Situation::Stub).then_some(scene.holder.token);
        assert_eq!(entry.token, token, "{situation:?}");
        let status = match situation {
            Situation::Completed | Situation::TombstoneByTime | Situation::TombstoneAtOnce => Some(201),
            Situation::InDoubtAnswered => Some(other_outcome().status()),
            _ => None,
        };
        assert_eq!(entry.status, status, "{situation:?}");
        assert_eq!(entry.resolution, None, "{situation:?}");
    }
}

/// The list shows the same states as inspect, judged at the same moment.
pub async fn the_list_agrees_with_inspect<H: Harness>(harness: &H) {
    for situation in Situation::ALL {
        let scene = situation.arrange(harness).await;
        let inspected = scene.subject.entry_without_age().await;
        let id = scene.subject.claim.id;
        let listed = walk(harness, None, 100).await.into_iter().find(|entry| entry.id == id);
        assert_eq!(listed.map(without_age), inspected, "{situation:?}");
        for state in State::ALL {
            let listed = walk(harness, Some(state), 100).await.into_iter().find(|entry| entry.id == id);
            let expected = inspected.clone().filter(|entry| entry.state == state);
            assert_eq!(listed.map(without_age), expected, "{situation:?} among {state:?}");
        }
    }
}

/// Time alone moves a record from one listing to the next, and off all of them.
pub async fn listings_follow_the_clock<H: Harness>(harness: &H) {
    let held = Subject::new(harness);
    held.grant().await;
    let done = Subject::new(harness);
    assert_eq!(done.grant().await.complete().await, Settled::Applied);
    let steps = [
        (Duration::ZERO, Some(State::InFlight), Some(State::Completed)),
        (LEASE, Some(State::InDoubt), Some(State::Completed)),
        (RESPONSE - LEASE, Some(State::InDoubt), Some(State::Tombstone)),
        (TOMBSTONE - RESPONSE, Some(State::InDoubt), None),
        (LEASE, None, None),
    ];
    for (by, held_state, done_state) in steps {
        harness.advance(by).await;
        for (subject, expected) in [(&held, held_state), (&done, done_state)] {
            for state in State::ALL {
                let listed = walk(harness, Some(state), 10).await.iter().any(|entry| entry.id == subject.claim.id);
                assert_eq!(listed, expected == Some(state), "{state:?}");
            }
        }
    }
}

/// How long a record has been in its state counts from its completion, its doubt, its release.
pub async fn an_age_counts_from_the_last_change<H: Harness>(harness: &H) {
    let running = Subject::new(harness);
    running.grant().await;
    harness.advance(LEASE / 3).await;
    assert_lasts(harness, running.entry().await.age, LEASE / 3);
    for situation in [Situation::Completed, Situation::TombstoneAtOnce, Situation::InDoubtMarked, Situation::Released] {
        let scene = situation.arrange(harness).await;
        harness.advance(RESPONSE / 3).await;
        assert_lasts(harness, scene.subject.entry().await.age, RESPONSE / 3);
    }
    let scene = Situation::InDoubtByLease.arrange(harness).await;
    harness.advance(RESPONSE / 3).await;
    assert_lasts(harness, scene.subject.entry().await.age, RESPONSE / 3);
}

/// Pages show every record once, in the order of ids, whatever their size.
pub async fn pages_show_every_record_once_in_order<H: Harness>(harness: &H) {
    let mut ids = BTreeSet::new();
    for n in 0..23 {
        let subject = Subject::new(harness);
        let attempt = subject.grant().await;
        if n % 2 == 0 {
            assert_eq!(attempt.complete().await, Settled::Applied);
        }
        ids.insert(subject.claim.id);
    }
    for limit in [1, 2, 7, 22, 23, 24, 1000] {
        let listed: Vec<RecordId> = walk(harness, None, limit).await.iter().map(|entry| entry.id).collect();
        assert_eq!(listed, ids.iter().copied().collect::<Vec<_>>(), "{limit} a page");
    }
    for limit in [1, 5, 12, 100] {
        assert_eq!(walk(harness, Some(State::Completed), limit).await.len(), 12);
        assert_eq!(walk(harness, Some(State::InFlight), limit).await.len(), 11);
        assert_eq!(walk(harness, Some(State::InDoubt), limit).await.len(), 0);
    }
}

/// A listing continues after an id whose record is gone, or never was.
pub async fn a_listing_continues_after_any_id<H: Harness>(harness: &H) {
    for byte in [0x10, 0x20, 0x80, 0xF0] {
        let id = RecordId::from_bytes([byte; 32]);
        Subject::of(harness, id, Subject::new(harness).claim.life).grant().await;
    }
    for (after, expected) in [(0x00, 4), (0x10, 3), (0x15, 3), (0x7F, 2), (0x80, 1), (0xF0, 0), (0xFF, 0)] {
        let list = List { after: Some(RecordId::from_bytes([after; 32])), ..List::default() };
        assert_eq!(ok(harness.store().list(&list).await).entries.len(), expected, "after {after:#x}");
    }
}

fn without_age(entry: Entry) -> Entry {
    Entry { age: Duration::ZERO, ..entry }
}

/// Every page from the first to the last.
async fn walk(harness: &impl Harness, state: Option<State>, limit: usize) -> Vec<Entry> {
    let mut entries = Vec::new();
    let mut after = None;
    for _ in 0..1000 {
        let page = ok(harness.store().list(&List { state, after, limit }).await);
        assert!(page.entries.len() <= limit, "a page of {} for {limit}", page.entries.len());
        entries.extend(page.entries);
        after = page.next;
        if after.is_none() {
            assert!(entries.is_sorted_by_key(|entry| entry.id));
            return entries;
        }
    }
    panic!("there is always another page");
}
