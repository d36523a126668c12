//! What is recommended over small traces, and what is said with it.
#![allow(clippy::unwrap_used, reason = "a test fails loudly")]

use idempotency_window::recommend::{Advice, Need, Target};
use idempotency_window::{Anchor, Arrival, Grid, Measured, Pass, Settings, report};

const HOUR: i64 = 3_600_000_000;

/// Arrivals by hour, key, route and scope, judged for windows of so many hours.
fn measured(mut arrivals: Vec<(i64, String, &str, &str)>, windows: &[i64]) -> Measured {
    arrivals.sort_by_key(|arrival| arrival.0);
    let grid = Grid::of(windows.iter().map(|hours| hours * HOUR).collect()).unwrap();
    let mut pass = Pass::new(Settings { grid, ..Settings::default() });
    for (hour, key, route, scope) in &arrivals {
        pass.add(&Arrival { time: hour * HOUR, key, size: 9, route, scope, took: 1000 }).unwrap();
    }
    pass.finish().unwrap()
}

/// A new key every hour for 30 days, of which each comes again once, so many hours later, where the trace is long enough.
fn late(lag: i64, windows: &[i64]) -> Measured {
    let again = |hour: &i64| hour + lag < 720;
    let firsts = (0..720).map(|hour| (hour, hour.to_string(), "r", "s"));
    let seconds = (0..720).filter(again).map(|hour| (hour + lag, hour.to_string(), "r", "s"));
    measured(firsts.chain(seconds).collect(), windows)
}

#[test]
fn duplicates_that_most_keys_have_no_room_to_show_count_for_those_keys_too() {
    // All keys come again after 20 days. Only those of the first ten show it, and of those that judge a window of 9 days the first in eleven.
    let found = late(480, &[216]);
    let tally = found.windows[0].of(Anchor::Arrival);
    assert!(tally.judged.escapes * 10 < tally.judged.operations, "{:?}", tally.judged);
    assert!((tally.judged.rate().rate - 1.0).abs() < 0.01, "{:?}", tally.judged);
    // A window of 10 days is judged by a third of the keys, all of them too late to show anything. All keys together still do.
    let found = late(481, &[239]);
    let tally = found.windows[0].of(Anchor::Arrival);
    assert_eq!(tally.judged.escapes, 0);
    let target = Target { rate: 0.05, ..Target::default() };
    let advice = Advice::of(&found, Anchor::Completion, 0.05);
    assert_eq!((advice.window, advice.together), (None, Need::Longer));
    let text = report::text(&found, &target);
    assert!(text.contains("show more: 239 double runs of 720 operations, 331944 per million"), "{text}");
}

#[test]
fn nothing_is_said_of_renewing_where_neither_is_known() {
    let renewing = "Renewing";
    // Alone and late: both need more than is judged.
    let text = report::text(&late(100, &[5, 50]), &Target::default());
    assert!(text.contains("**No window") && !text.contains(renewing), "{text}");
    // Too few to show anything, but one need is seen, and it is the same.
    let text = report::text(&late(100, &[5, 50, 101]), &Target::default());
    assert!(text.contains("Renewing the tombstone on hits does not help here"), "{text}");
    // Nothing comes again at all.
    let text = report::text(&late(720, &[5, 50]), &Target::default());
    assert!(!text.contains(renewing), "{text}");
    // A chain of many.
    let chain = (0..60).flat_map(|key| (0..20).map(move |step| (key * 10 + step * 4, key.to_string(), "r", "s")));
    let text = report::text(&measured(chain.collect(), &[3, 5, 50, 101]), &Target::default());
    assert!(text.contains("Renewing: when hits renew the tombstone, 5h would be enough as far as was seen"), "{text}");
}

#[test]
fn a_window_that_nothing_judges_has_no_figures() {
    let ends = [(0, "a".to_owned(), "r", "s"), (900, "b".to_owned(), "r", "s")];
    let text = report::text(&measured(ends.to_vec(), &[100]), &Target::default());
    assert!(
        text.contains("Nothing judges 4d 4h") && text.contains("| 4d 4h | not seen | not seen | not seen |"),
        "{text}"
    );
    assert!(!text.contains(",  per million") && !text.contains("( to )"), "{text}");
    assert!(text.contains("- A larger trace"), "{text}");
}

#[test]
fn a_pair_is_listed_where_it_decides_and_what_is_left_out_only_where_it_is() {
    // Both routes and both scopes are fine as a whole at a tenth; one scope's part of one route is not.
    let mut arrivals: Vec<_> =
        (0..720).map(|hour| (hour, hour.to_string(), ["a", "b"][hour as usize % 2], "x")).collect();
    arrivals.extend((0..720).map(|hour| (hour, format!("y{hour}"), "b", "y")));
    for hour in (200..400).step_by(20) {
        arrivals.extend([(hour, format!("late{hour}"), "a", "y"), (hour + 20, format!("late{hour}"), "a", "y")]);
    }
    let found = measured(arrivals, &[10, 30]);
    let target = Target { rate: 0.1, ..Target::default() };
    let advice = Advice::of(&found, target.anchor, target.rate);
    assert_eq!(advice.deciding().collect::<Vec<_>>(), ["route a, scope y"]);
    assert_eq!(advice.window, Some(1));
    let text = report::text(&found, &target);
    assert!(text.contains("| route a, scope y | 1d 6h"), "{text}");
    assert!(!text.contains("are left out") && !text.contains("| route b, scope x |"), "{text}");

    let many = (0..900).map(|hour| (hour, hour.to_string(), "r", SCOPES[hour as usize % SCOPES.len()]));
    let text = report::text(&measured(many.collect(), &[10]), &target);
    assert!(text.contains("are left out"), "{text}");
}

const SCOPES: [&str; 42] = [
    "a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "p", "q", "r", "s", "t", "u", "v", "w",
    "x", "y", "z", "0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "aa", "ab", "ac", "ad", "ae", "af",
];
