//! What an answer used: read out of it as it passes, or counted here where the provider does not say.
//!
//! Nothing here keeps an answer: [`UsageReader`] follows the JSON of a body or of a stream's events byte
//! by byte, and keeps numbers and an even sample of the text. Its memory has a bound (some 17 KiB, reached
//! only by long answers), whatever a provider sends.
//!
//! Counting is by the vocabulary of OpenAI's newer models for all providers: others publish none. So a
//! count is an estimate, and is marked as one. The first count of a process loads the vocabulary (100 ms
//! and 8 MiB) and each takes a few milliseconds, since longer texts are sampled: it belongs on a
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

/// Bytes of a text that are counted. What is longer is sampled.
const COUNTED_MAX: usize = 64 << 10;

/// Tokens of the model beside a hundred of the vocabulary's, by the beginning of the model's name.
const FAMILIES: &[(&str, u64)] = &[("claude", 120)];

/// How many tokens a text has for a model, about.
pub fn estimate(model: &str, text: &str) -> u64 {
    let mut sample = Sample::new(COUNTED_MAX);
    sample.push(text.as_bytes());
    count(model, &sample)
}

/// Loads what counts need, so that none waits for it.
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
