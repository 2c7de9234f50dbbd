//! Reads messages of JSON-RPC.

use serde::Deserialize;
use serde_json::{Map, Value};

/// The id of a message, which the answer repeats.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub(super) enum Id {
    Number(i64),
    Text(String),
}

impl Id {
    pub(super) fn json(&self) -> Value {
        match self {
            Self::Number(number) => (*number).into(),
            Self::Text(text) => text.as_str().into(),
        }
    }
}

/// Returns the `result` of a message, if it answers the question with this id and has the whole
/// list.
pub(super) fn result_of(message: &[u8], id: &Id) -> Option<String> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Answer {
        jsonrpc: String,
        id: Id,
        result: Map<String, Value>,
    }
    let answer: Answer = serde_json::from_slice(message).ok()?;
    let is_whole = answer.result.get("nextCursor").is_none_or(Value::is_null);
    let is_list = answer.result.get("tools").is_some_and(Value::is_array);
    (answer.jsonrpc == "2.0" && answer.id == *id && is_whole && is_list)
        .then(|| Value::Object(answer.result).to_string())
}

/// Returns the one message of a stream of events. `None` means there are others.
pub(super) fn only_message(stream: &[u8]) -> Option<String> {
    let mut only = None;
    let (mut data, mut is_message) = (String::new(), true);
    for line in std::str::from_utf8(stream).ok()?.lines() {
        if line.is_empty() {
            // An event without data only says where the stream could be resumed.
            if !data.is_empty()
                && (!is_message || only.replace(std::mem::take(&mut data)).is_some())
            {
                return None;
            }
            (data, is_message) = (String::new(), true);
            continue;
        }
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match name {
            "data" => {
                if !data.is_empty() {
                    data.push('\n');
                }
                data.push_str(value);
            }
            "event" => is_message = value == "message",
            _ => {}
        }
    }
    only
}
