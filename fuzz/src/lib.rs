//! What each reader of bytes that others made must do with any of them. `cargo fuzz` runs these functions for as long as it is let, and
//! a test of the workspace runs the same ones for a moment, so they are written for both.

mod bodies;
mod headers;
mod layer;
mod records;
mod trace;

pub use bodies::{json, multipart};
pub use headers::{fencing_header, key_header};
pub use layer::request;
pub use records::{record, stored_response};
pub use trace::trace;

/// What is done with an input; it panics when something does not hold.
pub type Target = fn(&[u8]);

/// All targets by name.
pub const TARGETS: [(&str, Target); 8] = [
    ("key_header", key_header),
    ("fencing_header", fencing_header),
    ("json", json),
    ("multipart", multipart),
    ("stored_response", stored_response),
    ("record", record),
    ("trace", trace),
    ("request", request),
];

/// Takes a text apart: pieces follow each other with a byte between them that is in no UTF-8.
fn pieces(data: &[u8]) -> impl Iterator<Item = &[u8]> {
    data.split(|byte| *byte == SEPARATOR)
}

const SEPARATOR: u8 = 0xFF;

/// The same pieces, each with the marker at its end.
fn marked(data: &[u8]) -> Vec<u8> {
    let pieces: Vec<_> = pieces(data).map(|piece| [piece, MARKER.as_bytes()].concat()).collect();
    pieces.join(&SEPARATOR)
}

/// What is in nothing that we say of ourselves, so that it was quoted where it is found.
const MARKER: &str = "mArKeR7";
