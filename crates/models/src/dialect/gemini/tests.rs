use super::array::{ListWriter, Pieces};
use super::generations::NO_SIGNATURE;
use super::*;
use crate::chat::{
    Choice, Content, Delta, Finish, Format, Message, Part, Role, Source, ToolCall, ToolChoice,
};
use crate::dialect::parts::plain;
use crate::events::Events;
use bytes::BytesMut;
use proptest::prelude::*;
use serde_json::json;
use types::models::TokenUsage;

fn read(body: Value) -> Chat {
    Gemini.read_request(&body).unwrap()
}

fn write(chat: &Chat) -> (Value, Vec<String>) {
    let mut losses = Losses::default();
    let body = Gemini.write_request(chat, &mut losses).unwrap();
    (body, losses.0)
}

fn deltas(stream: &str) -> Vec<Delta> {
    let (mut reader, mut deltas, mut events) = (Gemini.reader(), Vec::new(), Events::new(1 << 20));
    events.push(stream.as_bytes(), |event| reader.read(&event, &mut deltas).unwrap()).unwrap();
    reader.end(&mut deltas).unwrap();
    deltas
}

fn written(deltas: &[Delta]) -> String {
    let (mut writer, mut out) = (Gemini.writer(&Chat::default()), BytesMut::new());
    deltas.iter().for_each(|delta| writer.write(delta, &mut out));
    String::from_utf8(out.to_vec()).unwrap()
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

fn answer() -> Value {
    json!({
        "candidates": [{
            "content": {"role": "model", "parts": [
                {"text": "Let me see.", "thought": true},
                {"text": "It is a cat.", "thoughtSignature": "c2ln"},
                {"functionCall": {"name": "pet", "args": {"n": 1}}, "thoughtSignature": "cGV0"},
                {"functionCall": {"name": "pet", "args": {"n": 1}}},
            ]},
            "finishReason": "STOP", "index": 0,
            "safetyRatings": [{"category": "HARM_CATEGORY_HARASSMENT", "probability": "LOW"}],
        }],
        "usageMetadata": {
            "promptTokenCount": 10, "candidatesTokenCount": 4, "thoughtsTokenCount": 3,
            "cachedContentTokenCount": 2, "toolUsePromptTokenCount": 5, "totalTokenCount": 22,
        },
        "modelVersion": "gemini-3-pro", "responseId": "rEsP_1-x",
    })
}

#[test]
fn an_answer_is_read_and_written() {
    let found = Gemini.read_answer(&answer()).unwrap();
    assert_eq!(
        found.usage,
        Some(TokenUsage { input: 15, output: 7, cached: 2, reasoning: 3, ..TokenUsage::default() })
    );
    let choice = &found.choices[0];
    assert_eq!(choice.finish, Finish::ToolCalls);
    let ids: Vec<_> = (choice.parts.iter())
        .filter_map(|part| match &part.content {
            Content::ToolCall(call) => Some(call.id.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(ids, ["call_rEsP1x_0", "call_rEsP1x_1"]);
    assert_eq!(found.others.keys().collect::<Vec<_>>(), ["candidates.safetyRatings"]);

    let again = Gemini.write_answer(&found, &mut Losses::default());
    let again = Gemini.read_answer(&again).unwrap();
    assert_eq!(again.choices, found.choices);
    assert_eq!((again.usage, again.id, again.model), (found.usage, found.id, found.model));
}

#[test]
fn a_blocked_request_has_an_answer() {
    let blocked = json!({"promptFeedback": {"blockReason": "SAFETY"}, "responseId": "r"});
    let found = Gemini.read_answer(&blocked).unwrap();
    assert_eq!(found.choices, [Choice { parts: vec![], finish: Finish::Filtered }]);
    for body in [json!({}), json!([]), json!({"candidates": 1}), json!({"error": {"code": 1}})] {
        assert!(Gemini.read_answer(&body).is_err(), "{body}");
    }
}

#[test]
fn a_call_that_is_no_json_is_malformed() {
    let call = ToolCall {
        id: "a".to_owned(),
        name: "f".to_owned(),
        arguments: "{\"x\":".to_owned(),
        signature: None,
    };
    let parts = vec![plain(Content::ToolCall(call))];
    let choices = vec![Choice { parts, finish: Finish::ToolCalls }];
    let written =
        Gemini.write_answer(&Answer { choices, ..Answer::default() }, &mut Losses::default());
    let candidate = &written["candidates"][0];
    assert_eq!(candidate["finishReason"], "MALFORMED_FUNCTION_CALL");
    assert_eq!(candidate["finishMessage"], "Malformed function call: f({\"x\":)");
}

#[test]
fn errors_are_googles() {
    let body = br#"[{"error": {"code": 400, "message": "API key not valid.",
        "status": "INVALID_ARGUMENT", "details": [
            {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID"}]}}]"#;
    let fault = Gemini.read_fault(400, body);
    assert_eq!(fault.code.as_deref(), Some("API_KEY_INVALID"));
    assert_eq!(fault.kind.as_deref(), Some("INVALID_ARGUMENT"));
    assert_eq!(Gemini.read_fault(502, b"<html>").message, "<html>");
    let fault = Fault {
        status: 429,
        kind: Some("rate_limit_error".to_owned()),
        code: Some("MODEL_LIMIT_REACHED".to_owned()),
        parameter: Some("contents".to_owned()),
        message: "Too much.".to_owned(),
    };
    let written = Gemini.write_fault(&fault);
    assert_eq!(written["error"]["status"], "RESOURCE_EXHAUSTED");
    let again = Gemini.read_fault(429, written.to_string().as_bytes());
    assert_eq!(again, Fault { kind: Some("RESOURCE_EXHAUSTED".to_owned()), ..fault });
}

/// A stream as older models send it: each piece says that it is the last.
const STREAM: &str = concat!(
    r#"data: {"candidates":[{"content":{"role":"model","parts":[{"text":"It","thought":true}]},"#,
    r#""finishReason":"STOP","index":0}],"modelVersion":"g","responseId":"r1"}"#,
    "\r\n\r\n",
    r#"data: {"candidates":[{"content":{"role":"model","parts":[{"text":" is"}]},"finishReason":"STOP"}],"#,
    r#""usageMetadata":{"promptTokenCount":3,"candidatesTokenCount":1}}"#,
    "\r\n\r\n",
    r#"data: {"candidates":[{"content":{"role":"model","parts":[{"functionCall":{"name":"f","args":{}},"#,
    r#""thoughtSignature":"cw=="}]},"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":3,"#,
    r#""candidatesTokenCount":9}}"#,
    "\r\n\r\n",
);

fn stream_deltas() -> Vec<Delta> {
    vec![
        Delta::Begin { id: "r1".to_owned(), model: "g".to_owned(), created: None },
        Delta::Reasoning { choice: 0, text: "It".to_owned() },
        Delta::Text { choice: 0, text: " is".to_owned() },
        Delta::ToolBegin {
            choice: 0,
            part: 0,
            id: "call_r1_0".to_owned(),
            name: "f".to_owned(),
            signature: Some("cw==".to_owned()),
        },
        Delta::ToolArguments { choice: 0, part: 0, text: "{}".to_owned() },
        Delta::Finish { choice: 0, finish: Finish::ToolCalls },
        Delta::Usage(TokenUsage { input: 3, output: 9, ..TokenUsage::default() }),
        Delta::End,
    ]
}

#[test]
fn a_stream_is_read_and_written() {
    assert_eq!(deltas(STREAM), stream_deltas());
    assert_eq!(deltas(&written(&stream_deltas())), stream_deltas());
}

#[test]
fn a_stream_without_a_reason_for_its_end_was_cut() {
    let cut = r#"data: {"candidates":[{"content":{"parts":[{"text":"It"}]}}]}"#;
    assert!(!deltas(&format!("{cut}\n\n")).contains(&Delta::End));
    let error = r#"data: {"error":{"code":503,"message":"Overloaded","status":"UNAVAILABLE"}}"#;
    let found = deltas(&format!("{cut}\n\n{error}\n\n"));
    assert!(matches!(found.last(), Some(Delta::Fault(fault)) if fault.status == 503), "{found:?}");
    let blocked = deltas("data: {\"promptFeedback\":{\"blockReason\":\"OTHER\"}}\n\n");
    assert!(blocked.contains(&Delta::Finish { choice: 0, finish: Finish::Filtered }));
}

#[test]
fn a_stream_ends_where_arguments_have_no_end() {
    let (mut writer, mut out) = (Gemini.writer(&Chat::default()), BytesMut::new());
    let begin = Delta::ToolBegin {
        choice: 0,
        part: 0,
        id: "a".to_owned(),
        name: "f".to_owned(),
        signature: None,
    };
    writer.write(&begin, &mut out);
    let more = Delta::ToolArguments { choice: 0, part: 0, text: "x".repeat(1 << 20) };
    (0..64).for_each(|_| writer.write(&more, &mut out));
    let text = String::from_utf8(out.to_vec()).unwrap();
    assert_eq!(text.matches("\"error\"").count(), 1, "{text}");
}

#[test]
fn a_list_has_the_pieces_of_the_events() {
    let events = written(&[
        Delta::Begin { id: "r".to_owned(), model: "g".to_owned(), created: None },
        Delta::Text { choice: 0, text: "a \"}{\" b".to_owned() },
        Delta::Ping,
        Delta::Text { choice: 0, text: "\\".to_owned() },
        Delta::Finish { choice: 0, finish: Finish::Length },
        Delta::End,
    ]);
    let (mut list, mut out) = (ListWriter::new(1 << 20), BytesMut::new());
    list.push(events.as_bytes(), &mut out).unwrap();
    list.end(&mut out);
    let pieces: Vec<Value> = serde_json::from_slice(&out).unwrap();
    assert_eq!(pieces.len(), 3);
    assert_eq!(pieces[0]["candidates"][0]["content"]["parts"][0]["text"], "a \"}{\" b");
    let mut empty = BytesMut::new();
    ListWriter::new(9).end(&mut empty);
    assert_eq!(&empty[..], b"[]");

    let mut endless = Pieces::new(16);
    assert!(endless.push(b"[{\"a\": \"0123456789", |_| {}).is_err());
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

    /// The pieces are the same however the bytes are cut.
    #[test]
    fn lists_can_be_cut(texts in proptest::collection::vec("[ -~]{0,9}", 0..5), at in 0usize..200) {
        let list: Vec<_> = texts.iter().map(|text| json!({"text": text, "b": {"{": "}"}})).collect();
        let bytes = serde_json::to_vec_pretty(&list).unwrap();
        let (one, two) = bytes.split_at(at.min(bytes.len()));
        let (mut pieces, mut found) = (Pieces::new(1 << 16), Vec::<Value>::new());
        for bytes in [one, two] {
            pieces.push(bytes, |piece| found.push(serde_json::from_str(piece).unwrap())).unwrap();
        }
        prop_assert_eq!(found, list);
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
