//! What is added to a request on its way out: headers and fields of its body by rule, and secrets
//! where rules or programs name them.

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
use types::kinds::network::ProxyTarget;
use types::parts::{Sensitive, TextMap};
use zeroize::Zeroizing;

/// The largest body into which something is put. What is longer, or of unknown length, passes as it
/// is.
pub(crate) const BODY_BYTES_MAX: u64 = 1 << 20;

/// A header with this tells the upstream which request of ours it was.
pub(crate) const REQUEST_ID: HeaderName = HeaderName::from_static("x-blaxel-request-id");

/// These say where a message ends and whom it is for. A rule has no say in that.
static FRAMING: [HeaderName; 12] = [
    header::HOST,
    header::CONTENT_LENGTH,
    header::TRANSFER_ENCODING,
    header::CONNECTION,
    header::UPGRADE,
    header::TE,
    header::TRAILER,
    header::EXPECT,
    header::PROXY_AUTHORIZATION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    HeaderName::from_static("http2-settings"),
];

/// One request, with the routing rules that are for it.
pub(crate) struct Injector<'a> {
    targets: Vec<&'a ProxyTarget>,
    functions: Functions<'a>,
    report: Report,
}

/// What came of it. No value of a secret is in here.
#[derive(Debug, Default)]
pub(crate) struct Report {
    /// By name, such as `header authorization` or `secret api-key`.
    pub(crate) injected: Vec<String>,
    /// Headers of the answer that tell what functions gave.
    pub(crate) echoes: HeaderMap,
}

/// A value of a rule with everything put in.
struct Filled {
    text: Zeroizing<Vec<u8>>,
    secrets: Vec<String>,
    has_secret: bool,
    /// What functions gave, as `name=value, …`. Empty also where a secret is unknown.
    echo: String,
}

impl<'a> Injector<'a> {
    pub(crate) fn new(targets: Vec<&'a ProxyTarget>, world: &'a World) -> Self {
        Self { targets, functions: Functions::new(world), report: Report::default() }
    }

    pub(crate) fn finish(self) -> Report {
        self.report
    }

    /// Works on everything but the body. Hop-by-hop headers have to be gone already.
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

    /// Whether a body of this length has to be here as a whole.
    pub(crate) fn wants_body(&self, parts: &Parts, length: Option<u64>) -> bool {
        let fits = length.is_some_and(|length| (1..=BODY_BYTES_MAX).contains(&length));
        let merges = || takes_fields(parts) && self.targets.iter().any(|it| !is_empty(&it.body));
        let fills = || self.targets.iter().any(|target| secrets_of(target).is_some());
        fits && !parts.headers.contains_key(header::CONTENT_ENCODING) && (fills() || merges())
    }

    /// Works on a body that [`Injector::wants_body`] asked for. The caller sets its length anew.
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
            // Both the rule and the secret are texts.
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
            Ok(name) if !FRAMING.contains(&name) => name,
            _ => return self.report.injected.push(format!("{said} left out: it is not for rules")),
        };
        let filled = self.fill(value, target);
        let Ok(mut value) = HeaderValue::from_bytes(&filled.text) else {
            // As after a secret with a line break, which would begin a header of its own.
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
            // A bound only of what can be told: nothing is lost to the request.
            let _ = self.report.echoes.try_append(name, value);
        }
    }

    /// Puts functions and the secrets of its own rule into a value of a rule.
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

    /// Puts secrets into what the program wrote. Those of all rules for the request count, the first
    /// rule that knows a name first.
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
            if FRAMING.contains(name) {
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

/// A user and a password, which programs such as git and curl encode before they send them.
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

/// Whether fields of a rule go into the body.
fn takes_fields(parts: &Parts) -> bool {
    [Method::POST, Method::PUT, Method::PATCH].contains(&parts.method)
        && encoding_of(&parts.headers) == Encoding::Json
}

/// How the text of a body has to be written, so that a secret with a quote in it is no syntax.
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
