use http::HeaderValue;
use proptest::prelude::*;

use super::*;

/// What version 1 wrote. Never to be changed: later releases must go on reading it.
const V1: &[u8] = b"\x01\x00\xC9\x04\
    \x0Ccontent-type\x0Aimage/jpeg\
    \x04link\x11</a>; rel=\"first\"\
    \x04link\x10</b>; rel=\"last\"\
    \x07x-empty\x00\
    \x05\x00\xFF\r\n\x01";

fn fixture() -> StoredResponse {
    StoredResponse {
        status: StatusCode::CREATED,
        headers: header_map(&[
            ("content-type", b"image/jpeg"),
            ("link", b"</a>; rel=\"first\""),
            ("link", b"</b>; rel=\"last\""),
            ("x-empty", b""),
        ]),
        body: Bytes::from_static(b"\x00\xFF\r\n\x01"),
    }
}

fn header_map(lines: &[(&'static str, &[u8])]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in lines {
        headers.append(*name, HeaderValue::from_bytes(value).unwrap());
    }
    headers
}

fn encode(response: &StoredResponse) -> Bytes {
    StoredResponse::encode(response.status, &response.headers.iter().collect::<Vec<_>>(), &response.body)
}

#[test]
fn version_1_stays_readable_and_is_what_is_written() {
    assert_eq!(StoredResponse::decode(&Bytes::from_static(V1)), Ok(fixture()));
    assert_eq!(encode(&fixture()), V1);
}

#[test]
fn another_version_is_an_error_of_its_own() {
    for version in (0..=u8::MAX).filter(|version| *version != 1) {
        let mut bytes = V1.to_vec();
        bytes[0] = version;
        assert_eq!(StoredResponse::decode(&bytes.into()), Err(UnreadableResponse::UnknownVersion(version)));
    }
    assert_eq!(StoredResponse::decode(&Bytes::new()), Err(UnreadableResponse::Malformed));
}

#[test]
fn no_truncation_and_no_addition_is_read() {
    for length in 0..V1.len() {
        assert_eq!(StoredResponse::decode(&Bytes::from_static(&V1[..length])), Err(UnreadableResponse::Malformed));
    }
    let longer = [V1, b"\x00"].concat();
    assert_eq!(StoredResponse::decode(&longer.into()), Err(UnreadableResponse::Malformed));
}

#[test]
fn lengths_that_cannot_be_are_refused_without_an_allocation() {
    let most = [0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x01];
    for tail in [&most[..], &[0xFF; 12], &[0x80, 0x00], &[0x01, 0x80, 0x00]] {
        let bytes = [&[1, 0, 200][..], tail].concat();
        assert_eq!(StoredResponse::decode(&bytes.into()), Err(UnreadableResponse::Malformed));
    }
    // No headers and no body, with a number that is not in its shortest spelling, and one past 64 bits.
    let too_many = [&[0x80; 9][..], &[0x02]].concat();
    for none in [&[0x80, 0x00][..], &too_many] {
        for (headers, body) in [(none, &[0][..]), (&[0], none)] {
            let bytes = [&[1, 0, 200], headers, body].concat();
            assert_eq!(StoredResponse::decode(&bytes.into()), Err(UnreadableResponse::Malformed));
        }
    }
    // A length that is longer than the rest, as the length of a name, a value and a body.
    for head in [&b"\x01\x00\xC8\x01"[..], b"\x01\x00\xC8\x01\x01a", b"\x01\x00\xC8\x00"] {
        let bytes = [head, &most].concat();
        assert_eq!(StoredResponse::decode(&bytes.into()), Err(UnreadableResponse::Malformed));
    }
}

#[test]
fn more_headers_than_a_map_holds_is_malformed() {
    let mut bytes = vec![1, 0, 200];
    push_varint(&mut bytes, 40_000);
    for n in 0..40_000 {
        push_field(&mut bytes, format!("x{n}").as_bytes());
        push_field(&mut bytes, b"");
    }
    push_field(&mut bytes, b"");
    assert_eq!(StoredResponse::decode(&bytes.into()), Err(UnreadableResponse::Malformed));
}

#[test]
fn body_is_a_slice_of_the_stored_bytes() {
    let stored = encode(&fixture());
    let decoded = StoredResponse::decode(&stored).unwrap();
    assert!(stored.as_ptr_range().contains(&decoded.body.as_ptr()));
}

#[test]
fn no_content_stays_no_content() {
    let stored = StoredResponse::encode(StatusCode::NO_CONTENT, &[], b"");
    assert_eq!(stored.len(), 5);
    let response = StoredResponse::decode(&stored).unwrap().into_response();
    assert_eq!((response.status(), response.body().len()), (StatusCode::NO_CONTENT, 0));
}

#[test]
fn debug_shows_neither_headers_nor_body() {
    assert_eq!(format!("{:?}", fixture()), "StoredResponse(201 Created, 4 headers, 5 bytes)");
}

#[test]
fn what_the_handler_said_is_kept_in_order() {
    let lines: &[(&str, &[u8])] = &[
        ("location", b"/charges/1"),
        ("etag", b"\"v1\""),
        ("content-type", b"application/json"),
        ("content-encoding", b"gzip"),
        ("cache-control", b"no-store"),
        ("last-modified", b"Tue, 01 Jul 2025 00:00:00 GMT"),
        ("link", b"</a>"),
        ("link", b"</b>"),
        ("vary", b"accept"),
        ("x-rate", b"1"),
        ("proxied", b"1"),
    ];
    let headers = header_map(lines);
    let kept: Vec<_> =
        keep(&headers, SetCookie::NeverStored).into_iter().map(|(n, v)| (n.as_str(), v.as_bytes())).collect();
    assert_eq!(kept, lines);
}

#[test]
fn headers_of_the_exchange_and_the_connection_are_never_stored() {
    let names = "connection keep-alive te trailer transfer-encoding upgrade content-length date age \
        set-cookie clear-site-data www-authenticate proxy-authenticate proxy-authentication-info proxy-connection \
        proxy-status authentication-info access-control-allow-origin access-control-expose-headers \
        access-control-allow-credentials ratelimit ratelimit-policy ratelimit-limit ratelimit-reset \
        x-ratelimit-limit x-ratelimit-remaining x-ratelimit-reset retry-after server-timing alt-svc traceparent \
        tracestate x-request-id dpop-nonce";
    let mut headers = HeaderMap::new();
    for name in names.split_whitespace() {
        headers.append(HeaderName::from_static(name), HeaderValue::from_static("x"));
    }
    assert!(keep(&headers, SetCookie::NeverStored).is_empty());
}

#[test]
fn headers_named_by_connection_are_never_stored() {
    let headers = header_map(&[
        ("connection", b"close, X-Hop"),
        ("connection", b" \tx-Other ,,"),
        ("x-hop", b"1"),
        ("x-other", b"1"),
        ("x-hopper", b"1"),
    ]);
    let kept: Vec<_> = keep(&headers, SetCookie::NeverStored).into_iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(kept, ["x-hopper"]);
}

#[test]
fn set_cookie_is_stored_only_when_asked_for() {
    let lines: &[(&str, &[u8])] = &[("set-cookie", b"a=1"), ("etag", b"\"1\""), ("set-cookie", b"b=2")];
    let headers = header_map(lines);
    let kept =
        |setting| keep(&headers, setting).into_iter().map(|(_, value)| value.to_str().unwrap()).collect::<Vec<_>>();
    assert_eq!(kept(SetCookie::default()), ["\"1\""]);
    assert_eq!(kept(SetCookie::StoredAndReplayed), ["a=1", "b=2", "\"1\""]);
}

fn any_response() -> impl Strategy<Value = StoredResponse> {
    let name = prop_oneof![Just("x-a".to_owned()), Just("set-cookie".to_owned()), "[a-z][a-z0-9-]{0,200}"];
    let value = proptest::collection::vec(prop_oneof![0x20_u8..0x7F, 0x80_u8..=0xFF], 0..300);
    let headers = proptest::collection::vec((name, value), 0..12);
    let body = proptest::collection::vec(any::<u8>(), 0..400);
    (100_u16..1000, headers, body).prop_map(|(status, lines, body)| {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(HeaderName::try_from(name).unwrap(), HeaderValue::from_bytes(&value).unwrap());
        }
        StoredResponse { status: StatusCode::from_u16(status).unwrap(), headers, body: body.into() }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn any_response_comes_back_as_it_was(response in any_response()) {
        let stored = encode(&response);
        let decoded = StoredResponse::decode(&stored).unwrap();
        prop_assert!(decoded.headers.iter().eq(response.headers.iter()), "order and repeats");
        prop_assert_eq!(decoded, response);
    }

    #[test]
    fn no_bytes_make_decoding_panic(mut bytes in proptest::collection::vec(any::<u8>(), 1..200), known in any::<bool>()) {
        if known {
            bytes[0] = VERSION;
        }
        // Whatever is read was read to its end, and each length in its one spelling.
        if let Ok(response) = StoredResponse::decode(&bytes.clone().into()) {
            prop_assert_eq!(encode(&response).len(), bytes.len());
        }
    }

    #[test]
    fn one_changed_byte_never_panics_and_truncations_are_refused(
        response in any_response(),
        at in any::<proptest::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let stored = encode(&response).to_vec();
        let at = at.index(stored.len());
        prop_assert!(StoredResponse::decode(&Bytes::copy_from_slice(&stored[..at])).is_err());
        let mut changed = stored;
        changed[at] = byte;
        let _ = StoredResponse::decode(&changed.into());
    }
}
