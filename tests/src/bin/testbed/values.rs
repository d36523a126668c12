//! Values of options that are more than a word.

use std::time::Duration;

use axum::http::HeaderMap;
use axum::http::HeaderName;
use axum::http::Uri;
use axum::http::uri::Scheme;
use idempotency::time::LONGEST;
use idempotency::{InFlight, ScopeId};
use tower_idempotency::Scope;

/// `500ms`, `2s`, `5m`, `24h`, `30d`: from a millisecond to 36500 days.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    if text.trim_start().starts_with('-') {
        return Err("a duration cannot be negative".into());
    }
    let duration =
        humantime::parse_duration(text).map_err(|_| "not a duration; write 500ms, 2s, 5m, 24h or 30d".to_owned())?;
    if duration < Duration::from_millis(1) {
        return Err("a duration must be at least 1ms".into());
    }
    if duration > LONGEST {
        return Err("a duration must be at most 36500d".into());
    }
    Ok(duration)
}

/// From 0 to 1.
pub(crate) fn rate(text: &str) -> Result<f64, String> {
    let rate = text.parse().ok().filter(|rate| (0.0..=1.0).contains(rate));
    rate.ok_or_else(|| "a rate is a number from 0 to 1".to_owned())
}

/// A server's URL, without a slash at its end.
pub(crate) fn http_url(text: &str) -> Result<String, String> {
    let url = text.trim_end_matches('/');
    let is_ours = |url: &Uri| url.scheme() == Some(&Scheme::HTTP) && url.host().is_some() && url.query().is_none();
    let valid = url.parse().is_ok_and(|url| is_ours(&url));
    valid.then(|| url.to_owned()).ok_or_else(|| "not a server's URL; write http://HOST:PORT".to_owned())
}

/// How often forgotten records are removed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Sweep {
    Every(Duration),
    Off,
}

pub(crate) fn sweep(text: &str) -> Result<Sweep, String> {
    match text {
        "off" => Ok(Sweep::Off),
        text => duration(text).map(Sweep::Every),
    }
}

pub(crate) fn in_flight(text: &str) -> Result<InFlight, String> {
    match text.split_once(':') {
        None if text == "reject" => Ok(InFlight::Reject),
        Some(("wait", limit)) => duration(limit).map(InFlight::Wait),
        _ => Err("write reject, or wait:DUR".into()),
    }
}

/// Whose keys they are.
#[derive(Clone, Debug)]
pub(crate) enum ScopeFrom {
    Global,
    Header(HeaderName),
}

impl ScopeFrom {
    /// As the layer is told.
    pub(crate) fn rule(&self) -> Scope {
        match self {
            Self::Global => Scope::global(),
            Self::Header(name) => Scope::header(name.clone()),
        }
    }

    /// The scope of one request, as the layer tells it; none when its header is missing, empty or repeated.
    pub(crate) fn tell(&self, headers: &HeaderMap) -> Option<ScopeId> {
        let Self::Header(name) = self else { return Some(ScopeId::global()) };
        let mut values = headers.get_all(name).iter();
        let value = values.next().filter(|value| !value.is_empty())?;
        values.next().is_none().then(|| ScopeId::new([value.as_bytes()]))
    }
}

pub(crate) fn scope(text: &str) -> Result<ScopeFrom, String> {
    match text.split_once(':') {
        None if text == "global" => Ok(ScopeFrom::Global),
        Some(("header", name)) => {
            name.parse().map(ScopeFrom::Header).map_err(|_| "not the name of a header".to_owned())
        }
        _ => Err("write global, or header:NAME".into()),
    }
}

/// What keys look like.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Keys {
    Opaque,
    Uuid7 { max_age: Duration, drift: Duration },
}

pub(crate) fn keys(text: &str) -> Result<Keys, String> {
    match text.split_once(':') {
        None if text == "opaque" => Ok(Keys::Opaque),
        Some(("uuid7", limits)) => {
            let (max_age, drift) = match limits.split_once(',') {
                Some((max_age, drift)) => (max_age, duration(drift)?),
                None => (limits, Duration::from_secs(60)),
            };
            Ok(Keys::Uuid7 { max_age: duration(max_age)?, drift })
        }
        _ => Err("write opaque, or uuid7:MAXAGE[,DRIFT]".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_of_the_contract_are_read() {
        for (text, millis) in [("500ms", 500), ("2s", 2_000), ("5m", 300_000), ("24h", 86_400_000)] {
            assert_eq!(duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        assert_eq!(duration("36500d"), Ok(LONGEST));
    }

    #[test]
    fn zero_negative_too_long_and_bare_numbers_are_refused() {
        for text in ["0", "0s", "0ms", "999us", "-1s", "-0s", " -5m", "36501d", "99999999999999d", "5", "s", "", "2 x"]
        {
            assert!(duration(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn rates_and_servers_are_read() {
        assert_eq!((rate("0"), rate("0.5"), rate("1.0")), (Ok(0.0), Ok(0.5), Ok(1.0)));
        for wrong in ["-0.1", "1.1", "NaN", "half", ""] {
            assert!(rate(wrong).is_err(), "{wrong}");
        }
        assert_eq!(http_url("http://127.0.0.1:80/").as_deref(), Ok("http://127.0.0.1:80"));
        for wrong in ["", "127.0.0.1:80", "https://bank", "http://", "/transfers", "http://bank?x=1"] {
            assert!(http_url(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn words_with_values_are_read() {
        assert!(matches!(sweep("off"), Ok(Sweep::Off)));
        assert!(matches!(sweep("3s"), Ok(Sweep::Every(every)) if every == Duration::from_secs(3)));
        assert_eq!(in_flight("wait:3s"), Ok(InFlight::Wait(Duration::from_secs(3))));
        assert_eq!(in_flight("reject"), Ok(InFlight::Reject));
        let minute = Duration::from_secs(60);
        assert!(
            matches!(keys("uuid7:5m"), Ok(Keys::Uuid7 { max_age, drift }) if max_age == 5 * minute && drift == minute)
        );
        assert!(matches!(keys("uuid7:5m,1s"), Ok(Keys::Uuid7 { drift, .. }) if drift == Duration::from_secs(1)));
        for wrong in ["wait", "wait:", "wait:0s", "reject:1s"] {
            assert!(in_flight(wrong).is_err(), "{wrong}");
        }
        for wrong in ["uuid7", "uuid7:", "uuid7:1s,", "uuid7:0s", "opaque:1s", "ulid:1s"] {
            assert!(keys(wrong).is_err(), "{wrong}");
        }
        for wrong in ["header", "header:", "header:a b", "global:x", "tenant"] {
            assert!(scope(wrong).is_err(), "{wrong}");
        }
    }
}
