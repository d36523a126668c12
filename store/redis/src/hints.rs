//! Hints for those who wait: scripts that end something publish on a channel with the name of its key, and one connection listens for
//! all waiters of this process.
//!
//! The connection is made when the first one waits, and again whenever it breaks; it ends when nobody has waited for a while. Meanwhile,
//! and where the server does not let this user publish or subscribe, waiters ask every so often.

use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use idempotency::watch::{Watch, Watched, Watchers};
use redis::RedisError;
use redis::aio::PubSubSink;
use tokio::runtime::Handle;
use tokio::select;
use tokio::sync::Mutex;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::{Instant, sleep, sleep_until};

use crate::connect::Source;
use crate::link::{connected, within};

/// Who waits for what in this process. Clones share the connection.
#[derive(Clone)]
pub(crate) struct Hints(Arc<Shared>);

struct Shared {
    source: Arc<Source>,
    timeout: Duration,
    watchers: Watchers<String>,
    /// Held by the one who listens, as long as it does.
    changes: Mutex<UnboundedReceiver<Change>>,
}

/// Of what is watched: its channel, and whether somebody watches it now.
type Change = (String, bool);

impl Hints {
    pub(crate) fn new(source: Arc<Source>, timeout: Duration) -> Self {
        let (changed, changes) = unbounded_channel();
        let watchers = Watchers::of(move |watched: Watched<'_, String>| {
            let change = match watched {
                Watched::First(channel) => (channel.clone(), true),
                Watched::NoMore(channel) => (channel.clone(), false),
            };
            // The receiver is gone with the store, and so are those who wait.
            let _ = changed.send(change);
        });
        Self(Arc::new(Shared { source, timeout, watchers, changes: Mutex::new(changes) }))
    }

    pub(crate) fn watch(&self, channel: &String) -> Watch {
        let watch = self.0.watchers.watch(channel);
        // Whoever listens looks once more whether somebody watches after it has given this up.
        let is_listening = self.0.changes.try_lock().is_err();
        if !is_listening && let Ok(runtime) = Handle::try_current() {
            let shared = Arc::clone(&self.0);
            runtime.spawn(async move { shared.listen().await });
        }
        watch
    }
}

/// Whoever waits in another runtime than the one that listened learns of its end, too.
struct Listening<'s>(&'s Shared);

impl Drop for Listening<'_> {
    fn drop(&mut self) {
        self.0.watchers.none_told();
    }
}

impl Shared {
    /// Listens while somebody watches, if nobody else listens.
    async fn listen(&self) {
        while !self.watchers.is_empty() {
            let Ok(mut changes) = self.changes.try_lock() else { return };
            self.keep_listening(&mut changes).await;
        }
    }

    async fn keep_listening(&self, changes: &mut UnboundedReceiver<Change>) {
        let mut pause = FIRST_PAUSE;
        loop {
            let since = Instant::now();
            let listening = Listening(self);
            let Err(error) = self.listen_once(changes).await else { return };
            drop(listening);
            if since.elapsed() > LONGEST_PAUSE {
                pause = FIRST_PAUSE;
            }
            tracing::debug!(%error, ?pause, "waiters are not told of changes for now");
            let again = Instant::now() + pause;
            pause = (pause * 2).min(LONGEST_PAUSE);
            let mut unheard = Vec::new();
            while select! {
                () = sleep_until(again) => false,
                _ = changes.recv_many(&mut unheard, BATCH) => true,
            } {
                unheard.clear();
            }
            if self.watchers.is_empty() {
                return;
            }
        }
    }

    /// Listens on one connection, until it breaks or nobody has watched anything for a while.
    async fn listen_once(&self, changes: &mut UnboundedReceiver<Change>) -> Result<(), RedisError> {
        let (sink, mut messages) = connected(self.deadline(), self.source.listen()).await?.split();
        let mut channels = Channels { shared: self, sink, subscribed: HashSet::new() };
        // What has changed until now shows in what is watched.
        while changes.try_recv().is_ok() {}
        for some in self.watchers.watched().chunks(BATCH) {
            channels.follow(some.iter().map(|channel| (channel.clone(), true))).await?;
        }
        let mut batch = Vec::new();
        loop {
            select! {
                message = messages.next() => match message {
                    Some(message) => self.watchers.changed(&message.get_channel_name().to_owned()),
                    None => return Err(io::Error::from(io::ErrorKind::ConnectionAborted).into()),
                },
                _ = changes.recv_many(&mut batch, BATCH) => channels.follow(batch.drain(..)).await?,
                () = sleep(QUIET) => {
                    if self.watchers.is_empty() {
                        return Ok(());
                    }
                    channels.knock().await?;
                }
            }
        }
    }

    fn deadline(&self) -> Instant {
        Instant::now() + self.timeout
    }
}

struct Channels<'s> {
    shared: &'s Shared,
    sink: PubSubSink,
    subscribed: HashSet<String>,
}

impl Channels<'_> {
    /// Subscribes to what is watched now, and to nothing else.
    async fn follow(&mut self, changes: impl Iterator<Item = Change>) -> Result<(), RedisError> {
        // The last word on each counts.
        let changes: HashMap<String, bool> = changes.collect();
        let of = |watched: bool| changes.iter().filter(move |change| *change.1 == watched).map(|(channel, _)| channel);
        let begin: Vec<&String> = of(true).filter(|channel| !self.subscribed.contains(*channel)).collect();
        let end: Vec<&String> = of(false).filter(|channel| self.subscribed.contains(*channel)).collect();
        if !begin.is_empty() {
            within(self.shared.deadline(), self.sink.subscribe(&begin)).await?;
            self.subscribed.extend(begin.into_iter().cloned());
        }
        // Also what was subscribed to all the time: its first watcher may be another one than before.
        of(true).for_each(|channel| self.shared.watchers.told(channel, true));
        if !end.is_empty() {
            within(self.shared.deadline(), self.sink.unsubscribe(&end)).await?;
            for channel in end {
                self.subscribed.remove(channel);
            }
        }
        Ok(())
    }

    /// Whether the server still answers. Silence would say nothing. To subscribe twice is to subscribe once.
    async fn knock(&mut self) -> Result<(), RedisError> {
        match self.subscribed.iter().next() {
            Some(channel) => within(self.shared.deadline(), self.sink.subscribe(channel)).await,
            None => Ok(()),
        }
    }
}

/// At most so many channels in one command.
const BATCH: usize = 256;

/// When nothing was heard for so long, the server is asked whether it is there, or the connection ends if nobody waits.
const QUIET: Duration = Duration::from_secs(5);

/// Until a connection that broke is made anew: at first, and after it broke again and again.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
