//! The store.

use std::sync::Arc;
use std::time::Duration;

use idempotency::outbound::{
    BeginCall, Begun, EndCall, Ended, ListSteps, ResolveStep, StepLabel, StepPage, StepResolved, StepView, Steps,
};
use idempotency::watch::Watch;
use idempotency::{
    Claim, Claimed, Entry, Holder, Lease, List, Nonce, OpenError, Outcome, Page, RecordId, Resolve, Resolved, Settled,
    Store, StoreError, Swept,
};

use crate::db::Db;
use crate::options::RedisOptions;
use crate::{listing, operations, steps, sweep};

/// A store in Redis 7 or newer, for any number of processes and hosts: one server, the primary that sentinels name, or a cluster.
/// Clones share one connection.
///
/// ```no_run
/// use idempotency::{Engine, Fingerprint, Key, Operation, ScopeId, Settings, WorkError, run};
/// use idempotency_redis::RedisStore;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let engine = Engine::new(RedisStore::open("redis://localhost/").await?, Settings::default());
/// let operation = Operation::new(ScopeId::new(["tenant-a"]), Key::parse("order-42")?, Fingerprint::of(["10 EUR"]));
/// let charge = run(&engine, &operation, async |_| Ok::<_, WorkError<std::io::Error>>("charged".to_owned())).await?;
/// # let _ = charge;
/// # Ok(())
/// # }
/// ```
///
/// The rules:
///
/// 1. **Every operation is one script**, atomic, and one round trip: two commands for a fresh request, one for a replay or a
///    conflict. A server that has lost its scripts is sent the code, which is one command more, once. Claims, and completions, that come while eight
///    commands of their kind are under way share the next one, 32 at most, which costs the server two thirds; nobody is delayed for others to
///    come. What is special about one of them is asked for alone, in a command more. Nothing is shared in a cluster, whose keys are of
///    many slots, with [`wait_for_replicas`](RedisOptions::wait_for_replicas), or where
///    [`share_commands`](RedisOptions::share_commands) says so, as it **must behind a proxy that spreads keys over several servers**.
/// 2. **A record is one hash**, `idem:{ID}:r`, and the braces around the 64 digits of its id are the hash tag: nothing that a client
///    sends is in a key's name, so nothing it sends moves a key in a cluster. The fields are packed; `inspect` and `list` read them.
/// 3. **The clock** is the server's `TIME`, read in the script that decides, in microseconds. Scripts count in doubles, exact below
///    2<sup>53</sup>; what would end later than that, in the year 2255, ends then.
/// 4. **Every key has an expiry at every moment**: an hour, or two, beyond all that it is kept for. Nothing is judged by it, and the
///    sweeper is there to give back room earlier and to count. What it is to count, records in doubt that are forgotten, it counts
///    only if it comes by within that hour.
/// 5. **Out of memory** means refusing: a claim of a new key is answered [`Claimed::Full`], and costs one command more. Duplicates of what is
///    known are answered as ever, and attempts are completed, renewed, released, marked, abandoned and resolved. That holds
///    with the policy `noeviction` only: see below.
/// 6. **Every message may come twice**: scripts know whose it was, by its nonce. So an operation whose connection breaks, or leads to a server
///    that has become a replica, is sent once more on a new one within the
///    [response timeout](RedisOptions::response_timeout). The next operation after one that was not answered in time has a new connection.
///    What grants something (a claim, an asking for a lease or for a call) ends with an error of kind
///    [`Unavailable`](idempotency::StoreErrorKind::Unavailable) when its connection breaks: whoever asks through an engine, a leaser or a guard
///    asks once more there, and gives up the first asking when it may still arrive. In a cluster the client sends everything again by itself, since
///    that is also how it follows slots that move: there a claim whose connection broke on its way may be granted to nobody until its lease
///    ends, and then be in doubt under [`Recovery::Hold`](idempotency::Recovery::Hold). There, when a node does not answer in time, all nodes are
///    connected to anew in the background, which is used as soon as it gets an answer for the same slot: some seconds after a replica took over.
/// 7. **A key that this release cannot read**, of another format or of another type, is never taken for a new one, never
///    overwritten and never swept. Claims answer [`Claimed::Unreadable`], other operations
///    [`StoreErrorKind::Unreadable`](idempotency::StoreErrorKind::Unreadable); `inspect` and `list` show it as in doubt.
/// 8. **[`list`](Store::list) and [`sweep`](Store::sweep) walk** with `SCAN` over all keys of every primary, those of others too. Each page of
///    a list is such a walk, since Redis keeps no order, and may hold fewer records than its limit and still have a next one, after
///    10000 looked at. A sweep looks at about 100000 keys at most; the next one of the same store goes on from there.
/// 9. **Waiting duplicates**, and those who wait for a lease, are told: what ends an attempt or a lease is published on a channel with the
///    name of its key. One connection listens for all waiters of a store; it is made when the first one waits, and made anew when it
///    breaks. That is a hint and nothing more, so each asks every half to whole second too; and several times a second where
///    nobody listens, as in a cluster, where a message would go to every node.
///
/// 10. **The steps** of a record, calls to external APIs ([`Steps`]), are fields of its hash: they cannot be lost, evicted or moved apart from it.
///     Every operation on them is one script too. A call that nobody can write down is not begun: out of memory it is answered
///     [`Begun::Full`], and what was called is logged all the same. With [`wait_for_replicas`](RedisOptions::wait_for_replicas) a call
///     is begun, and its end recorded, when the replicas have it. [`list_steps`](Steps::list_steps) looks at all records, as `list` does.
///
/// # What Redis does not promise
///
/// A store is no safer than its server, and whatever it loses runs a second time. [`check`](Self::check) looks for most of this.
///
/// - **Eviction** deletes records that count. The policy is to be `noeviction`; then, and only then, a full server refuses
///   instead of forgetting. The `volatile-…` policies evict too, since every key has an expiry.
/// - **A crash** loses what was not on disk:
///
///   | persistence | lost at a crash or restart |
///   |---|---|
///   | none | everything |
///   | snapshots (`save`) | everything since the last one: minutes |
///   | `appendonly yes`, `appendfsync everysec` | about a second |
///   | `appendonly yes`, `appendfsync always` | nothing that was answered, for a write to disk with every command |
///
///   A primary without persistence that is restarted empties its replicas as well.
/// - **A failover** loses what the new primary had not got: replication is asynchronous. `min-replicas-to-write` bounds how long a primary that
///   was cut off goes on, and [`wait_for_replicas`](RedisOptions::wait_for_replicas) makes losses rarer, not impossible.
/// - **The clock**: tokens rise while it steps back by less than an hour in total, and records are kept for an hour beyond what they
///   are kept for, for that reason. A clock that leaps ahead ends leases and windows early, and lets keys expire.
/// - **Time-ordered keys**: a key that is too old to be remembered is refused, not run, as long as nothing was lost and the clock
///   has not stepped back by more than an hour. There are no floors as in SQL stores: whoever raises the maximum age of a class says
///   [`not_before`](RedisOptions::not_before).
///
/// Where an effect must not happen twice even then, the record belongs into the effect's own database, or a fence with a memory
/// of its own before it: tokens go on rising over a flush, since they are at least the clock.
///
/// # What its user needs
///
/// `ACL SETUSER NAME on >PASSWORD ~idem:* resetchannels &idem:* -@all +publish +subscribe +unsubscribe +evalsha +eval +time +hmget +hget +hset +hdel +hkeys +exists +del +pexpire +scan`;
/// for sentinels `+role` as well, for a cluster `+cluster|slots +ping`, for another database than 0 `+select`, to wait for replicas `+wait`.
/// Without the channels and the three commands for them, everything works all the same, but waiters are not told of anything, and the server's
/// `ACL LOG` notes what it refused.
/// [`check`](Self::check) says what else it would like to see.
///
/// # Panics
/// Every operation panics outside a tokio runtime whose time is enabled.
///
/// # Cancel safety
/// Dropping the future of an operation before it was polled does nothing. Later, the message may or may not have been sent: the operation
/// is carried out whole or not at all, on the server, and nobody hears the answer. One that shares a command may yet be sent with it. A claim given up so is to be abandoned, as with any
/// store. The connection that others share is not harmed.
#[derive(Clone)]
pub struct RedisStore {
    pub(crate) db: Arc<Db>,
}

impl RedisStore {
    /// Opens the store at `redis://HOST` with the default settings: [`RedisOptions::open`].
    ///
    /// # Errors
    /// As [`RedisOptions::open`].
    ///
    /// # Panics
    /// As [`RedisOptions::open`].
    ///
    /// # Cancel safety
    /// As [`RedisOptions::open`].
    pub async fn open(url: &str) -> Result<Self, OpenError> {
        Self::options(url).open().await
    }

    /// Settings for the store at `redis://HOST`, or at one of the other places that [the crate](crate) names.
    pub fn options(url: &str) -> RedisOptions {
        RedisOptions::new(url)
    }
}

impl Store for RedisStore {
    async fn claim(&self, claim: &Claim) -> Result<Claimed, StoreError> {
        operations::claim(&self.db, claim).await
    }

    async fn renew(&self, holder: &Holder, lease: Lease) -> Result<Settled, StoreError> {
        operations::renew(&self.db, holder, lease).await
    }

    async fn complete(&self, holder: &Holder, outcome: &Outcome) -> Result<Settled, StoreError> {
        operations::complete(&self.db, holder, outcome).await
    }

    async fn release(&self, holder: &Holder, dead_for: Duration) -> Result<Settled, StoreError> {
        operations::release(&self.db, holder, dead_for).await
    }

    async fn mark_in_doubt(&self, holder: &Holder, response: Option<&Outcome>) -> Result<Settled, StoreError> {
        operations::mark_in_doubt(&self.db, holder, response).await
    }

    async fn abandon(&self, id: &RecordId, nonce: Nonce, dead_for: Duration) -> Result<(), StoreError> {
        operations::abandon(&self.db, id, nonce, dead_for).await
    }

    async fn resolve(&self, resolve: &Resolve) -> Result<Resolved, StoreError> {
        operations::resolve(&self.db, resolve).await
    }

    fn watch(&self, id: &RecordId) -> Watch {
        let [record] = self.db.keys.record(id);
        self.db.watch(&record)
    }

    async fn inspect(&self, id: &RecordId) -> Result<Option<Entry>, StoreError> {
        listing::inspect(&self.db, id).await
    }

    async fn list(&self, list: &List) -> Result<Page, StoreError> {
        listing::list(&self.db, list).await
    }

    async fn sweep(&self, limit: usize) -> Result<Swept, StoreError> {
        sweep::records(&self.db, limit).await
    }
}

impl Steps for RedisStore {
    async fn begin_call(&self, ask: &BeginCall) -> Result<Begun, StoreError> {
        steps::begin(&self.db, ask).await
    }

    async fn end_call(&self, report: &EndCall) -> Result<Ended, StoreError> {
        steps::end(&self.db, report).await
    }

    async fn resolve_step(&self, resolve: &ResolveStep) -> Result<StepResolved, StoreError> {
        steps::resolve(&self.db, resolve).await
    }

    async fn inspect_step(&self, id: &RecordId, label: &StepLabel) -> Result<Option<StepView>, StoreError> {
        steps::inspect(&self.db, id, label).await
    }

    async fn list_steps(&self, list: &ListSteps) -> Result<StepPage, StoreError> {
        steps::list(&self.db, list).await
    }
}

impl std::fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RedisStore").finish_non_exhaustive()
    }
}
