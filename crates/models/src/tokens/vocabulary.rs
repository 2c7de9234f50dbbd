//! Counts tokens as the models of one provider do, using its published vocabulary.
//!
//! This is written by hand because existing crates take at least 35 MiB of memory, even in a server
//! that rarely counts, and make the program 30 MiB larger. This takes 8 MiB from the first count
//! on, and no more than `n log n` time for any text.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::read::GzDecoder;
use regex::Regex;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::Read;
use std::sync::LazyLock;

/// `o200k_base` of the project tiktoken (MIT): each line has a token in base64 and its number.
const PACKED: &[u8] = include_bytes!("../../data/o200k_base.tiktoken.gz");

/// How the vocabulary splits text before counting. The last alternative needs a lookahead, which
/// `count` does itself.
const PIECES: &str = concat!(
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"|\p{N}{1,3}",
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]*",
    r"|\s*[\r\n]+",
    r"|\s+",
);

/// Tokens by their bytes. A lower number means that a token's parts are merged earlier.
pub(super) struct Vocabulary {
    bytes: Vec<u8>,
    /// Where the bytes of each token end.
    ends: Vec<u32>,
    /// A hash table with linear probing. Each entry is the number of a token plus one.
    table: Vec<u32>,
    pieces: Regex,
}

/// Returns the vocabulary. The first call takes about 100 ms.
pub(super) fn vocabulary() -> &'static Vocabulary {
    static VOCABULARY: LazyLock<Vocabulary> = LazyLock::new(|| {
        #[expect(clippy::expect_used, reason = "the file is compiled in, and a test reads it")]
        Vocabulary::read().expect("the vocabulary can be read")
    });
    &VOCABULARY
}

impl Vocabulary {
    fn read() -> Option<Self> {
        let mut text = String::new();
        GzDecoder::new(PACKED).read_to_string(&mut text).ok()?;
        let tokens = text.lines().count();
        let mut made = Self {
            bytes: Vec::with_capacity(text.len() / 2),
            ends: Vec::with_capacity(tokens),
            table: vec![0; (tokens * 2).next_power_of_two()],
            pieces: Regex::new(PIECES).ok()?,
        };
        for (at, line) in text.lines().enumerate() {
            let (token, number) = line.split_once(' ')?;
            if number.parse() != Ok(at) {
                return None;
            }
            let start = made.bytes.len();
            STANDARD.decode_vec(token, &mut made.bytes).ok()?;
            made.ends.push(u32::try_from(made.bytes.len()).ok()?);
            let mut place = made.place(&made.bytes[start..]);
            while made.table[place] != 0 {
                place = (place + 1) & (made.table.len() - 1);
            }
            made.table[place] = u32::try_from(at + 1).ok()?;
        }
        made.bytes.shrink_to_fit();
        Some(made)
    }

    /// Hashes a token (FNV-1a) to its place in the table.
    fn place(&self, token: &[u8]) -> usize {
        let hash = token.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
        });
        (hash ^ hash >> 32) as usize & (self.table.len() - 1)
    }

    fn token(&self, number: u32) -> &[u8] {
        let at = number as usize;
        let start = at.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[start as usize..self.ends[at] as usize]
    }

    fn number(&self, token: &[u8]) -> Option<u32> {
        let mut place = self.place(token);
        loop {
            let number = self.table[place].checked_sub(1)?;
            if self.token(number) == token {
                return Some(number);
            }
            place = (place + 1) & (self.table.len() - 1);
        }
    }

    pub(super) fn count(&self, text: &str) -> u64 {
        let (mut at, mut tokens) = (0, 0);
        while let Some(found) = self.pieces.find_at(text, at) {
            let mut end = found.end();
            let piece = found.as_str();
            // The last character of white space belongs to the word after it. `trim` and the
            // expression agree on what white space is.
            let last = piece.chars().next_back().unwrap_or('\n');
            let is_space = piece.trim().is_empty() && !matches!(last, '\r' | '\n');
            if is_space && end < text.len() && piece.len() > last.len_utf8() {
                end -= last.len_utf8();
            }
            tokens += self.count_piece(&text.as_bytes()[found.start()..end]);
            at = end;
        }
        tokens
    }

    /// Merges the two neighbours with the lowest number until no two form a token.
    fn count_piece(&self, piece: &[u8]) -> u64 {
        if piece.len() < 2 || self.number(piece).is_some() {
            return 1;
        }
        let length = piece.len();
        // Where the part that begins at a byte ends, and where the part before it begins. A part
        // that was merged into another one ends where it begins.
        let mut ends: Vec<usize> = (1..=length).collect();
        let mut befores: Vec<usize> = (0..length).map(|at| at.saturating_sub(1)).collect();
        let mut heap = BinaryHeap::new();
        let offer = |heap: &mut BinaryHeap<_>, start: usize, end: usize| {
            if let Some(number) = self.number(&piece[start..end]) {
                heap.push(Reverse((number, start, end)));
            }
        };
        (0..length - 1).for_each(|at| offer(&mut heap, at, at + 2));
        let mut parts = length as u64;
        while let Some(Reverse((_, start, end))) = heap.pop() {
            let middle = ends[start];
            // The parts may have been merged since.
            if middle == start || middle >= length || ends[middle] != end || middle == end {
                continue;
            }
            ends[start] = end;
            ends[middle] = middle;
            parts -= 1;
            if end < length {
                befores[end] = start;
                offer(&mut heap, start, ends[end]);
            }
            if start > 0 {
                offer(&mut heap, befores[start], end);
            }
        }
        parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn counts_are_those_of_the_published_programs() {
        for (text, tokens) in include!("reference.rs") {
            assert_eq!(vocabulary().count(text), tokens, "{text:?}");
        }
    }

    /// In quadratic time, each of these would take minutes.
    #[test]
    fn no_text_takes_for_ever() {
        for unit in ["a", " ", "ab", "\u{1f600}", "\n ", "=", "A1"] {
            let text = unit.repeat((1 << 15) / unit.len());
            assert!(vocabulary().count(&text) <= text.len() as u64, "{unit:?}");
        }
    }

    proptest! {
        /// Reservations rely on this: no token has less than a byte.
        #[test]
        fn tokens_are_no_more_than_bytes(text in any::<String>()) {
            let tokens = vocabulary().count(&text);
            prop_assert!(tokens <= text.len() as u64);
            prop_assert_eq!(tokens == 0, text.is_empty());
        }

        /// Follows the definition step by step.
        #[test]
        fn parts_are_put_together_in_order(piece in "[a-e ]{1,24}") {
            let known = vocabulary();
            let mut parts: Vec<Vec<u8>> = piece.bytes().map(|byte| vec![byte]).collect();
            loop {
                let pairs = parts.windows(2).enumerate();
                let best = pairs.filter_map(|(at, pair)| Some((known.number(&pair.concat())?, at))).min();
                let Some((_, at)) = best else { break };
                let second = parts.remove(at + 1);
                parts[at].extend(second);
            }
            prop_assert_eq!(known.count_piece(piece.as_bytes()), parts.len() as u64);
        }
    }
}
