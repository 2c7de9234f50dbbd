//! Reads the errors of providers, and those of proxies and load balancers in front of them.

use crate::chat::Fault;
use serde_json::Value;

/// Longest message that is passed on. A body that is not JSON may have any length.
const MESSAGE_MAX: usize = 4096;

/// The code on which agents shorten their conversation and try again.
pub(crate) const TOO_LONG: &str = "context_length_exceeded";

/// What providers write in that case, in lower case.
const TOO_LONG_WORDS: [&str; 10] = [
    TOO_LONG,
    "string_above_max_length",
    "maximum context length",
    "prompt is too long",
    "input token count",
    "too many tokens",
    "exceeds the maximum number of tokens",
    "context window",
    "context limit",
    "range of input length",
];

/// Returns whether a provider's error says that a conversation has become too long.
pub fn is_too_long(error: &[u8]) -> bool {
    let lower = error.to_ascii_lowercase();
    TOO_LONG_WORDS.iter().any(|word| memchr::memmem::find(&lower, word.as_bytes()).is_some())
}

/// Sets the code that agents look for, whatever the provider calls this error.
pub(crate) fn recognized(fault: Fault) -> Fault {
    match fault.status {
        400 | 413 | 422 if is_too_long(fault.message.as_bytes()) => {
            Fault { code: Some(TOO_LONG.to_owned()), ..fault }
        }
        _ => fault,
    }
}

/// Reads `{"error": {…}}`, `{"error": "…"}`, `{"message": "…"}`, a list of one of them, or any
/// text.
pub(crate) fn read(status: u16, body: &[u8]) -> Fault {
    match serde_json::from_slice::<Value>(body) {
        Ok(Value::Array(list)) if !list.is_empty() => of_json(status, &list[0]),
        Ok(body) => of_json(status, &body),
        Err(_) => {
            Fault { status, message: cut(&String::from_utf8_lossy(body)), ..Fault::default() }
        }
    }
}

pub(crate) fn of_json(status: u16, body: &Value) -> Fault {
    let error = match &body["error"] {
        Value::Null => body,
        error => error,
    };
    let text = |name: &str| match &error[name] {
        Value::String(text) if !text.is_empty() => Some(cut(text)),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    };
    let message = match error {
        Value::String(message) => Some(cut(message)),
        _ => text("message").or_else(|| text("detail")),
    };
    Fault {
        status,
        kind: text("type").or_else(|| text("status")),
        code: text("code"),
        parameter: text("param"),
        message: message.unwrap_or_else(|| cut(&body.to_string())),
    }
}

pub(crate) fn cut(text: &str) -> String {
    match text.char_indices().find(|(at, _)| *at >= MESSAGE_MAX) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

/// Returns the word that OpenAI and compatible providers use for errors of this status.
pub(crate) const fn openai_kind(status: u16) -> &'static str {
    match status {
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        429 => "rate_limit_error",
        400..500 => "invalid_request_error",
        _ => "server_error",
    }
}

pub(crate) const fn anthropic_kind(status: u16) -> &'static str {
    match status {
        401 => "authentication_error",
        402 => "billing_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        400..500 => "invalid_request_error",
        504 => "timeout_error",
        503 | 529 => "overloaded_error",
        _ => "api_error",
    }
}

/// Finds the status for a provider's word: within a stream there is no status any more.
pub(crate) fn status_of(kind: Option<&str>, code: Option<&str>) -> u16 {
    // Some kinds say nothing: streams of Responses have `error` there.
    kind.and_then(status_of_word).or_else(|| code.and_then(status_of_word)).unwrap_or(500)
}

fn status_of_word(word: &str) -> Option<u16> {
    Some(match word {
        "invalid_request_error" | "invalid_prompt" | TOO_LONG => 400,
        "authentication_error" => 401,
        "billing_error" | "insufficient_quota" => 402,
        "permission_error" => 403,
        "not_found_error" => 404,
        "request_too_large" => 413,
        "rate_limit_error" | "rate_limit_exceeded" | "tokens" | "requests" => 429,
        "timeout_error" => 504,
        "overloaded_error" => 529,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_code_decides_where_the_kind_says_nothing() {
        for (kind, code, status) in [
            (Some("error"), Some("insufficient_quota"), 402),
            (Some("server_error"), Some("rate_limit_exceeded"), 429),
            (Some("invalid_request_error"), Some("insufficient_quota"), 400),
            (None, Some("invalid_prompt"), 400),
            (Some("error"), Some("server_error"), 500),
            (None, None, 500),
        ] {
            assert_eq!(status_of(kind, code), status, "{kind:?} {code:?}");
        }
    }
}
