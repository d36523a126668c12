//! Writes that wait until replicas have them.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt as _;
use idempotency::StoreError;
use redis::aio::MultiplexedConnection;
use redis::{Cmd, RedisError, Value};
use tokio::time::Instant;

use crate::connect::Source;
use crate::error::{NotReplicated, ends_connection, is_unknown_script, may_be_tried_again};
use crate::link::{Resend, by_code, by_hash, connected, honest, within};
use crate::scripts::Code;

/// Connections of their own: WAIT holds up whatever comes behind it, and counts what was written through the same one.
pub(crate) struct Replicas {
    wanted: u32,
    patience: Duration,
    idle: Mutex<Vec<MultiplexedConnection>>,
}

impl Replicas {
    pub(crate) const fn new(wanted: u32, patience: Duration) -> Self {
        Self { wanted, patience, idle: Mutex::new(Vec::new()) }
    }

    /// Runs a script, and waits if its answer says that it wrote: the answer, and whether enough replicas have it.
    pub(crate) async fn run(
        &self,
        (source, timeout): (&Source, Duration),
        (script, keys): (&Code, &[String]),
        resend: Resend,
        arguments: impl Fn(&mut Cmd),
        wrote: impl Fn(&Value) -> bool + Send + Sync,
    ) -> Result<(Value, Result<(), NotReplicated>), RedisError> {
        let deadline = Instant::now() + timeout;
        let calls = [by_hash(script, keys, &arguments), by_code(script, keys, &arguments)];
        let idle = self.idle().pop();
        let mut first = None;
        if let Some(connection) = idle {
            let answered = self.run_on(connection, deadline, &calls, &wrote).boxed().await;
            if answered.as_ref().is_err_and(ends_connection) {
                // It was broken, or leads to a server that is not the primary any more, or to one that is not there; so may all others.
                self.idle().clear();
            }
            match answered {
                Err(error) if may_be_tried_again(&error) && resend.after(&error) => first = Some(error),
                answered => return answered,
            }
        }
        let answered = match connected(deadline, source.connect()).await {
            Ok(connection) => self.run_on(connection, deadline, &calls, &wrote).boxed().await,
            Err(error) => Err(error),
        };
        match (first, answered) {
            (Some(error), Err(again)) => Err(honest(error, again)),
            (_, answered) => answered,
        }
    }

    /// A connection on which anything failed is not used again.
    async fn run_on(
        &self,
        mut connection: MultiplexedConnection,
        deadline: Instant,
        [by_hash, by_code]: &[Cmd; 2],
        wrote: impl Fn(&Value) -> bool + Send + Sync,
    ) -> Result<(Value, Result<(), NotReplicated>), RedisError> {
        let value = match within(deadline, by_hash.query_async(&mut connection)).await {
            Err(error) if is_unknown_script(&error) => within(deadline, by_code.query_async(&mut connection)).await?,
            answered => answered?,
        };
        if !wrote(&value) {
            self.put(connection);
            return Ok((value, Ok(())));
        }
        let mut wait = redis::cmd("WAIT");
        // To wait for no time would be to wait for ever.
        let patience = u64::try_from(self.patience.as_millis()).unwrap_or(u64::MAX).max(1);
        wait.arg(self.wanted).arg(patience);
        let reached = match within(deadline + self.patience, wait.query_async(&mut connection)).await {
            Ok(reached) => {
                self.put(connection);
                reached
            }
            Err(error) => {
                tracing::warn!(%error, "it is not known how many replicas have a write");
                0
            }
        };
        let replicated =
            if reached < self.wanted { Err(NotReplicated { reached, wanted: self.wanted }) } else { Ok(()) };
        Ok((value, replicated))
    }

    fn put(&self, connection: MultiplexedConnection) {
        let mut idle = self.idle();
        if idle.len() < MOST_IDLE {
            idle.push(connection);
        }
    }

    fn idle(&self) -> MutexGuard<'_, Vec<MultiplexedConnection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts and says that a write is on too few replicas.
pub(crate) fn not_replicated(operation: &'static str, error: NotReplicated) -> StoreError {
    metrics::counter!("idempotency_redis_not_replicated_total", "operation" => operation).increment(1);
    tracing::warn!(operation, %error, "a write is on too few replicas");
    error.into()
}

/// Beyond so many at once, a connection is used once.
const MOST_IDLE: usize = 32;
