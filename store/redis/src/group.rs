//! Operations that meet in one process go to the server in one script.
//!
//! 1. Nobody is delayed for others to come: while less than [`PLACES`] are under way, an operation is sent alone, as if there were no groups.
//! 2. Whoever comes meanwhile waits, and goes with all others who wait. A command has its own cost for the server, beside what it does.
//! 3. A script for many does what is most, and leaves out what is special: that is asked alone. So does whoever's group the server answers
//!    with an error, which says that nothing of it can come later. An error of the connection is told to all: it is not known what became of each.
//! 4. Keys of a group are not of one slot. A server that minds is asked about each key alone from then on.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use redis::{Arg, Cmd, RedisError, Value};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::db::Db;
use crate::error::{is_answer, is_cross_slot};
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
    waiting: VecDeque<Waiting>,
}

struct Waiting {
    asked: Asked,
    since: Instant,
    runtime: Handle,
    reply: oneshot::Sender<Option<Result<Value, RedisError>>>,
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

/// How an operation is to be carried out.
pub(crate) enum Turn {
    /// By whoever asks. To be kept until it is.
    Alone(Option<Place>),
    /// It was, with this answer.
    Answered(Result<Value, RedisError>),
}

impl Groups {
    pub(crate) fn new(script: &'static LazyLock<Script>, resend: Resend) -> Self {
        Self { script, resend, state: Mutex::default(), is_over: AtomicBool::new(false) }
    }

    /// Whom to send next; none when nobody waits any more, and then the place is free.
    fn next(&self) -> Option<Vec<Waiting>> {
        let mut state = self.lock();
        let (mut group, mut weight) = (Vec::new(), 0);
        while group.len() < MOST && weight < HEAVY {
            let Some(waiting) = state.waiting.pop_front() else { break };
            // What was given up meanwhile need not be sent.
            if !waiting.reply.is_closed() {
                weight += waiting.asked.weight();
                group.push(waiting);
            }
        }
        if group.is_empty() {
            state.under_way -= 1;
            return None;
        }
        Some(group)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing is left half done under this lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Db {
    /// Alone, or together with whoever else asks meanwhile.
    pub(crate) async fn take_turn(self: &Arc<Self>, kind: fn(&Self) -> &Groups, asked: impl FnOnce() -> Asked) -> Turn {
        let groups = kind(self);
        if groups.is_over.load(Ordering::Relaxed) {
            return Turn::Alone(None);
        }
        let answer = {
            let mut state = groups.lock();
            if state.under_way < PLACES {
                state.under_way += 1;
                return Turn::Alone(Some(Place { db: Arc::clone(self), kind, is_left: false }));
            }
            let (reply, answer) = oneshot::channel();
            state.waiting.push_back(Waiting {
                asked: asked(),
                since: Instant::now(),
                runtime: Handle::current(),
                reply,
            });
            answer
        };
        match answer.await {
            Ok(Some(answer)) => Turn::Answered(answer),
            Ok(None) => Turn::Alone(None),
            // The runtime that sent it ends, or we have a bug.
            Err(_) => Turn::Answered(Err(io::Error::from(io::ErrorKind::ConnectionAborted).into())),
        }
    }
}

/// One of the places of those who are under way. Left, it is taken by those who wait.
pub(crate) struct Place {
    db: Arc<Db>,
    kind: fn(&Db) -> &Groups,
    is_left: bool,
}

impl Place {
    fn next(&mut self) -> Option<Vec<Waiting>> {
        let next = (self.kind)(&self.db).next();
        self.is_left = next.is_none();
        next
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.is_left {
            return;
        }
        let Some(group) = self.next() else { return };
        self.is_left = true;
        let mut place = Self { db: Arc::clone(&self.db), kind: self.kind, is_left: false };
        // In a task of its own, which nobody drops but the end of its runtime.
        let runtime = group[0].runtime.clone();
        runtime.spawn(async move {
            let mut next = Some(group);
            while let Some(group) = next {
                carry_out(&place, group).await;
                next = place.next();
            }
        });
    }
}

async fn carry_out(Place { db, kind, .. }: &Place, mut group: Vec<Waiting>) {
    let groups = kind(db);
    for late in group.extract_if(.., |waiting| waiting.since.elapsed() > db.link.timeout) {
        // That nothing was sent is certain.
        drop(late.reply.send(Some(Err(io::Error::from(io::ErrorKind::NotConnected).into()))));
    }
    let (keys, (arguments, replies)): (Vec<_>, (Vec<_>, Vec<_>)) =
        group.into_iter().map(|waiting| (waiting.asked.key, (waiting.asked.arguments, waiting.reply))).unzip();
    let answers = match keys.len() {
        0 => return,
        1 => vec![None],
        members => {
            let all = |command: &mut Cmd| {
                for argument in arguments.iter().flat_map(simple) {
                    command.arg(argument);
                }
            };
            answers(db.run_together(groups.script, &keys, groups.resend, all).await, members, groups)
        }
    };
    // Whoever does not wait any more does not hear it.
    replies.into_iter().zip(answers).for_each(|(reply, answer)| drop(reply.send(answer)));
}

/// What each is told; none is to ask alone.
fn answers(
    answered: Result<Value, RedisError>,
    members: usize,
    groups: &Groups,
) -> Vec<Option<Result<Value, RedisError>>> {
    match answered {
        Ok(Value::Array(answers)) if answers.len() == members => {
            answers.into_iter().map(|answer| Some(answer).filter(|answer| *answer != Value::Nil).map(Ok)).collect()
        }
        Err(error) if !is_answer(&error) => vec![Some(Err(error)); members],
        refused => {
            let error = refused.err();
            tracing::debug!(?error, members, "a group was refused");
            if error.is_some_and(|error| is_cross_slot(&error)) {
                groups.is_over.store(true, Ordering::Relaxed);
            }
            vec![None; members]
        }
    }
}

/// How many operations of a kind, or groups of them, are under way at once before others wait for one of them.
const PLACES: usize = 8;

/// The most members of a group: nobody else is served by the server meanwhile, some tenths of a millisecond.
const MOST: usize = 32;

/// A group that is so heavy, in bytes, gets no more members.
const HEAVY: usize = 256 << 10;
