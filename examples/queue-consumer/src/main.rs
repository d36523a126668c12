//! Run with `cargo run --release --bin queue-consumer`: a consumer that ships once what its queue delivers twice.
//!
//! A queue that loses nothing delivers now and then again: after a timeout, a rebalance, a consumer that died before
//! it acknowledged. [`run`] makes the effect happen once, and its answer says what to do with the message.

mod carrier;

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use idempotency::{
    Engine, FencingToken, Fingerprint, Key, Operation, RecordId, Resolve, ResolveVerdict, Resolved, RunError, ScopeId,
    Settings, Store as _, recorded, run,
};
use idempotency_memory::MemoryStore;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::carrier::{Carrier, tracking_number};

type Failure = Box<dyn Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let consumer = Consumer::new()?;
    consumer.tour().await?;
    report(&consumer);
    Ok(())
}

/// What the queue carries.
#[derive(Clone, Copy)]
struct Order(u32);

/// A message on its way, with the queue that it can be put back into.
struct Delivery {
    order: Order,
    queue: UnboundedSender<Delivery>,
}

/// What becomes of a delivery.
enum Settled {
    Acknowledged,
    Redelivered,
}

struct Consumer {
    engine: Engine<MemoryStore>,
    carrier: Carrier,
    dead_letters: Mutex<BTreeMap<u32, DeadLetter>>,
    tally: Mutex<BTreeMap<&'static str, usize>>,
}

/// What an operator needs to settle the record of an order in doubt.
struct DeadLetter {
    id: RecordId,
    token_seen: FencingToken,
}

impl Order {
    /// What is to happen once: named by the order's number, in a scope of its own.
    fn operation(self) -> Result<Operation, Failure> {
        let key = Key::parse(&format!("order-{}", self.0))?;
        Ok(Operation::new(ScopeId::new(["ship"]), key, Fingerprint::of([self.0.to_be_bytes()])))
    }
}

impl Consumer {
    /// In memory, as the queue is. Consumers in several processes share a store in a database.
    fn new() -> Result<Arc<Self>, Failure> {
        let engine = Engine::new(MemoryStore::new(), Settings::default().checked()?);
        let (carrier, dead_letters, tally) = <(Carrier, Mutex<_>, Mutex<_>)>::default();
        Ok(Arc::new(Self { engine, carrier, dead_letters, tally }))
    }

    /// The queue is worked off, an operator looks at what was left in doubt, and those orders are queued again.
    async fn tour(self: &Arc<Self>) -> Result<(), Failure> {
        let twice = (1..=ORDERS).flat_map(|order| [order, order]);
        let some_once_more = (1..=ORDERS).step_by(3);
        self.work_off(twice.chain(some_once_more).map(Order)).await?;
        let looked_at = self.ask_the_carrier().await?;
        self.work_off(looked_at).await
    }

    /// Takes what the queue delivers, all at once, until everything is acknowledged.
    async fn work_off(self: &Arc<Self>, orders: impl IntoIterator<Item = Order>) -> Result<(), Failure> {
        let (queue, mut deliveries) = unbounded_channel();
        for order in orders {
            queue.send(Delivery { order, queue: queue.clone() })?;
        }
        drop(queue); // The last delivery that is acknowledged ends it.
        let mut tasks = JoinSet::new();
        while let Some(delivery) = deliveries.recv().await {
            self.count("deliveries");
            tasks.spawn(Arc::clone(self).settle(delivery));
        }
        tasks.join_all().await.into_iter().collect()
    }

    async fn settle(self: Arc<Self>, delivery: Delivery) -> Result<(), Failure> {
        if let Settled::Redelivered = self.consume(delivery.order).await? {
            sleep(REDELIVERY).await;
            delivery.queue.clone().send(delivery)?;
        }
        Ok(())
    }

    async fn consume(&self, order: Order) -> Result<Settled, Failure> {
        let operation = order.operation()?;
        let ran = run(&self.engine, &operation, async |_attempt| self.carrier.ship(order).await).await;
        let (what, settled) = match ran {
            Ok(ran) if ran.replayed => ("replayed", Settled::Acknowledged),
            Ok(_) => ("shipped", Settled::Acknowledged),
            // Shipped, though its tracking number is not on record.
            Err(RunError::Executed(_)) => ("executed", Settled::Acknowledged),
            // Somebody is at it. Acknowledged now, the order would be lost if they fail.
            Err(RunError::InFlight { .. }) => ("in flight", Settled::Redelivered),
            // Either nothing was done, and the next delivery ships it, or nobody knows, and the next one is told so.
            Err(RunError::Work(_)) => ("failed", Settled::Redelivered),
            // Tried again, it could be shipped twice; acknowledged, never. So it is put aside for somebody to look.
            Err(RunError::InDoubt(doubt)) => {
                let id = operation.record_id();
                locked(&self.dead_letters).insert(order.0, DeadLetter { id, token_seen: doubt.token });
                ("in doubt", Settled::Acknowledged)
            }
            // The store could not say whether to run, or the tracking number is not recorded yet.
            Err(RunError::Store(_) | RunError::Full) => ("no store", Settled::Redelivered),
            // A key that stands for two orders, a record of a newer release: no retry mends these.
            Err(error) => return Err(error.into()),
        };
        self.count(what);
        Ok(settled)
    }

    /// The operator: looks up every dead letter at the carrier, settles its record, and has the order queued again.
    async fn ask_the_carrier(&self) -> Result<Vec<Order>, Failure> {
        let dead_letters = std::mem::take(&mut *locked(&self.dead_letters));
        let parcels = self.carrier.parcels();
        for (order, DeadLetter { id, token_seen }) in &dead_letters {
            let (what, verdict) = if parcels.contains_key(order) {
                ("found at the carrier", ResolveVerdict::Happened(recorded(&tracking_number(*order))?))
            } else {
                // This takes more than an empty book: the old attempt must not be able to act any more. It has ended.
                ("not at the carrier", ResolveVerdict::DidNotHappen { fence_token: None })
            };
            let (who, why) = ("the operator".into(), "looked it up at the carrier".into());
            let resolve = Resolve { id: *id, token_seen: *token_seen, verdict, who, why };
            // Not applied, the record has moved on, and the next delivery is told whereto.
            let resolved = self.engine.store().resolve(&resolve).await?;
            self.count(if resolved == Resolved::Applied { what } else { "moved on" });
        }
        Ok(dead_letters.into_keys().map(Order).collect())
    }

    fn count(&self, what: &'static str) {
        *locked(&self.tally).entry(what).or_default() += 1;
    }

    fn counted(&self, what: &str) -> usize {
        locked(&self.tally).get(what).copied().unwrap_or_default()
    }
}

#[expect(clippy::print_stdout, reason = "the report is what the example is run for")]
fn report(consumer: &Consumer) {
    let parcels = consumer.carrier.parcels();
    let twice = parcels.values().filter(|count| **count > 1).count();
    println!("{ORDERS} orders, {} deliveries", consumer.counted("deliveries"));
    println!("{:>4} parcels were shipped, {twice} orders twice", parcels.values().sum::<usize>());
    for (what, meaning) in [
        ("shipped", "deliveries shipped their order"),
        ("failed", "failed, with nothing done or nobody knows what: delivered again"),
        ("replayed", "were duplicates and got the recorded tracking number"),
        ("in flight", "were duplicates of one that was still running: delivered again"),
        ("in doubt", "were duplicates of one that nobody knows the end of: put aside for the operator"),
        ("found at the carrier", "orders were found at the carrier by the operator"),
        ("not at the carrier", "were not, and were shipped then"),
    ] {
        println!("{:>4} {meaning}", consumer.counted(what));
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

const ORDERS: u32 = 100;
const REDELIVERY: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn each_order_is_shipped_once_however_often_it_is_delivered() {
        let consumer = Consumer::new().unwrap();
        consumer.tour().await.unwrap();

        assert_eq!(consumer.carrier.parcels(), (1..=ORDERS).map(|order| (order, 1)).collect());
        assert!(consumer.counted("deliveries") > 2 * ORDERS as usize);
        // Without overlap, failures and doubt the run would prove nothing.
        assert!(consumer.counted("in flight") > 0 && consumer.counted("replayed") > 0);
        assert_eq!((consumer.counted("failed"), consumer.counted("executed")), (14, 0));
        assert_eq!((consumer.counted("found at the carrier"), consumer.counted("not at the carrier")), (2, 2));
    }
}
