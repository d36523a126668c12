use proptest::prelude::*;

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
    let forms: &[&[&str]] = &[&[], &[""], &["", ""], &[A], &[B], &[A, B], &[B, A], &[A, A], &["a", "bc"], &["ab", "c"]];
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
