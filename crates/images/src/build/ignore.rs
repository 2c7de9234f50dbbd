//! `.dockerignore`: which files of the sources are left out of what can be copied.

use super::pattern::{Kind, Pattern, Steps};

const PATTERNS_MAX: usize = 2_000;

pub(super) struct Ignore {
    rules: Vec<Rule>,
    steps: Steps,
}

/// Which rules match a path or a folder above it. A rule that matches a folder applies to
/// everything below it, so each path is only compared with the rules that do not apply yet.
pub(super) struct Matched(Vec<bool>);

struct Rule {
    pattern: Pattern,
    /// An exception (`!`) brings back files that an earlier rule left out.
    is_exception: bool,
}

impl Ignore {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut rules = Vec::new();
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        for line in text.lines() {
            if line.starts_with('#') {
                continue;
            }
            let line = line.trim();
            let (line, is_exception) = match line.strip_prefix('!') {
                Some(rest) => (rest.trim(), true),
                None => (line, false),
            };
            let path = clean(line);
            if path.is_empty() {
                continue;
            }
            if rules.len() == PATTERNS_MAX {
                return Err(format!("more than {PATTERNS_MAX} patterns"));
            }
            rules.push(Rule { pattern: Pattern::new(&path, Kind::Tree)?, is_exception });
        }
        Ok(Self { rules, steps: Steps::default() })
    }

    /// Returns what matches the top of the sources: nothing.
    pub(super) fn top(&self) -> Matched {
        Matched(vec![false; self.rules.len()])
    }

    /// Returns which rules match a path in a folder. Fails if there are too many rules and files to
    /// compare all of them.
    pub(super) fn matched(&self, path: &str, folder: &Matched) -> Result<Matched, String> {
        let matches = |(rule, above): (&Rule, &bool)| {
            Ok(*above || rule.pattern.matches_within(path, &self.steps)?)
        };
        self.rules.iter().zip(&folder.0).map(matches).collect::<Result<_, _>>().map(Matched)
    }

    /// Returns whether a file or folder is left out: the last rule that matches decides.
    pub(super) fn covers(&self, matched: &Matched) -> bool {
        let mut rules = self.rules.iter().zip(&matched.0).rev();
        rules.find(|(_, matches)| **matches).is_some_and(|(rule, _)| !rule.is_exception)
    }

    /// Returns whether something below a folder that is left out may be brought back.
    pub(super) fn has_exceptions(&self) -> bool {
        self.rules.iter().any(|rule| rule.is_exception)
    }
}

fn clean(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn covers(ignore: &Ignore, path: &str) -> Result<bool, String> {
        let ends = path.match_indices('/').map(|(at, _)| at).chain([path.len()]);
        let matched = ends
            .map(|end| &path[..end])
            .try_fold(ignore.top(), |above, prefix| ignore.matched(prefix, &above))?;
        Ok(ignore.covers(&matched))
    }

    #[test]
    fn more_work_than_the_limit_is_refused() {
        let rules: String = (0..100).map(|number| format!("**/*a*b*{number}*\n")).collect();
        let mut ignore = Ignore::parse(&rules).unwrap();
        ignore.steps = Steps::new(100_000);
        assert_eq!(covers(&ignore, "a"), Ok(false));
        assert!(covers(&ignore, &"ab/".repeat(100)).unwrap_err().contains("too many patterns"));
    }

    #[test]
    fn a_rule_with_plain_text_in_it_costs_little() {
        let rules: String = (0..1000).map(|number| format!("**/folder/*.{number}\n")).collect();
        let mut ignore = Ignore::parse(&rules).unwrap();
        ignore.steps = Steps::new(1_100);
        assert_eq!(covers(&ignore, &"a".repeat(200)), Ok(false));
    }

    #[test]
    fn the_last_pattern_that_fits_decides() {
        let ignore = Ignore::parse(
            "# no\n\nnode_modules\n/dist/\n**/*.log\n!keep.log\n  *.md \n!/docs/*.md\n./a/../b\n",
        )
        .unwrap();
        for (path, covered) in [
            ("node_modules", true),
            ("node_modules/x/y", true),
            ("src/node_modules", false),
            ("dist/x", true),
            ("a/b/x.log", true),
            ("keep.log", false),
            ("a/keep.log", true),
            ("README.md", true),
            ("docs/x.md", false),
            ("b", true),
            ("# no", false),
        ] {
            assert_eq!(covers(&ignore, path), Ok(covered), "{path}");
        }
        assert!(ignore.has_exceptions());
        let all = Ignore::parse("*\n!src\n!package.json").unwrap();
        for (path, covered) in [("x", true), ("src/a", false), ("package.json", false)] {
            assert_eq!(covers(&all, path), Ok(covered), "{path}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "([!#*?/. a-b\\[\\]\\\\-]|\n){0,40}", path in "[ab./]{1,20}") {
            if let Ok(ignore) = Ignore::parse(&text) {
                let _ = covers(&ignore, &path);
            }
        }
    }
}
