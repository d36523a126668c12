//! Bodies whose meaning counts, and not their spelling.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{MapAccess, Visitor};
use serde_json::value::RawValue;
use tower_idempotency::fuzzing::{canonical_json, fingerprint};

use super::{SEPARATOR, pieces};

const JSON: &str = "application/json";

/// Two documents: they have one fingerprint exactly when they mean the same.
pub fn json(data: &[u8]) {
    let (one, other) = match data.iter().position(|byte| *byte == SEPARATOR) {
        Some(at) => (&data[..at], &data[at + 1..]),
        None => (data, data),
    };
    for body in [one, other] {
        let Some(meaning) = Meaning::of(body, 0) else {
            assert_eq!(canonical_json(body), None, "it means nothing, or two things");
            continue;
        };
        let canonical = canonical_json(body).expect("a form of what means one thing");
        assert!(canonical.len() <= body.len());
        assert_eq!(canonical_json(&canonical).as_ref(), Some(&canonical), "the form of a form is itself");
        assert_eq!(Meaning::of(&canonical, 0).as_ref(), Some(&meaning));
        let mut turned = String::new();
        meaning.spell(&mut turned, data.len());
        assert_eq!(fingerprint(JSON, turned.as_bytes()), fingerprint(JSON, body), "{turned}");
        assert_ne!(fingerprint("text/plain", body), fingerprint(JSON, body));
    }
    let same = match (Meaning::of(one, 0), Meaning::of(other, 0)) {
        (Some(one), Some(other)) => one == other,
        (None, None) => one == other,
        _ => false,
    };
    assert_eq!(fingerprint(JSON, one) == fingerprint(JSON, other), same);
}

/// What a document says, made in another way than the canonical form is.
#[derive(Debug, PartialEq)]
enum Meaning {
    /// A number by its text, or one of the three words.
    Scalar(String),
    String(String),
    Array(Vec<Self>),
    Object(BTreeMap<String, Self>),
}

impl Meaning {
    /// None for what is invalid, names a member twice, or is nested too deep.
    fn of(text: &[u8], depth: usize) -> Option<Self> {
        let text = str::from_utf8(text).ok()?;
        let raw: &RawValue = serde_json::from_str(text).ok()?;
        let text = raw.get().trim_matches([' ', '\t', '\r', '\n']);
        match text.as_bytes().first()? {
            b'"' => Some(Self::String(serde_json::from_str(text).ok()?)),
            b'[' | b'{' if depth == DEEPEST => None,
            b'[' => {
                let items: Vec<&RawValue> = serde_json::from_str(text).ok()?;
                let items = items.into_iter().map(|item| Self::of(item.get().as_bytes(), depth + 1));
                items.collect::<Option<_>>().map(Self::Array)
            }
            b'{' => {
                let Members(members) = serde_json::from_str(text).ok()?;
                let mut object = BTreeMap::new();
                for (name, value) in members {
                    let value = Self::of(value.get().as_bytes(), depth + 1)?;
                    if object.insert(name, value).is_some() {
                        return None;
                    }
                }
                Some(Self::Object(object))
            }
            _ => Some(Self::Scalar(text.to_owned())),
        }
    }

    /// The same in another spelling, of which there are many.
    fn spell(&self, out: &mut String, seed: usize) {
        let space = ["", " ", "\n\t", "\r"][seed % 4];
        let string = |out: &mut String, text: &str| {
            out.push('"');
            for unit in text.encode_utf16() {
                out.push_str(&format!("\\u{unit:04X}"));
            }
            out.push('"');
        };
        out.push_str(space);
        match self {
            Self::Scalar(text) => out.push_str(text),
            Self::String(text) => string(out, text),
            Self::Array(items) => {
                out.push('[');
                for (n, item) in items.iter().enumerate() {
                    out.push_str(if n > 0 { "," } else { "" });
                    item.spell(out, seed / 2 + n);
                }
                out.push(']');
            }
            Self::Object(members) => {
                out.push('{');
                let mut members: Vec<_> = members.iter().collect();
                let turn = seed % members.len().max(1);
                members.rotate_left(turn);
                if seed.is_multiple_of(3) {
                    members.reverse();
                }
                for (n, (name, value)) in members.into_iter().enumerate() {
                    out.push_str(if n > 0 { "," } else { "" });
                    out.push_str(space);
                    string(out, name);
                    out.push_str(space);
                    out.push(':');
                    value.spell(out, seed / 2 + n);
                }
                out.push('}');
            }
        }
        out.push_str(space);
    }
}

/// How deep arrays and objects are nested at most.
const DEEPEST: usize = 127;

/// The members of an object as they came, also those that came twice.
struct Members<'t>(Vec<(String, &'t RawValue)>);

impl<'t> serde::Deserialize<'t> for Members<'t> {
    fn deserialize<D: serde::Deserializer<'t>>(from: D) -> Result<Self, D::Error> {
        struct Each;

        impl<'t> Visitor<'t> for Each {
            type Value = Members<'t>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'t>>(self, mut map: A) -> Result<Members<'t>, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }

        from.deserialize_map(Each)
    }
}

/// A body as it came, and a form of its pieces under two boundaries.
pub fn multipart(data: &[u8]) {
    let under = |boundary: &str, body: &[u8]| fingerprint(&format!("multipart/form-data; boundary={boundary}"), body);
    // Whatever it is, it counts as itself.
    assert_eq!(under("x", data), under("x", data));

    let parts: Vec<&[u8]> = pieces(data).collect();
    let form = |boundary: &str, parts: &[&[u8]]| {
        let mut form = Vec::new();
        for part in parts {
            form.extend_from_slice(format!("--{boundary}\r\n").as_bytes());
            form.extend_from_slice(part);
            form.extend_from_slice(b"\r\n");
        }
        form.extend_from_slice(format!("--{boundary}--\r\n").as_bytes());
        under(boundary, &form)
    };
    // A client draws a boundary that is not in what it sends.
    if [ONE, OTHER].iter().any(|boundary| data.windows(boundary.len()).any(|window| window == boundary.as_bytes())) {
        return;
    }
    let first = form(ONE, &parts);
    assert_eq!(form(OTHER, &parts), first, "the boundary does not count");
    let mut more = parts.clone();
    more.push(b"");
    assert_ne!(form(OTHER, &more), first, "one part more");
    let joined = parts.concat();
    if parts.len() > 1 {
        assert_ne!(form(OTHER, &[&joined]), first, "where a part ends counts");
    }
    let mut turned = parts.clone();
    turned.reverse();
    assert_eq!(form(OTHER, &turned) == first, turned == parts, "their order counts");
    let longer = [parts[0], b"."].concat();
    let mut changed = parts;
    changed[0] = &longer;
    assert_ne!(form(OTHER, &changed), first, "every byte counts");
}

const ONE: &str = "----One7MA4YWxk";
const OTHER: &str = "b0undary-of-another-try";
