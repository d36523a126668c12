//! What a tombstone keeps of a fingerprint.

use idempotency::Fingerprint;

/// Whether this one is what a tombstone keeps of `asked`.
pub(crate) fn is_short_of(kept: Fingerprint, asked: Fingerprint) -> bool {
    kept.version() == asked.version() && short(kept) == short(asked)
}

/// What a tombstone keeps of a fingerprint: 128 of its 256 bits, of which each depends on what it was made of. To take another
/// request for the same one, a client would have to make two bodies of its own that agree in them, and would be told of
/// its first one that it was executed.
pub(super) fn short(fingerprint: Fingerprint) -> [u8; 16] {
    let bytes = fingerprint.to_bytes();
    let half = |from: usize| {
        let mut half = [0; 16];
        half.copy_from_slice(&bytes[from..from + 16]);
        u128::from_le_bytes(half)
    };
    half(1).wrapping_add(half(17).wrapping_mul(ODD)).to_le_bytes()
}

/// A fingerprint whose [`short`] form is this one.
pub(super) fn lengthened(short: [u8; 16]) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes[..16].copy_from_slice(&short);
    bytes
}

/// So that fingerprints that differ in one half only, or in the same way in both, differ when they are short.
const ODD: u128 = 0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_fingerprint_is_that_of_what_it_was_made_of_and_of_nothing_near_it() {
        let whole = Fingerprint::of(["10 EUR"]);
        let kept = |fingerprint| {
            let mut bytes = [Fingerprint::VERSION; 33];
            bytes[1..].copy_from_slice(&lengthened(short(fingerprint)));
            Fingerprint::from_bytes(bytes)
        };
        assert!(is_short_of(kept(whole), whole) && kept(whole) != whole);
        assert!(!is_short_of(kept(whole), Fingerprint::of(["99 EUR"])));
        for byte in 0..33 {
            for bit in 0..8 {
                let mut near = whole.to_bytes();
                near[byte] ^= 1 << bit;
                assert!(!is_short_of(kept(whole), Fingerprint::from_bytes(near)), "byte {byte}, bit {bit}");
            }
        }
        // The same in both halves.
        let even = |byte| Fingerprint::from_bytes([byte; 33]);
        assert!((2..=255).all(|byte| short(even(1)) != short(even(byte))));
    }
}
