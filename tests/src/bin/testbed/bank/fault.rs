//! What a call can meet.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use serde::{Deserialize, Serialize};

/// What a call meets.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Fault {
    /// Nothing: it is answered in order.
    None,
    /// 402: certainly no transfer.
    Refuse,
    /// No transfer and no answer.
    Stall,
    CommitThenStall,
    CommitThenReset,
    #[serde(rename = "commit-then-502")]
    CommitThen502,
    /// A transfer, 201, and half of the answer's body.
    HalfABody,
    /// No transfer, and the connection is reset. Only when planned, as all that follow.
    Reset,
    /// No transfer, and 429.
    TooMany,
    /// No transfer, and 500.
    Error,
    /// A transfer and its answer, after 600 ms.
    Slow,
    /// No answer, and the transfer 2.5 s later: when nobody expects it any more.
    Late,
}

impl Fault {
    /// Those that are drawn.
    pub(super) const DRAWN: [Self; 6] =
        [Self::Refuse, Self::Stall, Self::CommitThenStall, Self::CommitThenReset, Self::CommitThen502, Self::HalfABody];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Refuse => "refuse",
            Self::Stall => "stall",
            Self::CommitThenStall => "commit-then-stall",
            Self::CommitThenReset => "commit-then-reset",
            Self::CommitThen502 => "commit-then-502",
            Self::HalfABody => "half-a-body",
            Self::Reset => "reset",
            Self::TooMany => "too-many",
            Self::Error => "error",
            Self::Slow => "slow",
            Self::Late => "late",
        }
    }

    /// Whether the transfer is made at once.
    pub(super) const fn commits(self) -> bool {
        match self {
            Self::None | Self::CommitThenStall | Self::CommitThenReset | Self::CommitThen502 | Self::HalfABody => true,
            Self::Refuse | Self::Stall | Self::Reset | Self::TooMany | Self::Error | Self::Slow | Self::Late => false,
        }
    }
}

/// How faults are drawn: by seed, reference and number of the call, so in whatever order calls come, each meets the same.
#[derive(Clone, Copy, Debug)]
pub(super) struct Faults {
    pub(super) rate: f64,
    pub(super) seed: u64,
}

impl Faults {
    /// What the nth call (from 1) with a reference meets. The first fails at the rate, each further one half as often: no reference fails for
    /// ever.
    pub(super) fn draw(self, reference: &str, nth: u32) -> Fault {
        let random = |what: &str| {
            // Its results are the same in every process of one build, which is all that a seed is for here.
            let mut hasher = DefaultHasher::new();
            (self.seed, reference, nth, what).hash(&mut hasher);
            hasher.finish()
        };
        let share = random("whether") as f64 / u64::MAX as f64;
        if share >= self.rate / f64::from(1_u32 << nth.saturating_sub(1).min(20)) {
            return Fault::None;
        }
        Fault::DRAWN[(random("which") % Fault::DRAWN.len() as u64) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(rate: f64, seed: u64, nth: u32) -> Vec<Fault> {
        (0..1000).map(|n| Faults { rate, seed }.draw(&format!("reference {n}"), nth)).collect()
    }

    #[test]
    fn the_rate_is_kept_and_each_further_call_fails_half_as_often() {
        let failed = |rate, nth| faults(rate, 7, nth).iter().filter(|fault| **fault != Fault::None).count();
        assert_eq!((failed(0.0, 1), failed(1.0, 1)), (0, 1000));
        assert!((200..300).contains(&failed(0.25, 1)), "{}", failed(0.25, 1));
        assert!((450..550).contains(&failed(1.0, 2)), "{}", failed(1.0, 2));
        assert!(failed(1.0, 8) < 30, "{}", failed(1.0, 8));
    }

    #[test]
    fn every_kind_is_drawn_about_as_often_and_by_seed() {
        let drawn = faults(1.0, 7, 1);
        for kind in Fault::DRAWN {
            let count = drawn.iter().filter(|fault| **fault == kind).count();
            assert!((110..230).contains(&count), "{count} of {kind:?}");
        }
        assert_eq!(drawn, faults(1.0, 7, 1));
        assert_ne!(drawn, faults(1.0, 8, 1));
    }
}
