//! What happened in an act, in the order in which it did.

use std::io::{self, Write};

use crate::event::{Event, What, Who};

/// The events of an act.
#[derive(Debug)]
pub(crate) struct Timeline {
    events: Vec<Event>,
}

impl Timeline {
    /// Puts together what each of them did, and adds what nobody told them: that their lock was over.
    pub(crate) fn of(told: [Vec<Event>; 2]) -> Self {
        let mut events: Vec<Event> =
            told.iter().flat_map(|of_one| of_one.iter().cloned().chain(ends(of_one))).collect();
        events.sort_by_key(|event| event.at);
        Self { events }
    }

    pub(crate) fn events(&self) -> &[Event] {
        &self.events
    }

    pub(crate) fn of_whom(&self, who: Who) -> impl Iterator<Item = &Event> {
        self.events.iter().filter(move |event| event.who == who)
    }

    /// Milliseconds since the first event.
    pub(crate) fn millis(&self, event: &Event) -> u64 {
        (event.at - self.events.first().map_or(event.at, |first| first.at)) / 1000
    }

    /// Writes it down, a column for each of the two.
    pub(crate) fn print(&self, out: &mut impl Write) -> io::Result<()> {
        writeln!(out, "      ms")?;
        for event in &self.events {
            let who = if event.who == Who::A { "A  " } else { "  B" };
            let line =
                format!("{:>8}  {who}  {:<46} {}", self.millis(event), event.what.done(), event.what.answer(event.who));
            writeln!(out, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

/// When a lock was over before it was given back. What counts is what its holder was told last.
fn ends(of_one: &[Event]) -> impl Iterator<Item = Event> {
    let mut until = None;
    of_one.iter().filter_map(move |event| match event.what {
        What::Took { until: end, .. } | What::Looked { until: end, .. } => {
            until = Some(end.0);
            None
        }
        What::Released { .. } => {
            let at = until.take().filter(|until| *until < event.at)?;
            Some(Event { at, who: event.who, what: What::Over })
        }
        _ => None,
    })
}
