//! The providers, and the format of each one's requests.
//!
//! A provider is configured by its key in the environment; its addresses can be set there too.

use super::wire;
use crate::http::Error;
use crate::instance::Instance;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

pub(super) enum Provider {
    Relace { key: String, apply: String, rank: String },
    Morph { key: String, apply: String, model: String },
}

#[derive(Serialize)]
pub(super) struct Source {
    pub(super) filename: String,
    pub(super) content: String,
}

#[derive(Deserialize)]
pub(super) struct Ranked {
    pub(super) filename: String,
    pub(super) score: f64,
}

impl Provider {
    pub(super) fn configured(instance: &Instance) -> Option<Self> {
        let variable = |name: &str| {
            let value = instance.variable(name)?.to_string_lossy().trim().to_owned();
            Some(value).filter(|value| !value.is_empty())
        };
        let or = |name: &str, usual: &str| variable(name).unwrap_or_else(|| usual.to_owned());
        if let Some(key) = variable("RELACE_API_KEY") {
            let apply =
                or("RELACE_APPLY_URL", "https://instantapply.endpoint.relace.run/v1/code/apply");
            let rank = or("RELACE_RANK_URL", "https://ranker.endpoint.relace.run/v2/code/rank");
            return Some(Self::Relace { key, apply, rank });
        }
        let apply = or("MORPH_URL", "https://api.morphllm.com/v1/chat/completions");
        Some(Self::Morph {
            key: variable("MORPH_API_KEY")?,
            apply,
            model: or("MORPH_MODEL", "morph-v3-large"),
        })
    }

    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Relace { .. } => "relace",
            Self::Morph { .. } => "morph",
        }
    }

    pub(super) fn ranks(&self) -> bool {
        matches!(self, Self::Relace { .. })
    }

    /// Returns the whole content with the edit merged in.
    pub(super) async fn apply(
        &self,
        content: &str,
        edit: &str,
        model: Option<&str>,
    ) -> Result<String, Error> {
        let (answer, place) = match self {
            Self::Relace { key, apply, .. } => {
                let mut question =
                    json!({"initial_code": content, "edit_snippet": edit, "stream": false});
                if let Some(model) = model {
                    question["model"] = model.into();
                }
                (self.ask(apply, key, &question).await?, "/mergedCode")
            }
            Self::Morph { key, apply, model: usual } => {
                let content = format!("<code>{content}</code>\n<update>{edit}</update>");
                let messages = json!([{"role": "user", "content": content}]);
                let question = json!({"model": model.unwrap_or(usual), "messages": messages});
                (self.ask(apply, key, &question).await?, "/choices/0/message/content")
            }
        };
        let merged = answer.pointer(place).and_then(Value::as_str);
        merged.map(str::to_owned).ok_or_else(|| self.failed("its answer holds no merged content"))
    }

    pub(super) async fn rank(
        &self,
        query: &str,
        codebase: &[Source],
        token_limit: u32,
    ) -> Result<Vec<Ranked>, Error> {
        let Self::Relace { key, rank, .. } = self else {
            return Err(self.failed("it ranks nothing"));
        };
        let question = json!({"query": query, "codebase": codebase, "token_limit": token_limit});
        let mut answer = self.ask(rank, key, &question).await?;
        let results = answer.get_mut("results").map(Value::take).unwrap_or_default();
        serde_json::from_value(results).map_err(|_| self.failed("its answer holds no scores"))
    }

    async fn ask(&self, url: &str, key: &str, question: &Value) -> Result<Value, Error> {
        wire::post(url, key, question).await.map_err(|error| self.failed(&error.to_string()))
    }

    fn failed(&self, why: &str) -> Error {
        Error::Unavailable(format!("the provider {} failed: {why}", self.name()))
    }
}
