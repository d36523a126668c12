//! Traces that are wrong, and what is said about them.
#![allow(clippy::unwrap_used, reason = "a test fails loudly")]

use std::io::{Read, Write as _};

use flate2::Compression;
use flate2::write::GzEncoder;
use idempotency_window::generate::{Mixture, TakeError};
use idempotency_window::recommend::Target;
use idempotency_window::{Arrival, Grid, Pass, PassError, Reader, Sample, Settings, TraceError, Unrecorded, report};

/// A line as it was understood: time, key, size, route, scope, took.
type Line = (i64, String, u32, String, String, i64);

fn read(trace: impl AsRef<[u8]>, tolerance: i64) -> Result<Vec<Line>, TraceError> {
    let mut lines = Vec::new();
    let mut reader = Reader::new(trace.as_ref(), tolerance, Unrecorded::Count)?;
    reader.read(|&Arrival { time, key, size, route, scope, took }| {
        lines.push((time, key.to_owned(), size, route.to_owned(), scope.to_owned(), took));
        Ok(())
    })?;
    Ok(lines)
}

fn with(lines: &str) -> String {
    format!("time,key,size,route,scope,took_ms\n{lines}")
}

fn wrong(lines: &str) -> String {
    read(with(lines), 0).unwrap_err().to_string()
}

#[test]
fn lines_are_understood_exactly() {
    let trace = with(
        "1767225600.000001,a1,200,/charge,f0,12.5\n\"2026-01-01T00:00:01Z\",\"a,\"\"2\",0,,,\n1767225601,b,7,r,,0.0019\n",
    );
    let day = 1_767_225_600_000_000;
    let expected = [
        (day + 1, "a1", 200, "/charge", "f0", 12_500),
        (day + 1_000_000, "a,\"2", 0, "", "", 0),
        (day + 1_000_000, "b", 7, "r", "", 1),
    ];
    let expected = expected.map(|(t, k, s, r, c, m)| (t, k.to_owned(), s, r.to_owned(), c.to_owned(), m));
    assert_eq!(read(&trace, 0).unwrap(), expected);
    // The same with other ends of lines, a byte order mark, and gzip in two members.
    let windows = format!("\u{feff}{}", trace.replace('\n', "\r\n"));
    assert_eq!(read(windows, 0).unwrap(), expected);
    let mut members = Vec::new();
    let (first, second) = trace.as_bytes().split_at(70);
    for part in [first, second] {
        let mut gzip = GzEncoder::new(&mut members, Compression::default());
        gzip.write_all(part).unwrap();
        gzip.finish().unwrap();
    }
    assert_eq!(read(members, 0).unwrap(), expected);
}

#[test]
fn each_error_names_its_line_and_column() {
    let errors = [
        ("1,a,1,r,s,\nx,b,1,r,s,\n", "line 3, column 1 (time): `x` is neither seconds since 1970 nor an RFC 3339 time"),
        (
            "-009999-01-02T03:04:05Z,a,1,r,s,\n",
            "line 2, column 1 (time): `-009999-01-02T03:04:05Z` is neither seconds since 1970",
        ),
        (
            "1969-12-31T23:59:59Z,a,1,r,s,\n",
            "line 2, column 1 (time): `1969-12-31T23:59:59Z` is neither seconds since 1970",
        ),
        ("-1,a,1,r,s,\n", "line 2, column 1 (time): `-1` is neither seconds since 1970 nor an RFC 3339 time"),
        ("1e3,a,1,r,s,\n", "line 2, column 1 (time): `1e3` is neither seconds since 1970 nor an RFC 3339 time"),
        ("99999999999999999999,a,1,r,s,\n", "line 2, column 1 (time): `99999999999999999999` is neither"),
        ("99999999999,a,1,r,s,\n", "line 2, column 1 (time): the time 99999999999 s is in the future"),
        ("1,,1,r,s,\n", "line 2, column 2 (key): the key is empty"),
        ("1,a,-1,r,s,\n", "line 2, column 3 (size): `-1` is not a size in bytes below 4 GiB"),
        ("1,a,4294967296,r,s,\n", "line 2, column 3 (size): `4294967296` is not a size"),
        ("1,a,,r,s,\n", "line 2, column 3 (size): `` is not a size"),
        ("1,a,1,r,s,-5\n", "line 2, column 6 (took_ms): `-5` is not a time in milliseconds"),
        (
            "1,a,1,r,s,3153600000000.001\n",
            "line 2, column 6 (took_ms): `3153600000000.001` is not a time in milliseconds",
        ),
        ("1,a,1,r,s,\n1,a,1,r\n", "line 3: 4 fields where the header has 6"),
        ("1,a,1,r,s,,\n", "line 2: 7 fields where the header has 6"),
        ("5,a,1,r,s,\n\n4.5,b,1,r,s,\n", "line 4, column 1 (time): this arrival is 0.5 s earlier than one before it"),
    ];
    for (lines, expected) in errors {
        let found = wrong(lines);
        assert!(found.starts_with(expected), "{lines:?}: {found}");
    }
    // Lines are counted as an editor counts them: with those that are empty, and in every way to end one.
    let lines = with("\n1,\"a\nb\",1,r,s,\n\n2,b,x,r,s,\n").replace('\n', "\r\n");
    assert!(read(lines, 0).unwrap_err().to_string().starts_with("line 6, column 3"));
    let not_text = [with("1,").as_bytes(), b"\xff", b",1,r,s,\n"].concat();
    assert_eq!(read(not_text, 0).unwrap_err().to_string(), "line 2, column 2 (key): not UTF-8");
}

#[test]
fn a_trace_that_is_no_trace_is_refused() {
    assert_eq!(read("", 0).unwrap_err().to_string(), "line 1: the trace has no arrivals");
    assert_eq!(wrong(""), "line 2: the trace has no arrivals");
    let header = read("time,key,size,scope,route,took_ms\n1,a,1,r,s,\n", 0).unwrap_err().to_string();
    assert_eq!(
        header,
        "line 1: the header must be `time,key,size,route,scope,took_ms`, not `time,key,size,scope,route,took_ms`"
    );
}

#[test]
fn a_gzip_file_that_was_cut_off_is_refused_where_it_ends() {
    let mut trace = Vec::new();
    let mut gzip = GzEncoder::new(&mut trace, Compression::default());
    let lines: String = (0..10_000).map(|n| format!("{n},{n:x},{n},r,s,\n")).collect();
    gzip.write_all(with(&lines).as_bytes()).unwrap();
    gzip.finish().unwrap();
    assert_eq!(read(&trace, 0).unwrap().len(), 10_000);
    let error = read(&trace[..trace.len() / 2], 0).unwrap_err();
    assert!((1000..10_000).contains(&error.line), "{error}");
    assert!(error.to_string().contains("cannot be read on"), "{error}");
    // Only the checksum at the end is missing.
    let error = read(&trace[..trace.len() - 3], 0).unwrap_err();
    assert!(error.line >= 10_000, "{error}");
    // One byte is another.
    let middle = trace.len() / 2;
    trace[middle] ^= 0x55;
    assert!(read(&trace, 0).is_err());
}

#[test]
fn what_is_a_little_out_of_order_is_put_in_order() {
    let lines = "10,a,1,r,s,\n9,b,1,r,s,\n10,c,1,r,s,\n12,d,1,r,s,\n10.5,e,1,r,s,\n11,f,1,r,s,\n";
    let keys =
        |tolerance| read(with(lines), tolerance).map(|lines| lines.into_iter().map(|line| line.1).collect::<String>());
    assert_eq!(keys(1_500_000).unwrap(), "bacefd");
    assert_eq!(keys(i64::MAX).unwrap(), "bacefd");
    assert_eq!(
        keys(1_499_999).unwrap_err().to_string(),
        "line 6, column 1 (time): this arrival is 1.5 s earlier than one before it, more than the tolerance of 1.499999 s"
    );
}

#[test]
fn arrivals_that_recorded_nothing_can_be_left_out() {
    // It failed; it was refused; it ran; it was refused by what had run. Another scope's key of the same name has nothing to do with it, and an outcome
    // that is replayed is one that was recorded before the trace.
    let trace = with("1,a,0,r,s,5\n2,a,0,r,s,\n3,a,9,r,s,5\n4,a,0,r,s,\n5,a,0,r,t,\n6,b,9,r,s,\n7,b,0,r,s,\n");
    let mut times = Vec::new();
    let mut reader = Reader::new(trace.as_bytes(), 0, Unrecorded::Skip).unwrap();
    reader
        .read(|arrival| {
            times.push(arrival.time / 1_000_000);
            Ok(())
        })
        .unwrap();
    assert_eq!((times, reader.skipped()), (vec![3, 4, 6, 7], 3));
    assert_eq!(read(&trace, 0).unwrap().len(), 7);
}

#[test]
fn a_key_that_begins_with_a_refusal_is_said_to() {
    let mut pass = Pass::new(Settings::default());
    for (time, key, size, took) in [(1, "a", 0, 0), (2, "a", 0, 0), (3, "b", 9, 0), (4, "c", 0, 7)] {
        pass.add(&Arrival { size, took, ..arrival(time, key) }).unwrap();
    }
    let measured = pass.finish().unwrap();
    assert_eq!(measured.refused, 1);
    assert!(report::text(&measured, &Target::default()).contains("1 keys came first in an arrival that neither"));
}

#[test]
fn a_handler_may_take_as_long_as_a_run_may_be_given() {
    let lines = read(with("1,a,1,r,s,86400000.001\n2,b,1,r,s,3153600000000\n"), 0).unwrap();
    assert_eq!(lines.iter().map(|line| line.5).collect::<Vec<_>>(), [86_400_000_001, 36_500 * 86_400_000_000]);
}

#[test]
fn traces_of_several_processes_are_read_one_behind_the_other() {
    let both = with("1,a,1,r,s,\n5,b,1,r,s,\n") + &with("2,c,1,r,s,\n");
    let keys = read(&both, i64::MAX).unwrap().into_iter().map(|line| line.1).collect::<String>();
    assert_eq!(keys, "acb");
    let error = read(both + "x,d,1,r,s,\n", i64::MAX).unwrap_err().to_string();
    assert!(error.starts_with("line 6, column 1 (time): `x`"), "{error}");
}

/// Gives one byte at a time, as a pipe may.
struct Drops<'a>(&'a [u8]);

impl Read for Drops<'_> {
    fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
        let few = to.len().min(1);
        self.0.read(&mut to[..few])
    }
}

#[test]
fn gzip_is_seen_also_where_its_first_bytes_come_one_by_one() {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
    gzip.write_all(with("1,a,1,r,s,\n").as_bytes()).unwrap();
    let mut count = 0;
    let trace = gzip.finish().unwrap();
    let mut reader = Reader::new(Drops(&trace), 0, Unrecorded::Count).unwrap();
    reader
        .read(|_| {
            count += 1;
            Ok(())
        })
        .unwrap();
    assert_eq!(count, 1);
}

fn arrival(time: i64, key: &str) -> Arrival<'_> {
    Arrival { time, key, size: 1, route: "r", scope: "s", took: 0 }
}

#[test]
fn nothing_is_judged_by_no_arrival_or_one() {
    assert_eq!(Pass::new(Settings::default()).finish().unwrap_err(), PassError::Empty);
    let mut pass = Pass::new(Settings::default());
    pass.add(&arrival(1, "a")).unwrap();
    assert!(pass.add(&arrival(0, "a")).is_err());
    assert_eq!(pass.finish().unwrap_err(), PassError::NoLength);
    assert!([0.0, -0.1, 1.1, f64::NAN].into_iter().all(|share| Sample::new(share).is_none()));
}

#[test]
fn one_key_a_million_times_runs_as_often_as_its_windows_say() {
    let mut pass = Pass::new(Settings { grid: Grid::of(vec![1, 9, 10, 99_999]).unwrap(), ..Settings::default() });
    for n in 0..1_000_000 {
        pass.add(&arrival(n * 10, "a")).unwrap();
    }
    let measured = pass.finish().unwrap();
    let [arrivals, _, renewed] = [0, 1, 2]
        .map(|anchor| measured.windows.iter().map(|window| window.tallies[anchor].all.escapes).collect::<Vec<_>>());
    assert_eq!(arrivals, [999_999, 999_999, 499_999, 99]);
    assert_eq!(renewed, [999_999, 999_999, 0, 0]);
    let memory = measured.windows[3].tallies[0].memory.as_ref().unwrap();
    assert_eq!(memory.peak_records, 1.0);
}

#[test]
fn a_sample_of_keys_tells_what_all_of_them_tell() {
    let mixture = Mixture { rate: 0.03, loss: 0.2, ..Mixture::default() };
    let figures = |share| {
        let settings = Settings { sample: Sample::new(share).unwrap(), ..Settings::default() };
        let mut pass = Pass::new(settings);
        mixture.arrivals::<TakeError>(|arrival| Ok(pass.add(arrival)?)).unwrap();
        let measured = pass.finish().unwrap();
        let tally = &measured.windows[30].tallies[1];
        let distance = measured.capacity.escapes(60, 6) as f64 / measured.arrivals as f64;
        (measured.operations as f64, tally.all.rate().rate, tally.memory.as_ref().unwrap().mean_records, distance)
    };
    let (all, some) = (figures(1.0), figures(0.25));
    assert!((some.0 / all.0 - 0.25).abs() < 0.01, "{all:?} {some:?}");
    for (all, some) in [(all.1, some.1), (all.2, some.2), (all.3, some.3)] {
        assert!((some / all - 1.0).abs() < 0.05, "{all} {some}");
    }
}
