//! What operators and sweepers do: set a fence to another source, forget what is old.

use std::time::Duration;

use idempotency::time::micros;
use idempotency::{FencingToken, Resource, TOKEN_HOLD, TokenSource};

use super::FenceError;
use super::admit::{Asked, NOBODY};
use super::dialect::{self, FenceDatabase};
use super::opening::Desk;
use super::tries::Refusal;
use crate::row::Values;

pub(super) async fn reset<D: FenceDatabase>(
    desk: &Desk<D>,
    resource: &Resource,
    source: TokenSource,
) -> Result<(), FenceError> {
    let mut tries = desk.tries();
    while tries.judge(reset_once(desk, resource, source).await).await?.is_none() {}
    tracing::warn!(%resource, ?source, "a fence was reset");
    Ok(())
}

pub(super) async fn purge<D: FenceDatabase>(
    desk: &Desk<D>,
    older_than: Duration,
    limit: usize,
) -> Result<usize, FenceError> {
    let mut purged = 0;
    for source in [TokenSource::DATABASE, TokenSource::LEASES] {
        let left = limit - purged;
        let mut tries = desk.tries();
        purged += loop {
            if let Some(purged) = tries.judge(purge_source(desk, source, older_than, left).await).await? {
                break purged;
            }
        };
    }
    Ok(purged)
}

async fn reset_once<D: FenceDatabase>(desk: &Desk<D>, resource: &Resource, source: TokenSource) -> Result<(), Refusal> {
    let mut transaction = desk.begin().await?;
    let known = desk.lock(&mut transaction, resource, D::LOCK).await?;
    // For the clock.
    let (now, _) = desk.share_watermark(&mut transaction, source.number().into()).await?;
    let last = source.is_time().then(|| FencingToken::after(None, now));
    let asked = Asked { resource: resource.clone(), source, token: None, holder: NOBODY, again: false };
    let statement = if known.is_some() { D::WRITE } else { D::INSERT };
    desk.write(&mut transaction, statement, &asked, last, now).await?;
    transaction.commit().await.map_err(D::refusal)
}

/// The watermark is raised before anything is deleted, in one transaction: whoever makes a row has looked at it and
/// keeps it until the end, so an old token either finds the newer one in the row or is below the watermark.
async fn purge_source<D: FenceDatabase>(
    desk: &Desk<D>,
    source: TokenSource,
    older_than: Duration,
    limit: usize,
) -> Result<usize, Refusal> {
    let number = i64::from(source.number());
    let mut transaction = desk.begin().await?;
    let raise =
        desk.statement(D::RAISE_WATERMARK).integer(Some(micros(older_than.max(TOKEN_HOLD)))).integer(Some(number));
    D::change(&mut transaction, raise).await.map_err(D::refusal)?;
    let (_, least) = desk.share_watermark(&mut transaction, number).await?;
    let least = least.map_or(0, crate::row::token_number);
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let stale = desk.statement(D::STALE_FENCES).integer(Some(number)).integer(Some(least)).integer(Some(limit));
    let stale = D::fetch(&mut transaction, stale).await.map_err(D::refusal)?;
    for row in &stale {
        let resource = dialect::bytes(row, "resource")?;
        let delete = desk.statement(D::DELETE_FENCE).blob(Some(&resource));
        D::change(&mut transaction, delete).await.map_err(D::refusal)?;
    }
    transaction.commit().await.map_err(D::refusal)?;
    Ok(stale.len())
}

pub(super) async fn forget_once<D: FenceDatabase>(
    desk: &Desk<D>,
    older_than: Duration,
    limit: usize,
) -> Result<u64, FenceError> {
    let mut tries = desk.tries();
    loop {
        if let Some(forgotten) = tries.judge(forget_markers(desk, older_than, limit).await).await? {
            return Ok(forgotten);
        }
    }
}

async fn forget_markers<D: FenceDatabase>(desk: &Desk<D>, older_than: Duration, limit: usize) -> Result<u64, Refusal> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let mut transaction = desk.begin().await?;
    let forget = desk.statement(D::FORGET_ONCE).integer(Some(micros(older_than))).integer(Some(limit));
    let forgotten = D::change(&mut transaction, forget).await.map_err(D::refusal)?;
    transaction.commit().await.map_err(D::refusal)?;
    Ok(forgotten)
}
