//! Tests that what Gemini's dialect can express is the same after it was written and read. What it
//! cannot express is removed here first, so this is also the list of that.

use super::*;
use crate::chat::{Content, Format, Part, Role};
use crate::dialect::Dialect;
use crate::dialect::generators::{answer, assembled, chat, deltas, read, written};
use proptest::prelude::*;

/// Removes proofs, which belong to the part after them, so that thoughts are only text.
fn bare(parts: &mut Vec<Part>) {
    for part in parts.iter_mut() {
        if let Content::Reasoning { signature, sealed, .. } = &mut part.content {
            (*signature, *sealed) = (None, None);
        }
    }
    parts.retain(
        |part| !matches!(&part.content, Content::Reasoning { text, .. } if text.is_empty()),
    );
}

fn sayable(chat: &mut Chat) {
    (chat.parallel_tools, chat.end_user, chat.stream) = (None, None, false);
    chat.seed = chat.seed.map(|seed| i64::from(seed as i32));
    chat.stream_usage = true;
    for message in &mut chat.messages {
        bare(&mut message.parts);
        message.parts.iter_mut().for_each(|part| plainly(&mut part.content));
    }
    let is_strict = !chat.tools.is_empty() && chat.tools.iter().all(|tool| tool.strict.is_some());
    let is_loose = matches!(chat.tool_choice, None | Some(crate::chat::ToolChoice::Auto));
    if !(is_strict && is_loose) {
        chat.tools.iter_mut().for_each(|tool| tool.strict = None);
    } else {
        chat.tool_choice = Some(crate::chat::ToolChoice::Auto);
    }
    if let Some(Format::Schema { name, description, .. }) = &mut chat.format {
        "answer".clone_into(name);
        *description = None;
    }
}

fn plainly(content: &mut Content) {
    match content {
        Content::Image { detail, .. } => *detail = None,
        Content::File { name, .. } => *name = None,
        Content::ToolResult { content, .. } => {
            content.iter_mut().for_each(plainly);
            // Text comes before images.
            let texts: Vec<_> = content
                .iter()
                .filter_map(|content| match content {
                    Content::Text(text) => Some(text.clone()),
                    _ => None,
                })
                .collect();
            content.retain(|content| !matches!(content, Content::Text(_)));
            content.insert(0, Content::Text(texts.join("\n")));
        }
        _ => {}
    }
}

/// Removes the names of tools from their results, where this dialect repeats them.
fn unnamed(chat: &mut Chat) {
    for message in &mut chat.messages {
        for part in &mut message.parts {
            if let Content::ToolResult { name, .. } = &mut part.content {
                assert!(name.take().is_some());
            }
        }
    }
}

proptest! {
    #[test]
    fn a_request_is_the_same(mut chat in chat()) {
        sayable(&mut chat);
        let mut losses = Losses::default();
        let body = Gemini.write_request(&chat, &mut losses).unwrap();
        let mut found = Gemini.read_request(&body).unwrap();
        unnamed(&mut found);
        prop_assert_eq!(losses.0, Vec::<String>::new(), "{}", body);
        prop_assert_eq!(found, chat, "{}", body);
    }

    /// The same holds for a stream that is cut at any byte on its way.
    #[test]
    fn an_answer_is_the_same(mut answer in answer(), length in 1usize..9, at in 0usize..6000) {
        bare(&mut answer.choices[0].parts);
        answer.created = None;
        if let Some(usage) = &mut answer.usage {
            usage.cache_written = 0;
        }
        let mut losses = Losses::default();
        let body = Gemini.write_answer(&answer, &mut losses);
        prop_assert_eq!(losses.0, Vec::<String>::new(), "{}", body);
        prop_assert_eq!(&Gemini.read_answer(&body).unwrap(), &answer, "{}", body);
        let bytes = written(Dialect::Gemini, &deltas(&answer, length));
        let found = assembled(&read(Dialect::Gemini, &bytes, at));
        prop_assert_eq!(found, answer, "{}", String::from_utf8_lossy(&bytes));
    }

    /// A proof stays before the part it was before.
    #[test]
    fn proofs_are_kept(answer in answer(), length in 1usize..9, at in 0usize..6000) {
        let proofs = |answer: &Answer| -> Vec<String> {
            let of = |part: &Part| match &part.content {
                Content::Reasoning { signature, .. } => signature.clone(),
                Content::ToolCall(call) => call.signature.clone(),
                _ => None,
            };
            answer.choices[0].parts.iter().filter_map(of).collect()
        };
        let body = Gemini.write_answer(&answer, &mut Losses::default());
        prop_assert_eq!(proofs(&Gemini.read_answer(&body).unwrap()), proofs(&answer));
        let bytes = written(Dialect::Gemini, &deltas(&answer, length));
        prop_assert_eq!(proofs(&assembled(&read(Dialect::Gemini, &bytes, at))), proofs(&answer));
    }
}

#[test]
fn late_words_of_the_system_come_first() {
    let text = |role, text: &str| {
        let parts = vec![crate::dialect::parts::plain(Content::Text(text.to_owned()))];
        crate::chat::Message { role, name: None, parts }
    };
    let chat = Chat { messages: vec![text(Role::System, "a")], ..Chat::default() };
    let mut losses = Losses::default();
    let body = Gemini.write_request(&chat, &mut losses).unwrap();
    assert_eq!(losses.0, ["messages.role"]);
    assert_eq!(body["contents"][0]["parts"][0]["text"], "a");
}
