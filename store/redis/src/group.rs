//! Operations that meet in one process go to the server in one script.
//!
//! 1. Nobody is delayed for others to come: while less than [`PLACES`] are under way, an operation is sent alone, as if there were no groups.
//! 2. Whoever comes meanwhile waits, and goes with all others who wait, or alone if there are none. A command has its own cost for the server,
//!    beside what it does.
//! 3. Who has a place may stand still, and so may the task that is to send a group: whoever waits for [`LONG`] goes alone. What goes in a group
//!    is taken when it is sent.
//! 4. A script for many does what is most, and leaves out what is special: that is asked alone. So are all members of a group that the server
//!    answers with an error. An error of the connection is told to all: it is not known what became of each.
//! 5. Keys of a group are not of one slot. Where that is refused, each is asked alone from then on.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::{Arg, Cmd, RedisError, Value};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::db::{Db, Written};
use crate::error::{is_answer, is_out_of_memory, is_refused};
use crate::link::Resend;
use crate::scripts::Script;

/// Operations of one kind.
pub(crate) struct Groups {
    /// For any number of them.
    script: &'static LazyLock<Script>,
    resend: Resend,
    state: Mutex<State>,
    is_over: AtomicBool,
}

#[derive(Default)]
struct State {
    under_way: usize,
    /// In the order of their numbers.
    waiting: VecDeque<Waiting>,
    next_number: u64,
}

struct Waiting {
    number: u64,
    asked: Asked,
    runtime: Handle,
    reply: oneshot::Sender<Turn>,
}

/// What a script is asked about one key.
pub(crate) struct Asked {
    pub(crate) key: String,
    pub(crate) arguments: Cmd,
}

impl Asked {
    pub(crate) fn of(key: &[String; 1], arguments: impl Fn(&mut Cmd)) -> Self {
        let mut bag = Cmd::new();
        arguments(&mut bag);
        Self { key: key[0].clone(), arguments: bag }
    }

    /// How many bytes it brings, about.
    fn weight(&self) -> usize {
        simple(&self.arguments).map(<[u8]>::len).sum()
    }
}

fn simple(arguments: &Cmd) -> impl Iterator<Item = &[u8]> {
    arguments.args_iter().filter_map(|argument| match argument {
        Arg::Simple(bytes) => Some(bytes),
        _ => None,
    })
}

/// Who goes on with a place that was left.
enum Next {
    Only(Waiting),
    /// A task of this runtime, which is the first one's.
    Several(Handle),
}

/// How an operation is to be carried out.
enum Turn {
    /// By whoever asks. To be kept until it is.
    Alone(Option<Place>),
    /// It was, with this answer.
    Answered(Result<Value, RedisError>),
}

impl Groups {
    /// With `is_over`, everything is asked alone.
    pub(crate) fn new(script: &'static LazyLock<Script>, resend: Resend, is_over: bool) -> Self {
        Self { script, resend, state: Mutex::default(), is_over: AtomicBool::new(is_over) }
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// Takes back what waits. Not if it is under way.
    fn withdraw(&self, number: u64) -> bool {
        let mut state = self.lock();
        let found = state.waiting.binary_search_by_key(&number, |waiting| waiting.number);
        found.is_ok_and(|at| state.waiting.remove(at).is_some())
    }

    /// Who goes on with a place; none when nobody waits any more, and then it is free.
    fn next(&self) -> Option<Next> {
        let mut state = self.lock();
        while state.waiting.front().is_some_and(|waiting| waiting.reply.is_closed()) {
            state.waiting.pop_front();
        }
        match state.waiting.front() {
            Some(first) if state.waiting.len() > 1 => Some(Next::Several(first.runtime.clone())),
            Some(_) => state.waiting.pop_front().map(Next::Only),
            None => {
                state.under_way -= 1;
                None
            }
        }
    }

    /// Takes those who go together. What was given up meanwhile need not be sent.
    fn take_group(&self) -> Vec<Waiting> {
        let mut state = self.lock();
        let (mut group, mut weight) = (Vec::new(), 0);
        while group.len() < MOST && weight < HEAVY {
            let Some(waiting) = state.waiting.pop_front() else { break };
            if !waiting.reply.is_closed() {
                weight += waiting.asked.weight();
                group.push(waiting);
            }
        }
        group
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing is left half done under this lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Db {
    /// Carries out what is `asked`, together with whoever else asks meanwhile, or `alone`; also if it is nothing that many can be asked for. Where
    /// replicas are waited for, nothing is shared.
    pub(crate) async fn share(
        self: &Arc<Self>,
        kind: fn(&Self) -> &Groups,
        asked: Option<impl FnOnce() -> Asked>,
        alone: impl Future<Output = Written>,
    ) -> Written {
        let turn = match asked {
            Some(asked) => self.take_turn(kind, asked).await,
            None => Turn::Alone(None),
        };
        match turn {
            Turn::Answered(answered) => answered.map(|answer| (answer, Ok(()))),
            Turn::Alone(_place) => alone.await,
        }
    }

    async fn take_turn(self: &Arc<Self>, kind: fn(&Self) -> &Groups, asked: impl FnOnce() -> Asked) -> Turn {
        let groups = kind(self);
        if groups.is_over() {
            return Turn::Alone(None);
        }
        let place = |state: &mut State| {
            let is_free = state.under_way < PLACES;
            state.under_way += usize::from(is_free);
            is_free.then(|| Place { db: Arc::clone(self), kind })
        };
        if let place @ Some(_) = place(&mut groups.lock()) {
            return Turn::Alone(place);
        }
        let (reply, mut answer) = oneshot::channel();
        let (asked, runtime) = (asked(), Handle::current());
        let number = {
            let mut state = groups.lock();
            if let place @ Some(_) = place(&mut state) {
                return Turn::Alone(place);
            }
            let number = state.next_number;
            state.next_number += 1;
            state.waiting.push_back(Waiting { number, asked, runtime, reply });
            number
        };
        let mut wait = Wait { groups, number, is_told: false };
        let told = match timeout(LONG, &mut answer).await {
            Ok(told) => Ok(told),
            Err(_) if groups.withdraw(number) => return Turn::Alone(None),
            Err(_) => timeout(self.link.timeout, answer).await,
        };
        wait.is_told = true;
        let unknown = |kind| Turn::Answered(Err(io::Error::from(kind).into()));
        match told {
            Ok(Ok(turn)) => turn,
            // Another runtime sent it, and ends.
            Ok(Err(_)) if groups.resend == Resend::Broken => Turn::Alone(None),
            Ok(Err(_)) => unknown(io::ErrorKind::ConnectionAborted),
            // Or stands still.
            Err(_) => unknown(io::ErrorKind::TimedOut),
        }
    }
}

/// What waits. Given up, it is not sent.
struct Wait<'g> {
    groups: &'g Groups,
    number: u64,
    is_told: bool,
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        if !self.is_told {
            self.groups.withdraw(self.number);
        }
    }
}

/// One of the places of those who are under way. Left, it is taken by those who wait.
struct Place {
    db: Arc<Db>,
    kind: fn(&Db) -> &Groups,
}

impl Drop for Place {
    fn drop(&mut self) {
        let Some(next) = self.groups().next() else { return };
        let place = Self { db: Arc::clone(&self.db), kind: self.kind };
        match next {
            // Unheard, the place is left at once.
            Next::Only(waiting) => drop(waiting.reply.send(Turn::Alone(Some(place)))),
            // In a task of its own, which nobody drops but the end of its runtime. They wait until it begins, and not longer than for any
            // place: it may stand behind somebody who blocks its thread.
            Next::Several(runtime) => {
                let mut unbegun = Unbegun(Some(place));
                runtime.spawn(async move {
                    if let Some(place) = unbegun.0.take() {
                        carry_out(&place, place.groups().take_group()).await;
                    }
                });
            }
        }
    }
}

impl Place {
    fn groups(&self) -> &Groups {
        (self.kind)(&self.db)
    }
}

/// The place of a task that has not begun. If it never does, its runtime ends; so many as it would have sent are told to go alone, since
/// whoever is first would be given the same runtime again.
struct Unbegun(Option<Place>);

impl Drop for Unbegun {
    fn drop(&mut self) {
        let group = self.0.as_ref().map(|place| place.groups().take_group());
        group.into_iter().flatten().for_each(|waiting| drop(waiting.reply.send(Turn::Alone(None))));
    }
}

/// Sends a group, and tells its members. Of nobody, if all have gone alone by now.
async fn carry_out(place: &Place, group: Vec<Waiting>) {
    let (db, groups) = (&place.db, place.groups());
    if group.is_empty() {
        return;
    }
    let (keys, (arguments, replies)): (Vec<_>, (Vec<_>, Vec<_>)) =
        group.into_iter().map(|waiting| (waiting.asked.key, (waiting.asked.arguments, waiting.reply))).unzip();
    let all = |command: &mut Cmd| {
        for argument in arguments.iter().flat_map(simple) {
            command.arg(argument);
        }
    };
    let turns: Vec<_> = if groups.is_over() {
        keys.iter().map(|_| Turn::Alone(None)).collect()
    } else {
        groups.turns(db.send(groups.script, &keys, groups.resend, all).await, keys.len())
    };
    // Whoever does not wait any more does not hear it.
    replies.into_iter().zip(turns).for_each(|(reply, turn)| drop(reply.send(turn)));
}

impl Groups {
    /// What each is told.
    fn turns(&self, answered: Result<Value, RedisError>, members: usize) -> Vec<Turn> {
        let error = match answered {
            Ok(Value::Array(answers)) if answers.len() == members => {
                let turn = |answer| if answer == Value::Nil { Turn::Alone(None) } else { Turn::Answered(Ok(answer)) };
                return answers.into_iter().map(turn).collect();
            }
            Ok(_) => None,
            Err(error) => Some(error),
        };
        tracing::debug!(?error, members, "a group failed");
        // Out of memory the server carries nothing out.
        let is_of_all = |error: &RedisError| !is_answer(error) || is_out_of_memory(error);
        if error.as_ref().is_none_or(is_refused) {
            self.is_over.store(true, Ordering::Relaxed);
        }
        let of_all = error.filter(is_of_all);
        let turn = || of_all.clone().map_or(Turn::Alone(None), |error| Turn::Answered(Err(error)));
        std::iter::repeat_with(turn).take(members).collect()
    }
}

/// How many operations of a kind, or groups of them, are under way at once before others wait for one of them.
const PLACES: usize = 8;

/// How long one waits for a place that nobody leaves.
const LONG: Duration = Duration::from_millis(100);

/// The most members of a group: nobody else is served by the server meanwhile, some tenths of a millisecond.
const MOST: usize = 32;

/// A group that is so heavy, in bytes, gets no more members.
const HEAVY: usize = 256 << 10;
