//! Shell patterns for names: `*`, `?`, `[a-z]`, `[^a-z]`, and `\` before a character that is taken
//! literally.

use regex::Regex;

/// A well-formed pattern.
#[derive(Debug, Clone)]
pub(crate) struct Glob(Regex);

#[derive(Debug, thiserror::Error)]
#[error("`{0}` is not a pattern of names")]
pub(crate) struct BadGlob(String);

impl Glob {
    pub(crate) fn parse(pattern: &str) -> Result<Self, BadGlob> {
        let bad = || BadGlob(pattern.to_owned());
        let mut expression = String::from("(?s)^");
        let mut rest = pattern.chars();
        while let Some(next) = rest.next() {
            match next {
                '*' => expression.push_str(".*"),
                '?' => expression.push('.'),
                '[' => push_class(&mut expression, &mut rest).ok_or_else(bad)?,
                '\\' => push_character(&mut expression, rest.next().ok_or_else(bad)?),
                plain => push_character(&mut expression, plain),
            }
        }
        expression.push('$');
        Regex::new(&expression).map(Self).map_err(|_| bad())
    }

    /// Parses a comma-separated list. Empty elements are ignored.
    pub(crate) fn parse_list(list: &str) -> Result<Vec<Self>, BadGlob> {
        list.split(',')
            .map(str::trim)
            .filter(|pattern| !pattern.is_empty())
            .map(Self::parse)
            .collect()
    }

    pub(crate) fn matches(&self, name: &str) -> bool {
        self.0.is_match(name)
    }
}

/// Adds a character by its number, so that it has no special meaning anywhere.
fn push_character(expression: &mut String, character: char) {
    expression.push_str(&format!("\\x{{{:x}}}", u32::from(character)));
}

fn push_class(expression: &mut String, rest: &mut std::str::Chars<'_>) -> Option<()> {
    expression.push('[');
    if rest.as_str().starts_with(['^', '!']) {
        rest.next();
        expression.push('^');
    }
    let mut is_empty = true;
    loop {
        let low = match rest.next()? {
            ']' if !is_empty => break,
            '\\' => rest.next()?,
            plain => plain,
        };
        let high = match rest.as_str().strip_prefix('-') {
            Some(after) if !after.starts_with(']') => {
                rest.next();
                match rest.next()? {
                    '\\' => rest.next()?,
                    plain => plain,
                }
            }
            _ => low,
        };
        if high < low {
            return None;
        }
        push_character(expression, low);
        expression.push('-');
        push_character(expression, high);
        is_empty = false;
    }
    expression.push(']');
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn check(pattern: &str, name: &str, expect: bool) {
        assert_eq!(Glob::parse(pattern).unwrap().matches(name), expect, "{pattern} {name}");
    }

    #[test]
    fn patterns_match_whole_names() {
        check("*.rs", "main.rs", true);
        check("*.rs", "main.rs.bak", false);
        check("?ain*", "main.rs", true);
        check("", "", true);
        check("*", "", true);
        check("a*b*c", "a-b-b-c", true);
        check("a*b*c", "a-b-b", false);
        check("[a-c]x", "bx", true);
        check("[^a-c]x", "bx", false);
        check("[]]", "]", true);
        check("[a-]", "-", true);
        check("\\*", "*", true);
        check("\\*", "x", false);
        check("?", "é", true);
    }

    #[test]
    fn broken_patterns_are_told() {
        for pattern in ["[", "[a", "[z-a]", "a\\", "[]"] {
            assert!(Glob::parse(pattern).is_err(), "{pattern}");
        }
    }

    proptest! {
        #[test]
        fn any_pattern_is_read_or_refused(pattern in "\\PC{0,20}", name in "\\PC{0,20}") {
            if let Ok(glob) = Glob::parse(&pattern) {
                let _ = glob.matches(&name);
            }
        }

        #[test]
        fn stars_around_a_piece_of_the_name_match(name in "[a-z.]{1,30}", from in 0_usize..30, to in 0_usize..30) {
            let (from, to) = (from.min(name.len()), to.min(name.len()));
            let piece = &name[from.min(to)..to.max(from)];
            let glob = Glob::parse(&format!("*{piece}*")).unwrap();
            prop_assert!(glob.matches(&name));
        }
    }
}
