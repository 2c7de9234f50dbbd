//! Finds how many tokens an answer used: read from the answer while it passes, or estimated here if
//! the provider does not say.
//!
//! Nothing here keeps an answer. [`UsageReader`] follows the JSON of a body or of a stream's events
//! byte by byte, and keeps numbers and an even sample of the text. Its memory is bounded whatever a
//! provider sends: about 17 KiB, reached only by long answers.
//!
//! Estimates use the vocabulary of OpenAI's newer models for all providers, since no other provider
//! publishes one; they are marked as estimates. The first one loads the vocabulary, which takes 100
//! ms and 8 MiB. Each takes a few milliseconds, since longer texts are sampled, so it belongs on a
//! thread that may block.

mod keys;
mod reader;
mod request;
mod sample;
mod scan;
mod vocabulary;

pub use reader::{Seen, TOKENS_MAX, UsageReader};
pub use request::{IMAGE_TOKENS_MAX, input_bound, input_estimate};

use sample::Sample;

/// How many bytes of a text are counted. Longer texts are sampled.
const COUNTED_MAX: usize = 64 << 10;

/// By the beginning of a model's name: how many tokens it makes of what is 100 tokens of the
/// vocabulary.
const FAMILIES: &[(&str, u64)] = &[("claude", 120)];

/// Estimates how many tokens a text has for a model.
pub fn estimate(model: &str, text: &str) -> u64 {
    let mut sample = Sample::new(COUNTED_MAX);
    sample.push(text.as_bytes());
    count(model, &sample)
}

/// Loads the vocabulary, so that no estimate has to wait for it.
pub fn load() {
    vocabulary::vocabulary();
}

fn count(model: &str, sample: &Sample) -> u64 {
    let counted = sample.count(|text| vocabulary::vocabulary().count(text));
    let family = FAMILIES.iter().find(|(start, _)| model.starts_with(start));
    let percent = family.map_or(100, |(_, percent)| *percent);
    counted.saturating_mul(percent).div_ceil(100)
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod counts {
    use super::*;

    #[test]
    fn texts_are_counted() {
        assert_eq!(estimate("gpt-4o", "hello world"), 2);
        assert_eq!(estimate("claude-sonnet-4", "hello world"), 3);
        assert_eq!(estimate("any", ""), 0);
        let long = "The quick brown fox jumps over the lazy dog. ".repeat(10_000);
        let counted = estimate("gpt-4o", &long);
        assert!(counted.abs_diff(100_000) < 5_000, "{counted}");
    }
}
