//! Reads a trace: CSV, plain or gzip.

use std::collections::HashSet;
use std::io::{self, BufReader, Cursor, Read};
use std::time::{SystemTime, UNIX_EPOCH};

use csv::ByteRecord;
use flate2::bufread::MultiGzDecoder;

use crate::grid::LONGEST;
use crate::pass::identity;
use crate::{Arrival, Order, TraceError, Wrong};

/// The first line of every trace.
pub const HEADER: &str = "time,key,size,route,scope,took_ms";

/// The columns of [`HEADER`].
const COLUMNS: [&str; 6] = ["time", "key", "size", "route", "scope", "took_ms"];

/// A trace that is read from its beginning to its end.
///
/// - `time`: seconds since 1970, with decimals, or an RFC 3339 time such as `2026-11-29T12:00:00.250Z`. What is finer than a
///   microsecond is cut off. A time before 1970, or ahead of this machine's clock by more than a minute, is an error.
/// - `key`, `scope`: any text; a key belongs to its scope. The scope may be empty, the key not.
/// - `size`: bytes of the recorded outcome, 0 for none.
/// - `route`: any text, may be empty.
/// - `took_ms`: how long the handler took, in milliseconds with decimals, at most 36500 days; empty when it did not run.
///
/// Lines that are [`HEADER`] again are passed over, so traces of several processes can be read one behind the other.
///
/// Whether it is gzip is seen from its first two bytes.
pub struct Reader<'r> {
    csv: csv::Reader<Box<dyn Read + 'r>>,
    order: Order<ByteRecord>,
    /// Records to be used again, since each owns two buffers.
    spare: Vec<ByteRecord>,
    latest: i64,
    unrecorded: Unrecorded,
    /// Hashes of the keys that were taken, to know which of them have run. Only while something is left out.
    taken: HashSet<u64>,
    /// Lines that were left out.
    skipped: u64,
    ended: bool,
    /// By how much the library's count of lines is behind: of the two characters that may end a line, it takes the second with the
    /// next line.
    behind: u64,
}

/// What is done with arrivals that left nothing behind, so that the next one of their key ran rightly: those that ran and recorded nothing, since
/// their handler failed and freed its key, and those that neither ran nor recorded anything before anything of their key had, since they were refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unrecorded {
    /// They are arrivals as all others: the figures are then an upper bound.
    #[default]
    Count,
    /// They are left out.
    Skip,
}

impl<'r> Reader<'r> {
    /// Reads from `source`, and puts lines in order that are earlier than one before them by at most `tolerance` microseconds.
    ///
    /// # Errors
    /// When nothing can be read, or the first line is not [`HEADER`].
    pub fn new(source: impl Read + 'r, tolerance: i64, unrecorded: Unrecorded) -> Result<Self, TraceError> {
        let mut source = BufReader::with_capacity(1 << 16, source);
        // Two bytes, however few a pipe gives at a time.
        let mut begin = Vec::with_capacity(2);
        let read = source.by_ref().take(2).read_to_end(&mut begin);
        read.map_err(|error| TraceError::line(1, Wrong::Read(error)))?;
        if begin.is_empty() {
            return Err(TraceError::line(1, Wrong::Empty));
        }
        let zipped = begin == [0x1f, 0x8b];
        let source = Cursor::new(begin).chain(source);
        let source: Box<dyn Read + 'r> = match zipped {
            true => Box::new(MultiGzDecoder::new(source)),
            false => Box::new(source),
        };
        let mut csv = csv::ReaderBuilder::new();
        csv.has_headers(false).flexible(true).buffer_capacity(1 << 16);
        let mut reader = Self {
            csv: csv.from_reader(source),
            order: Order::new(tolerance),
            spare: Vec::new(),
            latest: now() + 60_000_000,
            unrecorded,
            taken: HashSet::new(),
            skipped: 0,
            ended: false,
            behind: 0,
        };
        reader.header()?;
        Ok(reader)
    }

    /// How many lines were left out as [`Unrecorded::Skip`] says.
    #[must_use]
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// Gives every arrival to `take`, in the order of time. Whatever `take` says is wrong with one is an error of its line.
    ///
    /// # Errors
    /// The first one in the trace.
    pub fn read(&mut self, mut take: impl FnMut(&Arrival<'_>) -> Result<(), Wrong>) -> Result<(), TraceError> {
        let mut lines = 0u64;
        while !self.ended {
            self.next_line()?;
            while let Some((time, line, record)) = if self.ended { self.order.rest() } else { self.order.pop() } {
                let arrival = arrival(time, line, &record)?;
                if self.unrecorded == Unrecorded::Skip && !self.recorded(&arrival, record[5].is_empty()) {
                    self.skipped += 1;
                } else {
                    take(&arrival).map_err(|wrong| TraceError::line(line, wrong))?;
                    lines += 1;
                }
                self.spare.push(record);
            }
        }
        match lines {
            0 => Err(TraceError::line(2, Wrong::Empty)),
            _ => Ok(()),
        }
    }

    /// Whether there is something of its key after an arrival. `refused` is one that did not run.
    fn recorded(&mut self, arrival: &Arrival<'_>, refused: bool) -> bool {
        let key = identity(arrival.scope, arrival.key);
        if arrival.size == 0 {
            return refused && self.taken.contains(&key);
        }
        self.taken.insert(key);
        true
    }

    fn header(&mut self) -> Result<(), TraceError> {
        let mut header = ByteRecord::new();
        let read = self.csv.read_byte_record(&mut header).map_err(|error| broken(1, error))?;
        let found = header.iter().map(String::from_utf8_lossy).collect::<Vec<_>>().join(",");
        // A byte order mark is what some programs put before it.
        if !read || found.trim_start_matches('\u{feff}') != HEADER {
            let found = found.chars().take(80).collect();
            return Err(TraceError { line: 1, column: None, wrong: Wrong::Header { found } });
        }
        self.behind = 2u64.saturating_sub(self.csv.position().line());
        Ok(())
    }

    /// Puts the next line among those that wait for their turn.
    fn next_line(&mut self) -> Result<(), TraceError> {
        let mut record = self.spare.pop().unwrap_or_default();
        let line = self.csv.position().line();
        let read = self.csv.read_byte_record(&mut record).map_err(|error| broken(line, error))?;
        if !read {
            self.ended = true;
            return Ok(());
        }
        // The library says where it began to look for the line, which is before any empty ones. Its end is certain.
        let inside = record.as_slice().iter().filter(|byte| **byte == b'\n').count() as u64;
        let line = line.max(self.csv.position().line().saturating_sub(inside + 1) + self.behind);
        if record.len() != COLUMNS.len() {
            return Err(TraceError::line(line, Wrong::Fields { found: record.len() }));
        }
        if record.iter().eq(COLUMNS.map(str::as_bytes)) {
            self.spare.push(record);
            return Ok(());
        }
        let time = time(&record[0]).ok_or_else(|| at(line, 0, Wrong::Time(shown(&record[0]))))?;
        if time > self.latest {
            let now = (self.latest - 60_000_000) as f64 / 1e6;
            return Err(at(line, 0, Wrong::Future { time: time as f64 / 1e6, now }));
        }
        self.order.push(time, line, record)
    }
}

impl std::fmt::Debug for Reader<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader").field("position", self.csv.position()).finish_non_exhaustive()
    }
}

fn arrival(time: i64, line: u64, record: &ByteRecord) -> Result<Arrival<'_>, TraceError> {
    let text = |column: usize| std::str::from_utf8(&record[column]).map_err(|_| at(line, column, Wrong::NotText));
    let (key, size, took) = (text(1)?, text(2)?, text(5)?);
    if key.is_empty() {
        return Err(at(line, 1, Wrong::NoKey));
    }
    let size = size.parse().map_err(|_| at(line, 2, Wrong::Size(shown(&record[2]))))?;
    let took = match took {
        "" => 0,
        took => milliseconds(took).ok_or_else(|| at(line, 5, Wrong::Took(shown(&record[5]))))?,
    };
    Ok(Arrival { time, key, size, route: text(3)?, scope: text(4)?, took })
}

/// Microseconds since 1970.
fn time(field: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(field).ok()?;
    if let Some(micros) = decimal(text, 6) {
        return Some(micros);
    }
    let timestamp: jiff::Timestamp = text.parse().ok()?;
    Some(timestamp.as_microsecond()).filter(|micros| *micros >= 0)
}

/// At most what a run may be given.
fn milliseconds(text: &str) -> Option<i64> {
    decimal(text, 3).filter(|micros| *micros <= LONGEST)
}

/// A number without a sign in units of 10^-`places`; what is finer is cut off. Exact, other than by way of a float.
fn decimal(text: &str, places: usize) -> Option<i64> {
    let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !digits(part) {
        return None;
    }
    let unit = 10i64.pow(u32::try_from(places).ok()?);
    let kept = &part[..part.len().min(places)];
    let fraction = kept.parse::<i64>().ok()? * 10i64.pow(u32::try_from(places - kept.len()).ok()?);
    whole.parse::<i64>().ok()?.checked_mul(unit)?.checked_add(fraction)
}

fn at(line: u64, column: usize, wrong: Wrong) -> TraceError {
    TraceError { line, column: Some((column + 1, COLUMNS[column])), wrong }
}

fn broken(line: u64, error: csv::Error) -> TraceError {
    TraceError::line(line, Wrong::Read(io::Error::from(error)))
}

fn shown(field: &[u8]) -> String {
    String::from_utf8_lossy(field).chars().take(40).collect()
}

fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}
