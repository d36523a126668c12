//! How far a transaction is shielded from others.

/// The isolation of a transaction with effects, as PostgreSQL and MySQL name it. SQLite's transactions are serializable always.
///
/// Above [`ReadCommitted`](Self::ReadCommitted) a server may refuse a statement or the commit, and then the whole transaction
/// is to be tried again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Isolation {
    /// Each statement sees what was committed before it. The default: a statement that waited for a row sees it as it is then.
    #[default]
    ReadCommitted,
    /// All statements see what was committed before the first one.
    RepeatableRead,
    /// As if one transaction ran after the other.
    Serializable,
}
