//! What the window tuner's one pass costs, over a small made-up trace: as ratios to a bare pass that only looks each key up and puts it in
//! a map. `cargo bench -p idempotency-benches --bench window`; `-- --quick` runs it for a moment.
#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "a bench prints its table, and fails loudly")]

use std::collections::HashMap;
use std::hint::black_box;

use idempotency_benches::{Subject, compare, table, timed};
use idempotency_window::bytes::Weights;
use idempotency_window::generate::{Mixture, TakeError};
use idempotency_window::{Arrival, Pass, Reader, Settings, Unrecorded};

/// An arrival that owns its words.
struct Owned {
    time: i64,
    key: String,
    size: u32,
    route: String,
    scope: String,
    took: i64,
}

impl Owned {
    fn arrival(&self) -> Arrival<'_> {
        let Self { time, key, size, route, scope, took } = self;
        Arrival { time: *time, key, size: *size, route, scope, took: *took }
    }
}

fn main() {
    let quick = std::env::args().any(|argument| argument == "--quick" || argument == "--test");
    let (rounds, rate) = if quick { (1, 0.002) } else { (11, 0.04) };
    let mixture = Mixture { rate, ..Mixture::default() };
    let mut arrivals = Vec::new();
    let taken = mixture.arrivals::<TakeError>(|&Arrival { time, key, size, route, scope, took }| {
        arrivals.push(Owned {
            time,
            key: key.to_owned(),
            size,
            route: route.to_owned(),
            scope: scope.to_owned(),
            took,
        });
        Ok(())
    });
    let count = u32::try_from(taken.unwrap()).unwrap();
    let mut csv = Vec::new();
    mixture.write(&mut csv).unwrap();
    let settings = Settings { weights: Weights::measured().unwrap(), ..Settings::default() };
    let pass = || Pass::new(settings.clone());
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();

    let mut subjects = [
        Subject::new("bare: a map of keys", count, &runtime, async |_| {
            timed(async {
                let mut last: HashMap<(&str, &str), i64> = HashMap::new();
                for arrival in &arrivals {
                    last.insert((&arrival.scope, &arrival.key), arrival.time);
                }
                black_box(last.len());
            })
            .await
        }),
        Subject::new("arrivals taken", count, &runtime, async |_| {
            let mut pass = pass();
            timed(async { arrivals.iter().for_each(|arrival| pass.add(&arrival.arrival()).unwrap()) }).await
        }),
        Subject::new("taken and judged, 64 windows", count, &runtime, async |_| {
            let mut pass = pass();
            timed(async {
                arrivals.iter().for_each(|arrival| pass.add(&arrival.arrival()).unwrap());
                black_box(pass.finish().unwrap().windows.len());
            })
            .await
        }),
        Subject::new("the same from CSV", count, &runtime, async |_| {
            let mut pass = pass();
            timed(async {
                let mut reader = Reader::new(csv.as_slice(), 0, Unrecorded::Count).unwrap();
                reader.read(|arrival| pass.add(arrival)).unwrap();
                black_box(pass.finish().unwrap().windows.len());
            })
            .await
        }),
    ];
    println!("{count} arrivals of {} kinds of clients; the rows are of one arrival\n", mixture.clients.len());
    println!("{}", table(&compare(rounds, &mut subjects)));
}
