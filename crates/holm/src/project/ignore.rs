//! Files of a project that are not uploaded: the patterns in `.blaxelignore`, which work like those
//! of `.gitignore`.

/// Always ignored, unless `.blaxelignore` says otherwise, for example with a line `!dist`.
const USUAL: [&str; 11] = [
    ".blaxel",
    ".git",
    "dist",
    "venv",
    ".venv",
    "node_modules",
    ".env",
    ".next",
    "__pycache__",
    ".docker",
    ".env.build",
];

#[derive(Debug)]
pub(crate) struct Ignore {
    rules: Vec<Rule>,
}

#[derive(Debug)]
struct Rule {
    /// Components of the pattern; `**` matches any number of path components.
    parts: Vec<String>,
    /// True if the pattern un-ignores what it matches.
    back: bool,
    folders_only: bool,
}

impl Ignore {
    pub(crate) fn new(text: &str) -> Self {
        let rules = USUAL.into_iter().chain(text.lines()).filter_map(Rule::read).collect();
        Self { rules }
    }

    /// True if a path, with `/` as separator, is ignored. The last matching rule decides.
    pub(crate) fn matches(&self, path: &str, is_folder: bool) -> bool {
        let parts: Vec<_> = path.split('/').collect();
        let matching =
            |rule: &&Rule| (is_folder || !rule.folders_only) && matches(&rule.parts, &parts);
        self.rules.iter().rev().find(matching).is_some_and(|rule| !rule.back)
    }
}

impl Rule {
    fn read(line: &str) -> Option<Self> {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            return None;
        }
        let (line, back) = match line.strip_prefix('!') {
            Some(line) => (line, true),
            None => (line, false),
        };
        let folders_only = line.ends_with('/');
        let line = line.trim_end_matches('/');
        // A slash inside a pattern ties it to the root; without one it matches at any depth.
        let tied = line.contains('/');
        let line = line.trim_start_matches('/');
        let mut parts: Vec<_> =
            line.split('/').filter(|part| !part.is_empty()).map(str::to_owned).collect();
        if parts.is_empty() {
            return None;
        }
        if !tied {
            parts.insert(0, "**".to_owned());
        }
        Some(Self { parts, back, folders_only })
    }
}

/// Matches a path. Each pair of a pattern prefix and a path prefix is checked once, so no pattern
/// can take long.
fn matches(pattern: &[String], path: &[&str]) -> bool {
    let mut reached = vec![false; path.len() + 1];
    reached[0] = true;
    for part in pattern {
        let mut next = vec![false; path.len() + 1];
        for at in 0..=path.len() {
            next[at] = match part.as_str() {
                "**" => reached[at] || (at > 0 && next[at - 1]),
                part => at > 0 && reached[at - 1] && matches_name(part, path[at - 1]),
            };
        }
        reached = next;
    }
    reached[path.len()]
}

/// Matches a single component: `*` stands for any characters, `?` for one.
fn matches_name(pattern: &str, name: &str) -> bool {
    let name: Vec<char> = name.chars().collect();
    let mut reached = vec![false; name.len() + 1];
    reached[0] = true;
    for wanted in pattern.chars() {
        let mut next = vec![false; name.len() + 1];
        for at in 0..=name.len() {
            next[at] = match wanted {
                '*' => reached[at] || (at > 0 && next[at - 1]),
                '?' => at > 0 && reached[at - 1],
                wanted => at > 0 && reached[at - 1] && name[at - 1] == wanted,
            };
        }
        reached = next;
    }
    reached[name.len()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn check(lines: &str, path: &str, ignored: bool) {
        assert_eq!(Ignore::new(lines).matches(path, false), ignored, "{lines:?} {path}");
    }

    #[test]
    fn what_no_project_sends_is_ignored_at_any_depth() {
        check("", "node_modules", true);
        check("", "web/node_modules", true);
        check("", "src/main.py", false);
        check("!dist", "dist", false);
    }

    #[test]
    fn patterns_mean_what_they_mean_in_gitignore() {
        check("*.log", "a/b/x.log", true);
        check("/x.log", "a/x.log", false);
        check("a/*.log", "a/x.log", true);
        check("a/*.log", "a/b/x.log", false);
        check("a/**/x", "a/b/c/x", true);
        check("a/**/x", "a/x", true);
        check("*.log\n!keep.log", "keep.log", false);
        check("# x\n\nx?", "xy", true);
        check("build/", "build", false);
        assert!(Ignore::new("build/").matches("build", true));
    }

    proptest! {
        #[test]
        fn any_patterns_and_paths_are_compared(lines in "[a*?/!#.\n]{0,40}", path in "[a/.]{0,20}") {
            let _ = Ignore::new(&lines).matches(&path, true);
        }

        #[test]
        fn many_stars_take_no_time(stars in 1..200_usize) {
            let pattern = "*a".repeat(stars);
            let _ = Ignore::new(&pattern).matches(&"a".repeat(200), false);
        }
    }
}
