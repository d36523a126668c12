//! The table.

use std::fmt;

use crate::director::Situation;
use crate::job::Workflow;
use crate::say::Said;
use crate::way::Way;

/// How one job went.
pub(crate) struct Cell {
    pub(crate) way: Way,
    pub(crate) workflow: Workflow,
    pub(crate) situation: Situation,
    /// Who had an effect, as the database has it: one for each effect.
    pub(crate) by: Vec<&'static str>,
    /// The last thing that the worker heard that started first; none when it was killed.
    pub(crate) first_told: Option<Said>,
    pub(crate) second_told: Said,
}

impl Cell {
    /// One effect, by the one whose turn it was, who knows it; and the other one knows that it was not theirs.
    pub(crate) fn is_right(&self) -> bool {
        let (first, second) = (self.first_told.as_ref(), &self.second_told);
        match self.situation {
            // Whoever it was.
            Situation::TwoAtOnce => match self.by[..] {
                ["first"] => first == Some(&Said::Done) && *second == Said::AlreadyDone,
                ["second"] => *second == Said::Done && matches!(first, Some(Said::Refused(_))),
                _ => false,
            },
            Situation::Killed => self.by == ["second"] && *second == Said::Done,
            Situation::Paused => {
                self.by == ["second"] && *second == Said::Done && matches!(first, Some(Said::Refused(_)))
            }
        }
    }

    /// Right where it should be, and wrong where the fault is known: a run that does not see a double effect where there is
    /// one proves nothing.
    pub(crate) fn is_expected(&self) -> bool {
        self.is_right() != self.way.breaks(self.situation)
    }

    fn verdict(&self) -> &'static str {
        match (self.is_right(), self.is_expected()) {
            (true, true) => "right",
            (false, true) if self.by.len() > 1 => "DOUBLE EFFECT, as expected",
            (false, true) if self.second_told == Said::AlreadyDone => "STUCK UNTIL IT WOKE, as expected",
            (false, true) => "THE LATE ONE FINISHED, as expected",
            (false, false) => "WRONG",
            (true, false) => "NO FAULT, and one was expected",
        }
    }

    /// What was told whoever should not be the one to finish: the one who was late, and of two at once the one who was not first.
    fn other_told(&self) -> String {
        match (self.situation, &self.first_told) {
            (_, None) => "(it was killed)".into(),
            (Situation::TwoAtOnce, Some(_)) if self.by != ["second"] => self.second_told.line(),
            (_, Some(told)) => told.line(),
        }
    }
}

/// The first lines.
pub(crate) fn head() -> String {
    let head = line(["job", "situation", "effects", "finished by", "the other one was told", ""]);
    format!("{head}\n{}", "-".repeat(130))
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (job, situation, effects) =
            (self.workflow.to_string(), self.situation.to_string(), self.by.len().to_string());
        let (by, told) = (self.by.join(", "), self.other_told());
        f.write_str(&line([&job, &situation, &effects, &by, &told, self.verdict()]))
    }
}

impl fmt::Display for Situation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TwoAtOnce => "two at once",
            Self::Killed => "killed",
            Self::Paused => "paused",
        })
    }
}

fn line([job, situation, effects, by, told, verdict]: [&str; 6]) -> String {
    format!("  {job:6} {situation:12} {effects:>7}  {by:14} {told:50} {verdict}").trim_end().to_owned()
}
