//! Settings of which each is right alone, and bounds of what the kernel can do.

use super::*;
use std::os::unix::ffi::OsStringExt as _;

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
