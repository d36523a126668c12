//! What the stores in all of our databases must do, written once. A behaviour is an async function over a [`Database`], or over
//! a [`Server`] where it needs more than one connection; each file ends with a macro that makes tests of all of its behaviours.
#![allow(dead_code, unused_imports, unused_macros, reason = "SQLite is no server, and not every test needs everything")]

pub(crate) mod contents;
pub(crate) mod faults;
pub(crate) mod forgetting;
pub(crate) mod isolation;
pub(crate) mod leases;
pub(crate) mod lost;
pub(crate) mod opening;
pub(crate) mod races;
pub(crate) mod run_in;
pub(crate) mod transactions;

use std::time::Duration;

use idempotency::time::ManualClock;
use idempotency::{OpenError, Store};
use idempotency_testbed::Proxy;

/// A proxy before a server of this machine, and the URL through it.
pub(crate) fn proxied(url: &str) -> (Proxy, String) {
    let port = url.split("127.0.0.1:").nth(1).and_then(|rest| rest.split('/').next()).unwrap();
    let proxy = Proxy::to(port.parse().unwrap());
    let through = url.replacen(&format!(":{port}/"), &format!(":{}/", proxy.port()), 1);
    (proxy, through)
}

/// A place for the tables, with nothing of other tests in it, and a clock for the stores there.
pub(crate) trait Database: Send + Sync + Sized + 'static {
    type Store: Store + Clone;

    /// The tables as the store shows them.
    const SCHEMA: &str;
    /// A statement that gives a line for everything that there is, and the versions.
    const DESCRIBE: &str;
    /// The tables of version 1 with rows of format 1.
    const FIXTURE: &str;
    /// The version of the tables that the store needs.
    const VERSION: u32;

    /// Without tables.
    fn empty() -> impl Future<Output = Self> + Send;
    fn clock(&self) -> &ManualClock;
    fn migrate(&self) -> impl Future<Output = Result<(), OpenError>> + Send;
    /// A store with the clock of this place.
    fn open(&self) -> impl Future<Output = Result<Self::Store, OpenError>> + Send;
    /// A store of each kind, with the clock that it has in operation.
    fn real_stores(&self) -> impl Future<Output = Vec<Self::Store>> + Send;
    fn execute(&self, statements: &str) -> impl Future<Output = ()> + Send;
    /// The texts that a statement gives, one a row.
    fn texts(&self, statement: &str) -> impl Future<Output = Vec<String>> + Send;
    /// How bytes are written in a statement, given as hexadecimal digits.
    fn bytes(digits: &str) -> String;

    fn migrated() -> impl Future<Output = Self> + Send {
        async {
            let place = Self::empty().await;
            place.migrate().await.unwrap();
            place
        }
    }

    fn store(&self) -> impl Future<Output = Self::Store> + Send {
        async { self.open().await.unwrap() }
    }

    /// Two with the clock of this place, of different kinds if there are any.
    fn two_stores(&self) -> impl Future<Output = [Self::Store; 2]> + Send {
        async { [self.store().await, self.store().await] }
    }
}

/// A database that others have connections to.
pub(crate) trait Server: Database {
    type Connection: Send;
    /// A server of its own, to be killed.
    type Machine: Send;

    /// A connection of somebody else.
    fn connection(&self) -> impl Future<Output = Self::Connection> + Send;
    fn execute_on(connection: &mut Self::Connection, statements: &str) -> impl Future<Output = ()> + Send;

    fn start() -> Self::Machine;
    /// An empty database on it.
    fn on(machine: &Self::Machine) -> Self;
    /// As [`real_stores`](Database::real_stores), with this much patience for a connection.
    fn stores_that_wait(&self, wait: Duration) -> impl Future<Output = Vec<Self::Store>> + Send;
    fn harm(machine: &mut Self::Machine, harm: Harm);
}

/// What becomes of a server.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Harm {
    Kill,
    Restart,
    Pause,
    Resume,
}

/// As if all that is in the tables had happened so long before.
pub(crate) async fn age(place: &impl Database, by: Duration) {
    let by = by.as_micros();
    let statement = format!(
        "UPDATE idempotency_records SET since = since - {by}, lease_until = lease_until - {by}, token = token - {by}, \
         due = due - {by}, key_time = key_time - {by};"
    );
    place.execute(&statement).await;
}

/// Makes a test of every behaviour that is named, for a database.
macro_rules! tests_of {
    ($database:ty, $module:ident: $($behaviour:ident)*) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
            async fn $behaviour() {
                crate::common::$module::$behaviour::<$database>().await;
            }
        )*
    };
}
pub(crate) use tests_of;
