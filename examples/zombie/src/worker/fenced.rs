//! This project's lease, whose token the account checks.

use std::time::Duration;

use idempotency::{HeldLease, Lease, LeaseSettings, Leaser, Released, Resource, Taken};
use idempotency_sqlx::SqliteLeases;
use idempotency_sqlx::fence::{FenceError, Fences as _, SqliteFences};

use super::{Worker, millis};
use crate::Failure;
use crate::database::{balance, enter_deposit, write_balance, write_balance_with_token};
use crate::event::{Asked, Gate, What};

/// When the token is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Check {
    /// When something is written.
    AtWrite,
    /// Before anything is read, and again when something is written.
    OpenedFirst,
}

/// Pays something in: reads the balance, adds, writes it back. Whoever is refused begins anew, with another lease.
pub(super) async fn deposit(worker: Worker, check: Check) -> Result<(), Failure> {
    let leases = worker.database.store().await?.leases();
    let settings = LeaseSettings::default().lease(Lease::new(worker.lease)?);
    let fences = SqliteFences::new(worker.database.pool.clone());
    let mut teller =
        Teller { worker, leaser: Leaser::new(leases, settings), fences, account: Resource::parse("account/7")? };
    loop {
        let lease = teller.take().await?;
        let written = match check {
            Check::AtWrite => teller.checked_at_write(&lease).await?,
            Check::OpenedFirst => teller.opened_first(&lease).await?,
        };
        teller.worker.pass(Gate::Leaving).await?;
        teller.give_back(lease).await?;
        if written {
            return Ok(());
        }
    }
}

struct Teller {
    worker: Worker,
    leaser: Leaser<SqliteLeases>,
    fences: SqliteFences,
    account: Resource,
}

impl Teller {
    async fn take(&self) -> Result<HeldLease<SqliteLeases>, Failure> {
        let mut taken = self.leaser.try_acquire(&self.account).await?;
        if let Taken::Held { lease_left } = taken {
            self.worker.tell(What::Waited { left_ms: millis(lease_left) })?;
            taken = self.leaser.acquire(&self.account, self.worker.lease + Duration::from_secs(10)).await?;
        }
        let lease = taken.yours().ok_or("the other does not let go")?;
        let token = Some(lease.token()?.get());
        let asked = Asked::now();
        let left_ms = millis(lease.time_left());
        self.worker.tell(What::Took { token, left_ms, until: asked.until(left_ms) })?;
        Ok(lease)
    }

    /// Reads, and writes with `WHERE fencing_token < $mine`.
    async fn checked_at_write(&mut self, lease: &HeldLease<SqliteLeases>) -> Result<bool, Failure> {
        let token = lease.token()?;
        let read = balance(&mut *self.worker.database.pool.acquire().await?).await?;
        self.worker.tell(What::Read { balance: read })?;
        self.look_and_pause(lease).await?;

        let balance = read + self.worker.who.deposit();
        let mut transaction = self.worker.database.pool.begin_with("BEGIN IMMEDIATE").await?;
        if let Some(current) = write_balance_with_token(&mut transaction, balance, token).await? {
            self.worker.tell(What::Refused { balance, current: current.get() })?;
            return Ok(false);
        }
        enter_deposit(&mut transaction, self.worker.who, self.worker.who.deposit()).await?;
        transaction.commit().await?;
        self.worker.tell(What::Wrote { balance, token: token.get() })?;
        Ok(true)
    }

    /// Opening tells the database of the token, and only then is anything read. So nobody who was here before can write
    /// after it was read.
    async fn opened_first(&mut self, lease: &HeldLease<SqliteLeases>) -> Result<bool, Failure> {
        let mut transaction = self.fences.open_with(&self.account, &lease.ticket()?).await?;
        let token = transaction.ticket().token.get();
        self.worker.tell(What::Opened { token })?;
        let read = balance(&mut transaction).await?;
        let opened = transaction.commit().await?;
        self.worker.tell(What::Read { balance: read })?;
        self.look_and_pause(lease).await?;

        let balance = read + self.worker.who.deposit();
        match self.fences.reopen(&opened).await {
            Ok(mut transaction) => {
                write_balance(&mut transaction, balance).await?;
                enter_deposit(&mut transaction, self.worker.who, self.worker.who.deposit()).await?;
                transaction.commit().await?;
                self.worker.tell(What::Wrote { balance, token })?;
                Ok(true)
            }
            Err(FenceError::Superseded { current }) => {
                self.worker.tell(What::Refused { balance, current: current.get() })?;
                Ok(false)
            }
            Err(error) => Err(error.into()),
        }
    }

    async fn look_and_pause(&mut self, lease: &HeldLease<SqliteLeases>) -> Result<(), Failure> {
        let asked = Asked::now();
        let left_ms = millis(lease.time_left());
        if left_ms == 0 {
            return Err("the lease was over before the pause: give it more time with --lease".into());
        }
        self.worker.tell(What::Looked { left_ms, until: asked.until(left_ms) })?;
        // The world may stop here for as long as it likes.
        self.worker.pass(Gate::Writing).await
    }

    async fn give_back(&self, lease: HeldLease<SqliteLeases>) -> Result<(), Failure> {
        let owner = match lease.release().await? {
            Released::Released => Some(self.worker.who),
            _ => None,
        };
        self.worker.tell(What::Released { owner })
    }
}
