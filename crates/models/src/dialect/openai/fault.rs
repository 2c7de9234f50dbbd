//! Writes errors.

use crate::chat::Fault;
use crate::dialect::faults;
use serde_json::{Value, json};

pub(super) fn write(fault: &Fault) -> Value {
    let kind = faults::openai_kind(fault.status);
    json!({"error": {
        "message": fault.message,
        "type": kind,
        "param": fault.parameter,
        "code": fault.code,
    }})
}
