//! Numbers that take as many bytes as they need.

/// Writes a number in groups of seven bits, the low ones first.
pub(super) fn number(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

/// Small numbers of either sign as small numbers.
pub(super) fn folded(number: i64) -> u64 {
    (number << 1 ^ number >> 63).cast_unsigned()
}

pub(super) fn unfolded(number: u64) -> i64 {
    (number >> 1).cast_signed() ^ -(number & 1).cast_signed()
}

pub(super) struct Reader<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) at: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut array = [0; N];
        array.copy_from_slice(self.slice(N));
        array
    }

    pub(super) fn slice(&mut self, length: usize) -> &'a [u8] {
        let slice = &self.bytes[self.at..self.at + length];
        self.at += length;
        slice
    }

    pub(super) fn number(&mut self) -> u64 {
        let (mut number, mut shift) = (0, 0);
        loop {
            let byte = self.bytes[self.at];
            self.at += 1;
            number |= u64::from(byte & 0x7F) << shift;
            if byte < 0x80 {
                return number;
            }
            shift += 7;
        }
    }

    pub(super) fn length(&mut self) -> usize {
        usize::try_from(self.number()).unwrap_or(usize::MAX)
    }

    /// A length and so many bytes.
    pub(super) fn text(&mut self) -> &'a [u8] {
        let length = self.length();
        self.slice(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_they_were_written() {
        for n in [0, 1, -1, 63, -64, 64, 1_800_000_000_000_000, -1_800_000_000_000_000, i64::MAX, i64::MIN] {
            let mut bytes = Vec::new();
            number(&mut bytes, folded(n));
            number(&mut bytes, n.cast_unsigned());
            let mut reader = Reader { bytes: &bytes, at: 0 };
            assert_eq!((unfolded(reader.number()), reader.number()), (n, n.cast_unsigned()));
            assert_eq!(reader.at, bytes.len());
        }
        let mut bytes = Vec::new();
        number(&mut bytes, folded(-64));
        assert_eq!(bytes.len(), 1);
    }
}
