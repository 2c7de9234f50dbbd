//! The mark of proofs that are passed on between providers; see `translate::proofs`.

/// The start of a marked proof, in base64. The maker, the kind and the original proof follow, or
/// nothing if there is no proof.
pub(crate) const MARK: &str = "aG9sbTE6";
