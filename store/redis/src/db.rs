//! One Redis: the way there, the names of keys, the clock.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use idempotency::time::micros;
use idempotency::{Clock, FencingToken, KeyClass, StoreError, Timestamp};
use redis::{Cmd, RedisError, Value};
use tokio::sync::Mutex;

use crate::error::{NotReplicated, store_error};
use crate::keys::Keys;
use crate::link::Link;
use crate::replicas::Replicas;
use crate::scan::Walk;
use crate::scripts::Script;

pub(crate) struct Db {
    pub(crate) link: Link,
    pub(crate) keys: Keys,
    pub(crate) clock: Option<Arc<dyn Clock>>,
    pub(crate) not_before: HashMap<KeyClass, Timestamp>,
    pub(crate) replicas: Option<Replicas>,
    /// Where the next sweep goes on, of records and of leases.
    pub(crate) records: Mutex<Option<Walk>>,
    pub(crate) leases: Mutex<Option<Walk>>,
}

impl Db {
    /// Runs a script on a key.
    pub(crate) async fn run(
        &self,
        script: &Script,
        key: &str,
        arguments: impl Fn(&mut Cmd),
    ) -> Result<Value, StoreError> {
        self.link.run(script, key, self.timed(arguments)).await.map_err(store_error)
    }

    /// Runs a script whose write is to be on replicas, if that is wanted: its answer, and whether it is.
    pub(crate) async fn write(
        &self,
        script: &Script,
        key: &str,
        arguments: impl Fn(&mut Cmd),
        wrote: impl Fn(&Value) -> bool,
    ) -> Result<(Value, Result<(), NotReplicated>), RedisError> {
        let arguments = self.timed(arguments);
        match (&self.replicas, self.link.source()) {
            (Some(replicas), Some(source)) => {
                replicas.run(source, self.link.timeout, (script, key), arguments, wrote).await
            }
            _ => Ok((self.link.run(script, key, arguments).await?, Ok(()))),
        }
    }

    /// Puts the time in front of the arguments: nothing, and the server takes its own, or the one that a test gives.
    fn timed(&self, arguments: impl Fn(&mut Cmd)) -> impl Fn(&mut Cmd) {
        let now = self.clock.as_ref().map(|clock| exact(clock.now().micros()));
        move |command| {
            match now {
                Some(now) => command.arg(now),
                None => command.arg(""),
            };
            arguments(command);
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
