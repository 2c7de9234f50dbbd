//! Settings of a connection and of a model, filled into templates of addresses and headers.

use super::errors::BadProvider;
use super::{access, paths};
use crate::catalogue::Entry;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use types::models::ModelProvider;
use types::parts::TextMap;

/// Characters that are escaped in a path.
const SEGMENT: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'/').remove(b'@');

/// Alternative names of settings.
const ALIASES: &[(&str, &[&str])] = &[
    ("endpoint", &["baseUrl", "baseURL", "base_url", "url"]),
    ("region", &["location"]),
    ("project", &["projectId", "project_id"]),
    ("apiVersion", &["api_version", "api-version"]),
];

pub(super) struct Fields {
    config: TextMap,
    endpoint_name: Option<String>,
    organization: Option<String>,
}

/// What is filled in, which decides what a value may contain.
#[derive(Clone, Copy)]
pub(super) enum Place<'p> {
    /// A part of a host name.
    Host,
    Path {
        model: &'p str,
        path: &'p str,
        verb: &'p str,
    },
    Header,
}

impl Fields {
    pub(super) fn new(entry: &Entry, of: &ModelProvider) -> Self {
        let mut config: TextMap = of.config.clone();
        config.retain(|_, value| !value.trim().is_empty());
        for (name, aliases) in ALIASES {
            let alias = aliases.iter().find_map(|alias| config.get(*alias).cloned());
            if let (false, Some(value)) = (config.contains_key(*name), alias) {
                config.insert((*name).to_owned(), value);
            }
        }
        for (name, value) in &entry.defaults {
            config.entry(name.clone()).or_insert_with(|| value.clone());
        }
        if let Some(project) = access::project(&of.secrets.0) {
            config.entry("project".into()).or_insert(project);
        }
        let text = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
        Self {
            config,
            endpoint_name: text(&of.endpoint_name),
            organization: text(&of.organization),
        }
    }

    pub(super) fn set(&mut self, name: &str, value: String) {
        self.config.insert(name.to_owned(), value);
    }

    pub(super) fn config(&self, name: &str) -> Option<&str> {
        self.config.get(name).map(|value| value.trim())
    }

    /// Fills in a template.
    pub(super) fn fill(
        &self,
        entry: &'static Entry,
        template: &str,
        place: Place<'_>,
    ) -> Result<String, BadProvider> {
        let mut filled = String::with_capacity(template.len() + 32);
        let mut rest = template;
        while let Some((before, behind)) = rest.split_once('{') {
            let (name, after) = behind.split_once('}').unwrap_or((behind, ""));
            filled.push_str(before);
            filled.push_str(&self.value(entry, name, place)?);
            rest = after;
        }
        filled.push_str(rest);
        Ok(filled)
    }

    fn value(
        &self,
        entry: &'static Entry,
        name: &str,
        place: Place<'_>,
    ) -> Result<String, BadProvider> {
        let provider = entry.display_name.as_str();
        let found = match (name, place) {
            ("model", Place::Path { model, .. }) => return model_name(model),
            ("deployment", Place::Path { model, .. }) => {
                return model_name(self.endpoint_name.as_deref().unwrap_or(model));
            }
            ("path", Place::Path { path, .. }) => {
                paths::check(path).map_err(BadProvider::BadPath)?;
                return Ok(path.to_owned());
            }
            ("rest", Place::Path { path, .. }) => {
                paths::check(path).map_err(BadProvider::BadPath)?;
                return Ok(without_version(path).to_owned());
            }
            ("verb", Place::Path { verb, .. }) => return Ok(verb.to_owned()),
            ("organization", _) => self.organization.as_deref(),
            ("endpoint_name", _) => self.endpoint_name.as_deref(),
            _ => name.strip_prefix("config.").and_then(|name| self.config(name)),
        };
        let what = || match name.strip_prefix("config.") {
            Some(name) => format!("`{name}` in its config"),
            None => format!("`{name}` in the model's runtime"),
        };
        let Some(found) = found else { return Err(BadProvider::Lacks { provider, what: what() }) };
        match place {
            Place::Header => Ok(found.to_owned()),
            Place::Host if is_label(found) => Ok(found.to_owned()),
            Place::Host => {
                let what = format!("{} that is no part of a name of a host", what());
                Err(BadProvider::Wrong { provider, what })
            }
            Place::Path { .. } if found.contains('/') || is_dots(found) => {
                let what = format!("{} that is no part of a path", what());
                Err(BadProvider::Wrong { provider, what })
            }
            Place::Path { .. } => Ok(utf8_percent_encode(found, SEGMENT).to_string()),
        }
    }
}

/// Checks and escapes the name of a model. It may have several parts, none of which leads up.
/// Google also takes names with the kind in front, which is removed.
pub(super) fn model_name(name: &str) -> Result<String, BadProvider> {
    let name = name.strip_prefix("models/").unwrap_or(name);
    let is_part = |part: &str| !part.is_empty() && !is_dots(part);
    match name.split('/').all(is_part) && !name.contains('\\') {
        true => Ok(utf8_percent_encode(name, SEGMENT).to_string()),
        false => Err(BadProvider::BadModel(name.chars().take(100).collect())),
    }
}

fn is_dots(part: &str) -> bool {
    part == "." || part == ".."
}

fn is_label(text: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    !text.is_empty() && text.len() <= 63 && text.bytes().all(is_inner)
}

/// Removes a first part such as `v1` or `v1beta`.
fn without_version(path: &str) -> &str {
    let Some(first) = path.strip_prefix('/') else { return path };
    let (first, rest) = match first.find('/') {
        Some(end) => (&first[..end], &first[end..]),
        None => (first, ""),
    };
    let is_version = first
        .strip_prefix('v')
        .is_some_and(|number| number.starts_with(|digit: char| digit.is_ascii_digit()));
    if is_version { rest } else { path }
}
