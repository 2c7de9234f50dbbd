//! The log entry of a request: what is known of it before its answer passes.

use super::ModelProblem;
use super::call::Call;
use super::collected::is_events;
use super::entry::{Entry, Texts, Told};
use super::failed::{Answered, Counted};
use crate::problem::Problem;
use http::HeaderMap;
use std::sync::Arc;
use types::kinds::model::ModelType;
use types::models::{ModelCall, ModelOutcome, TokenUsage};

impl Call<'_> {
    /// Returns the log entry of the request, if the model has a log. `passing` has the headers of
    /// an answer that is passed on as it comes.
    pub(crate) fn entry(&self, status: u16, passing: Option<&HeaderMap>) -> Option<Entry> {
        let log = self.served.route.request_log.as_ref();
        let log = log.filter(|log| log.enabled == Some(true))?;
        let bodies = log.bodies == Some(true);
        Some(Entry {
            served: Arc::clone(self.served),
            method: self.sent.method.to_string(),
            path: self.sent.path.clone(),
            status,
            error: None,
            tried: self.tried.clone(),
            request: bodies.then(|| self.asked.body.clone()),
            answer: bodies.then(|| passing.map_or(Told::Bytes(Vec::new()), |it| self.told(it))),
        })
    }

    /// Settles a request that nobody answers, and writes its line.
    pub(crate) fn tell_failed(&self, counted: Counted, told: &Result<Answered, Problem>) {
        let (status, error) = match told {
            Ok((response, _)) => (response.status(), None),
            Err(problem) => (problem.status(), Some(problem.code())),
        };
        let mut entry = self.entry(status.as_u16(), None);
        if let Some(entry) = &mut entry {
            entry.error = error;
            // What a hook would have masked or blocked must not get into the log.
            let hook = matches!(
                told,
                Err(Problem::Model(ModelProblem::Stopped(_) | ModelProblem::BadBody(_)))
            );
            entry.request = entry.request.take().filter(|_| !hook);
            told.iter().for_each(|(_, body)| entry.sent(body, self.models));
        }
        match (counted, entry) {
            (Counted::Ends(mut account, outcome), entry) => {
                account.log(entry);
                account.settle(outcome);
            }
            (Counted::Nothing | Counted::GivenBack(_), Some(entry)) => {
                entry.tell(self.models, self.refused(), None, self.began.elapsed());
            }
            (Counted::Nothing | Counted::GivenBack(_), None) => {}
        }
    }

    /// Returns the call of a request for which no provider was asked.
    fn refused(&self) -> ModelCall {
        ModelCall {
            at: self.models.world.now(),
            workspace: self.served.route.workspace.clone(),
            model: self.served.route.name.clone(),
            model_id: self.served.route.id.clone(),
            provider: ModelType::PublicModel,
            provider_model: String::new(),
            key: self.caller.holder.clone(),
            end_user: self.end_user.clone(),
            tag: self.tag.clone(),
            usage: TokenUsage::default(),
            cost: 0,
            prices: String::new(),
            outcome: ModelOutcome::Refused,
        }
    }

    /// Returns how an answer is kept for the log that is passed on as it comes.
    fn told(&self, headers: &HeaderMap) -> Told {
        let is_events = is_events(headers);
        let is_stream = is_events || self.asked.is_stream;
        if self.served.redaction.is_empty() || !is_stream {
            return Told::Bytes(Vec::new());
        }
        let dialect = self.asked.dialect().filter(|_| is_events);
        dialect.map_or(Told::Hidden, |dialect| {
            Told::Texts(Box::new(Texts::of(dialect, self.models.settings.event_max)))
        })
    }
}
