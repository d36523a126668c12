//! Exploring a model, and what came of it.

use std::fmt;
use std::hash::Hash;
use std::time::{Duration, Instant};

use stateright::{Checker as _, Expectation, HasDiscoveries, Model};

/// What exploring one model came to.
#[derive(Debug)]
pub struct Explored {
    /// Which model, in which setting, without which rule.
    pub name: String,
    /// Different states seen.
    pub states: usize,
    /// Steps taken to see them.
    pub steps: usize,
    /// The longest of the shortest ways to a state.
    pub depth: usize,
    /// How long it took.
    pub took: Duration,
    /// The first property found broken, and the shortest way there.
    pub broken: Option<Broken>,
    /// What should have been seen and was not, as far as the whole of the model was seen.
    pub unseen: Vec<&'static str>,
}

/// A property that does not hold, and how it comes about.
#[derive(Debug)]
pub struct Broken {
    /// The property.
    pub property: &'static str,
    /// The steps that break it.
    pub trace: Vec<String>,
}

/// Explores all of `model`, breadth first, until something is broken.
pub fn explore<M>(name: impl Into<String>, model: M) -> Explored
where
    M: Model + Send + Sync + 'static,
    M::State: Clone + fmt::Debug + Hash + PartialEq + Send + Sync,
    M::Action: Clone + fmt::Debug + PartialEq + Send + Sync,
{
    let begun = Instant::now();
    let checker = model.checker().finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
    let mut discoveries = checker.discoveries();
    let properties = checker.model().properties();
    let broken = properties
        .iter()
        .filter(|property| property.expectation != Expectation::Sometimes)
        .map(|property| property.name)
        .find(|name| discoveries.contains_key(name));
    let unseen = properties
        .iter()
        .filter(|property| property.expectation == Expectation::Sometimes && !discoveries.contains_key(property.name))
        .map(|property| property.name)
        .collect();
    Explored {
        name: name.into(),
        states: checker.unique_state_count(),
        steps: checker.state_count(),
        depth: checker.max_depth(),
        took: begun.elapsed(),
        broken: broken.and_then(|property| {
            let path = discoveries.remove(property)?;
            let trace = path.into_actions().iter().map(|action| format!("{action:?}")).collect();
            Some(Broken { property, trace })
        }),
        unseen,
    }
}

/// One line, for whoever watches.
impl fmt::Display for Explored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, states, depth, took, .. } = self;
        write!(f, "{name}: {states} states, {depth} deep, {:.1} s, ", took.as_secs_f64())?;
        match &self.broken {
            None => write!(f, "holds"),
            Some(broken) => write!(f, "broken in {} steps: {}", broken.trace.len(), broken.property),
        }
    }
}
