//! Checks the table in `docs/model-dialects.md` against the writers.

use super::tests::model;
use crate::chat::{
    Chat, Content, Format, Message, Part, Reasoning, Role, Source, Tool, ToolCall, ToolChoice,
};
use crate::dialect::parts::plain;
use crate::dialect::{Dialect, Losses};
use serde_json::{Number, json};

type Change = fn(&mut Chat);

/// What a request can say, in the order of the table.
const ROWS: &[(&str, Change)] = &[
    ("a system message before the conversation", |chat| {
        chat.messages.insert(0, message(Role::System, text("a")));
    }),
    ("a system message within it", |chat| chat.messages.push(message(Role::System, text("a")))),
    ("the name of who speaks", |chat| chat.messages[0].name = Some("ann".to_owned())),
    ("an image, sent along", |chat| chat.messages.push(image(data("image/png"), None))),
    ("an image, by its address", |chat| chat.messages.push(image(url(), None))),
    ("how closely an image is looked at", |chat| {
        chat.messages.push(image(data("image/png"), Some("high")));
    }),
    ("a PDF, sent along", |chat| chat.messages.push(file(data("application/pdf")))),
    ("a file of text, sent along", |chat| chat.messages.push(file(data("text/plain")))),
    ("a file, by its address", |chat| chat.messages.push(file(url()))),
    ("audio, sent along", |chat| {
        chat.messages.push(message(Role::User, Content::Audio { source: data("audio/wav") }));
    }),
    ("what the model thought, proven", |chat| thought(chat, Some("c2ln"))),
    ("what the model thought, without a proof", |chat| thought(chat, None)),
    ("that the model refused", |chat| {
        chat.messages.push(message(Role::Assistant, Content::Refusal("no".to_owned())));
    }),
    ("tools, their calls and results", |chat| called(chat, Content::Text("a".to_owned()), false)),
    ("an image in a result", |chat| {
        called(chat, Content::Image { source: data("image/png"), detail: None }, false);
    }),
    ("that a result is an error", |chat| called(chat, Content::Text("a".to_owned()), true)),
    ("arguments that are not JSON", |chat| {
        called(chat, Content::Text("a".to_owned()), false);
        let parts = chat.messages.iter_mut().flat_map(|message| &mut message.parts);
        for part in parts {
            if let Content::ToolCall(call) = &mut part.content {
                call.arguments = "{".to_owned();
            }
        }
    }),
    ("a strict tool", |chat| {
        tool(chat);
        chat.tools[0].strict = Some(true);
    }),
    ("which tool has to be called", |chat| {
        tool(chat);
        chat.tool_choice = Some(ToolChoice::Named("look".to_owned()));
    }),
    ("that some tool has to be called", |chat| {
        tool(chat);
        chat.tool_choice = Some(ToolChoice::Required);
    }),
    ("one call at a time", |chat| {
        tool(chat);
        chat.parallel_tools = Some(false);
    }),
    ("`max_tokens`", |chat| chat.max_tokens = Some(100)),
    ("`temperature` up to 1", |chat| chat.temperature = Number::from_f64(0.5)),
    ("`temperature` above 1", |chat| chat.temperature = Number::from_f64(1.5)),
    ("`top_p`", |chat| chat.top_p = Number::from_f64(0.5)),
    ("`top_k`", |chat| chat.top_k = Some(5)),
    ("`presence_penalty`, `frequency_penalty`", |chat| {
        chat.presence_penalty = Number::from_f64(0.5);
    }),
    ("`stop`", |chat| chat.stop = vec!["END".to_owned()]),
    ("`stop` at white space", |chat| chat.stop = vec!["\n".to_owned()]),
    ("`seed`", |chat| chat.seed = Some(1)),
    ("`n` above 1", |chat| chat.choices = Some(2)),
    ("any JSON as the answer", |chat| chat.format = Some(Format::Json)),
    ("an answer by a schema", |chat| schema(chat, None)),
    ("what a schema is for", |chat| schema(chat, Some("a cat"))),
    ("how hard to think, in a word", |chat| think(chat, Some("low"), None, None)),
    ("how much to think, in tokens", |chat| think(chat, None, Some(2000), None)),
    ("a summary of what was thought", |chat| think(chat, Some("low"), None, Some("detailed"))),
    ("`user`", |chat| chat.end_user = Some("u".to_owned())),
    ("`cache_control`", |chat| {
        let mark = json!({"type": "ephemeral"});
        chat.messages[0].parts[0].others.insert("cache_control".to_owned(), mark);
    }),
    ("`prompt_cache_key`", |chat| other(chat, "prompt_cache_key", json!("a"))),
    ("`store`", |chat| other(chat, "store", json!(true))),
    ("`metadata` of OpenAI", |chat| other(chat, "metadata", json!({"a": "b"}))),
    ("`service_tier`", |chat| other(chat, "service_tier", json!("flex"))),
    ("`verbosity`", |chat| other(chat, "verbosity", json!("low"))),
    ("`logit_bias`, `logprobs` and all that is not named here", |chat| {
        other(chat, "logit_bias", json!({"1": 1}));
    }),
];

fn message(role: Role, content: Content) -> Message {
    Message { role, name: None, parts: vec![plain(content)] }
}

fn text(text: &str) -> Content {
    Content::Text(text.to_owned())
}

fn data(media_type: &str) -> Source {
    Source::Data { media_type: media_type.to_owned(), data: "T25jZQ==".to_owned() }
}

fn url() -> Source {
    Source::Url("https://a.example/a".to_owned())
}

fn image(source: Source, detail: Option<&str>) -> Message {
    message(Role::User, Content::Image { source, detail: detail.map(str::to_owned) })
}

fn file(source: Source) -> Message {
    message(Role::User, Content::File { source, name: None })
}

fn thought(chat: &mut Chat, signature: Option<&str>) {
    let (text, signature) = ("Hm.".to_owned(), signature.map(str::to_owned));
    let thought = plain(Content::Reasoning { text, signature, sealed: None });
    let parts: Vec<Part> = vec![thought, plain(self::text("a"))];
    chat.messages.push(Message { role: Role::Assistant, name: None, parts });
    chat.messages.push(message(Role::User, self::text("b")));
}

fn tool(chat: &mut Chat) {
    chat.tools.push(Tool {
        name: "look".to_owned(),
        description: None,
        parameters: Some(
            json!({"type": "object", "properties": {}, "additionalProperties": false}),
        ),
        strict: None,
        others: crate::chat::Others::new(),
    });
}

fn called(chat: &mut Chat, content: Content, is_error: bool) {
    tool(chat);
    let (id, name) = ("c1".to_owned(), "look".to_owned());
    let call = ToolCall { id: id.clone(), name, arguments: "{}".to_owned(), signature: None };
    chat.messages.push(message(Role::Assistant, Content::ToolCall(call)));
    let content = vec![content];
    let result = Content::ToolResult { call: id, name: None, content, is_error };
    chat.messages.push(message(Role::Tool, result));
}

fn schema(chat: &mut Chat, description: Option<&str>) {
    let (name, description) = ("answer".to_owned(), description.map(str::to_owned));
    let schema = json!({"type": "object", "properties": {}, "additionalProperties": false});
    chat.format = Some(Format::Schema { name, description, schema, strict: Some(true) });
}

fn think(chat: &mut Chat, effort: Option<&str>, budget_tokens: Option<u64>, summary: Option<&str>) {
    let (effort, summary) = (effort.map(str::to_owned), summary.map(str::to_owned));
    chat.reasoning = Some(Reasoning { effort, budget_tokens, summary });
}

fn other(chat: &mut Chat, name: &str, value: serde_json::Value) {
    chat.others.insert(name.to_owned(), value);
}

fn outcome(change: Change, to: Dialect) -> &'static str {
    let mut chat = Chat { model: model(to).to_owned(), ..Chat::default() };
    chat.messages.push(message(Role::User, text("hi")));
    change(&mut chat);
    let mut losses = Losses::default();
    match to.words().write_request(&chat, &mut losses) {
        Err(_) => "refused",
        Ok(_) if losses.0.is_empty() => "said",
        Ok(_) => "left out",
    }
}

#[test]
fn the_documented_table_is_what_is_done() {
    let mut table = String::from("|");
    for heading in [""].into_iter().chain(Dialect::ALL.iter().map(|dialect| dialect.name())) {
        table.push_str(&format!(" {heading} |"));
    }
    table.push_str(&format!("\n{}|\n", "|---".repeat(Dialect::ALL.len() + 1)));
    for (row, change) in ROWS {
        let cells: Vec<_> = Dialect::ALL.iter().map(|to| outcome(*change, *to)).collect();
        table.push_str(&format!("| {row} | {} |\n", cells.join(" | ")));
    }
    let documented = include_str!("../../../../docs/model-dialects.md");
    assert!(documented.contains(&table), "docs/model-dialects.md should have:\n\n{table}");
}
