//! Shell patterns on names: `*`, `?`, `[a-z]`, `[^a-z]` and `\` before a character that is meant as
//! it is.

/// A pattern that was found well-formed.
#[derive(Debug, Clone)]
pub(crate) struct Glob {
    parts: Vec<Part>,
}

#[derive(Debug, Clone)]
enum Part {
    One(char),
    AnyOne,
    AnyNumber,
    Class { negated: bool, ranges: Vec<(char, char)> },
}

#[derive(Debug, thiserror::Error)]
#[error("`{0}` is not a pattern of names")]
pub(crate) struct BadGlob(String);

impl Glob {
    pub(crate) fn parse(pattern: &str) -> Result<Self, BadGlob> {
        let bad = || BadGlob(pattern.to_owned());
        let mut parts = Vec::new();
        let mut rest = pattern.chars();
        while let Some(next) = rest.next() {
            parts.push(match next {
                '*' => Part::AnyNumber,
                '?' => Part::AnyOne,
                '[' => class(&mut rest).ok_or_else(bad)?,
                '\\' => Part::One(rest.next().ok_or_else(bad)?),
                plain => Part::One(plain),
            });
        }
        Ok(Self { parts })
    }

    /// Reads a list separated by commas. Empty elements do not count.
    pub(crate) fn parse_list(list: &str) -> Result<Vec<Self>, BadGlob> {
        list.split(',')
            .map(str::trim)
            .filter(|pattern| !pattern.is_empty())
            .map(Self::parse)
            .collect()
    }

    /// Only the last `*` is ever tried again, so the work is at most pattern times name.
    pub(crate) fn matches(&self, name: &str) -> bool {
        let name: Vec<char> = name.chars().collect();
        let (mut part, mut at) = (0, 0);
        let mut retry: Option<(usize, usize)> = None;
        while at < name.len() {
            match self.parts.get(part) {
                Some(Part::AnyNumber) => {
                    retry = Some((part + 1, at));
                    part += 1;
                }
                Some(wanted) if wanted.takes(name[at]) => (part, at) = (part + 1, at + 1),
                _ => {
                    let Some((after_star, from)) = retry else { return false };
                    retry = Some((after_star, from + 1));
                    (part, at) = (after_star, from + 1);
                }
            }
        }
        self.parts[part..].iter().all(|rest| matches!(rest, Part::AnyNumber))
    }
}

impl Part {
    fn takes(&self, given: char) -> bool {
        match self {
            Self::One(wanted) => *wanted == given,
            Self::AnyOne | Self::AnyNumber => true,
            Self::Class { negated, ranges } => {
                ranges.iter().any(|(low, high)| (*low..=*high).contains(&given)) != *negated
            }
        }
    }
}

fn class(rest: &mut std::str::Chars<'_>) -> Option<Part> {
    let negated = rest.as_str().starts_with(['^', '!']);
    if negated {
        rest.next();
    }
    let mut ranges = Vec::new();
    loop {
        let low = match rest.next()? {
            ']' if !ranges.is_empty() => return Some(Part::Class { negated, ranges }),
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
        ranges.push((low, high));
    }
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
