//! What a server's settings mean for what is kept in it.
//!
//! A store can be no safer than its server, and Redis says little when it loses something: an evicting policy deletes the
//! record of a payment without a word, and the duplicate pays again. So a program looks at its server when it starts, and its
//! health page shows what it saw.

mod judge;
mod server;

use std::fmt;

use idempotency::StoreError;

use self::server::Server;
use crate::RedisStore;
use crate::error::store_error;

/// What [`RedisStore::check`](crate::RedisStore::check) found. Printed, it has one line for each finding.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Report {
    /// What was found, the gravest first. Empty when there is nothing to know.
    pub findings: Vec<Finding>,
}

/// One thing to know about a server.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Finding {
    /// How grave it is.
    pub severity: Severity,
    /// What it is about.
    pub topic: Topic,
    /// Which server of several; none where there is one.
    pub server: Option<String>,
    /// What was found.
    pub what: String,
    /// What follows from it.
    pub consequence: &'static str,
    /// What to do about it.
    pub fix: &'static str,
}

/// How grave a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "lowercase"))]
pub enum Severity {
    /// Effects happen twice without anything going wrong, or nothing works at all: do not start.
    Refuse,
    /// Something is lost when something goes wrong.
    Warn,
    /// Good to know.
    Info,
}

/// What a finding is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "lowercase"))]
#[non_exhaustive]
pub enum Topic {
    /// What the server does when its memory is full.
    Eviction,
    /// What survives its end.
    Persistence,
    /// What survives the loss of the primary.
    Replication,
    /// Which release it is.
    Version,
    /// Whether the cluster works.
    Cluster,
    /// Its clock, which tokens and expiry are taken from.
    Clock,
    /// Whether we may look.
    Permission,
}

impl RedisStore {
    /// Looks at the server, or at every primary of a cluster: whether it evicts records, what a restart and a failover lose. For the
    /// start of a program, which [refuses](Report::accepted) a server that is not one to keep this in and logs the rest, and for
    /// health pages.
    ///
    /// Takes INFO and CONFIG GET, and in a cluster CLUSTER INFO; where the user may not use them the report says so. Nothing else here
    /// uses them.
    ///
    /// # Errors
    /// When no server can be asked at all. One of a cluster that does not answer is a finding.
    ///
    /// # Cancel safety
    /// Changes nothing.
    pub async fn check(&self) -> Result<Report, StoreError> {
        Ok(Report::of(&server::ask(&self.db.link).await.map_err(store_error)?))
    }
}

impl Report {
    fn of(servers: &[Server]) -> Self {
        let mut findings: Vec<Finding> = servers.iter().flat_map(judge::judge).collect();
        // Stable: servers stay in their order.
        findings.sort_by_key(|finding| (finding.severity, finding.topic));
        Self { findings }
    }

    /// Makes an evicting policy a warning instead of a reason not to start.
    ///
    /// Right only where a second execution does no harm, or where whatever receives the effects refuses the second one by itself:
    /// what is evicted is forgotten, and its duplicate runs.
    #[must_use]
    pub fn allow_eviction(mut self) -> Self {
        for finding in &mut self.findings {
            if finding.topic == Topic::Eviction {
                finding.severity = finding.severity.max(Severity::Warn);
            }
        }
        self.findings.sort_by_key(|finding| (finding.severity, finding.topic));
        self
    }

    /// The gravest that was found; none when nothing was.
    #[must_use]
    pub fn worst(&self) -> Option<Severity> {
        self.findings.iter().map(|finding| finding.severity).min()
    }

    /// The report, if nothing in it is a reason not to start.
    ///
    /// # Errors
    /// [`ServerRefused`] otherwise.
    pub fn accepted(self) -> Result<Self, ServerRefused> {
        if self.worst() == Some(Severity::Refuse) { Err(ServerRefused(self)) } else { Ok(self) }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, finding) in self.findings.iter().enumerate() {
            let end = if index == 0 { "" } else { "\n" };
            write!(f, "{end}{}: {finding}", finding.severity)?;
        }
        Ok(())
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(server) = &self.server {
            write!(f, "{server}: ")?;
        }
        write!(f, "{}: {}; {}", self.what, self.consequence, self.fix)
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Refuse => "refuse",
            Self::Warn => "warn",
            Self::Info => "info",
        })
    }
}

/// The server is not one to start on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a Redis to keep this in: {}", reasons(.0))]
pub struct ServerRefused(Report);

impl ServerRefused {
    /// All that was found.
    #[must_use]
    pub const fn report(&self) -> &Report {
        &self.0
    }
}

fn reasons(report: &Report) -> String {
    let grave = report.findings.iter().filter(|finding| finding.severity == Severity::Refuse);
    grave.map(ToString::to_string).collect::<Vec<_>>().join("; ")
}
