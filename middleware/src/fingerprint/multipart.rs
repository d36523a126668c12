//! `multipart/form-data` without its boundary, which a client draws anew for every attempt.

use memchr::memmem::Finder;

/// A multipart body taken apart.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Multipart<'b> {
    /// What stands before the first delimiter; usually nothing.
    pub(crate) preamble: &'b [u8],
    /// Each part's headers and content.
    pub(crate) parts: Vec<&'b [u8]>,
    /// What stands after the closing delimiter; nothing, or an end of line.
    pub(crate) epilogue: &'b [u8],
}

/// Takes `body` apart at the delimiters of `boundary` (RFC 2046 section 5.1.1). None when it is malformed.
///
/// A delimiter stands at the start of a line; the boundary's text anywhere else belongs to the content. A
/// line that begins with the delimiter and goes on with something else is a delimiter to some readers
/// and content to others, so a body with such a line counts as malformed.
pub(crate) fn split<'b>(body: &'b [u8], boundary: &str) -> Option<Multipart<'b>> {
    if boundary.is_empty() {
        return None;
    }
    let delimiter = format!("\r\n--{boundary}");
    let finder = Finder::new(&delimiter);
    let (preamble, mut rest) = match body.strip_prefix(&delimiter.as_bytes()[2..]) {
        Some(rest) => (&body[..0], rest),
        None => cut(body, &finder)?,
    };
    let mut parts = Vec::new();
    loop {
        if let Some(epilogue) = rest.strip_prefix(b"--") {
            let after = without_padding(epilogue);
            let ended = after.is_empty() || after.starts_with(b"\r\n");
            return ended.then_some(Multipart { preamble, parts, epilogue: after });
        }
        let content = without_padding(rest).strip_prefix(b"\r\n")?;
        let (part, after) = cut(content, &finder)?;
        parts.push(part);
        rest = after;
    }
}

/// What stands before and after the first delimiter.
fn cut<'b>(bytes: &'b [u8], delimiter: &Finder<'_>) -> Option<(&'b [u8], &'b [u8])> {
    let at = delimiter.find(bytes)?;
    Some((&bytes[..at], &bytes[at + delimiter.needle().len()..]))
}

/// Without the white space that a gateway may have put after a delimiter.
fn without_padding(bytes: &[u8]) -> &[u8] {
    let padding = bytes.iter().take_while(|b| matches!(b, b' ' | b'\t')).count();
    &bytes[padding..]
}
