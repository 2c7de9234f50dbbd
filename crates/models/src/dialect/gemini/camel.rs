//! Turns members into `camelCase`. Google takes them in `snake_case` too.

use serde_json::Value;
use std::borrow::Cow;

/// Members whose contents are named by callers and models, so they stay as they are.
const OPAQUE: [&str; 8] = [
    "args",
    "response",
    "parameters",
    "parametersJsonSchema",
    "responseSchema",
    "responseJsonSchema",
    "_responseJsonSchema",
    "labels",
];

/// Returns the body with its members in camel case. It is copied only if one is not.
pub(super) fn of(body: &Value) -> Cow<'_, Value> {
    if has_snakes(body) { Cow::Owned(changed(body)) } else { Cow::Borrowed(body) }
}

fn has_snakes(value: &Value) -> bool {
    match value {
        Value::Object(map) => map.iter().any(|(name, value)| {
            is_snake(name) || (!OPAQUE.contains(&name.as_str()) && has_snakes(value))
        }),
        Value::Array(list) => list.iter().any(has_snakes),
        _ => false,
    }
}

fn is_snake(name: &str) -> bool {
    name.trim_start_matches('_').contains('_')
}

fn changed(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let change = |(name, value): (&String, &Value)| {
                let name = name_of(name);
                let is_opaque = OPAQUE.contains(&name.as_str());
                (name, if is_opaque { value.clone() } else { changed(value) })
            };
            Value::Object(map.iter().map(change).collect())
        }
        Value::Array(list) => Value::Array(list.iter().map(changed).collect()),
        other => other.clone(),
    }
}

/// Turns a name such as `max_output_tokens` into `maxOutputTokens`.
pub(super) fn name_of(name: &str) -> String {
    let rest = name.trim_start_matches('_');
    let mut found = name[..name.len() - rest.len()].to_owned();
    for (index, word) in rest.split('_').enumerate() {
        let mut letters = word.chars();
        match letters.next() {
            Some(first) if index > 0 => found.extend(first.to_uppercase()),
            Some(first) => found.push(first),
            None => {}
        }
        found.push_str(letters.as_str());
    }
    found
}
