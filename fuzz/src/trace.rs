//! Traces that the window tuner reads.

use idempotency_window::{Arrival, HEADER, Reader, Unrecorded};

type Line = (i64, String, u32, String, String, i64);

/// A trace as it came, and one with the right first line.
pub fn trace(data: &[u8]) {
    read(data);
    let with_header = [HEADER.as_bytes(), b"\n", data].concat();
    let lines = read(&with_header);
    assert!(lines.is_sorted_by_key(|line| line.0), "not in the order of time");
    // A time before 1970 can be read, and not be written as a decimal.
    if lines.first().is_none_or(|line| line.0 < 0) {
        return;
    }
    let mut writer = csv::WriterBuilder::new().has_headers(false).from_writer(Vec::new());
    writer.write_record(HEADER.split(',')).expect("in memory");
    for (time, key, size, route, scope, took) in &lines {
        let took = if *took == 0 { String::new() } else { decimal(*took, 3) };
        writer.write_record([&decimal(*time, 6), key, &size.to_string(), route, scope, &took]).expect("in memory");
    }
    let written = writer.into_inner().expect("in memory");
    assert_eq!(read(&written), lines, "written and read again");
}

/// What it holds, up to its first error.
fn read(data: &[u8]) -> Vec<Line> {
    let mut lines = Vec::new();
    let Ok(mut reader) = Reader::new(data, 5_000_000, Unrecorded::Count) else { return lines };
    let read = reader.read(|&Arrival { time, key, size, route, scope, took }| {
        lines.push((time, key.to_owned(), size, route.to_owned(), scope.to_owned(), took));
        Ok(())
    });
    if let Err(error) = read {
        assert!(error.line >= 1 && error.to_string().len() < 1000, "{error}");
    }
    lines
}

/// A number of microseconds in units of 10^`places` of them.
fn decimal(micros: i64, places: u32) -> String {
    let unit = 10_i64.pow(places);
    format!("{}.{:0width$}", micros / unit, micros % unit, width = places as usize)
}
