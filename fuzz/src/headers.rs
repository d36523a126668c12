//! Keys and fencing tokens, as headers carry them.

use http::{HeaderMap, HeaderName, HeaderValue};
use idempotency::{Key, KeyRules};
use tower_idempotency::{InvalidKeyHeader, fuzzing};

use super::{MARKER, marked, pieces};

/// Lines of one header.
fn lines(name: &HeaderName, data: &[u8]) -> HeaderMap {
    let values = pieces(data).filter_map(|line| HeaderValue::from_bytes(line).ok());
    let mut headers = HeaderMap::new();
    for value in values.take(3) {
        headers.append(name, value);
    }
    headers
}

/// Lines of `Idempotency-Key`.
pub fn key_header(data: &[u8]) {
    let name = HeaderName::from_static("idempotency-key");
    let read = |headers: &HeaderMap| fuzzing::key(headers, &name, &KeyRules::default());
    let headers = lines(&name, data);
    let key = match (read(&headers), headers.len()) {
        (read, 0) => return assert_eq!(read, Ok(None)),
        (read, 2..) => return assert_eq!(read, Err(InvalidKeyHeader::SeveralLines)),
        (Ok(key), 1) => key.expect("a key in the one line"),
        (Err(_), 1) => {
            let told = read(&lines(&name, &marked(data))).map_err(|error| format!("{error} {error:?}"));
            return assert!(!told.is_err_and(|told| told.contains(MARKER)), "it quotes what was sent");
        }
    };
    let text = key.as_str();
    assert!((1..=255).contains(&text.len()) && text.bytes().all(|byte| (b' '..=b'~').contains(&byte)), "{text:?}");
    assert_eq!(Key::parse(text).as_ref(), Ok(&key), "what a header carries, a program may say");
    let one =
        |text: String| HeaderMap::from_iter([(name.clone(), HeaderValue::try_from(text).expect("visible ASCII"))]);
    let quoted = format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""));
    assert_eq!(read(&one(quoted.clone())), Ok(Some(key.clone())), "printed and read again");
    assert_eq!(read(&one(format!("{quoted};a=1"))), Ok(Some(key.clone())), "parameters do not count");
    let bare = read(&one(text.to_owned()));
    if text.starts_with('"') || text.contains([' ', ',']) {
        assert_ne!(bare, Ok(Some(key)), "a key that must be quoted is another one, or none, without quotes");
    } else {
        assert_eq!(bare, Ok(Some(key)));
    }
}

/// Lines of `Fencing-Token`.
pub fn fencing_header(data: &[u8]) {
    let name = tower_idempotency::FENCING_TOKEN;
    let headers = lines(&name, data);
    match fuzzing::ticket(&headers) {
        Ok(None) => assert!(headers.is_empty()),
        Ok(Some(ticket)) => {
            assert_eq!(headers.len(), 1);
            assert!(ticket.token.get() < 1 << 53);
            let printed = fuzzing::ticket_value(&ticket).expect("what was read can be printed");
            let again = fuzzing::ticket(&HeaderMap::from_iter([(name, printed)]));
            assert_eq!(again, Ok(Some(ticket)), "printed and read again");
        }
        Err(_) => {
            let told = fuzzing::ticket(&lines(&name, &marked(data))).map_err(|error| format!("{error} {error:?}"));
            assert!(!told.is_err_and(|told| told.contains(MARKER)), "it quotes what was sent");
        }
    }
}
