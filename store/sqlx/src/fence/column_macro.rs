//! The statements of a fence in a row.

/// A [`ColumnFence`](crate::fence::ColumnFence) on a table of the program's own: database, table, and the columns of
/// the id, the token and the holder. All names are literals, put together by the compiler; nothing is formatted into a
/// statement at run time. A name that is to be quoted is written with its quotes.
///
/// ```
/// # #[cfg(feature = "sqlite")]
/// # {
/// use idempotency_sqlx::column_fence;
/// use idempotency_sqlx::fence::ColumnFence;
/// use sqlx::Sqlite;
///
/// const ORDERS: ColumnFence<Sqlite> =
///     column_fence!(Sqlite, table: "orders", id: "id", token: "fencing_token", holder: "fencing_holder");
/// # let _ = ORDERS;
/// # }
/// ```
#[macro_export]
macro_rules! column_fence {
    (Postgres, table: $table:literal, id: $id:literal, token: $token:literal, holder: $holder:literal $(,)?) => {
        $crate::fence::ColumnFence::<::sqlx::Postgres>::from_statements(
            concat!(
                "UPDATE ",
                $table,
                " SET ",
                $token,
                " = $2, ",
                $holder,
                " = $3 WHERE ",
                $id,
                " = $1 AND (",
                $token,
                " IS NULL OR ",
                $token,
                " < $2 OR (",
                $token,
                " = $2 AND ",
                $holder,
                " = $4)) AND (",
                $token,
                " = $2 OR $5 IS NULL ",
                "OR $5 <= floor(extract(EPOCH FROM clock_timestamp()) * 1000000)::BIGINT + 3600000000)",
            ),
            concat!(
                "SELECT ",
                $token,
                " AS token, ",
                $holder,
                " AS holder, ",
                "floor(extract(EPOCH FROM clock_timestamp()) * 1000000)::BIGINT AS now FROM ",
                $table,
                " WHERE ",
                $id,
                " = $1 FOR UPDATE",
            ),
        )
    };
    (MySql, table: $table:literal, id: $id:literal, token: $token:literal, holder: $holder:literal $(,)?) => {
        $crate::fence::ColumnFence::<::sqlx::MySql>::from_statements(
            concat!(
                "UPDATE ",
                $table,
                " SET ",
                $token,
                " = ?, ",
                $holder,
                " = ? WHERE ",
                $id,
                " = ? AND (((",
                $token,
                " IS NULL OR ",
                $token,
                " < ?) AND COALESCE(?, 0) <= ",
                "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) + 3600000000) ",
                "OR (",
                $token,
                " = ? AND ",
                $holder,
                " = ?))",
            ),
            concat!(
                "SELECT ",
                $token,
                " AS token, ",
                $holder,
                " AS holder, ",
                "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) AS now FROM ",
                $table,
                " WHERE ",
                $id,
                " = ? FOR UPDATE",
            ),
        )
    };
    (Sqlite, table: $table:literal, id: $id:literal, token: $token:literal, holder: $holder:literal $(,)?) => {
        $crate::fence::ColumnFence::<::sqlx::Sqlite>::from_statements(
            concat!(
                "UPDATE ",
                $table,
                " SET ",
                $token,
                " = ?2, ",
                $holder,
                " = ?3 WHERE ",
                $id,
                " = ?1 AND (",
                $token,
                " IS NULL OR ",
                $token,
                " < ?2 OR (",
                $token,
                " = ?2 AND ",
                $holder,
                " = ?4)) AND (",
                $token,
                " = ?2 OR ?5 IS NULL OR ?5 <= CAST(unixepoch('subsec') * 1000000 AS INTEGER) + 3600000000)",
            ),
            concat!(
                "SELECT ",
                $token,
                " AS token, ",
                $holder,
                " AS holder, ",
                "CAST(unixepoch('subsec') * 1000000 AS INTEGER) AS now FROM ",
                $table,
                " WHERE ",
                $id,
                " = ?1",
            ),
        )
    };
}
