//! The headers that a provider gets: some of the caller's, and the connection's own.

use super::access;
use super::errors::BadProvider;
use super::fields::{Fields, Place};
use crate::catalogue::Entry;
use http::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use types::parts::TextMap;

/// Headers of callers that every provider gets. A `*` at the end makes it a prefix.
const KEPT: [&str; 10] = [
    "accept",
    "content-type",
    "content-encoding",
    "user-agent",
    "idempotency-key",
    "traceparent",
    "tracestate",
    "x-client-request-id",
    "x-request-id",
    "x-stainless-*",
];

pub(super) struct Headers {
    entry: &'static Entry,
    /// `None` means that the provider is called without a key.
    credential: Option<(HeaderName, HeaderValue)>,
    /// Headers to add if the caller did not send them.
    defaults: Vec<(HeaderName, HeaderValue)>,
}

impl Headers {
    pub(super) fn new(
        entry: &'static Entry,
        fields: &Fields,
        secrets: &TextMap,
    ) -> Result<Self, BadProvider> {
        let provider = entry.display_name.as_str();
        let wrong = |what: &str| BadProvider::Wrong { provider, what: what.into() };
        let mut defaults = Vec::new();
        for (name, template) in &entry.headers {
            // A template fails if a setting is missing. Most have no organization, and need none.
            let Ok(value) = fields.fill(entry, template, Place::Header) else { continue };
            let name = HeaderName::from_bytes(name.as_bytes());
            let value = HeaderValue::from_str(&value);
            let (Ok(name), Ok(value)) = (name, value) else {
                return Err(wrong("a setting that no header can hold"));
            };
            defaults.push((name, value));
        }
        let credential = credential(entry, secrets)?;
        Ok(Self { entry, credential, defaults })
    }

    pub(super) fn dress(&self, headers: &mut HeaderMap) {
        let callers = std::mem::take(headers);
        let mut kept = false;
        let mut last = None;
        for (name, value) in callers {
            // Further values of a header come without its name.
            if let Some(name) = name {
                kept = self.keeps(name.as_str());
                last = Some(name);
            }
            if let (true, Some(name)) = (kept, &last) {
                headers.append(name.clone(), value);
            }
        }
        for (name, value) in &self.defaults {
            if !headers.contains_key(name) {
                headers.insert(name.clone(), value.clone());
            }
        }
        if let Some((name, value)) = &self.credential {
            headers.insert(name.clone(), value.clone());
        }
    }

    fn keeps(&self, name: &str) -> bool {
        let own = self.entry.keeps.iter().map(String::as_str);
        KEPT.into_iter().chain(own).any(|kept| match kept.strip_suffix('*') {
            Some(start) => name.starts_with(start),
            None => name == kept,
        })
    }
}

fn credential(
    entry: &'static Entry,
    secrets: &TextMap,
) -> Result<Option<(HeaderName, HeaderValue)>, BadProvider> {
    let provider = entry.display_name.as_str();
    let credentials = &entry.credentials;
    let wrong = || {
        let what = "a key that no header can hold";
        BadProvider::Wrong { provider, what: what.into() }
    };
    let made = |name: &str, value: String| {
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| wrong())?;
        let mut value = HeaderValue::from_str(&value).map_err(|_| wrong())?;
        value.set_sensitive(true);
        Ok(Some((name, value)))
    };
    if let Some(token) = access::held(secrets) {
        return made(AUTHORIZATION.as_str(), format!("Bearer {token}"));
    }
    if let Some(what) = access::fault(secrets) {
        return Err(BadProvider::Wrong { provider, what });
    }
    if access::is_exchanged(secrets) {
        return Err(BadProvider::NoToken { provider });
    }
    match key(&credentials.secrets, secrets) {
        Some(key) => made(&credentials.header, credentials.form.replace("{secret}", key)),
        None if credentials.optional => Ok(None),
        None => {
            let what = format!("`{}` in its secrets", credentials.secrets[0]);
            Err(BadProvider::Lacks { provider, what })
        }
    }
}

/// Finds the key by one of its names. If there is only one secret, it is the key.
fn key<'s>(names: &[String], secrets: &'s TextMap) -> Option<&'s str> {
    let mut there = secrets
        .iter()
        .map(|(name, value)| (name, value.trim()))
        .filter(|(_, value)| !value.is_empty());
    let named = |wanted: &String| {
        let mut there = there.clone();
        there.find(|(name, _)| name.eq_ignore_ascii_case(wanted)).map(|(_, value)| value)
    };
    names.iter().find_map(named).or_else(|| match (there.next(), there.next()) {
        (Some((_, only)), None) => Some(only),
        _ => None,
    })
}
