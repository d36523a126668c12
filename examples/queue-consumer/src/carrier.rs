//! The effect: an external API that knows no keys and has bad days.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use idempotency::WorkError;
use tokio::time::sleep;

use crate::{Order, locked};

/// A carrier that parcels are handed over to.
#[derive(Default)]
pub(crate) struct Carrier {
    parcels: Mutex<BTreeMap<u32, usize>>,
    calls: Mutex<BTreeMap<u32, usize>>,
}

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CarrierError {
    #[error("no driver is free")]
    NoDriver,
    #[error("the connection broke")]
    Broken,
}

impl Carrier {
    /// Ships an order and gives its tracking number.
    pub(crate) async fn ship(&self, order: Order) -> Result<String, WorkError<CarrierError>> {
        // Nothing is handed over yet. A failure here says so, and the order may be shipped next time.
        self.book_driver(order).map_err(WorkError::NothingDone)?;
        // A failure here leaves open whether they have the parcel, which is what `?` alone says.
        Ok(self.hand_over(order).await?)
    }

    /// How often each order's parcel was handed over.
    pub(crate) fn parcels(&self) -> BTreeMap<u32, usize> {
        locked(&self.parcels).clone()
    }

    fn book_driver(&self, Order(order): Order) -> Result<(), CarrierError> {
        let mut calls = locked(&self.calls);
        let call = calls.entry(order).or_default();
        *call += 1;
        if order % 10 == 3 && *call == 1 { Err(CarrierError::NoDriver) } else { Ok(()) }
    }

    async fn hand_over(&self, Order(order): Order) -> Result<String, CarrierError> {
        sleep(HAND_OVER).await;
        let first = locked(&self.calls).get(&order) == Some(&1);
        if first && order % 50 == 20 {
            return Err(CarrierError::Broken); // on its way there
        }
        *locked(&self.parcels).entry(order).or_default() += 1;
        if first && order % 50 == 40 {
            return Err(CarrierError::Broken); // on its way back
        }
        Ok(tracking_number(order))
    }
}

/// What the carrier calls an order's parcel.
pub(crate) fn tracking_number(order: u32) -> String {
    format!("parcel-{order}")
}

const HAND_OVER: Duration = Duration::from_millis(20);
