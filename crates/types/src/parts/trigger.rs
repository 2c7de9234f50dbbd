//! Triggers, which start a workload: requests, requests that nobody waits for, and the clock.

use super::{Cron, Generation, Sensitive, limits, names};
use crate::{KindName, Problems, World};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};
use serde_with::skip_serializing_none;
use std::collections::BTreeSet;

/// Characters of a generated callback secret, five bits each.
const CALLBACK_SECRET_LENGTH: usize = 40;
/// Characters of a generated trigger id.
const ID_LENGTH: usize = 12;
/// Longest trigger id, in characters.
const ID_LENGTH_MAX: usize = 64;
/// Value of `authenticationType` with which everybody who knows the address may call.
const PUBLIC: &str = "public";
/// Paths that a job itself answers, so no trigger may.
const OWN_PATHS: [&str; 1] = ["executions"];
/// Path at which an MCP server answers. A trigger there only decides who may call it.
const MCP: &str = "mcp";

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
    #[schemars(length(max = ID_LENGTH_MAX), regex(pattern = limits::PATH_SEGMENT))]
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
    /// Secret that signs the calls to `callbackUrl`. Made by the server.
    // Deserialized because it is stored with the wish; `complete_all` replaces what a caller sent.
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
    /// Time-out of async triggers, in seconds.
    #[schemars(range(min = 1, max = limits::ASYNC_TIMEOUT_S_MAX))]
    pub timeout: Option<i64>,
    /// Time zone of `schedule`, as an IANA name such as `Europe/Paris`. Defaults to UTC.
    #[schemars(length(max = limits::WORD_MAX))]
    pub timezone: Option<String>,
}

/// Reads a text, and ignores anything else: read-only members are ignored when sent, whatever they
/// hold.
fn text_or_none<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Sensitive<String>>, D::Error> {
    Ok(match Value::deserialize(deserializer)? {
        Value::String(text) => Some(Sensitive(text)),
        _ => None,
    })
}

impl Trigger {
    pub fn check_all(
        triggers: Option<&[Self]>,
        generation: Option<Generation>,
        problems: &mut Problems,
    ) {
        for (index, trigger) in triggers.unwrap_or_default().iter().enumerate() {
            trigger.check(
                &format!("spec.triggers[{index}]"),
                generation.unwrap_or_default(),
                problems,
            );
        }
    }

    fn check(&self, at: &str, generation: Generation, problems: &mut Problems) {
        problems.require(self.kind.is_some(), format!("{at}.type"), "is required");
        let none = TriggerConfiguration::default();
        let set = self.configuration.as_ref().unwrap_or(&none);
        let at = format!("{at}.configuration");
        set.check_schedule(self.kind, &at, problems);
        let timed = set.timeout.is_none() || generation == Generation::Mk3;
        problems.require(
            timed,
            format!("{at}.timeout"),
            "is only possible for microVMs (generation mk3)",
        );
        if let Some(Err(rule)) = set.callback().map(names::check_callable) {
            problems.add(format!("{at}.callbackUrl"), rule);
        }
    }

    /// Checks the addresses at which the triggers of an object are called.
    pub fn check_addresses(
        triggers: Option<&[Self]>,
        kind: KindName,
        name: &str,
        problems: &mut Problems,
    ) {
        let mut taken = BTreeSet::new();
        for (index, trigger) in triggers.unwrap_or_default().iter().enumerate() {
            let Some(address) = trigger.address(kind, name) else { continue };
            let field = format!("spec.triggers[{index}].configuration.path");
            let waits = trigger.kind == Some(TriggerType::Http);
            if let Err(rule) = check_address(&address, kind, name, waits) {
                problems.add(&field, rule);
            }
            problems.require(
                taken.insert(address),
                field,
                "is the path of another trigger of this object",
            );
        }
    }

    /// Returns the path at which requests reach it, below the workspace's inference address; `None`
    /// if no request does.
    pub fn address(&self, kind: KindName, name: &str) -> Option<String> {
        if !matches!(self.kind, Some(TriggerType::Http | TriggerType::HttpAsync)) {
            return None;
        }
        let path = self.configuration.as_ref().and_then(|set| set.path.as_deref());
        match path
            .map(|path| path.strip_prefix('/').unwrap_or(path))
            .filter(|path| !path.is_empty())
        {
            Some(path) => Some(path.to_owned()),
            None => {
                Some(format!("{}/{name}/{}", kind.plural(), self.id.as_deref().unwrap_or_default()))
            }
        }
    }

    /// Returns the trigger's schedule if it is a cron trigger that is switched on.
    pub fn cron(&self) -> Option<Cron> {
        let set = self
            .configuration
            .as_ref()
            .filter(|_| self.is_on() && self.kind == Some(TriggerType::Cron))?;
        let cron = Cron::parse(set.schedule.as_deref()?).ok()?;
        set.zone().map_or(Ok(cron.clone()), |zone| cron.in_zone(zone)).ok()
    }

    pub fn is_on(&self) -> bool {
        self.enabled.unwrap_or(true)
    }

    /// Returns true if it may be called without credentials.
    pub fn is_public(&self) -> bool {
        let set = self.configuration.as_ref().and_then(|set| set.authentication_type.as_deref());
        set.is_some_and(|kind| kind.eq_ignore_ascii_case(PUBLIC))
    }

    /// Gives every trigger an id of its own, and a secret for signing to those that call back.
    pub fn complete_all(triggers: Option<&mut Vec<Self>>, old: Option<&[Self]>, world: &World) {
        let mut taken = BTreeSet::new();
        for trigger in triggers.into_iter().flatten() {
            let wanted = trigger.id.take().filter(|id| !id.is_empty());
            let wanted =
                wanted.unwrap_or_else(|| format!("trigger-{}", world.random_text(ID_LENGTH)));
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
            let secret =
                trigger.configuration.as_mut().and_then(|set| set.callback_secret.as_mut());
            if let Some(Sensitive(secret)) = secret {
                visit(
                    &format!(
                        "triggers.{}.callbackSecret",
                        trigger.id.as_deref().unwrap_or_default()
                    ),
                    secret,
                );
            }
        }
    }
}

impl TriggerConfiguration {
    /// Returns the address to call with the outcome.
    pub fn callback(&self) -> Option<&str> {
        self.callback_url.as_deref().filter(|url| !url.is_empty())
    }

    fn receiver(&self) -> Option<String> {
        names::receiver(self.callback()?)
    }

    /// Returns the zone of the schedule, if it is not UTC.
    pub fn zone(&self) -> Option<&str> {
        self.timezone.as_deref().filter(|zone| !zone.is_empty())
    }

    fn check_schedule(&self, kind: Option<TriggerType>, at: &str, problems: &mut Problems) {
        match self.schedule.as_deref().filter(|line| !line.is_empty()).map(Cron::parse) {
            Some(Err(error)) => problems.add(format!("{at}.schedule"), error.to_string()),
            None if kind == Some(TriggerType::Cron) => {
                problems.add(format!("{at}.schedule"), "is required for cron triggers");
            }
            Some(Ok(_)) | None => {}
        }
        if let Some(Err(error)) = self.zone().map(Cron::check_zone) {
            problems.add(format!("{at}.timezone"), error.to_string());
        }
    }

    fn complete(&mut self, old: Option<&Self>, world: &World) {
        let calls_back = self.callback().is_some();
        let stored = old
            .filter(|old| old.receiver() == self.receiver())
            .and_then(|old| old.callback_secret.clone());
        let secret =
            || stored.unwrap_or_else(|| Sensitive(world.random_text(CALLBACK_SECRET_LENGTH)));
        self.callback_secret = calls_back.then(secret);
    }
}

/// Checks that an address needs no decoding, and that no other object and not the server itself
/// answers at it.
fn check_address(
    address: &str,
    kind: KindName,
    name: &str,
    waits: bool,
) -> Result<(), &'static str> {
    let plain = |step: &str| {
        !matches!(step, "" | "." | "..")
            && step.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte))
    };
    let steps: Vec<&str> = address.split('/').collect();
    if !steps.iter().all(|step| plain(step)) {
        return Err(
            "must be words of letters, digits, `-`, `.`, `_` and `~` with `/` between them",
        );
    }
    let of_a_kind = |step: &&str| KindName::ALL.iter().any(|kind| kind.plural() == *step);
    match steps.as_slice() {
        [plural, own, MCP]
            if kind == KindName::Function && *plural == kind.plural() && *own == name && !waits =>
        {
            Err("is where the MCP server itself answers: choose another, or the type `http`")
        }
        [plural, own, rest, ..]
            if *plural == kind.plural()
                && *own == name
                && !(kind == KindName::Job && OWN_PATHS.contains(rest)) =>
        {
            Ok(())
        }
        [first, ..] if of_a_kind(first) => Err(
            "must not be where another object answers: begin with the kind and the name of this object, as in `/jobs/NAME/`, or with a word that is no kind",
        ),
        _ => Ok(()),
    }
}

/// Returns `wanted`, or the first of `wanted-2`, `wanted-3`, … that is free. `wanted` is cut where
/// the number would make it longer than an id may be.
fn distinct(wanted: String, taken: &BTreeSet<String>) -> String {
    if !taken.contains(&wanted) {
        return wanted;
    }
    // One number more than there are ids, so that one must be free.
    let mut numbered = (2..taken.len() + 3).map(|number| {
        let suffix = format!("-{number}");
        let kept = ID_LENGTH_MAX.saturating_sub(suffix.len());
        wanted.chars().take(kept).chain(suffix.chars()).collect()
    });
    numbered.find(|id| !taken.contains(id)).unwrap_or(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Timestamp;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn triggers_get_distinct_ids_that_are_accepted_again(
            ids in proptest::collection::vec("a{60,64}|a{60,62}-[2-4]|[a-c]{0,2}", 0..20)
        ) {
            let trigger = |id: &String| Trigger { id: Some(id.clone()), ..Trigger::default() };
            let mut triggers: Vec<Trigger> = ids.iter().map(trigger).collect();
            let world = World::new(|| Timestamp::from_ms(0), |bytes| bytes.fill(7));
            Trigger::complete_all(Some(&mut triggers), None, &world);
            let made: BTreeSet<_> =
                triggers.iter().filter_map(|trigger| trigger.id.as_deref()).collect();
            prop_assert_eq!(made.len(), ids.len());
            prop_assert!(made.iter().all(|id| (1..=ID_LENGTH_MAX).contains(&id.len())), "{:?}", made);
        }
    }
}
