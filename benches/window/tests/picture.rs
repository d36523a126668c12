//! The picture's points against the table, as both are written.
#![allow(clippy::unwrap_used, reason = "a test fails loudly")]

use std::collections::HashMap;

use idempotency_window::bytes::Weights;
use idempotency_window::generate::{Mixture, TakeError};
use idempotency_window::{Anchor, Measured, Pass, Settings, plot, report};

/// An element of an SVG: its attributes, and the text in it.
struct Element {
    attributes: HashMap<String, String>,
    text: String,
}

impl Element {
    /// All elements of this name. The library writes one attribute after the other, with double quotes.
    fn all(svg: &str, name: &str) -> Vec<Self> {
        let begin = format!("<{name} ");
        let begins = svg.split(begin.as_str()).skip(1);
        let element = |begin: &str| {
            let (inside, rest) = begin.split_once('>').unwrap();
            let pairs = inside.trim_end_matches('/').split("\" ").filter_map(|pair| pair.split_once("=\""));
            let attributes =
                pairs.map(|(name, value)| (name.trim().to_owned(), value.trim_end_matches('"').to_owned()));
            let text = rest.split('<').next().unwrap().trim().to_owned();
            Self { attributes: attributes.collect(), text }
        };
        begins.map(element).collect()
    }

    fn number(&self, name: &str) -> f64 {
        self.attributes[name].parse().unwrap()
    }
}

/// An axis, as its marks say: where the logarithm of a value is.
struct Axis {
    first: (f64, f64),
    last: (f64, f64),
}

impl Axis {
    fn new(mut marks: Vec<(f64, f64)>) -> Self {
        marks.sort_by(|one, other| one.0.total_cmp(&other.0));
        let axis = Self { first: marks[0], last: marks[marks.len() - 1] };
        for (value, place) in marks {
            assert!((axis.place(value) - place).abs() <= 1.5, "a mark of {value} at {place}");
        }
        axis
    }

    fn place(&self, value: f64) -> f64 {
        let ((low, from), (high, to)) = (self.first, self.last);
        from + (to - from) * (value / low).ln() / (high / low).ln()
    }
}

fn small() -> Measured {
    let mixture = Mixture { rate: 0.02, loss: 0.2, ..Mixture::default() };
    let settings = Settings { weights: Weights::measured().unwrap(), ..Settings::default() };
    let mut pass = Pass::new(settings);
    mixture.arrivals::<TakeError>(|arrival| Ok(pass.add(arrival)?)).unwrap();
    pass.finish().unwrap()
}

#[test]
fn the_points_of_the_picture_are_those_of_the_table() {
    let measured = small();
    let svg = plot::draw(&measured, Anchor::Completion, Some(86_400_000_000)).unwrap();
    check(&svg, &report::csv(&measured).unwrap());
}

#[test]
fn the_example_that_is_kept_shows_its_table() {
    check(include_str!("../example.svg"), include_str!("../example.csv"));
}

fn check(svg: &str, csv: &str) {
    let mut reader = csv::Reader::from_reader(csv.as_bytes());
    let header = reader.headers().unwrap().clone();
    let rows: Vec<HashMap<String, String>> = reader
        .records()
        .map(|row| header.iter().map(str::to_owned).zip(row.unwrap().iter().map(str::to_owned)).collect())
        .collect();
    let texts = Element::all(svg, "text");
    // Marks of windows stand below the axis, in the middle; marks of values stand left of theirs, at its end. A panel is half the height.
    let marks = |upper: bool, anchor: &str, name: &str, value: &dyn Fn(&str) -> Option<f64>| {
        let here =
            texts.iter().filter(|text| text.attributes["text-anchor"] == anchor && (text.number("y") < 600.0) == upper);
        here.filter_map(|text| value(&text.text).map(|value| (value, text.number(name)))).collect::<Vec<_>>()
    };
    let circles = Element::all(svg, "circle");
    let stores: Vec<&str> = header.iter().filter_map(|column| column.strip_suffix(" peak bytes")).collect();
    let rates =
        [("arrival", "per_million"), ("completion", "per_million"), ("renewed", "per_million"), ("completion", "high")];
    let colours = ["#1F77B4", "#D62728", "#2CA02C", "#969696"];
    let bytes: Vec<String> = stores.iter().map(|store| format!("{store} peak bytes")).collect();
    let store_colours = ["#9467BD", "#8C564B", "#17BECF", "#FF7F0E", "#BCBD22"];
    let mut points = 0;
    for (upper, lines) in [
        (true, rates.into_iter().zip(colours).collect::<Vec<_>>()),
        (false, bytes.iter().map(|column| ("completion", column.as_str())).zip(store_colours).collect()),
    ] {
        let across = Axis::new(marks(upper, "middle", "x", &seconds));
        let up = Axis::new(marks(upper, "end", "y", &if upper { plain } else { with_unit }));
        for ((anchor, column), colour) in lines {
            let value = |row: &HashMap<String, String>| row[column].parse::<f64>().ok().filter(|value| *value > 0.0);
            let rows = rows.iter().filter(|row| row["anchor"] == anchor && row["judged"] == "yes");
            let expected: Vec<(f64, f64)> = rows
                .filter_map(|row| {
                    value(row).map(|value| (across.place(row["window_s"].parse().unwrap()), up.place(value)))
                })
                .collect();
            let drawn: Vec<&Element> = circles
                .iter()
                .filter(|circle| circle.attributes["fill"] == colour && (circle.number("cy") < 600.0) == upper)
                .collect();
            assert_eq!(drawn.len(), expected.len(), "{anchor} {column}");
            for (circle, (x, y)) in drawn.iter().zip(&expected) {
                let (cx, cy) = (circle.number("cx"), circle.number("cy"));
                assert!(
                    (cx - x).abs() <= 2.0 && (cy - y).abs() <= 2.0,
                    "{anchor} {column}: ({cx}, {cy}), not ({x}, {y})"
                );
            }
            points += expected.len();
        }
    }
    assert!(points > 250, "{points}");
}

/// `1h`, `30d`.
fn seconds(text: &str) -> Option<f64> {
    humantime::parse_duration(text).ok().map(|duration| duration.as_secs_f64())
}

fn plain(text: &str) -> Option<f64> {
    text.parse().ok()
}

/// `10 kB`.
fn with_unit(text: &str) -> Option<f64> {
    Some(text.parse::<bytesize::ByteSize>().ok()?.as_u64() as f64)
}
