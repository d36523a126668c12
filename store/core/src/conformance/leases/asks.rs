//! Asking: who is granted, and who is told what.

use std::time::Duration;

use super::LeaseHarness;
use super::support::{LEASE, Situation, Subject, almost, arrive, assert_lasts, granted, lease, tick};
use crate::time::LONGEST;
use crate::{Acquired, Ask, LeaseEntry, Nonce, Resource};

/// Somebody else who asks is granted what nobody has, with a larger token, and told of what somebody has.
pub async fn a_resource_is_answered_in_every_situation<H: LeaseHarness>(harness: &H) {
    let unknown = Subject::new(harness);
    assert_eq!(unknown.inspect().await, None);
    let first = unknown.grant().await;
    assert_eq!(first.grant.lease_left, LEASE);
    for situation in Situation::ALL {
        let scene = situation.arrange(harness).await;
        let acquired = scene.subject.asked().await;
        match situation {
            Situation::Held | Situation::TakenOver => {
                assert!(matches!(acquired, Acquired::Held { .. }), "{situation:?}: {acquired:?}");
            }
            _ => {
                let grant = granted(acquired);
                assert!(grant.token > scene.first.token(), "{situation:?}");
                assert_eq!(grant.lease_left, LEASE, "{situation:?}");
            }
        }
    }
}

/// An asking that comes again is its own: granted again while its lease runs, and never when it is over.
pub async fn a_repeated_asking_is_answered_in_every_situation<H: LeaseHarness>(harness: &H) {
    for situation in Situation::ALL {
        let scene = situation.arrange(harness).await;
        let acquired = scene.subject.asked_with(scene.first.holder.nonce).await;
        match situation {
            Situation::Held => assert_eq!(granted(acquired).token, scene.first.token()),
            Situation::Ended | Situation::Released | Situation::Abandoned => {
                assert_eq!(acquired, Acquired::Refused, "{situation:?}");
            }
            Situation::TakenOver => assert!(matches!(acquired, Acquired::Held { .. })),
            // Nobody remembers it.
            Situation::TakenOverAndReleased | Situation::Forgotten => {
                assert!(granted(acquired).token > scene.first.token(), "{situation:?}");
            }
        }
    }
}

/// Repeating an asking lengthens nothing, whatever lease it asks for.
pub async fn a_repeated_asking_changes_nothing<H: LeaseHarness>(harness: &H) {
    let subject = Subject::new(harness);
    let held = subject.grant().await;
    harness.advance(LEASE / 2).await;
    for length in [LEASE / 10, LEASE, LEASE * 10] {
        let again = Ask { lease: lease(length), ..subject.ask(held.holder.nonce) };
        let grant = granted(subject.send(&again).await);
        assert_eq!(grant.token, held.token());
        assert_lasts(harness, Some(grant.lease_left), LEASE / 2);
        assert_lasts(harness, subject.lease_left().await, LEASE / 2);
    }
}

/// Whoever is told that it is held has changed nothing.
pub async fn an_asking_that_is_not_granted_changes_nothing<H: LeaseHarness>(harness: &H) {
    let subject = Subject::new(harness);
    let held = subject.grant().await;
    let nonce = Nonce::random();
    for _ in 0..3 {
        assert!(matches!(subject.asked_with(nonce).await, Acquired::Held { .. }));
    }
    let entry = subject.inspect().await.expect("it is held");
    assert_eq!(entry.token, Some(held.token()));
    assert_lasts(harness, entry.lease_left, LEASE);
    harness.advance(LEASE).await;
    // The same asker as before, who waited.
    assert_eq!(granted(subject.asked_with(nonce).await).lease_left, LEASE);
}

/// Not a microsecond earlier, and then at once.
pub async fn a_lease_ends_at_its_end<H: LeaseHarness>(harness: &H) {
    let subject = Subject::new(harness);
    let held = subject.grant().await;
    almost(harness, LEASE).await;
    let Acquired::Held { lease_left } = subject.asked().await else { panic!("it ended too early") };
    assert_lasts(harness, Some(lease_left), tick(harness));
    arrive(harness).await;
    assert_eq!(subject.lease_left().await, None);
    assert!(granted(subject.asked().await).token > held.token());
}

/// To others, and to the holder who asks again.
pub async fn the_lease_left_is_told<H: LeaseHarness>(harness: &H) {
    let subject = Subject::new(harness);
    let held = subject.grant().await;
    for passed in [LEASE / 3, LEASE / 3 * 2] {
        harness.advance(LEASE / 3).await;
        let Acquired::Held { lease_left } = subject.asked().await else { panic!("it is held") };
        assert_lasts(harness, Some(lease_left), LEASE - passed);
        let again = granted(subject.asked_with(held.holder.nonce).await);
        assert_lasts(harness, Some(again.lease_left), LEASE - passed);
    }
}

/// The last token, and for how long somebody has it.
pub async fn inspect_shows_every_situation<H: LeaseHarness>(harness: &H) {
    for situation in Situation::ALL {
        let scene = situation.arrange(harness).await;
        let entry = scene.subject.inspect().await;
        let held = matches!(situation, Situation::Held | Situation::TakenOver);
        let forgotten = situation == Situation::Forgotten
            // It is there for its token only, which this store need not hold.
            || (situation == Situation::Ended && harness.token_hold().is_zero());
        match entry {
            None => assert!(forgotten, "{situation:?}"),
            Some(LeaseEntry { token, lease_left }) => {
                assert!(situation != Situation::Forgotten);
                assert_eq!(lease_left.is_some(), held, "{situation:?}");
                let newer = matches!(situation, Situation::TakenOver | Situation::TakenOverAndReleased);
                assert_eq!(token > Some(scene.first.token()), newer, "{situation:?}");
            }
        }
    }
}

/// A holder that stood still and asks again under its old nonce does not come by the lease unaware that it lost it.
pub async fn a_lost_lease_is_not_granted_again_under_its_nonce<H: LeaseHarness>(harness: &H) {
    let subject = Subject::new(harness);
    let held = subject.grant().await;
    harness.advance(LEASE).await;
    for _ in 0..2 {
        assert_eq!(subject.asked_with(held.holder.nonce).await, Acquired::Refused);
    }
    let next = subject.grant().await;
    assert!(next.token() > held.token());
    assert!(matches!(subject.asked_with(held.holder.nonce).await, Acquired::Held { .. }));
}

/// Names are bytes: no collation merges them, and nothing in them is special.
pub async fn names_that_look_alike_are_different_resources<H: LeaseHarness>(harness: &H) {
    let names = [
        "a",
        "A",
        "a ",
        " a",
        "a\u{301}",
        "á",
        "Á",
        "ａ",
        "ß",
        "ss",
        "a%",
        "a_",
        "a'",
        "a\"",
        "a\\",
        "{a}",
        "a/b",
        "a:b",
        "İ",
        "i",
        "\u{200b}a",
        "ﬁ",
        "fi",
        "𝔞",
    ];
    for name in names {
        subject_is_free(harness, name).await;
    }
    for name in names {
        assert!(matches!(Subject::named(harness, name).asked().await, Acquired::Held { .. }), "{name:?}");
    }
}

async fn subject_is_free<H: LeaseHarness>(harness: &H, name: &str) {
    let acquired = Subject::named(harness, name).asked().await;
    assert!(matches!(acquired, Acquired::Granted(_)), "{name:?} was taken for another: {acquired:?}");
}

/// 255 bytes, and no two of them are the same resource for having much in common.
pub async fn the_longest_name_is_kept_whole<H: LeaseHarness>(harness: &H) {
    let stem = "ü".repeat(Resource::LONGEST / 2);
    for last in ["a", "b"] {
        subject_is_free(harness, &format!("{stem}{last}")).await;
    }
    assert!(matches!(Subject::named(harness, &format!("{stem}a")).asked().await, Acquired::Held { .. }));
}

/// 1 ms and 36500 days are leases.
pub async fn the_shortest_and_the_longest_lease_are_kept<H: LeaseHarness>(harness: &H) {
    let long = Subject::new(harness);
    let held = long.grant_for(LONGEST).await;
    assert_eq!(held.grant.lease_left, LONGEST);
    if harness.exact_clock() {
        let short = Subject::new(harness);
        short.grant_for(Duration::from_millis(1)).await;
        almost(harness, Duration::from_millis(1)).await;
        assert!(matches!(short.asked().await, Acquired::Held { .. }));
        arrive(harness).await;
        assert!(matches!(short.asked().await, Acquired::Granted(_)));
    }
    harness.advance(LONGEST / 2).await;
    assert!(matches!(long.asked().await, Acquired::Held { .. }));
}
