//! What is to happen to one request or reply.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What happens to a request or a reply, and to what follows it on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is lost, and the client finds its connection reset.
    Reset,
    /// It is lost, and nothing more comes that way.
    Silence,
    /// It is held back until [`Proxy::release`](super::Proxy::release).
    Hold,
}

/// A rule that was given to a proxy.
#[derive(Clone, Debug)]
pub struct Rule(Arc<AtomicBool>);

impl Rule {
    /// Whether it came to pass.
    #[must_use]
    pub fn has_fired(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Request,
    ReplyTo,
    Reply,
}

#[derive(Debug, Default)]
pub(super) struct Rules(Vec<Pending>);

#[derive(Debug)]
struct Pending {
    place: Place,
    pattern: Vec<u8>,
    left: usize,
    fate: Fate,
    fired: Rule,
}

/// A rule that fires in what was just read.
#[derive(Debug)]
pub(super) struct Fired {
    pub(super) place: Place,
    pub(super) fate: Fate,
    /// How many of the new bytes come before it.
    pub(super) at: usize,
    rule: Rule,
}

impl Fired {
    pub(super) fn confirm(&self) {
        self.rule.0.store(true, Ordering::SeqCst);
    }
}

impl Rules {
    pub(super) fn add(&mut self, place: Place, pattern: &[u8], nth: usize, fate: Fate) -> Rule {
        assert!(!pattern.is_empty() && nth > 0, "a rule needs something to look for, and the first is 1");
        assert!(pattern.len() <= Tail::LENGTH, "a pattern is at most {} bytes long", Tail::LENGTH);
        let fired = Rule(Arc::default());
        self.0.push(Pending { place, pattern: pattern.to_vec(), left: nth, fate, fired: fired.clone() });
        fired
    }

    /// The rule that fires first in what was read after `tail`, if one does.
    pub(super) fn fire(&mut self, places: &[Place], tail: &mut Tail, new: &[u8]) -> Option<Fired> {
        let old = tail.0.len();
        tail.0.extend_from_slice(new);
        let mut first: Option<(usize, usize)> = None;
        for (index, rule) in self.0.iter_mut().enumerate().filter(|(_, rule)| places.contains(&rule.place)) {
            let length = rule.pattern.len();
            for at in find_all(&tail.0, &rule.pattern).filter(|at| at + length > old) {
                rule.left = rule.left.saturating_sub(1);
                if rule.left == 0 {
                    let at = at.saturating_sub(old);
                    first = Some(first.filter(|(_, earlier)| *earlier <= at).unwrap_or((index, at)));
                    break;
                }
            }
        }
        tail.0.drain(..tail.0.len().saturating_sub(Tail::LENGTH));
        let (index, at) = first?;
        let rule = self.0.remove(index);
        Some(Fired { place: rule.place, fate: rule.fate, at, rule: rule.fired })
    }
}

/// The last bytes that came: a pattern may come in pieces.
#[derive(Debug, Default)]
pub(super) struct Tail(Vec<u8>);

impl Tail {
    const LENGTH: usize = 256;
}

/// Where these bytes are; occurrences do not overlap.
pub(super) fn find_all<'a>(bytes: &'a [u8], pattern: &'a [u8]) -> impl Iterator<Item = usize> + 'a {
    let mut from = 0;
    std::iter::from_fn(move || {
        let at = bytes[from..].windows(pattern.len()).position(|window| window == pattern)? + from;
        from = at + pattern.len();
        Some(at)
    })
}
