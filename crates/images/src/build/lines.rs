//! Splits the text of a Dockerfile into statements: directives, comments, continued lines,
//! heredocs.

use super::Mistake;

/// Largest Dockerfile that is read. Handwritten ones have hundreds of lines, generated ones a few
/// thousand.
pub(super) const TEXT_BYTES_MAX: usize = 1 << 20;
const STATEMENTS_MAX: usize = 5_000;
const BYTE_ORDER_MARK: char = '\u{feff}';

/// One instruction as written, with its lines joined.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Statement {
    /// Number of its first line, counted from one.
    pub line: usize,
    pub text: String,
    pub heredocs: Vec<Heredoc>,
}

/// Text that follows an instruction, up to a line that consists of its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heredoc {
    pub name: String,
    pub content: String,
    /// Whether variables in it are expanded, which is so if its name was not quoted.
    pub expands: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Lines {
    pub(super) escape: char,
    pub(super) statements: Vec<Statement>,
}

/// Splits a Dockerfile into statements.
pub(super) fn read(text: &str) -> Result<Lines, Mistake> {
    if text.len() > TEXT_BYTES_MAX {
        return Err(Mistake::new(1, format!("it has more than {TEXT_BYTES_MAX} bytes")));
    }
    let text = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text);
    let escape = escape_of(text)?;
    let mut reader = Reader { lines: text.split('\n').collect(), at: 0, escape };
    let mut statements = Vec::new();
    while let Some(statement) = reader.next()? {
        if statements.len() == STATEMENTS_MAX {
            return Err(Mistake::new(
                statement.line,
                format!("there are more than {STATEMENTS_MAX} instructions"),
            ));
        }
        statements.push(statement);
    }
    Ok(Lines { escape, statements })
}

/// Returns the line-continuation character that the directives at the very top choose.
fn escape_of(text: &str) -> Result<char, Mistake> {
    let mut escape = None;
    for (number, line) in text.lines().enumerate() {
        let Some(comment) = line.trim().strip_prefix('#') else { break };
        let Some((name, value)) = comment.split_once('=') else { break };
        let (name, value) = (name.trim().to_ascii_lowercase(), value.trim());
        if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            break;
        }
        if name != "escape" {
            continue;
        }
        match value {
            "\\" | "`" if escape.is_none() => escape = value.chars().next(),
            _ => {
                let why = "the directive `escape` is `\\` or a backtick, and said once".to_owned();
                return Err(Mistake::new(number + 1, why));
            }
        }
    }
    Ok(escape.unwrap_or('\\'))
}

struct Reader<'t> {
    lines: Vec<&'t str>,
    at: usize,
    escape: char,
}

impl Reader<'_> {
    fn line(&mut self) -> Option<&str> {
        let line = self.lines.get(self.at)?;
        self.at += 1;
        Some(line.strip_suffix('\r').unwrap_or(line))
    }

    fn next(&mut self) -> Result<Option<Statement>, Mistake> {
        let mut text = String::new();
        let mut first = 0;
        loop {
            let (escape, number) = (self.escape, self.at + 1);
            let Some(line) = self.line() else { break };
            if line.trim_start().starts_with('#') {
                continue;
            }
            if line.trim().is_empty() {
                // Blank lines between continued ones are ignored.
                continue;
            }
            if first == 0 {
                first = number;
            }
            let line = if text.is_empty() { line.trim_start() } else { line };
            match continued(line, escape) {
                Some(part) => text.push_str(part),
                None => {
                    text.push_str(line);
                    break;
                }
            }
        }
        let text = text.trim().to_owned();
        if text.is_empty() {
            return if first == 0 || self.at >= self.lines.len() { Ok(None) } else { self.next() };
        }
        let heredocs = self.heredocs(first, &text)?;
        Ok(Some(Statement { line: first, text, heredocs }))
    }

    fn heredocs(&mut self, line: usize, text: &str) -> Result<Vec<Heredoc>, Mistake> {
        let mut all = Vec::new();
        for Opening { name, expands, strips_tabs } in openings(text) {
            let mut content = String::new();
            loop {
                let Some(next) = self.line() else {
                    return Err(Mistake::new(
                        line,
                        format!("the text `{name}` that begins here never ends"),
                    ));
                };
                let next = if strips_tabs { next.trim_start_matches('\t') } else { next };
                if next == name {
                    break;
                }
                content.push_str(next);
                content.push('\n');
            }
            all.push(Heredoc { name, content, expands });
        }
        Ok(all)
    }
}

/// Returns the part before the continuation character if the line is continued.
fn continued(line: &str, escape: char) -> Option<&str> {
    let before = line.trim_end_matches([' ', '\t']).strip_suffix(escape)?;
    // Two of them are an escaped one.
    (!before.ends_with(escape)).then_some(before)
}

struct Opening {
    name: String,
    expands: bool,
    strips_tabs: bool,
}

/// Returns the heredocs that an instruction opens.
fn openings(text: &str) -> Vec<Opening> {
    let mut words = text.split_ascii_whitespace();
    let mut keyword = words.next().unwrap_or_default().to_ascii_uppercase();
    if keyword == "ONBUILD" {
        keyword = words.next().unwrap_or_default().to_ascii_uppercase();
    }
    if !matches!(keyword.as_str(), "RUN" | "COPY" | "ADD") {
        return Vec::new();
    }
    raw_words(text).into_iter().filter_map(opening).collect()
}

/// Returns whether a word opens a heredoc: `<<NAME`, `<<-NAME`, `3<<'NAME'`.
pub(super) fn is_opening(word: &str) -> bool {
    opening(word).is_some()
}

/// Returns the name of the heredoc that a word opens.
pub(super) fn opened_name(word: &str) -> Option<String> {
    opening(word).map(|opening| opening.name)
}

fn opening(word: &str) -> Option<Opening> {
    let rest = word.trim_start_matches(|digit: char| digit.is_ascii_digit()).strip_prefix("<<")?;
    let (rest, strips_tabs) = match rest.strip_prefix('-') {
        Some(rest) => (rest, true),
        None => (rest, false),
    };
    let quoted = rest.contains(['"', '\'']);
    let name: String = rest.chars().filter(|sign| !matches!(sign, '"' | '\'')).collect();
    let plain = |sign: char| sign.is_alphanumeric() || matches!(sign, '_' | '-' | '.');
    (!name.is_empty() && name.chars().all(plain)).then_some(Opening {
        name,
        expands: !quoted,
        strips_tabs,
    })
}

/// Splits at whitespace outside of quotes. Quotes and escapes are kept.
fn raw_words(text: &str) -> Vec<&str> {
    let (mut words, mut start, mut quote, mut escaped) = (Vec::new(), None, None, false);
    for (at, sign) in text.char_indices() {
        if escaped {
            escaped = false;
            continue;
        }
        match (quote, sign) {
            (Some('\''), '\\') => {}
            (_, '\\') => {
                escaped = true;
                start = start.or(Some(at));
            }
            (Some(open), sign) if open == sign => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => {
                quote = Some(sign);
                start = start.or(Some(at));
            }
            (None, sign) if sign.is_whitespace() => {
                words.extend(start.take().map(|start: usize| &text[start..at]));
            }
            (None, _) => start = start.or(Some(at)),
        }
    }
    words.extend(start.map(|start| &text[start..]));
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn texts(text: &str) -> Vec<(usize, String)> {
        let lines = read(text).unwrap();
        lines.statements.into_iter().map(|one| (one.line, one.text)).collect()
    }

    #[test]
    fn continued_lines_are_one_statement_and_comments_between_them_are_not_part_of_it() {
        let found =
            texts("# syntax=x\nFROM a\n\nRUN one \\\n  # not this\n\n  && two\\\n3\nUSER x\n");
        let run = "RUN one   && two3".to_owned();
        assert_eq!(found, [(2, "FROM a".into()), (4, run), (9, "USER x".into())]);
    }

    #[test]
    fn the_sign_of_continued_lines_can_be_chosen() {
        let found = texts("# escape=`\r\nFROM a\r\nRUN dir C:\\`\r\n x\r\n");
        assert_eq!(found, [(2, "FROM a".into()), (3, "RUN dir C:\\ x".into())]);
        assert!(read("# escape=x\nFROM a").is_err());
        assert_eq!(texts("\n# escape=`\nFROM a\\\n b").len(), 1);
    }

    #[test]
    fn heredocs_follow_their_instruction() {
        let found =
            read("RUN <<EOF cat <<-'B'\n a\n# b\nEOF\n\tx\n\tB\nCMD a <<EOF\nUSER x").unwrap();
        let [run, cmd, user] = found.statements.as_slice() else { panic!("{found:?}") };
        assert_eq!(run.heredocs[0].content, " a\n# b\n");
        assert!(run.heredocs[0].expands);
        assert_eq!(run.heredocs[1].content, "x\n");
        assert!(!run.heredocs[1].expands);
        assert!(cmd.heredocs.is_empty());
        assert_eq!(user.line, 8);
        let error = read("FROM a\nRUN <<EOF\nx").unwrap_err();
        assert_eq!(error.line, 2);
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "(#|RUN|COPY|<<|EOF|\\\\|`|\n|\r| |'|\"|é|[a-z]){0,60}") {
            if let Ok(lines) = read(&text) {
                for statement in lines.statements {
                    prop_assert!(!statement.text.is_empty());
                    prop_assert!(statement.line >= 1);
                }
            }
        }
    }
}
