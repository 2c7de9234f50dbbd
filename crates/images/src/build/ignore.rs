//! `.dockerignore`: which files of the sources are left out of what can be copied.

use super::pattern::{Kind, Pattern};

const PATTERNS_MAX: usize = 2_000;

pub(super) struct Ignore(Vec<Rule>);

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
        Ok(Self(rules))
    }

    /// Returns whether a file or folder is left out. A rule that matches a folder applies to
    /// everything below it, until a later rule says otherwise.
    pub(super) fn covers(&self, path: &str) -> bool {
        let ends = path.match_indices('/').map(|(at, _)| at).chain([path.len()]);
        let prefixes: Vec<&str> = ends.map(|end| &path[..end]).collect();
        self.0.iter().fold(false, |covered, rule| {
            // Only a rule that would change the answer has to be matched.
            if covered != rule.is_exception {
                return covered;
            }
            match prefixes.iter().any(|prefix| rule.pattern.matches(prefix)) {
                true => !rule.is_exception,
                false => covered,
            }
        })
    }

    /// Returns whether something below a folder that is left out may be brought back.
    pub(super) fn has_exceptions(&self) -> bool {
        self.0.iter().any(|rule| rule.is_exception)
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
            assert_eq!(ignore.covers(path), covered, "{path}");
        }
        assert!(ignore.has_exceptions());
        let all = Ignore::parse("*\n!src\n!package.json").unwrap();
        assert!(all.covers("x") && !all.covers("src/a") && !all.covers("package.json"));
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "([!#*?/. a-b\\[\\]\\\\-]|\n){0,40}", path in "[ab./]{1,20}") {
            if let Ok(ignore) = Ignore::parse(&text) {
                ignore.covers(&path);
            }
        }
    }
}
