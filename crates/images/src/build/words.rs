//! Words of an instruction: quotes, escapes and variables, by the rules of Docker.

use super::budget::Budget;
use super::pattern;

/// Longest value after variables are expanded, so that a few lines cannot fill the memory.
const VALUE_BYTES_MAX: usize = 1 << 20;
const DEPTH_MAX: usize = 16;
/// Longest value and pattern for `#`, `%` and `/`, because every position of one is tried against
/// the other.
const CUT_BYTES_MAX: usize = 1_024;
const CUT_PATTERN_BYTES_MAX: usize = 64;

/// A source of variables.
pub(super) trait Variables {
    fn get(&self, name: &str) -> Option<&str>;
}

impl<F: Fn(&str) -> Option<&'static str>> Variables for F {
    fn get(&self, name: &str) -> Option<&str> {
        self(name)
    }
}

/// Expands a text into one value: variables are replaced, quotes and escapes removed.
pub(super) fn value(
    text: &str,
    escape: char,
    variables: &impl Variables,
    budget: &Budget,
) -> Result<String, String> {
    let mut words = expand(text, escape, variables, budget, false)?;
    Ok(words.pop().unwrap_or_default())
}

/// Like [`value`], but splits at whitespace outside of quotes, including whitespace from variables.
pub(super) fn values(
    text: &str,
    escape: char,
    variables: &impl Variables,
    budget: &Budget,
) -> Result<Vec<String>, String> {
    expand(text, escape, variables, budget, true)
}

fn expand(
    text: &str,
    escape: char,
    variables: &impl Variables,
    budget: &Budget,
    splits: bool,
) -> Result<Vec<String>, String> {
    let mut lexer = Lexer::new(text, escape, variables, budget, false);
    let mut out = Words::new(budget, splits);
    lexer.words(&mut out)?;
    if out.begun || !splits {
        out.all.push(out.now);
    }
    Ok(out.all)
}

/// Expands the variables in a text in which quotes have no meaning, such as a heredoc.
pub(super) fn text(
    text: &str,
    escape: char,
    variables: &impl Variables,
    budget: &Budget,
) -> Result<String, String> {
    let mut lexer = Lexer::new(text, escape, variables, budget, true);
    let mut out = Words::new(budget, false);
    lexer.words(&mut out)?;
    Ok(out.now)
}

/// Splits at whitespace outside of quotes; everything else stays as written.
pub(super) fn split(text: &str, escape: char) -> Vec<String> {
    let (mut words, mut word, mut quote, mut escaped) = (Vec::new(), String::new(), None, false);
    for sign in text.chars() {
        let taken = escaped;
        escaped = !escaped && sign == escape && quote != Some('\'');
        if !taken && !escaped {
            match quote {
                Some(open) if open == sign => quote = None,
                Some(_) => {}
                None if matches!(sign, '"' | '\'') => quote = Some(sign),
                None if sign.is_whitespace() => {
                    if !word.is_empty() {
                        words.push(std::mem::take(&mut word));
                    }
                    continue;
                }
                None => {}
            }
        }
        word.push(sign);
    }
    if !word.is_empty() {
        words.push(word);
    }
    words
}

struct Words<'b> {
    all: Vec<String>,
    now: String,
    begun: bool,
    splits: bool,
    budget: &'b Budget,
}

impl<'b> Words<'b> {
    fn new(budget: &'b Budget, splits: bool) -> Self {
        Self { all: Vec::new(), now: String::new(), begun: false, splits, budget }
    }

    fn push(&mut self, sign: char) -> Result<(), String> {
        self.begun = true;
        self.now.push(sign);
        self.check()
    }

    fn push_text(&mut self, text: &str, quoted: bool) -> Result<(), String> {
        if !self.splits || quoted {
            self.begun |= quoted || !text.is_empty();
            self.now.push_str(text);
            return self.check();
        }
        for sign in text.chars() {
            if sign.is_whitespace() { self.end()? } else { self.push(sign)? }
        }
        Ok(())
    }

    fn end(&mut self) -> Result<(), String> {
        if std::mem::take(&mut self.begun) {
            let word = std::mem::take(&mut self.now);
            self.budget.spend(&word)?;
            self.all.push(word);
        }
        Ok(())
    }

    fn check(&self) -> Result<(), String> {
        if self.now.len() > VALUE_BYTES_MAX {
            return Err(format!("a value becomes longer than {VALUE_BYTES_MAX} bytes"));
        }
        Ok(())
    }
}

struct Lexer<'v, V> {
    signs: Vec<char>,
    at: usize,
    escape: char,
    variables: &'v V,
    budget: &'v Budget,
    depth: usize,
    /// Whether quotes are ordinary text.
    keeps: bool,
}

impl<'v, V: Variables> Lexer<'v, V> {
    fn new(text: &str, escape: char, variables: &'v V, budget: &'v Budget, keeps: bool) -> Self {
        Self { signs: text.chars().collect(), at: 0, escape, variables, budget, depth: 0, keeps }
    }

    fn peek(&self) -> Option<char> {
        self.signs.get(self.at).copied()
    }

    fn take(&mut self) -> Option<char> {
        let sign = self.peek()?;
        self.at += 1;
        Some(sign)
    }

    fn words(&mut self, out: &mut Words<'_>) -> Result<(), String> {
        while let Some(sign) = self.take() {
            match sign {
                '\'' if !self.keeps => self.single_quoted(out)?,
                '"' if !self.keeps => self.double_quoted(out)?,
                '$' => {
                    let value = self.dollar()?;
                    out.push_text(&value, false)?;
                }
                sign if sign == self.escape => match (self.keeps, self.peek()) {
                    (false, None) => out.push(sign)?,
                    (false, Some(next)) => {
                        self.at += 1;
                        out.push(next)?;
                    }
                    (true, Some('$')) => {
                        self.at += 1;
                        out.push('$')?;
                    }
                    (true, _) => out.push(sign)?,
                },
                sign if out.splits && sign.is_whitespace() => out.end()?,
                sign => out.push(sign)?,
            }
        }
        Ok(())
    }

    fn single_quoted(&mut self, out: &mut Words<'_>) -> Result<(), String> {
        out.begun = true;
        loop {
            match self.take() {
                None => return Err("a quote is not closed".to_owned()),
                Some('\'') => return Ok(()),
                Some(sign) => out.push(sign)?,
            }
        }
    }

    fn double_quoted(&mut self, out: &mut Words<'_>) -> Result<(), String> {
        out.begun = true;
        loop {
            match self.take() {
                None => return Err("a quote is not closed".to_owned()),
                Some('"') => return Ok(()),
                Some('$') => {
                    let value = self.dollar()?;
                    out.push_text(&value, true)?;
                }
                Some(sign) if sign == self.escape => match self.peek() {
                    Some(next) if matches!(next, '"' | '$') || next == self.escape => {
                        self.at += 1;
                        out.push(next)?;
                    }
                    _ => out.push(sign)?,
                },
                Some(sign) => out.push(sign)?,
            }
        }
    }

    /// Reads what follows a `$`, and expands it within the budget.
    fn dollar(&mut self) -> Result<String, String> {
        let value = self.expansion()?;
        self.budget.spend(&value)?;
        Ok(value)
    }

    fn expansion(&mut self) -> Result<String, String> {
        if self.peek() != Some('{') {
            let name = self.name();
            if name.is_empty() {
                return Ok("$".to_owned());
            }
            return Ok(self.variables.get(&name).unwrap_or_default().to_owned());
        }
        self.at += 1;
        let name = self.name();
        if name.is_empty() {
            return Err("`${` is not followed by the name of a variable".to_owned());
        }
        let unclosed = || format!("`${{{name}` is not closed");
        match self.take().ok_or_else(unclosed)? {
            '}' => Ok(self.variables.get(&name).unwrap_or_default().to_owned()),
            ':' => {
                let kind = self.take().ok_or_else(unclosed)?;
                let word = self.word(&name)?;
                self.modified(&name, kind, &word, |value| !value.is_empty())
            }
            kind @ ('-' | '+' | '?') => {
                let word = self.word(&name)?;
                self.modified(&name, kind, &word, |_| true)
            }
            kind @ ('#' | '%') => {
                let longest = self.peek() == Some(kind);
                self.at += usize::from(longest);
                let word = self.word(&name)?;
                let value = self.variables.get(&name).unwrap_or_default();
                may_be_cut(value, &word)?;
                Ok(pattern::trimmed(value, &word, kind == '#', longest).to_owned())
            }
            '/' => {
                let all = self.peek() == Some('/');
                self.at += usize::from(all);
                let word = self.word(&name)?;
                let (from, to) = word.split_once('/').unwrap_or((&word, ""));
                let value = self.variables.get(&name).unwrap_or_default();
                may_be_cut(value, from)?;
                Ok(pattern::replaced(value, from, to, all))
            }
            other => Err(format!("`${{{name}{other}` means nothing")),
        }
    }

    fn modified(
        &self,
        name: &str,
        kind: char,
        word: &str,
        counts: impl Fn(&str) -> bool,
    ) -> Result<String, String> {
        let value = self.variables.get(name).filter(|value| counts(value));
        match kind {
            '-' => Ok(value.unwrap_or(word).to_owned()),
            '+' => Ok(value.map_or("", |_| word).to_owned()),
            '?' => value.map(str::to_owned).ok_or_else(|| match word {
                "" => format!("{name} is not set"),
                word => format!("{name}: {word}"),
            }),
            other => Err(format!("`${{{name}:{other}` means nothing")),
        }
    }

    /// Reads the rest inside the braces, and expands the variables in it.
    fn word(&mut self, name: &str) -> Result<String, String> {
        if self.depth == DEPTH_MAX {
            return Err(format!("variables are nested more than {DEPTH_MAX} deep"));
        }
        let mut out = Words::new(self.budget, false);
        self.depth += 1;
        loop {
            match self.take() {
                None => return Err(format!("`${{{name}` is not closed")),
                Some('}') => break,
                Some('\'') if !self.keeps => self.single_quoted(&mut out)?,
                Some('"') if !self.keeps => self.double_quoted(&mut out)?,
                Some('$') => {
                    let value = self.dollar()?;
                    out.push_text(&value, true)?;
                }
                Some(sign) if sign == self.escape && self.peek().is_some() => {
                    if let Some(next) = self.take() {
                        out.push(next)?;
                    }
                }
                Some(sign) => out.push(sign)?,
            }
        }
        self.depth -= 1;
        Ok(out.now)
    }

    fn name(&mut self) -> String {
        let mut name = String::new();
        match self.peek() {
            Some(sign) if sign.is_ascii_digit() || matches!(sign, '@' | '*' | '#' | '!') => {
                // A special variable of a shell; there is no shell here.
                self.at += 1;
                name.push(sign);
                return name;
            }
            _ => {}
        }
        while let Some(sign) = self.peek() {
            if !(sign.is_ascii_alphanumeric() || sign == '_') {
                break;
            }
            name.push(sign);
            self.at += 1;
        }
        name
    }
}

fn may_be_cut(value: &str, pattern: &str) -> Result<(), String> {
    if value.len() > CUT_BYTES_MAX || pattern.len() > CUT_PATTERN_BYTES_MAX {
        return Err(format!("a value of more than {CUT_BYTES_MAX} bytes cannot be cut"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn known(name: &str) -> Option<&'static str> {
        match name {
            "HOME" => Some("/root"),
            "EMPTY" => Some(""),
            "TWO" => Some("one two"),
            "FILE" => Some("a/b/c.tar.gz"),
            _ => None,
        }
    }

    #[track_caller]
    fn check(text: &str, wanted: &str) {
        assert_eq!(value(text, '\\', &known, &Budget::default()).as_deref(), Ok(wanted), "{text}");
    }

    #[test]
    fn variables_are_put_in_by_the_rules_of_docker() {
        for (text, wanted) in [
            ("hello", "hello"),
            ("he'll'o", "hello"),
            ("he'llo $HOME'", "hello $HOME"),
            (r"he\'llo", "he'llo"),
            (r#""he\"llo""#, "he\"llo"),
            (r#""he\llo""#, r"he\llo"),
            (r#""\\""#, r"\"),
            ("$HOME/x", "/root/x"),
            ("\"$HOME\"", "/root"),
            (r"\$HOME", "$HOME"),
            (r#""\$HOME""#, "$HOME"),
            ("${HOME}x", "/rootx"),
            ("$MISSING.", "."),
            ("${MISSING:-a b}", "a b"),
            ("${MISSING:-$HOME}", "/root"),
            ("${MISSING:-${EMPTY:-deep}}", "deep"),
            ("${EMPTY:-x}", "x"),
            ("${EMPTY-x}", ""),
            ("${EMPTY+x}", "x"),
            ("${EMPTY:+x}", ""),
            ("${HOME:+yes}", "yes"),
            ("${HOME-x}", "/root"),
            ("${HOME:?no}", "/root"),
            ("a$", "a$"),
            ("$1", ""),
            ("$ x", "$ x"),
            ("${FILE#*/}", "b/c.tar.gz"),
            ("${FILE##*/}", "c.tar.gz"),
            ("${FILE%.*}", "a/b/c.tar"),
            ("${FILE%%.*}", "a/b/c"),
            ("${FILE/a/x}", "x/b/c.tar.gz"),
            ("${FILE//a/x}", "x/b/c.txr.gz"),
        ] {
            check(text, wanted);
        }
        for bad in ["${", "${}", "${HOME", "${HOME:x}", "${A!b}", "'x", "\"x", "${MISSING:?gone}"] {
            assert!(value(bad, '\\', &known, &Budget::default()).is_err(), "{bad}");
        }
    }

    #[test]
    fn words_are_split_at_blanks_outside_of_quotes() {
        let split = |text| values(text, '\\', &known, &Budget::default()).unwrap();
        assert_eq!(
            split(" a  'b c' \"d e\"f $TWO \"$TWO\" $EMPTY \"\" x\\ y "),
            ["a", "b c", "d ef", "one", "two", "one two", "", "x y"]
        );
        assert_eq!(super::split("a='b c' d\\ e \"f g\"", '\\'), ["a='b c'", "d\\ e", "\"f g\""]);
    }

    #[test]
    fn quotes_stay_where_only_variables_count() {
        let found = text("say \"$HOME\" it's \\$HOME \\n", '\\', &known, &Budget::default());
        assert_eq!(found.as_deref(), Ok("say \"/root\" it's $HOME \\n"));
    }

    #[test]
    fn the_values_of_one_instruction_share_a_limit() {
        let words: &'static str = "x ".repeat(1 << 10).leak();
        let large = |name: &str| (name == "A").then_some(words);
        let times = |count: usize| "$A ".repeat(count);
        assert_eq!(values("$A $A", '\\', &large, &Budget::default()).unwrap().len(), 2 << 10);
        assert!(values(&times(1 << 10), '\\', &large, &Budget::default()).is_err());
        // What is expanded costs as much if nothing of it stays.
        let nothing = "${B:+$A}".repeat(1 << 12);
        assert!(value(&nothing, '\\', &large, &Budget::default()).is_err());
        let budget = Budget::default();
        let mut pairs = (0..1 << 12).map(|_| value("$A", '\\', &large, &budget));
        assert!(pairs.any(|value| value.is_err()));
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "(\\$|\\{|\\}|[:+?#%/-]|'|\"|\\\\|[A-Z]| |é|\\*){0,40}") {
            let budget = Budget::default();
            let _ = value(&text, '\\', &known, &budget);
            let _ = values(&text, '`', &known, &budget);
            let _ = super::text(&text, '\\', &known, &budget);
            let _ = super::split(&text, '\\');
        }

        #[test]
        fn what_has_no_special_sign_stays_as_it_is(text in "[a-z0-9 /.,:=_-]{0,40}") {
            prop_assert_eq!(value(&text, '\\', &known, &Budget::default()), Ok(text));
        }
    }
}
