//! Members of a document that are not in the object that the server made of it. The interface
//! ignores names that it does not know, so a mistyped one would be lost without a word.

use serde_json::Value;

/// Members that are kept and not shown: secrets of rules, and an older name of `domainType`.
const NOT_SHOWN: [&str; 2] = ["secrets", "type"];

/// Returns the paths of members below `spec` that the object does not have.
pub(crate) fn left_out(document: &Value, object: &Value) -> Vec<String> {
    let mut found = Vec::new();
    if document.pointer("/spec/revision/active").is_some() {
        // The object is as it was in that revision.
        return found;
    }
    if let (Some(sent), Some(kept)) = (document.get("spec"), object.get("spec")) {
        compare("spec", sent, kept, &mut found);
    }
    found
}

fn compare(path: &str, sent: &Value, kept: &Value, found: &mut Vec<String>) {
    match (sent, kept) {
        (Value::Object(sent), Value::Object(kept)) => {
            for (name, value) in sent.iter().filter(|(_, value)| says_something(value)) {
                let path = format!("{path}.{name}");
                match kept.get(name) {
                    Some(kept) => compare(&path, value, kept, found),
                    None if NOT_SHOWN.contains(&name.as_str()) => {}
                    None => found.push(path),
                }
            }
        }
        (Value::Array(sent), Value::Array(kept)) if sent.len() == kept.len() => {
            for (index, (sent, kept)) in sent.iter().zip(kept).enumerate() {
                compare(&format!("{path}[{index}]"), sent, kept, found);
            }
        }
        _ => {}
    }
}

/// Whether a value differs from what the absence of its member means.
fn says_something(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => false,
        Value::Bool(true) => true,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(members) => members.values().any(says_something),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_the_object_does_not_have_is_named() {
        let document = json!({
            "metadata": {"nmae": "a"},
            "spec": {
                "enabled": false, "port": 0, "image": "a", "runtime": {"memroy": 1, "ttl": ""},
                "envs": [{"name": "A", "vlaue": "b"}], "volumes": [], "mine": {"x": null},
                "secrets": {"key": "hush"},
            },
        });
        let object =
            json!({"spec": {"image": "A", "runtime": {"memory": 2048}, "envs": [{"name": "A"}]}});
        let mut found = left_out(&document, &object);
        found.sort_unstable();
        assert_eq!(found, ["spec.envs[0].vlaue", "spec.runtime.memroy"]);
    }
}
