//! Turns Google's `Schema`, a subset of OpenAPI's, into a JSON schema.

use super::camel;
use serde_json::{Map, Value};

/// Greatest depth that is converted. Deeper schemas stay as they are; nobody has them on purpose.
const DEPTH_MAX: usize = 64;

pub(super) fn to_json_schema(schema: &Value) -> Value {
    convert(schema, DEPTH_MAX)
}

fn convert(schema: &Value, depth: usize) -> Value {
    let (Value::Object(map), Some(depth)) = (schema, depth.checked_sub(1)) else {
        return schema.clone();
    };
    let mut found = Map::new();
    let mut is_nullable = false;
    for (name, value) in map {
        let name = camel::name_of(name);
        let value = match (name.as_str(), value) {
            ("type", Value::String(word)) if word == "TYPE_UNSPECIFIED" => continue,
            ("type", Value::String(word)) => Value::String(word.to_ascii_lowercase()),
            ("nullable", value) => {
                is_nullable = value.as_bool().unwrap_or(false);
                continue;
            }
            // The order in which a model writes members, which a JSON schema cannot express.
            ("propertyOrdering", _) => continue,
            ("example", value) => {
                found.insert("examples".to_owned(), Value::Array(vec![value.clone()]));
                continue;
            }
            ("properties" | "defs", Value::Object(map)) => {
                let each = map.iter().map(|(name, value)| (name.clone(), convert(value, depth)));
                Value::Object(each.collect())
            }
            ("items" | "additionalProperties", value) => convert(value, depth),
            ("anyOf", Value::Array(list)) => {
                Value::Array(list.iter().map(|value| convert(value, depth)).collect())
            }
            // Google's JSON has 64-bit integers as text.
            (
                "minItems" | "maxItems" | "minLength" | "maxLength" | "minProperties"
                | "maxProperties",
                Value::String(text),
            ) => text.parse::<u64>().map_or_else(|_| value.clone(), Value::from),
            ("format", Value::String(word)) if word == "enum" => continue,
            (_, value) => value.clone(),
        };
        let name = match name.as_str() {
            "defs" => "$defs",
            "ref" => "$ref",
            name => name,
        };
        found.insert(name.to_owned(), value);
    }
    if is_nullable {
        make_nullable(&mut found);
    }
    Value::Object(found)
}

fn make_nullable(schema: &mut Map<String, Value>) {
    if let Some(word @ Value::String(_)) = schema.get("type").cloned() {
        schema.insert("type".to_owned(), Value::Array(vec![word, Value::from("null")]));
        if let Some(Value::Array(words)) = schema.get_mut("enum")
            && !words.contains(&Value::Null)
        {
            words.push(Value::Null);
        }
    } else if let Some(Value::Array(list)) = schema.get_mut("anyOf") {
        list.push(serde_json::json!({ "type": "null" }));
    }
}
