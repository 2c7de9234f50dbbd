//! What starts a workload: requests, requests without waiting, and the clock.

use super::{Cron, Generation, Sensitive, limits, names};
use crate::{Problems, World};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};
use serde_with::skip_serializing_none;
use std::collections::BTreeSet;

/// Characters of a generated callback secret, five bits each.
const CALLBACK_SECRET_LENGTH: usize = 40;
/// Characters of a generated trigger id.
const ID_LENGTH: usize = 12;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum TriggerType {
    Http,
    HttpAsync,
    Cron,
}

#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Trigger {
    #[schemars(length(max = 64), regex(pattern = limits::PATH_SEGMENT))]
    pub id: Option<String>,
    #[serde(rename = "type")]
    pub kind: Option<TriggerType>,
    #[schemars(extend("default" = true))]
    pub enabled: Option<bool>,
    pub configuration: Option<TriggerConfiguration>,
}

#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TriggerConfiguration {
    #[schemars(length(max = limits::WORD_MAX))]
    pub authentication_type: Option<String>,
    #[schemars(length(max = limits::URL_MAX))]
    pub callback_url: Option<String>,
    /// Made by the server; signs the calls to `callbackUrl`.
    // It is stored with the wish, so it is read; `complete_all` replaces what a caller sent.
    #[serde(default, deserialize_with = "text_or_none")]
    #[schemars(extend("readOnly" = true))]
    pub callback_secret: Option<Sensitive<String>>,
    #[schemars(length(max = limits::PATH_MAX), regex(pattern = limits::ONE_LINE))]
    pub path: Option<String>,
    #[schemars(range(min = 0, max = limits::RETRIES_MAX))]
    pub retry: Option<i64>,
    /// Cron line of five fields.
    #[schemars(length(max = limits::WORD_MAX))]
    pub schedule: Option<String>,
    #[schemars(length(max = limits::TRIGGER_TASKS_MAX))]
    pub tasks: Option<Vec<Map<String, Value>>>,
    /// Seconds, of async triggers.
    #[schemars(range(min = 1, max = limits::ASYNC_TIMEOUT_S_MAX))]
    pub timeout: Option<i64>,
}

/// Read-only members are ignored when they are sent, whatever they hold.
fn text_or_none<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Sensitive<String>>, D::Error> {
    Ok(match Value::deserialize(deserializer)? {
        Value::String(text) => Some(Sensitive(text)),
        _ => None,
    })
}

impl Trigger {
    pub fn check_all(triggers: Option<&[Self]>, generation: Option<Generation>, problems: &mut Problems) {
        for (index, trigger) in triggers.unwrap_or_default().iter().enumerate() {
            trigger.check(&format!("spec.triggers[{index}]"), generation.unwrap_or_default(), problems);
        }
    }

    fn check(&self, at: &str, generation: Generation, problems: &mut Problems) {
        problems.require(self.kind.is_some(), format!("{at}.type"), "is required");
        let none = TriggerConfiguration::default();
        let set = self.configuration.as_ref().unwrap_or(&none);
        let at = format!("{at}.configuration");
        let schedule = set.schedule.as_deref().filter(|line| !line.is_empty());
        match schedule.map(Cron::parse) {
            Some(Err(error)) => problems.add(format!("{at}.schedule"), error.to_string()),
            None if self.kind == Some(TriggerType::Cron) => {
                problems.add(format!("{at}.schedule"), "is required for cron triggers");
            }
            Some(Ok(_)) | None => {}
        }
        let timed = set.timeout.is_none() || generation == Generation::Mk3;
        problems.require(timed, format!("{at}.timeout"), "is only possible for microVMs (generation mk3)");
        let callback = set.callback_url.as_deref().filter(|url| !url.is_empty());
        let callable = callback.is_none_or(names::is_web_address);
        problems.require(callable, format!("{at}.callbackUrl"), "must be an http or https address");
    }

    /// Gives every trigger an id of its own, and one that calls back a secret to sign with.
    pub fn complete_all(triggers: Option<&mut Vec<Self>>, old: Option<&[Self]>, world: &World) {
        let mut taken = BTreeSet::new();
        for trigger in triggers.into_iter().flatten() {
            let wanted = trigger.id.take().filter(|id| !id.is_empty());
            let wanted = wanted.unwrap_or_else(|| format!("trigger-{}", world.random_text(ID_LENGTH)));
            let id = distinct(wanted, &taken);
            taken.insert(id.clone());
            trigger.enabled.get_or_insert(true);
            let old = old.unwrap_or_default().iter().find(|old| old.id.as_ref() == Some(&id));
            trigger.id = Some(id);
            if let Some(set) = &mut trigger.configuration {
                set.complete(old.and_then(|old| old.configuration.as_ref()), world);
            }
        }
    }

    pub fn visit_all(triggers: Option<&mut Vec<Self>>, visit: &mut dyn FnMut(&str, &mut String)) {
        for trigger in triggers.into_iter().flatten() {
            let secret = trigger.configuration.as_mut().and_then(|set| set.callback_secret.as_mut());
            if let Some(Sensitive(secret)) = secret {
                visit(&format!("triggers.{}.callbackSecret", trigger.id.as_deref().unwrap_or_default()), secret);
            }
        }
    }
}

impl TriggerConfiguration {
    fn complete(&mut self, old: Option<&Self>, world: &World) {
        let calls_back = self.callback_url.as_deref().is_some_and(|url| !url.is_empty());
        let stored = old.and_then(|old| old.callback_secret.clone());
        let secret = || stored.unwrap_or_else(|| Sensitive(world.random_text(CALLBACK_SECRET_LENGTH)));
        self.callback_secret = calls_back.then(secret);
    }
}

/// `wanted`, or the first of `wanted-2`, `wanted-3`, … that is free.
fn distinct(wanted: String, taken: &BTreeSet<String>) -> String {
    if !taken.contains(&wanted) {
        return wanted;
    }
    // One more number than there are ids, so that one is free.
    let mut numbered = (2..taken.len() + 3).map(|number| format!("{wanted}-{number}"));
    numbered.find(|id| !taken.contains(id)).unwrap_or(wanted)
}
