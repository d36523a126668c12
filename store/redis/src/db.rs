//! One Redis: the way there, the names of keys, the clock.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use idempotency::time::micros;
use idempotency::watch::Watch;
use idempotency::{Clock, FencingToken, KeyClass, StoreError, Timestamp};
use redis::{Cmd, RedisError, Value};
use tokio::sync::Mutex;

use crate::error::{NotReplicated, store_error};
use crate::group::Groups;
use crate::hints::Hints;
use crate::keys::Keys;
use crate::link::{Link, Resend};
use crate::replicas::Replicas;
use crate::scan::Walk;
use crate::scripts::{Code, Script};

/// What a script answered that writes, and whether it is on replicas, if that is wanted.
pub(crate) type Written = Result<(Value, Result<(), NotReplicated>), RedisError>;

pub(crate) struct Db {
    pub(crate) link: Link,
    pub(crate) keys: Keys,
    pub(crate) clock: Option<Arc<dyn Clock>>,
    pub(crate) not_before: HashMap<KeyClass, Timestamp>,
    pub(crate) replicas: Option<Replicas>,
    pub(crate) claims: Groups,
    pub(crate) completions: Groups,
    /// None in a cluster.
    pub(crate) hints: Option<Hints>,
    /// Where the next sweep goes on, of records and of leases.
    pub(crate) records: Mutex<Option<Walk>>,
    pub(crate) leases: Mutex<Option<Walk>>,
}

impl Db {
    /// Runs a script on keys of one slot.
    pub(crate) async fn run(
        &self,
        script: &Script,
        keys: &[String],
        arguments: impl Fn(&mut Cmd),
    ) -> Result<Value, StoreError> {
        self.send(script, keys, Resend::Broken, arguments).await.map_err(store_error)
    }

    /// The same, with what went wrong as it is.
    pub(crate) async fn send(
        &self,
        script: &Script,
        keys: &[String],
        resend: Resend,
        arguments: impl Fn(&mut Cmd),
    ) -> Result<Value, RedisError> {
        self.link.run(self.form(script), keys, resend, self.timed(arguments)).await
    }

    /// Runs a script whose write is to be on replicas, if that is wanted: its answer, and whether it is.
    ///
    /// One that grants something is not [sent again](Resend::Refused) when its connection breaks: whoever asks is told, asks once more, and
    /// knows that the first asking may still be carried out.
    pub(crate) async fn write(
        &self,
        (script, keys): (&Script, &[String]),
        resend: Resend,
        arguments: impl Fn(&mut Cmd),
        wrote: impl Fn(&Value) -> bool + Send + Sync,
    ) -> Written {
        let (script, arguments) = (self.form(script), self.timed(arguments));
        match (&self.replicas, self.link.source()) {
            (Some(replicas), Some(source)) => {
                let way = (&**source, self.link.timeout);
                // Boxed, since it is large, and most stores have no use for it.
                Box::pin(replicas.run(way, (script, keys), resend, arguments, wrote)).await
            }
            _ => Ok((self.link.run(script, keys, resend, arguments).await?, Ok(()))),
        }
    }

    /// Hints that the key may have changed.
    pub(crate) fn watch(&self, key: &String) -> Watch {
        self.hints.as_ref().map_or_else(Watch::none, |hints| hints.watch(key))
    }

    fn form<'s>(&self, script: &'s Script) -> &'s Code {
        script.form(self.hints.is_some(), self.clock.is_some())
    }

    /// Puts the time that a test gives behind the arguments.
    fn timed(&self, arguments: impl Fn(&mut Cmd)) -> impl Fn(&mut Cmd) {
        let now = self.clock.as_ref().map(|clock| exact(clock.now().micros()));
        move |command| {
            arguments(command);
            if let Some(now) = now {
                command.arg(now);
            }
        }
    }
}

/// A duration as scripts count.
pub(crate) fn duration(duration: Duration) -> i64 {
    exact(micros(duration))
}

/// A time as scripts count.
pub(crate) fn time(time: Timestamp) -> i64 {
    exact(time.micros())
}

/// Scripts count in doubles. Beyond this everything is far enough.
fn exact(micros: i64) -> i64 {
    let most = i64::try_from(FencingToken::MAX).unwrap_or(i64::MAX);
    micros.clamp(-most, most)
}
