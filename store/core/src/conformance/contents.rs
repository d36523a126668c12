//! What is kept comes back byte for byte, and two keys are two records.

use bytes::Bytes;

use super::Harness;
use super::support::{Subject, life, named, ok, outcome, replayed};
use crate::{Claimed, LONGEST_LOCATION, Outcome, RecordId, Recovery, Settled, Store};

/// A payload of all 256 byte values comes back as it was.
pub async fn a_binary_payload_is_replayed_exactly<H: Harness>(harness: &H) {
    let all: Vec<u8> = (0..=255).chain((0..=255).rev()).collect();
    for payload in [all, vec![0; 3], vec![0xFF, 0xFE], b"\\x00 '\"".to_vec()] {
        let recorded = Outcome::new(200, payload.into());
        let subject = Subject::new(harness);
        assert_eq!(subject.grant().await.complete_with(&recorded).await, Settled::Applied);
        assert_eq!(replayed(subject.claim().await), recorded);
    }
}

/// An empty payload is a payload: it is replayed, and is not a tombstone.
pub async fn an_empty_payload_is_replayed<H: Harness>(harness: &H) {
    let subject = Subject::new(harness);
    let empty = Outcome::new(204, Bytes::new());
    assert_eq!(subject.grant().await.complete_with(&empty).await, Settled::Applied);
    assert_eq!(replayed(subject.claim().await).payload(), Some(&Bytes::new()));
}

/// A large payload comes back whole.
pub async fn a_large_payload_is_replayed_exactly<H: Harness>(harness: &H) {
    let payload: Vec<u8> = (0..256 * 1024_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let recorded = Outcome::new(200, payload.into());
    let subject = Subject::new(harness).but(|claim| claim.room = 300 * 1024);
    assert_eq!(subject.grant().await.complete_with(&recorded).await, Settled::Applied);
    assert_eq!(replayed(subject.claim().await), recorded);
}

/// A location of the greatest length is kept, in the outcome and in the tombstone, and so is none.
pub async fn a_location_is_kept_exactly<H: Harness>(harness: &H) {
    let longest = "/".repeat(LONGEST_LOCATION);
    let two_bytes_each = "é".repeat(LONGEST_LOCATION / 2);
    for location in [Some(longest.as_str()), Some(two_bytes_each.as_str()), Some(""), Some(" /a "), None] {
        let recorded = outcome().with_location(location);
        assert_eq!(recorded.location(), location);
        let subject = Subject::new(harness);
        assert_eq!(subject.grant().await.complete_with(&recorded).await, Settled::Applied);
        assert_eq!(replayed(subject.claim().await), recorded);

        let subject = Subject::new(harness);
        assert_eq!(subject.grant().await.complete_with(&recorded.without_payload()).await, Settled::Applied);
        let Claimed::Executed(tombstone) = subject.claim().await else { panic!("not a tombstone") };
        assert_eq!(tombstone.location.as_deref(), location);
    }
}

/// Every status is kept: 0 for a value, and the greatest.
pub async fn a_status_is_kept_exactly<H: Harness>(harness: &H) {
    for status in [0, 1, 200, 599, i16::MAX.unsigned_abs(), u16::MAX] {
        let subject = Subject::new(harness);
        assert_eq!(subject.grant().await.complete_with(&Outcome::not_kept(status)).await, Settled::Applied);
        assert!(matches!(subject.claim().await, Claimed::Executed(tombstone) if tombstone.status == status));
        assert_eq!(subject.entry().await.status, Some(status));
    }
}

/// The response that was sent before the outcome was in doubt is kept exactly, without a payload too.
pub async fn a_response_in_doubt_is_kept_exactly<H: Harness>(harness: &H) {
    let all: Vec<u8> = (0..=255).collect();
    for response in [
        Outcome::new(500, all.into()).with_location(Some("/charges/1")),
        Outcome::new(500, Bytes::new()),
        Outcome::not_kept(502),
    ] {
        let subject = Subject::new(harness);
        assert_eq!(subject.grant().await.mark(Some(&response)).await, Settled::Applied);
        assert_eq!(subject.doubt().await.response, Some(response.clone()));
        assert_eq!(subject.entry().await.status, Some(response.status()));
    }
}

/// Keys that differ in one byte, in case or in a trailing space have records of their own.
pub async fn keys_that_look_alike_are_different_records<H: Harness>(harness: &H) {
    let keys =
        ["order-1", "order-2", "Order-1", "order-1 ", " order-1", "order-10", "order_1", "{order-1}", "order-1\\"];
    for (n, key) in keys.into_iter().enumerate() {
        let subject = Subject::of(harness, named(key), life(Recovery::Hold));
        let recorded = Outcome::new(200, n.to_string().into());
        assert_eq!(subject.grant().await.complete_with(&recorded).await, Settled::Applied, "{key:?}");
    }
    for (n, key) in keys.into_iter().enumerate() {
        let subject = Subject::of(harness, named(key), life(Recovery::Hold));
        assert_eq!(replayed(subject.claim().await).payload(), Some(&Bytes::from(n.to_string())), "{key:?}");
    }
}

/// Ids are bytes: no two are equal that differ in one of them, whatever text they would be.
pub async fn ids_that_differ_in_one_byte_are_different_records<H: Harness>(harness: &H) {
    let mut ids = vec![[b' '; 32], [0; 32], [0xFF; 32]];
    for byte in [0, 15, 31] {
        for value in [0, b'A', b'a', b'\'', b'\\', b'%', 0x80, 0xFF] {
            let mut id = [b' '; 32];
            id[byte] = value;
            ids.push(id);
        }
    }
    for id in &ids {
        Subject::of(harness, RecordId::from_bytes(*id), life(Recovery::Hold)).grant().await;
    }
    for id in &ids {
        let id = RecordId::from_bytes(*id);
        let entry = ok(harness.store().inspect(&id).await).expect("there is a record");
        assert_eq!((entry.id, entry.attempt), (id, 1));
    }
}
