//! Checks that the tests and settings that `docs/security.md` names exist.

use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns the texts in backquotes in one column of all tables with five columns.
fn column(page: &str, number: usize) -> Vec<&str> {
    let rows = page.lines().filter(|line| line.starts_with("| ") && line.matches('|').count() == 6);
    let cells = rows.filter_map(|row| row.split('|').nth(number));
    cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).collect()
}

/// Appends all sources below a folder.
fn sources(folder: &Path, into: &mut String) {
    for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        match path.extension() {
            _ if path.is_dir() => sources(&path, into),
            Some(end) if end == "rs" => into.push_str(&fs::read_to_string(path).unwrap()),
            _ => {}
        }
    }
}

#[test]
fn tests_and_settings_of_the_page_on_security_are_there() {
    let page = fs::read_to_string(root().join("docs/security.md")).unwrap();
    let mut code = String::new();
    sources(&root().join("crates"), &mut code);
    let tests = column(&page, 5);
    assert!(tests.len() > 40, "only {} tests are named", tests.len());
    for test in tests {
        let there = if test.contains('/') {
            root().join(test).exists()
        } else {
            code.contains(&format!("fn {test}("))
        };
        assert!(there, "there is no test {test}");
    }
    let example: toml::Table =
        fs::read_to_string(root().join("holm.example.toml")).unwrap().parse().unwrap();
    for setting in column(&page, 3).into_iter().filter(|setting| setting.contains('.')) {
        let (section, key) = setting.split_once('.').unwrap();
        assert!(
            example.get(section).is_some_and(|keys| keys.get(key).is_some()),
            "there is no setting {setting}"
        );
    }
}
