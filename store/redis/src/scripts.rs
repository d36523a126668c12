//! The scripts, one for each operation.

use std::sync::LazyLock;

/// A script, in each of its forms.
pub(crate) struct Script([Code; 4]);

/// A script as the server knows it.
pub(crate) struct Code {
    pub(crate) text: String,
    pub(crate) hash: String,
}

impl Script {
    fn new(first_line: &str, rest: &str) -> Self {
        let form = |tells: bool, clock: &str| {
            let text = format!("{first_line}\nlocal TELLS = {tells}\n{clock}{rest}");
            Code { hash: redis::Script::new(&text).get_hash().to_owned(), text }
        };
        let [server, test] = [include_str!("../lua/clock.lua"), include_str!("../lua/test_clock.lua")];
        Self([form(false, server), form(true, server), form(false, test), form(true, test)])
    }

    /// One that does not tell publishes nothing: in a cluster that would go to every node, whoever listens. The time is the server's, or
    /// the last argument.
    pub(crate) fn form(&self, tells: bool, timed: bool) -> &Code {
        &self.0[usize::from(tells) + 2 * usize::from(timed)]
    }
}

/// A script is its first line, which says what the server may refuse it for, whether it publishes, the clock, the prelude, and its own files.
macro_rules! scripts {
    ($($(#[$doc:meta])* $name:ident: $flags:literal $($file:literal)|+;)+) => {
        $(
            $(#[$doc])*
            pub(crate) static $name: LazyLock<Script> = LazyLock::new(|| {
                Script::new(concat!("#!lua", $flags), concat!(
                    include_str!("../lua/prelude.lua"),
                    $(include_str!(concat!("../lua/", $file, ".lua")),)+
                ))
            });
        )+
    };
}

scripts! {
    /// Refused when the server is out of memory.
    CLAIM: "" "record_form" | "claim_short" | "answer_one" | "common" | "record" | "claim";
    /// Of those that met.
    CLAIMS: "" "record_form" | "claim_short" | "answer_all";
    /// The same, to be sent then: it answers what needs no room.
    CLAIM_WHEN_FULL: " flags=allow-oom" "record_form" | "common" | "record" | "claim";
    COMPLETE: " flags=allow-oom" "record_form" | "complete_own" | "answer_one" | "common" | "record" | "complete";
    /// Of those that met.
    COMPLETIONS: " flags=allow-oom" "record_form" | "complete_own" | "answer_all";
    RENEW: " flags=allow-oom" "record_form" | "common" | "record" | "renew";
    RELEASE: " flags=allow-oom" "record_form" | "common" | "record" | "release";
    MARK_IN_DOUBT: " flags=allow-oom" "record_form" | "common" | "record" | "mark_in_doubt";
    ABANDON: " flags=allow-oom" "record_form" | "common" | "record" | "abandon";
    RESOLVE: " flags=allow-oom" "record_form" | "common" | "record" | "resolve";
    INSPECT: " flags=no-writes" "record_form" | "common" | "record" | "inspect";
    SWEEP: " flags=allow-oom" "record_form" | "common" | "record" | "sweep";
    STEP_BEGIN: "" "record_form" | "common" | "record" | "step" | "step_begin";
    /// As with claims.
    STEP_BEGIN_WHEN_FULL: " flags=allow-oom" "record_form" | "common" | "record" | "step" | "step_begin";
    STEP_END: " flags=allow-oom" "record_form" | "common" | "record" | "step" | "step_end";
    STEP_RESOLVE: " flags=allow-oom" "record_form" | "common" | "record" | "step" | "step_resolve";
    STEP_INSPECT: " flags=no-writes" "record_form" | "common" | "record" | "step" | "step_inspect";
    STEP_LIST: " flags=no-writes" "record_form" | "common" | "record" | "step" | "step_list";
    LEASE_ACQUIRE: "" "common" | "lease" | "lease_acquire";
    LEASE_RENEW: " flags=allow-oom" "common" | "lease" | "lease_renew";
    LEASE_RELEASE: " flags=allow-oom" "common" | "lease" | "lease_release";
    LEASE_ABANDON: " flags=allow-oom" "common" | "lease" | "lease_abandon";
    LEASE_INSPECT: " flags=no-writes" "common" | "lease" | "lease_inspect";
    LEASE_SWEEP: " flags=allow-oom" "common" | "lease" | "lease_sweep";
}
