//! What scripts answer, taken apart.

use std::time::Duration;

use bytes::Bytes;
use idempotency::{FencingToken, Outcome, Settled, StoreError, StoreErrorKind, Timestamp};
use redis::Value;

/// An array of values, read from front to back.
pub(crate) struct Reply(std::vec::IntoIter<Value>);

impl Reply {
    pub(crate) fn new(value: Value) -> Result<Self, StoreError> {
        match value {
            Value::Array(values) => Ok(Self(values.into_iter())),
            _ => Err(unexpected()),
        }
    }

    /// Arrays within it.
    pub(crate) fn replies(&mut self) -> Result<Vec<Self>, StoreError> {
        let Value::Array(values) = self.next() else { return Err(unexpected()) };
        values.into_iter().map(Self::new).collect()
    }

    fn next(&mut self) -> Value {
        // Redis leaves nothing out but what is last.
        self.0.next().unwrap_or(Value::Nil)
    }

    pub(crate) fn text(&mut self) -> Result<String, StoreError> {
        text(self.next())
    }

    pub(crate) fn optional_text(&mut self) -> Result<Option<String>, StoreError> {
        match self.next() {
            Value::Nil => Ok(None),
            value => text(value).map(Some),
        }
    }

    pub(crate) fn optional_bytes(&mut self) -> Result<Option<Bytes>, StoreError> {
        match self.next() {
            Value::Nil => Ok(None),
            Value::BulkString(bytes) => Ok(Some(bytes.into())),
            _ => Err(unexpected()),
        }
    }

    pub(crate) fn number<T: TryFrom<i64>>(&mut self) -> Result<T, StoreError> {
        self.optional_number()?.ok_or_else(unexpected)
    }

    pub(crate) fn optional_number<T: TryFrom<i64>>(&mut self) -> Result<Option<T>, StoreError> {
        let number = match self.next() {
            Value::Nil => return Ok(None),
            Value::Int(number) => Some(number),
            Value::BulkString(digits) => str::from_utf8(&digits).ok().and_then(|digits| digits.parse().ok()),
            _ => None,
        };
        number.and_then(|number| T::try_from(number).ok()).map(Some).ok_or_else(unexpected)
    }

    /// A token; none is 0.
    pub(crate) fn optional_token(&mut self) -> Result<Option<FencingToken>, StoreError> {
        match self.number()? {
            0 => Ok(None),
            number => token(number).map(Some),
        }
    }

    pub(crate) fn token(&mut self) -> Result<FencingToken, StoreError> {
        self.optional_token()?.ok_or_else(unexpected)
    }

    pub(crate) fn time(&mut self) -> Result<Timestamp, StoreError> {
        self.number().map(Timestamp::from_micros)
    }

    pub(crate) fn duration(&mut self) -> Result<Duration, StoreError> {
        self.number().map(Duration::from_micros)
    }

    /// Status, location and payload; none when there is no status.
    pub(crate) fn outcome(&mut self) -> Result<Option<Outcome>, StoreError> {
        let status = self.optional_number()?;
        let location = self.optional_text()?;
        let payload = self.optional_bytes()?;
        Ok(status.map(|status| {
            let outcome = payload.map_or_else(|| Outcome::not_kept(status), |payload| Outcome::new(status, payload));
            outcome.with_location(location.as_deref())
        }))
    }
}

pub(crate) fn token(number: i64) -> Result<FencingToken, StoreError> {
    u64::try_from(number).ok().and_then(|number| FencingToken::new(number).ok()).ok_or_else(unexpected)
}

/// A single word.
pub(crate) fn text(value: Value) -> Result<String, StoreError> {
    let text = match value {
        Value::BulkString(bytes) => String::from_utf8(bytes).ok(),
        Value::SimpleString(text) => Some(text),
        _ => None,
    };
    text.ok_or_else(unexpected)
}

/// The answer to what settles an attempt or a lease.
pub(crate) fn settled(value: Value) -> Result<Settled, StoreError> {
    match text(value)?.as_str() {
        "applied" => Ok(Settled::Applied),
        "already applied" => Ok(Settled::AlreadyApplied),
        "superseded" => Ok(Settled::Superseded),
        other => Err(not(other)),
    }
}

/// The error that a word is which is none of the expected.
pub(crate) fn not(word: &str) -> StoreError {
    if word == "unreadable" { unreadable() } else { unexpected() }
}

/// Something of another release, or of somebody else, is under our key.
pub(crate) fn unreadable() -> StoreError {
    StoreError::new(StoreErrorKind::Unreadable, "the key holds something that this release cannot read")
}

pub(crate) fn unexpected() -> StoreError {
    StoreError::new(StoreErrorKind::Refused, "a script gave an answer that it does not give")
}
