//! How fences are opened: in a transaction whose first statements these are, again as a whole while others are in the
//! way.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use idempotency::{FenceTicket, FencingToken, Resource, StoreError, StoreErrorKind, Timestamp};
use sqlx::{AssertSqlSafe, Connection as _, Database, Pool, Transaction};

use super::FenceError;
use super::admit::{Admit, Asked, NOBODY, Stored};
use super::dialect::{self, FenceDatabase};
use super::transaction::{FencedTransaction, Opened, Tenure};
use super::tries::{Refusal, Tries};
use crate::row::{Values, token_number};

/// What fences are opened with. Outside of this crate there is no way to make one.
pub struct Desk<D: Database> {
    pub(super) pool: Pool<D>,
    pub(super) begin: Arc<str>,
    pub(super) admit: Admit,
    /// How long the opening as a whole tries again.
    pub(super) patience: Duration,
    /// Whether statements are prepared once a session.
    pub(super) kept: bool,
    /// The statement that reads the number of the database's timeline, where there is one.
    pub(super) timeline: Option<&'static str>,
}

impl<D: FenceDatabase> Desk<D> {
    /// Opens what is asked for, in this order.
    pub(super) async fn open(self, first: Asked, others: Vec<Asked>) -> Result<FencedTransaction<D>, FenceError> {
        let mut tries = self.tries();
        loop {
            let result = self.try_to_open(&first, &others).await;
            if let Some(opened) = tries.judge(result).await? {
                return Ok(opened);
            }
        }
    }

    /// Opens once more what one tenure had opened, as its only transaction at a time or `beside` others.
    pub(super) async fn again(self, opened: Opened, beside: Beside) -> Result<FencedTransaction<D>, FenceError> {
        let mut tries = self.tries();
        loop {
            let result = self.try_again(&opened, beside).await;
            if let Some(opened) = tries.judge(result).await? {
                return Ok(opened);
            }
        }
    }

    async fn try_to_open(&self, first: &Asked, others: &[Asked]) -> Result<FencedTransaction<D>, Refusal> {
        let mut transaction = self.begin().await?;
        let tenure = self.admit(&mut transaction, first).await?;
        let mut tenures = Vec::with_capacity(others.len());
        for asked in others {
            tenures.push(self.admit(&mut transaction, asked).await?);
        }
        Ok(FencedTransaction::new(transaction, tenure, tenures, self.clone()))
    }

    async fn try_again(&self, opened: &Opened, beside: Beside) -> Result<FencedTransaction<D>, Refusal> {
        let mut transaction = self.begin().await?;
        let tenure = self.resume(&mut transaction, &opened.first, beside).await?;
        let mut tenures = Vec::with_capacity(opened.others.len());
        for one in &opened.others {
            tenures.push(self.resume(&mut transaction, one, beside).await?);
        }
        let timeline = self.timeline(&mut transaction).await?;
        if timeline != opened.timeline {
            return Err(FenceError::Rewound.into());
        }
        Ok(FencedTransaction::new(transaction, tenure, tenures, self.clone()))
    }

    pub(super) fn tries(&self) -> Tries {
        Tries::new(self.patience, D::LONGEST_PAUSE)
    }

    pub(super) async fn begin(&self) -> Result<Transaction<'static, D>, Refusal> {
        match self.pool.begin_with(AssertSqlSafe(Arc::clone(&self.begin))).await {
            // Not so: it was ended by SQLite itself or by hand, and the pool lends the connection as it is.
            Err(error @ sqlx::Error::InvalidSavePointStatement) => {
                self.close_those_in_a_transaction().await.map_err(D::refusal)?;
                Err(Refusal::Again(StoreError::new(StoreErrorKind::Busy, error)))
            }
            begun => begun.map_err(D::refusal),
        }
    }

    /// Closes the pool's connections that are taken to be in a transaction although nobody has them.
    async fn close_those_in_a_transaction(&self) -> Result<(), sqlx::Error> {
        // Waits for one that is on its way back.
        let first = self.pool.acquire().await?;
        let idle: Vec<_> = std::iter::once(first).chain(std::iter::from_fn(|| self.pool.try_acquire())).collect();
        for mut connection in idle {
            if connection.is_in_transaction() {
                connection.close_on_drop();
            }
        }
        Ok(())
    }

    async fn admit(&self, connection: &mut D::Connection, asked: &Asked) -> Result<Tenure, Refusal> {
        if let Some(tenure) = self.advance(connection, asked).await? {
            return Ok(tenure);
        }
        match self.lock(connection, &asked.resource, D::LOCK).await? {
            Some((now, stored)) => {
                let (token, opened_at) = (asked.judge(now, &stored)?, next(&stored, now));
                self.write(connection, D::WRITE, asked, Some(token), opened_at).await?;
                Ok(asked.tenure(token, opened_at))
            }
            None => self.insert(connection, asked).await,
        }
    }

    /// The way of most openings, in one statement where the database has one.
    async fn advance(&self, connection: &mut D::Connection, asked: &Asked) -> Result<Option<Tenure>, Refusal> {
        let Some(sql) = D::ADVANCE else { return Ok(None) };
        let leeway = asked.source.is_time().then(|| idempotency::time::micros(idempotency::TOKEN_HOLD));
        let statement = self
            .statement(sql)
            .blob(Some(asked.resource.as_bytes()))
            .integer(Some(asked.source.number().into()))
            .integer(asked.token.map(token_number))
            .blob(Some(&asked.holder))
            .blob(asked.again.then_some(&asked.holder[..]))
            .integer(leeway);
        let rows = D::fetch(connection, statement).await.map_err(D::refusal)?;
        let Some(row) = rows.first() else { return Ok(None) };
        let token = token(dialect::integer(row, "token")?)?;
        let opened_at = Timestamp::from_micros(dialect::integer(row, "opened_at")?);
        Ok(Some(asked.tenure(token, opened_at)))
    }

    async fn insert(&self, connection: &mut D::Connection, asked: &Asked) -> Result<Tenure, Refusal> {
        let (now, least) = self.share_watermark(connection, asked.source.number().into()).await?;
        let token = asked.judge_missing(now, least)?;
        self.write(connection, D::INSERT, asked, Some(token), now).await?;
        Ok(asked.tenure(token, now))
    }

    async fn resume(&self, connection: &mut D::Connection, tenure: &Tenure, beside: Beside) -> Result<Tenure, Refusal> {
        let lock = if beside == Beside::Others { D::LOCK_SHARED } else { D::LOCK };
        let Some((now, stored)) = self.lock(connection, &tenure.resource, lock).await? else {
            return Err(FenceError::Rewound.into());
        };
        tenure.is_still(&stored, self.admit)?;
        if beside == Beside::Others {
            return Ok(tenure.clone());
        }
        let (token, opened_at) = (tenure.ticket.token, next(&stored, now));
        let asked = Asked::brought(&tenure.resource, &tenure.ticket, Admit::SameOrNewer);
        self.write(connection, D::WRITE, &asked, Some(token), opened_at).await?;
        Ok(asked.tenure(token, opened_at))
    }

    pub(super) async fn lock(
        &self,
        connection: &mut D::Connection,
        resource: &Resource,
        lock: &'static str,
    ) -> Result<Option<(Timestamp, Stored)>, Refusal> {
        let statement = self.statement(lock).blob(Some(resource.as_bytes()));
        let rows = D::fetch(connection, statement).await.map_err(D::refusal)?;
        Ok(rows.first().map(dialect::stored).transpose()?)
    }

    pub(super) async fn write(
        &self,
        connection: &mut D::Connection,
        sql: &'static str,
        asked: &Asked,
        token: Option<FencingToken>,
        opened_at: Timestamp,
    ) -> Result<(), Refusal> {
        match D::change(connection, D::written(self.statement(sql), asked, token, opened_at)).await {
            Ok(0) => Err(made_meanwhile()),
            Ok(_) => Ok(()),
            Err(error) if D::is_duplicate(&error) => Err(made_meanwhile()),
            Err(error) => Err(D::refusal(error)),
        }
    }

    /// The clock, and the least token of this source where nothing is known of a resource. Sources that are not of a
    /// clock have no watermark, and their fences are never purged.
    pub(super) async fn share_watermark(
        &self,
        connection: &mut D::Connection,
        source: i64,
    ) -> Result<(Timestamp, Option<FencingToken>), Refusal> {
        let statement = self.statement(D::SHARE_WATERMARK).integer(Some(source));
        let rows = D::fetch(connection, statement).await.map_err(D::refusal)?;
        let row = rows.first().ok_or_else(|| D::store_error(sqlx::Error::RowNotFound))?;
        Ok((crate::row::now(row)?, crate::row::token(dialect::integer(row, "least_token")?)))
    }

    /// On which timeline of the database this is; always the same where it has none. Where it has, also whether the
    /// transaction is the one that was begun.
    pub(super) async fn timeline(&self, connection: &mut D::Connection) -> Result<i64, FenceError> {
        let Some(sql) = self.timeline else { return Ok(0) };
        let rows = D::fetch(connection, self.statement(sql)).await.map_err(D::failed)?;
        let row = rows.first().ok_or(FenceError::Poisoned)?;
        Ok(dialect::integer(row, "timeline")?)
    }

    pub(super) fn statement(&self, sql: &'static str) -> D::Ours {
        D::statement(sql, self.kept)
    }
}

impl Asked {
    fn tenure(&self, token: FencingToken, opened_at: Timestamp) -> Tenure {
        Tenure { resource: self.resource.clone(), ticket: self.ticket(token), opened_at }
    }
}

impl Tenure {
    /// Sees that the fence stands as this tenure left it. What is older than that was set back.
    fn is_still(&self, stored: &Stored, admit: Admit) -> Result<(), FenceError> {
        let FenceTicket { token: mine, holder, source } = self.ticket;
        if stored.source != source {
            return Err(FenceError::SourceMismatch { stored: stored.source });
        }
        let holder = holder.map_or(NOBODY, |holder| *holder.as_bytes());
        match stored.token {
            Some(current) if current > mine => Err(FenceError::Superseded { current }),
            Some(current) if current == mine && stored.holder != holder => Err(FenceError::Superseded { current }),
            Some(current) if current == mine && (holder == NOBODY || admit == Admit::StrictlyNewer) => {
                Err(FenceError::AlreadyApplied)
            }
            Some(current) if current == mine && stored.opened_at >= self.opened_at => Ok(()),
            _ => Err(FenceError::Rewound),
        }
    }
}

/// Whether other transactions of the same tenure may run at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Beside {
    Nobody,
    Others,
}

fn made_meanwhile() -> Refusal {
    Refusal::Again(StoreError::new(StoreErrorKind::Busy, "somebody else made the fence meanwhile"))
}

/// A time that is later than the last opening's, whatever the clock does.
fn next(stored: &Stored, now: Timestamp) -> Timestamp {
    now.max(stored.opened_at.after(Duration::from_micros(1)))
}

fn token(number: i64) -> Result<FencingToken, StoreError> {
    crate::row::token(number).ok_or_else(|| crate::row::refuse(crate::row::Unreadable::Value("token")))
}

impl<D: Database> Clone for Desk<D> {
    fn clone(&self) -> Self {
        Self { pool: self.pool.clone(), begin: Arc::clone(&self.begin), ..*self }
    }
}

impl<D: Database> fmt::Debug for Desk<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Desk")
            .field("begin", &self.begin)
            .field("admit", &self.admit)
            .field("patience", &self.patience)
            .finish_non_exhaustive()
    }
}
