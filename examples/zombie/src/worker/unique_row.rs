//! No lock at all.

use super::Worker;
use crate::Failure;
use crate::database::{charge as write_charge, charges};
use crate::event::{Gate, What};

/// Charges the invoice if nobody has. What was read before decides nothing: the UNIQUE row does, in the effect's own
/// transaction.
pub(super) async fn charge(mut worker: Worker) -> Result<(), Failure> {
    let charges = charges(&mut *worker.database.pool.acquire().await?).await?;
    worker.tell(What::Counted { charges })?;
    if charges == 0 {
        worker.pass(Gate::Writing).await?;
        let charged = write_charge(&worker.database.pool, worker.who).await?;
        worker.tell(if charged { What::Charged } else { What::ChargedAlready })?;
    }
    Ok(())
}
