//! What was served and what was asked, by the name of the model as it was sent.

use parking_lot::Mutex;
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::{HashMap, VecDeque};

const REQUESTS_MAX: usize = 2_000;

#[derive(Debug, Clone, Copy, Default, Serialize)]
pub(crate) struct Served {
    /// Requests for answers or embeddings, including failed ones.
    pub(crate) calls: u64,
    pub(crate) failed: u64,
    /// Answers that were sent completely.
    pub(crate) answered: u64,
    /// Streams whose reader went away, or which broke off.
    pub(crate) broken: u64,
    /// Tokens of answers, including partial ones. `output` includes `reasoning`.
    pub(crate) input: u64,
    pub(crate) output: u64,
    pub(crate) cached: u64,
    pub(crate) reasoning: u64,
}

#[derive(Debug, Clone, Serialize)]
pub(crate) struct Request {
    pub(crate) model: String,
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) http: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

pub(crate) struct Records {
    remembers: bool,
    served: Mutex<HashMap<String, Served>>,
    requests: Mutex<VecDeque<Request>>,
}

impl Records {
    /// It is faster if it does not remember requests.
    pub(crate) fn new(remembers: bool) -> Self {
        Self { remembers, served: Mutex::default(), requests: Mutex::default() }
    }

    pub(crate) const fn remembers(&self) -> bool {
        self.remembers
    }

    /// Changes the counts of a model.
    pub(crate) fn count<T>(&self, model: &str, change: impl FnOnce(&mut Served) -> T) -> T {
        let mut served = self.served.lock();
        if let Some(served) = served.get_mut(model) {
            return change(served);
        }
        change(served.entry(model.to_owned()).or_default())
    }

    pub(crate) fn remember(&self, request: Request) {
        let mut requests = self.requests.lock();
        if requests.len() >= REQUESTS_MAX {
            requests.pop_front();
        }
        requests.push_back(request);
    }

    /// Returns the counts of one model, or of all by name.
    pub(crate) fn served(&self, model: Option<&str>) -> Value {
        let served = self.served.lock();
        match model {
            Some(model) => json!(served.get(model).copied().unwrap_or_default()),
            None => json!(*served),
        }
    }

    /// Returns the requests, oldest first.
    pub(crate) fn requests(&self, model: Option<&str>) -> Value {
        let requests = self.requests.lock();
        let wanted = |request: &&Request| model.is_none_or(|model| request.model == model);
        json!(requests.iter().filter(wanted).collect::<Vec<_>>())
    }
}
