//! `${secrets.NAME}` in documents, so that they can be shared without their secrets.

use super::Document;
use crate::error::Error;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

pub(crate) const OPEN: &str = "${secrets.";

/// Secrets by name, from `--secret`, then from files, then from the environment.
#[derive(Default)]
pub(crate) struct Secrets {
    given: BTreeMap<String, String>,
}

impl Secrets {
    pub(crate) fn read(files: &[PathBuf], pairs: &[String]) -> Result<Self, Error> {
        let mut given = BTreeMap::new();
        for file in files {
            let text = fs::read_to_string(file)
                .map_err(Error::reading(format!("read {}", file.display())))?;
            for (at, line) in text.lines().enumerate() {
                let place = || format!("{}:{}", file.display(), at + 1);
                if let Some((name, value)) = parse_line(line)
                    .map_err(|message| Error::Document { place: place(), message })?
                {
                    given.insert(name, value);
                }
            }
        }
        for pair in pairs {
            let (name, value) = pair
                .split_once('=')
                .ok_or_else(|| Error::Usage("write --secret NAME=VALUE".into()))?;
            given.insert(name.to_owned(), value.to_owned());
        }
        Ok(Self { given })
    }

    /// Fills in a document's secrets. This happens after parsing, so a value may contain anything
    /// and cannot change the structure.
    pub(crate) fn fill(&self, document: &mut Document) -> Result<(), Error> {
        let mut body = document.body.take();
        let filled = self.fill_value(&mut body);
        document.body = body;
        filled.map_err(|name| {
            document.wrong(format!(
                "`{OPEN}{name}}}` has no value: give it with --secret, --env-file or as a variable"
            ))
        })
    }

    /// Fills in the texts of a value. The error is the name of the missing secret.
    pub(crate) fn fill_value(&self, value: &mut Value) -> Result<(), String> {
        match value {
            Value::String(text) => {
                *text = self.fill_text(text)?;
                Ok(())
            }
            Value::Array(items) => items.iter_mut().try_for_each(|item| self.fill_value(item)),
            Value::Object(members) => {
                members.values_mut().try_for_each(|member| self.fill_value(member))
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => Ok(()),
        }
    }

    fn fill_text(&self, text: &str) -> Result<String, String> {
        let mut filled = String::with_capacity(text.len());
        let mut rest = text;
        while let Some((before, after)) = rest.split_once(OPEN) {
            filled.push_str(before);
            let (name, after) = after.split_once('}').ok_or_else(|| after.to_owned())?;
            filled.push_str(&self.value(name).ok_or_else(|| name.to_owned())?);
            rest = after;
        }
        filled.push_str(rest);
        Ok(filled)
    }

    /// Returns the values that were given, without those from the environment.
    pub(crate) fn given(&self) -> impl Iterator<Item = (&str, &str)> {
        self.given.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    fn value(&self, name: &str) -> Option<String> {
        // Names with `=` or NUL cannot be set, so `env::var` just finds nothing.
        self.given.get(name).cloned().or_else(|| std::env::var(name).ok())
    }
}

/// Parses one line of an env file: `NAME=VALUE`, with optional `export`, quotes and `#` comments.
fn parse_line(line: &str) -> Result<Option<(String, String)>, String> {
    let line = line.trim();
    if line.is_empty() || line.starts_with('#') {
        return Ok(None);
    }
    let line = line.strip_prefix("export ").unwrap_or(line);
    let (name, value) = line.split_once('=').ok_or_else(|| "write NAME=VALUE".to_owned())?;
    let value = value.trim();
    let quoted =
        ['"', '\''].iter().find_map(|quote| value.strip_prefix(*quote)?.strip_suffix(*quote));
    Ok(Some((name.trim().to_owned(), quoted.unwrap_or(value).to_owned())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::apply::documents::split;
    use proptest::prelude::*;

    #[test]
    fn secrets_fill_texts_and_change_no_structure() {
        let secrets = Secrets { given: [("KEY".to_owned(), "a\"b: {c".to_owned())].into() };
        let mut document =
            split("x", "kind: Agent\nspec: {value: \"<${secrets.KEY}>\"}").unwrap().remove(0);
        secrets.fill(&mut document).unwrap();
        assert_eq!(document.body["spec"]["value"], "<a\"b: {c>");
    }

    #[test]
    fn a_missing_secret_is_named() {
        let mut document =
            split("x", "kind: Agent\nspec: \"${secrets.HOLM_SURELY_MISSING}\"").unwrap().remove(0);
        let error = Secrets { given: BTreeMap::new() }.fill(&mut document).unwrap_err().to_string();
        assert!(error.contains("HOLM_SURELY_MISSING"), "{error}");
    }

    #[test]
    fn env_files_are_read_as_people_write_them() {
        let read = |line| parse_line(line).unwrap();
        assert_eq!(read("export A=\"b c\""), Some(("A".into(), "b c".into())));
        assert_eq!(read(" A = b "), Some(("A".into(), "b".into())));
        assert_eq!(read("# A=b"), None);
        assert!(parse_line("nonsense").is_err());
    }

    proptest! {
        #[test]
        fn any_text_is_filled_or_refused(text in ".*") {
            let secrets = Secrets { given: BTreeMap::new() };
            let filled = secrets.fill_text(&text);
            if !text.contains(OPEN) {
                prop_assert_eq!(filled, Ok(text));
            }
        }
    }
}
