//! Writes how much to think. Newer models are given an effort and think as much as they need; older
//! ones are given a number of tokens, which counts towards the length of the answer.

use super::versions::{is_newest, version};
use crate::chat::{Chat, Content, Reasoning, Role, ToolChoice};
use crate::dialect::members::Object;
use crate::dialect::{Losses, parts};
use serde_json::json;

/// The smallest budget that the provider accepts.
const BUDGET_MIN: u64 = 1024;

/// Writes how much to think. Returns whether the model thinks at all, which the oldest cannot.
pub(super) fn put(
    chat: &Chat,
    max_tokens: u64,
    output_config: &mut Object,
    body: &mut Object,
    losses: &mut Losses,
) -> bool {
    let Some(reasoning) = chat.reasoning.as_ref().filter(|found| !is_off(found)) else {
        return false;
    };
    let version = version(&chat.model);
    if !may(chat) || version.is_some_and(|version| version < (3, 7)) {
        losses.note("reasoning");
        return false;
    }
    if version.is_some_and(|version| version >= (4, 6)) {
        adaptive(reasoning, is_newest(&chat.model), output_config, body, losses);
        return true;
    }
    let wanted = reasoning.budget_tokens;
    let wanted =
        wanted.unwrap_or_else(|| parts::budget_of(reasoning.effort.as_deref().unwrap_or("medium")));
    // Something has to be left for the answer itself.
    let most = if reasoning.budget_tokens.is_some() {
        max_tokens.saturating_sub(1)
    } else {
        max_tokens / 2
    };
    if most < BUDGET_MIN {
        losses.note("reasoning");
        return false;
    }
    let budget = wanted.clamp(BUDGET_MIN, most);
    if reasoning.budget_tokens.is_some_and(|wanted| wanted != budget) {
        losses.note("reasoning.budget_tokens");
    }
    body.put("thinking", json!({"type": "enabled", "budget_tokens": budget}));
    true
}

fn adaptive(
    reasoning: &Reasoning,
    is_newest: bool,
    output_config: &mut Object,
    body: &mut Object,
    losses: &mut Losses,
) {
    if reasoning.budget_tokens.is_some() {
        losses.note("reasoning.budget_tokens");
    }
    let derived = reasoning.budget_tokens.map(parts::effort_of);
    let effort = match reasoning.effort.as_deref().or(derived) {
        Some("minimal") => {
            losses.note("reasoning.effort");
            Some("low")
        }
        Some("xhigh") if !is_newest => {
            losses.note("reasoning.effort");
            Some("max")
        }
        effort => effort,
    };
    output_config.maybe("effort", effort);
    let mut thinking = Object::default();
    thinking.put("type", "adaptive");
    // Older models show their thoughts without being asked.
    if is_newest && reasoning.summary.as_deref().is_some_and(|summary| summary != "none") {
        thinking.put("display", "summarized");
    }
    body.put("thinking", thinking);
}

fn is_off(reasoning: &Reasoning) -> bool {
    reasoning.effort.as_deref() == Some("none") || reasoning.budget_tokens == Some(0)
}

/// Returns whether the model may think. It cannot if it must call a tool; and between calls only if
/// it has thought before them and the proof is there.
fn may(chat: &Chat) -> bool {
    if matches!(chat.tool_choice, Some(ToolChoice::Required | ToolChoice::Named(_))) {
        return false;
    }
    let is_in_calls = chat.messages.last().is_some_and(|last| last.role == Role::Tool);
    let turn = chat.messages.iter().rev().find(|message| message.role == Role::Assistant);
    let is_proven = |content: &Content| match content {
        Content::Reasoning { signature, sealed, .. } => signature.is_some() || sealed.is_some(),
        _ => false,
    };
    !is_in_calls || turn.is_none_or(|turn| turn.parts.iter().any(|part| is_proven(&part.content)))
}
