//! Who comes while others are served waits, and is served together with whoever else has come meanwhile.

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use idempotency::{RecordId, StoreError, StoreErrorKind};

/// Something that is asked about one record.
pub(crate) trait Member {
    /// The record, if no other member of a group may be about it.
    fn alone_about(&self) -> Option<&RecordId>;
    /// How many bytes it brings, about.
    fn weight(&self) -> usize {
        0
    }
}

/// Whoever waits to be served. Nobody is delayed for others to come: who finds a server free is served at once.
pub(crate) struct Queue<M> {
    state: Mutex<State<M>>,
    /// How many may serve at once.
    servers: usize,
    /// The most members of a group.
    most: usize,
}

struct State<M> {
    waiting: VecDeque<M>,
    serving: usize,
}

impl<M: Member> Queue<M> {
    /// Served by one server at a time, or by several, in groups of one or more.
    pub(crate) fn new(servers: usize, most: usize) -> Self {
        let state = State { waiting: VecDeque::new(), serving: 0 };
        Self { state: Mutex::new(state), servers, most }
    }

    /// Adds one. True: there is a place for another server, and whoever asked has to see to it that there is one.
    #[must_use]
    pub(crate) fn push(&self, member: M) -> bool {
        let mut state = self.lock();
        state.waiting.push_back(member);
        let is_free = state.serving < self.servers;
        state.serving += usize::from(is_free);
        is_free
    }

    /// Whether nobody is served or waits.
    #[cfg(feature = "sqlite")]
    pub(crate) fn is_idle(&self) -> bool {
        self.lock().serving == 0
    }

    /// The next ones, in the order in which they came, no two of them about one record that is to be alone. None when nobody waits:
    /// then this server serves no more.
    fn next(&self) -> Option<Vec<M>> {
        let mut state = self.lock();
        if state.waiting.is_empty() {
            state.serving -= 1;
            return None;
        }
        // So that a long queue about one record costs each of its groups no more than this.
        let looked_at = state.waiting.len().min(4 * self.most);
        let (mut ids, mut weight) = (HashSet::new(), 0);
        let (mut group, mut left) = (Vec::new(), Vec::new());
        for member in state.waiting.drain(..looked_at) {
            let has_room = group.len() < self.most && (group.is_empty() || weight + member.weight() <= HEAVIEST);
            if has_room && member.alone_about().is_none_or(|id| ids.insert(*id)) {
                weight += member.weight();
                group.push(member);
            } else {
                left.push(member);
            }
        }
        left.into_iter().rev().for_each(|member| state.waiting.push_front(member));
        Some(group)
    }

    /// A server is gone, though somebody may wait. Where it was the last one they are let go, and the next one to come sees to it anew.
    fn abandoned(&self) {
        let mut state = self.lock();
        state.serving -= 1;
        let let_go = if state.serving == 0 { std::mem::take(&mut state.waiting) } else { VecDeque::new() };
        drop(state);
        drop(let_go);
    }

    fn lock(&self) -> MutexGuard<'_, State<M>> {
        // Nothing is left half done under this lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A server of a queue of a database. Dropped before nobody waits any more, by a panic or the end of a runtime, it leaves its place.
pub(crate) struct Serving<D, M: Member> {
    pub(crate) db: Arc<D>,
    queue: fn(&D) -> &Queue<M>,
    is_over: bool,
}

impl<D, M: Member> Serving<D, M> {
    /// For whom [`Queue::push`] has said that there is a place.
    pub(crate) fn new(db: &Arc<D>, queue: fn(&D) -> &Queue<M>) -> Self {
        Self { db: Arc::clone(db), queue, is_over: false }
    }

    /// Whom to serve next; none when this server is to go, and from then on.
    pub(crate) fn next(&mut self) -> Option<Vec<M>> {
        if self.is_over {
            return None;
        }
        let next = (self.queue)(&self.db).next();
        self.is_over = next.is_none();
        next
    }
}

impl<D, M: Member> Drop for Serving<D, M> {
    fn drop(&mut self) {
        if !self.is_over {
            (self.queue)(&self.db).abandoned();
        }
    }
}

/// The most bytes of a group of more than one: a server has to hold them all at once.
const HEAVIEST: usize = 8 << 20;

/// How many were served together.
pub(crate) const GROUP_SIZE: &str = "idempotency_group_commit_size";

/// An error that several are told.
pub(crate) fn shared(error: &Arc<StoreError>) -> StoreError {
    StoreError::new(error.kind(), Arc::clone(error))
}

/// The runtime shuts down, or we have a bug.
pub(crate) fn cut_off() -> StoreError {
    StoreError::new(StoreErrorKind::Unavailable, "the operation was cut off")
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: usize = 64;

    struct One(RecordId, u32);

    impl Member for One {
        fn alone_about(&self) -> Option<&RecordId> {
            Some(&self.0)
        }
    }

    struct Heavy(RecordId, usize);

    impl Member for Heavy {
        fn alone_about(&self) -> Option<&RecordId> {
            Some(&self.0)
        }
        fn weight(&self) -> usize {
            self.1
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
        let queue = Queue::new(1, MOST);
        assert!(queue.push(about(1, 1)));
        assert!(!queue.push(about(2, 2)));
        assert_eq!(numbers(queue.next()), [1, 2]);
        assert!(!queue.push(about(3, 3)), "served until it is empty");
        assert_eq!(numbers(queue.next()), [3]);
        assert!(queue.next().is_none());
        assert!(queue.push(about(4, 4)));
    }

    #[test]
    fn as_many_serve_as_may() {
        let queue = Queue::new(2, MOST);
        assert!(queue.push(about(1, 1)) && queue.push(about(2, 2)));
        assert!(!queue.push(about(3, 3)));
        assert_eq!(numbers(queue.next()), [1, 2, 3]);
        assert!(queue.next().is_none());
        assert!(queue.push(about(4, 4)), "one has gone, and the other one may be at it for long");
        queue.abandoned();
        assert_eq!(numbers(queue.next()), [4], "the other one is still there for it");
    }

    #[test]
    fn a_server_that_is_to_go_leaves_its_place_once() {
        let queue = Arc::new(Queue::new(1, MOST));
        assert!(queue.push(about(1, 1)));
        let mut serving = Serving::new(&queue, |queue| queue);
        assert_eq!(numbers(serving.next()), [1]);
        assert!(serving.next().is_none() && serving.next().is_none());
        drop(serving);
        assert!(queue.push(about(2, 2)), "there is a place for one");
        assert!(!queue.push(about(3, 3)), "and for no other");
    }

    #[test]
    fn two_about_one_record_are_in_two_groups_in_their_order() {
        let queue = Queue::new(1, MOST);
        for (id, number) in [(1, 1), (1, 2), (2, 3), (1, 4), (2, 5)] {
            let _ = queue.push(about(id, number));
        }
        assert_eq!(numbers(queue.next()), [1, 3]);
        assert_eq!(numbers(queue.next()), [2, 5]);
        assert_eq!(numbers(queue.next()), [4]);
    }

    #[test]
    fn a_group_is_no_larger_than_a_statement() {
        let queue = Queue::new(1, MOST);
        for id in 0..100 {
            let _ = queue.push(about(id, id.into()));
        }
        assert_eq!(numbers(queue.next()).len(), MOST);
        assert_eq!(numbers(queue.next()).len(), 100 - MOST);
    }

    #[test]
    fn a_group_is_no_heavier_than_may_be_and_one_may_be_heavier() {
        let queue = Queue::new(1, MOST);
        for (id, weight) in [(1, 2 * HEAVIEST), (2, HEAVIEST), (3, 1), (4, HEAVIEST - 1), (5, 1)] {
            let _ = queue.push(Heavy(RecordId::from_bytes([id; 32]), weight));
        }
        let groups = std::iter::from_fn(|| queue.next());
        let weights: Vec<Vec<usize>> = groups.map(|group| group.iter().map(|heavy| heavy.1).collect()).collect();
        assert_eq!(weights, [vec![2 * HEAVIEST], vec![HEAVIEST], vec![1, HEAVIEST - 1], vec![1]]);
    }

    #[test]
    fn those_that_need_not_be_alone_are_served_as_they_come() {
        let queue = Queue::new(1, MOST);
        for number in 0..100 {
            let _ = queue.push(Any(number));
        }
        let group = queue.next().unwrap_or_default();
        assert!(group.iter().map(|any| any.0).eq(0..u32::try_from(MOST).unwrap_or_default()));
    }

    #[test]
    fn when_serving_is_cut_off_those_who_wait_are_let_go_and_the_next_one_is_served() {
        let queue = Queue::new(1, MOST);
        let _ = queue.push(about(1, 1));
        queue.abandoned();
        assert!(queue.push(about(2, 2)));
        assert_eq!(numbers(queue.next()), [2]);
    }
}
