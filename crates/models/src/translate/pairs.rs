//! Tests that nothing is lost silently: whatever a request says in one dialect and not in the other
//! is reported.

use super::*;
use crate::chat::{Content, Format, Message, Part, Role, Source, Tool, ToolChoice};
use crate::dialect::generators::chat;
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;
use std::collections::BTreeMap;

/// Older and newer models, whose requests are written differently.
fn models(dialect: Dialect) -> [&'static str; 2] {
    match dialect {
        Dialect::OpenAi | Dialect::Responses => ["gpt-4o", "gpt-5"],
        Dialect::Anthropic => ["claude-3-5-haiku-latest", "claude-opus-4-6"],
        Dialect::Gemini => ["gemini-2.5-pro", "gemini-3-pro-preview"],
        Dialect::Cohere => ["command-r", "command-a-03-2025"],
    }
}

/// Lists what differs between the request as asked and as made, each by the beginning of the name
/// of the loss that must report it.
fn differences(asked: &Chat, made: &Chat) -> Vec<&'static str> {
    let mut found = Vec::new();
    let mut look = |differs: bool, name| {
        if differs {
            found.push(name);
        }
    };
    let number = |number: &Option<serde_json::Number>| number.as_ref().and_then(|n| n.as_f64());
    look(number(&asked.temperature) != number(&made.temperature), "temperature");
    look(number(&asked.top_p) != number(&made.top_p), "top_p");
    look(asked.top_k != made.top_k, "top_k");
    let penalty = |found: &Option<serde_json::Number>| number(found).filter(|found| *found != 0.0);
    let presence = (&asked.presence_penalty, &made.presence_penalty);
    look(penalty(presence.0) != penalty(presence.1), "presence_penalty");
    let frequency = (&asked.frequency_penalty, &made.frequency_penalty);
    look(penalty(frequency.0) != penalty(frequency.1), "frequency_penalty");
    look(asked.max_tokens.is_some() && asked.max_tokens != made.max_tokens, "max_tokens");
    look(asked.seed != made.seed, "seed");
    look(asked.stop != made.stop, "stop");
    look(asked.choices.unwrap_or(1) != made.choices.unwrap_or(1), "n");
    look(asked.end_user != made.end_user, "user");
    // How to call tools does not matter if none may be called.
    let may_call = !asked.tools.is_empty() && asked.tool_choice != Some(ToolChoice::None);
    let is_single = |chat: &Chat| chat.parallel_tools == Some(false) && may_call;
    look(is_single(asked) && !is_single(made), "parallel_tool_calls");
    look(choice(asked) != choice(made), "tool_choice");
    let (offered, told) = (offered(asked), offered(made));
    let plain = |tools: &[Tool]| -> Vec<_> {
        let plain =
            |tool: &Tool| (tool.name.clone(), tool.description.clone(), tool.parameters.clone());
        tools.iter().map(plain).collect()
    };
    look(plain(&offered) != plain(&told), "tools");
    // For some models a forced call also means that the tool's schema is enforced.
    let is_held = |tools: &[Tool]| tools.iter().any(|tool| tool.strict == Some(true));
    let is_forced = matches!(choice(asked), Some(ToolChoice::Required | ToolChoice::Named(_)));
    look(may_call && is_held(&offered) && !is_held(&told) && !is_forced, "tools.strict");
    match (&asked.format, &made.format) {
        (
            Some(Format::Schema { schema: one, description, .. }),
            Some(Format::Schema { schema: two, description: told, .. }),
        ) => {
            look(one != two, "response_format");
            look(description.is_some() && told.is_none(), "response_format.description");
        }
        (None | Some(Format::Text), None | Some(Format::Text)) => {}
        (one, two) => look(one != two, "response_format"),
    }
    let thinks = |chat: &Chat| {
        chat.reasoning.as_ref().is_some_and(|found| found.effort.as_deref() != Some("none"))
    };
    look(thinks(asked) != thinks(made), "reasoning");
    let budget = |chat: &Chat| chat.reasoning.as_ref().and_then(|found| found.budget_tokens);
    look(budget(asked).is_some() && budget(asked) != budget(made), "reasoning.budget_tokens");
    messages(asked, made, &mut look);
    found
}

/// Returns the tools that may be called: if the choice names one, only that one.
fn offered(chat: &Chat) -> Vec<Tool> {
    let named = match &chat.tool_choice {
        Some(ToolChoice::Named(name)) => Some(name),
        _ => None,
    };
    let is_offered = |tool: &&Tool| named.is_none_or(|name| tool.name == *name);
    chat.tools.iter().filter(is_offered).cloned().collect()
}

fn choice(chat: &Chat) -> Option<ToolChoice> {
    match (&chat.tool_choice, offered(chat).as_slice()) {
        (_, []) | (Some(ToolChoice::Auto), _) => None,
        // Naming a tool is the same as offering only that one.
        (Some(ToolChoice::Named(_)), _) => Some(ToolChoice::Required),
        (choice, _) => choice.clone(),
    }
}

fn messages(asked: &Chat, made: &Chat, look: &mut impl FnMut(bool, &'static str)) {
    let all = |chat: &Chat| -> Vec<Part> {
        let kept = |message: &Message| message.parts.clone();
        chat.messages.iter().flat_map(kept).collect()
    };
    let (one, two) = (all(asked), all(made));
    let words = |of: Role, chat: &Chat| -> String {
        let of_role = chat.messages.iter().filter(|message| message.role == of);
        let mut text = String::new();
        of_role.flat_map(|message| &message.parts).for_each(|part| said(&part.content, &mut text));
        text
    };
    for (role, name) in [
        (Role::System, "messages.role"),
        (Role::User, "tool_result.content"),
        (Role::Assistant, "messages"),
        (Role::Tool, "tool_result.content"),
    ] {
        look(words(role, asked) != words(role, made), name);
    }
    let thoughts = |parts: &[Part]| -> String {
        let text = |part: &Part| match &part.content {
            Content::Reasoning { text, .. } => Some(text.clone()),
            _ => None,
        };
        parts.iter().filter_map(text).collect()
    };
    look(thoughts(&one) != thoughts(&two), "reasoning");
    let errors = |parts: &[Part]| {
        let is_error =
            |part: &&Part| matches!(part.content, Content::ToolResult { is_error: true, .. });
        parts.iter().filter(is_error).count()
    };
    look(errors(&one) != errors(&two), "tool_result.is_error");
    let details = |parts: &[Part]| {
        let has = |part: &&Part| matches!(&part.content, Content::Image { detail: Some(_), .. });
        parts.iter().filter(has).count()
    };
    look(details(&one) > details(&two), "image_url.detail");
    let names = |parts: &[Part]| {
        let has = |part: &&Part| matches!(&part.content, Content::File { name: Some(_), .. });
        parts.iter().filter(has).count()
    };
    look(names(&one) > names(&two), "file.filename");
}

/// Collects everything that a model reads of the content, as one text.
fn said(content: &Content, text: &mut String) {
    let mut of_source = |source: &Source| match source {
        Source::Url(url) => text.push_str(url),
        Source::Data { data, .. } => text.push_str(data),
        Source::Id(id) => text.push_str(id),
    };
    match content {
        Content::Text(said) | Content::Refusal(said) => text.push_str(said.trim()),
        Content::Image { source, .. }
        | Content::File { source, .. }
        | Content::Audio { source } => {
            of_source(source);
        }
        Content::ToolCall(call) => {
            let arguments: Value = serde_json::from_str(&call.arguments).unwrap();
            text.push_str(&format!("{}({arguments})", call.name));
        }
        Content::ToolResult { content, .. } => {
            content.iter().for_each(|part| said_of_tool(part, text))
        }
        Content::Reasoning { .. } => {}
    }
}

fn said_of_tool(content: &Content, text: &mut String) {
    said(content, text);
    // Dialects join several texts in different ways.
    text.retain(|letter| letter != '\n');
}

/// The first example of each difference that was not reported.
type Silent = BTreeMap<(&'static str, Dialect, Dialect), String>;

fn compare(chat: &Chat, is_newer: bool, silent: &mut Silent) {
    for from in Dialect::ALL {
        let model = models(from)[usize::from(is_newer)].to_owned();
        let chat = Chat { model, ..chat.clone() };
        let Ok(body) = from.words().write_request(&chat, &mut Losses::default()) else {
            continue;
        };
        let asked = from.words().read_request(&body).unwrap();
        for to in Dialect::ALL {
            let model = models(to)[usize::from(is_newer)];
            let made = Translation::request(from, to, &body, model, chat.stream);
            // A refusal reports the difference as well.
            let Ok((call, written)) = made else { continue };
            if call.schema_tool.is_some() {
                continue;
            }
            let written: Value = serde_json::from_slice(&written).unwrap();
            let made = to.words().read_request(&written).unwrap();
            for name in differences(&asked, &made) {
                let tells = |loss: &String| loss.starts_with(name) || name.starts_with(&**loss);
                if !call.losses().iter().any(tells) {
                    let text = || format!("{body} became {written}");
                    silent.entry((name, from, to)).or_insert_with(text);
                }
            }
        }
    }
}

#[test]
fn nothing_goes_silently() {
    let (mut runner, mut silent) = (TestRunner::default(), Silent::new());
    for case in 0..256 {
        let chat = chat().new_tree(&mut runner).unwrap().current();
        compare(&chat, case % 2 == 0, &mut silent);
    }
    let list: Vec<_> = silent.iter().map(|(what, text)| format!("{what:?}: {text}")).collect();
    assert!(list.is_empty(), "{}", list.join("\n\n"));
}
