//! Leases in Redis.

use std::sync::Arc;
use std::time::Duration;

use idempotency::watch::Watch;
use idempotency::{
    Acquired, Ask, Lease, LeaseEntry, LeaseGrant, LeaseHolder, Leases, Nonce, OpenError, Resource, Settled, StoreError,
    StoreErrorKind,
};
use redis::{Cmd, Value};

use crate::db::{Db, duration};
use crate::error::store_error;
use crate::link::Resend;
use crate::replicas::not_replicated;
use crate::reply::{self, Reply, settled};
use crate::{RedisOptions, RedisStore, scripts, sweep};

/// Leases in a Redis, on the connection and the clock of a [`RedisStore`]: [`RedisStore::leases`].
///
/// ```no_run
/// use idempotency::{LeaseSettings, Leaser, Resource, Taken};
/// use idempotency_redis::RedisLeases;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let leaser = Leaser::new(RedisLeases::open("redis://localhost/").await?, LeaseSettings::default());
/// if let Taken::Yours(lease) = leaser.try_acquire(&Resource::parse("account/7")?).await? {
///     let ticket = lease.ticket()?; // what the fence of the account is opened with
/// #   let _ = ticket;
///     lease.release().await?;
/// }
/// # Ok(())
/// # }
/// ```
///
/// Each operation is one script and one round trip. The name of a resource is kept with its lease, for people; the name of its
/// key is a hash of it.
///
/// **Tokens rise** over release, expiry, takeover and sweep, as [`lease_protocol`](idempotency::lease_protocol) says, and the last
/// one of a resource is remembered for a day beyond what is asked for: a token is at least the server's clock in microseconds, so
/// when even that is forgotten, after a flush, an eviction, a restart without persistence or a failover that lost the newest
/// grants, the next token is above all of them, unless the clock of the new primary is behind that of the old one at the last
/// grant. A fence with its own memory notices that, and asks for a token [`above`](Ask::above) what it has seen.
///
/// **What was lost may be granted again**: two holders believe at the same time, and the fence refuses the older one. The rules
/// of the store on persistence, failover, memory and connections hold here too. When the server is out of memory an asking ends with
/// [`Unavailable`](StoreErrorKind::Unavailable); renewing and giving back go on.
///
/// # Panics
/// Every operation panics outside a tokio runtime whose time is enabled.
///
/// # Cancel safety
/// As the store: dropped before it was polled, an operation does nothing; later, it may or may not be carried out, and if it is,
/// then whole.
#[derive(Clone)]
pub struct RedisLeases {
    db: Arc<Db>,
}

impl RedisLeases {
    /// Opens leases at `redis://HOST` with the default settings, on a connection of their own: [`RedisOptions::open`].
    ///
    /// # Errors
    /// As [`RedisOptions::open`].
    ///
    /// # Panics
    /// As [`RedisOptions::open`].
    ///
    /// # Cancel safety
    /// As [`RedisOptions::open`].
    pub async fn open(url: &str) -> Result<Self, OpenError> {
        RedisOptions::new(url).open().await.map(|store| store.leases())
    }
}

impl RedisStore {
    /// Leases beside the records, on the same connection.
    #[must_use]
    pub fn leases(&self) -> RedisLeases {
        RedisLeases { db: Arc::clone(&self.db) }
    }
}

impl Leases for RedisLeases {
    async fn try_acquire(&self, ask: &Ask) -> Result<Acquired, StoreError> {
        let arguments = |command: &mut Cmd| {
            command
                .arg(ask.nonce.as_bytes())
                .arg(duration(ask.lease.length()))
                .arg(ask.above.map_or(0, idempotency::FencingToken::get))
                .arg(ask.resource.as_bytes());
        };
        let key = self.db.keys.lease(&ask.resource);
        let granted = |answer: &Value| matches!(acquired(answer.clone()), Ok(Acquired::Granted(_)));
        let answered = self.db.write((&scripts::LEASE_ACQUIRE, &key), Resend::Refused, arguments, granted).await;
        let (answer, replicated) = answered.map_err(store_error)?;
        let acquired = acquired(answer)?;
        if let Err(short) = replicated {
            // Nobody holds it. Should this fail too, the asker abandons it once more when it sees the error.
            if let Err(error) = self.abandon(&ask.resource, ask.nonce, DEAD_FOR).await {
                tracing::warn!(resource = %ask.resource, %error, "a lease on too few replicas was not abandoned");
            }
            return Err(not_replicated("acquire", short));
        }
        Ok(acquired)
    }

    async fn renew(&self, holder: &LeaseHolder, lease: Lease) -> Result<Settled, StoreError> {
        let arguments = |command: &mut Cmd| {
            held(command, holder);
            command.arg(duration(lease.length()));
        };
        settled(self.db.run(&scripts::LEASE_RENEW, &self.db.keys.lease(&holder.resource), arguments).await?)
    }

    async fn release(&self, holder: &LeaseHolder, dead_for: Duration) -> Result<Settled, StoreError> {
        let arguments = |command: &mut Cmd| {
            held(command, holder);
            command.arg(duration(dead_for));
        };
        settled(self.db.run(&scripts::LEASE_RELEASE, &self.db.keys.lease(&holder.resource), arguments).await?)
    }

    async fn abandon(&self, resource: &Resource, nonce: Nonce, dead_for: Duration) -> Result<(), StoreError> {
        let arguments = |command: &mut Cmd| {
            command.arg(nonce.as_bytes()).arg(duration(dead_for)).arg(resource.as_bytes());
        };
        settled(self.db.run(&scripts::LEASE_ABANDON, &self.db.keys.lease(resource), arguments).await?).map(drop)
    }

    fn watch(&self, resource: &Resource) -> Watch {
        let [lease] = self.db.keys.lease(resource);
        self.db.watch(&lease)
    }

    async fn inspect(&self, resource: &Resource) -> Result<Option<LeaseEntry>, StoreError> {
        let answer = self.db.run(&scripts::LEASE_INSPECT, &self.db.keys.lease(resource), |_| {}).await?;
        let mut reply = Reply::new(answer)?;
        match reply.text()?.as_str() {
            "absent" => Ok(None),
            "known" => {
                let token = reply.optional_token()?;
                let lease_left = reply.optional_number()?.map(Duration::from_micros);
                Ok(Some(LeaseEntry { token, lease_left }))
            }
            other => Err(reply::not(other)),
        }
    }

    async fn sweep(&self, limit: usize) -> Result<usize, StoreError> {
        sweep::leases(&self.db, limit).await
    }
}

impl std::fmt::Debug for RedisLeases {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RedisLeases").finish_non_exhaustive()
    }
}

fn acquired(answer: Value) -> Result<Acquired, StoreError> {
    let mut reply = Reply::new(answer)?;
    match reply.text()?.as_str() {
        "granted" => Ok(Acquired::Granted(LeaseGrant { token: reply.token()?, lease_left: reply.duration()? })),
        "held" => Ok(Acquired::Held { lease_left: reply.duration()? }),
        "refused" => Ok(Acquired::Refused),
        "too far" => Err(StoreError::new(StoreErrorKind::Refused, "the token is too far ahead of the store's clock")),
        other => Err(reply::not(other)),
    }
}

fn held(command: &mut Cmd, holder: &LeaseHolder) {
    command.arg(holder.token.get()).arg(holder.nonce.as_bytes());
}

/// How long the nonce of an asking stays dead whose grant is on too few replicas.
const DEAD_FOR: Duration = Duration::from_secs(120);
