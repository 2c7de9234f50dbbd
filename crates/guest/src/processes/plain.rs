//! Recognizes commands that need no shell: it would only look up the program, and that costs more
//! than many a program.
//!
//! If such a program cannot be executed, the command is given to the shell after all, so that a
//! missing program, a folder or a script without `#!` has the result that the shell gives.

use crate::environment::Variables;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// Commands built into dash, ash or bash, and words of their grammar. Names with characters that a
/// plain word cannot contain are left out.
const OF_THE_SHELL: [&str; 84] = [
    ".",
    "alias",
    "bg",
    "bind",
    "break",
    "builtin",
    "caller",
    "case",
    "cd",
    "chdir",
    "command",
    "compgen",
    "complete",
    "compopt",
    "continue",
    "coproc",
    "declare",
    "dirs",
    "disown",
    "do",
    "done",
    "echo",
    "elif",
    "else",
    "enable",
    "esac",
    "eval",
    "exec",
    "exit",
    "export",
    "false",
    "fc",
    "fg",
    "fi",
    "for",
    "function",
    "getopts",
    "hash",
    "help",
    "history",
    "if",
    "in",
    "jobs",
    "kill",
    "let",
    "local",
    "logout",
    "mapfile",
    "popd",
    "printf",
    "pushd",
    "pwd",
    "read",
    "readarray",
    "readonly",
    "return",
    "select",
    "set",
    "shift",
    "shopt",
    "sleep",
    "source",
    "suspend",
    "test",
    "then",
    "time",
    "times",
    "trap",
    "true",
    "type",
    "typeset",
    "ulimit",
    "umask",
    "unalias",
    "unset",
    "until",
    "wait",
    "while",
    // These would show the variables that a shell adds.
    "env",
    "printenv",
    "/bin/env",
    "/bin/printenv",
    "/usr/bin/env",
    "/usr/bin/printenv",
];

/// Splits a command into words, if every shell would split it at the same blanks and change nothing
/// else.
pub(super) fn words(command: &str) -> Option<Vec<&str>> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b" \t_-./:,+@%=".contains(&byte);
    let words: Vec<&str> = if command.bytes().all(is_plain) {
        command.split_ascii_whitespace().collect()
    } else {
        return None;
    };
    let first = words.first()?;
    // A leading sign would make it an option of the shell, or a job number.
    let names_program = first
        .starts_with(|first: char| first.is_ascii_alphanumeric() || "./_".contains(first))
        && !first.contains('=')
        && !OF_THE_SHELL.contains(first);
    // One shell replaces `=name` with the path of a program.
    let has_plain_rest = words.iter().all(|word| !word.starts_with('='));
    (names_program && has_plain_rest).then_some(words)
}

/// Returns whether every shell passes these variables on without obeying them.
pub(super) fn pass_through<'a>(variables: impl IntoIterator<Item = &'a Variables>) -> bool {
    variables.into_iter().flat_map(Variables::keys).all(|name| passes_through(name))
}

fn passes_through(name: &OsStr) -> bool {
    let name = name.as_bytes();
    let is_identifier = !name.first().is_some_and(u8::is_ascii_digit)
        && name.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
    is_identifier && !name.starts_with(b"BASH") && !matches!(name, b"SHELLOPTS" | b"ENV")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::ffi::OsString;
    use std::process::Command;

    /// Returns the shells that this machine has.
    fn shells() -> Vec<Vec<&'static str>> {
        let all = [vec!["dash", "-c"], vec!["bash", "-c"], vec!["busybox", "sh", "-c"]];
        let is_here = |shell: &Vec<&str>| {
            Command::new(shell[0])
                .args(&shell[1..])
                .arg(":")
                .output()
                .is_ok_and(|output| output.status.success())
        };
        all.into_iter().filter(is_here).collect()
    }

    #[test]
    fn what_only_a_shell_understands_is_not_plain() {
        for command in [
            "", " ", "ls | wc", "ls;", "a=b ls", "ls $HOME", "ls *", "ls ~", "ls 'a'", "ls \"a\"",
            "ls\nls", "ls \\a", "ls > a", "ls &", "(ls)", "{ ls", "! ls", "cd /", "echo a", ":",
            "[ a ]", "-c ls", "+x", "%1", "ls a?", "ls #a", "ls =ls", "env", "time ls", "ls é",
            "ls a!", "ls ^a", "ls `a`", "=ls", "@a",
        ] {
            assert_eq!(words(command), None, "{command}");
        }
    }

    #[test]
    fn plain_words_are_split_at_blanks() {
        assert_eq!(words("/bin/true").unwrap(), ["/bin/true"]);
        assert_eq!(
            words("  ls\t-l  --color=never a,b ").unwrap(),
            ["ls", "-l", "--color=never", "a,b"]
        );
        assert_eq!(words("7z x a.7z").unwrap(), ["7z", "x", "a.7z"]);
    }

    #[test]
    fn the_builtins_of_the_shells_that_are_here_are_known() {
        let listed = Command::new("bash").args(["-c", "compgen -b; compgen -k"]).output();
        let Ok(listed) = listed else { return };
        for name in String::from_utf8(listed.stdout).unwrap().lines() {
            assert_eq!(words(name), None, "{name}");
        }
    }

    #[test]
    fn variables_that_a_shell_obeys_or_drops_need_one() {
        let with = |name: &str| Variables::from([(OsString::from(name), "x".into())]);
        for name in ["BASH_ENV", "BASH_FUNC_ls%%", "SHELLOPTS", "ENV", "a.b", "1a"] {
            assert!(!pass_through([&with("PATH"), &with(name)]), "{name}");
        }
        assert!(pass_through([&with("PATH"), &with("_x1")]));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn every_shell_makes_the_same_words_of_a_plain_command(
            arguments in "[ -~\t]{0,12}|[a-zA-Z0-9 =%+@:,./_-]{0,30}",
        ) {
            let folder = tempfile::tempdir().unwrap();
            let program = folder.path().join("show");
            // A link, because a newly written program may still be open for writing in another
            // thread.
            std::os::unix::fs::symlink("/usr/bin/printf", &program).unwrap();
            let command = format!("{} %s, {arguments}", program.display());
            if let Some(words) = words(&command) {
                let expect: String = words[2..].iter().map(|word| format!("{word},")).collect();
                // Without arguments, printf prints only the comma.
                let expect = if words.len() == 2 { ",".to_owned() } else { expect };
                for shell in shells() {
                    let output = Command::new(shell[0]).args(&shell[1..]).arg(&command).output().unwrap();
                    prop_assert_eq!(String::from_utf8(output.stdout).unwrap(), expect.as_str());
                }
            }
        }
    }
}
