//! What errors of Redis and of its client mean for a store.

use idempotency::{StoreError, StoreErrorKind};
use redis::{ErrorKind, RedisError, ServerErrorKind};

/// The write reached too few replicas in time. The primary has it.
///
/// It is the source of the [`StoreError`] that an operation of a store with
/// [`wait_for_replicas`](crate::RedisOptions::wait_for_replicas) then ends with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the write reached {reached} replicas in time, and {wanted} were to have it")]
pub struct NotReplicated {
    /// How many have acknowledged it.
    pub reached: u32,
    /// How many were asked for.
    pub wanted: u32,
}

impl From<NotReplicated> for StoreError {
    fn from(error: NotReplicated) -> Self {
        Self::new(StoreErrorKind::Unavailable, error)
    }
}

/// Says what an error means, by its kind or its code and never by its text.
pub(crate) fn store_error(error: RedisError) -> StoreError {
    StoreError::new(kind_of(&error), error)
}

fn kind_of(error: &RedisError) -> StoreErrorKind {
    use ServerErrorKind::{
        Ask, BusyLoading, ClusterDown, MasterDown, Moved, NoScript, ReadOnly, ResponseError, TryAgain,
    };
    match error.kind() {
        ErrorKind::Io if error.is_timeout() => StoreErrorKind::Timeout,
        ErrorKind::Io | ErrorKind::Parse => StoreErrorKind::Unavailable,
        ErrorKind::MasterNameNotFoundBySentinel
        | ErrorKind::NoValidReplicasFoundBySentinel
        | ErrorKind::ClusterConnectionNotFound => StoreErrorKind::Unavailable,
        ErrorKind::Server(BusyLoading | ClusterDown | MasterDown | ReadOnly | TryAgain | Moved | Ask | NoScript) => {
            StoreErrorKind::Unavailable
        }
        ErrorKind::Server(ResponseError) | ErrorKind::Extension => kind_of_code(error.code().unwrap_or_default()),
        _ => StoreErrorKind::Refused,
    }
}

/// Codes that the client has no name for.
fn kind_of_code(code: &str) -> StoreErrorKind {
    match code {
        // A script runs for too long; nothing else is carried out until it ends.
        "BUSY" => StoreErrorKind::Busy,
        // No memory, no persistence, not enough replicas: nothing can be written now.
        "OOM" | "MISCONF" | "NOREPLICAS" => StoreErrorKind::Unavailable,
        _ => StoreErrorKind::Refused,
    }
}

/// Whether the server refuses what needs room.
pub(crate) fn is_out_of_memory(error: &RedisError) -> bool {
    error.code() == Some("OOM")
}

/// Whether the server carries nothing out, since a script runs for too long.
pub(crate) fn is_busy(error: &RedisError) -> bool {
    kind_of(error) == StoreErrorKind::Busy
}

/// Whether the server does not have the script.
pub(crate) fn is_unknown_script(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
}

/// Whether it is what the server answered, so that nothing of the command can come later.
pub(crate) fn is_answer(error: &RedisError) -> bool {
    matches!(error.kind(), ErrorKind::Server(_) | ErrorKind::Extension)
}

/// Whether it would be answered to the same again: no shortage, and nothing that passes.
pub(crate) fn is_refused(error: &RedisError) -> bool {
    kind_of(error) == StoreErrorKind::Refused
}

/// Whether the next operation is to have a new connection: this one is broken, or leads to a server that is not the primary any
/// more.
pub(crate) fn ends_connection(error: &RedisError) -> bool {
    use ServerErrorKind::{BusyLoading, MasterDown, ReadOnly};
    error.is_io_error()
        || error.is_unrecoverable_error()
        || matches!(error.kind(), ErrorKind::Server(ReadOnly | MasterDown | BusyLoading))
}

/// Whether one more try on a new connection may help at once: the connection broke, or the server refused to write.
pub(crate) fn may_be_tried_again(error: &RedisError) -> bool {
    let broken = error.is_io_error() && !error.is_timeout();
    broken || error.kind() == ErrorKind::Server(ServerErrorKind::ReadOnly)
}
