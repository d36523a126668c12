//! The way to the servers: one connection that everything shares, made anew when it breaks.

use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::cluster_async::ClusterConnection;
use redis::cluster_routing::{MultipleNodeRoutingInfo, RoutingInfo, SingleNodeRoutingInfo};
use redis::{Cmd, RedisError, Value};
use tokio::time::{Instant, timeout_at};

use crate::connect::Source;
use crate::error::{ends_connection, is_unknown_script, may_be_tried_again};
use crate::scripts::Script;

/// What commands are sent through.
pub(crate) struct Link {
    way: Way,
    pub(crate) timeout: Duration,
}

enum Way {
    Primary(Box<Shared>),
    Cluster(ClusterConnection),
}

/// A primary among those there are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Node {
    /// There is one.
    Only,
    /// Of a cluster.
    Of { host: String, port: u16 },
}

impl Link {
    pub(crate) fn to_primary(source: Source, timeout: Duration) -> Self {
        Self { way: Way::Primary(Box::new(Shared::new(source, timeout))), timeout }
    }

    pub(crate) fn to_cluster(connection: ClusterConnection, timeout: Duration) -> Self {
        Self { way: Way::Cluster(connection), timeout }
    }

    pub(crate) fn source(&self) -> Option<&Source> {
        match &self.way {
            Way::Primary(shared) => Some(&shared.source),
            Way::Cluster(_) => None,
        }
    }

    /// Runs a script on one key. Every script may be sent twice: it knows whose message it was.
    pub(crate) async fn run(
        &self,
        script: &Script,
        key: &str,
        arguments: impl Fn(&mut Cmd),
    ) -> Result<Value, RedisError> {
        let deadline = self.deadline();
        match self.send(deadline, &by_hash(script, key, &arguments), None).await {
            Err(error) if is_unknown_script(&error) => {
                self.send(deadline, &by_code(script, key, &arguments), None).await
            }
            answered => answered,
        }
    }

    /// Sends a command to a primary.
    pub(crate) async fn on(&self, node: &Node, command: &Cmd) -> Result<Value, RedisError> {
        self.send(self.deadline(), command, Some(node)).await
    }

    /// The primaries there are now.
    pub(crate) async fn primaries(&self) -> Result<Vec<Node>, RedisError> {
        let Way::Cluster(connection) = &self.way else { return Ok(vec![Node::Only]) };
        let everywhere = RoutingInfo::MultiNode((MultipleNodeRoutingInfo::AllMasters, None));
        let mut connection = connection.clone();
        let asked = connection.route_command(redis::cmd("PING"), everywhere);
        let Value::Map(answers) = within(self.deadline(), asked).await? else { return Ok(Vec::new()) };
        let address = |value: Value| {
            let address: String = redis::from_redis_value(value).ok()?;
            let (host, port) = address.rsplit_once(':')?;
            Some(Node::Of { host: host.to_owned(), port: port.parse().ok()? })
        };
        Ok(answers.into_iter().filter_map(|(node, _)| address(node)).collect())
    }

    fn deadline(&self) -> Instant {
        Instant::now() + self.timeout
    }

    async fn send(&self, deadline: Instant, command: &Cmd, node: Option<&Node>) -> Result<Value, RedisError> {
        match (&self.way, node) {
            (Way::Primary(shared), _) => shared.send(deadline, command).await,
            (Way::Cluster(connection), Some(Node::Of { host, port })) => {
                let node = SingleNodeRoutingInfo::ByAddress { host: host.clone(), port: *port };
                let mut connection = connection.clone();
                let sent = connection.route_command(command.clone(), RoutingInfo::SingleNode(node));
                within(deadline, async { sent.await?.extract_error() }).await
            }
            (Way::Cluster(connection), _) => within(deadline, command.query_async(&mut connection.clone())).await,
        }
    }
}

pub(crate) fn by_hash(script: &Script, key: &str, arguments: impl Fn(&mut Cmd)) -> Cmd {
    command("EVALSHA", &script.hash, key, arguments)
}

pub(crate) fn by_code(script: &Script, key: &str, arguments: impl Fn(&mut Cmd)) -> Cmd {
    command("EVAL", script.code, key, arguments)
}

fn command(name: &str, script: &str, key: &str, arguments: impl Fn(&mut Cmd)) -> Cmd {
    let mut command = redis::cmd(name);
    command.arg(script).arg(1).arg(key);
    arguments(&mut command);
    command
}

/// The answer, or an error of kind timeout.
pub(crate) async fn within<T>(
    deadline: Instant,
    answer: impl Future<Output = Result<T, RedisError>>,
) -> Result<T, RedisError> {
    timeout_at(deadline, answer).await.unwrap_or_else(|_| Err(io::Error::from(io::ErrorKind::TimedOut).into()))
}

/// A connection, or an error that is no timeout: that nothing was sent is certain.
pub(crate) async fn connected<T>(
    deadline: Instant,
    connection: impl Future<Output = Result<T, RedisError>>,
) -> Result<T, RedisError> {
    match timeout_at(deadline, connection).await {
        Ok(Err(error)) if !error.is_timeout() => Err(error),
        Ok(Ok(connection)) => Ok(connection),
        _ => Err(io::Error::from(io::ErrorKind::NotConnected).into()),
    }
}

/// One connection for all, and who makes the next one.
struct Shared {
    source: Source,
    /// A connection that has answered nothing for so long is given up.
    patience: Duration,
    current: Mutex<Current>,
    /// Held by whoever connects; why the last one could not.
    connecting: tokio::sync::Mutex<Option<RedisError>>,
}

#[derive(Default)]
struct Current {
    connection: Option<MultiplexedConnection>,
    /// How many there were, and how often somebody tried to connect.
    number: u64,
    attempts: u64,
    /// When the first command was sent after the last answer. Whoever sent it may have gone away before it was late.
    unanswered_since: Option<Instant>,
}

impl Shared {
    fn new(source: Source, patience: Duration) -> Self {
        Self { source, patience, current: Mutex::default(), connecting: tokio::sync::Mutex::default() }
    }

    async fn send(&self, deadline: Instant, command: &Cmd) -> Result<Value, RedisError> {
        let (first, error) = match self.send_once(deadline, command).await {
            Err((connection, error)) => (connection, error),
            Ok(value) => return Ok(value),
        };
        // The first connection may have been broken for long before anybody noticed.
        if first.is_some() && may_be_tried_again(&error) {
            return self.send_once(deadline, command).await.map_err(|(_, error)| error);
        }
        Err(error)
    }

    /// An error, and on which connection it came, if there was one.
    async fn send_once(&self, deadline: Instant, command: &Cmd) -> Result<Value, (Option<u64>, RedisError)> {
        let connected = connected(deadline, self.connection()).await;
        let (number, mut connection) = connected.map_err(|error| (None, error))?;
        let answer = within(deadline, command.query_async(&mut connection)).await;
        match &answer {
            Err(error) if ends_connection(error) => self.retire(number),
            _ => self.answered(number),
        }
        answer.map_err(|error| (Some(number), error))
    }

    /// The connection, and its number.
    async fn connection(&self) -> Result<(u64, MultiplexedConnection), RedisError> {
        let attempts = match self.current().there_is(self.patience) {
            Ok(connection) => return Ok(connection),
            Err(attempts) => attempts,
        };
        let mut last = self.connecting.lock().await;
        let failed_meanwhile = match self.current().there_is(self.patience) {
            Ok(connection) => return Ok(connection),
            Err(now) => now > attempts,
        };
        if failed_meanwhile && let Some(error) = &*last {
            return Err(error.clone());
        }
        let connected = self.source.connect().await;
        let mut current = self.current();
        current.attempts += 1;
        match connected {
            Ok(connection) => {
                *last = None;
                current.number += 1;
                current.connection = Some(connection.clone());
                current.unanswered_since = Some(Instant::now());
                Ok((current.number, connection))
            }
            Err(error) => {
                *last = Some(error.clone());
                Err(error)
            }
        }
    }

    /// The next command has a new one. Whoever still waits for an answer on this one may get it.
    fn retire(&self, number: u64) {
        let mut current = self.current();
        if current.number == number {
            current.connection = None;
        }
    }

    fn answered(&self, number: u64) {
        let mut current = self.current();
        if current.number == number {
            current.unanswered_since = None;
        }
    }

    fn current(&self) -> MutexGuard<'_, Current> {
        // Nothing is left half done under this lock.
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Current {
    /// The connection and its number, to send something on; if there is none, how often somebody tried to connect.
    fn there_is(&mut self, patience: Duration) -> Result<(u64, MultiplexedConnection), u64> {
        if self.unanswered_since.is_some_and(|since| since.elapsed() > patience) {
            self.connection = None;
        }
        let connection = self.connection.clone().ok_or(self.attempts)?;
        self.unanswered_since.get_or_insert_with(Instant::now);
        Ok((self.number, connection))
    }
}
