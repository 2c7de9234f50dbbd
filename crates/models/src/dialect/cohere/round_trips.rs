//! Tests that what Cohere's dialect can express is the same after it was written and read. What it
//! cannot express is removed here first, so this is also the list of that.

use super::*;
use crate::chat::{Content, Format, Message, Part, Role, ToolChoice};
use crate::dialect::Dialect;
use crate::dialect::generators::{answer, assembled, chat, deltas, read, written};
use proptest::prelude::*;

fn bare(parts: &mut Vec<Part>) {
    for part in parts.iter_mut() {
        match &mut part.content {
            Content::Reasoning { signature, sealed, .. } => (*signature, *sealed) = (None, None),
            Content::ToolResult { content, is_error, .. } => {
                content.retain(|content| matches!(content, Content::Text(_)));
                if content.is_empty() {
                    content.push(Content::Text(String::new()));
                }
                *is_error = false;
            }
            _ => {}
        }
    }
    parts.retain(|part| match &part.content {
        Content::Reasoning { text, .. } => !text.is_empty(),
        Content::File { .. } => false,
        _ => true,
    });
}

fn sayable(chat: &mut Chat) {
    (chat.parallel_tools, chat.end_user, chat.choices) = (None, None, None);
    chat.seed = chat.seed.map(|seed| seed & i64::MAX);
    chat.stream_usage = true;
    chat.messages.iter_mut().for_each(|message| bare(&mut message.parts));
    chat.messages.retain(|Message { parts, .. }| !parts.is_empty());
    if let Some(ToolChoice::Named(name)) = &chat.tool_choice {
        chat.tools.retain(|tool| tool.name == *name);
        chat.tool_choice = Some(ToolChoice::Required);
    }
    if chat.tool_choice == Some(ToolChoice::Auto) {
        chat.tool_choice = None;
    }
    if !chat.tools.iter().all(|tool| tool.strict.is_some()) {
        chat.tools.iter_mut().for_each(|tool| tool.strict = None);
    }
    if let Some(Format::Schema { name, description, .. }) = &mut chat.format {
        "answer".clone_into(name);
        *description = None;
    }
    if let Some(reasoning) = &mut chat.reasoning {
        reasoning.budget_tokens.get_or_insert(2000);
        reasoning.effort = None;
        reasoning.summary = Some("auto".to_owned());
    }
}

proptest! {
    #[test]
    fn a_request_is_the_same(mut chat in chat()) {
        sayable(&mut chat);
        let mut losses = Losses::default();
        let body = Cohere.write_request(&chat, &mut losses).unwrap();
        let found = Cohere.read_request(&body).unwrap();
        prop_assert_eq!(losses.0, Vec::<String>::new(), "{}", body);
        prop_assert_eq!(found, chat, "{}", body);
    }

    /// The same holds for a stream that is cut at any byte on its way.
    #[test]
    fn an_answer_is_the_same(mut answer in answer(), length in 1usize..9, at in 0usize..6000) {
        bare(&mut answer.choices[0].parts);
        (answer.created, answer.model) = (None, String::new());
        if let Some(usage) = &mut answer.usage {
            (usage.cache_written, usage.reasoning) = (0, 0);
        }
        let mut losses = Losses::default();
        let body = Cohere.write_answer(&answer, &mut losses);
        prop_assert_eq!(losses.0, Vec::<String>::new(), "{}", body);
        prop_assert_eq!(&Cohere.read_answer(&body).unwrap(), &answer, "{}", body);
        let bytes = written(Dialect::Cohere, &deltas(&answer, length));
        let found = assembled(&read(Dialect::Cohere, &bytes, at));
        prop_assert_eq!(found, answer, "{}", String::from_utf8_lossy(&bytes));
    }
}

#[test]
fn the_system_may_speak_late() {
    let text = |role, text: &str| {
        let parts = vec![crate::dialect::parts::plain(Content::Text(text.to_owned()))];
        Message { role, name: None, parts }
    };
    let messages = vec![text(Role::User, "a"), text(Role::System, "b")];
    let chat = Chat { messages, stream_usage: true, ..Chat::default() };
    let body = Cohere.write_request(&chat, &mut Losses::default()).unwrap();
    assert_eq!(Cohere.read_request(&body).unwrap(), chat);
}
