//! Limits what one instruction of a Dockerfile may expand to.

use std::cell::Cell;

/// Most bytes that the variables of one instruction expand to, counting [`WORD_BYTES`] for each.
const EXPANDED_BYTES_MAX: usize = 4 << 20;
/// What a word costs besides its text: most of a split value can be words of a single letter.
const WORD_BYTES: usize = 32;

/// What the variables of one instruction may still expand to. All values of an instruction share
/// one, because each of them could otherwise repeat a large variable.
pub(super) struct Budget(Cell<usize>);

impl Default for Budget {
    fn default() -> Self {
        Self(Cell::new(EXPANDED_BYTES_MAX))
    }
}

impl Budget {
    pub(super) fn spend(&self, text: &str) -> Result<(), String> {
        let left = self.0.get().checked_sub(text.len() + WORD_BYTES).ok_or_else(|| {
            format!("the variables of one instruction become more than {EXPANDED_BYTES_MAX} bytes")
        })?;
        self.0.set(left);
        Ok(())
    }
}
