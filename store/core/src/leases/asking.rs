//! One asker, from its first asking to the grant.

use super::contract::{Acquired, Ask, Leases};
use super::leaser::Leaser;
use crate::{Nonce, Resource, StoreError, StoreErrorKind};

/// Asks under one nonce. Dropped while an asking may still be carried out, it abandons.
pub(super) struct Asking<'l, L: Leases> {
    leaser: &'l Leaser<L>,
    ask: Ask,
    /// How many askings were sent whose answer never came.
    unanswered: u32,
}

/// What was granted under.
pub(super) struct Granted {
    pub(super) resource: Resource,
    pub(super) nonce: Nonce,
    /// A copy of an asking may still be under way.
    pub(super) has_copies: bool,
}

impl<'l, L: Leases> Asking<'l, L> {
    pub(super) fn new(leaser: &'l Leaser<L>, resource: &Resource) -> Self {
        Self { leaser, ask: leaser.inner.ask(resource), unanswered: 0 }
    }

    /// Asks, within the store timeout. A connection that turns out to be broken gets one more try under the same nonce,
    /// which is safe.
    pub(super) async fn ask(&mut self) -> Result<Acquired, StoreError> {
        let leaser = self.leaser;
        let asked = leaser.inner.within_timeout(async {
            match self.send().await {
                Err(error) if error.kind() == StoreErrorKind::Unavailable => match self.send().await {
                    // The second try was not carried out; the first may have been.
                    Err(again) if again.kind() == StoreErrorKind::Busy => Err(error),
                    // The store itself gave up what it granted to the first, and would do so again under another nonce.
                    Ok(Acquired::Refused) => Err(error),
                    answer => answer,
                },
                answer => answer,
            }
        });
        asked.await
    }

    async fn send(&mut self) -> Result<Acquired, StoreError> {
        self.unanswered += 1;
        let answer = self.leaser.inner.leases.try_acquire(&self.ask).await;
        // Busy says for certain that nothing was carried out; every other error may hide a grant.
        if answer.as_ref().err().is_none_or(|error| error.kind() == StoreErrorKind::Busy) {
            self.unanswered -= 1;
        }
        answer
    }

    /// Takes a new nonce.
    pub(super) fn rename(&mut self) {
        self.give_up();
        self.ask.nonce = Nonce::random();
    }

    pub(super) fn granted(mut self) -> Granted {
        let has_copies = std::mem::take(&mut self.unanswered) > 0;
        Granted { resource: self.ask.resource.clone(), nonce: self.ask.nonce, has_copies }
    }

    fn give_up(&mut self) {
        if std::mem::take(&mut self.unanswered) > 0 {
            self.leaser.abandon_until_answered(self.ask.resource.clone(), self.ask.nonce);
        }
    }
}

impl<L: Leases> Drop for Asking<'_, L> {
    fn drop(&mut self) {
        self.give_up();
    }
}
