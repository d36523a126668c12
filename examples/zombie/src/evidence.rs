//! Whether an act went the way that it was to go. A run in which nobody was overtaken proves nothing.

use std::time::Duration;

use crate::act::Act;
use crate::event::{What, Who};
use crate::timeline::Timeline;

/// What the timeline lacks.
pub(crate) fn missing(act: Act, timeline: &Timeline, lease: Duration) -> Vec<&'static str> {
    let seen = Seen(timeline);
    let mut evidence = vec![("A was stopped between its look and its write", seen.a_was_stopped_before_its_write())];
    if act.has_lock() {
        evidence.push(("A was stopped for longer than its lock", seen.a_was_stopped_for(lease)));
        evidence.push(("A was stopped until B had the lock, and wrote without", seen.a_wrote_without_its_lock()));
    }
    evidence.extend(match act {
        Act::TtlLock => {
            vec![("A wrote last", seen.a_wrote_last()), ("A deleted B's lock", seen.a_released(Some(Who::B)))]
        }
        Act::OwnedLock => vec![("A wrote last", seen.a_wrote_last()), ("A left B's lock alone", seen.a_released(None))],
        Act::CheckedAtWrite => vec![
            ("A wrote after B had read and before B wrote", seen.a_wrote_within_bs_work()),
            ("nobody was refused", !seen.a_was_refused()),
        ],
        Act::OpenedFirst => vec![
            ("A tried after B had read and before B wrote", seen.a_wrote_within_bs_work()),
            ("A was refused with B's token", seen.a_was_refused_with_bs_token()),
            ("A began anew and wrote", seen.a_wrote()),
        ],
        Act::UniqueRow => vec![("A was told that it is done", seen.a_was_told())],
    });
    evidence.into_iter().filter(|(_, seen)| !seen).map(|(what, _)| what).collect()
}

struct Seen<'t>(&'t Timeline);

impl Seen<'_> {
    fn a_was_stopped_before_its_write(&self) -> bool {
        in_order([
            self.first(Who::A, |what| *what == What::Stopped),
            self.first(Who::A, |what| matches!(what, What::Woke { .. })),
            self.first(Who::A, What::is_attempt),
        ])
    }

    fn a_was_stopped_for(&self, lease: Duration) -> bool {
        self.did(Who::A, |what| matches!(what, What::Woke { after_ms } if u128::from(*after_ms) >= lease.as_millis()))
    }

    fn a_wrote_without_its_lock(&self) -> bool {
        in_order([
            self.first(Who::A, |what| *what == What::Over),
            self.first(Who::B, |what| matches!(what, What::Took { .. })),
            self.first(Who::A, |what| matches!(what, What::Woke { .. })),
            self.first(Who::A, What::is_attempt),
        ])
    }

    fn a_wrote_last(&self) -> bool {
        in_order([self.first(Who::B, What::is_write), self.first(Who::A, What::is_write)])
    }

    fn a_wrote_within_bs_work(&self) -> bool {
        in_order([
            self.first(Who::B, |what| matches!(what, What::Read { .. })),
            self.first(Who::A, What::is_attempt),
            self.first(Who::B, What::is_write),
        ])
    }

    fn a_wrote(&self) -> bool {
        self.did(Who::A, What::is_write)
    }

    fn a_was_refused(&self) -> bool {
        self.did(Who::A, |what| matches!(what, What::Refused { .. }))
    }

    fn a_was_refused_with_bs_token(&self) -> bool {
        let bs = self.0.of_whom(Who::B).find_map(|event| match event.what {
            What::Took { token, .. } => token,
            _ => None,
        });
        self.did(Who::A, |what| matches!(what, What::Refused { current, .. } if Some(*current) == bs))
    }

    fn a_was_told(&self) -> bool {
        self.did(Who::A, |what| *what == What::ChargedAlready)
    }

    /// The first lock that is gone when A gives back its own.
    fn a_released(&self, whose: Option<Who>) -> bool {
        let released = self.0.of_whom(Who::A).find(|event| matches!(event.what, What::Released { .. }));
        released.is_some_and(|event| event.what == What::Released { owner: whose })
    }

    fn did(&self, who: Who, what: impl Fn(&What) -> bool) -> bool {
        self.first(who, what).is_some()
    }

    fn first(&self, who: Who, is: impl Fn(&What) -> bool) -> Option<u64> {
        self.0.of_whom(who).find(|event| is(&event.what)).map(|event| event.at)
    }
}

/// All of them happened, one after the other.
fn in_order<const N: usize>(moments: [Option<u64>; N]) -> bool {
    moments.iter().all(Option::is_some) && moments.is_sorted()
}
