//! Adds to outgoing requests: headers and body fields by rule, and secrets where rules or programs
//! name them.

mod functions;
mod json;
mod template;
#[cfg(test)]
mod tests;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use functions::Functions;
pub(crate) use functions::uuid;
use http::header::{self, HeaderName, HeaderValue};
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderMap, Method, Uri};
use template::Encoding;
use types::World;
use types::egress;
use types::kinds::network::ProxyTarget;
use types::parts::{Sensitive, TextMap};
use zeroize::Zeroizing;

/// The largest body that something is injected into. A body that is longer, or of unknown length,
/// passes unchanged.
pub(crate) const BODY_BYTES_MAX: u64 = 1 << 20;

/// The header that gives the upstream a unique id for each request.
pub(crate) const REQUEST_ID: HeaderName = HeaderName::from_static(egress::REQUEST_ID);

/// Injects into one request, by the routing rules that apply to it.
pub(crate) struct Injector<'a> {
    targets: Vec<&'a ProxyTarget>,
    functions: Functions<'a>,
    report: Report,
}

/// What was injected. Contains no value of a secret.
#[derive(Debug, Default)]
pub(crate) struct Report {
    /// The names of what was injected, such as `header authorization` or `secret api-key`.
    pub(crate) injected: Vec<String>,
    /// Headers to add to the answer, with the results of functions.
    pub(crate) echoes: HeaderMap,
}

/// A value of a rule with everything filled in.
struct Filled {
    text: Zeroizing<Vec<u8>>,
    secrets: Vec<String>,
    has_secret: bool,
    /// The results of functions, as `name=value, …`. Also empty if a secret is unknown.
    echo: String,
}

impl<'a> Injector<'a> {
    pub(crate) fn new(targets: Vec<&'a ProxyTarget>, world: &'a World) -> Self {
        Self { targets, functions: Functions::new(world), report: Report::default() }
    }

    pub(crate) fn finish(self) -> Report {
        self.report
    }

    /// Injects into everything but the body. Hop-by-hop headers must already be removed.
    pub(crate) fn head(&mut self, parts: &mut Parts) {
        if self.targets.iter().any(|target| secrets_of(target).is_some()) {
            self.fill_own_headers(&mut parts.headers);
            if let Some(uri) = self.fill_own_uri(&parts.uri) {
                parts.uri = uri;
            }
        }
        for target in self.targets.clone() {
            for (name, value) in target.headers.iter().flatten() {
                self.add_header(&mut parts.headers, name, value, target);
            }
        }
    }

    /// Returns whether the body is needed as a whole, given its length.
    pub(crate) fn wants_body(&self, parts: &Parts, length: Option<u64>) -> bool {
        let fits = length.is_some_and(|length| (1..=BODY_BYTES_MAX).contains(&length));
        let merges = || takes_fields(parts) && self.targets.iter().any(|it| !is_empty(&it.body));
        let fills = || self.targets.iter().any(|target| secrets_of(target).is_some());
        fits && !parts.headers.contains_key(header::CONTENT_ENCODING) && (fills() || merges())
    }

    /// Injects into a body that [`Injector::wants_body`] asked for. The caller then sets its new
    /// length.
    pub(crate) fn body(&mut self, parts: &Parts, body: Bytes) -> Bytes {
        let encoding = encoding_of(&parts.headers);
        let mut body = match self.fill_own(&body, encoding) {
            Some(filled) => Bytes::from(std::mem::take(&mut *{ filled })),
            None => body,
        };
        if takes_fields(parts) {
            for target in self.targets.clone() {
                body = self.merge(body, target);
            }
        }
        body
    }

    fn merge(&mut self, body: Bytes, target: &ProxyTarget) -> Bytes {
        let Some(fields) = target.body.as_ref().filter(|fields| !fields.is_empty()) else {
            return body;
        };
        let Some(object) = json::Object::parse(&body) else { return body };
        let mut added: Vec<(&str, Zeroizing<String>)> = Vec::new();
        for (name, value) in fields.iter().filter(|(name, _)| !object.has(name)) {
            let Filled { text, secrets, echo, .. } = self.fill(value, target);
            // Always succeeds: the rule and the secret are both text.
            let Ok(text) = String::from_utf8(text.to_vec()) else { continue };
            added.push((name, Zeroizing::new(text)));
            self.echo(name, &echo);
            self.tell(format!("body {name}"), secrets);
        }
        match added.is_empty() {
            true => body,
            false => object.with(&added),
        }
    }

    fn add_header(
        &mut self,
        headers: &mut HeaderMap,
        name: &str,
        value: &str,
        target: &ProxyTarget,
    ) {
        let said = format!("header {}", name.to_ascii_lowercase());
        let name = match HeaderName::try_from(name) {
            Ok(name) if egress::can_add(name.as_str()) => name,
            _ => return self.report.injected.push(format!("{said} left out: it is not for rules")),
        };
        let filled = self.fill(value, target);
        let Ok(mut value) = HeaderValue::from_bytes(&filled.text) else {
            // For example a secret with a line break, which would begin another header.
            let why = "left out: its value has characters that no header may have";
            return self.report.injected.push(format!("{said} {why}"));
        };
        value.set_sensitive(filled.has_secret);
        let target_name = name.as_str().to_owned();
        if headers.try_append(name, value).is_err() {
            return self.report.injected.push(format!("{said} left out: too many headers"));
        }
        self.echo(&target_name, &filled.echo);
        self.tell(said, filled.secrets);
    }

    fn tell(&mut self, what: String, secrets: Vec<String>) {
        let secrets = secrets.into_iter().map(|name| format!("secret {name}"));
        for told in std::iter::once(what).chain(secrets) {
            if !self.report.injected.contains(&told) {
                self.report.injected.push(told);
            }
        }
    }

    fn echo(&mut self, target: &str, echo: &str) {
        let name = HeaderName::try_from(format!("x-blaxel-func-{target}"));
        if let (false, Ok(name), Ok(value)) = (echo.is_empty(), name, HeaderValue::try_from(echo)) {
            // If there are too many, only this report is lost, not the request.
            let _ = self.report.echoes.try_append(name, value);
        }
    }

    /// Fills functions and the secrets of the rule's own target into a value of the rule.
    fn fill(&mut self, value: &str, target: &ProxyTarget) -> Filled {
        let known = secrets_of(target);
        let (text, calls) = self.functions.expand(value);
        let mut secrets = Vec::new();
        let mut is_complete = true;
        let mut lookup = |name: &str| {
            let found = known.and_then(|known| known.get(name));
            match found {
                Some(_) if !secrets.iter().any(|known| known == name) => {
                    secrets.push(name.to_owned());
                }
                Some(_) => {}
                None => is_complete = false,
            }
            found.map(String::as_str)
        };
        let filled = template::fill(text.as_bytes(), Encoding::Plain, &mut lookup);
        let text = filled.unwrap_or_else(|| Zeroizing::new(text.into_bytes()));
        let has_secret = !secrets.is_empty();
        let echo = if is_complete { calls.join(", ") } else { String::new() };
        Filled { text, secrets, has_secret, echo }
    }

    /// Fills secrets into what the program wrote. The secrets of all rules for the request are
    /// available; if several have a name, the first rule counts.
    fn fill_own(&mut self, text: &[u8], encoding: Encoding) -> Option<Zeroizing<Vec<u8>>> {
        let mut secrets = Vec::new();
        let targets = &self.targets;
        let mut lookup = |name: &str| {
            let mut known = targets.iter().copied().filter_map(secrets_of);
            let found = known.find_map(|known| known.get(name))?;
            if !secrets.iter().any(|known: &String| known == name) {
                secrets.push(name.to_owned());
            }
            Some(found.as_str())
        };
        let filled = template::fill(text, encoding, &mut lookup);
        for name in secrets {
            let told = format!("secret {name}");
            if !self.report.injected.contains(&told) {
                self.report.injected.push(told);
            }
        }
        filled
    }

    fn fill_own_headers(&mut self, headers: &mut HeaderMap) {
        for (name, value) in headers.iter_mut() {
            if egress::is_framing(name.as_str()) {
                continue;
            }
            let filled = match credentials(name, value) {
                Some(text) => self.fill_own(&text, Encoding::Plain).map(|text| basic(&text)),
                None => self.fill_own(value.as_bytes(), Encoding::Plain),
            };
            let Some(filled) = filled else { continue };
            match HeaderValue::from_bytes(&filled) {
                Ok(mut filled) => {
                    filled.set_sensitive(true);
                    *value = filled;
                }
                Err(_) => self.report.injected.push(format!(
                    "header {name} left as it was: the secret has characters that no header may have"
                )),
            }
        }
    }

    fn fill_own_uri(&mut self, uri: &Uri) -> Option<Uri> {
        let path = uri.path_and_query()?.as_str();
        let filled = self.fill_own(path.as_bytes(), Encoding::Url)?;
        let mut parts = uri.clone().into_parts();
        match PathAndQuery::try_from(&filled[..]) {
            Ok(path) => parts.path_and_query = Some(path),
            Err(_) => {
                self.report.injected.push("path left as it was: it would be too long".to_owned());
                return None;
            }
        }
        Uri::from_parts(parts).ok()
    }
}

/// Decodes a user and password, which programs such as git and curl encode before they send them.
fn credentials(name: &HeaderName, value: &HeaderValue) -> Option<Zeroizing<Vec<u8>>> {
    let text = value.to_str().ok().filter(|_| *name == header::AUTHORIZATION)?;
    let (scheme, rest) = text.split_once(' ')?;
    let encoded = scheme.eq_ignore_ascii_case("basic").then(|| rest.trim())?;
    STANDARD.decode(encoded).ok().map(Zeroizing::new)
}

fn basic(credentials: &[u8]) -> Zeroizing<Vec<u8>> {
    let encoded = Zeroizing::new(STANDARD.encode(credentials));
    Zeroizing::new(format!("Basic {}", *encoded).into_bytes())
}

fn secrets_of(target: &ProxyTarget) -> Option<&TextMap> {
    target.secrets.as_ref().map(|Sensitive(secrets)| secrets).filter(|map| !map.is_empty())
}

fn is_empty(map: &Option<TextMap>) -> bool {
    map.as_ref().is_none_or(TextMap::is_empty)
}

/// Returns whether fields of a rule can be added to the body.
fn takes_fields(parts: &Parts) -> bool {
    [Method::POST, Method::PUT, Method::PATCH].contains(&parts.method)
        && encoding_of(&parts.headers) == Encoding::Json
}

/// Returns how text in a body must be escaped, so that a quote in a secret does not become syntax.
fn encoding_of(headers: &HeaderMap) -> Encoding {
    let value = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let media = value.unwrap_or_default().split(';').next().unwrap_or_default().trim();
    let media = media.to_ascii_lowercase();
    match media.as_str() {
        "application/json" => Encoding::Json,
        "application/x-www-form-urlencoded" => Encoding::Url,
        other if other.ends_with("+json") => Encoding::Json,
        _ => Encoding::Plain,
    }
}
