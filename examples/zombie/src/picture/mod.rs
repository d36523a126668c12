//! The timelines as a picture: two lanes an act.

mod layout;
mod marks;

use std::fs::File;
use std::io;

use svg::Document;
use svg::node::Text;
use svg::node::element::{
    Definitions, Description, Group, Line, Pattern, Rectangle, Style, Text as TextElement, Title,
};

use self::layout::{Columns, Span};
use self::marks::Mark;
use crate::director::Played;
use crate::event::Who;

/// Draws all acts into a file.
pub(crate) fn draw(all: &[Played], file: File) -> io::Result<()> {
    let mut columns: Vec<_> = all.iter().map(|played| Columns::of(&played.timeline)).collect();
    let width = columns.iter().map(Columns::width).fold(LEAST_WIDTH, f64::max);
    columns.iter_mut().for_each(|columns| columns.stretch(width));
    let height = all.iter().fold(HEAD, |height, _| height + ACT_HEIGHT);
    let mut document = Document::new()
        .set("viewBox", (0, 0, width.ceil(), height))
        .set("width", width.ceil())
        .set("height", height)
        .set("role", "img")
        .set("font-family", "DejaVu Sans, Verdana, sans-serif")
        .set("font-size", FONT)
        .add(Title::new("A holder of a lock is stopped, another takes over, the first one wakes and writes"))
        .add(Description::new().add(Text::new("Two lanes for each act, A above and B below, time from left to right")))
        .add(Style::new(STYLE))
        .add(Definitions::new().add(hatching()))
        .add(Rectangle::new().set("width", "100%").set("height", "100%").set("fill", "#ffffff"))
        .add(legend());
    let mut top = HEAD;
    for (played, columns) in all.iter().zip(&columns) {
        document = document.add(act(played, columns, width).set("transform", format!("translate(0 {top})")));
        top += ACT_HEIGHT;
    }
    svg::write(file, &document)
}

/// What stands for what.
fn legend() -> Group {
    let mut group = Group::new().set("class", "legend").add(
        text(MARGIN, 20.0, "The order is exact; distances are not: the milliseconds are written at each step.")
            .set("class", "soft"),
    );
    let mut x = MARGIN;
    let mut entry = |sample: Group, name: &str| {
        let sample = sample.set("transform", format!("translate({} 40)", x + 12.0));
        let name_at = x + 28.0;
        x = name_at + layout::text_width(name) + 14.0;
        (sample, text(name_at, 44.0, name))
    };
    let bar = |of: Rectangle| Group::new().add(of.set("x", -12).set("width", 24));
    let samples = [
        (bar(held(-4.0)), "lock held"),
        (bar(paused(-8.0, 16.0)), "stopped"),
        (Mark::Read.draw(), "reads"),
        (Mark::Opens.draw(), "opens the fence"),
        (Mark::Writes.draw(), "write accepted"),
        (Mark::WritesLate.draw(), "accepted, though its lock is over"),
        (Mark::Refused.draw(), "write refused"),
        (Mark::Other.draw(), "other steps"),
    ];
    for (sample, name) in samples {
        let (sample, name) = entry(sample, name);
        group = group.add(sample).add(name);
    }
    group
}

fn act(played: &Played, columns: &Columns<'_>, width: f64) -> Group {
    let (act, finding) = (played.act, &played.finding);
    let sign = if finding.verdict.is_right() { "✓" } else { "✗" };
    let outcome = format!("{sign} {}: {} (should be: {})", finding.verdict, finding.found, finding.should_be);
    let class = if finding.verdict.is_right() { "right" } else { "wrong" };
    Group::new()
        .set("class", "act")
        .set("data-act", act.number())
        .add(Line::new().set("x1", MARGIN).set("x2", width - MARGIN).set("y1", 0).set("y2", 0).set("class", "rule"))
        .add(text(MARGIN, 20.0, &format!("Act {}: {}", act.number(), act.title())).set("class", "title"))
        .add(text(width - MARGIN, 20.0, &outcome).set("class", class).set("text-anchor", "end"))
        .add(lane(Who::A, columns, width))
        .add(lane(Who::B, columns, width))
}

/// From above to below: for A its steps in words, the steps, the lock; for B the other way round.
fn lane(who: Who, columns: &Columns<'_>, width: f64) -> Group {
    let (line, lock, words) = match who {
        Who::A => (80.0, 94.0, 50.0),
        Who::B => (128.0, 106.0, 150.0),
    };
    let mut group = Group::new()
        .set("class", "lane")
        .set("data-who", who.name())
        .add(text(MARGIN, line + 5.0, who.name()).set("class", "who"))
        .add(
            Line::new()
                .set("x1", layout::LEFT - 16.0)
                .set("x2", width - MARGIN)
                .set("y1", line)
                .set("y2", line)
                .set("class", "lane"),
        );
    let place = |bar: Rectangle, span: &Span| bar.set("x", span.from).set("width", span.to - span.from);
    for span in columns.held(who) {
        group = group.add(place(held(lock), &span));
    }
    for span in columns.paused(who) {
        group = group.add(place(paused(line - 9.0, 18.0), &span));
    }
    for column in columns.of_whom(who) {
        let mark = Mark::of(column.event, columns.lock_is_over(column));
        let ms = format!("{} ms", column.ms);
        group = group
            .add(mark.draw().set("class", mark.class()).set("transform", format!("translate({} {line})", column.x)))
            .add(
                text(column.x, words, &column.event.what.label(who))
                    .set("text-anchor", "middle")
                    .set("class", mark.class()),
            )
            .add(text(column.x, words + 13.0, &ms).set("text-anchor", "middle").set("class", "soft"));
    }
    group
}

fn held(y: f64) -> Rectangle {
    Rectangle::new().set("class", "held").set("y", y).set("height", 8)
}

fn paused(y: f64, height: f64) -> Rectangle {
    Rectangle::new().set("class", "paused").set("y", y).set("height", height)
}

fn hatching() -> Pattern {
    let line = Line::new().set("y2", 6).set("stroke", "#555555").set("stroke-width", 2.5);
    Pattern::new()
        .set("id", "hatching")
        .set("width", 6)
        .set("height", 6)
        .set("patternUnits", "userSpaceOnUse")
        .set("patternTransform", "rotate(45)")
        .add(Rectangle::new().set("width", 6).set("height", 6).set("fill", "#eeeeee"))
        .add(line)
}

fn text(x: f64, y: f64, content: &str) -> TextElement {
    TextElement::new(content).set("x", x).set("y", y)
}

const STYLE: &str = "\
    .rule { stroke: #cccccc } line.lane { stroke: #999999 } \
    .title, .who { font-weight: bold; font-size: 13px } .soft { fill: #666666; font-size: 9.5px } \
    .right { fill: #00664b; font-weight: bold } .wrong { fill: #a03c00; font-weight: bold } \
    text.late { fill: #a03c00; font-weight: bold } text.refused { fill: #7a1f6b; font-weight: bold } \
    .held { fill: #56b4e9; stroke: #0072b2 } .paused { fill: url(#hatching); stroke: #555555 }";

const FONT: f64 = 11.0;
const MARGIN: f64 = 16.0;
const LEAST_WIDTH: f64 = 900.0;
const HEAD: f64 = 60.0;
const ACT_HEIGHT: f64 = 178.0;
