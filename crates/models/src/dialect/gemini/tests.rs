mod answers;
mod streams;

use super::generations::NO_SIGNATURE;
use super::*;
use crate::chat::{
    Choice, Content, Delta, Finish, Format, Message, Part, Role, Source, ToolCall, ToolChoice,
};
use crate::dialect::parts::plain;
use proptest::prelude::*;
use serde_json::json;

fn read(body: Value) -> Chat {
    Gemini.read_request(&body).unwrap()
}

fn write(chat: &Chat) -> (Value, Vec<String>) {
    let mut losses = Losses::default();
    let body = Gemini.write_request(chat, &mut losses).unwrap();
    (body, losses.0)
}

fn conversation() -> Value {
    json!({
        "systemInstruction": {"parts": [{"text": "Be short."}]},
        "contents": [
            {"role": "user", "parts": [
                {"text": "What is this?"},
                {"inlineData": {"mimeType": "image/png", "data": "iVBO"}},
                {"fileData": {"mimeType": "application/pdf", "fileUri": "https://a.example/b.pdf"}},
                {"inlineData": {"mimeType": "audio/wav", "data": "UklG"}},
            ]},
            {"role": "model", "parts": [
                {"text": "I should look.", "thought": true},
                {"functionCall": {"name": "look", "args": {"at": "png"}}, "thoughtSignature": "c2ln"},
                {"functionCall": {"name": "look", "args": {"at": "pdf"}}},
                {"functionCall": {"name": "time", "id": "own"}},
            ]},
            {"role": "user", "parts": [
                {"functionResponse": {"name": "look", "response": {"output": "a cat"}}},
                {"functionResponse": {"name": "look", "response": {"error": "no such file"}}},
                {"functionResponse": {"name": "time", "id": "own", "response": {"hour": 7}}},
            ]},
        ],
        "tools": [{"functionDeclarations": [
            {"name": "look", "description": "Looks.", "parameters": {
                "type": "OBJECT",
                "properties": {"at_where": {"type": "STRING", "nullable": true, "max_length": "9"}},
                "required": ["at_where"], "propertyOrdering": ["at_where"],
            }},
            {"name": "time", "parametersJsonSchema": {"type": "object"}},
        ]}],
        "toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["look"]}},
        "generationConfig": {
            "stopSequences": ["END"], "maxOutputTokens": 64, "temperature": 0.5, "topP": 0.9,
            "topK": 40.0, "seed": 7, "candidateCount": 2, "presencePenalty": 1, "frequencyPenalty": 1.5,
            "responseMimeType": "application/json", "responseSchema": {"type": "STRING"},
            "thinkingConfig": {"includeThoughts": true, "thinkingBudget": 512},
        },
        "safetySettings": [{"category": "HARM_CATEGORY_HARASSMENT", "threshold": "BLOCK_NONE"}],
    })
}

#[test]
fn a_request_is_read() {
    let chat = read(conversation());
    let roles: Vec<_> = chat.messages.iter().map(|message| message.role).collect();
    assert_eq!(roles, [Role::System, Role::User, Role::Assistant, Role::Tool]);
    let call = |id: &str, name: &str, arguments: &str, signature: Option<&str>| {
        let signature = signature.map(str::to_owned);
        let (id, name, arguments) = (id.to_owned(), name.to_owned(), arguments.to_owned());
        plain(Content::ToolCall(ToolCall { id, name, arguments, signature }))
    };
    assert_eq!(
        chat.messages[2].parts[1..],
        [
            call("call_0", "look", r#"{"at":"png"}"#, Some("c2ln")),
            call("call_1", "look", r#"{"at":"pdf"}"#, None),
            call("own", "time", "{}", None),
        ]
    );
    let results: Vec<_> = (chat.messages[3].parts.iter())
        .map(|part| match &part.content {
            Content::ToolResult { call, content, is_error, .. } => match &content[..] {
                [Content::Text(text)] => (call.as_str(), text.as_str(), *is_error),
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(
        results,
        [
            ("call_0", "a cat", false),
            ("call_1", "no such file", true),
            ("own", r#"{"hour":7}"#, false),
        ]
    );
    assert_eq!(
        chat.tools[0].parameters,
        Some(json!({
            "type": "object",
            "properties": {"at_where": {"type": ["string", "null"], "maxLength": 9}},
            "required": ["at_where"],
        }))
    );
    assert_eq!(chat.tool_choice, Some(ToolChoice::Named("look".to_owned())));
    assert_eq!((chat.top_k, chat.seed, chat.choices), (Some(40), Some(7), Some(2)));
    assert!(
        matches!(&chat.format, Some(Format::Schema { schema, .. }) if schema["type"] == "string")
    );
    let reasoning = chat.reasoning.clone().unwrap();
    assert_eq!((reasoning.budget_tokens, reasoning.summary.as_deref()), (Some(512), Some("auto")));
    assert!(chat.others.contains_key("safetySettings"));
    let sources: Vec<_> = chat.messages[1].parts[1..].iter().map(|part| &part.content).collect();
    assert!(matches!(
        sources[..],
        [
            Content::Image { source: Source::Data { .. }, .. },
            Content::File { source: Source::Url(_), .. },
            Content::Audio { source: Source::Data { .. } },
        ]
    ));
}

#[test]
fn what_was_read_is_written_again() {
    let chat = read(conversation());
    let (body, losses) = write(&chat);
    assert_eq!(losses, ["safetySettings"]);
    let again = read(body);
    let kept = Chat { others: chat.others.clone(), ..again };
    assert_eq!(kept, chat);
}

#[test]
fn both_cases_are_the_same() {
    let snake = json!({
        "system_instruction": {"parts": {"text": "Be short."}},
        "contents": {"parts": [
            {"inline_data": {"mime_type": "image/png", "data": "iV-_"}},
            {"function_call": {"name": "f", "args": {"snake_case": 1}}},
        ]},
        "generation_config": {"max_output_tokens": 5, "stop_sequences": ["a_b"]},
    });
    let camel = json!({
        "systemInstruction": {"parts": [{"text": "Be short."}]},
        "contents": [{"parts": [
            {"inlineData": {"mimeType": "image/png", "data": "iV+/"}},
            {"functionCall": {"name": "f", "args": {"snake_case": 1}}},
        ]}],
        "generationConfig": {"maxOutputTokens": 5, "stopSequences": ["a_b"]},
    });
    assert_eq!(read(snake), read(camel));
}

#[test]
fn what_only_google_has_is_refused() {
    let contents = json!([{"parts": [{"text": "Hi"}]}]);
    for (body, at) in [
        (json!({"contents": contents, "cachedContent": "cachedContents/1"}), "cachedContent"),
        (json!({"contents": []}), "contents"),
        (json!({"contents": contents, "tools": [{"googleSearch": {}}]}), "tools[0].googleSearch"),
        (json!({"contents": [{"role": "king", "parts": []}]}), "contents[0].role"),
        (json!({"contents": [{"parts": [{"hologram": {}}]}]}), "contents[0].parts[0]"),
        (
            json!({"contents": contents, "generationConfig": {"responseModalities": ["IMAGE"]}}),
            "generationConfig.responseModalities[0]",
        ),
        (
            json!({"contents": contents, "generationConfig": {"responseMimeType": "text/x.enum"}}),
            "generationConfig.responseMimeType",
        ),
        (json!({"contents": [{"parts": [{"functionResponse": {"name": "f"}}]}]}), "contents"),
    ] {
        assert_eq!(Gemini.read_request(&body).unwrap_err().at, at, "{body}");
    }
}

fn user(text: &str) -> Message {
    let parts = vec![plain(Content::Text(text.to_owned()))];
    Message { role: Role::User, name: None, parts }
}

/// A conversation in which two tools were called at once and answered in reverse order.
fn with_calls(model: &str) -> Chat {
    let call = |id: &str| {
        let (id, name) = (id.to_owned(), "f".to_owned());
        plain(Content::ToolCall(ToolCall { id, name, arguments: "{}".to_owned(), signature: None }))
    };
    let result = |id: &str| {
        let content = vec![Content::Text(format!("of {id}"))];
        plain(Content::ToolResult { call: id.to_owned(), name: None, content, is_error: false })
    };
    let message = |role, parts| Message { role, name: None, parts };
    Chat {
        model: model.to_owned(),
        messages: vec![
            user("Go."),
            message(Role::Assistant, vec![call("a"), call("b")]),
            message(Role::Tool, vec![result("b")]),
            message(Role::Tool, vec![result("a")]),
        ],
        ..Chat::default()
    }
}

#[test]
fn generations_differ() {
    let (old, _) = write(&with_calls("gemini-2.5-flash"));
    let results = old["contents"][2]["parts"].as_array().unwrap();
    let outputs: Vec<_> =
        results.iter().map(|part| &part["functionResponse"]["response"]["output"]).collect();
    assert_eq!(outputs, ["of a", "of b"], "in the order of the calls, all in one content");
    assert!(!old.to_string().contains("\"id\""));
    assert!(!old.to_string().contains("thoughtSignature"));

    let (new, _) = write(&with_calls("models/gemini-3-pro-preview"));
    let calls = &new["contents"][1]["parts"];
    assert_eq!(calls[0]["functionCall"]["id"], "a");
    assert_eq!(calls[0]["thoughtSignature"], NO_SIGNATURE, "another model made it");
    assert!(calls[1].get("thoughtSignature").is_none(), "the first has that of all");
    assert_eq!(new["contents"][2]["parts"][0]["functionResponse"]["id"], "b");

    let effort = |model: &str| {
        let effort = Some("medium".to_owned());
        let reasoning = crate::chat::Reasoning { effort, budget_tokens: None, summary: None };
        let chat = Chat { reasoning: Some(reasoning), ..with_calls(model) };
        write(&chat).0["generationConfig"]["thinkingConfig"].clone()
    };
    assert_eq!(effort("gemini-2.5-pro"), json!({"thinkingBudget": 8192}));
    assert_eq!(effort("gemini-3-pro-preview"), json!({"thinkingLevel": "MEDIUM"}));
    let budget = |model: &str, budget| {
        let (effort, budget) = match budget {
            0 => (Some("none".to_owned()), None),
            _ => (None, Some(budget)),
        };
        let reasoning = crate::chat::Reasoning { effort, budget_tokens: budget, summary: None };
        let chat = Chat { reasoning: Some(reasoning), ..with_calls(model) };
        let (written, losses) = write(&chat);
        let told = written["generationConfig"]["thinkingConfig"].clone();
        (told, losses.iter().any(|loss| loss.starts_with("reasoning")))
    };
    let number = |budget: u64| json!({"thinkingBudget": budget});
    for (model, asked, told, is_lost) in [
        ("gemini-2.5-flash", 31_999, number(24_576), true),
        ("gemini-2.5-flash", 0, number(0), false),
        ("gemini-2.5-flash-lite", 100, number(512), true),
        ("gemini-2.5-pro", 20_000, number(20_000), false),
        ("gemini-2.5-pro", 0, number(128), true),
        ("gemini-3-pro-preview", 0, json!({"thinkingLevel": "LOW"}), true),
    ] {
        assert_eq!(budget(model, asked), (told, is_lost), "{model}: {asked}");
    }
}

#[test]
fn results_of_tools_stay_what_they_are() {
    let output = |text: &str| {
        let mut chat = with_calls("gemini-3-pro");
        chat.messages.truncate(2);
        let content = vec![Content::Text(text.to_owned())];
        let part =
            Content::ToolResult { call: "a".to_owned(), name: None, content, is_error: false };
        chat.messages.push(Message { role: Role::Tool, name: None, parts: vec![plain(part)] });
        write(&chat).0["contents"][2]["parts"][0]["functionResponse"]["response"].clone()
    };
    assert_eq!(output(r#"{ "a": "x  y" }"#), json!({"a": "x  y"}));
    assert_eq!(output("sunny"), json!({"output": "sunny"}));
    // Read as objects, these would change.
    for text in [r#"{"output": 1}"#, r#"{"error": "x"}"#, r#"{"a": 1.0e400}"#, r#"{"a":1,"a":2}"#] {
        assert_eq!(output(text), json!({"output": text}));
    }
}

#[test]
fn what_cannot_be_said_is_told() {
    let id = Source::Id("file-1".to_owned());
    let mut chat = Chat { messages: vec![user("Hi")], ..Chat::default() };
    chat.messages[0].parts.push(plain(Content::File { source: id, name: None }));
    let refused = Gemini.write_request(&chat, &mut Losses::default()).unwrap_err();
    assert_eq!(refused.at, "messages[0].content[1]");

    let result = Content::ToolResult {
        call: "nobody".to_owned(),
        name: None,
        content: Vec::new(),
        is_error: false,
    };
    chat.messages[0] = Message { role: Role::Tool, name: None, parts: vec![plain(result)] };
    assert!(Gemini.write_request(&chat, &mut Losses::default()).is_err());

    let chat = Chat {
        messages: vec![user("Hi"), Message { role: Role::System, ..user("Late.") }],
        parallel_tools: Some(false),
        seed: Some(i64::MAX),
        end_user: Some("me".to_owned()),
        ..Chat::default()
    };
    let (body, losses) = write(&chat);
    assert_eq!(losses, ["messages.role", "seed", "parallel_tool_calls", "user"]);
    assert_eq!(body["systemInstruction"]["parts"][0]["text"], "Late.");
}

fn part() -> impl Strategy<Value = Part> {
    let content = prop_oneof![
        "[ -~]{1,8}".prop_map(Content::Text),
        ("[a-z]{1,6}", "[a-z]{1,6}").prop_map(|(id, name)| {
            let arguments = "{\"a\":[1,{}]}".to_owned();
            Content::ToolCall(ToolCall { id, name, arguments, signature: None })
        }),
        ("[A-Za-z0-9+/]{4}", prop_oneof!["image/png", "video/mp4"]).prop_map(
            |(data, media_type)| {
                let source = Source::Data { media_type: media_type.clone(), data };
                match media_type.starts_with("image") {
                    true => Content::Image { source, detail: None },
                    false => Content::File { source, name: None },
                }
            }
        ),
    ];
    content.prop_map(plain)
}

proptest! {
    #[test]
    fn messages_come_back(
        messages in proptest::collection::vec((any::<bool>(), proptest::collection::vec(part(), 1..4)), 1..5),
    ) {
        let of = |(is_user, parts)| {
            let role = if is_user { Role::User } else { Role::Assistant };
            Message { role, name: None, parts }
        };
        let messages = messages.into_iter().map(of).collect();
        let chat = Chat { messages, stream_usage: true, ..Chat::default() };
        // Calls in messages of users, which users do not make, also stay what they are.
        let (body, losses) = write(&chat);
        prop_assert!(losses.is_empty());
        prop_assert_eq!(read(body), chat);
    }

    /// Whatever is sent is refused at worst.
    #[test]
    fn nonsense_is_refused(text in "[\\[\\]{}:,\"a-z0-9]{0,40}", data in "\\PC{0,40}") {
        if let Ok(value) = serde_json::from_str::<Value>(&text) {
            let _ = Gemini.read_answer(&value);
            let _ = Gemini.read_request(&value);
        }
        let _ = Gemini.read_fault(500, data.as_bytes());
        let event = crate::events::Event { name: None, data: &text };
        let _ = Gemini.reader().read(&event, &mut Vec::new());
    }
}
