//! A sample that is spread evenly over a text of any length.

/// How many bytes are kept or dropped together.
const BLOCK: usize = 512;

/// Keeps a short text completely, and of a long one every second block, every fourth and so on. So
/// whoever writes the text cannot choose which part is looked at.
#[derive(Debug, Clone)]
pub(super) struct Sample {
    kept: Vec<u8>,
    bytes: u64,
    /// One of this many blocks is kept.
    stride: u64,
    blocks_max: usize,
}

impl Sample {
    /// Creates a sample that keeps at most `bytes_max`.
    pub(super) fn new(bytes_max: usize) -> Self {
        Self { kept: Vec::new(), bytes: 0, stride: 1, blocks_max: (bytes_max / BLOCK).max(2) }
    }

    pub(super) fn push(&mut self, mut piece: &[u8]) {
        while !piece.is_empty() {
            let at = (self.bytes % BLOCK as u64) as usize;
            let (now, later) = piece.split_at(piece.len().min(BLOCK - at));
            let block = self.bytes / BLOCK as u64;
            if at == 0
                && block.is_multiple_of(self.stride)
                && self.kept.len() >= self.blocks_max * BLOCK
            {
                self.thin();
            }
            if block.is_multiple_of(self.stride) {
                self.kept.extend_from_slice(now);
            }
            self.bytes += now.len() as u64;
            piece = later;
        }
    }

    /// Drops every second block.
    fn thin(&mut self) {
        let blocks = self.kept.len() / BLOCK;
        for block in (0..blocks).step_by(2) {
            self.kept.copy_within(block * BLOCK..(block + 1) * BLOCK, block / 2 * BLOCK);
        }
        self.kept.truncate(blocks.div_ceil(2) * BLOCK);
        self.stride *= 2;
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Extrapolates the count of the sample to the whole text.
    pub(super) fn count(&self, of_text: impl FnOnce(&str) -> u64) -> u64 {
        if self.kept.is_empty() {
            return 0;
        }
        let counted = of_text(&String::from_utf8_lossy(&self.kept));
        let whole = u128::from(counted) * u128::from(self.bytes);
        u64::try_from(whole.div_ceil(self.kept.len() as u128)).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_long_text_is_looked_at_evenly() {
        let mut sample = Sample::new(4096);
        // The first half has no tokens that count, the second half only such.
        sample.push(&vec![b'a'; 1 << 20]);
        sample.push(&vec![b'b'; 1 << 20]);
        assert!(sample.kept.len() <= 4096, "{}", sample.kept.len());
        let half = sample.count(|text| text.bytes().filter(|byte| *byte == b'b').count() as u64);
        assert!(half.abs_diff(1 << 20) < 1 << 18, "{half}");
    }

    proptest! {
        #[test]
        fn short_texts_are_kept_whole(pieces in proptest::collection::vec("[a-z]{0,700}", 0..5)) {
            let mut sample = Sample::new(4096);
            pieces.iter().for_each(|piece| sample.push(piece.as_bytes()));
            let whole = pieces.concat();
            if whole.len() <= 4096 {
                prop_assert_eq!(&sample.kept, whole.as_bytes());
            }
            prop_assert!(sample.kept.len() <= 4096);
            prop_assert_eq!(sample.bytes(), whole.len() as u64);
        }
    }
}
