//! Reads and writes errors.

use crate::chat::Fault;
use crate::dialect::faults;
use crate::dialect::members::Object;
use serde_json::{Value, json};

/// The words by which agents recognize that a conversation has become too long.
const TOO_LONG: &str = "prompt is too long";

pub(super) fn read(status: u16, body: &[u8]) -> Fault {
    recognized(faults::read(status, body))
}

/// Recognizes a conversation that is too long, which only the message says.
pub(super) fn recognized(mut fault: Fault) -> Fault {
    if fault.code.is_none() && fault.message.starts_with(TOO_LONG) {
        fault.code = Some(faults::TOO_LONG.to_owned());
    }
    fault
}

pub(super) fn write(fault: &Fault) -> Value {
    let mut error = Object::default();
    error.put("type", faults::anthropic_kind(fault.status));
    error.put("message", message_of(fault));
    error.maybe("code", fault.code.as_deref());
    json!({"type": "error", "error": Value::from(error)})
}

fn message_of(fault: &Fault) -> String {
    match fault.code.as_deref() {
        Some(faults::TOO_LONG) if !fault.message.contains(TOO_LONG) => {
            format!("{TOO_LONG}: {}", fault.message)
        }
        _ => fault.message.clone(),
    }
}
