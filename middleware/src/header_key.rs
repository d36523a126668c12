//! The key as the `Idempotency-Key` header carries it.
//!
//! The draft asks for a structured-field string (`"8e03978e"`), and nearly every client sends the bare
//! value (`8e03978e`). Both are accepted and are the same key.

use std::convert::Infallible;

use http::header::{HeaderMap, HeaderName};
use idempotency::{InvalidKey, Key, KeyRules};
use sfv::visitor::Ignored;
use sfv::{BareItemFromInput, Parser};

/// The key that the header `name` carries, or none when there is no such header.
pub(crate) fn parse(headers: &HeaderMap, name: &HeaderName, rules: &KeyRules) -> Result<Option<Key>, InvalidKeyHeader> {
    let mut lines = headers.get_all(name).iter();
    let Some(line) = lines.next() else {
        return Ok(None);
    };
    if lines.next().is_some() {
        // Equal lines too: neither the first nor the last is known to be the one that was meant.
        return Err(InvalidKeyHeader::SeveralLines);
    }
    // Optional white space around a field value is no part of it (RFC 9110 section 5.5).
    let text = line.to_str().map_err(|_| InvalidKey::Charset)?.trim_matches([' ', '\t']);
    if text.contains('\t') {
        return Err(InvalidKey::Charset.into());
    }
    if text.starts_with('"') { quoted(text, rules) } else { bare(text, rules) }.map(Some)
}

/// A bare key is the whole value: a `;` in it is part of it, and it holds no comma and no space.
fn bare(text: &str, rules: &KeyRules) -> Result<Key, InvalidKeyHeader> {
    if text.contains(',') {
        return Err(InvalidKeyHeader::List);
    }
    if text.contains(' ') {
        return Err(InvalidKeyHeader::BareSpace);
    }
    Ok(rules.parse(text)?)
}

/// A quoted key is a structured-field item. Its parameters are ignored, as RFC 9651 section 2 asks of
/// whoever does not know them.
fn quoted(text: &str, rules: &KeyRules) -> Result<Key, InvalidKeyHeader> {
    let mut key = None;
    let item = Parser::new(text).parse_item_with_visitor(|item: BareItemFromInput<'_>| {
        key = item.as_string().map(|string| rules.parse(string.as_str()));
        Ok::<_, Infallible>(Ignored)
    });
    match (item, key) {
        (Ok(()), Some(key)) => Ok(key?),
        _ if Parser::new(text).parse_list_with_visitor(Ignored).is_ok() => Err(InvalidKeyHeader::List),
        _ => Err(InvalidKeyHeader::Malformed),
    }
}

/// Why the key in a header was refused. Never says what the key was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidKeyHeader {
    /// More than one header line, equal or not.
    #[error("the key header was sent more than once")]
    SeveralLines,
    /// A comma-joined list.
    #[error("the key header holds a list instead of one key")]
    List,
    /// A space in a key without quotes.
    #[error("a key that holds a space must be quoted")]
    BareSpace,
    /// Begins with a quote and is not a structured-field string.
    #[error("the quoted key is not a structured-field string")]
    Malformed,
    /// The key itself breaks a rule.
    #[error(transparent)]
    Key(#[from] InvalidKey),
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use proptest::prelude::*;

    use super::*;

    const NAME: HeaderName = HeaderName::from_static("idempotency-key");

    fn parse_lines(lines: &[&[u8]]) -> Result<Option<Key>, InvalidKeyHeader> {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(NAME, HeaderValue::from_bytes(line).unwrap());
        }
        parse(&headers, &NAME, &KeyRules::default())
    }

    fn key(line: &str) -> Result<String, InvalidKeyHeader> {
        parse_lines(&[line.as_bytes()]).map(|key| key.unwrap().as_str().to_owned())
    }

    #[test]
    fn absent_header_is_no_key() {
        assert_eq!(parse_lines(&[]), Ok(None));
    }

    #[test]
    fn bare_and_quoted_are_the_same_key() {
        assert_eq!(key("8e03978e").unwrap(), "8e03978e");
        for same in ["\"8e03978e\"", " \"8e03978e\" ", "\"8e03978e\";v=1", "\"8e03978e\";a;b=\"x, y\"", "\t8e03978e "] {
            assert_eq!(key(same), key("8e03978e"), "{same}");
        }
    }

    #[test]
    fn bare_key_is_the_whole_value() {
        for text in ["abc;v=1", "a=b", ":YWJj:", "?1", "@1", "-12.5", "a\"b\"", "*/x", "(a)", "\\"] {
            assert_eq!(key(text).unwrap(), text);
        }
        assert_ne!(key("abc;v=1"), key("abc"));
    }

    #[test]
    fn only_a_quoted_key_may_hold_comma_and_space() {
        assert_eq!(key("\"a, b c\"").unwrap(), "a, b c");
        assert_eq!(key("\" a \"").unwrap(), " a ");
        assert_eq!(key(r#""a\"b\\c""#).unwrap(), r#"a"b\c"#);
        assert_eq!(key("a b"), Err(InvalidKeyHeader::BareSpace));
        assert_eq!(key("a;b c"), Err(InvalidKeyHeader::BareSpace));
        for list in ["a,b", "a, b", "a,", ",", "\"a\", \"b\"", "\"a\",\"a\"", "\"a\", b", "\"a\";v=1, \"b\""] {
            assert_eq!(key(list), Err(InvalidKeyHeader::List), "{list}");
        }
    }

    #[test]
    fn two_lines_are_refused_even_when_equal() {
        assert_eq!(parse_lines(&[b"a", b"b"]), Err(InvalidKeyHeader::SeveralLines));
        assert_eq!(parse_lines(&[b"a", b"a"]), Err(InvalidKeyHeader::SeveralLines));
        assert_eq!(parse_lines(&[b"a", b""]), Err(InvalidKeyHeader::SeveralLines));
    }

    #[test]
    fn malformed_quotes_are_refused() {
        for text in ["\"", "\"abc", "\"abc\"x", "\"a\" \"b\"", "\"a\\x\"", "\"a\\", "\"a\";", "\"a\";A=1", "\"a\","] {
            assert_eq!(key(text), Err(InvalidKeyHeader::Malformed), "{text}");
        }
    }

    #[test]
    fn empty_blank_control_non_ascii_and_over_long_are_refused() {
        for empty in ["", "  ", "\t", "\"\"", "\"  \"", "\"\";v=1"] {
            assert_eq!(key(empty), Err(InvalidKey::Empty.into()), "{empty:?}");
        }
        for bytes in [&b"a\tb"[..], b"\"a\tb\"", b"caf\xc3\xa9", b"\"caf\xc3\xa9\"", b"a\xffb"] {
            assert_eq!(parse_lines(&[bytes]), Err(InvalidKey::Charset.into()), "{bytes:?}");
        }
        assert!(key(&"k".repeat(255)).is_ok());
        assert!(key(&format!("\"{}\"", "k".repeat(255))).is_ok(), "quotes do not count");
        assert_eq!(key(&"k".repeat(256)), Err(InvalidKey::TooLong { most: 255 }.into()));
        assert_eq!(key(&format!("\"{}\"", "k".repeat(256))), Err(InvalidKey::TooLong { most: 255 }.into()));
    }

    #[test]
    fn own_length_rules_hold_after_unquoting() {
        let mut headers = HeaderMap::new();
        headers.insert(NAME, HeaderValue::from_static("\"abc\""));
        let rules = KeyRules::default().length(4..=8);
        assert_eq!(parse(&headers, &NAME, &rules), Err(InvalidKey::TooShort { least: 4 }.into()));
    }

    #[test]
    fn another_header_can_carry_the_key() {
        let name = HeaderName::from_static("webhook-id");
        let mut headers = HeaderMap::new();
        headers.insert(NAME, HeaderValue::from_static("other"));
        headers.insert(&name, HeaderValue::from_static("msg_1"));
        let key = parse(&headers, &name, &KeyRules::default()).unwrap().unwrap();
        assert_eq!(key.as_str(), "msg_1");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]

        #[test]
        fn any_key_survives_quoting(text in "[ -~]{1,255}") {
            prop_assume!(!text.trim_matches(' ').is_empty());
            let quoted = format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""));
            prop_assert_eq!(key(&quoted).unwrap(), text);
        }

        #[test]
        fn no_value_panics_and_no_error_names_the_key(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            let Ok(value) = HeaderValue::from_bytes(&bytes) else { return Ok(()) };
            let headers = HeaderMap::from_iter([(NAME, value)]);
            if let Err(error) = parse(&headers, &NAME, &KeyRules::default()) {
                let long = String::from_utf8_lossy(&bytes).into_owned();
                prop_assert!(long.len() < 10 || !error.to_string().contains(&long));
            }
        }
    }
}
