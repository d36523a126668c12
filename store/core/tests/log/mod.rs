//! What is logged on this thread.

#![allow(dead_code, reason = "not every test needs all of it")]

use std::fmt;
use std::sync::{Arc, Mutex};

use tracing::field::{Field, Visit};
use tracing::subscriber::DefaultGuard;
use tracing::{Dispatch, Event, Level, Metadata, Subscriber, span};

/// Writes down every span and event with all of its fields, and of an error also its sources.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Written>>);

#[derive(Default)]
struct Written {
    events: Vec<(Level, String)>,
    spans: String,
}

/// Until it is dropped, the log is written.
pub(crate) struct Writing {
    _here: DefaultGuard,
    /// With a single subscriber in the process, an event that another thread comes to first is switched off for all.
    _second: Dispatch,
}

impl Log {
    pub(crate) fn begin() -> (Self, Writing) {
        let log = Self::default();
        let second = Dispatch::new(Self::default());
        (log.clone(), Writing { _here: tracing::subscriber::set_default(log), _second: second })
    }

    /// The events of this level, each with all its fields.
    pub(crate) fn at(&self, level: Level) -> Vec<String> {
        let written = self.0.lock().unwrap();
        written.events.iter().filter(|(found, _)| *found == level).map(|(_, text)| text.clone()).collect()
    }

    /// All of it.
    pub(crate) fn text(&self) -> String {
        let written = self.0.lock().unwrap();
        written.events.iter().fold(written.spans.clone(), |text, (_, event)| text + "\n" + event)
    }
}

impl Subscriber for Log {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, span: &span::Attributes<'_>) -> span::Id {
        let mut text = Text::default();
        span.record(&mut text);
        self.0.lock().unwrap().spans += &text.0;
        span::Id::from_u64(1)
    }
    fn record(&self, _: &span::Id, values: &span::Record<'_>) {
        let mut text = Text::default();
        values.record(&mut text);
        self.0.lock().unwrap().spans += &text.0;
    }
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn event(&self, event: &Event<'_>) {
        let mut text = Text::default();
        event.record(&mut text);
        self.0.lock().unwrap().events.push((*event.metadata().level(), text.0));
    }
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

#[derive(Default)]
struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0 += &format!("{field}={value:?} ");
    }
    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        let mut next = Some(value);
        while let Some(error) = next {
            self.record_debug(field, &format!("{error} {error:?}"));
            next = error.source();
        }
    }
}
