//! Marks that differ in shape, so that nobody needs the colours.

use svg::node::element::path::Data;
use svg::node::element::{Circle, Group, Path, Rectangle};

use crate::event::{Event, What};

/// A kind of step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    Read,
    Opens,
    Writes,
    WritesLate,
    Refused,
    Other,
}

impl Mark {
    pub(super) const fn of(event: &Event, lock_is_over: bool) -> Self {
        match event.what {
            What::Read { .. } | What::Counted { .. } => Self::Read,
            What::Opened { .. } => Self::Opens,
            What::Charged | What::Wrote { .. } if lock_is_over => Self::WritesLate,
            What::Charged | What::Wrote { .. } => Self::Writes,
            What::Refused { .. } | What::ChargedAlready => Self::Refused,
            _ => Self::Other,
        }
    }

    /// Around 0, 0.
    pub(super) fn draw(self) -> Group {
        let group = Group::new();
        match self {
            Self::Read => group.add(circle(5.0).set("fill", "#ffffff").set("stroke", INK).set("stroke-width", 1.5)),
            Self::Opens => group.add(diamond()),
            Self::Writes => group.add(circle(6.0).set("fill", GREEN)),
            Self::WritesLate => group
                .add(circle(9.0).set("fill", "#ffffff").set("stroke", ORANGE).set("stroke-width", 2))
                .add(circle(5.5).set("fill", ORANGE)),
            Self::Refused => group.add(square()).add(cross()),
            Self::Other => group.add(circle(2.5).set("fill", INK)),
        }
    }

    /// What it and its words are called in the picture.
    pub(super) const fn class(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Opens => "opens",
            Self::Writes => "write",
            Self::WritesLate => "late",
            Self::Refused => "refused",
            Self::Other => "step",
        }
    }
}

fn circle(radius: f64) -> Circle {
    Circle::new().set("r", radius)
}

fn diamond() -> Path {
    let data = Data::new().move_to((0, -8)).line_to((8, 0)).line_to((0, 8)).line_to((-8, 0)).close();
    Path::new().set("d", data).set("fill", "#ffffff").set("stroke", INK).set("stroke-width", 1.5)
}

fn square() -> Rectangle {
    let square = Rectangle::new().set("x", -8).set("y", -8).set("width", 16).set("height", 16);
    square.set("fill", "#ffffff").set("stroke", PURPLE).set("stroke-width", 1.5)
}

fn cross() -> Path {
    let data = Data::new().move_to((-5, -5)).line_to((5, 5)).move_to((-5, 5)).line_to((5, -5));
    Path::new().set("d", data).set("stroke", PURPLE).set("stroke-width", 2.5)
}

const INK: &str = "#333333";
const GREEN: &str = "#009e73";
const ORANGE: &str = "#d55e00";
const PURPLE: &str = "#7a1f6b";
