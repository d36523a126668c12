//! A token in the guarded row itself.

use std::fmt;
use std::marker::PhantomData;

use idempotency::{FenceTicket, FencingToken, StoreError, StoreErrorKind};

use super::FenceError;
use super::admit::{Admit, NOBODY, not_too_far};
use crate::row::{Columns, token, token_number};

/// A fence in two columns of the rows that it guards: the form most people know, `UPDATE … WHERE fencing_token <
/// $token`, made safe. [`column_fence!`](crate::column_fence) makes one.
///
/// The table has a nullable token and a nullable holder:
///
/// ```sql
/// -- PostgreSQL
/// ALTER TABLE orders ADD fencing_token BIGINT, ADD fencing_holder BYTEA;
/// -- MySQL, MariaDB
/// ALTER TABLE orders ADD fencing_token BIGINT, ADD fencing_holder BINARY(16);
/// -- SQLite
/// ALTER TABLE orders ADD fencing_token INTEGER;
/// ALTER TABLE orders ADD fencing_holder BLOB;
/// ```
///
/// The rules:
///
/// 1. **Open first.** [`open`](Self::open) is the first statement of a transaction; it takes the row, and reading and
///    writing come after it in the same transaction. A token that is compared only at the write lets an update get
///    lost: the one who was superseded may write *between* the newer one's read and its first write, and his token is
///    then still the largest. Whoever has read before opening reads again.
/// 2. **One row, one source.** All tokens in a column come from one source; there is no place that says which.
/// 3. **A deleted row forgets its token**, and one that is inserted anew is not guarded before its first opening: mark
///    rows as deleted, or use a [fence of its own](super::Fences).
/// 4. **Equal tokens** are told apart by the holder, so the holder's column is not optional. A ticket without a holder
///    is good for one opening.
pub struct ColumnFence<D> {
    admit: &'static str,
    look: &'static str,
    database: PhantomData<fn() -> D>,
}

impl<D> ColumnFence<D> {
    #[doc(hidden)]
    #[must_use]
    pub const fn from_statements(admit: &'static str, look: &'static str) -> Self {
        Self { admit, look, database: PhantomData }
    }
}

/// What came of opening a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "only what was applied may be written after"]
pub enum Written {
    /// The row is this holder's until the end of the transaction: read it, and write it.
    Applied,
    /// Under [`Admit::StrictlyNewer`]: this token was applied before, in a transaction that was committed.
    AlreadyApplied,
    /// Somebody newer was here, or another holder with the same token.
    Superseded {
        /// The token in the row.
        current: FencingToken,
    },
    /// There is no such row.
    RowMissing,
}

/// `open` for one database. Named after the statement: id, token, holder, the holder again if it may come again, and
/// the token if it is a time.
macro_rules! open_in {
    ($database:ident, $connection:ty, $kept:literal, |$query:ident, $id:ident, $ticket:ident| $bound:expr) => {
        impl ColumnFence<sqlx::$database> {
            /// Opens the row with this id: takes it until the end of the transaction, and writes token and holder into
            /// it.
            ///
            /// To be called in a transaction, as its first statement, on `&mut *transaction`.
            ///
            /// # Errors
            /// [`FenceError::FromTheFuture`] for a token of a clock more than an hour ahead of the database's;
            /// [`FenceError::Store`]. After any of them the transaction is to be dropped.
            ///
            /// # Cancel safety
            /// Dropped: it may or may not have been carried out. Drop the transaction.
            pub async fn open<'q, I>(
                &self,
                connection: &mut $connection,
                id: I,
                ticket: &FenceTicket,
                admit: Admit,
            ) -> Result<Written, FenceError>
            where
                I: sqlx::Encode<'q, sqlx::$database> + sqlx::Type<sqlx::$database> + Clone + Send + 'q,
            {
                use super::dialect::Dialect;
                use sqlx::Executor;

                let store_error = <sqlx::$database as Dialect>::store_error;
                let $ticket = ColumnTicket::new(ticket, admit);
                let ($query, $id) = (sqlx::query(self.admit).persistent($kept), id.clone());
                let changed = connection.execute($bound).await.map_err(store_error)?.rows_affected();
                if changed == 1 {
                    return Ok(Written::Applied);
                }
                // A second statement, since a part of the first one would see what was there before it waited. It takes
                // the row.
                let look = sqlx::query(self.look).persistent($kept).bind(id);
                let row = connection.fetch_optional(look).await.map_err(store_error)?;
                row.map_or(Ok(Written::RowMissing), |row| $ticket.classify(&row))
            }
        }
    };
}

// Not kept in the session: a proxy may give it to somebody else.
#[cfg(feature = "postgres")]
open_in!(Postgres, sqlx::PgConnection, false, |query, id, ticket| {
    query.bind(id).bind(ticket.token).bind(ticket.holder()).bind(ticket.again()).bind(ticket.time)
});
#[cfg(feature = "sqlite")]
open_in!(Sqlite, sqlx::SqliteConnection, true, |query, id, ticket| {
    query.bind(id).bind(ticket.token).bind(ticket.holder()).bind(ticket.again()).bind(ticket.time)
});
#[cfg(feature = "mysql")]
open_in!(MySql, sqlx::MySqlConnection, true, |query, id, ticket| {
    let query = query.bind(ticket.token).bind(ticket.holder()).bind(id).bind(ticket.token).bind(ticket.time);
    query.bind(ticket.token).bind(ticket.again())
});

/// A ticket as the statements take it.
struct ColumnTicket {
    ticket: FenceTicket,
    token: i64,
    holder: [u8; 16],
    again: bool,
    time: Option<i64>,
}

impl ColumnTicket {
    fn new(ticket: &FenceTicket, admit: Admit) -> Self {
        let token = token_number(ticket.token);
        let holder = ticket.holder.map_or(NOBODY, |nonce| *nonce.as_bytes());
        let again = admit == Admit::SameOrNewer && holder != NOBODY;
        Self { ticket: *ticket, token, holder, again, time: ticket.source.is_time().then_some(token) }
    }

    fn holder(&self) -> &[u8] {
        &self.holder
    }

    fn again(&self) -> Option<&[u8]> {
        self.again.then_some(&self.holder)
    }

    /// Why the row was not written.
    fn classify(&self, row: &impl Columns) -> Result<Written, FenceError> {
        let mine = self.ticket.token;
        let column = |error| StoreError::new(StoreErrorKind::Unreadable, error);
        let current = row.integer("token").map_err(column)?.and_then(token).filter(|current| *current >= mine);
        let Some(current) = current else {
            not_too_far(mine, self.ticket.source, crate::row::now(row)?)?;
            return Err(StoreError::new(StoreErrorKind::Busy, "the row changed meanwhile").into());
        };
        let is_mine = current == mine && row.blob("holder").map_err(column)? == Some(self.holder());
        Ok(match (is_mine, self.again) {
            (false, _) => Written::Superseded { current },
            (true, false) => Written::AlreadyApplied,
            // Where the driver counts only the rows that have other contents now.
            (true, true) => Written::Applied,
        })
    }
}

impl<D> Clone for ColumnFence<D> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<D> Copy for ColumnFence<D> {}

impl<D> fmt::Debug for ColumnFence<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ColumnFence").field("admit", &self.admit).finish_non_exhaustive()
    }
}
