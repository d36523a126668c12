//! A completed record as bytes.
//!
//! ```text
//! what there is | id 32 | nonce 16 | fingerprint 32, or 16 of a tombstone | completed at | token | status 2
//!   [ fingerprint's version 1 ] [ attempt, when not 1 ] [ key time ] [ dead nonces: length, bytes ]
//!   [ location: length, text ] [ payload: length, bytes; or the number of the one beside ]
//! ```
//!
//! Numbers without a size are as long as they need: times count from one another and so are small. Settings of its life are those
//! of its queue.

use bytes::Bytes;
use idempotency::protocol::Decision;
use idempotency::{
    Claimed, DeadNonces, FencingToken, Fingerprint, Life, Nonce, Outcome, Record, RecordId, Stored, Timestamp,
};

use super::numbers::{Reader, folded, number, unfolded};
use super::short::{is_short_of, lengthened, short};

/// An entry that was read.
pub(super) struct Entry<'a> {
    pub(super) id: RecordId,
    pub(super) length: usize,
    /// It is no longer here.
    pub(super) gone: bool,
    life: &'a Life,
    fingerprint: Fingerprint,
    is_short: bool,
    nonce: Nonce,
    token: Option<FencingToken>,
    attempt: u32,
    key_time: Option<Timestamp>,
    since: Timestamp,
    dead: DeadNonces,
    status: u16,
    location: Option<&'a str>,
    payload: Option<Payload<'a>>,
}

/// A payload, where it is.
#[derive(Clone, Copy)]
pub(super) enum Payload<'a> {
    /// In the entry.
    Here(&'a [u8]),
    /// Beside the segment's entries, under this number: it is as large as many of them.
    Beside(usize, &'a Bytes),
}

/// What an entry's numbers and pointers mean: its segment and queue.
#[derive(Clone, Copy)]
pub(super) struct Around<'a> {
    pub(super) base: Timestamp,
    pub(super) beside: &'a [Bytes],
    pub(super) life: &'a Life,
    /// Tombstones keep a [`short`] fingerprint.
    pub(super) tombstones: bool,
}

/// Where the bytes of the payload go.
pub(super) enum Put<'a> {
    Nowhere,
    Here(&'a [u8]),
    /// To the payloads beside, under this number.
    Beside(usize),
}

/// Writes an entry behind what is in `bytes`.
pub(super) fn write(
    bytes: &mut Vec<u8>,
    (id, record): (&RecordId, &Record),
    (outcome, payload): (&Outcome, &Put<'_>),
    base: Timestamp,
    tombstone: bool,
) {
    let since = record.since.micros();
    let token = record.token.map_or(0, FencingToken::get);
    let dead = record.dead.to_bytes();
    let version = record.fingerprint.version();
    let mut has = 0;
    let mut says = |bit: u8, so: bool| has |= if so { bit } else { 0 };
    says(VERSION, version != Fingerprint::VERSION);
    says(ATTEMPT, record.attempt != 1);
    says(KEY_TIME, record.key_time.is_some());
    says(DEAD_NONCES, !dead.is_empty());
    says(LOCATION, outcome.location().is_some());
    says(PAYLOAD, matches!(payload, Put::Here(_)));
    says(PAYLOAD_BESIDE, matches!(payload, Put::Beside(_)));
    bytes.push(has);
    bytes.extend_from_slice(id.as_bytes());
    bytes.extend_from_slice(record.nonce.as_bytes());
    match tombstone {
        true => bytes.extend_from_slice(&short(record.fingerprint)),
        false => bytes.extend_from_slice(&record.fingerprint.to_bytes()[1..]),
    }
    number(bytes, since.wrapping_sub(base.micros()).cast_unsigned());
    number(bytes, folded(since.wrapping_sub(token.cast_signed())));
    bytes.extend_from_slice(&outcome.status().to_le_bytes());
    if has & VERSION > 0 {
        bytes.push(version);
    }
    if has & ATTEMPT > 0 {
        number(bytes, record.attempt.into());
    }
    if let Some(key_time) = record.key_time {
        number(bytes, folded(since.wrapping_sub(key_time.micros())));
    }
    if has & DEAD_NONCES > 0 {
        number(bytes, dead.len() as u64);
        bytes.extend_from_slice(&dead);
    }
    if let Some(location) = outcome.location() {
        number(bytes, location.len() as u64);
        bytes.extend_from_slice(location.as_bytes());
    }
    match payload {
        Put::Nowhere => {}
        Put::Here(payload) => {
            number(bytes, payload.len() as u64);
            bytes.extend_from_slice(payload);
        }
        Put::Beside(beside) => number(bytes, *beside as u64),
    }
}

/// The most that an entry takes without its payload.
pub(super) fn longest(record: &Record, outcome: &Outcome) -> usize {
    const FIXED: usize = 1 + 32 + 16 + 32 + 10 + 10 + 2 + 1 + 10 + 10 + 10 + 10 + 10;
    FIXED + record.dead.to_bytes().len() + outcome.location().map_or(0, str::len)
}

/// Whether the entry at the beginning of `bytes` is of this record.
pub(super) fn is_of(bytes: &[u8], id: &RecordId) -> bool {
    bytes[1..33] == *id.as_bytes()
}

/// Marks the entry at the beginning of `bytes` as gone.
pub(super) fn leave(bytes: &mut [u8]) {
    bytes[0] |= GONE;
}

/// Reads the entry at the beginning of `bytes`.
pub(super) fn read<'a>(bytes: &'a [u8], around: Around<'a>) -> Entry<'a> {
    let mut reader = Reader { bytes, at: 0 };
    let [has] = reader.array();
    let id = RecordId::from_bytes(reader.array());
    let nonce = Nonce::from_bytes(reader.array());
    let mut fingerprint = [Fingerprint::VERSION; 33];
    match around.tombstones {
        true => fingerprint[1..].copy_from_slice(&lengthened(reader.array())),
        false => fingerprint[1..].copy_from_slice(&reader.array::<32>()),
    }
    let since = around.base.micros().wrapping_add(reader.number().cast_signed());
    let token = since.wrapping_sub(unfolded(reader.number()));
    let status = u16::from_le_bytes(reader.array());
    if has & VERSION > 0 {
        [fingerprint[0]] = reader.array();
    }
    let attempt = if has & ATTEMPT > 0 { reader.number() } else { 1 };
    let key_time = (has & KEY_TIME > 0).then(|| since.wrapping_sub(unfolded(reader.number())));
    let dead = (has & DEAD_NONCES > 0).then(|| DeadNonces::from_bytes(reader.text())).flatten();
    let location = (has & LOCATION > 0).then(|| str::from_utf8(reader.text()).unwrap_or_default());
    let payload = match has & (PAYLOAD | PAYLOAD_BESIDE) {
        PAYLOAD => Some(Payload::Here(reader.text())),
        PAYLOAD_BESIDE => {
            let number = reader.length();
            around.beside.get(number).map(|payload| Payload::Beside(number, payload))
        }
        _ => None,
    };
    Entry {
        id,
        length: reader.at,
        gone: has & GONE > 0,
        life: around.life,
        fingerprint: Fingerprint::from_bytes(fingerprint),
        is_short: around.tombstones,
        nonce,
        token: FencingToken::new(token.cast_unsigned()).ok(),
        attempt: u32::try_from(attempt).unwrap_or(u32::MAX),
        key_time: key_time.map(Timestamp::from_micros),
        since: Timestamp::from_micros(since),
        dead: dead.unwrap_or_default(),
        status,
        location,
        payload,
    }
}

impl Entry<'_> {
    pub(super) fn since(&self) -> Timestamp {
        self.since
    }

    /// Under which number its payload is, if that is beside.
    pub(super) fn beside(&self) -> Option<usize> {
        match self.payload {
            Some(Payload::Beside(number, _)) => Some(number),
            _ => None,
        }
    }

    /// The record, to judge it: with an empty payload in the place of its own, and without its location.
    pub(super) fn record(&self) -> Record {
        let outcome = match self.payload {
            Some(_) => Outcome::new(self.status, Bytes::new()),
            None => Outcome::not_kept(self.status),
        };
        Record {
            fingerprint: self.fingerprint,
            nonce: self.nonce,
            token: self.token,
            attempt: self.attempt,
            life: Some(self.life.clone()),
            key_time: self.key_time,
            lease_until: self.since,
            stored: Stored::Completed(outcome),
            since: self.since,
            dead: self.dead.clone(),
            resolution: None,
        }
    }

    /// The same for somebody who asks with this fingerprint.
    pub(super) fn record_for(&self, asked: Fingerprint) -> Record {
        let is_it = self.is_short && is_short_of(self.fingerprint, asked);
        let fingerprint = if is_it { asked } else { self.fingerprint };
        Record { fingerprint, ..self.record() }
    }

    /// Whether the record has only a part of its fingerprint.
    pub(super) fn is_short(&self) -> bool {
        self.is_short
    }

    /// What was recorded, whole.
    pub(super) fn outcome(&self) -> Outcome {
        let outcome = match self.payload {
            Some(Payload::Here(payload)) => Outcome::new(self.status, Bytes::copy_from_slice(payload)),
            Some(Payload::Beside(_, payload)) => Outcome::new(self.status, payload.clone()),
            None => Outcome::not_kept(self.status),
        };
        outcome.with_location(self.location)
    }

    /// What was recorded, without its payload.
    pub(super) fn without_payload(&self) -> Outcome {
        Outcome::not_kept(self.status).with_location(self.location)
    }

    /// The size of its outcome, as [`Outcome::size`] counts it.
    pub(super) fn size(&self) -> usize {
        let payload = match self.payload {
            Some(Payload::Here(payload)) => payload.len(),
            Some(Payload::Beside(_, payload)) => payload.len(),
            None => 0,
        };
        payload + self.location.map_or(0, str::len)
    }

    /// A decision about its [`record`](Self::record), with what the record left out.
    pub(super) fn whole(&self, mut decision: Decision) -> Decision {
        match &mut decision {
            Decision::Answer(Claimed::Replay { outcome, .. }) => *outcome = self.outcome(),
            Decision::Answer(Claimed::Executed(tombstone)) | Decision::Prolong(tombstone) => {
                tombstone.location = self.location.map(Into::into);
            }
            _ => {}
        }
        decision
    }
}

const GONE: u8 = 1;
const VERSION: u8 = 2;
const ATTEMPT: u8 = 4;
const KEY_TIME: u8 = 8;
const DEAD_NONCES: u8 = 16;
const LOCATION: u8 = 32;
const PAYLOAD: u8 = 64;
const PAYLOAD_BESIDE: u8 = 128;
