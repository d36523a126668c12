use proptest::prelude::*;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};

use super::*;

fn canonical(text: &str) -> Option<String> {
    json::canonical(text.as_bytes(), |form| String::from_utf8(form.to_vec()).unwrap())
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
fn members_are_ordered_at_every_depth() {
    let (mut came, mut ordered) = (String::from("0"), String::from("0"));
    for depth in 0..70 {
        // Sorted, unsorted and single members by turns, and siblings that hold objects of their own.
        (came, ordered) = match depth % 3 {
            0 => (
                format!(r#"{{"b":{came},"a":[{{"y":1,"x":{{}}}}]}}"#),
                format!(r#"{{"a":[{{"x":{{}},"y":1}}],"b":{ordered}}}"#),
            ),
            1 => (format!(r#"[{{"a":{came}}},{{"d":1,"c":2}}]"#), format!(r#"[{{"a":{ordered}}},{{"c":2,"d":1}}]"#)),
            _ => (format!(r#"{{"a":{{"q":1}},"b":{came}}}"#), format!(r#"{{"a":{{"q":1}},"b":{ordered}}}"#)),
        };
        assert_eq!(canonical(&came).unwrap(), ordered);
    }
    // Names that agree in their first 7 characters, and one that begins another.
    let names = r#"{"name_is_long_b":1,"name_is_long_a":2,"name_is":3,"name":4,"":5}"#;
    let sorted = r#"{"":5,"name":4,"name_is":3,"name_is_long_a":2,"name_is_long_b":1}"#;
    assert_eq!(canonical(names).unwrap(), sorted);
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
    assert_eq!(json::canonical(b"\"\xFF\"", |_| ()), None);
    assert_eq!(json::canonical(b"{\"\xC3\":1}", |_| ()), None);
}

#[test]
fn a_text_has_a_form_exactly_if_serde_json_reads_it() {
    fn every(pieces: &[&str], most: usize, text: &mut String) {
        let readable = serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok();
        assert_eq!(canonical(text).is_some(), readable, "{text}");
        for piece in pieces.iter().filter(|_| most > 0) {
            let length = text.len();
            text.push_str(piece);
            every(pieces, most - 1, text);
            text.truncate(length);
        }
    }
    every(&["0", "1", "-", "+", ".", "e", "E", " "], 5, &mut String::new());
    every(&["{", "}", "[", "]", ",", ":", "\"", "0", " "], 5, &mut String::new());
    every(&["true", "false", "null", "t", "l", ",", "[", "]"], 4, &mut String::new());
    // A string is read by eight bytes at a time.
    for before in 0..17 {
        let mut text = format!("\"{}", "x".repeat(before));
        every(&["\"", "\\", "/", "u", "n", "0041", "\u{1f}", "\u{7f}", "\u{e9}"], 3, &mut text);
    }
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
    for json in ["application/json", "application/vnd.api+json", "Application/JSON; charset=utf-8", "application/json;"]
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
            if let Some(form) = json::canonical(body, <[u8]>::to_vec) {
                // Numbers beyond an f64 are the one thing that a value cannot hold and a form can.
                let form = serde_json::from_slice::<serde_json::Value>(&form);
                prop_assert_eq!(form.map_err(|_| ()), readable.map_err(|_| ()));
            }
        }
    }
}
