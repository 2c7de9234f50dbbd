//! The hostile program, and how it gets into an image.

use crate::machine::{Machine, run};
use node::{Exit, Node, Spec};
use std::path::Path;

/// Makes an instance that runs the program for this purpose, below a shell.
pub(crate) fn spec(machine: &Machine, id: &str, what: &str) -> Spec {
    install(&machine.root());
    let mut spec = machine.shell(id, &format!("attempt {what}; echo ended with $?"));
    spec.first.environment.push("LD_LIBRARY_PATH=/lib".into());
    spec
}

#[track_caller]
pub(crate) fn tries_in_vain(machine: &Machine, node: &Node, what: &str) {
    let (exit, text) = run(node, &spec(machine, "hostile", what));
    assert_eq!(exit, Exit::Code(0));
    let (tried, rest) = text.split_once('\n').unwrap_or_default();
    let count = tried.strip_prefix("tried ").and_then(|count| count.parse::<usize>().ok());
    assert!(count.is_some_and(|count| count > 0) && rest == "ended with 0\n", "{text}");
}

/// Copies the program into an image. It is linked to libraries that this test has loaded itself, so
/// those are copied too.
fn install(root: &Path) {
    let attempt = Path::new(env!("CARGO_BIN_EXE_attempt"));
    if root.join("bin/attempt").exists() {
        return;
    }
    std::fs::copy(attempt, root.join("bin/attempt")).unwrap();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    for folder in ["lib", "lib64"] {
        std::fs::create_dir_all(root.join(folder)).unwrap();
    }
    for library in maps.lines().filter_map(|line| line.split_whitespace().nth(5)).map(Path::new) {
        let name = library.file_name().unwrap_or_default().to_str().unwrap();
        if name.contains(".so") && !root.join("lib").join(name).exists() {
            std::fs::copy(library, root.join("lib").join(name)).unwrap();
            std::fs::copy(library, root.join("lib64").join(name)).unwrap();
        }
    }
}
