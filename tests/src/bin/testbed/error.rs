//! Why the testbed does not start, in one line.

use std::error::Error;
use std::io;
use std::net::SocketAddr;

use idempotency::OpenError;
use idempotency_memory::CeilingError;
use idempotency_redis::ServerRefused;

/// Why there is no server, or why it ended badly.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    #[error("{0}")]
    Usage(String),
    #[error("--store")]
    Store(#[from] OpenError),
    #[error("--store")]
    Refused(#[from] ServerRefused),
    #[error("--keys")]
    Ceiling(#[from] CeilingError),
    #[error("--store: the store's tables are missing or old; start with --migrate")]
    NotMigrated(#[source] OpenError),
    #[error("--ledger: cannot be opened")]
    Ledger(#[source] sqlx::Error),
    #[error("--ledger: the tables of its fences cannot be made")]
    Fences(#[source] OpenError),
    #[error("no temporary file for the ledger")]
    TemporaryLedger(#[source] io::Error),
    #[error("--listen: cannot listen on {0}")]
    Listen(SocketAddr, #[source] io::Error),
    #[error("the metrics recorder cannot be installed")]
    Metrics(#[source] metrics_exporter_prometheus::BuildError),
    #[error("no runtime, signal handler or standard output")]
    Runtime(#[source] io::Error),
    #[error("stopped, and detached work was left behind")]
    WorkLeft,
}

impl StartError {
    pub(crate) fn usage(option: &str, fault: impl std::fmt::Display) -> Self {
        Self::Usage(format!("{option}: {fault}"))
    }

    /// The first paragraph of what clap says: usage and tips follow it.
    pub(crate) fn of_clap(error: &clap::Error) -> Self {
        let text = error.to_string();
        let first = text.split("\n\n").next().unwrap_or_default();
        Self::Usage(first.trim_start_matches("error: ").to_owned())
    }

    /// The error and what caused it, without a line break.
    pub(crate) fn line(&self) -> String {
        let mut line = self.to_string();
        let mut cause = self.source();
        while let Some(error) = cause {
            let text = error.to_string();
            // Some errors repeat their source.
            if !line.ends_with(&text) {
                line = format!("{line}: {text}");
            }
            cause = error.source();
        }
        line.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    /// 2 for an option that is wrong, 1 for all else.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) => 2,
            _ => 1,
        }
    }
}
