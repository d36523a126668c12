//! How real clients try again.

use crate::schedule::{Delays, Jitter, Schedule, StopOnSuccess};

/// A kind of client by name, with where its figures are from.
#[derive(Clone, Debug)]
pub struct Preset {
    /// Its name.
    pub name: String,
    /// What is known of its retries.
    pub schedule: Schedule,
    /// Where it is published, and what of it is a model.
    pub source: &'static str,
}

/// All presets.
#[must_use]
pub fn all() -> Vec<Preset> {
    let preset = |name: &str, schedule, source| Preset { name: name.to_owned(), schedule, source };
    vec![
        preset(
            "aws_sdk_standard",
            exponential(2, 1.0, 2.0, 20.0).jitter(Jitter::Full),
            "AWS SDK reference, standard retry mode",
        ),
        preset(
            "stripe_node",
            exponential(2, 0.5, 2.0, 5.0).jitter(Jitter::Equal).timeout(80.0),
            "stripe-node, RequestSender; its default timeout is 80 s",
        ),
        preset("svix", table(&SVIX).jitter(Jitter::Ratio(0.1)), "docs.svix.com/retries; jitter of 10% is a model"),
        preset(
            "standard_webhooks",
            table(&STANDARD_WEBHOOKS).jitter(Jitter::Ratio(0.1)),
            "Standard Webhooks specification; jitter of 10% is a model",
        ),
        preset(
            "stripe_webhook",
            table(&[300.0, 1800.0, 7200.0, 18_000.0, 36_000.0, 43_200.0]).retries(10).give_up(72.0 * HOUR),
            "docs.stripe.com: up to 3 days; the steps are a model",
        ),
        preset("shopify_webhook", exponential(8, 56.5, 2.0, DAY), "Shopify changelog 2024-09: 8 in 4 h; fitted"),
        preset(
            "github_webhook",
            exponential(1, 3.0 * DAY, 1.0, 3.0 * DAY).jitter(Jitter::Full).always(),
            "docs.github.com: no automatic retries; redelivery by hand or script within 3 days, uniform as a model",
        ),
        preset(
            "circle_cpn",
            table(&[1.0, 10.0, 30.0, 60.0, 900.0, 3600.0, 10_800.0, 18_000.0, 21_600.0, 36_000.0, 39_600.0]),
            "developers.circle.com",
        ),
        preset(
            "wix",
            table(&[
                60.0, 600.0, 3600.0, 7200.0, 7200.0, 7200.0, 14_400.0, 14_400.0, 14_400.0, 28_800.0, 28_800.0, 43_200.0,
            ]),
            "dev.wix.com",
        ),
        preset("recurly", table(&recurly()), "docs.recurly.com: 10 + x * 2^(x+5) for x from 0 to 9"),
        preset("strike", exponential(12, 3.0, 3.0, f64::INFINITY), "docs.strike.me: 3^j"),
        preset("nmi", table(&NMI), "docs.nmi.com"),
        preset("prolific", exponential(11, 60.0, 2.0, f64::INFINITY).jitter(Jitter::Full), "docs.prolific.com"),
        preset(
            "sidekiq",
            table(&(0..25).map(|count| f64::from(count).powi(4) + 15.0).collect::<Vec<_>>())
                .jitter(Jitter::Additive(10.0)),
            "mperham/sidekiq#2168: count^4 + 15 + rand(10) * (count + 1)",
        ),
        preset("sns_to_sqs_lambda", table(&sns()).retries(100_015).give_up(23.0 * DAY), "SNS delivery retries"),
        preset("sns_http", table(&[20.0; 3]), "SNS delivery retries over HTTP, default policy"),
        preset(
            "eventbridge",
            exponential(185, 5.0, 2.0, 480.0).jitter(Jitter::Equal).give_up(DAY),
            "EventBridge retry policy: 185 in 24 h; the steps are a model",
        ),
        preset(
            "gcp_pubsub",
            exponential(1500, 10.0, 2.0, 600.0).jitter(Jitter::Ratio(0.1)).give_up(7.0 * DAY),
            "Pub/Sub RetryPolicy: 10 s to 600 s until it is acknowledged; retention 7 d",
        ),
        preset(
            "sqs_redelivery",
            table(&[30.0; 4]).timeout(0.0),
            "SQS: the visibility timeout, 30 s by default; 5 receives are a model",
        ),
        preset(
            "sqs_dlq_redrive",
            exponential(1, 14.0 * DAY, 1.0, 14.0 * DAY).jitter(Jitter::Full),
            "SQS dead-letter retention of 14 d; uniform as a model",
        ),
        preset("celery_redis", table(&[3600.0; 2]).timeout(0.0), "celery#7651: visibility_timeout of 3600 s"),
        preset("k8s_job", exponential(6, 10.0, 2.0, 360.0), "Kubernetes Job back-off: 10 s to 6 min, backoffLimit 6"),
        preset(
            "cron_rerun",
            table(&[HOUR, DAY, DAY, DAY]).always(),
            "a job that computes the same key at each run; Square forum 28309: daily for three days",
        ),
        preset(
            "human_resubmit",
            log_normal(3, &[(0.6, 0.25, 0.5), (0.3, 8.0, 0.8), (0.1, 1200.0, 1.5)], 7.0 * DAY).timeout(0.0),
            "an assumption: double clicks, impatience, restored tabs",
        ),
        preset(
            "mobile_offline_queue",
            log_normal(5, &[(1.0, 600.0, 2.2)], 28.0 * DAY),
            "an assumption: phones that come back; Segment keeps ids for 4 weeks for it",
        ),
    ]
}

/// The preset of this name.
#[must_use]
pub fn find(name: &str) -> Option<Preset> {
    all().into_iter().find(|preset| preset.name == name)
}

const HOUR: f64 = 3600.0;
const DAY: f64 = 86_400.0;
const SVIX: [f64; 7] = [5.0, 300.0, 1800.0, 7200.0, 18_000.0, 36_000.0, 36_000.0];
const STANDARD_WEBHOOKS: [f64; 9] = [5.0, 300.0, 1800.0, 7200.0, 18_000.0, 36_000.0, 50_400.0, 72_000.0, 86_400.0];
const NMI: [f64; 20] = [
    15.0, 60.0, 60.0, 60.0, 300.0, 900.0, 1800.0, HOUR, HOUR, HOUR, HOUR, HOUR, HOUR, HOUR, HOUR, HOUR, HOUR, 43_200.0,
    43_200.0, DAY,
];

fn recurly() -> Vec<f64> {
    (0..10).map(|x| 10.0 + f64::from(x) * 2f64.powi(x + 5)).collect()
}

/// At once, then every second, then from 1 s to 20 s, then every 20 s.
fn sns() -> Vec<f64> {
    let rising = (0..10).map(|i| 20f64.powf(f64::from(i) / 9.0));
    [0.0, 0.0, 0.0, 1.0, 1.0].into_iter().chain(rising).chain([20.0]).collect()
}

fn exponential(retries: u32, base: f64, mult: f64, cap: f64) -> Schedule {
    schedule(retries, Delays::Exponential { base, mult, cap })
}

fn table(delays: &[f64]) -> Schedule {
    schedule(delays.len() as u32, Delays::Table(delays.to_vec()))
}

fn log_normal(retries: u32, parts: &[(f64, f64, f64)], most: f64) -> Schedule {
    schedule(retries, Delays::LogNormal { parts: parts.to_vec(), most })
}

fn schedule(retries: u32, delays: Delays) -> Schedule {
    let (jitter, stop_on_success) = (Jitter::None, StopOnSuccess::Yes);
    Schedule { retries, delays, jitter, timeout: 15.0, stop_on_success, give_up: f64::INFINITY }
}

impl Schedule {
    fn jitter(self, jitter: Jitter) -> Self {
        Self { jitter, ..self }
    }

    fn timeout(self, timeout: f64) -> Self {
        Self { timeout, ..self }
    }

    fn retries(self, retries: u32) -> Self {
        Self { retries, ..self }
    }

    fn give_up(self, give_up: f64) -> Self {
        Self { give_up, ..self }
    }

    fn always(self) -> Self {
        Self { stop_on_success: StopOnSuccess::No, ..self }
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng as _;
    use rand::rngs::StdRng;

    use super::*;

    /// The sum of all delays without jitter and timeouts.
    fn horizon(name: &str) -> f64 {
        let schedule = find(name).unwrap().schedule.jitter(Jitter::None);
        let mut random = StdRng::seed_from_u64(1);
        (1..=schedule.retries).map(|number| schedule.delay(number, &mut random)).sum()
    }

    #[test]
    fn horizons_are_the_published_ones() {
        let hours = [
            ("svix", 27.584_72),
            ("standard_webhooks", 75.584_72),
            ("shopify_webhook", 4.0),
            ("circle_cpn", 36.278),
            ("wix", 47.183),
            ("recurly", 24.0 * 3.04),
            ("strike", 221.4),
            ("nmi", 58.92),
            ("sidekiq", 24.0 * 20.4),
            ("sns_to_sqs_lambda", 24.0 * 23.15),
            ("sns_http", 1.0 / 60.0),
            ("k8s_job", 10.5 / 60.0),
        ];
        for (name, hours) in hours {
            let found = horizon(name) / 3600.0;
            assert!((found / hours - 1.0).abs() < 0.01, "{name}: {found} h, not {hours} h");
        }
    }

    #[test]
    fn names_are_unique() {
        let mut names: Vec<_> = all().into_iter().map(|preset| preset.name).collect();
        assert_eq!(names.len(), 25);
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), 25);
    }

    #[test]
    fn jitter_stays_within_its_bounds() {
        let mut random = StdRng::seed_from_u64(1);
        let bounds = [
            (Jitter::None, 8.0, 8.0),
            (Jitter::Full, 0.0, 8.0),
            (Jitter::Equal, 4.0, 8.0),
            (Jitter::Ratio(0.25), 6.0, 10.0),
            (Jitter::Additive(10.0), 8.0, 28.0),
        ];
        for (jitter, low, high) in bounds {
            let schedule = table(&[1.0, 8.0]).jitter(jitter);
            let drawn: Vec<f64> = (0..1000).map(|_| schedule.delay(2, &mut random)).collect();
            assert!(drawn.iter().all(|delay| (low..=high).contains(delay)), "{jitter:?}");
            let width = drawn.iter().copied().fold(0.0, f64::max) - drawn.iter().copied().fold(f64::MAX, f64::min);
            assert!(width >= 0.9 * (high - low), "{jitter:?}: {width}");
        }
    }
}
