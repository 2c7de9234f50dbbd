//! A model that did not answer, and what the caller is told if no other model does.

use super::account::Account;
use super::answer_head::{dress, response};
use super::patterns::MASK;
use super::prepared::Prepared;
use super::served::Served;
use crate::body::Body;
use crate::problem::Problem;
use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, Response, response as answers};
use std::sync::Arc;
use types::kinds::model::ModelFailure;
use types::models::{ModelCall, ModelOutcome};

/// What is shorter is no secret, but a word such as `none` for a server that wants no key, in bytes.
const SECRET_MIN: usize = 8;

/// The failure of one model.
pub(crate) struct Failed {
    model: Arc<Served>,
    /// `None` means no other model is asked.
    pub(crate) failure: Option<ModelFailure>,
    pub(crate) counted: Counted,
    what: What,
}

/// Whether usage includes the call that failed.
pub(crate) enum Counted {
    /// Nobody was asked.
    Nothing,
    /// It does once this account is settled with this outcome.
    Ends(Box<Account>, ModelOutcome),
    /// Its reservations were given back, so that another model can be asked.
    GivenBack(Box<ModelCall>),
}

/// What the caller is told in a provider's words, with its body.
pub(crate) type Answered = (Response<Body>, Bytes);

enum What {
    Problem(Problem),
    /// The provider's own answer. `prepared` has its dialect.
    Answer {
        head: answers::Parts,
        body: Bytes,
        prepared: Option<Box<Prepared>>,
    },
}

/// Masks the credential of the connection in an error whose provider repeats what it was sent.
pub(crate) fn without_credential(sent: &HeaderMap, body: Bytes) -> Bytes {
    let mut body = body;
    for value in sent.values().filter(|value| value.is_sensitive()) {
        let value = value.as_bytes();
        let secret = value.strip_prefix(b"Bearer ").unwrap_or(value);
        if secret.len() < SECRET_MIN {
            continue;
        }
        let (mut masked, mut from) = (Vec::new(), 0);
        for at in memchr::memmem::find_iter(&body, secret) {
            masked.extend_from_slice(&body[from..at]);
            masked.extend_from_slice(MASK.as_bytes());
            from = at + secret.len();
        }
        if from > 0 {
            masked.extend_from_slice(&body[from..]);
            body = masked.into();
        }
    }
    body
}

impl Failed {
    pub(crate) fn of(model: &Arc<Served>, problem: Problem) -> Self {
        let failure = match &problem {
            Problem::Model(problem) => problem.failure(),
            _ => None,
        };
        let (model, what) = (Arc::clone(model), What::Problem(problem));
        Self { model, failure, counted: Counted::Nothing, what }
    }

    pub(crate) fn last(model: &Arc<Served>, problem: Problem) -> Self {
        Self { failure: None, ..Self::of(model, problem) }
    }

    pub(crate) fn answered(model: &Arc<Served>, head: answers::Parts, body: Bytes) -> Self {
        let what = What::Answer { head, body, prepared: None };
        Self { model: Arc::clone(model), failure: None, counted: Counted::Nothing, what }
    }

    pub(crate) fn counted(self, counted: Counted) -> Self {
        Self { counted, ..self }
    }

    /// `None` means no other model is asked.
    pub(crate) fn by(self, failure: impl Into<Option<ModelFailure>>) -> Self {
        Self { failure: failure.into(), ..self }
    }

    pub(crate) fn with(mut self, of: Prepared) -> Self {
        if let What::Answer { prepared, .. } = &mut self.what {
            *prepared = Some(Box::new(of));
        }
        self
    }

    /// Returns the name of the model that failed.
    pub(crate) fn name(&self) -> String {
        self.model.route.name.clone()
    }

    /// Returns what the caller is told.
    pub(super) fn response(self) -> Result<Answered, Problem> {
        let (head, body, prepared) = match self.what {
            What::Problem(problem) => return Err(problem),
            What::Answer { head, body, prepared } => (head, body, prepared),
        };
        let mut headers = HeaderMap::new();
        let translation = prepared.and_then(|prepared| prepared.translation);
        let body = match translation {
            Some(translation) => {
                headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
                Bytes::from(translation.fault(head.status.as_u16(), &body))
            }
            None => {
                headers = head.headers.clone();
                body
            }
        };
        if let Some(wait) = head.headers.get(RETRY_AFTER) {
            headers.insert(RETRY_AFTER, wait.clone());
        }
        let is_same = headers.contains_key(CONTENT_ENCODING);
        dress(&mut headers, &self.model, is_same);
        Ok((response(head.status, headers, Body::own(body.clone())), body))
    }
}
