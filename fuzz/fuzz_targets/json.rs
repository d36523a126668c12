#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| idempotency_fuzz::json(data));
