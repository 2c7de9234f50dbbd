//! Files, search, watch and edits as callers see them: the real binary, over the network.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]
#![expect(clippy::print_stderr, reason = "a test that cannot run here says so")]

#[path = "../common/mod.rs"]
#[expect(dead_code, reason = "the rest is for the other tests of this crate")]
mod common;
mod copies;
mod edits;
mod entries;
mod full;
mod searches;
mod uploads;
mod watches;

/// Form data with the given fields, and its content type.
fn form(fields: &[(&str, &[u8])]) -> (Vec<u8>, &'static str) {
    let mut body = Vec::new();
    for (name, value) in fields {
        let head = format!(
            "--frontier\r\nContent-Disposition: form-data; name=\"{name}\"; filename=\"f\"\r\n\r\n"
        );
        body.extend_from_slice(head.as_bytes());
        body.extend_from_slice(value);
        body.extend_from_slice(b"\r\n");
    }
    body.extend_from_slice(b"--frontier--\r\n");
    (body, "multipart/form-data; boundary=frontier")
}
