//! What was found, as a table to be read and as CSV.

use std::fmt::Write as _;

use crate::recommend::{Advice, Need, Target, longest_that_fits};
use crate::result::{Anchor, Measured, Memory, Rate, Tally};

/// Everything for a reader: what the trace is, what is recommended, each window, each route and scope.
#[must_use]
pub fn text(measured: &Measured, target: &Target) -> String {
    let mut text = String::new();
    about(&mut text, measured);
    recommendation(&mut text, measured, target);
    table(&mut text, measured, target.anchor);
    parts(&mut text, measured, target);
    text
}

/// Each window under each anchor, a line each.
///
/// # Errors
/// When it cannot be written, which memory can.
pub fn csv(measured: &Measured) -> Result<String, csv::Error> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    let mut header: Vec<String> = COLUMNS.iter().map(|column| (*column).to_owned()).collect();
    header.extend(
        measured.stores.iter().flat_map(|store| [format!("{store} mean bytes"), format!("{store} peak bytes")]),
    );
    writer.write_record(&header)?;
    for window in &measured.windows {
        for anchor in Anchor::ALL {
            let tally = window.of(anchor);
            let Rate { rate, low, high } = tally.judged.rate();
            let judged = if window.is_judged() { "yes" } else { "no" };
            let mut line = vec![seconds(window.length), judged.to_owned(), anchor.as_str().to_owned()];
            line.extend([tally.judged.operations, tally.judged.escapes].map(|count| count.to_string()));
            line.push(figure(tally.judged.weighed));
            line.extend(
                [rate, low, high].map(|rate| if window.is_judged() { figure(rate * 1e6) } else { String::new() }),
            );
            line.extend([tally.all.operations, tally.all.escapes, tally.all.keys].map(|count| count.to_string()));
            match &tally.memory {
                None => line.resize(header.len(), String::new()),
                Some(Memory { mean_records, peak_records, mean_bytes, peak_bytes }) => {
                    line.extend([figure(*mean_records), figure(*peak_records)]);
                    line.extend(mean_bytes.iter().zip(peak_bytes).flat_map(|(mean, peak)| [*mean, *peak]).map(figure));
                }
            }
            writer.write_record(&line)?;
        }
    }
    finished(writer)
}

/// Each judged window with each capacity, a line each: what an LRU bound costs.
///
/// # Errors
/// As [`csv()`].
pub fn capacity_csv(measured: &Measured) -> Result<String, csv::Error> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    let header = ["window_s", "capacity", "escapes", "per_million", "low", "high"];
    writer.write_record(header)?;
    for number in 0..measured.judged().len() {
        for (place, capacity) in measured.capacity.capacities.bounds().iter().enumerate() {
            let (escapes, Rate { rate, low, high }) = bounded(measured, number, place);
            let mut line = vec![seconds(measured.windows[number].length), capacity.to_string(), escapes.to_string()];
            line.extend([rate, low, high].map(|rate| figure(rate * 1e6)));
            writer.write_record(&line)?;
        }
    }
    finished(writer)
}

/// The columns before those of the stores.
const COLUMNS: [&str; 14] = [
    "window_s",
    "judged",
    "anchor",
    "operations",
    "escapes",
    "weighed_escapes",
    "per_million",
    "low",
    "high",
    "all_operations",
    "all_escapes",
    "all_keys_run_twice",
    "mean_records",
    "peak_records",
];

fn about(text: &mut String, measured: &Measured) {
    let Measured { arrivals, operations, span: (begin, _), silence, sample, windows, .. } = measured;
    let length = measured.length();
    let again = arrivals - operations;
    let _ = writeln!(text, "## The trace\n");
    let _ = writeln!(text, "{arrivals} arrivals of {operations} keys in {}; {again} came again.", span(length));
    if *sample < 1.0 {
        let _ = writeln!(text, "One key in {:.1} was looked at; records and bytes are scaled up.", 1.0 / sample);
    }
    let judged = measured.judged().len();
    let _ = writeln!(
        text,
        "{judged} of {} windows are judged: those up to a third of the trace. What comes after its end is not seen, so nothing is \
         said about longer ones, and a late duplicate counts for as many keys as there are for each that came early enough to show one so \
         late. Of one that comes later after its key than any key had room for, nothing is known.",
        windows.len()
    );
    if measured.refused > 0 {
        let _ = writeln!(
            text,
            "{} keys came first in an arrival that neither took time nor recorded anything. It counts as their first run, although it \
             may have been refused; `--skip-unrecorded` leaves such arrivals out.",
            measured.refused
        );
    }
    // As long as half of what is judged by it, or so long that at this rate it is no accident.
    let unlikely = length / (*arrivals).cast_signed().max(1) * 30;
    if silence.0 > unlikely.max(60_000_000) {
        let _ = writeln!(
            text,
            "Nothing came for {}, from {} after the begin. If that is a hole in the trace and not in the traffic, duplicates are \
             missing around it.",
            span(silence.0),
            span(silence.1 - begin)
        );
    }
    text.push('\n');
}

fn recommendation(text: &mut String, measured: &Measured, target: &Target) {
    let _ = writeln!(text, "## Recommended\n");
    let advice = Advice::of(measured, target.anchor, target.rate);
    let million = target.rate * 1e6;
    match advice.window {
        Some(window) => {
            let length = span(measured.windows[window].length);
            let _ = writeln!(
                text,
                "A window of **{length}** (counted from {}) is the smallest of the grid with at most {million} double runs per million \
                 operations.",
                anchor_words(target.anchor)
            );
            let of = |number: usize| measured.windows[number].of(target.anchor);
            // A longer window does no worse, even if fewer operations judge it: the best bound of all up to it holds for it. What all keys show
            // holds as well.
            let best = |high: &dyn Fn(usize) -> f64| (0..=window).map(high).fold(f64::NAN, f64::min);
            let high = best(&|number| of(number).judged.rate().high).max(best(&|number| of(number).all.rate().high));
            let rate = of(window).judged.rate().rate;
            let _ = writeln!(
                text,
                "Seen: {} per million, at most {}, of duplicates as late as keys had room to show.",
                figure(rate * 1e6),
                figure(high * 1e6)
            );
            all_keys(text, of(window));
            if advice.together.window() != Some(window) {
                let named: Vec<&str> = advice.deciding().take(3).collect();
                let _ = writeln!(text, "All together would need less; the largest need decides: {}.", named.join("; "));
            }
            memory(text, measured, target, window);
        }
        None => none(text, measured, target, &advice),
    }
    text.push('\n');
}

/// What those keys add that do not judge the window, where that is more.
fn all_keys(text: &mut String, Tally { all, judged, .. }: &Tally) {
    let rate = all.rate().rate;
    if all.escapes > 0 && (judged.operations == 0 || rate > judged.rate().rate) {
        let _ = writeln!(
            text,
            "All keys, also those too near an end of the trace to judge it, show more: {} double runs of {} operations, {} per million.",
            all.escapes,
            all.operations,
            figure(rate * 1e6)
        );
    }
}

/// Whether the window fits, in which stores, and what helps where it does not.
fn memory(text: &mut String, measured: &Measured, target: &Target, window: usize) {
    let Some(found) = &measured.windows[window].of(target.anchor).memory else { return };
    let held = found.peak_records;
    let _ = writeln!(text, "At the worst moment it holds {held:.0} records, on average {:.0}.", found.mean_records);
    for (store, name) in measured.stores.iter().enumerate() {
        let (mean, peak) = (found.mean_bytes[store], found.peak_bytes[store]);
        let verdict = match target.memory {
            Some(budget) if peak > budget as f64 => ": **more than the budget**",
            Some(_) => ": fits the budget",
            None => "",
        };
        let _ = writeln!(text, "- {name}: {} at the worst moment, {} on average{verdict}", weight(peak), weight(mean));
    }
    let Some(budget) = target.memory else { return };
    if found.peak_bytes.iter().all(|peak| *peak <= budget as f64) {
        return;
    }
    let _ = writeln!(text, "\nWhere it does not fit {}:", weight(budget as f64));
    renewed(text, measured, target);
    if measured.windows[window].length > measured.response {
        let kept = span(measured.response);
        let _ = writeln!(
            text,
            "- Tombstones: keep bodies for less than {kept} (`--response`), and only the fact of execution for the window."
        );
    } else {
        let _ = writeln!(
            text,
            "- Tombstones: keep bodies for less than the window (`--response`), and only the fact of execution for all of it."
        );
    }
    ages(text, measured, target);
}

/// Why no window is enough, and what would be.
fn none(text: &mut String, measured: &Measured, target: &Target, advice: &Advice) {
    let million = target.rate * 1e6;
    let Some(longest) = measured.judged().last() else {
        let shortest = measured.windows.first().map_or(0, |window| window.length);
        let _ = writeln!(
            text,
            "**None can be**: the trace is {} long, and not even {} is a third of it. Trace for longer, or set shorter windows.",
            span(measured.length()),
            span(shortest)
        );
        return;
    };
    let length = span(longest.length);
    let tally = longest.of(target.anchor);
    let count = tally.judged;
    let _ = writeln!(
        text,
        "**No window up to {length}** (counted from {}) is shown to have at most {million} double runs per million operations.",
        anchor_words(target.anchor)
    );
    let Rate { rate, high, .. } = count.rate();
    let _ = match count.operations {
        0 => writeln!(
            text,
            "Nothing judges {length}: no key was first seen between so long after the begin and so long before the end."
        ),
        operations => writeln!(
            text,
            "At {length}: {} escapes of {operations} operations, {} per million, at most {}.",
            count.escapes,
            figure(rate * 1e6),
            figure(high * 1e6)
        ),
    };
    all_keys(text, tally);
    let few = measured.judged().iter().all(|window| {
        let none = crate::Count { operations: window.of(target.anchor).judged.operations, ..crate::Count::default() };
        none.operations == 0 || none.rate().high > target.rate
    });
    let _ = writeln!(text, "\nWhat would close it:");
    if few {
        let _ = writeln!(
            text,
            "- A larger trace: even without any escape, {million} per million takes {:.0} operations to be shown (3.69 over the \
             target), first seen between one window after its begin and one before its end.",
            3.69 / target.rate
        );
    }
    if let (Some(window), Need::Seen(_), true) = (advice.largest, advice.together, few) {
        let _ = writeln!(text, "  As far as it shows, {} would be enough.", span(measured.windows[window].length));
    }
    if matches!(advice.together, Need::Shown(_)) {
        let longer: Vec<&str> = advice
            .parts
            .iter()
            .filter(|(_, need)| *need == Need::Longer)
            .map(|(name, _)| name.as_str())
            .take(5)
            .collect();
        let _ = writeln!(
            text,
            "- A longer window for those that need it: {}. All together would need less.",
            longer.join("; ")
        );
    }
    renewed(text, measured, target);
    if matches!(advice.together, Need::Longer) {
        let _ = writeln!(text, "- A longer window, judged by a trace three times as long.");
    }
    ages(text, measured, target);
}

/// Whether hits that renew would do with less.
fn renewed(text: &mut String, measured: &Measured, target: &Target) {
    if target.anchor == Anchor::Renewed {
        return;
    }
    let own = Advice::of(measured, target.anchor, target.rate);
    let renewed = Advice::of(measured, Anchor::Renewed, target.rate);
    match (own.largest, renewed.largest) {
        (own, Some(window)) if own.is_none_or(|own| window < own) => {
            let peak = measured.windows[window].of(Anchor::Renewed).memory.as_ref();
            let peak = peak.map_or(0.0, |memory| memory.peak_records);
            let length = span(measured.windows[window].length);
            let enough = if renewed.window.is_some() { "is enough" } else { "would be enough as far as was seen" };
            let _ = writeln!(
                text,
                "- Renewing: when hits renew the tombstone, {length} {enough}, with {peak:.0} records at worst."
            );
        }
        // Both need more than any judged window, how much is unknown; or the shortest is enough.
        (None, None) | (Some(0), _) => {}
        _ => {
            let _ = writeln!(
                text,
                "- Renewing the tombstone on hits does not help here: late duplicates come without earlier ones between."
            );
        }
    }
}

/// What refuses instead of forgetting, with what that costs.
fn ages(text: &mut String, measured: &Measured, target: &Target) {
    let _ = writeln!(
        text,
        "- Time-ordered keys (UUIDv7, ULID) with an age limit: a duplicate that comes after the window is refused and never run, at any \
         window."
    );
    for (store, name) in measured.stores.iter().enumerate() {
        let Some(budget) = target.memory else { break };
        match longest_that_fits(measured, target.anchor, store, budget) {
            Some(window) => {
                let (length, tally) = (measured.windows[window].length, measured.windows[window].of(target.anchor));
                let count = if tally.judged.operations == 0 { tally.all } else { tally.judged };
                let refused = figure(count.rate().rate * 1e6);
                let _ = writeln!(text, "  {name}: {} fits; {refused} refusals per million operations.", span(length));
            }
            None => {
                let _ = writeln!(text, "  {name}: not even the shortest window fits.");
            }
        }
    }
    let _ = writeln!(
        text,
        "- Between services of one's own: sequence numbers with acknowledgements, which need no window."
    );
}

fn table(text: &mut String, measured: &Measured, anchor: Anchor) {
    let _ = writeln!(text, "## Windows\n");
    let _ = writeln!(
        text,
        "Double runs per million operations with their 95% bounds (exact for Poisson counts, widened where one key escapes often or stands \
         for others), by \
         what the window counts from. Records and bytes are of windows counted from {}.\n",
        anchor_words(anchor)
    );
    let stores: String = measured.stores.iter().map(|store| format!(" {store}, peak |")).collect();
    let rule = "---|".repeat(6 + measured.stores.len());
    let _ = writeln!(text, "| window | arrival | completion | renewed | records, mean | peak |{stores}\n|{rule}");
    for window in measured.judged() {
        let _ = write!(text, "| {} |", span(window.length));
        for anchor in Anchor::ALL {
            let judged = window.of(anchor).judged;
            if judged.operations == 0 {
                let _ = write!(text, " not seen |");
                continue;
            }
            let Rate { rate, low, high } = judged.rate();
            let [rate, low, high] = [rate, low, high].map(|rate| figure(rate * 1e6));
            let _ = write!(text, " {rate} ({low} to {high}) |");
        }
        if let Some(memory) = &window.of(anchor).memory {
            let _ = write!(text, " {:.0} | {:.0} |", memory.mean_records, memory.peak_records);
            memory.peak_bytes.iter().for_each(|bytes| _ = write!(text, " {} |", weight(*bytes)));
        }
        text.push('\n');
    }
    if let Some(last) = measured.judged().len().checked_sub(1) {
        let length = span(measured.windows[last].length);
        let _ = writeln!(
            text,
            "\nAn LRU bound on the number of records, with renewed windows of {length} (the stores here refuse when they are full, and \
             never evict):\n\n| records | double runs per million |\n|---|---|"
        );
        for (place, capacity) in measured.capacity.capacities.bounds().iter().enumerate() {
            let (escapes, Rate { rate, low, high }) = bounded(measured, last, place);
            let [rate, low, high] = [rate, low, high].map(|rate| figure(rate * 1e6));
            let _ = writeln!(text, "| {capacity} | {rate} ({low} to {high}) |");
            // Larger ones do no better.
            if escapes == measured.capacity.escapes(last, measured.capacity.capacities.count() - 1) {
                break;
            }
        }
    }
    text.push('\n');
}

fn parts(text: &mut String, measured: &Measured, target: &Target) {
    let advice = Advice::of(measured, target.anchor, target.rate);
    let _ = writeln!(text, "## Routes and scopes\n\nThe largest need decides.\n\n| who | needs |\n|---|---|");
    let need = |need: Need| match need {
        Need::Shown(window) => span(measured.windows[window].length),
        Need::Seen(window) => format!("{}, as far as so few operations show", span(measured.windows[window].length)),
        Need::Longer => "longer than any judged".to_owned(),
        Need::Unknown => "not judged".to_owned(),
    };
    let _ = writeln!(text, "| all together | {} |", need(advice.together));
    for (name, found) in advice.parts.iter().take(MOST_PARTS) {
        let _ = writeln!(text, "| {name} | {} |", need(*found));
    }
    if advice.parts.len() > MOST_PARTS {
        let _ = writeln!(text, "\nMore routes and scopes, which need no more than the last of these, are left out.");
    }
}

/// How many routes and scopes are listed.
const MOST_PARTS: usize = 40;

/// Escapes under a window and a capacity. How much they come together is taken from all gaps, since it is not counted by
/// capacity.
fn bounded(measured: &Measured, window: usize, capacity: usize) -> (u64, Rate) {
    let escapes = measured.capacity.escapes(window, capacity);
    let widest = measured.windows[0].of(Anchor::Renewed).all;
    let squares = match widest.escapes {
        0 => escapes as f64,
        all => escapes as f64 * widest.squares / all as f64,
    };
    let weighed = escapes as f64;
    (escapes, crate::Count { operations: measured.operations, escapes, keys: 0, weighed, squares }.rate())
}

const fn anchor_words(anchor: Anchor) -> &'static str {
    match anchor {
        Anchor::Arrival => "the arrival that ran",
        Anchor::Completion => "completion",
        Anchor::Renewed => "the last hit",
    }
}

/// A length of time with the two largest of its units.
pub(crate) fn span(micros: i64) -> String {
    if micros < 1_000_000 {
        return format!("{:.3}s", micros as f64 / 1e6);
    }
    let seconds = micros / 1_000_000;
    let units = [("d", 86_400), ("h", 3600), ("m", 60), ("s", 1)];
    let mut left = seconds;
    let mut parts = Vec::new();
    for (name, unit) in units {
        if left >= unit {
            parts.push(format!("{}{name}", left / unit));
            left %= unit;
        } else if !parts.is_empty() {
            break;
        }
        if parts.len() == 2 {
            break;
        }
    }
    parts.join(" ")
}

/// Bytes with a unit.
pub(crate) fn weight(bytes: f64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let power = (bytes.max(1.0).log2() / 10.0).floor().min(5.0);
    let digits = usize::from(power > 0.0);
    format!("{:.digits$} {}", bytes / 1024f64.powf(power), units[power as usize])
}

/// Four digits are more than any of these is sure of.
fn figure(value: f64) -> String {
    match value {
        0.0 => "0".to_owned(),
        value if value.is_nan() => String::new(),
        value if value.abs() >= 1000.0 => format!("{value:.0}"),
        value => {
            let digits = (3 - value.abs().log10().floor() as i32).clamp(0, 12) as usize;
            let text = format!("{value:.digits$}");
            text.trim_end_matches('0').trim_end_matches('.').to_owned()
        }
    }
}

fn seconds(micros: i64) -> String {
    format!("{}", micros as f64 / 1e6)
}

fn finished(writer: csv::Writer<Vec<u8>>) -> Result<String, csv::Error> {
    let bytes = writer.into_inner().map_err(|error| error.into_error())?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_short_and_right() {
        let figures = [(0.0, "0"), (1.0, "1"), (0.000_123_456, "0.0001235"), (12.3456, "12.35"), (123_456.7, "123457")];
        for (value, shown) in figures {
            assert_eq!(figure(value), shown);
        }
        let spans = [(500, "0.001s"), (60_000_000, "1m"), (99_300_000_000, "1d 3h"), (86_400_000_000, "1d")];
        for (micros, shown) in spans {
            assert_eq!(span(micros), shown);
        }
        assert_eq!([weight(900.0), weight(2048.0), weight(3.5e9)], ["900 B", "2.0 KiB", "3.3 GiB"]);
    }
}
