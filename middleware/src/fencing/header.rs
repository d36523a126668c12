//! The fencing token as the `Fencing-Token` header carries it: a structured-field integer, with the parameters `holder` (16 bytes) and
//! `src` (a number).
//!
//! ```text
//! Fencing-Token: 34
//! Fencing-Token: 1800000000000000;holder=:AAECAwQFBgcICQoLDA0ODw==:;src=1
//! ```
//!
//! With one difference: an integer of RFC 9651 has at most 15 digits, and a token that is microseconds of a clock has 16. So the
//! number is read here, and only its parameters as structured fields are.

use http::header::{HeaderMap, HeaderName, HeaderValue};
use idempotency::{FenceTicket, FencingToken, Nonce, TokenSource};
use sfv::{BareItem, Integer, Item, ItemSerializer, KeyRef, Parser};

/// The header that carries a fencing token.
pub const FENCING_TOKEN: HeaderName = HeaderName::from_static("fencing-token");

/// The ticket that the header carries, or none when there is no such header.
pub(crate) fn parse(headers: &HeaderMap) -> Result<Option<FenceTicket>, InvalidFencingToken> {
    let mut lines = headers.get_all(FENCING_TOKEN).iter();
    let Some(line) = lines.next() else { return Ok(None) };
    if lines.next().is_some() {
        // Equal lines too: neither the first nor the last is known to be the one that was meant.
        return Err(InvalidFencingToken::SeveralLines);
    }
    let text = line.to_str().map_err(|_| InvalidFencingToken::Malformed)?.trim_matches([' ', '\t']);
    let (digits, parameters) = text.split_at(text.find(';').unwrap_or(text.len()));
    let token = token(digits).ok_or(InvalidFencingToken::Malformed)?;
    let mut ticket = FenceTicket { token, holder: None, source: TokenSource::LEASES };
    let item = format!("{STAND_IN}{parameters}");
    let item: Item = Parser::new(&item).parse().map_err(|_| InvalidFencingToken::Malformed)?;
    // Other parameters are ignored, as RFC 9651 section 2 asks of whoever does not know them.
    for (name, value) in &item.params {
        match name.as_str() {
            "holder" => ticket.holder = Some(holder(value).ok_or(InvalidFencingToken::Holder)?),
            "src" => {
                let source = number(value).and_then(|source| u16::try_from(source).ok());
                ticket.source = TokenSource::new(source.ok_or(InvalidFencingToken::Source)?);
            }
            _ => {}
        }
    }
    Ok(Some(ticket))
}

/// The header's value for a ticket.
pub(crate) fn value(ticket: &FenceTicket) -> Option<HeaderValue> {
    let mut item = ItemSerializer::new().bare_item(Integer::constant(STAND_IN));
    if let Some(holder) = &ticket.holder {
        item = item.parameter(KeyRef::constant("holder"), holder.as_bytes().as_slice());
    }
    if ticket.source != TokenSource::LEASES {
        item = item.parameter(KeyRef::constant("src"), Integer::from(ticket.source.number()));
    }
    let item = item.finish();
    let parameters = item.find(';').map_or("", |at| &item[at..]);
    HeaderValue::try_from(format!("{}{parameters}", ticket.token)).ok()
}

/// Digits only: neither a sign nor leading zeros.
fn token(digits: &str) -> Option<FencingToken> {
    let canonical = digits.bytes().all(|byte| byte.is_ascii_digit()) && !digits.starts_with('0');
    FencingToken::new(digits.parse().ok().filter(|_| canonical)?).ok()
}

fn number(item: &BareItem) -> Option<u64> {
    match item {
        BareItem::Integer(number) => u64::try_from(i64::from(*number)).ok(),
        _ => None,
    }
}

fn holder(item: &BareItem) -> Option<Nonce> {
    match item {
        BareItem::ByteSequence(bytes) => <[u8; 16]>::try_from(bytes.as_slice()).ok().map(Nonce::from_bytes),
        _ => None,
    }
}

/// In the place of the token, whose parameters are read and written as those of an item.
const STAND_IN: i64 = 1;

/// Why the token in a header was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidFencingToken {
    /// More than one header line, equal or not.
    #[error("the token header was sent more than once")]
    SeveralLines,
    /// Not an integer from 1 to 2^53 - 1 with the parameters of a structured field.
    #[error("a fencing token is an integer from 1 to 2^53 - 1, with structured-field parameters")]
    Malformed,
    /// Not a byte sequence of 16 bytes.
    #[error("the token's holder is a byte sequence of 16 bytes")]
    Holder,
    /// Not a number from 0 to 65535.
    #[error("the token's source is a number from 0 to 65535")]
    Source,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_lines(lines: &[&str]) -> Result<Option<FenceTicket>, InvalidFencingToken> {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(FENCING_TOKEN, line.parse().unwrap());
        }
        parse(&headers)
    }

    fn ticket(line: &str) -> Result<FenceTicket, InvalidFencingToken> {
        parse_lines(&[line]).map(Option::unwrap)
    }

    #[test]
    fn a_bare_number_is_a_token_of_leases_without_a_holder() {
        let ticket = ticket("34").unwrap();
        assert_eq!((ticket.token.get(), ticket.holder, ticket.source), (34, None, TokenSource::LEASES));
        assert_eq!(parse_lines(&[]), Ok(None));
    }

    #[test]
    fn holder_and_source_are_parameters_and_others_are_ignored() {
        let ticket = ticket("34;holder=:AAECAwQFBgcICQoLDA0ODw==:;x=\"y\";src=7").unwrap();
        assert_eq!(ticket.holder, Some(Nonce::from_bytes([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15])));
        assert_eq!(ticket.source, TokenSource::new(7));
    }

    #[test]
    fn what_is_no_token_is_refused() {
        for line in [
            "",
            "0",
            "-1",
            "9007199254740992",
            "1.0",
            "\"34\"",
            "abc",
            "34, 35",
            "34;",
            "1e3",
            ":AA==:",
            "?1",
            "034",
            "+34",
            "3 4",
            "34 ;holder",
        ] {
            assert_eq!(ticket(line), Err(InvalidFencingToken::Malformed), "{line}");
        }
        assert_eq!(ticket("9007199254740991").unwrap().token.get(), FencingToken::MAX);
        for line in ["1;holder=:AAE=:", "1;holder=\"x\"", "1;holder", "1;holder=5"] {
            assert_eq!(ticket(line), Err(InvalidFencingToken::Holder), "{line}");
        }
        for line in ["1;src=65536", "1;src=-1", "1;src=a", "1;src"] {
            assert_eq!(ticket(line), Err(InvalidFencingToken::Source), "{line}");
        }
        assert_eq!(parse_lines(&["34", "34"]), Err(InvalidFencingToken::SeveralLines));
    }

    #[test]
    fn what_is_written_is_read_back() {
        for source in [TokenSource::DATABASE, TokenSource::LEASES, TokenSource::new(65535)] {
            for holder in [None, Some(Nonce::random())] {
                for token in [1, FencingToken::MAX] {
                    let ticket = FenceTicket { token: FencingToken::new(token).unwrap(), holder, source };
                    let mut headers = HeaderMap::new();
                    headers.insert(FENCING_TOKEN, value(&ticket).unwrap());
                    assert_eq!(parse(&headers), Ok(Some(ticket)));
                }
            }
        }
    }
}
