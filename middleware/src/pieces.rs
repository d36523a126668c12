//! What was read of a body so far.

use bytes::{Bytes, BytesMut};
use smallvec::SmallVec;

/// What was read of a body. Most come in one piece, which costs no allocation and is not copied. Where there are many small ones they
/// are put together: a piece takes 32 bytes itself, and what it is a part of as long as it is there.
#[derive(Default)]
pub(crate) struct Pieces {
    pieces: SmallVec<[Bytes; 1]>,
    /// Small ones, behind those.
    small: BytesMut,
    length: usize,
}

/// From here on a piece is kept as it is, in bytes.
const SMALL: usize = 1024;

/// So many pieces are kept whatever their length.
const FEW: usize = 16;

impl Pieces {
    pub(crate) fn push(&mut self, piece: Bytes) {
        // Nothing limits how many there are of these.
        if piece.is_empty() {
            return;
        }
        self.length += piece.len();
        if piece.len() < SMALL && self.pieces.len() >= FEW {
            self.small.extend_from_slice(&piece);
            return;
        }
        self.put_together();
        self.pieces.push(piece);
    }

    fn put_together(&mut self) {
        if !self.small.is_empty() {
            self.pieces.push(self.small.split().freeze());
        }
    }

    pub(crate) fn length(&self) -> usize {
        self.length
    }

    pub(crate) fn join(mut self) -> Bytes {
        self.put_together();
        if self.pieces.len() < 2 {
            return self.pieces.pop().unwrap_or_default();
        }
        let mut joined = BytesMut::with_capacity(self.length);
        self.pieces.iter().for_each(|piece| joined.extend_from_slice(piece));
        joined.freeze()
    }
}

impl IntoIterator for Pieces {
    type Item = Bytes;
    type IntoIter = smallvec::IntoIter<[Bytes; 1]>;

    fn into_iter(mut self) -> Self::IntoIter {
        self.put_together();
        self.pieces.into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(of: &[Bytes]) -> Pieces {
        let mut pieces = Pieces::default();
        of.iter().cloned().for_each(|piece| pieces.push(piece));
        pieces
    }

    #[test]
    fn what_comes_in_pieces_is_joined_in_its_order() {
        let long = Bytes::from(vec![b'l'; SMALL]);
        let of: Vec<Bytes> =
            (0..5 * FEW).map(|n| if n % 7 == 6 { long.clone() } else { vec![b'a'; n % 5].into() }).collect();
        let whole = of.concat();
        for count in [0, 1, FEW, FEW + 1, of.len()] {
            let whole = &whole[..of[..count].iter().map(Bytes::len).sum()];
            assert_eq!(pieces(&of[..count]).length(), whole.len());
            assert_eq!(pieces(&of[..count]).join(), whole);
            assert_eq!(pieces(&of[..count]).into_iter().collect::<Vec<_>>().concat(), whole);
        }
    }

    #[test]
    fn one_piece_is_not_copied() {
        let piece = Bytes::from_static(b"{}");
        assert_eq!(pieces(std::slice::from_ref(&piece)).join().as_ptr(), piece.as_ptr());
    }

    #[test]
    fn many_small_pieces_are_kept_together_and_let_go() {
        let read = Bytes::from(vec![b'x'; 10_000]);
        let pieces = pieces(&(0..read.len()).map(|n| read.slice(n..=n)).collect::<Vec<_>>());
        assert_eq!(pieces.into_iter().count(), FEW + 1);
    }
}
