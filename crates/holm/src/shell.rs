//! Building of shell command lines from words.

/// Returns a shell command line. A single word already is one; several are a program and its
/// arguments.
pub(crate) fn line(words: &[String]) -> String {
    match words {
        [only] => only.clone(),
        words => words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" "),
    }
}

/// Quotes a word so that a shell takes it literally.
pub(crate) fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@%+,=".contains(c);
    // An unquoted `A=b` at the beginning would be an assignment.
    if !word.is_empty() && word.chars().all(plain) && !word.contains('=') {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::process::Command;

    #[test]
    fn one_word_is_a_line() {
        assert_eq!(line(&["ls | wc".into()]), "ls | wc");
        assert_eq!(line(&["echo".into(), "a b".into(), "it's".into()]), r"echo 'a b' 'it'\''s'");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn a_shell_reads_what_was_quoted(words in proptest::collection::vec("[^\0]{0,12}", 1..4)) {
            let line = words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ");
            let script = format!("printf '%s\\037' {line}");
            let out = Command::new("sh").arg("-c").arg(script).output().unwrap();
            let expected = words.iter().map(|word| format!("{word}\u{1f}")).collect::<String>();
            prop_assert_eq!(String::from_utf8(out.stdout).unwrap(), expected);
        }
    }
}
