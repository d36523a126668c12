//! The way to the servers: one connection that everything shares, made anew when it breaks.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::{self, BoxFuture};
use redis::aio::MultiplexedConnection;
use redis::cluster_async::ClusterConnection;
use redis::cluster_routing::{MultipleNodeRoutingInfo, RoutingInfo, SingleNodeRoutingInfo};
use redis::{Cmd, RedisError, Value};
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout_at};

use crate::cluster::{Cluster, STEPS};
use crate::connect::Source;
use crate::error::{ends_connection, is_busy, is_unknown_script, may_be_tried_again};
use crate::scripts::Code;

/// What commands are sent through.
pub(crate) struct Link {
    way: Way,
    pub(crate) timeout: Duration,
}

enum Way {
    Primary(Arc<Shared>),
    Cluster(Cluster),
}

type Sending<'l> = Pin<Box<dyn Future<Output = Result<Value, RedisError>> + Send + 'l>>;

/// A primary among those there are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Node {
    /// There is one.
    Only,
    /// Of a cluster.
    Of { host: String, port: u16 },
}

/// Whom a command is for.
#[derive(Clone, Copy)]
enum To<'l> {
    /// Whoever has the slot of this key.
    SlotOf(&'l str),
    Node(&'l Node),
}

/// When a command is sent once more, on a new connection. The client of a cluster does that by itself, and as it thinks fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resend {
    /// When the connection broke, which may have been long before anybody noticed, as well as when the server refused to write.
    /// The first copy may arrive after the second was answered, and must be harmless then.
    Broken,
    /// When the server refused to write, and only then: that the first copy is not carried out is certain.
    Refused,
}

impl Resend {
    pub(crate) fn after(self, error: &RedisError) -> bool {
        may_be_tried_again(error) && (self == Self::Broken || !error.is_io_error())
    }
}

/// Which of the errors of a command that was sent twice tells what may have become of it: a server that is busy says that nothing was
/// carried out, and knows only of the second.
pub(crate) fn honest(first: RedisError, second: RedisError) -> RedisError {
    if first.is_io_error() && is_busy(&second) { first } else { second }
}

impl Link {
    pub(crate) fn to_primary(source: Source, timeout: Duration) -> Self {
        Self { way: Way::Primary(Arc::new(Shared::new(source, timeout))), timeout }
    }

    pub(crate) fn to_cluster(cluster: Cluster, timeout: Duration) -> Self {
        Self { way: Way::Cluster(cluster), timeout }
    }

    pub(crate) fn source(&self) -> Option<&Arc<Source>> {
        match &self.way {
            Way::Primary(shared) => Some(&shared.source),
            Way::Cluster(_) => None,
        }
    }

    /// Runs a script on keys of one slot. Every script may be carried out twice: it knows whose message it was.
    pub(crate) async fn run(
        &self,
        script: &Code,
        keys: &[String],
        resend: Resend,
        arguments: impl Fn(&mut Cmd),
    ) -> Result<Value, RedisError> {
        let deadline = self.deadline();
        let slot = To::SlotOf(keys.first().map_or("", String::as_str));
        match self.send(deadline, &by_hash(script, keys, &arguments), slot, resend).await {
            Err(error) if is_unknown_script(&error) => {
                self.send(deadline, &by_code(script, keys, &arguments), slot, resend).await
            }
            answered => answered,
        }
    }

    /// Sends a command to a primary.
    pub(crate) async fn on(&self, node: &Node, command: &Cmd) -> Result<Value, RedisError> {
        self.send(self.deadline(), command, To::Node(node), Resend::Broken).await
    }

    /// The primaries there are now, those that do not answer as well.
    pub(crate) async fn primaries(&self) -> Result<Vec<Node>, RedisError> {
        let Way::Cluster(cluster) = &self.way else { return Ok(vec![Node::Only]) };
        let mut connection = cluster.connection();
        let anyone = RoutingInfo::SingleNode(SingleNodeRoutingInfo::Random);
        let asked = connection.route_command(redis::cmd("CLUSTER").arg("SLOTS").take(), anyone);
        let ranges: Vec<Vec<Value>> = redis::from_redis_value(within(self.deadline(), asked).await?)?;
        let mut primaries: Vec<Node> = Vec::new();
        for range in ranges {
            match range.get(2).and_then(address) {
                Some(node) if primaries.contains(&node) => {}
                Some(node) => primaries.push(node),
                // A proxy in front of them hides where they are.
                None => return self.connected_primaries(&mut connection).await,
            }
        }
        Ok(primaries)
    }

    async fn connected_primaries(&self, connection: &mut ClusterConnection) -> Result<Vec<Node>, RedisError> {
        let everywhere = RoutingInfo::MultiNode((MultipleNodeRoutingInfo::AllMasters, None));
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

    /// Boxed, so that what is deep inside a connection is not part of the type of every operation: a program that spawns one would meet
    /// the compiler's limit.
    fn send<'l>(&'l self, deadline: Instant, command: &'l Cmd, to: To<'l>, resend: Resend) -> Sending<'l> {
        Box::pin(async move {
            match (&self.way, to) {
                (Way::Primary(shared), _) => shared.send(deadline, command, resend).await,
                (Way::Cluster(cluster), To::SlotOf(key)) => Box::pin(cluster.send(deadline, command, key)).await,
                (Way::Cluster(cluster), To::Node(node)) => {
                    let node = match node {
                        Node::Of { host, port } => SingleNodeRoutingInfo::ByAddress { host: host.clone(), port: *port },
                        Node::Only => SingleNodeRoutingInfo::Random,
                    };
                    let mut connection = cluster.connection();
                    let sent = connection.route_command(command.clone(), RoutingInfo::SingleNode(node));
                    within(deadline, async { Box::pin(sent).await?.extract_error() }).await
                }
            }
        })
    }
}

pub(crate) fn by_hash(script: &Code, keys: &[String], arguments: impl Fn(&mut Cmd)) -> Cmd {
    command("EVALSHA", &script.hash, keys, arguments)
}

pub(crate) fn by_code(script: &Code, keys: &[String], arguments: impl Fn(&mut Cmd)) -> Cmd {
    command("EVAL", &script.text, keys, arguments)
}

fn command(name: &str, script: &str, keys: &[String], arguments: impl Fn(&mut Cmd)) -> Cmd {
    // What most have, so that it is not moved as it grows.
    let mut command = Cmd::with_capacity(10, 512);
    command.arg(name);
    command.arg(script).arg(keys.len()).arg(keys);
    arguments(&mut command);
    command
}

/// Where a node is, in an answer to CLUSTER SLOTS.
fn address(node: &Value) -> Option<Node> {
    let Value::Array(node) = node else { return None };
    let [host, port, ..] = node.as_slice() else { return None };
    let host: String =
        redis::from_redis_value_ref(host).ok().filter(|host: &String| !host.is_empty() && host != "?")?;
    Some(Node::Of { host, port: redis::from_redis_value_ref(port).ok()? })
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
        _ => Err(not_connected()),
    }
}

fn not_connected() -> RedisError {
    io::Error::from(io::ErrorKind::NotConnected).into()
}

/// One connection for all, and who makes the next one.
struct Shared {
    source: Arc<Source>,
    /// A connection that has answered nothing for so long is given up.
    patience: Duration,
    current: Mutex<Current>,
}

#[derive(Default)]
struct Current {
    connection: Option<MultiplexedConnection>,
    /// How many there were.
    number: u64,
    /// When the first command was sent after the last answer. Whoever sent it may have gone away before it was late.
    unanswered_since: Option<Instant>,
    /// Who makes the next one, or failed to.
    connecting: Option<Connecting>,
}

/// A task of its own: to connect may take longer than anybody waits, and nobody who stands still or goes away holds up the others.
struct Connecting {
    since: Instant,
    task: AbortHandle,
    made: future::Shared<BoxFuture<'static, Made>>,
}

/// The connection, and its number.
type Made = Result<(u64, MultiplexedConnection), RedisError>;

impl Shared {
    fn new(source: Source, patience: Duration) -> Self {
        Self { source: Arc::new(source), patience, current: Mutex::default() }
    }

    async fn send(self: &Arc<Self>, deadline: Instant, command: &Cmd, resend: Resend) -> Result<Value, RedisError> {
        let (first, error) = match self.send_once(deadline, command).await {
            Err((connection, error)) => (connection, error),
            Ok(value) => return Ok(value),
        };
        if first.is_some() && resend.after(&error) {
            return self.send_once(deadline, command).await.map_err(|(_, again)| honest(error, again));
        }
        Err(error)
    }

    /// An error, and on which connection it came, if there was one.
    async fn send_once(self: &Arc<Self>, deadline: Instant, command: &Cmd) -> Result<Value, (Option<u64>, RedisError)> {
        let connected = connected(deadline, self.connection()).await;
        let (number, mut connection) = connected.map_err(|error| (None, error))?;
        let answer = within(deadline, command.query_async(&mut connection)).await;
        match &answer {
            Err(error) if ends_connection(error) => self.retire(number),
            _ => self.answered(number),
        }
        answer.map_err(|error| (Some(number), error))
    }

    async fn connection(self: &Arc<Self>) -> Made {
        let made = {
            let mut current = self.current();
            match current.there_is(self.patience) {
                Some(connection) => return Ok(connection),
                None => self.connect(&mut current),
            }
        };
        made.await
    }

    /// The connection that is being made. A task that has not ended when it should have is of a runtime that stands still.
    fn connect(self: &Arc<Self>, current: &mut Current) -> future::Shared<BoxFuture<'static, Made>> {
        let limit = STEPS * self.patience;
        let is_under_way = |made: &&Connecting| !made.task.is_finished() && made.since.elapsed() < limit;
        if let Some(connecting) = current.connecting.as_ref().filter(is_under_way) {
            return connecting.made.clone();
        }
        let shared = Arc::clone(self);
        let since = Instant::now();
        let task = tokio::spawn(async move {
            let connection = connected(since + limit, shared.source.connect()).await?;
            let mut current = shared.current();
            current.number += 1;
            current.connection = Some(connection.clone());
            current.unanswered_since = Some(Instant::now());
            // Whoever waits for it has it; kept here, it would outlive its retirement.
            current.connecting = None;
            Ok((current.number, connection))
        });
        let handle = task.abort_handle();
        let made = async { task.await.unwrap_or_else(|_| Err(not_connected())) }.boxed().shared();
        current.connecting = Some(Connecting { since, task: handle, made: made.clone() });
        made
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
    /// The connection and its number, to send something on.
    fn there_is(&mut self, patience: Duration) -> Option<(u64, MultiplexedConnection)> {
        if self.unanswered_since.is_some_and(|since| since.elapsed() > patience) {
            self.connection = None;
        }
        let connection = self.connection.clone()?;
        self.unanswered_since.get_or_insert_with(Instant::now);
        Some((self.number, connection))
    }
}
