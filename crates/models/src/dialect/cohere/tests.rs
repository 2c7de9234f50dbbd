use super::*;
use crate::chat::{Content, Delta, Finish, Format, Message, Role, Source, ToolCall, ToolChoice};
use crate::dialect::parts::plain;
use crate::events::Events;
use bytes::BytesMut;
use proptest::prelude::*;
use serde_json::json;
use types::models::TokenUsage;

fn read(body: Value) -> Chat {
    Cohere.read_request(&body).unwrap()
}

fn write(chat: &Chat) -> (Value, Vec<String>) {
    let mut losses = Losses::default();
    let body = Cohere.write_request(chat, &mut losses).unwrap();
    (body, losses.0)
}

fn deltas(stream: &str) -> Vec<Delta> {
    let (mut reader, mut deltas, mut events) = (Cohere.reader(), Vec::new(), Events::new(1 << 20));
    events.push(stream.as_bytes(), |event| reader.read(&event, &mut deltas).unwrap()).unwrap();
    reader.end(&mut deltas).unwrap();
    deltas
}

fn written(deltas: &[Delta]) -> String {
    let (mut writer, mut out) = (Cohere.writer(&Chat::default()), BytesMut::new());
    deltas.iter().for_each(|delta| writer.write(delta, &mut out));
    String::from_utf8(out.to_vec()).unwrap()
}

fn request() -> Value {
    json!({
        "model": "command-a-03-2025",
        "messages": [
            {"role": "system", "content": "Be short."},
            {"role": "user", "content": [
                {"type": "text", "text": "What is this?"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBO", "detail": "low"}},
                {"type": "image_url", "image_url": {"url": "https://a.example/b.png"}},
            ]},
            {"role": "assistant", "tool_plan": "I look.", "tool_calls": [
                {"id": "look_1", "type": "function", "function": {"name": "look", "arguments": "{}"}},
            ]},
            {"role": "tool", "tool_call_id": "look_1", "content": [
                {"type": "document", "document": {"id": "1", "data": {"found": "a cat"}}},
            ]},
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "A cat."}, {"type": "text", "text": "A cat!"},
            ]},
            {"role": "user", "content": "Sure?"},
        ],
        "tools": [{"type": "function", "function": {
            "name": "look", "description": "Looks.", "parameters": {"type": "object"},
        }}],
        "strict_tools": true, "tool_choice": "REQUIRED",
        "response_format": {"type": "json_object", "json_schema": {"type": "object"}},
        "max_tokens": 64, "stop_sequences": ["END"], "temperature": 0.3, "seed": 9, "k": 4, "p": 0.7,
        "frequency_penalty": 0.1, "presence_penalty": 0.2, "stream": true,
        "thinking": {"type": "enabled", "token_budget": 700},
        "documents": ["about cats"], "citation_options": {"mode": "OFF"},
    })
}

#[test]
fn a_request_is_read_and_written_again() {
    let chat = read(request());
    let roles: Vec<_> = chat.messages.iter().map(|message| message.role).collect();
    use Role::{Assistant, System, Tool, User};
    assert_eq!(roles, [System, User, Assistant, Tool, Assistant, User]);
    let found = Content::ToolResult {
        call: "look_1".to_owned(),
        name: None,
        content: vec![Content::Text(r#"{"found":"a cat"}"#.to_owned())],
        is_error: false,
    };
    assert_eq!(chat.messages[3].parts, [plain(found)]);
    let media_type = "image/png".to_owned();
    let source = Source::Data { media_type, data: "iVBO".to_owned() };
    let detail = Some("low".to_owned());
    assert_eq!(chat.messages[1].parts[1].content, Content::Image { source, detail });
    assert_eq!(chat.tool_choice, Some(ToolChoice::Required));
    assert!(matches!(&chat.format, Some(Format::Schema { .. })));
    assert_eq!(chat.reasoning.as_ref().unwrap().budget_tokens, Some(700));
    assert_eq!((chat.top_k, chat.tools[0].strict), (Some(4), Some(true)));

    let (body, losses) = write(&chat);
    assert_eq!(losses, ["documents", "citation_options"]);
    let again = read(body);
    assert_eq!(Chat { others: chat.others.clone(), ..again }, chat);
}

#[test]
fn what_cannot_be_said_is_told() {
    let part = plain(Content::Text("Hi".to_owned()));
    let message = Message { role: Role::User, name: None, parts: vec![part] };
    let chat = Chat { messages: vec![message], ..Chat::default() };
    let refused = |chat: &Chat| Cohere.write_request(chat, &mut Losses::default()).unwrap_err().at;
    assert_eq!(refused(&Chat { choices: Some(2), ..chat.clone() }), "n");
    let choice = Some(ToolChoice::Named("f".to_owned()));
    assert_eq!(refused(&Chat { tool_choice: choice, ..chat.clone() }), "tool_choice");
    let mut with_file = chat.clone();
    let source = Source::Url("https://a.example/b.pdf".to_owned());
    with_file.messages[0].parts.push(plain(Content::File { source, name: None }));
    assert_eq!(refused(&with_file), "messages[0].content[1]");

    let tool = |name: &str, strict| crate::chat::Tool {
        name: name.to_owned(),
        description: None,
        parameters: None,
        strict,
        others: Default::default(),
    };
    let chat = Chat {
        tools: vec![tool("f", Some(true)), tool("g", None)],
        parallel_tools: Some(false),
        seed: Some(-1),
        end_user: Some("me".to_owned()),
        ..chat
    };
    assert_eq!(write(&chat).1, ["tools.strict", "seed", "parallel_tool_calls", "user"]);
    let named = Chat { tool_choice: Some(ToolChoice::Named("f".to_owned())), ..chat };
    let (body, _) = write(&named);
    assert_eq!(body["tool_choice"], "REQUIRED");
    assert_eq!(body["tools"].as_array().unwrap().len(), 1);
    assert_eq!(body["strict_tools"], true);
}

#[test]
fn nonsense_has_a_place() {
    for (body, at) in [
        (json!([]), ""),
        (json!({"model": "c"}), "messages"),
        (json!({"messages": [{"role": "king"}]}), "messages[0].role"),
        (json!({"messages": [{"role": "tool", "content": "x"}]}), "messages[0].tool_call_id"),
        (
            json!({"messages": [{"role": "user", "content": [{"type": "smell"}]}]}),
            "messages[0].content[0].type",
        ),
        (
            json!({"messages": [{"role": "user", "content": "x"}], "tool_choice": "AUTO"}),
            "tool_choice",
        ),
    ] {
        assert_eq!(Cohere.read_request(&body).unwrap_err().at, at, "{body}");
    }
}

fn answer() -> Value {
    json!({
        "id": "c14c80c3", "finish_reason": "TOOL_CALL",
        "message": {
            "role": "assistant", "tool_plan": "I look.",
            "tool_calls": [{"id": "look_1", "type": "function",
                "function": {"name": "look", "arguments": "{\"at\":1}"}}],
            "citations": [{"start": 0, "end": 2}],
        },
        "usage": {
            "billed_units": {"input_tokens": 5.0, "output_tokens": 418},
            "tokens": {"input_tokens": 71, "output_tokens": 418}, "cached_tokens": 3,
        },
    })
}

#[test]
fn an_answer_is_read_and_written() {
    let found = Cohere.read_answer(&answer()).unwrap();
    let usage = TokenUsage { input: 5, output: 418, cached: 3, ..TokenUsage::default() };
    assert_eq!(found.usage, Some(usage));
    assert_eq!(found.choices[0].finish, Finish::ToolCalls);
    assert_eq!(found.choices[0].parts.len(), 2);
    assert_eq!(found.others.keys().collect::<Vec<_>>(), ["citations"]);
    let mut losses = Losses::default();
    let again = Cohere.read_answer(&Cohere.write_answer(&found, &mut losses)).unwrap();
    assert_eq!(losses.0, ["citations"]);
    assert_eq!(again, Answer { others: Default::default(), ..found });
    assert!(Cohere.read_answer(&json!({"id": "x"})).is_err());
}

#[test]
fn words_are_a_list() {
    let text = plain(Content::Text("Hi".to_owned()));
    let choice = crate::chat::Choice { parts: vec![text], finish: Finish::Stop };
    let answer = Answer { choices: vec![choice], ..Answer::default() };
    let written = Cohere.write_answer(&answer, &mut Losses::default());
    assert_eq!(written["message"]["content"], json!([{"type": "text", "text": "Hi"}]));
    assert_eq!(written["finish_reason"], "COMPLETE");
}

#[test]
fn errors_are_messages() {
    let fault = Cohere.read_fault(401, br#"{"id": "1", "message": "invalid api token"}"#);
    assert_eq!((fault.status, fault.message.as_str()), (401, "invalid api token"));
    assert_eq!(Cohere.write_fault(&fault), json!({"message": "invalid api token"}));
}

/// A stream as Cohere documents it.
const STREAM: &str = concat!(
    "event: message-start\n",
    r#"data: {"type":"message-start","id":"m1","delta":{"message":{"role":"assistant","content":[]}}}"#,
    "\n\nevent: tool-plan-delta\n",
    r#"data: {"type":"tool-plan-delta","delta":{"message":{"tool_plan":"I look."}}}"#,
    "\n\nevent: tool-call-start\n",
    r#"data: {"type":"tool-call-start","index":0,"delta":{"message":{"tool_calls":{"id":"look_1","#,
    r#""type":"function","function":{"name":"look","arguments":""}}}}}"#,
    "\n\nevent: tool-call-delta\n",
    r#"data: {"type":"tool-call-delta","index":0,"delta":{"message":{"tool_calls":{"function":"#,
    r#"{"arguments":"{}"}}}}}"#,
    "\n\nevent: tool-call-end\ndata: {\"type\":\"tool-call-end\",\"index\":0}\n\n",
    "event: content-start\n",
    r#"data: {"type":"content-start","index":0,"delta":{"message":{"content":{"type":"text","text":""}}}}"#,
    "\n\nevent: content-delta\n",
    r#"data: {"type":"content-delta","index":0,"delta":{"message":{"content":{"text":"A cat"}}}}"#,
    "\n\nevent: citation-start\n",
    r#"data: {"type":"citation-start","index":0,"delta":{"message":{"citations":{"start":0}}}}"#,
    "\n\nevent: content-end\ndata: {\"type\":\"content-end\",\"index\":0}\n\nevent: message-end\n",
    r#"data: {"type":"message-end","delta":{"finish_reason":"TOOL_CALL","usage":{"billed_units":"#,
    r#"{"input_tokens":3,"output_tokens":9},"tokens":{"input_tokens":8,"output_tokens":9}}}}"#,
    "\n\ndata: [DONE]\n\n",
);

fn stream_deltas() -> Vec<Delta> {
    let (id, name) = ("look_1".to_owned(), "look".to_owned());
    vec![
        Delta::Begin { id: "m1".to_owned(), model: String::new(), created: None },
        Delta::Reasoning { choice: 0, text: "I look.".to_owned() },
        Delta::ToolBegin { choice: 0, part: 0, id, name, signature: None },
        Delta::ToolArguments { choice: 0, part: 0, text: "{}".to_owned() },
        Delta::Text { choice: 0, text: "A cat".to_owned() },
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
fn what_is_opened_is_closed() {
    let text = written(&stream_deltas());
    let kinds: Vec<_> = text.lines().filter_map(|line| line.strip_prefix("event: ")).collect();
    assert_eq!(
        kinds,
        [
            "message-start",
            "content-start",
            "content-delta",
            "content-end",
            "tool-call-start",
            "tool-call-delta",
            "tool-call-end",
            "content-start",
            "content-delta",
            "content-end",
            "message-end",
        ]
    );
}

#[test]
fn an_error_ends_a_stream() {
    let fault = Fault { status: 502, message: "It broke.".to_owned(), ..Fault::default() };
    let begin = Delta::Begin { id: "m".to_owned(), model: String::new(), created: None };
    let found = deltas(&written(&[begin, Delta::Fault(fault.clone()), Delta::End]));
    assert_eq!(found[1..], [Delta::Fault(fault)]);
}

fn call() -> impl Strategy<Value = ToolCall> {
    ("[a-z]{1,6}", "[a-z]{1,6}", "\\PC{0,12}").prop_map(|(id, name, arguments)| ToolCall {
        id,
        name,
        arguments,
        signature: None,
    })
}

proptest! {
    #[test]
    fn turns_come_back(
        words in "\\PC{1,20}",
        thought in proptest::option::of("\\PC{1,9}"),
        calls in proptest::collection::vec(call(), 0..3),
    ) {
        let mut parts = Vec::new();
        parts.extend(thought.map(|text| {
            plain(Content::Reasoning { text, signature: None, sealed: None })
        }));
        parts.push(plain(Content::Text(words)));
        parts.extend(calls.into_iter().map(|call| plain(Content::ToolCall(call))));
        let messages = vec![Message { role: Role::Assistant, name: None, parts }];
        let chat = Chat { messages, stream_usage: true, ..Chat::default() };
        let (body, losses) = write(&chat);
        prop_assert!(losses.is_empty());
        prop_assert_eq!(read(body), chat);
    }

    #[test]
    fn nonsense_is_refused(text in "[\\[\\]{}:,\"a-z0-9]{0,40}") {
        if let Ok(value) = serde_json::from_str::<Value>(&text) {
            let _ = Cohere.read_answer(&value);
            let _ = Cohere.read_request(&value);
        }
        let event = crate::events::Event { name: None, data: &text };
        let _ = Cohere.reader().read(&event, &mut Vec::new());
    }
}
