//! Proofs of thoughts, and what stands in for one.

use crate::dialect::proof_mark::MARK;

/// The signature of a thought without a proof: a mark with no maker. Claude refuses an empty
/// signature. A thought with this one is removed before it reaches Claude, even if a request is
/// passed on in its own dialect.
pub(super) const UNPROVEN: &str = MARK;

pub(super) fn is_proof(signature: &str) -> bool {
    !matches!(signature, "" | UNPROVEN)
}
