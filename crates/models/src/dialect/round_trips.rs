//! Tests that what a dialect can express is the same after it was written and read. What it cannot
//! express is removed here first, so this is also the list of that.

use super::generators::{answer, assembled, chat, deltas, read, written};
use super::{Dialect, Losses};
use crate::chat::{Answer, Chat, Content, Finish, Format, Part, Role, ToolChoice};
use proptest::prelude::*;
use types::models::TokenUsage;

fn each_content(chat: &mut Chat, mut change: impl FnMut(&mut Content)) {
    chat.messages.iter_mut().flat_map(|message| &mut message.parts).for_each(|part| {
        change(&mut part.content);
    });
}

fn is_thought(part: &Part) -> bool {
    matches!(part.content, Content::Reasoning { .. })
}

fn openai(chat: &mut Chat) {
    // The name decides which member holds `max_tokens`; half of the cases use each.
    chat.model = if chat.stream { "gpt-5" } else { "gpt-4o" }.to_owned();
    chat.top_k = None;
    if chat.stream {
        (chat.temperature, chat.top_p) = (None, None);
        (chat.presence_penalty, chat.frequency_penalty) = (None, None);
        chat.stop.clear();
    } else {
        chat.reasoning = None;
    }
    for message in &mut chat.messages {
        message.parts.retain(|part| !is_thought(part));
    }
    each_content(chat, |content| {
        if let Content::ToolResult { content, is_error, .. } = content {
            content.retain(|content| matches!(content, Content::Text(_)));
            if content.is_empty() {
                content.push(Content::Text(String::new()));
            }
            *is_error = false;
        }
    });
    if let Some(reasoning) = &mut chat.reasoning {
        reasoning.effort.get_or_insert_with(|| "low".to_owned());
        (reasoning.budget_tokens, reasoning.summary) = (None, None);
    }
}

fn responses(chat: &mut Chat) {
    chat.model = "gpt-5".to_owned();
    (chat.top_k, chat.seed, chat.choices) = (None, None, None);
    (chat.presence_penalty, chat.frequency_penalty) = (None, None);
    chat.stop.clear();
    each_content(chat, |content| match content {
        Content::ToolResult { content, is_error, .. } => {
            if content.is_empty() {
                content.push(Content::Text(String::new()));
            }
            *is_error = false;
        }
        // This dialect has one kind of proof.
        Content::Reasoning { signature, sealed, .. } => {
            *sealed = sealed.take().or(signature.take());
        }
        _ => {}
    });
    if let Some(reasoning) = &mut chat.reasoning {
        reasoning.effort.get_or_insert_with(|| "low".to_owned());
        reasoning.budget_tokens = None;
    }
    chat.stream_usage = true;
}

fn anthropic(chat: &mut Chat) {
    chat.model = "claude-sonnet-4-5".to_owned();
    chat.max_tokens.get_or_insert(5000);
    (chat.seed, chat.choices) = (None, None);
    (chat.presence_penalty, chat.frequency_penalty) = (None, None);
    if chat.temperature.is_some() {
        chat.top_p = None;
    }
    each_content(chat, |content| match content {
        Content::Image { detail, .. } => *detail = None,
        Content::ToolResult { content, .. } => {
            content.iter_mut().for_each(|content| {
                if let Content::Image { detail, .. } = content {
                    *detail = None;
                }
            });
        }
        _ => {}
    });
    chat.format = match chat.format.take() {
        Some(Format::Schema { schema, .. }) => Some(Format::Schema {
            name: "answer".to_owned(),
            description: None,
            schema,
            strict: Some(true),
        }),
        _ => None,
    };
    if chat.parallel_tools.is_some() {
        chat.tool_choice.get_or_insert(ToolChoice::Auto);
    }
    match &chat.tool_choice {
        Some(ToolChoice::None) => chat.parallel_tools = None,
        Some(ToolChoice::Required | ToolChoice::Named(_)) => chat.reasoning = None,
        _ => {}
    }
    if let Some(reasoning) = &mut chat.reasoning {
        reasoning.effort = None;
        reasoning.budget_tokens.get_or_insert(2000);
        reasoning.summary = Some("auto".to_owned());
        (chat.temperature, chat.top_p, chat.top_k) = (None, None, None);
    }
    chat.stream_usage = true;
}

fn same_request(dialect: Dialect, mut chat: Chat) -> Result<(), TestCaseError> {
    let mut losses = Losses::default();
    let written = dialect.words().write_request(&chat, &mut losses).unwrap();
    let mut found = dialect.words().read_request(&written).unwrap();
    prop_assert_eq!(losses.0, Vec::<String>::new(), "{}", written);
    // It was added so that the provider stores nothing.
    found.others.remove("store");
    if dialect == Dialect::Anthropic && !chat.stream {
        chat.stream_usage = true;
    }
    prop_assert_eq!(found, chat, "{}", written);
    Ok(())
}

/// Removes from an answer what this dialect cannot express.
fn sayable(dialect: Dialect, answer: &mut Answer) {
    if dialect == Dialect::Anthropic {
        answer.created = None;
        answer.usage.get_or_insert(TokenUsage::default());
    }
    if dialect == Dialect::Responses {
        for part in &mut answer.choices[0].parts {
            if let Content::Reasoning { signature, sealed, .. } = &mut part.content {
                *sealed = sealed.take().or(signature.take());
            }
        }
    }
}

fn same_answer(dialect: Dialect, answer: &Answer) -> Result<(), TestCaseError> {
    let mut losses = Losses::default();
    let written = dialect.words().write_answer(answer, &mut losses);
    let mut found = dialect.words().read_answer(&written).unwrap();
    found.others.clear();
    prop_assert_eq!(losses.0, Vec::<String>::new(), "{}", written);
    prop_assert_eq!(&found, answer, "{}", written);
    Ok(())
}

const OURS: [Dialect; 3] = [Dialect::OpenAi, Dialect::Responses, Dialect::Anthropic];

proptest! {
    #[test]
    fn a_request_is_the_same_in_chat_completions(mut chat in chat()) {
        openai(&mut chat);
        same_request(Dialect::OpenAi, chat)?;
    }

    #[test]
    fn a_request_is_the_same_in_responses(mut chat in chat()) {
        responses(&mut chat);
        same_request(Dialect::Responses, chat)?;
    }

    #[test]
    fn a_request_is_the_same_in_messages(mut chat in chat()) {
        anthropic(&mut chat);
        same_request(Dialect::Anthropic, chat)?;
    }

    #[test]
    fn an_answer_is_the_same(answer in answer()) {
        for dialect in OURS {
            let mut answer = answer.clone();
            sayable(dialect, &mut answer);
            same_answer(dialect, &answer)?;
        }
    }

    /// The same holds if the stream is cut at any byte on its way.
    #[test]
    fn a_stream_is_the_same(answer in answer(), length in 1usize..9, at in 0usize..6000) {
        for dialect in OURS {
            let mut answer = answer.clone();
            sayable(dialect, &mut answer);
            let bytes = written(dialect, &deltas(&answer, length));
            let found = assembled(&read(dialect, &bytes, at));
            prop_assert_eq!(found, answer, "{}", String::from_utf8_lossy(&bytes));
        }
    }

    /// Whatever a body contains, a reader gets to its end without a panic.
    #[test]
    fn no_body_is_too_strange(chat in chat(), seed in any::<u64>()) {
        for dialect in OURS {
            let mut chat = chat.clone();
            match dialect {
                Dialect::Anthropic => anthropic(&mut chat),
                Dialect::Responses => responses(&mut chat),
                _ => openai(&mut chat),
            }
            let mut body = dialect.words().write_request(&chat, &mut Losses::default()).unwrap();
            spoil(&mut body, seed);
            let _ = dialect.words().read_request(&body);
            let _ = dialect.words().read_answer(&body);
            let _ = dialect.words().read_fault(400, body.to_string().as_bytes());
            let event = format!("data: {body}\n\n");
            let (mut reader, mut found) = (dialect.words().reader(), Vec::new());
            let mut events = crate::events::Events::new(1 << 20);
            events.push(event.as_bytes(), |event| drop(reader.read(&event, &mut found))).unwrap();
        }
    }
}

/// Replaces one value somewhere in a body by something else.
fn spoil(value: &mut serde_json::Value, seed: u64) {
    use serde_json::{Value, json};
    let count = match value {
        Value::Array(list) => list.len(),
        Value::Object(map) => map.len(),
        _ => 0,
    } as u64;
    let chosen = usize::try_from(seed % count.max(1)).unwrap();
    let child = match value {
        Value::Array(list) => list.get_mut(chosen),
        Value::Object(map) => map.values_mut().nth(chosen),
        _ => None,
    };
    match child {
        Some(child) if !seed.is_multiple_of(7) => spoil(child, seed / 5 + 1),
        _ => {
            *value = match seed % 6 {
                0 => Value::Null,
                1 => json!([]),
                2 => json!({}),
                3 => json!(-1),
                4 => json!("?"),
                _ => json!([[{"type": "text"}]]),
            };
        }
    }
}

#[test]
fn every_end_is_said() {
    let finish = |dialect: Dialect, finish: &Finish| {
        let mut answer = Answer::default();
        let parts = vec![super::parts::plain(Content::Text("a".to_owned()))];
        answer.choices.push(crate::chat::Choice { parts, finish: finish.clone() });
        let written = dialect.words().write_answer(&answer, &mut Losses::default());
        dialect.words().read_answer(&written).unwrap().choices.remove(0).finish
    };
    let sequence = Finish::StopSequence("END".to_owned());
    let other = Finish::Other("new".to_owned());
    for (asked, openai, responses, anthropic) in [
        (Finish::Stop, Finish::Stop, Finish::Stop, Finish::Stop),
        (sequence.clone(), Finish::Stop, Finish::Stop, sequence),
        (Finish::Length, Finish::Length, Finish::Length, Finish::Length),
        (Finish::ToolCalls, Finish::ToolCalls, Finish::Stop, Finish::ToolCalls),
        (Finish::Filtered, Finish::Filtered, Finish::Filtered, Finish::Refused),
        (Finish::Refused, Finish::Filtered, Finish::Filtered, Finish::Refused),
        (Finish::Paused, Finish::Stop, Finish::Stop, Finish::Paused),
        (other, Finish::Stop, Finish::Stop, Finish::Stop),
    ] {
        assert_eq!(finish(Dialect::OpenAi, &asked), openai, "{asked:?}");
        assert_eq!(finish(Dialect::Responses, &asked), responses, "{asked:?}");
        assert_eq!(finish(Dialect::Anthropic, &asked), anthropic, "{asked:?}");
    }
}

#[test]
fn the_system_speaks_first() {
    let text = |text: &str| vec![super::parts::plain(Content::Text(text.to_owned()))];
    let message = |role, said: &str| crate::chat::Message { role, name: None, parts: text(said) };
    let messages =
        vec![message(Role::System, "a"), message(Role::User, "b"), message(Role::System, "c")];
    let chat = Chat { messages, ..Chat::default() };
    let mut losses = Losses::default();
    let body = Dialect::Anthropic.words().write_request(&chat, &mut losses).unwrap();
    assert_eq!(losses.0, ["messages.role"]);
    assert_eq!(body["system"][1]["text"], "c");
    let mut losses = Losses::default();
    let body = Dialect::Responses.words().write_request(&chat, &mut losses).unwrap();
    assert_eq!(losses.0, Vec::<String>::new());
    assert_eq!((&body["instructions"], &body["input"][1]["role"]), (&"a".into(), &"system".into()));
}
