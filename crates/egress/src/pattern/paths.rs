//! The path of a request, as servers may read it, and how it is compared with patterns.

use percent_encoding::percent_decode_str;
use std::cell::Cell;

/// The longest path that is compared with patterns. Common servers take no longer request lines.
const PATH_BYTES_MAX: usize = 8 << 10;

/// How many bytes of a request's path are searched for what follows the stars of all patterns
/// together. The thread does nothing else during that time, which is one to two milliseconds.
const SEARCHED_BYTES_MAX: usize = 512 << 10;

/// What it costs to begin a search, in bytes that could be searched in the same time.
const SEARCH_BEGIN_BYTES: usize = 8;

/// The ways in which servers may read a path: as the standard says, or like servers that decode
/// more of it, take `\` for `/`, or cut off `;parameters`. A request is allowed something only if
/// all readings are, and forbidden it if any reading is. A path that would take too long to compare
/// counts as one that has yet another reading, which nobody knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Paths {
    /// Empty if the path is too long.
    readings: Vec<String>,
    /// How many bytes of them may still be searched.
    left: Cell<usize>,
}

impl Paths {
    pub(crate) fn of(path: &str) -> Self {
        let path = path.split(['?', '#']).next().unwrap_or_default();
        let path = if path.starts_with('/') { path } else { "/" };
        let readings = if path.len() > PATH_BYTES_MAX { Vec::new() } else { readings(path) };
        Self { readings, left: Cell::new(SEARCHED_BYTES_MAX) }
    }

    /// Returns whether any reading matches a pattern, as far as that is known. `pieces` are the
    /// texts between its stars.
    pub(super) fn may_match(&self, pieces: &[String]) -> bool {
        let may_match = |path: &String| self.is_match(path, pieces) != Some(false);
        self.readings.is_empty() || self.readings.iter().any(may_match)
    }

    /// Returns whether it is known that all readings match a pattern.
    pub(super) fn must_match(&self, pieces: &[String]) -> bool {
        let must_match = |path: &String| self.is_match(path, pieces) == Some(true);
        !self.readings.is_empty() && self.readings.iter().all(must_match)
    }

    /// Returns `None` if too much has been searched to find out.
    fn is_match(&self, path: &str, pieces: &[String]) -> Option<bool> {
        let (first, others) = pieces.split_first()?;
        let Some(mut rest) = path.strip_prefix(first.as_str()) else { return Some(false) };
        for piece in others {
            let left = self.left.get();
            if left == 0 {
                return None;
            }
            // The earliest place leaves the most for the pieces after it.
            let found = rest.find(piece.as_str());
            let searched = SEARCH_BEGIN_BYTES + piece.len() + found.unwrap_or(rest.len());
            self.left.set(left.saturating_sub(searched));
            let Some(at) = found else { return Some(false) };
            rest = &rest[at + piece.len()..];
        }
        Some(true)
    }
}

fn readings(path: &str) -> Vec<String> {
    // Most paths can only be read in one way.
    if !path.bytes().any(|byte| b"%\\;".contains(&byte)) {
        return vec![resolve(path)];
    }
    let strict = resolve(&decode_plain(path));
    let lax = resolve(&without_parameters(&decode_all(path)));
    let mut readings = vec![strict];
    let cut = resolve(&without_parameters(&decode_plain(path)));
    for other in [lax, cut] {
        if !readings.contains(&other) {
            readings.push(other);
        }
    }
    readings
}

/// Splits the path of a pattern at its stars, normalized the same way as the paths of requests.
pub(super) fn pieces(path: &str) -> Vec<String> {
    // A star does not protect a segment from `..`: everyone reads `/a/*/../b` as `/a/b`.
    resolve(&decode_plain(path)).split('*').map(str::to_owned).collect()
}

/// Decodes the characters whose encoding makes no difference by the standard: letters, digits and
/// `-._~`.
fn decode_plain(path: &str) -> String {
    let bytes = path.as_bytes();
    let mut plain = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let code = (bytes[at] == b'%')
            .then(|| path.get(at + 1..at + 3))
            .flatten()
            .filter(|hex| hex.bytes().all(|byte| byte.is_ascii_hexdigit()))
            .and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match code {
            Some(byte) if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) => {
                plain.push(byte);
                at += 3;
            }
            // The case of the hexadecimal digits makes no difference.
            Some(_) => {
                plain.extend(bytes[at..at + 3].to_ascii_uppercase());
                at += 3;
            }
            None => {
                plain.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&plain).into_owned()
}

/// How often nested encoding is undone. A server that decodes even more often would not find its
/// own files.
const ENCODED_TIMES_MAX: usize = 4;

fn decode_all(path: &str) -> String {
    let mut path = path.to_owned();
    for _ in 0..ENCODED_TIMES_MAX {
        let decoded = percent_decode_str(&path).decode_utf8_lossy().into_owned();
        if decoded == path {
            break;
        }
        path = decoded;
    }
    path.replace('\\', "/")
}

fn without_parameters(path: &str) -> String {
    let name = |segment: &str| segment.split(';').next().unwrap_or_default().to_owned();
    path.split('/').map(name).collect::<Vec<_>>().join("/")
}

/// Removes `.`, `..` and empty segments.
fn resolve(path: &str) -> String {
    let mut segments: Vec<&str> = Vec::new();
    for segment in path.split('/') {
        match segment {
            "" | "." => {}
            ".." => {
                segments.pop();
            }
            name => segments.push(name),
        }
    }
    let last = path.rsplit('/').next().unwrap_or_default();
    let is_folder = matches!(last, "" | "." | "..") && !segments.is_empty();
    format!("/{}{}", segments.join("/"), if is_folder { "/" } else { "" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pattern::Pattern;
    use http::Method;
    use proptest::prelude::*;

    /// Returns whether a path must match a pattern, and whether it may.
    fn matches(pattern: &str, paths: &Paths) -> (bool, bool) {
        let condition = Pattern::parse(pattern).condition.unwrap();
        (condition.must_match(&Method::GET, paths), condition.may_match(&Method::GET, paths))
    }

    #[test]
    fn what_is_too_long_to_compare_matches_nothing_for_sure() {
        let (short, long) = (PATH_BYTES_MAX - 3, PATH_BYTES_MAX - 2);
        let path = |length: usize| Paths::of(&format!("/a/{}", "z".repeat(length)));
        for pattern in ["a.b/a", "a.b/a/*", "a.b/*/z", "GET:a.b/a"] {
            assert_eq!(matches(pattern, &path(short)), (true, true), "{pattern}");
            assert_eq!(matches(pattern, &path(long)), (false, true), "{pattern}");
        }
        // Where the path does not matter, neither does its length.
        assert_eq!(matches("GET:a.b", &path(long)), (true, true));
        assert_eq!(matches("POST:a.b/a", &path(long)), (false, false));
        let query = Paths::of(&format!("/a?{}", "z".repeat(PATH_BYTES_MAX)));
        assert_eq!(matches("a.b/a", &query), (true, true));
    }

    #[test]
    fn searching_for_stars_has_an_end() {
        let paths = Paths::of(&format!("/{}", "z".repeat(PATH_BYTES_MAX - 1)));
        let known = (0..1000).filter(|_| matches("a.b/*zy", &paths) == (false, false)).count();
        assert_eq!(known, SEARCHED_BYTES_MAX / PATH_BYTES_MAX / 2);
        assert_eq!(matches("a.b/*z", &paths), (false, true));
        // Beginnings need no search.
        assert_eq!(matches("a.b/z", &paths), (true, true));
        assert_eq!(matches("a.b/y*zy", &paths), (false, false));
        // Neither is it endless if each search is short.
        let paths = Paths::of(&format!("/{}", "z".repeat(PATH_BYTES_MAX - 1)));
        let stars = format!("a.b/{}", "*z".repeat(100));
        let known = (0..1000).filter(|_| matches(&stars, &paths) == (true, true)).count();
        assert!(known < SEARCHED_BYTES_MAX / SEARCH_BEGIN_BYTES / 100, "{known}");
    }

    proptest! {
        #[test]
        fn nothing_of_a_pattern_or_path_is_too_odd(pattern in ".{0,60}", path in ".{0,60}") {
            let pattern = Pattern::parse(&pattern);
            let paths = Paths::of(&path);
            let is_resolved = |path: &String| path.starts_with('/') && !path.contains("//");
            prop_assert!(paths.readings.iter().all(is_resolved));
            if let Some(condition) = pattern.condition {
                condition.must_match(&Method::GET, &paths);
            }
        }

        #[test]
        fn less_searching_lets_nothing_match_for_sure(
            pattern in "a\\.b/(/|a|b|\\*){0,12}", path in "(/|a|b|;|%61){0,24}", left in 0_usize..120,
        ) {
            let paths = Paths::of(&format!("/{path}"));
            let fewer = Paths { left: Cell::new(left), ..paths.clone() };
            let (must, may) = matches(&pattern, &paths);
            let (surely, perhaps) = matches(&pattern, &fewer);
            prop_assert!((must || !surely) && (perhaps || !may));
        }

        #[test]
        fn a_path_is_the_same_however_its_letters_are_written(
            segments in proptest::collection::vec("[a-z]{1,6}", 1..5), seed in any::<u64>(),
        ) {
            let path = format!("/{}", segments.join("/"));
            let letter = |(at, byte): (usize, u8)| match seed >> (at % 60) & 3 {
                0 if byte != b'/' => format!("%{byte:02x}"),
                1 if byte == b'/' => "/./".to_owned(),
                2 if byte == b'/' => "//x/../".to_owned(),
                _ => char::from(byte).to_string(),
            };
            let odd: String = path.bytes().enumerate().map(letter).collect();
            prop_assert_eq!(Paths::of(&odd), Paths::of(&path));
        }

        #[test]
        fn below_a_folder_no_spelling_leaves_it(path in "(/|\\.|%2e|%2F|%252e|\\\\|;|%5c|a|b){0,12}") {
            // Whoever is allowed `/a/` cannot get to `/b` in any reading.
            let path = format!("/{path}");
            if matches("x.y/a/", &Paths::of(&path)).0 {
                let decoded = resolve(&without_parameters(&decode_all(&path)));
                prop_assert!(decoded.starts_with("/a/"), "{}", decoded);
                prop_assert!(resolve(&decode_plain(&path)).starts_with("/a/"));
            }
        }
    }
}
