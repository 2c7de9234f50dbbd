//! Writes sampling parameters and how hard to think. OpenAI's own models refuse some that the
//! models of compatible providers take.

use super::variants::is_mistral;
use crate::chat::Chat;
use crate::dialect::members::Object;
use crate::dialect::{Losses, Unsayable, parts};
use serde_json::Number;
use types::kinds::model::ModelType;

/// The series of a model, by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Series {
    /// `o1`, `gpt-5` and later, with their version. The version of the `o` models is 0.
    Reasons((u32, u32)),
    Plain,
    /// Not one of OpenAI's, or one with open weights that others serve.
    Foreign,
}

pub(super) fn series(model: &str) -> Series {
    let name = model.rsplit(['/', ':']).next().unwrap_or(model);
    let digits = |rest: &str| rest.bytes().take_while(u8::is_ascii_digit).count();
    let number = |rest: &str| rest[..digits(rest)].parse::<u32>();
    if name.strip_prefix('o').is_some_and(|rest| digits(rest) > 0) {
        return Series::Reasons((0, 0));
    }
    let Some(rest) = name.strip_prefix("gpt-") else { return Series::Foreign };
    let minor = || rest[digits(rest)..].strip_prefix('.').and_then(|rest| number(rest).ok());
    match number(rest) {
        Ok(major) if major >= 5 && !rest.contains("-chat") => {
            Series::Reasons((major, minor().unwrap_or(0)))
        }
        Ok(_) => Series::Plain,
        Err(_) => Series::Foreign,
    }
}

pub(super) fn put(chat: &Chat, body: &mut Object, losses: &mut Losses) -> Result<(), Unsayable> {
    let series = series(&chat.model);
    let effort = effort(chat, series, losses);
    if refuses_sampling(series, effort.as_deref()) {
        if !chat.stop.is_empty() {
            return Err(Unsayable::new("stop", "this model is told of no sequences to stop at"));
        }
        lose(chat, losses);
    } else {
        body.maybe("temperature", chat.temperature.clone());
        body.maybe("top_p", chat.top_p.clone());
        body.maybe("presence_penalty", chat.presence_penalty.clone());
        body.maybe("frequency_penalty", chat.frequency_penalty.clone());
        if !chat.stop.is_empty() {
            body.put("stop", chat.stop.clone());
        }
    }
    match chat.top_k {
        Some(_) if series != Series::Foreign || refuses_top_k(chat) => losses.note("top_k"),
        top_k => body.maybe("top_k", top_k),
    }
    body.maybe("reasoning_effort", effort);
    Ok(())
}

fn refuses_sampling(series: Series, effort: Option<&str>) -> bool {
    match series {
        // Later models answer like the plain ones if they are told not to think.
        Series::Reasons(version) => version < (5, 1) || effort != Some("none"),
        Series::Plain | Series::Foreign => false,
    }
}

fn refuses_top_k(chat: &Chat) -> bool {
    let refuses = [ModelType::Openai, ModelType::AzureOpenaiService, ModelType::Groq];
    is_mistral(chat) || chat.provider.is_some_and(|provider| refuses.contains(&provider))
}

/// Reports the parameters that are lost. A default does not have to be written.
fn lose(chat: &Chat, losses: &mut Losses) {
    let differs = |number: &Option<Number>, default: f64| {
        number.as_ref().is_some_and(|number| number.as_f64() != Some(default))
    };
    let lost = [
        ("temperature", differs(&chat.temperature, 1.0)),
        ("top_p", differs(&chat.top_p, 1.0)),
        ("presence_penalty", differs(&chat.presence_penalty, 0.0)),
        ("frequency_penalty", differs(&chat.frequency_penalty, 0.0)),
    ];
    lost.iter().filter(|(_, is_lost)| *is_lost).for_each(|(name, _)| losses.note(*name));
}

fn effort(chat: &Chat, series: Series, losses: &mut Losses) -> Option<String> {
    let reasoning = chat.reasoning.as_ref()?;
    if reasoning.summary.is_some() {
        losses.note("reasoning.summary");
    }
    if reasoning.budget_tokens.is_some() {
        losses.note("reasoning.budget_tokens");
    }
    let derived = || reasoning.budget_tokens.map(|budget| parts::effort_of(budget).to_owned());
    let effort = reasoning.effort.clone().or_else(derived)?;
    let told = match (series, effort.as_str()) {
        (Series::Plain, "none") => return None,
        (Series::Plain, _) => {
            losses.note("reasoning");
            return None;
        }
        (Series::Reasons(version), "max" | "xhigh") if version >= (5, 2) => "xhigh",
        (Series::Reasons(_), "max" | "xhigh") => "high",
        // Only later models can be told not to think at all.
        (Series::Reasons((5, 0)), "none") => "minimal",
        (Series::Reasons((0, _)), "none") => "low",
        _ => return Some(effort),
    };
    if told != effort {
        losses.note("reasoning.effort");
    }
    Some(told.to_owned())
}
