//! What one of Anthropic's models takes, by its version.

/// Returns the length of an answer if the request does not limit it: all that the oldest models can
/// write, and for newer ones enough for a long answer with thoughts.
pub fn max_tokens(model: &str) -> u64 {
    match version(model) {
        Some(version) if version < (3, 5) => 4096,
        Some(version) if version < (3, 7) => 8192,
        _ => 32_000,
    }
}

/// Returns the version of one of Anthropic's models, whatever a cloud calls it.
pub(super) fn version(model: &str) -> Option<(u32, u32)> {
    let (_, rest) = model.split_once("claude-")?;
    let number = |word: &str| match word.len() {
        1 | 2 => word.parse::<u32>().ok(),
        _ => None,
    };
    let mut words =
        rest.split(|c: char| !c.is_ascii_alphanumeric()).skip_while(|word| number(word).is_none());
    let major = number(words.next()?)?;
    Some((major, words.next().and_then(number).unwrap_or(0)))
}

/// Returns whether the model takes no sampling parameters, shows its thoughts only on request, and
/// knows the effort `xhigh`.
pub(super) fn is_newest(model: &str) -> bool {
    version(model).is_some_and(|version| version >= (4, 7))
}

/// Returns whether an answer can be held to a schema without a tool.
pub(super) fn knows_schemas(model: &str) -> bool {
    let least = if model.contains("opus") { (4, 1) } else { (4, 5) };
    version(model).is_some_and(|version| version >= least)
}
