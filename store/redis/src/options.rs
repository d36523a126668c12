//! The settings of a [`RedisStore`].

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use idempotency::{Clock, KeyClass, OpenError, RecordId, Timestamp};
use tokio::sync::Mutex;

use crate::cluster::Cluster;
use crate::connect::{Credentials, Source};
use crate::db::Db;
use crate::group::Groups;
use crate::hints::Hints;
use crate::keys::Keys;
use crate::link::{Link, Resend};
use crate::replicas::Replicas;
use crate::scripts;
use crate::store::RedisStore;
use crate::url::{Place, refused};

/// How a [`RedisStore`] is opened: [`RedisStore::options`].
#[derive(Clone)]
#[must_use = "nothing is opened before `open`"]
pub struct RedisOptions {
    url: String,
    prefix: String,
    response_timeout: Duration,
    not_before: HashMap<KeyClass, Timestamp>,
    replicas: Option<(u32, Duration)>,
    shares_commands: bool,
    credentials: Credentials,
    clock: Option<Arc<dyn Clock>>,
}

impl RedisOptions {
    pub(crate) fn new(url: &str) -> Self {
        Self {
            url: url.to_owned(),
            prefix: "idem:".to_owned(),
            response_timeout: Duration::from_secs(1),
            not_before: HashMap::new(),
            replicas: None,
            shares_commands: true,
            credentials: Credentials::default(),
            clock: None,
        }
    }

    /// What the names of all keys begin with. Services with different prefixes share no record.
    ///
    /// Default: `idem:`. Braces are refused: they would move the keys of a cluster. With another prefix than before, everything is
    /// forgotten.
    pub fn prefix(self, prefix: &str) -> Self {
        Self { prefix: prefix.to_owned(), ..self }
    }

    /// How long an operation may take in all, a new connection and a second try included. Then it ends with
    /// [`Timeout`](idempotency::StoreErrorKind::Timeout), or with
    /// [`Unavailable`](idempotency::StoreErrorKind::Unavailable) if there was no connection to send it on; the next operation
    /// has a new connection.
    ///
    /// Default: 1 s, the store timeout of a layer, which is what it should be. Longer is pointless: the claimer has given up by then. Much shorter, and
    /// a fork, a slow disk or a failover becomes an outage. A claim or a completion that shared a command, and has to be asked for alone after
    /// that, waits twice as long at most, and a tenth of a second.
    pub fn response_timeout(self, response_timeout: Duration) -> Self {
        Self { response_timeout, ..self }
    }

    /// Refuses keys of a class that say that they were made at this time or before, if no record answers for them.
    ///
    /// Default: none. To be set to the time of the change when the maximum age of a class is raised: the records of older keys may
    /// be gone, since Redis keeps no floor per class as SQL stores do.
    pub fn not_before(mut self, class: KeyClass, time: Timestamp) -> Self {
        self.not_before.insert(class, time);
        self
    }

    /// Has the grant of a claim or of a lease, and a completion, wait until so many replicas have acknowledged it, for at most
    /// `patience` beyond the response timeout. Each such operation has a connection of its own meanwhile, since what comes behind a
    /// waiting command waits too, and takes one more round trip.
    ///
    /// A claim or a lease that reached too few is given up at once, and the answer is
    /// [`Unavailable`](idempotency::StoreErrorKind::Unavailable), from [`NotReplicated`](crate::NotReplicated). A completion cannot
    /// be taken back: the primary has it, the answer is the same error, and a repeated completion waits again. Both are counted
    /// in `idempotency_redis_not_replicated_total`.
    ///
    /// Default: no waiting. A write that replicas have acknowledged is more likely to survive a failover, and may still be lost: a
    /// replica that did not get it can be the one that is promoted. Not for clusters.
    pub fn wait_for_replicas(self, replicas: u32, patience: Duration) -> Self {
        Self { replicas: Some((replicas, patience)), ..self }
    }

    /// Whether claims, and completions, that meet share a command: see the store's [first rule](RedisStore).
    ///
    /// Default: true, which is right where the URL leads to one server, as it is to. Such a command has keys of any slots: a proxy that picks a server by
    /// the first of them, as Envoy and twemproxy do, **would look for the others on the wrong one, and run requests twice**. Set it to false
    /// behind any of those.
    pub fn share_commands(self, share_commands: bool) -> Self {
        Self { shares_commands: share_commands, ..self }
    }

    /// User and password at the sentinels, an empty user for the default one. Those in the URL are for the primary.
    ///
    /// Default: none.
    pub fn sentinel_credentials(mut self, user: &str, password: &str) -> Self {
        self.credentials.sentinel = Some((user.to_owned(), password.to_owned()));
        self
    }

    /// Trusts the authorities in this PEM file, and no others, with `rediss://`.
    ///
    /// Default: those that the machine trusts.
    #[cfg(feature = "tls")]
    pub fn root_certificates(mut self, pem: &[u8]) -> Self {
        let client_tls = self.credentials.certificates.take().and_then(|certificates| certificates.client_tls);
        self.credentials.certificates = Some(redis::TlsCertificates { client_tls, root_cert: Some(pem.to_vec()) });
        self
    }

    /// Shows the server this certificate, with this key, both as PEM.
    ///
    /// Default: none.
    #[cfg(feature = "tls")]
    pub fn client_certificate(mut self, certificate: &[u8], key: &[u8]) -> Self {
        let root_cert = self.credentials.certificates.take().and_then(|certificates| certificates.root_cert);
        let client_tls = Some(redis::ClientTlsConfig { client_cert: certificate.to_vec(), client_key: key.to_vec() });
        self.credentials.certificates = Some(redis::TlsCertificates { client_tls, root_cert });
        self
    }

    /// Replaces the server's clock, for tests. When Redis forgets keys by itself still goes by the server's.
    pub fn clock(self, clock: impl Clock) -> Self {
        Self { clock: Some(Arc::new(clock)), ..self }
    }

    /// Connects, and has the server run a script that changes nothing.
    ///
    /// # Errors
    /// [`OpenError::Url`] for a URL or a prefix that is refused, [`OpenError::Store`] when the server cannot be reached
    /// ([`Unavailable`](idempotency::StoreErrorKind::Unavailable)) or refuses the user, the database or the script
    /// ([`Refused`](idempotency::StoreErrorKind::Refused)), as one older than Redis 7 does.
    ///
    /// # Panics
    /// Outside a tokio runtime whose time is enabled.
    ///
    /// # Cancel safety
    /// Cancel safe: opening changes nothing in the database.
    pub async fn open(self) -> Result<RedisStore, OpenError> {
        let place = Place::parse(&self.url)?;
        #[cfg(feature = "tls")]
        crate::connect::provide_cryptography();
        let keys = Keys::new(&self.prefix).ok_or_else(|| refused("the prefix of keys holds a brace"))?;
        let timeout = self.response_timeout;
        let link = match &place {
            Place::Cluster(_) if self.replicas.is_some() => {
                return Err(refused("a store in a cluster does not wait for replicas"));
            }
            Place::Cluster(nodes) => {
                Link::to_cluster(Cluster::connect(nodes, &self.credentials, timeout).await?, timeout)
            }
            _ => Link::to_primary(Source::new(&place, &self.credentials, timeout)?, timeout),
        };
        let hints = link.source().map(|source| Hints::new(Arc::clone(source), timeout));
        // Elsewhere keys are of many slots, or each write is waited for.
        let shares = self.shares_commands && link.source().is_some() && self.replicas.is_none();
        let db = Db {
            link,
            hints,
            keys,
            clock: self.clock,
            not_before: self.not_before,
            replicas: self.replicas.map(|(wanted, patience)| Replicas::new(wanted, patience)),
            claims: Groups::new(&scripts::CLAIMS, Resend::Refused, !shares),
            completions: Groups::new(&scripts::COMPLETIONS, Resend::Broken, !shares),
            records: Mutex::new(None),
            leases: Mutex::new(None),
        };
        db.run(&scripts::INSPECT, &db.keys.record(&RecordId::from_bytes([0; 32])), |_| {}).await?;
        Ok(RedisStore { db: Arc::new(db) })
    }
}

/// Says nothing of the URL: it may hold a password.
impl std::fmt::Debug for RedisOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RedisOptions")
            .field("prefix", &self.prefix)
            .field("response_timeout", &self.response_timeout)
            .field("replicas", &self.replicas)
            .field("shares_commands", &self.shares_commands)
            .finish_non_exhaustive()
    }
}
