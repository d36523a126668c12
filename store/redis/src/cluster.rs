//! The way to a cluster: one client that everything shares, and another one when it gets no answers.
//!
//! The library's client finds the nodes, follows redirections and connects anew by itself, but not when a connection is silent: what a
//! machine that hangs was asked is asked on the same connection for ever, also when a replica has taken over. So whoever got no answer has another
//! client made, which takes over if *it* gets one for the same slot. It need not: where nobody has taken over, the old one still serves the
//! other slots, and a new one would wait for the silent node again and again.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use idempotency::OpenError;
use redis::cluster_async::ClusterConnection;
use redis::{Cmd, ConnectionInfo, ErrorKind, RedisError, ServerErrorKind, Value};
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep, timeout};

use crate::connect::{Credentials, cluster};
use crate::link::within;

pub(crate) struct Cluster(Arc<Shared>);

struct Shared {
    nodes: Vec<ConnectionInfo>,
    credentials: Credentials,
    timeout: Duration,
    current: Mutex<ClusterConnection>,
    /// Held by whoever makes another.
    making: Arc<tokio::sync::Mutex<()>>,
}

impl Cluster {
    pub(crate) async fn connect(
        nodes: &[ConnectionInfo],
        credentials: &Credentials,
        timeout: Duration,
    ) -> Result<Self, OpenError> {
        let current = Mutex::new(cluster(nodes, credentials, timeout).await?);
        let (nodes, credentials) = (nodes.to_vec(), credentials.clone());
        Ok(Self(Arc::new(Shared { nodes, credentials, timeout, current, making: Arc::default() })))
    }

    /// The client that is used now.
    pub(crate) fn connection(&self) -> ClusterConnection {
        self.0.current.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sends a command to the node that has the slot of its key.
    pub(crate) async fn send(&self, deadline: Instant, command: &Cmd, key: &str) -> Result<Value, RedisError> {
        let mut connection = self.connection();
        let mut asked = Asked { shared: &self.0, key, since: Instant::now(), is_answered: false };
        let answer = within(deadline, command.query_async(&mut connection)).await;
        asked.is_answered = answer.as_ref().err().is_none_or(is_of_its_node);
        answer
    }
}

/// Whether the error is what the node that has the slot says, and not what the client made of getting nowhere.
fn is_of_its_node(error: &RedisError) -> bool {
    use ServerErrorKind::{Ask, Moved, ReadOnly};
    let is_lost = matches!(error.kind(), ErrorKind::Server(Ask | Moved | ReadOnly))
        || error.kind() == ErrorKind::ClusterConnectionNotFound;
    !error.is_io_error() && !is_lost
}

/// A question. Whoever asked may have gone away before the answer was late.
struct Asked<'c> {
    shared: &'c Arc<Shared>,
    key: &'c str,
    since: Instant,
    is_answered: bool,
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        // Somebody who waits for less is in a hurry: that says nothing of the node.
        if !self.is_answered && self.since.elapsed() > self.shared.timeout / 2 {
            Shared::make_another(self.shared, self.key);
        }
    }
}

impl Shared {
    /// In the background: it may take longer than anybody waits. One at a time, and with pauses.
    fn make_another(shared: &Arc<Self>, key: &str) {
        let (Ok(alone), Ok(runtime)) = (Arc::clone(&shared.making).try_lock_owned(), Handle::try_current()) else {
            return;
        };
        let (shared, key) = (Arc::clone(shared), key.to_owned());
        runtime.spawn(async move {
            // The library says of none of its steps how long it may take.
            let made = timeout(STEPS * shared.timeout, shared.another(&key)).await.unwrap_or_default();
            if let Some(another) = made {
                tracing::info!("a cluster's nodes are connected to anew, since one did not answer");
                *shared.current.lock().unwrap_or_else(PoisonError::into_inner) = another;
            } else {
                sleep(shared.timeout).await;
            }
            drop(alone);
        });
    }

    /// A client that gets an answer from whoever has the slot of this key.
    async fn another(&self, key: &str) -> Option<ClusterConnection> {
        let mut another = cluster(&self.nodes, &self.credentials, self.timeout).await.ok()?;
        let answer: Result<Value, RedisError> = redis::cmd("EXISTS").arg(key).query_async(&mut another).await;
        answer.is_ok().then_some(another)
    }
}

/// How many times longer than an operation it may take to connect: to find a primary or all nodes, of which some may be silent, and to ask one.
pub(crate) const STEPS: u32 = 10;
