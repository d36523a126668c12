//! The conformance suite, against both stores of this crate.

mod memory {
    use crate::harness::Memory;

    idempotency::conformance_tests!(Memory::empty());
}

mod memory_with_limits {
    use crate::harness::Memory;

    // Wide enough for every behaviour, so that only the counting is tested.
    idempotency::conformance_tests!(Memory::with(|builder| builder.max_records(1000).max_bytes(8 * 1024 * 1024)));
}

/// Every claim looks at what is due of all other records.
mod memory_of_one_shard {
    use crate::harness::Memory;

    idempotency::conformance_tests!(Memory::with(|builder| builder.shards(1)));
}

mod near_cache {
    use crate::harness::Near;

    idempotency::conformance_tests!(Near::empty());
}

mod boxed {
    use crate::harness::Boxed;

    idempotency::conformance_tests!(Boxed::empty());
}

/// On a clock that runs by itself, as a server's does.
mod running_clock {
    use crate::harness::Running;

    idempotency::conformance_tests!(Running::empty());
}
