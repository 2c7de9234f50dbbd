//! Patterns for names: in `.dockerignore`, in the sources of a copy, and in variables. Every match
//! takes a number of steps that is bounded by the lengths of pattern and text.

use std::cell::Cell;

/// Longest pattern, in characters.
const PIECES_MAX: usize = 4_096;
/// Most steps for comparing patterns with the names of many files: below a minute of work.
const STEPS_MAX: u64 = 10_000_000_000;

/// The steps that are left for comparing patterns with the names of many files.
pub(super) struct Steps(Cell<u64>);

impl Default for Steps {
    fn default() -> Self {
        Self::new(STEPS_MAX)
    }
}

impl Steps {
    pub(super) fn new(steps: u64) -> Self {
        Self(Cell::new(steps))
    }

    fn spend(&self, steps: usize) -> Result<(), String> {
        let left = self.0.get().checked_sub(steps as u64);
        self.0.set(left.ok_or("there are too many patterns for so many files")?);
        Ok(())
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Sign(char),
    /// `?`
    One,
    /// `*`
    Some,
    /// `**` at the end.
    All,
    /// `**/`: any number of folders, including none.
    Folders,
    Class {
        negated: bool,
        ranges: Vec<(char, char)>,
    },
}

impl Piece {
    fn sign(&self) -> Option<char> {
        match self {
            Self::Sign(sign) => Some(*sign),
            _ => None,
        }
    }

    /// Returns how many comparisons a character takes.
    fn cost(&self) -> usize {
        match self {
            Self::Class { ranges, .. } => ranges.len(),
            _ => 1,
        }
    }
}

/// What kind of text a pattern matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// One name or a path. Only a separator matches a separator.
    Path,
    /// A path in which `**` matches across folders.
    Tree,
    /// Text without separators.
    Text,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pattern {
    pieces: Vec<Piece>,
    kind: Kind,
    /// Plain text at the start and at the end, by which most names are told apart.
    start: String,
    end: String,
    /// Steps for each character of a name.
    cost: usize,
}

impl Pattern {
    pub(super) fn new(text: &str, kind: Kind) -> Result<Self, String> {
        let signs: Vec<char> = text.chars().collect();
        let (mut pieces, mut at) = (Vec::new(), 0);
        while let Some(sign) = signs.get(at).copied() {
            at += 1;
            let piece = match sign {
                '*' if kind == Kind::Tree && signs.get(at) == Some(&'*') => {
                    at += 1;
                    if signs.get(at) == Some(&'/') {
                        at += 1;
                        Piece::Folders
                    } else {
                        Piece::All
                    }
                }
                '*' => Piece::Some,
                '?' => Piece::One,
                '[' => class(&signs, &mut at).ok_or_else(|| format!("`{text}` is no pattern"))?,
                '\\' if kind != Kind::Text => {
                    let next = signs.get(at).ok_or_else(|| format!("`{text}` is no pattern"))?;
                    at += 1;
                    Piece::Sign(*next)
                }
                sign => Piece::Sign(sign),
            };
            pieces.push(piece);
        }
        let cost = pieces.iter().map(Piece::cost).sum();
        if cost > PIECES_MAX {
            return Err(format!("a pattern has more than {PIECES_MAX} characters"));
        }
        let start = pieces.iter().map_while(Piece::sign).collect();
        let end: Vec<char> = pieces.iter().rev().map_while(Piece::sign).collect();
        Ok(Self { start, end: end.into_iter().rev().collect(), pieces, kind, cost })
    }

    /// Returns whether the pattern matches exactly one name.
    pub(super) fn is_plain(&self) -> bool {
        self.start.len() == self.end.len() && self.pieces.iter().all(|piece| piece.sign().is_some())
    }

    /// Like [`Pattern::matches`], but fails if there have been too many steps.
    pub(super) fn matches_within(&self, text: &str, steps: &Steps) -> Result<bool, String> {
        steps.spend(1)?;
        if self.may_match(text) && !self.is_plain() {
            steps.spend(self.cost * text.len())?;
        }
        Ok(self.matches(text))
    }

    fn may_match(&self, text: &str) -> bool {
        text.starts_with(&self.start) && text.ends_with(&self.end)
    }

    pub(super) fn matches(&self, text: &str) -> bool {
        if self.is_plain() {
            return self.start == text;
        }
        if !self.may_match(text) {
            return false;
        }
        let mut states = States::new(self);
        states.begin();
        for sign in text.chars() {
            states.step(sign);
        }
        states.accepts()
    }

    /// Returns the byte offsets at which a prefix of the text that matches the pattern ends.
    fn ends(&self, text: &str) -> Vec<usize> {
        let mut states = States::new(self);
        states.begin();
        let mut ends = Vec::new();
        if states.accepts() {
            ends.push(0);
        }
        for (at, sign) in text.char_indices() {
            states.step(sign);
            if states.accepts() {
                ends.push(at + sign.len_utf8());
            }
            if states.is_stuck() {
                break;
            }
        }
        ends
    }
}

fn class(signs: &[char], at: &mut usize) -> Option<Piece> {
    let negated = matches!(signs.get(*at), Some('^' | '!'));
    *at += usize::from(negated);
    let mut ranges = Vec::new();
    loop {
        let sign = *signs.get(*at)?;
        *at += 1;
        let low = match sign {
            ']' if !ranges.is_empty() => return Some(Piece::Class { negated, ranges }),
            '\\' => {
                *at += 1;
                *signs.get(*at - 1)?
            }
            sign => sign,
        };
        let mut high = low;
        if signs.get(*at) == Some(&'-') && signs.get(*at + 1).is_some_and(|next| *next != ']') {
            high = *signs.get(*at + 1)?;
            *at += 2;
        }
        ranges.push((low, high));
    }
}

/// All positions in a pattern that a match may have reached.
struct States<'p> {
    pattern: &'p Pattern,
    /// Whether the match may stand before each piece; the last entry is the end of the pattern.
    before: Vec<bool>,
    /// Whether the match may be in the middle of the folders of a [`Piece::Folders`].
    inside: Vec<bool>,
}

impl<'p> States<'p> {
    fn new(pattern: &'p Pattern) -> Self {
        let size = pattern.pieces.len() + 1;
        Self { pattern, before: vec![false; size], inside: vec![false; size] }
    }

    fn begin(&mut self) {
        self.before[0] = true;
        self.close();
    }

    /// Moves on past pieces that may match nothing.
    fn close(&mut self) {
        for (at, piece) in self.pattern.pieces.iter().enumerate() {
            let empty = matches!(piece, Piece::Some | Piece::All | Piece::Folders);
            if self.before[at] && empty {
                self.before[at + 1] = true;
            }
        }
    }

    fn step(&mut self, sign: char) {
        let size = self.before.len();
        let (mut before, mut inside) = (vec![false; size], vec![false; size]);
        let separates = sign == '/' && self.pattern.kind != Kind::Text;
        for (at, piece) in self.pattern.pieces.iter().enumerate() {
            if self.inside[at] {
                inside[at] = true;
                before[at + 1] |= sign == '/';
            }
            if !self.before[at] {
                continue;
            }
            match piece {
                Piece::Sign(wanted) => before[at + 1] |= *wanted == sign,
                Piece::One => before[at + 1] |= !separates,
                Piece::Some => before[at] |= !separates,
                Piece::All => before[at] = true,
                Piece::Folders => {
                    inside[at] = true;
                    before[at + 1] |= sign == '/';
                }
                Piece::Class { negated, ranges } => {
                    let within = ranges.iter().any(|(low, high)| (*low..=*high).contains(&sign));
                    before[at + 1] |= within != *negated && !separates;
                }
            }
        }
        (self.before, self.inside) = (before, inside);
        self.close();
    }

    fn accepts(&self) -> bool {
        self.before.last().copied().unwrap_or(false)
    }

    fn is_stuck(&self) -> bool {
        !self.before.iter().chain(&self.inside).any(|state| *state)
    }
}

/// Returns the text without a prefix, or a suffix, that matches the pattern.
pub(super) fn trimmed<'t>(
    text: &'t str,
    pattern: &str,
    from_start: bool,
    longest: bool,
) -> &'t str {
    let Ok(found) = Pattern::new(pattern, Kind::Text) else { return text };
    if from_start {
        let ends = found.ends(text);
        let end = if longest { ends.last() } else { ends.first() };
        return end.map_or(text, |end| &text[*end..]);
    }
    let mut starts = text.char_indices().map(|(at, _)| at).chain([text.len()]);
    let fits = |at: &usize| found.matches(&text[*at..]);
    let start = if longest { starts.find(fits) } else { starts.rfind(fits) };
    start.map_or(text, |start| &text[..start])
}

/// Replaces what a pattern matches, the first time or everywhere.
pub(super) fn replaced(text: &str, from: &str, to: &str, all: bool) -> String {
    let Ok(found) = Pattern::new(from, Kind::Text) else { return text.to_owned() };
    let (mut out, mut at) = (String::new(), 0);
    let mut done = false;
    while let Some(sign) = text[at..].chars().next() {
        let end = found.ends(&text[at..]).last().copied().filter(|end| *end > 0);
        match end.filter(|_| all || !done) {
            Some(end) => {
                out.push_str(to);
                at += end;
                done = true;
            }
            None => {
                out.push(sign);
                at += sign.len_utf8();
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn check(kind: Kind, pattern: &str, text: &str, wanted: bool) {
        let found = Pattern::new(pattern, kind).unwrap();
        assert_eq!(found.matches(text), wanted, "{pattern} on {text}");
    }

    #[test]
    fn patterns_match_as_those_of_docker() {
        for (pattern, text, wanted) in [
            ("*.go", "a.go", true),
            ("*.go", "a/b.go", false),
            ("a?c", "abc", true),
            ("a?c", "a/c", false),
            ("[a-c]x", "bx", true),
            ("[^a-c]x", "bx", false),
            (r"\*", "*", true),
            ("**/x", "x", true),
            ("**/x", "a/b/x", true),
            ("**/x", "ax", false),
            ("a/**", "a/b/c", true),
            ("a/**/c", "a/c", true),
            ("a/**/c", "a/b/b/c", true),
            ("**", "a/b", true),
            ("a**", "ab/c", true),
        ] {
            check(Kind::Tree, pattern, text, wanted);
        }
        check(Kind::Path, "**", "a/b", false);
        check(Kind::Path, "a*b", "axxb", true);
        check(Kind::Text, "*", "a/b", true);
        for bad in ["[", "[a", "a\\"] {
            assert!(Pattern::new(bad, Kind::Path).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn no_pattern_panics_or_takes_long(pattern in "[*?a/\\[\\]^b\\\\-]{0,60}", text in "[ab/]{0,200}") {
            for kind in [Kind::Path, Kind::Tree, Kind::Text] {
                if let Ok(found) = Pattern::new(&pattern, kind) {
                    found.matches(&text);
                }
            }
            trimmed(&text, &pattern, true, true);
            trimmed(&text, &pattern, false, false);
            replaced(&text, &pattern, "x", true);
        }

        #[test]
        fn a_plain_pattern_matches_itself_and_nothing_else(text in "[a-z/.]{0,20}", other in "[a-z/.]{0,20}") {
            let found = Pattern::new(&text, Kind::Tree).map_err(TestCaseError::fail)?;
            prop_assert!(found.is_plain());
            prop_assert_eq!(found.matches(&other), text == other);
        }
    }
}
