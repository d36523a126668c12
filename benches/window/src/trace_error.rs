//! What is wrong with a trace, and where.

/// An error in a trace, with its place.
#[derive(Debug, thiserror::Error)]
#[error("line {line}{}: {wrong}", column.map(|(n, name)| format!(", column {n} ({name})")).unwrap_or_default())]
pub struct TraceError {
    /// The line, from 1. The header is line 1.
    pub line: u64,
    /// The column, from 1, with its name, where one is to blame.
    pub column: Option<(usize, &'static str)>,
    /// What is wrong there.
    #[source]
    pub wrong: Wrong,
}

/// What is wrong.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Wrong {
    /// Not a byte, or no line but the header.
    #[error("the trace has no arrivals")]
    Empty,
    /// Another first line.
    #[error("the header must be `{expected}`, not `{found}`", expected = crate::HEADER)]
    Header {
        /// What is there, shortened.
        found: String,
    },
    /// A field too many or too few.
    #[error("{found} fields where the header has 6")]
    Fields {
        /// How many there are.
        found: usize,
    },
    /// The time is no time.
    #[error("`{0}` is neither seconds since 1970 nor an RFC 3339 time from then on")]
    Time(String),
    /// The time is ahead of the clock of the machine that reads.
    #[error("the time {time} s is in the future (the clock says {now} s)")]
    Future {
        /// The time, in seconds.
        time: f64,
        /// This machine's time, in seconds.
        now: f64,
    },
    /// A line is earlier than one before it, by more than is tolerated.
    #[error("this arrival is {by} s earlier than one before it, more than the tolerance of {tolerance} s")]
    OutOfOrder {
        /// How much earlier, in seconds.
        by: f64,
        /// What is tolerated, in seconds.
        tolerance: f64,
    },
    /// The key is empty.
    #[error("the key is empty")]
    NoKey,
    /// The size is no number of bytes.
    #[error("`{0}` is not a size in bytes below 4 GiB")]
    Size(String),
    /// The time that the handler took is none.
    #[error("`{0}` is not a time in milliseconds, from 0 to 3153600000000 (36500 days)")]
    Took(String),
    /// Bytes that are no text.
    #[error("not UTF-8")]
    NotText,
    /// The file ends in the middle, or could not be read.
    #[error("cannot be read on: {0}")]
    Read(#[source] std::io::Error),
    /// More arrivals than can be counted.
    #[error("more than {} arrivals; sample keys", u32::MAX)]
    TooMany,
}

impl TraceError {
    pub(crate) fn line(line: u64, wrong: Wrong) -> Self {
        Self { line, column: None, wrong }
    }
}
