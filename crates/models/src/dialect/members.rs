//! Reads the members of JSON objects, and knows the place of each for error messages.

use super::Unsayable;
use crate::chat::Others;
use serde_json::{Map, Number, Value};
use std::fmt;

/// A place in a body, such as `messages[2].content[0]`. It is only formatted when it is needed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct At<'a> {
    parent: Option<&'a At<'a>>,
    step: Step<'a>,
}

#[derive(Debug, Clone, Copy)]
enum Step<'a> {
    Body,
    Name(&'a str),
    Index(usize),
}

impl<'a> At<'a> {
    pub(crate) const BODY: Self = Self { parent: None, step: Step::Body };

    pub(crate) fn name(&'a self, name: &'a str) -> At<'a> {
        At { parent: Some(self), step: Step::Name(name) }
    }

    pub(crate) fn index(&'a self, index: usize) -> At<'a> {
        At { parent: Some(self), step: Step::Index(index) }
    }

    pub(crate) fn wrong(&self, why: impl Into<String>) -> Unsayable {
        Unsayable::new(self, why)
    }
}

impl fmt::Display for At<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(parent) = self.parent {
            parent.fmt(f)?;
        }
        let is_below_body = self.parent.is_some_and(|parent| matches!(parent.step, Step::Body));
        match self.step {
            Step::Body => Ok(()),
            Step::Name(name) if is_below_body => f.write_str(name),
            Step::Name(name) => write!(f, ".{name}"),
            Step::Index(index) => write!(f, "[{index}]"),
        }
    }
}

/// An object whose members are taken one by one. `null` counts as absent.
#[derive(Debug)]
pub(crate) struct Members<'v> {
    map: &'v Map<String, Value>,
    at: At<'v>,
    taken: Vec<&'static str>,
}

impl<'v> Members<'v> {
    pub(crate) fn of(value: &'v Value, at: At<'v>) -> Result<Self, Unsayable> {
        match value {
            Value::Object(map) => Ok(Self { map, at, taken: Vec::new() }),
            _ => Err(at.wrong("has to be an object")),
        }
    }

    /// Builds an error about a member.
    pub(crate) fn wrong(&self, name: &str, why: impl Into<String>) -> Unsayable {
        self.at.name(name).wrong(why)
    }

    pub(crate) fn value(&mut self, name: &'static str) -> Option<&'v Value> {
        self.taken.push(name);
        self.map.get(name).filter(|value| !value.is_null())
    }

    fn typed<T>(
        &mut self,
        name: &'static str,
        wanted: &str,
        read: impl FnOnce(&'v Value) -> Option<T>,
    ) -> Result<Option<T>, Unsayable> {
        let Some(value) = self.value(name) else { return Ok(None) };
        match read(value) {
            Some(value) => Ok(Some(value)),
            None => Err(self.wrong(name, format!("has to be {wanted}"))),
        }
    }

    pub(crate) fn text(&mut self, name: &'static str) -> Result<Option<&'v str>, Unsayable> {
        self.typed(name, "text", Value::as_str)
    }

    pub(crate) fn owned(&mut self, name: &'static str) -> Result<Option<String>, Unsayable> {
        Ok(self.text(name)?.map(str::to_owned))
    }

    pub(crate) fn must(&mut self, name: &'static str) -> Result<&'v str, Unsayable> {
        self.text(name)?.ok_or_else(|| self.wrong(name, "is missing"))
    }

    pub(crate) fn flag(&mut self, name: &'static str) -> Result<Option<bool>, Unsayable> {
        self.typed(name, "true or false", Value::as_bool)
    }

    pub(crate) fn count(&mut self, name: &'static str) -> Result<Option<u64>, Unsayable> {
        self.typed(name, "a whole number", Value::as_u64)
    }

    pub(crate) fn integer(&mut self, name: &'static str) -> Result<Option<i64>, Unsayable> {
        self.typed(name, "a whole number", Value::as_i64)
    }

    pub(crate) fn number(&mut self, name: &'static str) -> Result<Option<Number>, Unsayable> {
        self.typed(name, "a number", |value| value.as_number().cloned())
    }

    /// Takes a list, which is empty if the member is absent.
    pub(crate) fn list(&mut self, name: &'static str) -> Result<&'v [Value], Unsayable> {
        let list = self.typed(name, "a list", |value| value.as_array().map(Vec::as_slice))?;
        Ok(list.unwrap_or(&[]))
    }

    /// Takes a number of tokens from a usage, which is 0 if the member is absent.
    pub(crate) fn tokens(&mut self, name: &'static str) -> u64 {
        self.value(name).and_then(Value::as_u64).unwrap_or(0)
    }

    /// Returns all members that were not taken.
    pub(crate) fn others(self) -> Others {
        let is_left = |(name, value): &(&String, &Value)| {
            !self.taken.contains(&name.as_str()) && !value.is_null()
        };
        let left = self.map.iter().filter(is_left);
        left.map(|(name, value)| (name.clone(), value.clone())).collect()
    }

    pub(crate) fn is_absent(&self, name: &str) -> bool {
        self.map.get(name).is_none_or(Value::is_null)
    }
}

/// A JSON object under construction.
#[derive(Debug, Default)]
pub(crate) struct Object(pub(crate) Map<String, Value>);

impl Object {
    pub(crate) fn put(&mut self, name: &str, value: impl Into<Value>) {
        self.0.insert(name.to_owned(), value.into());
    }

    pub(crate) fn maybe<V: Into<Value>>(&mut self, name: &str, value: Option<V>) {
        if let Some(value) = value {
            self.put(name, value);
        }
    }
}

impl From<Object> for Value {
    fn from(object: Object) -> Self {
        Self::Object(object.0)
    }
}
