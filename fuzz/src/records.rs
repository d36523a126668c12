//! What comes back from a store.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use idempotency::{DeadNonces, FencingToken, Fingerprint, Nonce, RecordId, Timestamp};
use tower_idempotency::fuzzing::{decode, encode, encode_all};

use super::pieces;

/// A stored response as it came, and one made of the pieces.
pub fn stored_response(data: &[u8]) {
    let stored = Bytes::copy_from_slice(data);
    if let Some(response) = decode(&stored) {
        assert_eq!(data.first(), Some(&1), "another version is never taken for this one");
        // Lines of one name stand together afterwards, in their order.
        let again = encode_all(&response);
        assert_eq!(again.len(), stored.len());
        let twice = decode(&again).expect("what was written can be read");
        assert_eq!(
            (twice.status(), twice.headers(), twice.body()),
            (response.status(), response.headers(), response.body())
        );
        assert_eq!(encode_all(&twice), again);
        for end in 0..stored.len().min(64) {
            assert!(decode(&stored.slice(..end)).is_none(), "cut off after {end} bytes");
        }
        assert!(decode(&[&stored[..], b"\0"].concat().into()).is_none(), "with something after it");
    }

    let mut pieces = pieces(data);
    let body = pieces.next().unwrap_or_default();
    let status = body.iter().fold(100, |status, byte| 100 + (status + u16::from(*byte)) % 900);
    let status = StatusCode::from_u16(status).expect("100 to 999");
    let mut headers = HeaderMap::new();
    while let (Some(name), Some(value)) = (pieces.next(), pieces.next()) {
        if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name), HeaderValue::from_bytes(value)) {
            headers.append(name, value);
        }
    }
    let response = decode(&encode(status, &headers, body)).expect("what was written can be read");
    assert_eq!((response.status(), &response.body()[..]), (status, body));
    for name in response.headers().keys() {
        assert!(response.headers().get_all(name).iter().eq(headers.get_all(name)), "{name}");
    }
    let dropped = |name: &str| !response.headers().contains_key(name);
    assert!(dropped("connection") && dropped("content-length") && dropped("date") && dropped("transfer-encoding"));
}

/// The parts of a record that are kept as bytes or text.
pub fn record(data: &[u8]) {
    match DeadNonces::from_bytes(data) {
        Some(dead) => {
            assert_eq!(dead.to_bytes(), data);
            assert_eq!(DeadNonces::from_bytes(&dead.to_bytes()).as_ref(), Some(&dead));
            for entry in data.chunks_exact(24) {
                let nonce = Nonce::from_bytes(entry[..16].try_into().expect("16 bytes"));
                let until = i64::from_be_bytes(entry[16..].try_into().expect("8 bytes"));
                assert!(dead.contains(nonce, Timestamp::from_micros(until)) && dead.until().micros() >= until);
            }
        }
        None => assert_ne!(data.len() % 24, 0),
    }
    if let Some(bytes) = data.first_chunk() {
        let fingerprint = Fingerprint::from_bytes(*bytes);
        assert_eq!((fingerprint.to_bytes(), fingerprint.version()), (*bytes, bytes[0]));
    }
    if let Some(bytes) = data.first_chunk() {
        let id = RecordId::from_bytes(*bytes);
        assert_eq!((id.as_bytes(), id.to_string().parse()), (bytes, Ok(id)));
    }
    let text = String::from_utf8_lossy(data);
    match text.parse::<RecordId>() {
        Ok(id) => assert_eq!(id.to_string(), text.to_ascii_lowercase()),
        Err(_) => assert!(text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit())),
    }
    if let Some(bytes) = data.first_chunk() {
        let number = u64::from_be_bytes(*bytes);
        assert_eq!(FencingToken::new(number).is_ok(), (1..1 << 53).contains(&number));
        // Times at the ends of all that can be said are moved without a slip.
        let time = Timestamp::from_micros(number as i64);
        let span = std::time::Duration::from_micros(number);
        assert!(time.after(span) >= time && time.before(span) <= time);
    }
}
