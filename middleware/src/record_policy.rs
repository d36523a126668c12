//! Which outcomes are recorded.

use std::fmt;
use std::sync::Arc;

use http::StatusCode;
use idempotency::Recovery;

/// What becomes of the key once the handler has answered.
///
/// A handler that knows better than the [`RecordPolicy`] puts one into its response's extensions:
///
/// ```
/// use tower_idempotency::Verdict;
///
/// let mut response = http::Response::new("the card was declined before anything was booked");
/// response.extensions_mut().insert(Verdict::Release);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// The answer is recorded; duplicates get it again and nothing runs.
    Record,
    /// Nothing was done; the key is free and a duplicate runs.
    Release,
    /// Nobody knows whether the effect happened. Under [`Recovery::Hold`] the answer is kept and duplicates get it
    /// again; nothing runs until somebody resolves the record.
    InDoubt,
}

/// Tells from a response's status what becomes of the key.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub enum RecordPolicy {
    /// By what a status says about the effect:
    ///
    /// | status | under `Hold` | under `Rerun` |
    /// |---|---|---|
    /// | 2xx, 300-303 and unassigned 3xx | record | record |
    /// | 304, 307, 308 | release | release |
    /// | 400 401 403 404 405 406 411 413 414 415 416 422 428 429 | release | release |
    /// | other 4xx | record | record |
    /// | 408, 425, 499 | in doubt | release |
    /// | 5xx, and what is no final status | in doubt | release |
    #[default]
    Default,
    /// Every status is recorded once the handler has begun, as Stripe's API does. A client whose request was
    /// refused for a typo must take a new key.
    Stripe,
    /// 2xx is recorded, all else released. **A duplicate runs again after a 5xx**, whatever the first run did
    /// before it failed: only for handlers whose repeat is a no-op.
    SuccessOnly,
    /// A function of one's own: [`RecordPolicy::from_fn`].
    Own(OwnPolicy),
}

impl RecordPolicy {
    /// A policy of one's own. What it releases runs again.
    pub fn from_fn(policy: impl Fn(StatusCode, Recovery) -> Verdict + Send + Sync + 'static) -> Self {
        Self::Own(OwnPolicy(Arc::new(policy)))
    }

    /// What becomes of the key after an answer with this status.
    pub(crate) fn verdict(&self, status: StatusCode, recovery: Recovery) -> Verdict {
        match self {
            Self::Default => by_table(status, recovery),
            Self::Stripe => Verdict::Record,
            Self::SuccessOnly if status.is_success() => Verdict::Record,
            Self::SuccessOnly => Verdict::Release,
            Self::Own(policy) => (policy.0)(status, recovery),
        }
    }
}

/// The function behind [`RecordPolicy::from_fn`].
#[derive(Clone)]
pub struct OwnPolicy(Arc<dyn Fn(StatusCode, Recovery) -> Verdict + Send + Sync>);

impl fmt::Debug for OwnPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OwnPolicy")
    }
}

fn by_table(status: StatusCode, recovery: Recovery) -> Verdict {
    match status.as_u16() {
        // Not executed: "not modified" and "ask elsewhere".
        304 | 307 | 308 => Verdict::Release,
        // Refused before anything was applied. Stored, a corrected typo or a wrong one-time code would wedge
        // the client.
        400 | 401 | 403..=406 | 411 | 413..=416 | 422 | 428 | 429 => Verdict::Release,
        // A timeout layer inside answers 408 after cutting the handler half-way.
        408 | 425 | 499 => unknown(recovery),
        // An unassigned status counts as the x00 of its class (RFC 9110 section 15).
        200..=399 => Verdict::Record,
        // A decision, such as a declined card.
        400..=499 => Verdict::Record,
        _ => unknown(recovery),
    }
}

fn unknown(recovery: Recovery) -> Verdict {
    match recovery {
        Recovery::Hold => Verdict::InDoubt,
        Recovery::Rerun => Verdict::Release,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECOVERIES: [Recovery; 2] = [Recovery::Hold, Recovery::Rerun];

    fn status(code: u16) -> StatusCode {
        StatusCode::from_u16(code).unwrap()
    }

    /// The table, row by row: every status that `http` can hold and is in no other row belongs to the last.
    fn expected(code: u16) -> (Verdict, Verdict) {
        const RELEASED: [u16; 17] =
            [304, 307, 308, 400, 401, 403, 404, 405, 406, 411, 413, 414, 415, 416, 422, 428, 429];
        const IN_DOUBT: [u16; 3] = [408, 425, 499];
        if RELEASED.contains(&code) {
            (Verdict::Release, Verdict::Release)
        } else if IN_DOUBT.contains(&code) || !(200..500).contains(&code) {
            (Verdict::InDoubt, Verdict::Release)
        } else {
            (Verdict::Record, Verdict::Record)
        }
    }

    #[test]
    fn default_policy_is_the_table() {
        for code in 100..=999 {
            let (hold, rerun) = expected(code);
            assert_eq!(RecordPolicy::default().verdict(status(code), Recovery::Hold), hold, "{code} under Hold");
            assert_eq!(RecordPolicy::default().verdict(status(code), Recovery::Rerun), rerun, "{code} under Rerun");
        }
    }

    #[test]
    fn named_examples_of_the_table() {
        let hold = |code| RecordPolicy::Default.verdict(status(code), Recovery::Hold);
        for code in [200, 201, 202, 204, 206, 300, 301, 302, 303, 402, 409, 410, 412, 418, 423, 451] {
            assert_eq!(hold(code), Verdict::Record, "{code}");
        }
        for code in [304, 307, 308, 400, 401, 403, 404, 405, 406, 411, 413, 414, 415, 416, 422, 428, 429] {
            assert_eq!(hold(code), Verdict::Release, "{code}");
        }
        for code in [408, 425, 499, 500, 502, 503, 504, 599] {
            assert_eq!(hold(code), Verdict::InDoubt, "{code}");
            assert_eq!(RecordPolicy::Default.verdict(status(code), Recovery::Rerun), Verdict::Release, "{code}");
        }
    }

    #[test]
    fn stripe_records_every_status() {
        for recovery in RECOVERIES {
            for code in 100..=999 {
                assert_eq!(RecordPolicy::Stripe.verdict(status(code), recovery), Verdict::Record, "{code}");
            }
        }
    }

    #[test]
    fn success_only_records_2xx_and_releases_all_else() {
        for recovery in RECOVERIES {
            for code in 100..=999 {
                let verdict = if code / 100 == 2 { Verdict::Record } else { Verdict::Release };
                assert_eq!(RecordPolicy::SuccessOnly.verdict(status(code), recovery), verdict, "{code}");
            }
        }
    }

    #[test]
    fn own_policy_sees_status_and_recovery() {
        let policy = RecordPolicy::from_fn(|status, recovery| match (status.as_u16(), recovery) {
            (418, Recovery::Rerun) => Verdict::Record,
            _ => Verdict::InDoubt,
        });
        assert_eq!(policy.verdict(status(418), Recovery::Rerun), Verdict::Record);
        assert_eq!(policy.clone().verdict(status(418), Recovery::Hold), Verdict::InDoubt);
        assert_eq!(policy.verdict(status(200), Recovery::Rerun), Verdict::InDoubt);
    }
}
