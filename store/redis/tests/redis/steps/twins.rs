//! Two stores that are asked the same: the scripts are the protocol in another language, and have to agree on every answer with the one in
//! process, which asks it in its own.

use std::collections::HashSet;
use std::time::Duration;

use idempotency::outbound::{
    Again, BeginCall, Begun, EndCall, ListSteps, LoggedEnd, ResolveStep, StepLabel, StepResult, StepState, StepVerdict,
    Steps,
};
use idempotency::{Claim, Claimed, Fingerprint, Holder, Lease, Life, Nonce, Recovery, Settled, Store, Windows};
use idempotency_memory::MemoryStore;
use idempotency_redis::RedisStore;
use tokio::task::JoinSet;

use super::{SECOND, ask, label};
use crate::support::{DEAD_FOR, HOUR, Place, claim, outcome};

/// Numbers that are the same in every run.
struct Dice(u64);

impl Dice {
    /// Below `sides`. The generator is that of Knuth's MMIX, whose high bits are the good ones.
    fn throw(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % sides
    }

    fn choose<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.throw(from.len())].clone()
    }

    /// Mostly the same one: much has to happen to it.
    fn label(&mut self) -> StepLabel {
        label(self.choose(&["a", "a", "a", "a", "a", "b"]))
    }

    fn result(&mut self) -> StepResult {
        let long = StepResult::TooLong;
        self.choose(&[StepResult::Kept("paid".into()), StepResult::Kept("".into()), long])
    }
}

/// Two stores on one clock that are asked the same.
struct Twins {
    place: Place,
    redis: RedisStore,
    memory: MemoryStore<idempotency::time::ManualClock>,
    key: Claim,
    holders: Vec<Holder>,
    calls: Vec<Nonce>,
}

impl Twins {
    async fn new(key: Claim) -> Self {
        let place = Place::new();
        let memory = MemoryStore::builder().clock(place.clock.clone()).build();
        Self { redis: place.store().await, memory, place, key, holders: Vec::new(), calls: Vec::new() }
    }

    async fn claims(&mut self, dice: &mut Dice) -> String {
        let lease = Lease::new(dice.choose(&[7, 30, 3000, 3000]) * SECOND).unwrap();
        let claim = Claim { nonce: Nonce::random(), lease, ..self.key.clone() };
        let (redis, memory) = (self.redis.claim(&claim).await.unwrap(), self.memory.claim(&claim).await.unwrap());
        match (&redis, &memory) {
            (Claimed::Granted(redis), Claimed::Granted(memory)) => {
                assert_eq!(redis.token, memory.token);
                self.holders.push(Holder { id: claim.id, token: redis.token, nonce: claim.nonce });
            }
            _ => assert_eq!(redis, memory),
        }
        format!("{redis:?}")
    }

    async fn settles(&self, holder: &Holder, dice: &mut Dice) -> String {
        let lease = Lease::new(3000 * SECOND).unwrap();
        let which = dice.throw(5);
        let (redis, memory) = match which {
            0 => (self.redis.renew(holder, lease).await, self.memory.renew(holder, lease).await),
            1 => (self.redis.release(holder, DEAD_FOR).await, self.memory.release(holder, DEAD_FOR).await),
            2 => (self.redis.mark_in_doubt(holder, None).await, self.memory.mark_in_doubt(holder, None).await),
            3 => (
                self.redis.abandon(&holder.id, holder.nonce, DEAD_FOR).await.map(|()| Settled::Applied),
                self.memory.abandon(&holder.id, holder.nonce, DEAD_FOR).await.map(|()| Settled::Applied),
            ),
            _ => {
                let outcome = outcome("answer");
                (self.redis.complete(holder, &outcome).await, self.memory.complete(holder, &outcome).await)
            }
        };
        let (redis, memory) = (redis.unwrap(), memory.unwrap());
        assert_eq!(redis, memory);
        format!("settle {which}: {redis:?}")
    }

    async fn begins(&mut self, holder: Holder, dice: &mut Dice) -> String {
        let fresh = Nonce::random();
        let known = self.calls.last().copied().unwrap_or(fresh);
        let ask = BeginCall {
            label: dice.label(),
            request: Fingerprint::of([dice.choose(&["10", "10", "10", "10", "10", "10", "10", "11"])]),
            nonce: dice.choose(&[fresh, fresh, fresh, known]),
            again: dice.choose(&[Again::Never, Again::Within(20 * SECOND), Again::Within(HOUR)]),
            ..ask(holder)
        };
        let (redis, memory) = (self.redis.begin_call(&ask).await.unwrap(), self.memory.begin_call(&ask).await.unwrap());
        assert_eq!(redis, memory);
        if matches!(redis, Begun::Go { .. }) || dice.throw(5) == 0 {
            self.calls.push(ask.nonce);
        }
        format!("begin: {redis:?}")
    }

    async fn ends(&self, nonce: Nonce, dice: &mut Dice) -> String {
        let why = || "why".to_owned();
        let ends = [
            LoggedEnd::Unknown(why()),
            LoggedEnd::NotDone(why()),
            LoggedEnd::Refused(dice.result()),
            LoggedEnd::Done(dice.result()),
        ];
        let report = EndCall { id: self.key.id, label: dice.label(), nonce, end: dice.choose(&ends) };
        let (redis, memory) =
            (self.redis.end_call(&report).await.unwrap(), self.memory.end_call(&report).await.unwrap());
        assert_eq!(redis, memory, "{report:?}");
        format!("{report:?}: {redis:?}")
    }

    async fn resolves(&self, dice: &mut Dice) -> String {
        let verdicts = [StepVerdict::Happened(dice.result()), StepVerdict::DidNotHappen];
        let (id, label) = (self.key.id, dice.label());
        let last = self.memory.inspect_step(&id, &label).await.unwrap().map_or(1, |view| view.entry.call);
        let resolve = ResolveStep {
            id,
            label,
            call_seen: dice.choose(&[last, last, last, last + 1, 1]),
            verdict: dice.choose(&verdicts),
            who: "ops".to_owned(),
            why: "looked".to_owned(),
        };
        let (redis, memory) =
            (self.redis.resolve_step(&resolve).await.unwrap(), self.memory.resolve_step(&resolve).await.unwrap());
        assert_eq!(redis, memory, "{resolve:?}");
        format!("{resolve:?}: {redis:?}")
    }

    /// The same is on record. What was said so far is told where it is not.
    async fn compare(&self, so_far: &[String]) -> Option<StepState> {
        let mut state = None;
        for name in ["a", "b"] {
            let (id, label) = (&self.key.id, label(name));
            let redis = self.redis.inspect_step(id, &label).await.unwrap();
            assert_eq!(redis, self.memory.inspect_step(id, &label).await.unwrap(), "{so_far:#?}");
            state = redis.map(|view| view.entry.state).or(state);
        }
        state
    }
}

/// So many things after each other; which states they made of the steps.
async fn asked_the_same(seed: u64) -> HashSet<StepState> {
    let mut dice = Dice(seed);
    let recovery = dice.choose(&[Recovery::Hold, Recovery::Rerun]);
    let life = Life::new(recovery, Windows::new(60 * SECOND, 600 * SECOND).unwrap());
    let mut twins = Twins::new(Claim { life, ..claim("k") }).await;
    let mut so_far = Vec::new();
    let mut states = HashSet::new();
    for _ in 0..80 {
        let holder = twins.holders.last().copied();
        let said = match (dice.throw(20), holder) {
            (0..=1, _) | (_, None) => twins.claims(&mut dice).await,
            (2, Some(holder)) => twins.settles(&holder, &mut dice).await,
            (3, Some(_)) => {
                let holder = dice.choose(&twins.holders);
                twins.begins(holder, &mut dice).await
            }
            (4..=9, Some(holder)) => twins.begins(holder, &mut dice).await,
            (10..=15, _) => {
                let nonce = twins.calls.get(dice.throw(twins.calls.len().max(1))).copied();
                twins.ends(nonce.unwrap_or_else(Nonce::random), &mut dice).await
            }
            (16..=17, _) => twins.resolves(&mut dice).await,
            _ => {
                let by = dice.choose(&[1, 1_000_000, 1_000_000, 5_000_000, 10_000_000, 10_000_000, 600_000_000]);
                twins.place.clock.advance(Duration::from_micros(by));
                format!("advance {by}")
            }
        };
        so_far.push(said);
        states.extend(twins.compare(&so_far).await);
    }
    let all = ListSteps::default();
    let (redis, memory) = (twins.redis.list_steps(&all).await.unwrap(), twins.memory.list_steps(&all).await.unwrap());
    assert_eq!(redis.entries, memory.entries);
    states
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scripts_answer_as_the_protocol_does_whatever_comes() {
    let sequences: JoinSet<_> = (0..60).map(asked_the_same).collect();
    let states: HashSet<StepState> = sequences.join_all().await.into_iter().flatten().collect();
    assert_eq!(states.len(), StepState::ALL.len(), "not every state came up: this proves little");
}
