//! What one key did under every window, in few words.

use crate::result::Anchor;

/// Neighbouring windows under which a key has the same history. Windows are many and histories few: those longer than the time that a
/// key has been seen for share one, and so do those between two of its gaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    /// What the window counts from.
    pub(crate) anchor: i64,
    /// How often it ran again.
    pub(crate) escapes: u32,
    /// The first window of the grid that is not part of the run.
    pub(crate) end: u8,
}

/// Carries the history of a key on by one arrival at `time`, which would be complete at `completed`. Writes the new runs behind those
/// in `after`, and says under which windows it ran, a bit each.
pub(crate) fn arrive(
    before: &[Run],
    after: &mut Vec<Run>,
    anchor: Anchor,
    windows: &[i64],
    time: i64,
    completed: i64,
) -> u64 {
    let (first, mut begin, mut ran) = (after.len(), 0u8, 0u64);
    let starts = match anchor {
        Anchor::Completion => completed,
        Anchor::Arrival | Anchor::Renewed => time,
    };
    for run in before {
        // Windows grow, so those that it escapes are the first of the run.
        let part = &windows[usize::from(begin)..usize::from(run.end)];
        let escaped = begin + part.partition_point(|window| time - run.anchor > *window) as u8;
        if escaped > begin {
            ran |= bits(begin, escaped);
            push(after, first, Run { anchor: starts, escapes: run.escapes.saturating_add(1), end: escaped });
        }
        if escaped < run.end {
            let kept = if anchor == Anchor::Renewed { time } else { run.anchor };
            push(after, first, Run { anchor: kept, escapes: run.escapes, end: run.end });
        }
        begin = run.end;
    }
    ran
}

fn push(after: &mut Vec<Run>, first: usize, run: Run) {
    match after[first..].last_mut() {
        Some(last) if (last.anchor, last.escapes) == (run.anchor, run.escapes) => last.end = run.end,
        _ => after.push(run),
    }
}

/// The windows from `begin` to before `end`.
pub(crate) fn bits(begin: u8, end: u8) -> u64 {
    let below = |n: u8| if n >= 64 { u64::MAX } else { (1 << n) - 1 };
    below(end) & !below(begin)
}
