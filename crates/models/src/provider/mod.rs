//! A provider of models, ready to be called through a connection: its addresses and headers.

mod access;
mod errors;
mod fields;
mod headers;
mod paths;

pub use access::{ACCESS_TOKEN, AccessToken, BadToken, is_exchanged, read_token, token_request};
pub use errors::BadProvider;
pub use paths::Target;

use crate::catalogue::{Entry, catalogue};
use crate::dialect::Dialect;
use crate::operation::Operation;
use fields::{Fields, Place, model_name};
use headers::Headers;
use http::{HeaderMap, Uri};
use paths::Base;
use std::borrow::Cow;
use std::fmt;
use types::models::{ModelProvider, OutsideRequest};
use types::parts::Sensitive;

/// A provider, ready to be called with the secrets of one connection.
pub struct Provider {
    entry: &'static Entry,
    fields: Fields,
    base: Base,
    headers: Headers,
    /// The dialects that the connection says are there, if it limits those of the provider.
    only: Option<Vec<Dialect>>,
}

/// Leaves out the headers, which hold secrets.
impl fmt::Debug for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Provider")
            .field("name", &self.entry.name)
            .field("base", &self.base)
            .finish()
    }
}

/// How a provider takes an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// In the caller's dialect, unchanged.
    Passes,
    /// Translated into this dialect.
    Translates(Dialect),
    Unsupported,
}

impl Provider {
    /// Prepares a provider. An error says what its connection lacks.
    pub fn new(of: &ModelProvider) -> Result<Self, BadProvider> {
        let entry = catalogue().entry(of.kind);
        let mut fields = Fields::new(entry, of);
        let mut base = base(entry, &fields)?;
        if base.cut_behind(&entry.cuts_behind) == Some("deployments")
            && let Some(version) = base.take("api-version")
        {
            // Of all paths, only those of deployments have this version.
            fields.set("apiVersion", version);
        }
        let headers = Headers::new(entry, &fields, &of.secrets.0)?;
        let only = only(entry, &fields)?;
        Ok(Self { entry, fields, base, headers, only })
    }

    /// Returns its name for messages.
    pub fn name(&self) -> &'static str {
        &self.entry.display_name
    }

    /// Decides how the provider takes an operation.
    pub fn native(&self, operation: Operation) -> Way {
        let speaks = self.entry.speaks;
        let way = |has: bool, other: bool| match (has, other) {
            (true, _) => Way::Passes,
            (false, true) => Way::Translates(speaks),
            (false, false) => Way::Unsupported,
        };
        let paths = &self.entry.paths;
        match operation {
            Operation::Chat(dialect) => {
                let has = paths.chat.contains_key(&dialect) && self.may_speak(dialect);
                way(has, dialect != speaks)
            }
            Operation::GeminiStream => self.native(Operation::Chat(Dialect::Gemini)),
            Operation::Embeddings(dialect) => {
                let has = paths.embeddings.contains_key(&dialect) && self.may_speak(dialect);
                way(has, dialect != speaks && paths.embeddings.contains_key(&speaks))
            }
            // Callers read it in OpenAI's dialect, and no list is translated.
            Operation::Models => way(paths.models.is_some() && speaks == Dialect::OpenAi, false),
            Operation::Other => way(paths.other.is_some(), false),
        }
    }

    fn may_speak(&self, dialect: Dialect) -> bool {
        dialect == self.entry.speaks
            || self.only.as_ref().is_none_or(|only| only.contains(&dialect))
    }

    /// Returns where a call goes. `path` is what follows the name of the model and `query` what
    /// follows the path, both as the caller sent them. `spoken` is the dialect of the body if it
    /// differs from the operation's own, and `model` is the provider's name for the model.
    pub fn target(
        &self,
        operation: Operation,
        spoken: Option<Dialect>,
        path: &str,
        query: Option<&str>,
        model: &str,
        is_stream: bool,
    ) -> Result<Target, BadProvider> {
        let unsupported = BadProvider::Unsupported { provider: self.name() };
        let paths = &self.entry.paths;
        let own = own_dialect(operation);
        let dialect = spoken.or(own);
        let is_own = dialect == own;
        let template = match (operation, dialect) {
            (Operation::Chat(_) | Operation::GeminiStream, Some(dialect)) => {
                paths.chat.get(&dialect)
            }
            (Operation::Embeddings(_), Some(dialect)) => paths.embeddings.get(&dialect),
            (Operation::Models, _) => paths.models.as_ref(),
            _ => paths.other.as_ref(),
        };
        let verb = match operation {
            Operation::Embeddings(_) if is_own => verb(path).unwrap_or("embedContent"),
            Operation::Embeddings(_) => "batchEmbedContents",
            Operation::GeminiStream => "streamGenerateContent",
            _ if is_stream => "streamGenerateContent",
            _ => "generateContent",
        };
        let place = Place::Path { model, path, verb };
        let filled = self.fields.fill(self.entry, template.ok_or(unsupported)?, place)?;
        let (below, asked) = filled.split_once('?').unwrap_or((&filled, ""));
        let mut defaults: Vec<&str> = asked.split('&').filter(|pair| !pair.is_empty()).collect();
        if dialect == Some(Dialect::Gemini) && verb == "streamGenerateContent" && !is_own {
            defaults.push("alt=sse");
        }
        self.base.target(below, query.filter(|_| is_own), &defaults)
    }

    /// Turns a caller's headers into headers for the provider. Credentials, cookies, headers of the
    /// connection, and everything that is not known to mean something to the provider are removed.
    /// Length, host and encodings of the message are left for the sender to set.
    pub fn dresses(&self, headers: &mut HeaderMap) {
        self.headers.dress(headers);
    }

    /// Builds a request that no caller sent, with the same headers.
    fn outside(&self, method: &'static str, url: &Uri) -> OutsideRequest {
        let mut headers = HeaderMap::new();
        self.dresses(&mut headers);
        let headers = headers.iter().filter_map(|(name, value)| {
            Some((name.as_str().to_owned(), Sensitive(value.to_str().ok()?.to_owned())))
        });
        let accept = ("accept".to_owned(), Sensitive("application/json".to_owned()));
        OutsideRequest {
            method,
            url: url.to_string(),
            headers: headers.chain([accept]).collect(),
            body: Sensitive(Vec::new()),
        }
    }
}

/// Builds the request for the provider's list of models.
pub fn list_models(of: &ModelProvider) -> Result<OutsideRequest, BadProvider> {
    let provider = Provider::new(of)?;
    let target = provider.target(Operation::Models, None, "/v1/models", None, "", false)?;
    Ok(provider.outside("GET", &target.url))
}

/// Returns the address from the connection, or else the provider's own.
fn base(entry: &'static Entry, fields: &Fields) -> Result<Base, BadProvider> {
    let provider = entry.display_name.as_str();
    if let Some(endpoint) = fields.config("endpoint") {
        let whole = endpoint.trim_end_matches('/');
        let cut = entry.cuts.iter().find_map(|end| whole.strip_suffix(end.as_str()));
        let endpoint = cut.unwrap_or(endpoint);
        return Base::parse(endpoint).map_err(|why| BadProvider::Wrong {
            provider,
            what: format!("an `endpoint` that {why}"),
        });
    }
    let of_region = fields.config("region").and_then(|region| entry.base_of_region.get(region));
    let Some(template) = of_region.or(entry.base.as_ref()) else {
        return Err(BadProvider::Lacks { provider, what: "`endpoint` in its config".into() });
    };
    let filled = fields.fill(entry, template, Place::Host)?;
    Base::parse(&filled)
        .map_err(|why| BadProvider::Wrong { provider, what: format!("an address that {why}") })
}

/// Reads `dialects`, with which a connection says that a server knows only some of the dialects.
fn only(entry: &'static Entry, fields: &Fields) -> Result<Option<Vec<Dialect>>, BadProvider> {
    let Some(named) = fields.config("dialects") else { return Ok(None) };
    let provider = entry.display_name.as_str();
    let dialects = named.split(',').map(|name| {
        let found = Dialect::ALL.into_iter().find(|dialect| dialect.name() == name.trim());
        found.ok_or_else(|| {
            let what = format!(
                "`dialects` that are not among {}",
                Dialect::ALL.map(Dialect::name).join(", ")
            );
            BadProvider::Wrong { provider, what }
        })
    });
    dialects.collect::<Result<_, _>>().map(Some)
}

/// Returns a path of Google's, such as `/v1beta/models/{model}:countTokens`, with another model.
/// Other paths have none, and stay as they are.
pub fn with_model<'p>(path: &'p str, model: &str) -> Result<Cow<'p, str>, BadProvider> {
    let named = path.rsplit_once("/models/").and_then(|(before, named)| {
        let (_, verb) = named.rsplit_once(':')?;
        Some((before, verb))
    });
    let Some((before, verb)) = named else { return Ok(Cow::Borrowed(path)) };
    Ok(Cow::Owned(format!("{before}/models/{}:{verb}", model_name(model)?)))
}

/// Returns the dialect of the operation's body as the caller sent it.
fn own_dialect(operation: Operation) -> Option<Dialect> {
    match operation {
        Operation::Chat(dialect) | Operation::Embeddings(dialect) => Some(dialect),
        Operation::GeminiStream => Some(Dialect::Gemini),
        Operation::Models | Operation::Other => None,
    }
}

/// Returns what a path of Google's asks for.
fn verb(path: &str) -> Option<&'static str> {
    match path.trim_end_matches('/').rsplit_once(':')?.1 {
        "embedContent" => Some("embedContent"),
        "batchEmbedContents" => Some("batchEmbedContents"),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
