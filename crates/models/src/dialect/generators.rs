//! Random requests and answers to try all dialects with. They contain everything that most dialects
//! can express; a test first removes what its dialect cannot.

use super::Dialect;
use super::parts::plain;
use crate::chat::{
    Answer, Chat, Choice, Content, Delta, Finish, Format, Message, Part, Reasoning, Role, Source,
    Tool, ToolCall, ToolChoice,
};
use crate::events::Events;
use bytes::BytesMut;
use proptest::prelude::*;
use serde_json::{Number, json};
use types::models::TokenUsage;

/// Text that is never empty, and nowhere consists only of white space.
pub(crate) fn text() -> impl Strategy<Value = String> {
    "[a-zA-Z0-9\"\\\\{}ä日🦀]{1,12}( [a-z\n]{1,8}[a-z]){0,2}"
}

fn word() -> impl Strategy<Value = String> {
    "[a-zA-Z][a-zA-Z0-9_]{0,10}"
}

/// A proof in base64, as providers make them.
fn proof() -> impl Strategy<Value = String> {
    "[a-zA-Z0-9]{12}([a-zA-Z0-9]{4}){0,4}"
}

/// A number with few digits, so that it is the same after it was written and read.
fn share() -> impl Strategy<Value = Number> {
    (1u32..20).prop_map(|twentieths| Number::from_f64(f64::from(twentieths) / 20.0).unwrap())
}

fn arguments() -> impl Strategy<Value = String> {
    proptest::collection::btree_map(word(), text(), 0..3)
        .prop_map(|members| serde_json::to_string(&members).unwrap())
}

fn image() -> impl Strategy<Value = Content> {
    let data = proof().prop_map(|data| Source::Data { media_type: "image/png".to_owned(), data });
    let url = word().prop_map(|name| Source::Url(format!("https://a.example/{name}.png")));
    let detail = proptest::option::of(Just("low".to_owned()));
    (prop_oneof![data, url], detail).prop_map(|(source, detail)| Content::Image { source, detail })
}

fn pdf() -> impl Strategy<Value = Content> {
    (proof(), word()).prop_map(|(data, name)| Content::File {
        source: Source::Data { media_type: "application/pdf".to_owned(), data },
        name: Some(format!("{name}.pdf")),
    })
}

fn said() -> impl Strategy<Value = Part> {
    prop_oneof![3 => text().prop_map(Content::Text), 1 => image(), 1 => pdf()].prop_map(plain)
}

fn thought() -> impl Strategy<Value = Part> {
    let signed = (text(), proof()).prop_map(|(text, proof)| (text, Some(proof), None));
    let sealed = proof().prop_map(|proof| (String::new(), None, Some(proof)));
    prop_oneof![signed, sealed]
        .prop_map(|(text, signature, sealed)| plain(Content::Reasoning { text, signature, sealed }))
}

fn call() -> impl Strategy<Value = ToolCall> {
    ("[a-zA-Z0-9]{8,12}", word(), arguments()).prop_map(|(id, name, arguments)| ToolCall {
        id: format!("call_{id}"),
        name,
        arguments,
        signature: None,
    })
}

/// Tool calls with distinct ids.
fn calls(count: std::ops::Range<usize>) -> impl Strategy<Value = Vec<ToolCall>> {
    proptest::collection::vec(call(), count).prop_map(|mut calls| {
        for (index, call) in calls.iter_mut().enumerate() {
            call.id.push_str(&index.to_string());
        }
        calls
    })
}

fn result(call: &ToolCall, content: Vec<Content>, is_error: bool) -> Part {
    let (call, name) = (call.id.clone(), None);
    plain(Content::ToolResult { call, name, content, is_error })
}

/// A message of the user and what follows it, up to the results of tools.
fn turn() -> impl Strategy<Value = Vec<Message>> {
    let user = proptest::collection::vec(said(), 1..3);
    let shown =
        proptest::collection::vec(prop_oneof![text().prop_map(Content::Text), image()], 0..3);
    let of_tools = (shown, any::<bool>());
    (user, proptest::option::of(thought()), text(), calls(0..3), of_tools).prop_map(
        |(user, thought, text, calls, (shown, is_error))| {
            let message = |role, parts| Message { role, name: None, parts };
            let mut parts: Vec<Part> = thought.into_iter().collect();
            parts.push(plain(Content::Text(text)));
            let results: Vec<_> =
                calls.iter().map(|call| result(call, shown.clone(), is_error)).collect();
            parts.extend(calls.into_iter().map(|call| plain(Content::ToolCall(call))));
            let mut turn = vec![message(Role::User, user), message(Role::Assistant, parts)];
            if !results.is_empty() {
                turn.push(message(Role::Tool, results));
            }
            turn
        },
    )
}

fn messages() -> impl Strategy<Value = Vec<Message>> {
    let turns = proptest::collection::vec(turn(), 0..3);
    (proptest::option::of(text()), turns, text()).prop_map(|(system, turns, last)| {
        let message = |role, text| {
            let parts = vec![plain(Content::Text(text))];
            Message { role, name: None, parts }
        };
        let mut messages: Vec<Message> =
            system.map(|text| message(Role::System, text)).into_iter().collect();
        messages.extend(turns.into_iter().flatten());
        messages.push(message(Role::User, last));
        messages
    })
}

fn tool() -> impl Strategy<Value = Tool> {
    let strict = proptest::option::of(Just(true));
    (word(), proptest::option::of(text()), strict).prop_map(|(name, description, strict)| Tool {
        name,
        description,
        parameters: Some(json!({
            "type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"],
            "additionalProperties": false,
        })),
        strict,
        others: crate::chat::Others::new(),
    })
}

fn tools() -> impl Strategy<Value = (Vec<Tool>, Option<ToolChoice>, Option<bool>)> {
    let choice = proptest::option::of(0..4);
    let tools = proptest::collection::vec(tool(), 0..3);
    (tools, choice, proptest::option::of(any::<bool>())).prop_map(|(tools, choice, parallel)| {
        let Some(first) = tools.first() else { return (tools, None, None) };
        let named = || ToolChoice::Named(first.name.clone());
        let choice = choice.map(|choice| match choice {
            0 => ToolChoice::Auto,
            1 => ToolChoice::None,
            2 => ToolChoice::Required,
            _ => named(),
        });
        (tools, choice, parallel)
    })
}

fn format() -> impl Strategy<Value = Format> {
    let schema = (word(), proptest::option::of(text())).prop_map(|(name, description)| {
        let schema = json!({"type": "object", "additionalProperties": false});
        Format::Schema { name, description, schema, strict: Some(true) }
    });
    prop_oneof![Just(Format::Text), Just(Format::Json), schema]
}

fn reasoning() -> impl Strategy<Value = Reasoning> {
    let effort = prop_oneof![Just("low"), Just("medium"), Just("high")];
    let effort = effort.prop_map(|effort| (Some(effort.to_owned()), None));
    let budget = (1024u64..4000).prop_map(|budget| (None, Some(budget)));
    let summary = proptest::option::of(Just("auto".to_owned()));
    (prop_oneof![effort, budget], summary)
        .prop_map(|((effort, budget_tokens), summary)| Reasoning { effort, budget_tokens, summary })
}

/// A request. Its model has no name; the test gives it one.
pub(crate) fn chat() -> impl Strategy<Value = Chat> {
    use proptest::option::of;
    let numbers = (of(4096u64..9000), of(share()), of(share()), of(1u64..50));
    let rarer = (of(share()), of(share()), of(any::<i64>()), of(2u64..4));
    let words =
        (proptest::collection::vec(text(), 0..3), of(format()), of(reasoning()), of(word()));
    (messages(), tools(), numbers, rarer, words, any::<bool>()).prop_map(
        |(messages, (tools, tool_choice, parallel_tools), numbers, rarer, words, stream)| Chat {
            messages,
            tools,
            tool_choice,
            parallel_tools,
            max_tokens: numbers.0,
            temperature: numbers.1,
            top_p: numbers.2,
            top_k: numbers.3,
            presence_penalty: rarer.0,
            frequency_penalty: rarer.1,
            seed: rarer.2,
            choices: rarer.3,
            stop: words.0,
            format: words.1,
            reasoning: words.2,
            end_user: words.3,
            stream,
            stream_usage: stream,
            ..Chat::default()
        },
    )
}

fn usage() -> impl Strategy<Value = TokenUsage> {
    (0u64..1000, 0u64..1000, 0u64..1000, 0u64..1000, 0u64..1000).prop_map(
        |(fresh, cached, cache_written, said, reasoning)| TokenUsage {
            input: fresh + cached + cache_written,
            output: said + reasoning,
            cached,
            cache_written,
            reasoning,
            ..TokenUsage::default()
        },
    )
}

/// An answer with one choice: a thought, a text and calls, any of which may be missing.
pub(crate) fn answer() -> impl Strategy<Value = Answer> {
    let said = (proptest::option::of(thought()), proptest::option::of(text()), calls(0..3));
    let rest = (word(), word(), 1i64..2_000_000_000, proptest::option::of(usage()), any::<bool>());
    (said, rest).prop_map(|((thought, text, calls), (id, model, created, usage, is_cut))| {
        let finish = match (is_cut, calls.is_empty()) {
            (_, false) => Finish::ToolCalls,
            (true, true) => Finish::Length,
            (false, true) => Finish::Stop,
        };
        let mut parts: Vec<Part> = thought.into_iter().collect();
        parts.extend(text.map(|text| plain(Content::Text(text))));
        parts.extend(calls.into_iter().map(|call| plain(Content::ToolCall(call))));
        let choices = vec![Choice { parts, finish }];
        Answer { id, model, created: Some(created), choices, usage, ..Answer::default() }
    })
}

/// Cuts an answer into a stream with pieces of at most `length` characters.
pub(crate) fn deltas(answer: &Answer, length: usize) -> Vec<Delta> {
    let (id, model) = (answer.id.clone(), answer.model.clone());
    let mut deltas = vec![Delta::Begin { id, model, created: answer.created }];
    let pieces = |text: &str| -> Vec<String> {
        let all: Vec<char> = text.chars().collect();
        all.chunks(length.max(1)).map(|piece| piece.iter().collect()).collect()
    };
    for (choice, found) in (0u32..).zip(&answer.choices) {
        let mut part = 0;
        for Part { content, .. } in &found.parts {
            match content {
                Content::Text(text) => {
                    deltas
                        .extend(pieces(text).into_iter().map(|text| Delta::Text { choice, text }));
                }
                Content::Reasoning { text, signature, sealed } => {
                    let pieces = pieces(text).into_iter();
                    deltas.extend(pieces.map(|text| Delta::Reasoning { choice, text }));
                    let (signature, sealed) = (signature.clone(), sealed.clone());
                    if signature.is_some() || sealed.is_some() {
                        deltas.push(Delta::ReasoningProof { choice, signature, sealed });
                    }
                }
                Content::ToolCall(call) => {
                    let ToolCall { id, name, arguments, signature } = call.clone();
                    deltas.push(Delta::ToolBegin { choice, part, id, name, signature });
                    let pieces = pieces(&arguments).into_iter();
                    deltas.extend(pieces.map(|text| Delta::ToolArguments { choice, part, text }));
                    part += 1;
                }
                other => panic!("no answer has {other:?}"),
            }
        }
        deltas.push(Delta::Finish { choice, finish: found.finish.clone() });
    }
    deltas.extend(answer.usage.map(Delta::Usage));
    deltas.push(Delta::End);
    deltas
}

/// Puts a stream of one choice together into an answer.
pub(crate) fn assembled(deltas: &[Delta]) -> Answer {
    let mut answer = Answer::default();
    let mut choice = Choice { parts: Vec::new(), finish: Finish::Other("none".to_owned()) };
    let mut is_open = false;
    for delta in deltas {
        let last = choice.parts.last_mut().map(|part| &mut part.content);
        match (delta, last) {
            (Delta::Begin { id, model, created }, _) => {
                (answer.id, answer.model, answer.created) = (id.clone(), model.clone(), *created);
            }
            (Delta::Text { text, .. }, Some(Content::Text(said))) => said.push_str(text),
            (Delta::Text { text, .. }, _) => choice.parts.push(plain(Content::Text(text.clone()))),
            (Delta::Reasoning { text, .. }, Some(Content::Reasoning { text: thought, .. }))
                if is_open =>
            {
                thought.push_str(text);
            }
            (Delta::Reasoning { text, .. }, _) => {
                is_open = true;
                let (text, signature, sealed) = (text.clone(), None, None);
                choice.parts.push(plain(Content::Reasoning { text, signature, sealed }));
            }
            (Delta::ReasoningProof { signature, sealed, .. }, last) => {
                let (mine, theirs) = (signature.clone(), sealed.clone());
                match last {
                    Some(Content::Reasoning { signature, sealed, .. }) if is_open => {
                        (*signature, *sealed) = (mine, theirs);
                    }
                    _ => {
                        let text = String::new();
                        let (signature, sealed) = (mine, theirs);
                        choice.parts.push(plain(Content::Reasoning { text, signature, sealed }));
                    }
                }
                is_open = false;
            }
            (Delta::ToolBegin { id, name, signature, .. }, _) => {
                let (id, name, signature) = (id.clone(), name.clone(), signature.clone());
                let call = ToolCall { id, name, arguments: String::new(), signature };
                choice.parts.push(plain(Content::ToolCall(call)));
            }
            (Delta::ToolArguments { text, .. }, Some(Content::ToolCall(call))) => {
                call.arguments.push_str(text);
            }
            (Delta::Finish { finish, .. }, _) => choice.finish = finish.clone(),
            (Delta::Usage(usage), _) => answer.usage = Some(*usage),
            (Delta::Ping | Delta::End, _) => {}
            (other, _) => panic!("nothing was expected like {other:?}"),
        }
    }
    assert_eq!(deltas.last(), Some(&Delta::End));
    answer.choices.push(choice);
    answer
}

/// Writes a stream in this dialect.
pub(crate) fn written(dialect: Dialect, deltas: &[Delta]) -> Vec<u8> {
    let asked = Chat { stream_usage: true, ..Chat::default() };
    let (mut writer, mut out) = (dialect.words().writer(&asked), BytesMut::new());
    deltas.iter().for_each(|delta| writer.write(delta, &mut out));
    out.to_vec()
}

/// Reads bytes that arrive in two pieces.
pub(crate) fn read(dialect: Dialect, bytes: &[u8], at: usize) -> Vec<Delta> {
    let (mut reader, mut deltas) = (dialect.words().reader(), Vec::new());
    let mut events = Events::new(1 << 20);
    let (one, two) = bytes.split_at(at.min(bytes.len()));
    for piece in [one, two] {
        events.push(piece, |event| reader.read(&event, &mut deltas).unwrap()).unwrap();
    }
    reader.end(&mut deltas).unwrap();
    deltas
}
