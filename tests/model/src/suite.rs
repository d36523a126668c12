//! Every model in every setting, and every rule that is dropped.

use crate::ages::{self, Ages};
use crate::check::{Explored, explore};
use crate::leases::{self, Leases};
use crate::records::{self, Records};
use crate::steps::{self, Steps};
use crate::transactions::{self, Transactions};

/// Something to be explored.
pub struct Case {
    /// What it is called.
    pub name: String,
    /// A rule is dropped, so that it must be found broken.
    pub mutant: bool,
    run: Box<dyn FnOnce(String) -> Explored + Send>,
}

impl Case {
    /// Explores it.
    #[must_use]
    pub fn explore(self) -> Explored {
        (self.run)(self.name)
    }

    fn whole<F: FnOnce(String) -> Explored + Send + 'static>(name: String, run: F) -> Self {
        Self { name, mutant: false, run: Box::new(run) }
    }

    fn mutant<F: FnOnce(String) -> Explored + Send + 'static>(name: String, run: F) -> Self {
        Self { name, mutant: true, run: Box::new(run) }
    }
}

/// All of the models with all of their rules.
#[must_use]
pub fn whole() -> Vec<Case> {
    let mut cases = Vec::new();
    for setting in records::Setting::all() {
        let name = format!("records: {}", setting.name);
        cases.push(Case::whole(name, |name| explore(name, Records::new(setting))));
    }
    for setting in leases::Setting::ALL {
        let name = format!("leases: {}", setting.name);
        cases.push(Case::whole(name, move |name| explore(name, Leases { setting, dropped: None })));
    }
    for setting in [transactions::Setting::WithOutcome, transactions::Setting::Fenced] {
        let name = format!("transactions: {setting:?}");
        cases.push(Case::whole(name, move |name| explore(name, Transactions { setting, dropped: None })));
    }
    for setting in steps::Setting::ALL {
        let name = format!("steps: {setting:?}");
        cases.push(Case::whole(name, move |name| explore(name, Steps { setting, dropped: None })));
    }
    for setting in ages::Setting::ALL {
        let name = format!("ages: {setting:?}");
        cases.push(Case::whole(name, move |name| explore(name, Ages { setting, dropped: None })));
    }
    cases
}

/// All of the rules, each dropped from the model that needs it.
#[must_use]
pub fn mutants() -> Vec<Case> {
    let mut cases = Vec::new();
    for (dropped, setting) in records::Dropped::all() {
        let name = format!("records without {dropped:?}");
        cases.push(Case::mutant(name, move |name| explore(name, Records::without(setting, dropped))));
    }
    for (dropped, setting) in leases::Dropped::ALL {
        let (name, dropped) = (format!("leases without {dropped:?}"), Some(dropped));
        cases.push(Case::mutant(name, move |name| explore(name, Leases { setting, dropped })));
    }
    for (dropped, setting) in transactions::Dropped::ALL {
        let (name, dropped) = (format!("transactions without {dropped:?}"), Some(dropped));
        cases.push(Case::mutant(name, move |name| explore(name, Transactions { setting, dropped })));
    }
    for (dropped, setting) in steps::Dropped::ALL {
        let (name, dropped) = (format!("steps without {dropped:?}"), Some(dropped));
        cases.push(Case::mutant(name, move |name| explore(name, Steps { setting, dropped })));
    }
    for (dropped, setting) in ages::Dropped::ALL {
        let (name, dropped) = (format!("ages without {dropped:?} ({setting:?})"), Some(dropped));
        cases.push(Case::mutant(name, move |name| explore(name, Ages { setting, dropped })));
    }
    cases
}
