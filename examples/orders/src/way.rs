//! The ways by name, and what is expected of them.

use clap::ValueEnum;

use crate::director::Situation;
use crate::job::Workflow;

/// A way of doing a job once, or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Way {
    Conditional,
    ForUpdate,
    UniqueRow,
    Fenced,
    LookThenWrite,
    StatusAlone,
    NoTimeouts,
    ExpiryAlone,
}

impl Way {
    /// The line above its rows.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Conditional => "(a) conditional UPDATE of the status, with an attempt",
            Self::ForUpdate => "(b) SELECT ... FOR UPDATE, with timeouts",
            Self::UniqueRow => "(c) UNIQUE row, with an expiry and a token",
            Self::Fenced => "(d) lease, and a fence that is opened first",
            Self::LookThenWrite => "BROKEN: look, then write",
            Self::StatusAlone => "BROKEN: (a) that finishes by the status alone",
            Self::NoTimeouts => "BROKEN: (b) without timeouts",
            Self::ExpiryAlone => "BROKEN: (c) with an expiry and no token",
        }
    }

    /// What it is tried with.
    pub(crate) fn workflows(self) -> &'static [Workflow] {
        match self {
            Self::LookThenWrite | Self::StatusAlone | Self::NoTimeouts | Self::ExpiryAlone => &[Workflow::Order],
            Self::Conditional | Self::ForUpdate | Self::UniqueRow | Self::Fenced => &[Workflow::Order, Workflow::Night],
        }
    }

    /// Whether it is known not to stand this.
    pub(crate) fn breaks(self, situation: Situation) -> bool {
        match self {
            Self::LookThenWrite => situation != Situation::Killed,
            Self::StatusAlone | Self::NoTimeouts | Self::ExpiryAlone => situation == Situation::Paused,
            Self::Conditional | Self::ForUpdate | Self::UniqueRow | Self::Fenced => false,
        }
    }
}
