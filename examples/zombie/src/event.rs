//! What happens in an act, and how it is told.

use std::fmt;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::database::INVOICE;

/// Who does something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
pub(crate) enum Who {
    /// The one that is stopped.
    A,
    /// The one that takes over.
    B,
}

impl Who {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::A => "A",
            Self::B => "B",
        }
    }

    /// What it pays in where deposits are made.
    pub(crate) const fn deposit(self) -> i64 {
        match self {
            Self::A => 5,
            Self::B => 7,
        }
    }
}

/// Something that happened.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Event {
    /// When, in microseconds of the machine's monotonic clock: the same for all processes.
    pub(crate) at: u64,
    pub(crate) who: Who,
    pub(crate) what: What,
}

impl Event {
    pub(crate) fn now(who: Who, what: What) -> Self {
        Self { at: now(), who, what }
    }
}

/// What somebody did, and what was answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum What {
    /// Asked for the lock while somebody else had it.
    Waited { left_ms: u64 },
    /// Got the lock; with a token where the lock yields one.
    Took { token: Option<u64>, left_ms: u64, until: Until },
    /// Opened the fence with its token.
    Opened { token: u64 },
    /// Counted the charges.
    Counted { charges: i64 },
    /// Read the balance.
    Read { balance: i64 },
    /// Looked whether the lock is still its own. It was.
    Looked { left_ms: u64, until: Until },
    /// Charged the invoice.
    Charged,
    /// Was about to charge the invoice, and was told that this is done.
    ChargedAlready,
    /// Wrote a balance; with the token that was checked.
    Wrote { balance: i64, token: u64 },
    /// Was about to write a balance, and somebody newer had been here.
    Refused { balance: i64, current: u64 },
    /// Was about to give the lock back. Whose lock is gone now, if any.
    Released { owner: Option<Who> },
    /// Was stopped.
    Stopped,
    /// The lock's time was over. Nobody tells its holder.
    Over,
    /// Went on.
    Woke { after_ms: u64 },
}

impl What {
    /// What was done.
    pub(crate) fn done(&self) -> String {
        match self {
            Self::Waited { .. } | Self::Took { .. } => "asks for the lock".into(),
            Self::Opened { token } => format!("opens the fence with token {token}"),
            Self::Counted { .. } => format!("counts the charges of invoice {INVOICE}"),
            Self::Read { .. } => "reads the balance".into(),
            Self::Looked { .. } => "looks whether it still holds the lock".into(),
            Self::Charged | Self::ChargedAlready => format!("charges invoice {INVOICE}"),
            Self::Wrote { balance, .. } | Self::Refused { balance, .. } => format!("writes the balance {balance}"),
            Self::Released { .. } => "gives the lock back".into(),
            Self::Stopped => "IS STOPPED (SIGSTOP)".into(),
            Self::Over => "(its lock is over, and it does not know)".into(),
            Self::Woke { after_ms } => format!("GOES ON (SIGCONT) after {after_ms} ms"),
        }
    }

    /// What was answered to `who`.
    pub(crate) fn answer(&self, who: Who) -> String {
        match self {
            Self::Waited { left_ms } => format!("held by the other, for another {left_ms} ms"),
            Self::Took { token: None, left_ms, .. } => format!("yours, for {left_ms} ms"),
            Self::Took { token: Some(token), left_ms, .. } => format!("yours, for {left_ms} ms, token {token}"),
            Self::Opened { .. } => "admitted: older tokens are refused from now on".into(),
            Self::Counted { charges: number } | Self::Read { balance: number } => number.to_string(),
            Self::Looked { left_ms, .. } => format!("yes, for another {left_ms} ms"),
            Self::Charged => "accepted".into(),
            Self::ChargedAlready => "not written: it is charged already".into(),
            Self::Wrote { token, .. } => format!("accepted, under token {token}"),
            Self::Refused { current, .. } => format!("REFUSED: superseded by token {current}"),
            Self::Released { owner: Some(owner) } if *owner == who => "given back".into(),
            Self::Released { owner: Some(owner) } => format!("deleted, and it was {}'s", owner.name()),
            Self::Released { owner: None } => "no lock of yours is there".into(),
            Self::Stopped | Self::Over | Self::Woke { .. } => String::new(),
        }
    }

    /// A word or two for the picture.
    pub(crate) fn label(&self, who: Who) -> String {
        match self {
            Self::Waited { .. } => "waits".into(),
            Self::Took { .. } => "takes lock".into(),
            Self::Opened { .. } => "opens".into(),
            Self::Counted { charges } => format!("counts {charges}"),
            Self::Read { balance } => format!("reads {balance}"),
            Self::Looked { .. } => "still mine".into(),
            Self::Charged => "charges".into(),
            Self::ChargedAlready => "done already".into(),
            Self::Wrote { balance, .. } => format!("writes {balance}"),
            Self::Refused { .. } => "refused".into(),
            Self::Released { owner: Some(owner) } if *owner == who => "gives back".into(),
            Self::Released { owner: Some(owner) } => format!("deletes {}'s lock", owner.name()),
            Self::Released { owner: None } => "not held".into(),
            Self::Stopped => "stopped".into(),
            Self::Over => "lock over".into(),
            Self::Woke { .. } => "wakes".into(),
        }
    }

    /// A write that was accepted, or one that was not.
    pub(crate) const fn is_attempt(&self) -> bool {
        self.is_write() || matches!(self, Self::ChargedAlready | Self::Refused { .. })
    }

    /// A write that was accepted.
    pub(crate) const fn is_write(&self) -> bool {
        matches!(self, Self::Charged | Self::Wrote { .. })
    }
}

/// When a lock is over at the earliest, on the clock of the events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Until(pub(crate) u64);

/// The moment before somebody asks how long a lock still runs. What is left counts from then: the answer may have been long on
/// its way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked(u64);

impl Asked {
    pub(crate) fn now() -> Self {
        Self(now())
    }

    /// Locks count in milliseconds, so it may be one less.
    pub(crate) const fn until(self, left_ms: u64) -> Until {
        Until(self.0 + left_ms.saturating_sub(1) * 1000)
    }
}

/// What a worker tells the director: a line of JSON each.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Message {
    Did(Event),
    /// It waits for a line before it goes on.
    At(Gate),
}

/// Where a worker waits for the director, so that the order of events is no matter of luck.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Gate {
    /// Before all.
    Beginning,
    /// Between the last look at the lock and the write.
    Writing,
    /// After the write.
    Leaving,
}

impl fmt::Display for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Beginning => "the beginning",
            Self::Writing => "the write",
            Self::Leaving => "the end",
        })
    }
}

/// Microseconds of the monotonic clock.
fn now() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).unwrap_or_default();
    seconds * 1_000_000 + u64::try_from(now.tv_nsec).unwrap_or_default() / 1000
}
