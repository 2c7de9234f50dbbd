//! A request as one model's provider gets it.

use super::loops::{self, THROUGH};
use super::request::{BadBody, ModelRequest};
use super::served::Served;
use super::upstream::{Outgoing, Pieces};
use super::{ModelProblem, caller};
use crate::query;
use ::models::dialect::{Dialect, Unreadable};
use ::models::embeddings::{EmbeddingsTranslation, translate_request};
use ::models::operation::Operation;
use ::models::provider::{BadProvider, Provider, Target, Way, with_model};
use ::models::translate::{Named, Translation, has_proofs, open_in_place};
use http::header::{ACCEPT_ENCODING, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method};
use serde_json::Value;
use std::borrow::Cow;
use types::Timestamp;
use types::kinds::model::ModelType;
use types::models::ModelProvider;

/// What all attempts of one call have in common.
pub(crate) struct Sent {
    pub(crate) method: Method,
    pub(crate) headers: HeaderMap,
    /// The part after the name of the model.
    pub(crate) path: String,
    pub(crate) query: Option<String>,
    /// The installations that the request has come through; see `loops`.
    through: HeaderValue,
}

pub(crate) struct Prepared {
    pub(crate) outgoing: Outgoing,
    /// The provider's name for the model.
    pub(crate) model: String,
    /// The dialect in which the provider answers.
    pub(crate) spoken: Option<Dialect>,
    pub(crate) translation: Option<Translated>,
    /// What the provider, or the caller, is not told.
    pub(crate) left_out: Vec<String>,
    /// Whether we asked for usage although the caller did not.
    pub(crate) hides_usage: bool,
}

/// Translates an answer into the dialect of the caller.
pub(crate) enum Translated {
    Chat(Box<Translation>),
    Embeddings(Box<EmbeddingsTranslation>),
}

impl Translated {
    fn losses(&self) -> &[String] {
        match self {
            Self::Chat(of) => of.losses(),
            Self::Embeddings(of) => of.losses(),
        }
    }

    pub(crate) fn fault(&self, status: u16, body: &[u8]) -> Vec<u8> {
        match self {
            Self::Chat(of) => of.fault(status, body),
            Self::Embeddings(of) => of.fault(status, body),
        }
    }

    /// `counted` is reported if the provider of embeddings does not say how many tokens it read.
    pub(crate) fn answer(
        &self,
        body: &[u8],
        counted: impl FnOnce() -> u64,
    ) -> Result<Vec<u8>, Unreadable> {
        match self {
            Self::Chat(of) => of.answer(body),
            Self::Embeddings(of) => of.answer(body, counted()),
        }
    }
}

impl Sent {
    /// Leaves out the parameters that only this edge reads. Refuses what this installation itself
    /// has sent.
    pub(crate) fn new(
        method: Method,
        headers: HeaderMap,
        path: &str,
        query: Option<&str>,
        installation: &str,
    ) -> Result<Self, ModelProblem> {
        let query = query.map(|query| query::without(query, caller::is_key).into_owned());
        let query = query.filter(|query| !query.is_empty());
        let through = loops::through(&headers, installation)?;
        Ok(Self { method, headers, path: path.to_owned(), query, through })
    }

    /// Returns where the provider is asked. `spoken` is the dialect of the body if it is translated,
    /// and `is_replaced` tells whether the route named the model.
    fn target(
        &self,
        provider: &Provider,
        asked: &ModelRequest,
        spoken: Option<Dialect>,
        (model, is_replaced): (&str, bool),
    ) -> Result<Target, ModelProblem> {
        let path = match is_replaced && asked.counts_in == Some(Dialect::Gemini) {
            true => with_model(&self.path, model),
            false => Ok(Cow::Borrowed(self.path.as_str())),
        };
        let (operation, query) = (asked.operation, self.query.as_deref());
        let target = path.and_then(|path| {
            provider.target(operation, spoken, &path, query, model, asked.is_stream)
        });
        target.map_err(|bad| match bad {
            BadProvider::BadModel(_) if !is_replaced => ModelProblem::Unpassable(bad),
            // A name of a model is in the path too, where one is asked for an answer.
            BadProvider::BadPath(_) if operation == Operation::Other || !is_replaced => {
                ModelProblem::Unpassable(bad)
            }
            BadProvider::Unsupported { .. } => ModelProblem::Unpassable(bad),
            bad => ModelProblem::Connection(bad),
        })
    }
}

impl Prepared {
    pub(crate) fn new(
        served: &Served,
        provider: &Provider,
        asked: &ModelRequest,
        sent: &Sent,
        now: Timestamp,
    ) -> Result<Self, ModelProblem> {
        let replaced = served.route.provider.as_ref().and_then(named);
        let model = replaced.or(asked.model.as_deref()).or_else(|| model_in(&sent.path));
        let model = model.unwrap_or(&served.route.name).to_owned();
        let operation = asked.operation;
        let own = asked.dialect();
        let mut left_out = Vec::new();
        let (spoken, translation, body, hides_usage) = match provider.native(operation) {
            Way::Unsupported => return Err(ModelProblem::Unsupported),
            Way::Passes => {
                let hides_usage = asked.is_stream
                    && !tells_usage(served)
                    && operation == Operation::Chat(Dialect::OpenAi)
                    && !asked.wants_usage;
                let filled = (replaced.is_some() || asked.model.is_none()) && asked.names_model();
                let asked = opened(asked, own, &mut left_out)?;
                let body = asked.spliced(filled.then_some(model.as_str()), hides_usage);
                (own, None, body, hides_usage)
            }
            Way::Translates(to) => {
                let from = own.ok_or(ModelProblem::Unsupported)?;
                let provider = served.route.provider.as_ref().map(|of| of.kind);
                let named = Named { model: &model, provider };
                let (translation, body) = translated((from, to), asked, named, now)?;
                left_out.extend_from_slice(translation.losses());
                (Some(to), Some(translation), Pieces::from_iter([body.into()]), false)
            }
        };
        let other = spoken.filter(|_| translation.is_some());
        let target = sent.target(provider, asked, other, (&model, replaced.is_some()))?;
        let mut headers = sent.headers.clone();
        provider.dresses(&mut headers);
        headers.insert(THROUGH, sent.through.clone());
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        if asked.is_json() {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        let method = if translation.is_some() { Method::POST } else { sent.method.clone() };
        let outgoing = Outgoing { method, uri: target.url, headers, body };
        Ok(Self { outgoing, model, spoken, translation, left_out, hides_usage })
    }
}

fn value_of(asked: &ModelRequest) -> Result<Value, ModelProblem> {
    serde_json::from_slice(&asked.body).map_err(|error| BadBody::NotJson(error).into())
}

/// Prepares a request in its provider's own dialect. Proofs of thoughts that this provider made get
/// their original form back; those of other providers are taken out, because it would refuse them.
fn opened<'a>(
    asked: &'a ModelRequest,
    own: Option<Dialect>,
    left_out: &mut Vec<String>,
) -> Result<Cow<'a, ModelRequest>, ModelProblem> {
    let Some(own) = own.filter(|_| asked.is_chat() && has_proofs(&asked.body)) else {
        return Ok(Cow::Borrowed(asked));
    };
    let mut value = value_of(asked)?;
    left_out.extend(open_in_place(own, &mut value));
    Ok(Cow::Owned(asked.with_body(value.to_string().into())?))
}

fn translated(
    (from, to): (Dialect, Dialect),
    asked: &ModelRequest,
    named: Named<'_>,
    now: Timestamp,
) -> Result<(Translated, Vec<u8>), ModelProblem> {
    let value = value_of(asked)?;
    match asked.operation {
        Operation::Chat(_) | Operation::GeminiStream => {
            let (translation, body) =
                Translation::request(from, to, &value, named, asked.is_stream)?;
            Ok((Translated::Chat(Box::new(translation.created(now.ms() / 1000))), body))
        }
        Operation::Embeddings(_) => {
            let (translation, body) = translate_request(from, to, &value, named.model)?;
            Ok((Translated::Embeddings(Box::new(translation)), body))
        }
        Operation::Models | Operation::Other => Err(ModelProblem::Unsupported),
    }
}

/// Returns the model that the route names. On Azure the deployment decides, whatever a body says.
fn named(of: &ModelProvider) -> Option<&str> {
    let deployment = || match of.kind {
        ModelType::AzureOpenaiService => of.endpoint_name.as_deref(),
        _ => None,
    };
    of.model.as_deref().or_else(deployment)
}

/// Returns whether the provider's streams report usage without being asked, where asking is
/// refused.
fn tells_usage(served: &Served) -> bool {
    served.route.provider.as_ref().is_some_and(|of| of.kind == ModelType::Mistral)
}

/// Returns the model in `/v1beta/models/{model}:generateContent`.
fn model_in(path: &str) -> Option<&str> {
    let (_, model) = path.rsplit_once("models/")?;
    let model = model.rsplit_once(':').map_or(model, |(model, _)| model);
    (!model.is_empty()).then_some(model)
}
