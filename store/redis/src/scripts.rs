//! The scripts, one for each operation.

use std::sync::LazyLock;

/// A script as the server knows it.
pub(crate) struct Script {
    pub(crate) code: &'static str,
    pub(crate) hash: String,
}

impl Script {
    fn new(code: &'static str) -> Self {
        Self { code, hash: redis::Script::new(code).get_hash().to_owned() }
    }
}

/// A script is its first line, which says what the server may refuse it for, the prelude, what is kept, and its own file.
macro_rules! scripts {
    ($($(#[$doc:meta])* $name:ident: $flags:literal $kept:literal $file:literal;)+) => {
        $(
            $(#[$doc])*
            pub(crate) static $name: LazyLock<Script> = LazyLock::new(|| {
                Script::new(concat!(
                    "#!lua", $flags, "\n",
                    include_str!("../lua/prelude.lua"),
                    include_str!(concat!("../lua/", $kept, ".lua")),
                    include_str!(concat!("../lua/", $file, ".lua")),
                ))
            });
        )+
    };
}

scripts! {
    /// Refused when the server is out of memory.
    CLAIM: "" "record" "claim";
    /// The same, to be sent then: it answers what needs no room.
    CLAIM_WHEN_FULL: " flags=allow-oom" "record" "claim";
    COMPLETE: " flags=allow-oom" "record" "complete";
    RENEW: " flags=allow-oom" "record" "renew";
    RELEASE: " flags=allow-oom" "record" "release";
    MARK_IN_DOUBT: " flags=allow-oom" "record" "mark_in_doubt";
    ABANDON: " flags=allow-oom" "record" "abandon";
    RESOLVE: " flags=allow-oom" "record" "resolve";
    INSPECT: " flags=no-writes" "record" "inspect";
    SWEEP: " flags=allow-oom" "record" "sweep";
    LEASE_ACQUIRE: "" "lease" "lease_acquire";
    LEASE_RENEW: " flags=allow-oom" "lease" "lease_renew";
    LEASE_RELEASE: " flags=allow-oom" "lease" "lease_release";
    LEASE_ABANDON: " flags=allow-oom" "lease" "lease_abandon";
    LEASE_INSPECT: " flags=no-writes" "lease" "lease_inspect";
    LEASE_SWEEP: " flags=allow-oom" "lease" "lease_sweep";
}
