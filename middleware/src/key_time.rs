//! The time that a time-ordered key says it was made.

use idempotency::{Key, Timestamp};
use ulid::Ulid;
use uuid::{Uuid, Variant};

/// What keys look like, and so whether their age can be told.
///
/// A key that tells its age can be refused once it is too old to be remembered, so that a very late
/// duplicate is not executed again. A key that is not of the format is refused with 400
/// `idempotency-key-invalid`.
///
/// Upper and lower case are both accepted, but keys are compared **byte for byte**: a client that sends
/// `0190A6F0-...` and retries with `0190a6f0-...` has sent two keys.
///
/// A route that took opaque keys until now changes over under a condition: see [`AgeLimit`](idempotency::AgeLimit).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum KeyFormat {
    /// Any text. Nothing is known of its age, so a duplicate that comes after the tombstone window runs
    /// again.
    #[default]
    Opaque,
    /// A UUID of version 7 in its hyphenated text form (RFC 9562), such as
    /// `0190a6f0-5c1e-7abc-8def-0123456789ab`.
    Uuid7,
    /// A ULID: 26 characters of Crockford's base 32, such as `01J2KF0Q0YFAYRVVS1CB4R9A5N`.
    Ulid,
}

impl KeyFormat {
    /// The name used in a published specification.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Opaque => "opaque",
            Self::Uuid7 => "uuid7",
            Self::Ulid => "ulid",
        }
    }

    /// When a key of any format says it was made, if it looks like one that does: good enough to suspect, not to refuse.
    pub(crate) fn hint(key: &Key) -> Option<Timestamp> {
        uuid7_millis(key).or_else(|| ulid_millis(key)).map(from_millis)
    }

    /// When `key` says it was made; none for an opaque key.
    pub(crate) fn time(self, key: &Key) -> Result<Option<Timestamp>, WrongKeyFormat> {
        match self {
            Self::Opaque => Ok(None),
            Self::Uuid7 => uuid7_millis(key).map(|ms| Some(from_millis(ms))).ok_or(WrongKeyFormat::Uuid7),
            Self::Ulid => ulid_millis(key).map(|ms| Some(from_millis(ms))).ok_or(WrongKeyFormat::Ulid),
        }
    }
}

/// The key is not of the format that the service asks for. Never says what the key was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WrongKeyFormat {
    /// Not a hyphenated UUID of version 7.
    #[error("the key is not a UUID of version 7")]
    Uuid7,
    /// Not a ULID.
    #[error("the key is not a ULID")]
    Ulid,
}

fn uuid7_millis(key: &Key) -> Option<u64> {
    // Of the forms that the parser takes, only the hyphenated one has this length.
    if key.as_bytes().len() != uuid::fmt::Hyphenated::LENGTH {
        return None;
    }
    let uuid = Uuid::try_parse_ascii(key.as_bytes()).ok()?;
    if uuid.get_version_num() != 7 || uuid.get_variant() != Variant::RFC4122 {
        return None;
    }
    // The first 48 bits are the time in milliseconds (RFC 9562 section 5.7).
    Some(uuid.as_u64_pair().0 >> 16)
}

fn ulid_millis(key: &Key) -> Option<u64> {
    // 26 digits of 5 bits are 130 bits; a first digit above 7 overflows, and the parser drops the excess.
    if key.as_bytes().len() != ulid::ULID_LEN || !matches!(key.as_bytes()[0], b'0'..=b'7') {
        return None;
    }
    Some(Ulid::from_string(key.as_str()).ok()?.timestamp_ms())
}

/// Both formats have 48 bits of milliseconds, so microseconds stay far below `i64::MAX`.
fn from_millis(millis: u64) -> Timestamp {
    Timestamp::from_micros((millis * 1000).cast_signed())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(format: KeyFormat, text: &str) -> Result<Option<Timestamp>, WrongKeyFormat> {
        format.time(&Key::parse(text).unwrap())
    }

    fn at(millis: i64) -> Result<Option<Timestamp>, WrongKeyFormat> {
        Ok(Some(Timestamp::from_micros(millis * 1000)))
    }

    #[test]
    fn opaque_keys_have_no_time() {
        assert_eq!(time(KeyFormat::Opaque, "017f22e2-79b0-7cc3-98c4-dc0c0c07398f"), Ok(None));
        assert_eq!(time(KeyFormat::default(), "order-42"), Ok(None));
    }

    #[test]
    fn uuid7_gives_its_milliseconds_in_either_case() {
        // The example of RFC 9562 appendix A.6.
        assert_eq!(time(KeyFormat::Uuid7, "017F22E2-79B0-7CC3-98C4-DC0C0C07398F"), at(1_645_557_742_000));
        assert_eq!(time(KeyFormat::Uuid7, "017f22e2-79b0-7cc3-98c4-dc0c0c07398f"), at(1_645_557_742_000));
        assert_eq!(time(KeyFormat::Uuid7, "00000000-0000-7000-8000-000000000000"), at(0));
        assert_eq!(time(KeyFormat::Uuid7, "ffffffff-ffff-7fff-bfff-ffffffffffff"), at((1 << 48) - 1));
    }

    #[test]
    fn other_uuids_and_other_spellings_are_refused() {
        for text in [
            "order-42",
            "017f22e279b07cc398c4dc0c0c07398f",
            "{017f22e2-79b0-7cc3-98c4-dc0c0c07398f}",
            "urn:uuid:017f22e2-79b0-7cc3-98c4-dc0c0c07398f",
            "017f22e2-79b0-7cc3-98c4-dc0c0c07398f ",
            "017f22e2-79b0-7cc3-98c4-dc0c0c07398g",
            "017f22e279b0--7cc3-98c4-dc0c0c07398f",
            // Version 4, and version 7 of another variant.
            "017f22e2-79b0-4cc3-98c4-dc0c0c07398f",
            "017f22e2-79b0-7cc3-c8c4-dc0c0c07398f",
            "017f22e2-79b0-7cc3-18c4-dc0c0c07398f",
            "01ARZ3NDEKTSV4RRFFQ69G5FAV",
        ] {
            assert_eq!(time(KeyFormat::Uuid7, text), Err(WrongKeyFormat::Uuid7), "{text}");
        }
    }

    #[test]
    fn ulid_gives_its_milliseconds_in_either_case() {
        assert_eq!(time(KeyFormat::Ulid, "01ARZ3NDEKTSV4RRFFQ69G5FAV"), at(1_469_922_850_259));
        assert_eq!(time(KeyFormat::Ulid, "01arz3ndektsv4rrffq69g5fav"), at(1_469_922_850_259));
        assert_eq!(time(KeyFormat::Ulid, "7ZZZZZZZZZZZZZZZZZZZZZZZZZ"), at((1 << 48) - 1));
    }

    #[test]
    fn any_key_that_looks_like_one_hints_at_its_time() {
        let hint = |text| Ok(KeyFormat::hint(&Key::parse(text).unwrap()));
        assert_eq!(hint("017f22e2-79b0-7cc3-98c4-dc0c0c07398f"), at(1_645_557_742_000));
        assert_eq!(hint("01ARZ3NDEKTSV4RRFFQ69G5FAV"), at(1_469_922_850_259));
        assert_eq!(hint("order-42"), Ok(None));
    }

    #[test]
    fn what_is_not_a_ulid_is_refused() {
        for text in [
            "order-42",
            "01ARZ3NDEKTSV4RRFFQ69G5FA",
            "01ARZ3NDEKTSV4RRFFQ69G5FAV0",
            "01ARZ3NDEKTSV4RRFFQ69G5FAU",
            "81ARZ3NDEKTSV4RRFFQ69G5FAV",
            "Z1ARZ3NDEKTSV4RRFFQ69G5FAV",
            "017f22e2-79b0-7cc3-98c4-dc0c0c07398f",
        ] {
            assert_eq!(time(KeyFormat::Ulid, text), Err(WrongKeyFormat::Ulid), "{text}");
        }
    }
}
