//! Who starts the processes, stops one of them for real, and sees to it that every run goes the same way.

use std::path::Path;
use std::time::Duration;

use crate::Failure;
use crate::act::Act;
use crate::actor::Actor;
use crate::database::Database;
use crate::event::{Gate, What, Who};
use crate::timeline::Timeline;
use crate::verdict::Finding;

/// An act that was played.
#[derive(Debug)]
pub(crate) struct Played {
    pub(crate) act: Act,
    pub(crate) timeline: Timeline,
    pub(crate) finding: Finding,
}

/// Plays an act in a file of its own.
pub(crate) async fn play(act: Act, folder: &Path, lease: Duration) -> Result<Played, Failure> {
    let database = Database::create(&folder.join(format!("act-{}.sqlite", act.number()))).await?;
    if act == Act::UniqueRow {
        database.charge_once().await?;
    }
    let a = Actor::start(act, Who::A, &database, lease).await?;
    let b = Actor::start(act, Who::B, &database, lease).await?;
    let timeline =
        if act.has_lock() { overtaken(act, a, b, lease).await? } else { overtaken_without_lock(a, b).await? };
    let finding = Finding::of(act, &database.facts().await?, &timeline, lease);
    database.pool.close().await;
    Ok(Played { act, timeline, finding })
}

/// A has looked at its lock and is about to write. Then the world stops, for A alone.
async fn stopped_before_the_write(a: &mut Actor) -> Result<(), Failure> {
    a.go().await?;
    a.until(Gate::Writing).await?;
    a.stop().await?;
    // It is there when A wakes: nothing but the pause keeps A from writing.
    a.go().await
}

async fn overtaken(act: Act, mut a: Actor, mut b: Actor, lease: Duration) -> Result<Timeline, Failure> {
    stopped_before_the_write(&mut a).await?;
    // B gets the lock when its time is over, and not before.
    b.go().await?;
    b.until(Gate::Writing).await?;
    if act.is_charge() {
        b.go().await?;
        b.until(Gate::Leaving).await?;
        a.wake(lease).await?;
        a.until(Gate::Leaving).await?;
    } else {
        // The order that no check at the write can see through: B has read, and A writes first.
        a.wake(lease).await?;
        a.until(Gate::Leaving).await?;
        b.go().await?;
        b.until(Gate::Leaving).await?;
    }
    // A gives back what it believes to have, while B has it.
    a.go().await?;
    a.until_it(|what| matches!(what, What::Released { .. })).await?;
    b.go().await?;
    let b = b.finish().await?;
    let a = a.finish().await?;
    Ok(Timeline::of([a, b]))
}

async fn overtaken_without_lock(mut a: Actor, mut b: Actor) -> Result<Timeline, Failure> {
    stopped_before_the_write(&mut a).await?;
    b.go().await?;
    let b = b.finish().await?;
    a.wake(Duration::ZERO).await?;
    let a = a.finish().await?;
    Ok(Timeline::of([a, b]))
}
