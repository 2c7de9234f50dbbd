//! Settings of which each is right alone, and bounds of what the kernel can do.

use super::*;
use std::os::unix::ffi::OsStringExt as _;

#[test]
fn limits_that_nothing_could_work_with_are_refused() {
    for (key, least, most) in [
        ("node.processes_max", 0, 4_194_304),
        ("node.pids_max", 4, 4_194_304),
        ("node.terminals_max", 1, 1_048_576),
        ("node.open_files_max", 16, 1 << 42),
        ("node.drive_mb", 0, 16_777_215),
        ("builder.disk_mb", 1, 16_777_215),
        ("builder.memory_mb", 16, u64::from(u32::MAX)),
    ] {
        let line = |count: u64| format!("{key} = {count}");
        for right in [least, most] {
            load_text(&line(right)).unwrap_or_else(|error| panic!("{error}"));
        }
        if least > 0 {
            refused(&line(least - 1), &["holm.toml:1", key, &format!("at least {least}")]);
        }
        refused(&line(most + 1), &["holm.toml:1", key]);
    }
}

#[test]
fn a_variable_that_is_no_text_is_not_passed_over() {
    let bytes = || std::ffi::OsString::from_vec(vec![b'/', 0xff]);
    let load_variable =
        |name: &str| load(None, std::iter::once((name.to_owned(), bytes())), &[]).map(drop);
    let said = load_variable("HOLM_DATA__FOLDER").unwrap_err().to_string();
    assert!(said.contains("HOLM_DATA__FOLDER: `data.folder`") && said.contains("UTF-8"), "{said}");
    load_variable("HOLM_DATA_HOME").unwrap();
    load_variable("PATH").unwrap();
}
