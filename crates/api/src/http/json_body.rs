//! Bodies of JSON as values and as wire types.

use crate::http::error::Error;
use crate::http::malformed::Malformed;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::sync::OnceLock;
use types::Problems;
use types::schema::Checker;

/// Beyond this, not every integer is a floating-point number of its own.
const EXACT_MAX: f64 = 9_007_199_254_740_992.0;

pub(crate) fn json(raw: &[u8]) -> Result<Value, Error> {
    if raw.is_empty() {
        return Err(Malformed::NoBody.into());
    }
    let value: Value = serde_json::from_slice(raw)
        .map_err(|error| Malformed::NotJson { line: error.line(), column: error.column() })?;
    if holds_nul(&value) {
        return Err(Malformed::BodyNul.into());
    }
    Ok(value)
}

/// Returns whether a value contains a NUL character. PostgreSQL cannot store it, and refusing it
/// everywhere keeps both databases alike.
fn holds_nul(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains('\0'),
        Value::Array(items) => items.iter().any(holds_nul),
        Value::Object(members) => {
            members.iter().any(|(name, value)| name.contains('\0') || holds_nul(value))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

/// Checks a body and reads it as its type. `body` returns it anew each time.
pub(super) fn typed<T: DeserializeOwned + JsonSchema>(
    body: &dyn Fn() -> Result<Value, Error>,
    checker: &OnceLock<Checker>,
) -> Result<T, Error> {
    let value = body()?;
    checker.get_or_init(Checker::of::<T>).check(&value)?;
    let error = match serde_path_to_error::deserialize(value) {
        Ok(read) => return Ok(read),
        Err(error) => error,
    };
    // To the schema, `512.0` is an integer. The first attempt leaves it as it is, because members
    // without a type keep the numbers that were sent.
    let mut value = body()?;
    if make_whole(&mut value)
        && let Ok(read) = serde_path_to_error::deserialize(value)
    {
        return Ok(read);
    }
    let why = format!("cannot be read: {}", error.inner());
    Err(Problems::one(error.path().to_string(), why).into())
}

/// Replaces numbers such as `512.0` by integers. Returns whether there were any.
fn make_whole(value: &mut Value) -> bool {
    // Not `any`, which would stop at the first.
    let or = |changed: bool, value: &mut Value| make_whole(value) || changed;
    match value {
        Value::Array(items) => items.iter_mut().fold(false, or),
        Value::Object(members) => members.values_mut().fold(false, or),
        Value::Number(number) => {
            let Some(whole) = whole(number) else { return false };
            *number = whole.into();
            true
        }
        Value::Null | Value::Bool(_) | Value::String(_) => false,
    }
}

fn whole(number: &serde_json::Number) -> Option<i64> {
    let float = number.as_f64().filter(|_| number.is_f64())?;
    let exact = float.fract() == 0.0 && float.abs() <= EXACT_MAX;
    exact.then_some(float as i64)
}
