//! What happens, told as it happens.

use std::error::Error;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode, header};
use http_body_util::{BodyExt as _, Full};
use idempotency::outbound::{ListSteps, Steps as _};
use idempotency::{Key, RecordId, ScopeId};
use idempotency_sqlx::SqliteStore;
use serde_json::Value;
use tokio::time::sleep;

use crate::bank::Bank;
use crate::cards::Cards;
use crate::fault::Fault;
use crate::service::{Http, client};

/// Everybody who takes part.
pub(crate) struct Story {
    payouts: String,
    http: Http,
    store: SqliteStore,
    cards: Cards,
    bank: Bank,
}

/// One order, and what goes wrong with it.
struct Scene {
    title: &'static str,
    cards: Fault,
    bank: Fault,
}

const SCENES: &[Scene] = &[
    Scene { title: "Nothing goes wrong", cards: Fault::None, bank: Fault::None },
    Scene {
        title: "The card provider charges, and its answer is lost",
        cards: Fault::DoneThenReset,
        bank: Fault::None,
    },
    Scene { title: "The bank pays, and a proxy answers 502", cards: Fault::None, bank: Fault::DoneThen502 },
    Scene { title: "The bank pays, and never answers", cards: Fault::None, bank: Fault::DoneThenStall },
    Scene { title: "The bank pays, and the connection breaks", cards: Fault::None, bank: Fault::DoneThenReset },
    Scene { title: "The connection breaks before the bank pays", cards: Fault::None, bank: Fault::Reset },
    Scene { title: "The bank neither pays nor answers", cards: Fault::None, bank: Fault::Stall },
];

impl Story {
    pub(crate) fn new(service: SocketAddr, store: SqliteStore, cards: Cards, bank: Bank) -> Self {
        Self { payouts: format!("http://{service}/payouts"), http: client(), store, cards, bank }
    }

    /// Plays every scene. Whether each order was charged once and paid out once.
    pub(crate) async fn tell(&self) -> Result<bool, Box<dyn Error>> {
        let mut all_once = true;
        for (n, scene) in (1..).zip(SCENES) {
            all_once &= self.play(&format!("order-{n}"), 10 * n, scene).await?;
        }
        say(&format!(
            "\n{}",
            if all_once { "Every order was charged once and paid out once." } else { "MONEY WAS MOVED TWICE." }
        ));
        Ok(all_once)
    }

    async fn play(&self, key: &str, amount: u64, scene: &Scene) -> Result<bool, Box<dyn Error>> {
        say(&format!("\n== {}", scene.title));
        let (charges, transfers) = self.counts();
        self.cards.fail_next(scene.cards);
        self.bank.fail_next(scene.bank);
        // Asked once more after the answer, as a client does that lost it.
        let mut receipts = 0;
        for _ in 0..MOST_REQUESTS {
            let (status, headers, body) = self.ask(key, amount).await?;
            say(&format!("POST /payouts, key {key}: {}", answer(status, &headers, &body)));
            // A replay calls nobody.
            if receipts == 0 {
                self.say_steps(key).await?;
            }
            receipts += u32::from(status == StatusCode::OK);
            if receipts == 2 {
                break;
            }
            if status != StatusCode::OK {
                let seconds = headers.get(header::RETRY_AFTER).and_then(|after| after.to_str().ok()?.parse().ok());
                sleep(Duration::from_secs(seconds.unwrap_or(0))).await;
            }
        }
        let (charges, transfers) = (self.counts().0 - charges, self.counts().1 - transfers);
        say(&format!("the provider's books: {charges} charge(s); the bank's: {transfers} transfer(s)"));
        Ok((receipts, charges, transfers) == (2, 1, 1))
    }

    fn counts(&self) -> (usize, usize) {
        (self.cards.with(|charges| charges.len()), self.bank.with(|transfers| transfers.len()))
    }

    async fn ask(&self, key: &str, amount: u64) -> Result<(StatusCode, HeaderMap, Bytes), Box<dyn Error>> {
        let order = serde_json::json!({ "to": "DE02120300000000202051", "amount": amount });
        let request = Request::post(&self.payouts)
            .header("Idempotency-Key", key)
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::new(Bytes::from(order.to_string())))?;
        let (parts, body) = self.http.request(request).await?.into_parts();
        Ok((parts.status, parts.headers, body.collect().await?.to_bytes()))
    }

    /// What is on record of the order's calls.
    async fn say_steps(&self, key: &str) -> Result<(), Box<dyn Error>> {
        let id = RecordId::new(&ScopeId::global(), &Key::parse(key)?);
        let page = self.store.list_steps(&ListSteps { id: Some(id), ..ListSteps::default() }).await?;
        for step in page.entries {
            let by = step.resolution.map(|(who, _)| format!(", after the {who} had resolved it")).unwrap_or_default();
            say(&format!("    {} {}, call {}{by}", step.label, step.state.as_str(), step.call));
        }
        Ok(())
    }
}

fn answer(status: StatusCode, headers: &HeaderMap, body: &Bytes) -> String {
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    // The last word of `urn:…:problem:outcome-unknown`.
    let problem = body["type"].as_str().and_then(|problem| problem.rsplit(':').next());
    let what = problem.map_or_else(|| body.to_string(), ToOwned::to_owned);
    let after = headers.get(header::RETRY_AFTER).and_then(|after| after.to_str().ok());
    let after = after.map(|after| format!(", Retry-After: {after}")).unwrap_or_default();
    let replayed = if headers.contains_key("idempotent-replayed") { " (replayed)" } else { "" };
    format!("{} {what}{after}{replayed}", status.as_u16())
}

#[expect(clippy::print_stdout, reason = "the story is what this program is for")]
fn say(line: &str) {
    println!("{line}");
}

/// Far more than any scene takes.
const MOST_REQUESTS: u32 = 10;
