//! The conformance suite of outbound steps.

mod standing_clock {
    use crate::harness::Memory;

    idempotency::step_conformance_tests!(Memory::empty());
}

mod with_limits {
    use crate::harness::Memory;

    // Wide enough for every behaviour, so that only the counting is tested.
    idempotency::step_conformance_tests!(Memory::with(|builder| builder.max_records(1000).max_bytes(8 * 1024 * 1024)));
}

/// Every claim looks at what is due of all other records.
mod of_one_shard {
    use crate::harness::Memory;

    idempotency::step_conformance_tests!(Memory::with(|builder| builder.shards(1)));
}

/// On a clock that runs by itself, as a server's does.
mod running_clock {
    use crate::harness::Running;

    idempotency::step_conformance_tests!(Running::empty());
}
