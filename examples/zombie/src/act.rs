//! The acts: who is protected by what, and what each must show.

use clap::ValueEnum;

use crate::verdict::Verdict;

/// One act.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Act {
    /// A lock with a TTL. Whoever is done deletes it.
    TtlLock,
    /// The same, and only its owner deletes it.
    OwnedLock,
    /// A lease with a token that is checked when something is written, and not before.
    CheckedAtWrite,
    /// The same lease, and the fence is opened before anything is read.
    OpenedFirst,
    /// No lock.
    UniqueRow,
}

impl Act {
    pub(crate) const ALL: [Self; 5] =
        [Self::TtlLock, Self::OwnedLock, Self::CheckedAtWrite, Self::OpenedFirst, Self::UniqueRow];

    pub(crate) const fn number(self) -> usize {
        self as usize + 1
    }

    pub(crate) const fn title(self) -> &'static str {
        match self {
            Self::TtlLock => "a lock with a TTL; its holder looks at it before it writes",
            Self::OwnedLock => "the same, and only its owner can delete it",
            Self::CheckedAtWrite => "a lock with a token, which is checked at the write",
            Self::OpenedFirst => "the same token, and the fence is opened before the first read",
            Self::UniqueRow => "no lock: the effect and a UNIQUE row in one transaction",
        }
    }

    /// What protects the data.
    pub(crate) const fn protection(self) -> &'static str {
        match self {
            Self::TtlLock => "TTL lock",
            Self::OwnedLock => "TTL lock, compare-and-delete",
            Self::CheckedAtWrite => "lease, token checked at the write",
            Self::OpenedFirst => "lease, fence opened first",
            Self::UniqueRow => "UNIQUE row, no lock",
        }
    }

    pub(crate) const fn must_show(self) -> Verdict {
        match self {
            Self::TtlLock | Self::OwnedLock => Verdict::ChargedTwice,
            Self::CheckedAtWrite => Verdict::UpdateLost,
            Self::OpenedFirst => Verdict::SumRight,
            Self::UniqueRow => Verdict::ChargedOnce,
        }
    }

    /// Whether an invoice is charged that must be charged once; otherwise both pay something in, and both must be
    /// in the balance.
    pub(crate) const fn is_charge(self) -> bool {
        matches!(self, Self::TtlLock | Self::OwnedLock | Self::UniqueRow)
    }

    pub(crate) const fn has_lock(self) -> bool {
        !matches!(self, Self::UniqueRow)
    }
}
