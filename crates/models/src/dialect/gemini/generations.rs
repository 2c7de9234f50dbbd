//! What a model of Gemini's accepts, by its generation.

/// Stands in for a signature if a model of the third generation needs one for a call that another
/// model made. Google documents it for this purpose.
pub(super) const NO_SIGNATURE: &str = "skip_thought_signature_validator";

/// What a model accepts, by its generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Generation {
    /// Whether thinking is set by a level. The first and second generation take a number of tokens.
    pub(super) has_levels: bool,
    /// Whether ids of calls are accepted. On Vertex AI the first and second generation refuse them.
    pub(super) has_ids: bool,
    /// Whether a call without its signature is refused, as from the third generation on.
    pub(super) wants_signatures: bool,
}

impl Generation {
    pub(super) fn of(model: &str) -> Self {
        let is_gemini = model.contains("gemini");
        let number = model.split("gemini-").nth(1).and_then(|rest| {
            let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
            rest[..end].parse::<u32>().ok()
        });
        let is_old = number.is_some_and(|number| number < 3);
        Self { has_levels: !is_old, has_ids: !is_old, wants_signatures: is_gemini && !is_old }
    }
}
