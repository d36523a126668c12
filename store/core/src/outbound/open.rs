//! Which steps of an attempt may have had their effect.

use std::collections::BTreeMap;

use parking_lot::Mutex;

use super::label::StepLabel;

/// The steps of one attempt that are being asked for, or were and are not known to have failed. One label may be asked for several times
/// at once, so each asking speaks for itself alone.
#[derive(Default)]
pub(crate) struct OpenSteps(Mutex<BTreeMap<StepLabel, Open>>);

#[derive(Default)]
struct Open {
    under_way: u32,
    /// How many askings left it open, ever.
    left_open: u64,
    /// How many of these are known to have come to nothing.
    failed: u64,
}

/// What an asking comes to, for the attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Left {
    /// It may have had its effect.
    Open,
    /// This asking began nothing. What others left says it nothing about.
    NothingBegun,
    /// The step had failed: whatever was open before this asking came to nothing.
    Failed,
}

impl OpenSteps {
    pub(crate) fn is_any(&self) -> bool {
        !self.0.lock().is_empty()
    }

    /// Counts an asking. How many were left open before it, for [`ends`](Self::ends).
    pub(super) fn begins(&self, label: &StepLabel) -> u64 {
        let mut steps = self.0.lock();
        let open = steps.entry(label.clone()).or_default();
        open.under_way += 1;
        open.left_open
    }

    pub(super) fn ends(&self, label: &StepLabel, before: u64, left: Left) {
        let mut steps = self.0.lock();
        let Some(open) = steps.get_mut(label) else { return };
        open.under_way = open.under_way.saturating_sub(1);
        match left {
            Left::Open => open.left_open += 1,
            Left::NothingBegun => {}
            Left::Failed => open.failed = open.failed.max(before),
        }
        if open.under_way == 0 && open.left_open == open.failed {
            steps.remove(label);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_clears_what_was_open_before_it_and_no_more() {
        let (steps, label) = (OpenSteps::default(), StepLabel::parse("transfer").unwrap());
        let asking = |left| steps.ends(&label, steps.begins(&label), left);
        asking(Left::Open);
        asking(Left::NothingBegun);
        assert!(steps.is_any());

        // Another one begins and ends while it is found out that the first one failed.
        let before = steps.begins(&label);
        asking(Left::Open);
        steps.ends(&label, before, Left::Failed);
        assert!(steps.is_any());
        asking(Left::Failed);
        assert!(!steps.is_any());

        let before = steps.begins(&label);
        asking(Left::Failed);
        assert!(steps.is_any(), "one is under way");
        steps.ends(&label, before, Left::NothingBegun);
        assert!(!steps.is_any());
    }
}
