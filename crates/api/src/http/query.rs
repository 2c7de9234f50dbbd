//! Query parameters: how they are read, and those shared by many operations.

pub(crate) use control::query::{AgeSort, Flag, ListQuery, NameSort, Sort};

use crate::http::call::Query;
use crate::http::error::Error;
use crate::http::malformed::Malformed;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Deserialize;
use serde_json::Value;

/// No query parameters.
#[derive(Debug, Default, Deserialize, JsonSchema)]
pub(crate) struct NoQuery {}

#[derive(Debug, Default, Deserialize, JsonSchema)]
pub(crate) struct ShowSecrets {
    /// Whether to show the values of secrets; only for administrators of the workspace.
    #[serde(default)]
    pub show_secrets: Flag,
}

pub(super) fn parse_query<Q: Query>(query: &str) -> Result<Q, Error> {
    let given = given(query)?;
    let pairs = serde_urlencoded::Deserializer::new(form_urlencoded::parse(given.as_bytes()));
    serde_path_to_error::deserialize(pairs).map_err(|error| {
        let (name, why) = (error.path().to_string(), error.inner().to_string());
        wrong_parameter(name, why, &Q::json_schema(&mut SchemaGenerator::default())).into()
    })
}

/// Says what is wrong with a parameter, in words of the interface where the parser has others.
fn wrong_parameter(name: String, why: String, schema: &Schema) -> Malformed {
    // The parser names a parameter that is given twice only in its message.
    let twice = why.strip_prefix("duplicate field `").and_then(|rest| rest.strip_suffix('`'));
    if let Some(name) = twice {
        return Malformed::QueryTwice { name: name.to_owned() };
    }
    let is_integer = match schema.as_value().pointer(&format!("/properties/{name}/type")) {
        Some(Value::Array(kinds)) => kinds.iter().any(|kind| kind == "integer"),
        kind => kind.is_some_and(|kind| kind == "integer"),
    };
    let why = if is_integer { "must be a whole number".to_owned() } else { why };
    Malformed::Query { name, why }
}

/// Removes parameters with empty values, which clients send to mean "not given".
fn given(query: &str) -> Result<String, Error> {
    let pairs = form_urlencoded::parse(query.as_bytes());
    if pairs.clone().any(|(name, value)| name.contains('\0') || value.contains('\0')) {
        return Err(Malformed::QueryNul.into());
    }
    let given = pairs.filter(|(_, value)| !value.is_empty());
    Ok(form_urlencoded::Serializer::new(String::new()).extend_pairs(given).finish())
}
