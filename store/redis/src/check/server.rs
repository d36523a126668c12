//! What servers say of themselves.

use std::collections::HashMap;
use std::time::SystemTime;

use redis::{Cmd, RedisError, Value, cmd};

use crate::link::{Link, Node};

/// What is asked of its configuration.
const CONFIG: &[&str] =
    &["maxmemory", "maxmemory-policy", "appendfsync", "save", "min-replicas-to-write", "min-replicas-max-lag"];

/// What a server says of itself: none of what it does not let itself be asked.
#[derive(Debug, Default)]
pub(crate) struct Server {
    /// Which of several.
    pub(super) name: Option<String>,
    pub(super) info: Option<Fields>,
    pub(super) config: Option<Fields>,
    /// Of a cluster.
    pub(super) cluster: Option<Fields>,
    /// It does not answer, and others of its cluster do.
    pub(super) is_silent: bool,
    /// How far its clock is ahead of ours, in seconds.
    pub(super) ahead: Option<i64>,
}

/// Names and values.
#[derive(Debug, Default)]
pub(super) struct Fields(HashMap<String, String>);

impl Fields {
    /// Lines of `name:value`.
    fn of_lines(text: &str) -> Self {
        let fields = text.lines().filter_map(|line| line.split_once(':'));
        Self(fields.map(|(name, value)| (name.to_owned(), value.trim_end().to_owned())).collect())
    }

    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    pub(super) fn number(&self, name: &str) -> Option<i64> {
        self.text(name)?.parse().ok()
    }

    pub(super) fn is_set(&self, name: &str) -> Option<bool> {
        self.number(name).map(|number| number != 0)
    }
}

impl Server {
    #[cfg(test)]
    pub(super) fn of<'t>(info: &str, config: impl Iterator<Item = &'t (&'t str, &'t str)>) -> Self {
        let config = config.map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Self { info: Some(Fields::of_lines(info)), config: Some(Fields(config)), ..Self::default() }
    }

    async fn tell(&mut self, link: &Link, node: &Node) -> Result<(), RedisError> {
        let questions = [Question::Info, Question::Config, Question::Cluster];
        for question in &questions[..if self.name.is_some() { 3 } else { 2 }] {
            match link.on(node, &question.command()).await {
                Ok(answer) => self.hear(*question, &answer),
                Err(error) if is_refusal(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn hear(&mut self, question: Question, answer: &Value) {
        match question {
            Question::Info => {
                self.info = text(answer).map(|text| Fields::of_lines(&text));
                self.ahead = self.info.as_ref().and_then(|info| seconds_ahead(info.number("server_time_usec")?));
            }
            Question::Config => {
                // Names that a managed service hides are not in the answer.
                self.config = redis::from_redis_value_ref::<HashMap<String, String>>(answer).ok().map(Fields);
            }
            Question::Cluster => self.cluster = text(answer).map(|text| Fields::of_lines(&text)),
        }
    }
}

#[derive(Clone, Copy)]
enum Question {
    Info,
    Config,
    Cluster,
}

impl Question {
    fn command(self) -> Cmd {
        match self {
            // Its default sections; more than one by name needs a newer server than the oldest that we want to tell of.
            Self::Info => cmd("INFO"),
            // By name: others hold passwords.
            Self::Config => cmd("CONFIG").arg("GET").arg(CONFIG).take(),
            Self::Cluster => cmd("CLUSTER").arg("INFO").take(),
        }
    }
}

/// Asks every primary there is.
///
/// # Errors
/// When none can be asked at all. A refusal is an answer.
pub(crate) async fn ask(link: &Link) -> Result<Vec<Server>, RedisError> {
    let mut servers = Vec::new();
    let mut silence = None;
    for node in link.primaries().await? {
        let name = match &node {
            Node::Only => None,
            Node::Of { host, port } => Some(format!("{host}:{port}")),
        };
        let mut server = Server { name, ..Server::default() };
        if let Err(error) = server.tell(link, &node).await {
            silence = Some(error);
            server = Server { name: server.name, is_silent: true, ..Server::default() };
        }
        servers.push(server);
    }
    if let Some(error) = silence.filter(|_| servers.iter().all(|server| server.is_silent)) {
        return Err(error);
    }
    servers.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(servers)
}

/// The server understood, and does not tell.
fn is_refusal(error: &RedisError) -> bool {
    use redis::{ErrorKind, ServerErrorKind};
    matches!(error.kind(), ErrorKind::Server(ServerErrorKind::NoPerm | ServerErrorKind::ResponseError))
}

fn text(answer: &Value) -> Option<String> {
    redis::from_redis_value_ref(answer).ok()
}

fn seconds_ahead(server_micros: i64) -> Option<i64> {
    let ours = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).ok()?;
    Some(server_micros / 1_000_000 - i64::try_from(ours.as_secs()).ok()?)
}
