//! Layers of settings, each overriding the one below; every value remembers where it was set.
//!
//! The defaults also define which keys exist and what types they have: any other key is an error.

use super::Config;
use super::error::{Error, Wrong};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use toml::de::{DeTable, DeValue};
use toml::{Spanned, Table, Value};

/// The commented file with every key and its default.
pub(crate) const EXAMPLE: &str = include_str!("../../../../holm.example.toml");
/// Environment variables with this prefix and a double underscore after it are settings.
const VARIABLE: &str = "HOLM_";
/// Least similarity to a known key at which that key is suggested.
const LIKENESS_MIN: f64 = 0.7;
const LONG_NUMBER: &str = "has a number that is larger than any setting can be";

/// All settings by dotted key, each with the place where it was set.
#[derive(Debug)]
pub(crate) struct Layers {
    settings: BTreeMap<String, Setting>,
}

#[derive(Debug)]
struct Setting {
    value: Value,
    /// Where it was set; nowhere if it has its default.
    place: Option<String>,
    default: Value,
}

impl Layers {
    pub(crate) fn defaults() -> Result<Self, Error> {
        let mut layers = Self { settings: BTreeMap::new() };
        for (key, value, _) in flatten("holm.example.toml", EXAMPLE)? {
            layers.settings.insert(key, Setting { default: value.clone(), value, place: None });
        }
        Ok(layers)
    }

    pub(crate) fn lay_file(&mut self, name: &str, text: &str) -> Result<(), Error> {
        for (key, value, line) in flatten(name, text)? {
            self.lay(&key, value, format!("{name}:{line}"))?;
        }
        Ok(())
    }

    /// Reads `HOLM_SECTION__KEY`; variables of any other form are ignored.
    pub(crate) fn lay_variable(&mut self, name: &str, text: &OsStr) -> Result<(), Error> {
        let Some(path) = name.strip_prefix(VARIABLE).filter(|path| path.contains("__")) else {
            return Ok(());
        };
        let key = path.to_ascii_lowercase().replace("__", ".");
        let place = format!("environment variable {name}");
        let Some(text) = text.to_str() else {
            let message = "is no text: its bytes are not UTF-8".to_owned();
            return Err(Error::WrongValue { place, key, message });
        };
        self.lay_text(&key, text, place)
    }

    /// Returns a warning if a variable would be a setting with another underscore.
    pub(crate) fn almost_read(&self, name: &str) -> Option<String> {
        let path = name.strip_prefix(VARIABLE)?.to_ascii_lowercase();
        let key = self.settings.keys().find(|key| key.replace('.', "_") == path)?;
        let meant = key.to_ascii_uppercase().replace('.', "__");
        Some(format!("environment variable {name} is not read: did you mean {VARIABLE}{meant}?"))
    }

    pub(crate) fn lay_flag(&mut self, key: &str, text: &str) -> Result<(), Error> {
        self.lay_text(key, text, "command line".to_owned())
    }

    /// Takes the text literally if the setting is a string, else parses it as a TOML value.
    fn lay_text(&mut self, key: &str, text: &str, place: String) -> Result<(), Error> {
        match self.settings.get(key) {
            Some(known) if !known.value.is_str() => {
                let value = text.parse::<Value>().map_err(|_| {
                    let message = match is_long_number(text) {
                        true => LONG_NUMBER.to_owned(),
                        false => must_be(&known.default, &format!("`{text}`")),
                    };
                    Error::WrongValue { place: place.clone(), key: key.to_owned(), message }
                })?;
                self.lay(key, value, place)
            }
            _ => self.lay(key, Value::String(text.to_owned()), place),
        }
    }

    fn lay(&mut self, key: &str, value: Value, place: String) -> Result<(), Error> {
        let is_empty = value.as_table().is_some_and(Table::is_empty);
        if is_empty && self.is_section(key) {
            return Ok(());
        }
        let Some(known) = self.settings.get_mut(key) else {
            return Err(Error::UnknownKey { place, key: key.to_owned(), hint: self.hint(key) });
        };
        if let Some(message) = unfit(&known.default, &value) {
            return Err(Error::WrongValue { place, key: key.to_owned(), message });
        }
        known.value = value;
        known.place = Some(place);
        Ok(())
    }

    fn is_section(&self, key: &str) -> bool {
        let section = format!("{key}.");
        self.settings.keys().any(|known| known.starts_with(&section))
    }

    fn hint(&self, key: &str) -> String {
        if self.is_section(key) {
            return format!(" (`{key}` is a section: write `[{key}]`)");
        }
        let likeness =
            |known: &String| strsim::jaro_winkler(key, known).max(last_parts_alike(key, known));
        let nearest = self.settings.keys().max_by(|a, b| likeness(a).total_cmp(&likeness(b)));
        nearest
            .filter(|known| likeness(known) >= LIKENESS_MIN)
            .map_or_else(String::new, |known| format!("; did you mean `{known}`?"))
    }

    /// Converts the settings into their structs.
    pub(crate) fn read(&self) -> Result<Config, Error> {
        let mut root = Table::new();
        for (key, setting) in &self.settings {
            let mut table = &mut root;
            let (sections, last) = key.rsplit_once('.').unwrap_or(("", key));
            for section in sections.split('.').filter(|section| !section.is_empty()) {
                let Value::Table(inner) =
                    table.entry(section).or_insert_with(|| Value::Table(Table::new()))
                else {
                    return Err(self.wrong(key, "is below a key that is no section".to_owned()));
                };
                table = inner;
            }
            table.insert(last.to_owned(), setting.value.clone());
        }
        serde_path_to_error::deserialize(root).map_err(|error| {
            let path = error.path().to_string();
            let message = error.into_inner().message().trim().to_owned();
            // A list is one setting, but the error's path may point inside it.
            let within = |key: &&String| {
                path.strip_prefix(key.as_str()).is_some_and(|rest| !rest.starts_with(is_word))
            };
            let key = self.settings.keys().find(within).cloned().unwrap_or(path);
            let default = self.settings.get(&key).map_or_else(String::new, |setting| {
                format!("; the default is {}", setting.default)
            });
            let too_large = format!("must be at most {}", u32::MAX);
            let is_too_large = message.ends_with("expected u32");
            let message = if is_too_large { too_large } else { format!("is wrong: {message}") };
            self.wrong(&key, format!("{message}{default}"))
        })
    }

    /// Makes the error for a bad value of `key`, naming the place where it was set.
    pub(crate) fn wrong(&self, key: &str, message: String) -> Error {
        let place = self.place(key).unwrap_or("(default)").to_owned();
        Error::WrongValue { place, key: key.to_owned(), message }
    }

    /// Makes the error for a bad value, which also names the place of the setting that it does not
    /// go with.
    pub(super) fn wrong_beside(&self, wrong: Wrong) -> Error {
        let Wrong { key, beside, message } = wrong;
        let other = beside.and_then(|beside| Some((beside, self.place(beside)?)));
        let message = match other {
            Some((beside, place)) => format!("{message}; `{beside}` is set in {place}"),
            None => message,
        };
        self.wrong(key, message)
    }

    fn place(&self, key: &str) -> Option<&str> {
        self.settings.get(key)?.place.as_deref()
    }
}

fn is_word(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

fn last_parts_alike(a: &str, b: &str) -> f64 {
    let last = |key: &str| key.rsplit('.').next().unwrap_or_default().to_owned();
    // The right key in the wrong section is a common slip, but weaker evidence than a full match.
    strsim::jaro_winkler(&last(a), &last(b)) * 0.95
}

/// Says why a value cannot be that of a setting with this default, whatever the setting means.
fn unfit(default: &Value, value: &Value) -> Option<String> {
    if !default.same_type(value) {
        Some(must_be(default, noun(value)))
    } else if value.as_integer().is_some_and(|number| number < 0) {
        Some(format!("must not be negative; the default is {default}"))
    } else {
        None
    }
}

fn must_be(default: &Value, not: &str) -> String {
    format!("must be {}, such as {default}, not {not}", noun(default))
}

/// Returns whether a text is a whole number that 64 bits cannot hold.
fn is_long_number(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    digits.bytes().all(|byte| byte.is_ascii_digit())
        && !digits.is_empty()
        && text.parse::<i64>().is_err()
}

fn noun(value: &Value) -> &'static str {
    match value {
        Value::String(_) => "text in quotes",
        Value::Integer(_) => "a whole number",
        Value::Float(_) => "a number with a point",
        Value::Boolean(_) => "true or false",
        Value::Datetime(_) => "a date",
        Value::Array(_) => "a list",
        Value::Table(_) => "a section",
    }
}

/// Returns the keys of a TOML text with their values and line numbers. A list is one value, even if
/// it holds tables, and so is an empty section.
fn flatten(name: &str, text: &str) -> Result<Vec<(String, Value, usize)>, Error> {
    let line_ends: Vec<usize> = text.match_indices('\n').map(|(at, _)| at).collect();
    let line_of = |offset: usize| line_ends.partition_point(|end| *end < offset) + 1;
    let not_toml = |error: &toml::de::Error| Error::NotToml {
        place: format!("{name}:{}", error.span().map_or(1, |span| line_of(span.start))),
        message: error.message().to_owned(),
    };
    let spans = DeTable::parse(text).map_err(|error| not_toml(&error))?;
    if let Some((key, offset)) = too_long(spans.get_ref(), "") {
        let place = format!("{name}:{}", line_of(offset));
        return Err(Error::WrongValue { place, key, message: LONG_NUMBER.to_owned() });
    }
    let values: Table = text.parse().map_err(|error| not_toml(&error))?;
    let mut flat = Vec::new();
    walk(spans.get_ref(), &values, "", &mut |key, value, offset| {
        flat.push((key, value, line_of(offset)))
    });
    Ok(flat)
}

/// Returns the key of the first number that 64 bits cannot hold, and where it is.
fn too_long(table: &DeTable<'_>, above: &str) -> Option<(String, usize)> {
    table.iter().find_map(|(key, value)| {
        let name = below(above, key.get_ref());
        match value.get_ref() {
            DeValue::Table(inner) => too_long(inner, &name),
            value => is_too_long(value).then(|| (name, key.span().start)),
        }
    })
}

fn is_too_long(value: &DeValue<'_>) -> bool {
    match value {
        DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix()).is_err(),
        DeValue::Array(all) => all.iter().any(|one| is_too_long(one.get_ref())),
        DeValue::Table(all) => all.iter().any(|(_, one)| is_too_long(one.get_ref())),
        _ => false,
    }
}

/// Returns the dotted key of a name in a section.
fn below(section: &str, name: &str) -> String {
    if section.is_empty() { name.to_owned() } else { format!("{section}.{name}") }
}

fn walk(
    spans: &DeTable<'_>,
    values: &Table,
    above: &str,
    found: &mut impl FnMut(String, Value, usize),
) {
    for (key, span) in spans {
        let name = key.get_ref().as_ref();
        let dotted = below(above, name);
        match (span.get_ref(), values.get(name)) {
            (DeValue::Table(inner), Some(Value::Table(table))) if !table.is_empty() => {
                walk(inner, table, &dotted, found)
            }
            (_, Some(value)) => found(dotted, value.clone(), Spanned::span(key).start),
            (_, None) => {}
        }
    }
}
