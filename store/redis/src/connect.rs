//! New connections.

use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt as _, StreamExt as _};
use idempotency::OpenError;
use redis::aio::{MultiplexedConnection, PubSub};
use redis::cluster::{ClusterClient, ClusterClientBuilder};
use redis::cluster_async::ClusterConnection;
use redis::io::tcp::TcpSettings;
use redis::sentinel::{SentinelClient, SentinelClientBuilder, SentinelServerType};
use redis::{AsyncConnectionConfig, Client, ConnectionAddr, ConnectionInfo, ErrorKind, ProtocolVersion, RedisError};
use tokio::sync::Mutex;
use tokio::time::sleep;

use crate::url::{Place, refused};

/// What connections are made with, beside where they lead.
#[derive(Clone, Default)]
pub(crate) struct Credentials {
    /// Of the sentinels: user, empty for the default one, and password.
    pub(crate) sentinel: Option<(String, String)>,
    #[cfg(feature = "tls")]
    pub(crate) certificates: Option<redis::TlsCertificates>,
}

/// Connects to the primary, wherever it is now.
pub(crate) struct Source {
    newer: Servers,
    older: Servers,
    /// The server does not speak RESP3.
    is_older: AtomicBool,
    config: AsyncConnectionConfig,
}

enum Servers {
    Single(Box<Client>),
    /// A client for each: one for all would wait for those that are silent, in their order.
    Sentinels(Vec<Mutex<SentinelClient>>),
}

impl Source {
    /// To one server, or to the primary that sentinels name; not to a cluster.
    pub(crate) fn new(place: &Place, credentials: &Credentials, timeout: Duration) -> Result<Self, OpenError> {
        let servers =
            |protocol| Servers::new(place, credentials, protocol).map_err(|_| refused("the client refuses it"));
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(timeout))
            // Every command is timed by whoever waits for it.
            .set_response_timeout(None)
            .set_pipeline_buffer_size(PIPELINE);
        let (newer, older) = (servers(ProtocolVersion::RESP3)?, servers(ProtocolVersion::RESP2)?);
        Ok(Self { newer, older, is_older: AtomicBool::new(false), config })
    }

    pub(crate) async fn connect(&self) -> Result<MultiplexedConnection, RedisError> {
        if !self.is_older.load(Ordering::Relaxed) {
            match self.newer.connect(&self.config).await {
                Err(error) if error.kind() == ErrorKind::RESP3NotSupported => {
                    self.is_older.store(true, Ordering::Relaxed);
                }
                connected => return connected,
            }
        }
        self.older.connect(&self.config).await
    }

    /// A connection to hear what is published. It has no timeouts.
    pub(crate) async fn listen(&self) -> Result<PubSub, RedisError> {
        // What is published can be heard on RESP2 too, and servers that do not speak RESP3 need not be told apart.
        self.older.client().await?.get_async_pubsub().await
    }
}

impl Servers {
    fn new(place: &Place, credentials: &Credentials, protocol: ProtocolVersion) -> Result<Self, RedisError> {
        match place {
            Place::Single(info) => {
                client(configured(info.clone(), protocol), credentials).map(Box::new).map(Self::Single)
            }
            Place::Sentinel { sentinels, service, primary } => {
                let client = |each| sentinel(each, service, primary, credentials, protocol).map(Mutex::new);
                sentinels.iter().map(client).collect::<Result<_, _>>().map(Self::Sentinels)
            }
            Place::Cluster(_) => Err((ErrorKind::InvalidClientConfig, "a cluster has more than one primary").into()),
        }
    }

    async fn connect(&self, config: &AsyncConnectionConfig) -> Result<MultiplexedConnection, RedisError> {
        self.client().await?.get_multiplexed_async_connection_with_config(config).await
    }

    /// The way to the primary, wherever it is now.
    async fn client(&self) -> Result<Cow<'_, Client>, RedisError> {
        match self {
            Self::Single(client) => Ok(Cow::Borrowed(client)),
            // Boxed, and its type forgotten: it is so deep that programs which spawn an operation would meet the compiler's limit.
            Self::Sentinels(clients) => named_by(clients).boxed().await.map(Cow::Owned),
        }
    }
}

/// The primary, as the first sentinel says that knows it. They are asked one after the other, and none waits long for those before.
async fn named_by(sentinels: &[Mutex<SentinelClient>]) -> Result<Client, RedisError> {
    let ask = async |(place, sentinel): (u32, &Mutex<SentinelClient>)| {
        sleep(HEAD_START * place).await;
        sentinel.lock().await.async_get_client().await
    };
    let mut asked: FuturesUnordered<_> = (0..).zip(sentinels).map(ask).collect();
    let mut last = None;
    while let Some(answer) = asked.next().await {
        match answer {
            Err(error) if error.kind() != ErrorKind::RESP3NotSupported => last = Some(error),
            told => return told,
        }
    }
    Err(last.unwrap_or_else(|| (ErrorKind::InvalidClientConfig, "there is no sentinel").into()))
}

/// What a sentinel has before the next one is asked too: far longer than an answer takes.
const HEAD_START: Duration = Duration::from_millis(200);

/// rustls has a provider of cryptography for the whole process, which programs install at their start. A library that finds none
/// chooses one, or connecting would panic.
#[cfg(feature = "tls")]
pub(crate) fn provide_cryptography() {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // An error means that somebody was faster.
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
}

#[cfg(feature = "tls")]
fn client(info: ConnectionInfo, credentials: &Credentials) -> Result<Client, RedisError> {
    match (&credentials.certificates, info.addr()) {
        (Some(certificates), ConnectionAddr::TcpTls { .. }) => Client::build_with_tls(info, certificates.clone()),
        _ => Client::open(info),
    }
}

#[cfg(not(feature = "tls"))]
fn client(info: ConnectionInfo, _: &Credentials) -> Result<Client, RedisError> {
    Client::open(info)
}

fn configured(info: ConnectionInfo, protocol: ProtocolVersion) -> ConnectionInfo {
    let settings = info.redis_settings().clone().set_protocol(protocol);
    info.set_redis_settings(settings).set_tcp_settings(tcp())
}

fn sentinel(
    sentinel: &ConnectionInfo,
    service: &str,
    primary: &ConnectionInfo,
    credentials: &Credentials,
    protocol: ProtocolVersion,
) -> Result<SentinelClient, RedisError> {
    let addresses = [sentinel.addr().clone()];
    let settings = primary.redis_settings();
    let mut builder = SentinelClientBuilder::new(addresses, service, SentinelServerType::Master)?
        .set_client_to_redis_db(settings.db())
        .set_client_to_redis_protocol(protocol)
        .set_client_to_redis_tcp_settings(tcp())
        .set_client_to_sentinel_protocol(protocol)
        .set_client_to_sentinel_tcp_settings(tcp());
    if let Some(username) = settings.username() {
        builder = builder.set_client_to_redis_username(username);
    }
    if let Some(password) = settings.password() {
        builder = builder.set_client_to_redis_password(password);
    }
    if let Some((username, password)) = &credentials.sentinel {
        builder = builder.set_client_to_sentinel_password(password);
        if !username.is_empty() {
            builder = builder.set_client_to_sentinel_username(username);
        }
    }
    if matches!(primary.addr(), ConnectionAddr::TcpTls { .. }) {
        builder = builder
            .set_client_to_redis_tls_mode(redis::TlsMode::Secure)
            .set_client_to_sentinel_tls_mode(redis::TlsMode::Secure);
        #[cfg(feature = "tls")]
        if let Some(certificates) = &credentials.certificates {
            builder = builder
                .set_client_to_redis_certificates(certificates.clone())
                .set_client_to_sentinel_certificates(certificates.clone());
        }
    }
    builder.build()
}

/// A connection to a cluster. It finds the nodes, follows redirections and connects anew by itself.
pub(crate) async fn cluster(
    nodes: &[ConnectionInfo],
    credentials: &Credentials,
    timeout: Duration,
) -> Result<ClusterConnection, OpenError> {
    let mut last = None;
    for protocol in [ProtocolVersion::RESP3, ProtocolVersion::RESP2] {
        let client =
            cluster_client(nodes, credentials, timeout, protocol).map_err(|_| refused("the client refuses it"))?;
        match client.get_async_connection().await {
            Ok(connection) => return Ok(connection),
            // What the nodes answered is put together into one error, so that its kind says nothing.
            Err(error) => last = Some(error),
        }
    }
    let error = last.unwrap_or_else(|| (ErrorKind::ClusterConnectionNotFound, "no node").into());
    Err(crate::error::store_error(error).into())
}

fn cluster_client(
    nodes: &[ConnectionInfo],
    credentials: &Credentials,
    timeout: Duration,
    protocol: ProtocolVersion,
) -> Result<ClusterClient, RedisError> {
    let nodes: Vec<ConnectionInfo> = nodes.iter().map(|node| configured(node.clone(), protocol)).collect();
    let builder = ClusterClientBuilder::new(nodes)
        .use_protocol(protocol)
        .connection_timeout(timeout)
        .response_timeout(timeout)
        .overall_response_timeout(Some(timeout))
        .min_retry_wait(10)
        .max_retry_wait(200)
        .tcp_settings(tcp());
    with_certificates(builder, credentials).build()
}

#[cfg(feature = "tls")]
fn with_certificates(builder: ClusterClientBuilder, credentials: &Credentials) -> ClusterClientBuilder {
    match &credentials.certificates {
        Some(certificates) => builder.certs(certificates.clone()),
        None => builder,
    }
}

#[cfg(not(feature = "tls"))]
fn with_certificates(builder: ClusterClientBuilder, _: &Credentials) -> ClusterClientBuilder {
    builder
}

/// What is small is sent at once, and a peer that acknowledges nothing any more is given up.
fn tcp() -> TcpSettings {
    let settings = TcpSettings::default().set_nodelay(true);
    #[cfg(target_os = "linux")]
    let settings = settings.set_user_timeout(UNACKNOWLEDGED);
    settings
}

/// Far longer than any round trip takes, far shorter than the quarter of an hour that TCP tries by itself.
#[cfg(target_os = "linux")]
const UNACKNOWLEDGED: Duration = Duration::from_secs(10);

/// How many commands wait to be written before their callers do.
const PIPELINE: usize = 512;
