//! Media types, which are the same in any case (RFC 9110 section 8.3.1).

use std::borrow::Cow;

use http::header::{CONTENT_TYPE, HeaderMap, HeaderValue};

/// A media type without its parameters.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MediaType<'v>(&'v [u8]);

impl<'v> MediaType<'v> {
    pub(crate) fn of(headers: &'v HeaderMap) -> Option<Self> {
        headers.get(CONTENT_TYPE).map(Self::read)
    }

    pub(crate) fn read(value: &'v HeaderValue) -> Self {
        let name = value.as_bytes().split(|&b| b == b';').next().unwrap_or_default();
        Self(name.trim_ascii())
    }

    pub(crate) fn is(self, name: &str) -> bool {
        self.0.eq_ignore_ascii_case(name.as_bytes())
    }

    /// With a structured syntax suffix (RFC 6838 section 4.2.8), such as `+json`.
    pub(crate) fn ends_with(self, suffix: &str) -> bool {
        let start = self.0.len().checked_sub(suffix.len());
        start.is_some_and(|start| self.0[start..].eq_ignore_ascii_case(suffix.as_bytes()))
    }

    /// What follows `name`, if it begins with it.
    pub(crate) fn after(self, name: &str) -> Option<&'v [u8]> {
        let (start, rest) = self.0.split_at_checked(name.len())?;
        start.eq_ignore_ascii_case(name.as_bytes()).then_some(rest)
    }

    pub(crate) fn lower_case(self) -> Cow<'v, [u8]> {
        if self.0.iter().any(u8::is_ascii_uppercase) {
            Cow::Owned(self.0.to_ascii_lowercase())
        } else {
            Cow::Borrowed(self.0)
        }
    }
}
