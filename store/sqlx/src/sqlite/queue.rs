//! Who comes while somebody is served waits, and is served together with whoever else has come meanwhile.

use std::collections::{HashSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use idempotency::RecordId;

use super::many::MOST;

/// Something that is asked about one record.
pub(super) trait Member {
    /// The record, if no other member of a group may be about it.
    fn alone_about(&self) -> Option<&RecordId>;
}

/// Whoever waits to be served. Nobody is delayed for others to come: the first is served at once, and alone.
pub(super) struct Queue<M>(Mutex<State<M>>);

struct State<M> {
    waiting: VecDeque<M>,
    is_served: bool,
}

impl<M: Member> Queue<M> {
    pub(super) fn new() -> Self {
        Self(Mutex::new(State { waiting: VecDeque::new(), is_served: false }))
    }

    /// Adds one. True: nobody serves the queue, and whoever asked has to see to it that [`next`](Self::next) is called until nobody
    /// waits, or else [`abandoned`](Self::abandoned).
    #[must_use]
    pub(super) fn push(&self, member: M) -> bool {
        let mut state = self.lock();
        state.waiting.push_back(member);
        !std::mem::replace(&mut state.is_served, true)
    }

    /// Whether nobody is served or waits.
    pub(super) fn is_idle(&self) -> bool {
        !self.lock().is_served
    }

    /// The next ones, in the order in which they came, no two of them about one record that is to be alone. None when nobody waits:
    /// then nobody serves any more.
    pub(super) fn next(&self) -> Option<Vec<M>> {
        let mut state = self.lock();
        if state.waiting.is_empty() {
            state.is_served = false;
            return None;
        }
        let looked_at = state.waiting.len().min(FARTHEST);
        let mut ids = HashSet::new();
        let (mut group, mut left) = (Vec::new(), Vec::new());
        for member in state.waiting.drain(..looked_at) {
            let fits = group.len() < MOST && member.alone_about().is_none_or(|id| ids.insert(*id));
            if fits { group.push(member) } else { left.push(member) }
        }
        left.into_iter().rev().for_each(|member| state.waiting.push_front(member));
        Some(group)
    }

    /// Nobody serves any more, though somebody may wait: they are let go, and the next one to come sees to it anew.
    pub(super) fn abandoned(&self) {
        let mut state = self.lock();
        state.is_served = false;
        let let_go = std::mem::take(&mut state.waiting);
        drop(state);
        drop(let_go);
    }

    fn lock(&self) -> MutexGuard<'_, State<M>> {
        // Nothing is left half done under this lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How far a group looks for members, so that a long queue about one record costs each of its groups no more than this.
const FARTHEST: usize = 4 * MOST;

#[cfg(test)]
mod tests {
    use super::*;

    struct One(RecordId, u32);

    impl Member for One {
        fn alone_about(&self) -> Option<&RecordId> {
            Some(&self.0)
        }
    }

    struct Any(u32);

    impl Member for Any {
        fn alone_about(&self) -> Option<&RecordId> {
            None
        }
    }

    fn about(id: u8, number: u32) -> One {
        One(RecordId::from_bytes([id; 32]), number)
    }

    fn numbers(group: Option<Vec<One>>) -> Vec<u32> {
        group.into_iter().flatten().map(|one| one.1).collect()
    }

    #[test]
    fn whoever_finds_nobody_serving_serves() {
        let queue = Queue::new();
        assert!(queue.is_idle());
        assert!(queue.push(about(1, 1)));
        assert!(!queue.push(about(2, 2)));
        assert_eq!(numbers(queue.next()), [1, 2]);
        assert!(!queue.is_idle());
        assert!(!queue.push(about(3, 3)), "served until it is empty");
        assert_eq!(numbers(queue.next()), [3]);
        assert!(queue.next().is_none());
        assert!(queue.is_idle());
        assert!(queue.push(about(4, 4)));
    }

    #[test]
    fn two_about_one_record_are_in_two_groups_in_their_order() {
        let queue = Queue::new();
        for (id, number) in [(1, 1), (1, 2), (2, 3), (1, 4), (2, 5)] {
            let _ = queue.push(about(id, number));
        }
        assert_eq!(numbers(queue.next()), [1, 3]);
        assert_eq!(numbers(queue.next()), [2, 5]);
        assert_eq!(numbers(queue.next()), [4]);
    }

    #[test]
    fn a_group_is_no_larger_than_a_statement() {
        let queue = Queue::new();
        for id in 0..100 {
            let _ = queue.push(about(id, id.into()));
        }
        assert_eq!(numbers(queue.next()).len(), MOST);
        assert_eq!(numbers(queue.next()).len(), 100 - MOST);
    }

    #[test]
    fn those_that_need_not_be_alone_are_served_as_they_come() {
        let queue = Queue::new();
        for number in 0..100 {
            let _ = queue.push(Any(number));
        }
        let group = queue.next().unwrap_or_default();
        assert!(group.iter().map(|any| any.0).eq(0..u32::try_from(MOST).unwrap_or_default()));
    }

    #[test]
    fn when_serving_is_cut_off_those_who_wait_are_let_go_and_the_next_one_is_served() {
        let queue = Queue::new();
        let _ = queue.push(about(1, 1));
        queue.abandoned();
        assert!(queue.push(about(2, 2)));
        assert_eq!(numbers(queue.next()), [2]);
    }
}
