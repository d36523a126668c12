use http::Request;
use proptest::prelude::*;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};

use super::*;

const ROUTE: (&str, Option<&str>) = ("/charges", Some("a=1"));

fn parts(content_type: Option<&str>) -> Parts {
    let mut request = Request::post("/cut?x=y");
    if let Some(content_type) = content_type {
        request = request.header(CONTENT_TYPE, content_type);
    }
    request.body(()).unwrap().into_parts().0
}

fn of(content_type: &str, body: impl AsRef<[u8]>) -> Fingerprint {
    with(&FingerprintRule::default(), content_type, body)
}

fn with(rule: &FingerprintRule, content_type: &str, body: impl AsRef<[u8]>) -> Fingerprint {
    rule.compute(&parts(Some(content_type)), ROUTE, &Bytes::copy_from_slice(body.as_ref()))
}

mod rule {
    use super::*;

    #[test]
    fn version_1_fingerprints_stay_as_they_are() {
        // A change here makes every retry that crosses an upgrade a 422.
        let expected = FingerprintHasher::new()
            .part(b"method")
            .part(b"POST")
            .part(b"path")
            .part(b"/charges")
            .part(b"query")
            .part(b"a=1")
            .part(b"media type")
            .part(b"application/json")
            .part(b"json")
            .part(br#"{"a":1,"b":2}"#)
            .clone()
            .finish();
        assert_eq!(of("application/json", r#"{"b": 2, "a": 1}"#), expected);
    }

    #[test]
    fn method_path_query_media_type_and_body_are_told_apart() {
        let rule = FingerprintRule::default();
        let body = Bytes::from_static(b"x");
        let first = rule.compute(&parts(Some("text/plain")), ROUTE, &body);
        let mut put = parts(Some("text/plain"));
        put.method = http::Method::PUT;
        let others = [
            rule.compute(&put, ROUTE, &body),
            rule.compute(&parts(Some("text/plain")), ("/refunds", ROUTE.1), &body),
            rule.compute(&parts(Some("text/plain")), ("/charges", Some("a=2")), &body),
            rule.compute(&parts(Some("text/plain")), ("/charges", Some("")), &body),
            rule.compute(&parts(Some("text/plain")), ("/charges", None), &body),
            rule.compute(&parts(Some("text/html")), ROUTE, &body),
            rule.compute(&parts(None), ROUTE, &body),
            rule.compute(&parts(Some("text/plain")), ROUTE, &Bytes::from_static(b"y")),
            rule.compute(&parts(Some("text/plain")), ROUTE, &Bytes::new()),
        ];
        let all: std::collections::HashSet<_> = others.into_iter().chain([first]).collect();
        assert_eq!(all.len(), 10);
    }

    #[test]
    fn credentials_and_other_headers_do_not_count() {
        let mut other = parts(Some("text/plain"));
        other.headers.insert("authorization", HeaderValue::from_static("Bearer b"));
        other.headers.insert("cookie", HeaderValue::from_static("a=b"));
        let body = Bytes::from_static(b"x");
        assert_eq!(FingerprintRule::default().compute(&other, ROUTE, &body), of("text/plain", "x"));
    }

    #[test]
    fn parameters_and_case_of_the_media_type_do_not_count() {
        for same in ["text/plain; charset=utf-8", "Text/PLAIN", "text/plain;", "text/plain ;;x", " text/plain"] {
            assert_eq!(of(same, "x"), of("text/plain", "x"), "{same}");
        }
        assert_ne!(of("not a type", "x"), of("nor this", "x"));
        assert_eq!(of("Not A type; a=1", "x"), of("not a Type", "x"));
        let mut binary = parts(None);
        binary.headers.insert(CONTENT_TYPE, HeaderValue::from_bytes(b"\xFF; a").unwrap());
        let _ = FingerprintRule::default().compute(&binary, ROUTE, &Bytes::new());
    }

    #[test]
    fn a_part_that_is_left_out_does_not_count() {
        let body = Bytes::from_static(b"x");
        let mut other = parts(Some("text/html"));
        other.method = http::Method::PATCH;
        let same = |rule: FingerprintRule, parts: &Parts, route, body: &Bytes| {
            rule.compute(parts, route, body) == with(&rule, "text/plain", "x")
        };
        let plain = parts(Some("text/plain"));
        let mut patch = plain.clone();
        patch.method = http::Method::PATCH;
        let rule = FingerprintRule::default;
        assert!(same(rule().without_route(), &patch, ("/other", None), &body));
        assert!(same(rule().without_query(), &plain, ("/charges", None), &body));
        assert!(!same(rule().without_query(), &plain, ("/other", None), &body));
        assert!(same(rule().without_media_type(), &parts(Some("text/html")), ROUTE, &body));
        assert!(same(rule().without_body(), &plain, ROUTE, &Bytes::new()));
        assert!(!same(rule().without_route(), &other, ROUTE, &body), "the media type still counts");
        assert!(!same(rule().without_media_type(), &patch, ROUTE, &body), "the method still counts");
    }

    #[test]
    fn raw_mode_counts_every_byte() {
        let raw = FingerprintRule::default().body(BodyMode::Raw);
        assert_ne!(with(&raw, "application/json", "{}"), with(&raw, "application/json", "{ }"));
        assert_eq!(with(&raw, "application/json", "{}"), with(&raw, "application/json", "{}"));
        assert_ne!(with(&raw, "application/json", "{}"), of("application/json", "{}"));
        // A media type whose meaning is not known is raw in either mode.
        assert_eq!(with(&raw, "text/plain", "{}"), of("text/plain", "{}"));
    }

    #[test]
    fn own_rule_decides_alone() {
        let rule = FingerprintRule::from_fn(|parts, body| Fingerprint::of([parts.method.as_str().as_bytes(), body]));
        let expected = Fingerprint::of([b"POST".as_slice(), b"{ }"]);
        assert_eq!(with(&rule.clone().without_body().without_route(), "application/json", "{ }"), expected);
        assert_eq!(format!("{rule:?}"), "FingerprintRule(own)");
    }
}

mod json_form {
    use super::*;

    fn canonical(text: &str) -> Option<String> {
        json::canonical(text.as_bytes()).map(|bytes| String::from_utf8(bytes).unwrap())
    }

    #[test]
    fn member_order_and_white_space_do_not_count() {
        let form = r#"{"":[],"a":[1,{"x":null,"y":true}],"b":"s"}"#;
        assert_eq!(canonical(form).unwrap(), form);
        let other = "\r\n{ \"b\"\t:\"s\" , \"a\" : [ 1 ,{\"y\":true,\"x\" : null } ] , \"\":[ \n] } ";
        assert_eq!(canonical(other).unwrap(), form);
        for scalar in ["1", " true ", "null\n", "\"x\"", "{}", "[ ]"] {
            assert_eq!(canonical(scalar).unwrap(), scalar.replace([' ', '\n'], ""));
        }
    }

    #[test]
    fn array_order_and_number_text_count() {
        let different = ["[1,2]", "[2,1]", "[1.0,2]", "[1e0,2]", "[1E0,2]", "[\"1\",2]", "[-0,2]", "[0,2]", "[[1],2]"];
        let forms: std::collections::HashSet<_> = different.into_iter().map(|text| canonical(text).unwrap()).collect();
        assert_eq!(forms.len(), different.len());
    }

    #[test]
    fn strings_count_by_their_characters() {
        assert_eq!(canonical(r#""\u0041\/\ud83d\uDE00\u000a""#), canonical("\"A/\u{1F600}\\n\""));
        assert_eq!(canonical(r#"{"\u0062":1,"a":2}"#).unwrap(), r#"{"a":2,"b":1}"#);
        assert_ne!(canonical(r#""\\u0041""#), canonical(r#""A""#));
        assert_ne!(canonical(r#""\"""#), canonical(r#""\\""#));
        assert_ne!(canonical("\"e\u{301}\""), canonical("\"\u{e9}\""), "no Unicode normalisation");
    }

    #[test]
    fn what_has_no_canonical_form_counts_by_its_bytes() {
        for text in [
            "",
            " ",
            "{",
            "{}x",
            "{a:1}",
            "[1,]",
            "{\"a\":1,}",
            "01",
            "+1",
            "NaN",
            "'a'",
            "\"\t\"",
            "\u{feff}{}",
            "{\"a\":1,\"a\":1}",
            "{\"a\":1,\"b\":2,\"a\":2}",
            "{\"b\":1,\"a\":2,\"b\":1}",
            "[[{\"x\":{\"a\":1,\"\\u0061\":1}}]]",
            "\"\\ud83d\"",
            "\"\\ude00\\ud83d\"",
            "{\"\\ud83d\":1}",
        ] {
            assert_eq!(canonical(text), None, "{text}");
            assert_ne!(of("application/json", text), of("application/json", format!("{text} ")), "{text}");
        }
        assert_eq!(json::canonical(b"\"\xFF\""), None);
        assert_eq!(json::canonical(b"{\"\xC3\":1}"), None);
    }

    #[test]
    fn nesting_is_read_as_deep_as_serde_json_reads() {
        for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
            for depth in [127, 128, 200_000] {
                let text = format!("{}1{}", open.repeat(depth), close.repeat(depth));
                let readable = depth < 200_000 && serde_json::from_str::<serde_json::Value>(&text).is_ok();
                assert_eq!(canonical(&text).is_some(), readable, "{depth}");
            }
        }
        assert!(canonical(&format!("[{}]", ["[[]]"; 300].join(","))).is_some(), "siblings do not nest");
    }

    #[test]
    fn a_raw_body_never_equals_a_canonical_one() {
        let form = canonical(r#"{"b":1,"a":2}"#).unwrap();
        let rule = FingerprintRule::default().without_media_type();
        assert_ne!(with(&rule, "application/json", &form), with(&rule, "text/plain", &form));
    }

    #[test]
    fn media_types_with_a_json_suffix_are_json() {
        for json in
            ["application/json", "application/vnd.api+json", "Application/JSON; charset=utf-8", "application/json;"]
        {
            assert_eq!(of(json, "[1, 2]"), of(json, "[1,2]"), "{json}");
        }
        for other in ["text/plain", "application/jsonl", "application/x-json", "application/x-www-form-urlencoded"] {
            assert_ne!(of(other, "[1, 2]"), of(other, "[1,2]"), "{other}");
        }
    }

    /// A JSON value; member names within one object differ.
    #[derive(Clone, Debug, PartialEq)]
    enum Json {
        /// `null`, `true`, `false`, or a number by its text.
        Plain(String),
        String(String),
        Array(Vec<Json>),
        Object(std::collections::BTreeMap<String, Json>),
    }

    impl Json {
        /// One of the many ways to write it.
        fn write(&self, rng: &mut StdRng, out: &mut String) {
            space(rng, out);
            match self {
                Self::Plain(text) => out.push_str(text),
                Self::String(text) => write_string(text, rng, out),
                Self::Array(items) => list(rng, out, '[', ']', items, |item, rng, out| item.write(rng, out)),
                Self::Object(members) => {
                    let mut members: Vec<_> = members.iter().collect();
                    members.shuffle(rng);
                    list(rng, out, '{', '}', &members, |(name, value), rng, out| {
                        space(rng, out);
                        write_string(name, rng, out);
                        space(rng, out);
                        out.push(':');
                        value.write(rng, out);
                    });
                }
            }
            space(rng, out);
        }

        fn text(&self, seed: u64) -> String {
            let mut out = String::new();
            self.write(&mut StdRng::seed_from_u64(seed), &mut out);
            out
        }
    }

    fn list<T>(
        rng: &mut StdRng,
        out: &mut String,
        open: char,
        close: char,
        items: &[T],
        write: impl Fn(&T, &mut StdRng, &mut String),
    ) {
        out.push(open);
        for (n, item) in items.iter().enumerate() {
            if n > 0 {
                out.push(',');
            }
            write(item, rng, out);
        }
        space(rng, out);
        out.push(close);
    }

    fn space(rng: &mut StdRng, out: &mut String) {
        while rng.random_ratio(1, 4) {
            out.push([' ', '\n', '\r', '\t'][rng.random_range(0..4)]);
        }
    }

    fn write_string(text: &str, rng: &mut StdRng, out: &mut String) {
        out.push('"');
        for c in text.chars() {
            let short = match c {
                '"' | '\\' | '/' => Some(c),
                '\n' => Some('n'),
                '\r' => Some('r'),
                '\t' => Some('t'),
                '\u{8}' => Some('b'),
                '\u{c}' => Some('f'),
                _ => None,
            };
            match (rng.random_range(0..4), short) {
                (0, _) => c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| {
                    let upper = rng.random();
                    out.push_str(&if upper { format!("\\u{unit:04X}") } else { format!("\\u{unit:04x}") });
                }),
                (1.., Some(short)) if c != '/' || rng.random() => out.extend(['\\', short]),
                (1.., None) if c < ' ' => out.push_str(&format!("\\u{:04x}", u32::from(c))),
                _ => out.push(c),
            }
        }
        out.push('"');
    }

    /// Small enough that two of them are often nearly equal.
    fn any_json() -> impl Strategy<Value = Json> {
        let number = prop_oneof!["-?(0|[1-9][0-9]{0,2})(\\.[0-9]{1,2})?([eE][+-]?[0-9]{1,2})?", "0|1|1\\.0|-0"];
        let text = || prop_oneof!["[ab]{0,2}", any::<String>(), "[\"\\\\/\n\u{8}\u{0}\u{7f}\u{1F600}\u{e9}]{0,4}"];
        let leaf = prop_oneof![
            prop_oneof![Just("null"), Just("true"), Just("false")].prop_map(|text| Json::Plain(text.to_owned())),
            number.prop_map(Json::Plain),
            text().prop_map(Json::String),
        ];
        leaf.prop_recursive(4, 32, 5, move |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..4).prop_map(Json::Array),
                proptest::collection::btree_map(text(), inner, 0..5).prop_map(Json::Object),
            ]
        })
    }

    /// Changes one thing somewhere.
    fn change(json: &mut Json, rng: &mut StdRng) {
        match json {
            Json::Array(items) if !items.is_empty() && rng.random() => {
                let at = rng.random_range(0..items.len());
                change(&mut items[at], rng);
            }
            Json::Array(items) if rng.random() => items.push(Json::Plain("0".into())),
            Json::Array(items) if items.len() > 1 => items.reverse(),
            Json::Object(members) if !members.is_empty() && rng.random() => {
                let at = rng.random_range(0..members.len());
                change(members.values_mut().nth(at).unwrap(), rng);
            }
            Json::Object(members) if !members.is_empty() && rng.random() => drop(members.pop_first()),
            Json::String(text) => text.push('\\'),
            Json::Plain(text) if text.ends_with(|c: char| c.is_ascii_digit()) => *json = Json::String(text.clone()),
            _ => *json = Json::Array(vec![json.clone()]),
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]

        #[test]
        fn equal_meaning_has_an_equal_fingerprint(json in any_json(), one: u64, two: u64) {
            let (one, two) = (json.text(one), json.text(two));
            prop_assert!(canonical(&one).is_some());
            prop_assert_eq!(canonical(&one), canonical(&two));
            prop_assert_eq!(of("application/json", one), of("application/json", two));
        }

        #[test]
        fn canonical_form_is_no_longer_means_the_same_and_is_its_own(json in any_json(), seed: u64) {
            let text = json.text(seed);
            let form = canonical(&text).unwrap();
            prop_assert!(form.len() <= text.len());
            prop_assert_eq!(canonical(&form), Some(form.clone()));
            let value = |text: &str| serde_json::from_str::<serde_json::Value>(text);
            prop_assert_eq!(value(&form).unwrap(), value(&text).unwrap());
        }

        #[test]
        fn another_meaning_has_another_fingerprint(one in any_json(), two in any_json(), seed: u64) {
            let mut changed = one.clone();
            change(&mut changed, &mut StdRng::seed_from_u64(seed));
            for other in [two, changed] {
                let equal = of("application/json", one.text(seed)) == of("application/json", other.text(!seed));
                prop_assert_eq!(equal, one == other, "{:?} {:?}", one, other);
            }
        }

        #[test]
        fn a_member_that_comes_twice_leaves_the_bytes(json in any_json(), name in "[ab\n\u{e9}]{0,2}", seed: u64) {
            let mut rng = StdRng::seed_from_u64(seed);
            let mut object = String::from("{");
            write_string(&name, &mut rng, &mut object);
            object.push(':');
            json.write(&mut rng, &mut object);
            object.push_str(",\"ab\\n\":[],");
            write_string(&name, &mut rng, &mut object);
            object.push_str(":1}");
            prop_assert_eq!(canonical(&object), None);
            prop_assert_eq!(canonical(&format!("[0,{object}]")), None);
        }

        #[test]
        fn no_bytes_panic_and_only_valid_json_has_a_form(
            json in any_json(), seed: u64, at in any::<proptest::sample::Index>(), byte in any::<u8>(),
        ) {
            let mut bytes = json.text(seed).into_bytes();
            bytes.push(b' ');
            let at = at.index(bytes.len());
            bytes[at] = byte;
            for body in [&bytes[..], &bytes[..at]] {
                let readable = serde_json::from_slice::<serde_json::Value>(body);
                if let Some(form) = json::canonical(body) {
                    // Numbers beyond an f64 are the one thing that a value cannot hold and a form can.
                    let form = serde_json::from_slice::<serde_json::Value>(&form);
                    prop_assert_eq!(form.map_err(|_| ()), readable.map_err(|_| ()));
                }
            }
        }
    }
}

mod multipart_form {
    use super::*;

    const TYPE: &str = "multipart/form-data; boundary=";

    fn form(boundary: &str, parts: &[&str]) -> String {
        let parts: String = parts.iter().map(|part| format!("--{boundary}\r\n{part}\r\n")).collect();
        format!("{parts}--{boundary}--\r\n")
    }

    fn under(boundary: &str, body: impl AsRef<[u8]>) -> Fingerprint {
        of(&format!("{TYPE}{boundary}"), body)
    }

    const A: &str = "content-disposition: form-data; name=\"a\"\r\n\r\nhello";
    const B: &str = "content-disposition: form-data; name=\"b\"; filename=\"x\"\r\n\r\n\r\nbinary\r\n";

    #[test]
    fn the_boundary_does_not_count() {
        assert_eq!(under("one", form("one", &[A, B])), under("----WebKitFormTWO", form("----WebKitFormTWO", &[A, B])));
        let quoted = of("Multipart/Form-Data; charset=utf-8; boundary=\"o ne\"", form("o ne", &[A, B]));
        assert_eq!(quoted, under("one", form("one", &[A, B])));
    }

    #[test]
    fn case_of_the_boundary_is_kept() {
        assert_eq!(under("AbC", form("AbC", &[A])), under("x", form("x", &[A])));
        assert_ne!(under("abc", form("AbC", &[A])), under("x", form("x", &[A])));
    }

    #[test]
    fn parts_and_their_order_and_their_ends_count() {
        let forms: &[&[&str]] =
            &[&[], &[""], &["", ""], &[A], &[B], &[A, B], &[B, A], &[A, A], &["a", "bc"], &["ab", "c"]];
        let seen: std::collections::HashSet<_> = forms.iter().map(|parts| under("x", form("x", parts))).collect();
        assert_eq!(seen.len(), forms.len());
    }

    #[test]
    fn boundary_text_inside_a_line_is_content() {
        let content = "a\r\n\r\nfoo--x\r\n bar --x--\n--x\n-x\r\n-x\r\n- -x";
        let body = form("x", &[content]);
        let split = multipart::split(body.as_bytes(), "x").unwrap();
        assert_eq!(split.parts, [content.as_bytes()]);
        assert_ne!(under("x", &body), under("x", form("x", &["a", "foo"])));
    }

    #[test]
    fn a_line_that_only_begins_with_the_boundary_is_malformed() {
        let body = form("x", &["a\r\n\r\n\r\n--xy\r\nb"]);
        assert_eq!(multipart::split(body.as_bytes(), "x"), None);
    }

    #[test]
    fn preamble_epilogue_and_padding_are_read() {
        let body = b"pre\r\namble\r\n--x \t\r\nA\r\n--x\r\nB\r\n--x-- \r\nepi--xlogue";
        let split = multipart::split(body, "x").unwrap();
        assert_eq!(split.preamble, b"pre\r\namble");
        assert_eq!(split.parts, [b"A", b"B"]);
        assert_eq!(split.epilogue, b"\r\nepi--xlogue");
        assert_eq!(under("x", b"--x \r\nA\r\n--x--"), under("x", b"--x\r\nA\r\n--x--\t"), "padding does not count");
        assert_ne!(under("x", b"--x\r\nA\r\n--x--"), under("x", b"p\r\n--x\r\nA\r\n--x--"));
        assert_ne!(under("x", b"--x\r\nA\r\n--x--"), under("x", b"--x\r\nA\r\n--x--\r\nepilogue"));
    }

    #[test]
    fn malformed_bodies_count_by_their_bytes() {
        for body in [
            "",
            "no delimiter",
            "--x",
            "--x\r\n",
            "--x\r\nA",
            "--x\r\nA\r\n--x",
            "--x\r\nA\r\n--x-",
            "--x\r\nA\r\n--x--y",
            "--x\r\n--x--",
            "--x\nA\n--x--",
            "A--x\r\nA\r\n",
            "\n--x--",
        ] {
            assert_eq!(multipart::split(body.as_bytes(), "x"), None, "{body:?}");
        }
        assert_eq!(multipart::split(b"--\r\nA\r\n----", ""), None);
        let body = form("x", &[A]);
        assert_ne!(of("multipart/form-data", &body), under("x", &body), "no boundary given");
        assert_ne!(of("multipart/mixed; boundary=x", &body), of("multipart/mixed; boundary=y", form("y", &[A])));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]

        #[test]
        fn another_boundary_is_the_same_and_another_byte_is_not(
            parts in proptest::collection::vec("[-xyz\r\n ]{0,30}", 1..5),
            one in "[0-9a-zA-Z'_-]{0,20}Q", two in "[0-9a-zA-Z'_-]{1,30}Q",
            at in any::<proptest::sample::Index>(),
        ) {
            let mut parts: Vec<&str> = parts.iter().map(String::as_str).collect();
            let first = under(&one, form(&one, &parts));
            prop_assert!(multipart::split(form(&one, &parts).as_bytes(), &one).is_some());
            prop_assert_eq!(first, under(&two, form(&two, &parts)));
            let changed = at.get(&parts).to_string() + "w";
            let at = at.index(parts.len());
            parts[at] = &changed;
            prop_assert_ne!(first, under(&two, form(&two, &parts)));
        }

        #[test]
        fn no_bytes_panic_and_parts_are_what_stands_between(body in "(--|x|\r\n|a| ){0,40}") {
            let Some(split) = multipart::split(body.as_bytes(), "x") else { return Ok(()) };
            for part in split.parts {
                let part = str::from_utf8(part).unwrap();
                prop_assert!(!part.contains("\r\n--x"));
                prop_assert!(body.contains(&["\r\n", part, "\r\n--x"].concat()));
            }
        }
    }
}
