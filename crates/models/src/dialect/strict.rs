//! Checks and closes schemas that a model is held to. OpenAI and Anthropic do not take objects that
//! allow other members, and OpenAI does not take objects with optional members.

use super::Losses;
use crate::chat::Tool;
use serde_json::{Map, Value};
use std::borrow::Cow;

/// Members of a schema whose values are maps of schemas, and those that are lists of schemas.
const BY_NAME: [&str; 3] = ["properties", "$defs", "definitions"];
const LISTS: [&str; 4] = ["anyOf", "allOf", "oneOf", "prefixItems"];

fn is_object(schema: &Map<String, Value>) -> bool {
    let is_type = match &schema.get("type") {
        Some(Value::String(one)) => one == "object",
        Some(Value::Array(types)) => types.iter().any(|one| one == "object"),
        _ => false,
    };
    is_type || schema.contains_key("properties")
}

fn is_within(name: &str) -> bool {
    name == "items" || BY_NAME.contains(&name) || LISTS.contains(&name)
}

/// Returns the schemas within a member of a schema.
fn schemas<'s>(name: &str, value: &'s Value) -> Vec<&'s Value> {
    match value {
        Value::Object(map) if BY_NAME.contains(&name) => map.values().collect(),
        Value::Array(list) => list.iter().collect(),
        other => vec![other],
    }
}

/// Returns whether OpenAI takes the schema as a strict one.
pub(crate) fn is_strict(schema: &Value) -> bool {
    let Value::Object(map) = schema else { return true };
    let is_required = |name: &String| {
        map.get("required")
            .and_then(Value::as_array)
            .is_some_and(|all| all.iter().any(|one| one == name))
    };
    let names = map.get("properties").and_then(Value::as_object);
    let is_whole = names.is_none_or(|names| names.keys().all(is_required));
    let is_closed = map.get("additionalProperties") == Some(&Value::Bool(false));
    if is_object(map) && !(is_closed && is_whole) {
        return false;
    }
    let mut within = map.iter().filter(|(name, _)| is_within(name));
    within.all(|(name, value)| schemas(name, value).into_iter().all(is_strict))
}

pub(crate) fn of_answer(strict: Option<bool>, schema: &Value, losses: &mut Losses) -> Option<bool> {
    if strict == Some(true) && !is_strict(schema) {
        losses.note("response_format.strict");
        return Some(false);
    }
    strict
}

pub(crate) fn of_tool(tool: &Tool, losses: &mut Losses) -> Option<bool> {
    if tool.strict == Some(true) && !tool.parameters.as_ref().is_none_or(is_strict) {
        losses.note("tools.strict");
        return Some(false);
    }
    tool.strict
}

/// Forbids other members in every object that does not say whether it allows them.
pub(crate) fn closed(schema: &Value) -> Cow<'_, Value> {
    let mut closed = schema.clone();
    match close(&mut closed) {
        true => Cow::Owned(closed),
        false => Cow::Borrowed(schema),
    }
}

/// Closes a schema. Returns whether anything changed.
fn close(schema: &mut Value) -> bool {
    let Value::Object(map) = schema else { return false };
    let is_open = is_object(map) && !map.contains_key("additionalProperties");
    if is_open {
        map.insert("additionalProperties".to_owned(), Value::Bool(false));
    }
    let mut is_changed = is_open;
    for (name, value) in map.iter_mut().filter(|(name, _)| is_within(name)) {
        let found: Vec<&mut Value> = match value {
            Value::Object(map) if BY_NAME.contains(&name.as_str()) => map.values_mut().collect(),
            Value::Array(list) => list.iter_mut().collect(),
            other => vec![other],
        };
        for schema in found {
            is_changed |= close(schema);
        }
    }
    is_changed
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn open_objects_are_found_and_closed_wherever_they_stand() {
        let object = json!({"type": "object", "properties": {"a": {"type": "string"}},
                            "required": ["a"]});
        for (name, schema) in [
            ("itself", object.clone()),
            ("a list", json!({"type": "array", "items": object})),
            ("one of several", json!({"anyOf": [{"type": "null"}, object]})),
            ("a definition", json!({"$ref": "#/$defs/a", "$defs": {"a": object}})),
            ("one that may be null", json!({"type": ["object", "null"]})),
        ] {
            assert!(!is_strict(&schema), "{name}");
            let closed = closed(&schema);
            assert!(is_strict(&closed), "{name}: {closed}");
            assert!(matches!(super::closed(&closed), Cow::Borrowed(_)), "{name}");
        }
    }

    #[test]
    fn a_member_that_may_be_absent_is_not_strict() {
        let properties = json!({"required": {"type": "string"}, "items": {"type": "string"}});
        let mut schema = json!({"type": "object", "properties": properties,
                                "additionalProperties": false, "required": ["items"]});
        assert!(!is_strict(&schema));
        schema["required"] = json!(["items", "required"]);
        assert!(is_strict(&schema));
    }
}
