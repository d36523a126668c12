//! A client from words: a preset by name, with changes, or one of one's own.

use std::str::FromStr;

use crate::presets::{self, Preset};
use crate::schedule::{Delays, Jitter, Schedule, StopOnSuccess};

/// A client and its weight in a mixture, written `NAME[,PARAMETER=VALUE]...`.
///
/// The name is that of a preset, or any other for a client of one's own, which begins with no retries. Parameters:
///
/// - `weight`: how often it comes beside the others. Default 1.
/// - `n`: how often it tries again.
/// - `base`, `mult`, `cap`: the first delay in seconds, what each is longer by (2), the longest (none).
/// - `table`: delays in seconds, separated by `;`, instead of those. Sets `n` when that is not given.
/// - `jitter`: `none`, `full`, `equal`, `ratio:R` or `additive:SECONDS`.
/// - `timeout`: how long it waits for an answer, in seconds (15).
/// - `give_up`: how long it tries, in seconds.
/// - `stop_on_success`: `true` or `false`.
#[derive(Clone, Debug)]
pub struct Client {
    /// What it is.
    pub preset: Preset,
    /// How often it comes.
    pub weight: f64,
}

impl FromStr for Client {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut words = text.split(',');
        let name = words.next().unwrap_or_default();
        if name.is_empty() || name.contains('=') {
            return Err(format!("`{text}` must begin with a name"));
        }
        let own = || Preset { name: name.to_owned(), schedule: nothing(), source: "one's own" };
        let mut client = Self { preset: presets::find(name).unwrap_or_else(own), weight: 1.0 };
        let parameters =
            words.map(|word| word.split_once('=').ok_or_else(|| format!("`{word}` is not PARAMETER=VALUE")));
        let parameters = parameters.collect::<Result<Vec<_>, _>>()?;
        if parameters.is_empty() && presets::find(name).is_none() {
            return Err(format!("there is no preset `{name}`; `window presets` lists them"));
        }
        // A table sets the number of retries, unless that is said too, wherever it stands.
        let (tables, others): (Vec<_>, Vec<_>) = parameters.into_iter().partition(|(name, _)| *name == "table");
        for (name, value) in tables.into_iter().chain(others) {
            client.set(name, value)?;
        }
        Ok(client)
    }
}

impl Client {
    fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        let schedule = &mut self.preset.schedule;
        match name {
            "weight" => self.weight = number(name, value)?,
            "n" => schedule.retries = value.parse().map_err(|_| format!("n={value} is no number of retries"))?,
            "base" | "mult" | "cap" => {
                let value = number(name, value)?;
                let (mut base, mut mult, mut cap) = match schedule.delays {
                    Delays::Exponential { base, mult, cap } => (base, mult, cap),
                    _ => (1.0, 2.0, f64::INFINITY),
                };
                *match name {
                    "base" => &mut base,
                    "mult" => &mut mult,
                    _ => &mut cap,
                } = value;
                schedule.delays = Delays::Exponential { base, mult, cap };
            }
            "table" => {
                let table = value.split(';').map(|delay| number(name, delay)).collect::<Result<Vec<_>, _>>()?;
                schedule.retries = table.len() as u32;
                schedule.delays = Delays::Table(table);
            }
            "jitter" => schedule.jitter = jitter(value)?,
            "timeout" => schedule.timeout = number(name, value)?,
            "give_up" => schedule.give_up = number(name, value)?,
            "stop_on_success" => {
                schedule.stop_on_success = match value {
                    "true" => StopOnSuccess::Yes,
                    "false" => StopOnSuccess::No,
                    _ => return Err(format!("stop_on_success={value} is neither true nor false")),
                };
            }
            _ => return Err(format!("there is no parameter `{name}`")),
        }
        Ok(())
    }
}

fn jitter(value: &str) -> Result<Jitter, String> {
    let (name, by) = value.split_once(':').unwrap_or((value, ""));
    match (name, by) {
        ("none", "") => Ok(Jitter::None),
        ("full", "") => Ok(Jitter::Full),
        ("equal", "") => Ok(Jitter::Equal),
        ("ratio", by) => match number("ratio", by)? {
            ratio if ratio <= 1.0 => Ok(Jitter::Ratio(ratio)),
            _ => Err(format!("jitter={value}: a ratio is at most 1")),
        },
        ("additive", by) => Ok(Jitter::Additive(number("additive", by)?)),
        _ => Err(format!("jitter={value} is none of none, full, equal, ratio:R, additive:SECONDS")),
    }
}

/// Seconds and factors: from 0 to a hundred years' worth.
fn number(name: &str, value: &str) -> Result<f64, String> {
    match value.parse::<f64>() {
        Ok(number) if (0.0..=36_500.0 * 86_400.0).contains(&number) => Ok(number),
        _ => Err(format!("{name}={value} is no number from 0 to 36500 days in seconds")),
    }
}

fn nothing() -> Schedule {
    Schedule {
        retries: 0,
        delays: Delays::Exponential { base: 1.0, mult: 2.0, cap: f64::INFINITY },
        jitter: Jitter::None,
        timeout: 15.0,
        stop_on_success: StopOnSuccess::Yes,
        give_up: f64::INFINITY,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_preset_can_be_changed_and_a_client_made_from_nothing() {
        let Client { preset, weight } = "svix,weight=3,timeout=30".parse().unwrap();
        assert_eq!((preset.schedule.retries, preset.schedule.timeout, weight), (7, 30.0, 3.0));

        let own: Client = "mine,n=5,base=2,mult=3,cap=60,jitter=ratio:0.2,stop_on_success=false".parse().unwrap();
        let expected = Schedule {
            retries: 5,
            delays: Delays::Exponential { base: 2.0, mult: 3.0, cap: 60.0 },
            jitter: Jitter::Ratio(0.2),
            stop_on_success: StopOnSuccess::No,
            ..nothing()
        };
        assert_eq!(own.preset.schedule, expected);

        let table: Client = "mine,n=4,table=5;300".parse().unwrap();
        assert_eq!((table.preset.schedule.retries, table.preset.schedule.delays), (4, Delays::Table(vec![5.0, 300.0])));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let all = [
            "",
            "unknown",
            "svix,n",
            "svix,n=-1",
            "svix,what=1",
            "mine,base=-1",
            "mine,base=NaN",
            "mine,cap=1e300",
            "mine,jitter=some",
            "mine,jitter=ratio:2",
            "mine,table=",
            "weight=1",
            "svix,stop_on_success=1",
        ];
        for text in all {
            assert!(text.parse::<Client>().is_err(), "{text}");
        }
    }
}
