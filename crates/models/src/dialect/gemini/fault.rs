//! Reads and writes errors in the format of Google's services.

use crate::chat::Fault;
use crate::dialect::faults::cut;
use crate::dialect::members::Object;
use serde_json::{Value, json};

const INFO: &str = "type.googleapis.com/google.rpc.ErrorInfo";
const BAD_REQUEST: &str = "type.googleapis.com/google.rpc.BadRequest";

/// Google's words for errors with their HTTP status. The first word of a status is the one to
/// write.
const WORDS: [(&str, u16); 16] = [
    ("INVALID_ARGUMENT", 400),
    ("FAILED_PRECONDITION", 400),
    ("OUT_OF_RANGE", 400),
    ("UNAUTHENTICATED", 401),
    ("PERMISSION_DENIED", 403),
    ("NOT_FOUND", 404),
    ("ABORTED", 409),
    ("ALREADY_EXISTS", 409),
    ("RESOURCE_EXHAUSTED", 429),
    ("CANCELLED", 499),
    ("INTERNAL", 500),
    ("UNKNOWN", 500),
    ("DATA_LOSS", 500),
    ("UNIMPLEMENTED", 501),
    ("UNAVAILABLE", 503),
    ("DEADLINE_EXCEEDED", 504),
];

pub(super) fn read(status: u16, body: &[u8]) -> Fault {
    let text = || cut(String::from_utf8_lossy(body).trim());
    let Ok(value) = serde_json::from_slice::<Value>(body) else {
        return Fault { status, message: text(), ..Fault::default() };
    };
    // Streams without `?alt=sse` have it in a list.
    let value = value.as_array().and_then(|list| list.first()).unwrap_or(&value);
    match value.get("error") {
        Some(error) => of_error(error, status),
        None => Fault { status, message: text(), ..Fault::default() },
    }
}

/// Reads the content of `error`, in an answer or in a stream. `otherwise` is the status if the
/// error has none.
pub(super) fn of_error(error: &Value, otherwise: u16) -> Fault {
    if let Value::String(message) = error {
        return Fault { status: otherwise, message: cut(message), ..Fault::default() };
    }
    let text = |value: &Value, name: &str| value.get(name)?.as_str().map(cut);
    let code = error.get("code").and_then(Value::as_u64).and_then(|code| u16::try_from(code).ok());
    let details = error.get("details").and_then(Value::as_array);
    let detail = |kind: &str| {
        details?.iter().find(|detail| detail.get("@type").and_then(Value::as_str) == Some(kind))
    };
    let field = detail(BAD_REQUEST)
        .and_then(|detail| detail.get("fieldViolations")?.get(0))
        .and_then(|violation| text(violation, "field"));
    Fault {
        status: code.filter(|code| (400..600).contains(code)).unwrap_or(otherwise),
        kind: text(error, "status"),
        code: detail(INFO).and_then(|detail| text(detail, "reason")),
        parameter: field.filter(|field| !field.is_empty()),
        message: text(error, "message").unwrap_or_default(),
    }
}

pub(super) fn write(fault: &Fault) -> Value {
    let own = fault.kind.as_deref().filter(|kind| WORDS.iter().any(|(word, _)| word == kind));
    let of_status = WORDS.iter().find(|(_, status)| *status == fault.status);
    let otherwise = if fault.status < 500 { "INVALID_ARGUMENT" } else { "INTERNAL" };
    let word = own.or(of_status.map(|(word, _)| *word)).unwrap_or(otherwise);
    let mut details = Vec::new();
    if let Some(code) = &fault.code {
        details.push(json!({ "@type": INFO, "reason": code }));
    }
    if let Some(parameter) = &fault.parameter {
        let violation = json!({ "field": parameter, "description": fault.message });
        details.push(json!({ "@type": BAD_REQUEST, "fieldViolations": [violation] }));
    }
    let mut error = Object::default();
    error.put("code", fault.status);
    error.put("message", fault.message.as_str());
    error.put("status", word);
    if !details.is_empty() {
        error.put("details", details);
    }
    json!({ "error": Value::from(error) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_message_is_passed_on_at_any_length() {
        let long = "x".repeat(1 << 20);
        for body in [
            long.clone(),
            json!({ "error": long }).to_string(),
            json!({ "error": { "message": long, "status": long } }).to_string(),
            json!({ "other": long }).to_string(),
        ] {
            let fault = read(500, body.as_bytes());
            let told = fault.message.len() + fault.kind.map_or(0, |kind| kind.len());
            assert!((1..10_000).contains(&told), "{told}");
        }
    }
}
