//! Writes server-sent events.

use bytes::{BufMut, BytesMut};
use serde_json::Value;

/// Writes an event without a name, as in chat completions.
pub(crate) fn data(out: &mut BytesMut, value: &Value) {
    out.extend_from_slice(b"data: ");
    json(out, value);
    out.extend_from_slice(b"\n\n");
}

pub(crate) fn named(out: &mut BytesMut, name: &str, value: &Value) {
    out.extend_from_slice(b"event: ");
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\n");
    data(out, value);
}

/// Writes a comment, which readers skip.
pub(crate) fn comment(out: &mut BytesMut) {
    out.extend_from_slice(b": ping\n\n");
}

fn json(out: &mut BytesMut, value: &Value) {
    #[expect(
        clippy::expect_used,
        reason = "a value has text for keys, and memory takes all of it"
    )]
    serde_json::to_writer(out.writer(), value).expect("JSON is written into memory");
}
