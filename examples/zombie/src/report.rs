//! What is printed.

use std::io::{self, Write};

use crate::act::Act;
use crate::director::Played;

/// Before an act.
pub(crate) fn announce(out: &mut impl Write, act: Act) -> io::Result<()> {
    writeln!(out, "Act {}: {}", act.number(), act.title())?;
    out.flush()
}

/// After an act.
pub(crate) fn tell(out: &mut impl Write, played: &Played) -> io::Result<()> {
    played.timeline.print(out)?;
    let finding = &played.finding;
    writeln!(out, "   => in the data: {}; should be: {}: {}", finding.found, finding.should_be, finding.verdict)?;
    for what in &finding.missing {
        writeln!(out, "   !! not shown: {what}")?;
    }
    writeln!(out)
}

/// After all acts.
pub(crate) fn table(out: &mut impl Write, all: &[Played]) -> io::Result<()> {
    let mut rows = vec![["act", "protected by", "in the data", "should be", "verdict", "shown"].map(str::to_owned)];
    rows.extend(all.iter().map(|Played { act, finding, .. }| {
        let shown = if finding.is_as_it_must() { "as it must" } else { "NOT AS IT MUST" };
        let [found, should_be] = [finding.found.clone(), finding.should_be.clone()];
        [act.number().to_string(), act.protection().into(), found, should_be, finding.verdict.to_string(), shown.into()]
    }));
    let widths: [usize; 6] =
        std::array::from_fn(|column| rows.iter().map(|row| row[column].len()).max().unwrap_or_default());
    for row in rows {
        let cells: Vec<_> = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        writeln!(out, "{}", cells.join("  ").trim_end())?;
    }
    let shown = all.iter().filter(|played| played.finding.is_as_it_must()).count();
    writeln!(out, "\n{shown} of {} acts show what they must", all.len())
}
