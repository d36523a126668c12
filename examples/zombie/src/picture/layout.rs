//! Where everything stands: each event in a column of its own, in the order in which they happened.

use super::MARGIN;
use crate::event::{Event, What, Who};
use crate::timeline::Timeline;

/// An event in its place.
#[derive(Debug)]
pub(super) struct Column<'t> {
    pub(super) event: &'t Event,
    pub(super) ms: u64,
    pub(super) x: f64,
}

/// From here to there.
#[derive(Debug)]
pub(super) struct Span {
    pub(super) from: f64,
    pub(super) to: f64,
}

/// All events of an act.
#[derive(Debug)]
pub(super) struct Columns<'t>(Vec<Column<'t>>);

impl<'t> Columns<'t> {
    /// Next to each other as close as their words allow: those of the two lanes are not in each other's way.
    pub(super) fn of(timeline: &'t Timeline) -> Self {
        let mut columns: Vec<Column<'t>> = Vec::new();
        for event in timeline.events() {
            let half = half_width(event);
            let after_any = columns.last().map_or(LEFT, |last| last.x + LEAST_STEP);
            let last_of_lane = columns.iter().rev().find(|column| column.event.who == event.who);
            let after_own = last_of_lane.map_or(LEFT, |last| last.x + half_width(last.event));
            let x = after_any.max(after_own + half + GAP);
            columns.push(Column { event, ms: timeline.millis(event), x });
        }
        Self(columns)
    }

    pub(super) fn width(&self) -> f64 {
        self.0.iter().map(|column| column.x + half_width(column.event) + MARGIN).fold(0.0, f64::max)
    }

    /// Makes use of the room there is, within reason.
    pub(super) fn stretch(&mut self, width: f64) {
        let (room, need) = (width - LEFT - MARGIN, self.width() - LEFT - MARGIN);
        let factor = (room / need).clamp(1.0, MOST_STRETCHED);
        for column in &mut self.0 {
            column.x = LEFT + (column.x - LEFT) * factor;
        }
    }

    pub(super) fn of_whom(&self, who: Who) -> impl Iterator<Item = &Column<'t>> {
        self.0.iter().filter(move |column| column.event.who == who)
    }

    /// When the lock was somebody's, as the store sees it: also until somebody else deleted it.
    pub(super) fn held(&self, who: Who) -> Vec<Span> {
        let begins = |event: &Event| event.who == who && matches!(event.what, What::Took { .. });
        let over = |event: &Event| event.who == who && event.what == What::Over;
        self.spans(begins, |event| over(event) || event.what == What::Released { owner: Some(who) })
    }

    /// When somebody stood still.
    pub(super) fn paused(&self, who: Who) -> Vec<Span> {
        let is = |event: &Event, what: fn(&What) -> bool| event.who == who && what(&event.what);
        self.spans(
            |event| is(event, |what| *what == What::Stopped),
            |event| is(event, |what| matches!(what, What::Woke { .. })),
        )
    }

    /// Whether whoever did this had lost its lock before.
    pub(super) fn lock_is_over(&self, column: &Column<'_>) -> bool {
        let before = self.of_whom(column.event.who).take_while(|other| other.event.at < column.event.at);
        before.fold(false, |over, other| match other.event.what {
            What::Over => true,
            What::Took { .. } => false,
            _ => over,
        })
    }

    fn spans(&self, begins: impl Fn(&Event) -> bool, ends: impl Fn(&Event) -> bool) -> Vec<Span> {
        let mut from = None;
        let mut spans = Vec::new();
        for column in &self.0 {
            if begins(column.event) {
                from = Some(column.x);
            } else if ends(column.event) {
                spans.extend(from.take().map(|from| Span { from, to: column.x }));
            }
        }
        spans
    }
}

fn half_width(event: &Event) -> f64 {
    text_width(&event.what.label(event.who)).max(LEAST_WORDS) / 2.0
}

/// About, in a font that is rather wide.
pub(super) fn text_width(text: &str) -> f64 {
    text.chars().map(|_| 6.3).sum()
}

/// Where the lanes begin.
pub(super) const LEFT: f64 = 48.0;
const LEAST_STEP: f64 = 14.0;
const LEAST_WORDS: f64 = 40.0;
const GAP: f64 = 8.0;
const MOST_STRETCHED: f64 = 1.5;
