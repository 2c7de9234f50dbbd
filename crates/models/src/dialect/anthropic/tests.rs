use super::versions::version;
use super::*;
use crate::chat::{Content, Delta, Finish, Reasoning, Role, Source, ToolChoice};
use crate::dialect::Dialect;
use crate::dialect::generators::{assembled, read};
use serde_json::json;

#[test]
fn versions_are_read_out_of_all_names() {
    for (model, wanted) in [
        ("claude-3-opus-20240229", Some((3, 0))),
        ("claude-3-5-haiku-latest", Some((3, 5))),
        ("claude-opus-4-20250514", Some((4, 0))),
        ("claude-opus-4-1@20250805", Some((4, 1))),
        ("us.anthropic.claude-sonnet-4-5-20250929-v1:0", Some((4, 5))),
        ("anthropic/claude-sonnet-4.6", Some((4, 6))),
        ("claude-opus-5", Some((5, 0))),
        ("claude-latest", None),
        ("deepseek-chat", None),
    ] {
        assert_eq!(version(model), wanted, "{model}");
    }
    assert_eq!(max_tokens("claude-3-haiku-20240307"), 4096);
    assert_eq!(max_tokens("claude-sonnet-4-5"), 32_000);
    assert!(knows_schemas("claude-opus-4-1") && !knows_schemas("claude-sonnet-4-1"));
}

/// A request as the published clients write it, with everything that they can express.
fn whole() -> Value {
    let mark = json!({"type": "ephemeral"});
    json!({
        "model": "claude-sonnet-4-5",
        "max_tokens": 9000,
        "system": [{"type": "text", "text": "Be short.", "cache_control": mark}],
        "messages": [
            {"role": "user", "content": [
                {"type": "image", "source": {
                    "type": "base64", "media_type": "image/png", "data": "iVBORw0K",
                }},
                {"type": "document", "title": "a", "source": {
                    "type": "text", "media_type": "text/plain", "data": "Once",
                }},
                {"type": "document", "source": {"type": "url", "url": "https://a.example/a.pdf"}},
                {"type": "text", "text": "What is this?", "cache_control": mark},
            ]},
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"},
                {"type": "redacted_thinking", "data": "ZGF0YQ"},
                {"type": "text", "text": "I look."},
                {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"at": 1}},
                {"type": "tool_use", "id": "toolu_2", "name": "look", "input": {}},
            ]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "toolu_1", "content": [
                    {"type": "text", "text": "see"},
                    {"type": "image", "source": {"type": "url", "url": "https://a.example/b.png"}},
                ]},
                {"type": "tool_result", "tool_use_id": "toolu_2", "content": "none", "is_error": true},
                {"type": "text", "text": "And?"},
            ]},
        ],
        "tools": [{
            "name": "look", "description": "Looks.", "input_schema": {"type": "object"},
            "strict": true, "cache_control": mark,
        }],
        "tool_choice": {"type": "auto", "disable_parallel_tool_use": true},
        "stop_sequences": ["END"],
        "thinking": {"type": "enabled", "budget_tokens": 4000},
        "output_config": {"format": {"type": "json_schema", "schema": {"type": "object", "additionalProperties": false}}},
        "metadata": {"user_id": "u1"},
        "stream": true,
    })
}

#[test]
fn a_request_is_the_same_after_it_was_understood() {
    let chat = Anthropic.read_request(&whole()).unwrap();
    let roles: Vec<_> = chat.messages.iter().map(|message| message.role).collect();
    let expected = [Role::System, Role::User, Role::Assistant, Role::Tool, Role::User];
    assert_eq!(roles, expected);
    assert_eq!((chat.end_user.as_deref(), chat.parallel_tools), (Some("u1"), Some(false)));
    assert_eq!(chat.tool_choice, Some(ToolChoice::Auto));
    let Content::File { source, .. } = &chat.messages[1].parts[1].content else { panic!() };
    let (media_type, data) = ("text/plain".to_owned(), "T25jZQ==".to_owned());
    assert_eq!(*source, Source::Data { media_type, data });
    let mut losses = Losses::default();
    let written = Anthropic.write_request(&chat, &mut losses).unwrap();
    assert_eq!(losses.0, Vec::<String>::new());
    assert_eq!(written, whole());
}

fn written(chat: &Chat) -> (Value, Vec<String>) {
    let mut losses = Losses::default();
    let body = Anthropic.write_request(chat, &mut losses).unwrap();
    (body, losses.0)
}

fn asked(model: &str, reasoning: Option<Reasoning>) -> Chat {
    let parts = vec![crate::dialect::parts::plain(Content::Text("hi".to_owned()))];
    let messages = vec![crate::chat::Message { role: Role::User, name: None, parts }];
    Chat { model: model.to_owned(), messages, reasoning, ..Chat::default() }
}

fn effort(effort: &str) -> Option<Reasoning> {
    let effort = Some(effort.to_owned());
    Some(Reasoning { effort, budget_tokens: None, summary: None })
}

#[test]
fn each_generation_thinks_as_it_is_told() {
    let (body, _) = written(&asked("claude-sonnet-4-5", effort("high")));
    assert_eq!(body["thinking"], json!({"type": "enabled", "budget_tokens": 16_000}));
    assert_eq!(body["max_tokens"], 32_000);
    let (body, _) = written(&asked("claude-opus-4-6", effort("high")));
    assert_eq!(body["thinking"], json!({"type": "adaptive"}));
    assert_eq!(body["output_config"]["effort"], "high");
    let (body, losses) = written(&asked("claude-opus-4-6", effort("none")));
    assert_eq!((&body["thinking"], losses.len()), (&Value::Null, 0));
    let (body, losses) = written(&asked("claude-3-5-haiku-latest", effort("low")));
    assert_eq!((&body["thinking"], losses), (&Value::Null, vec!["reasoning".to_owned()]));
    let mut short = asked("claude-sonnet-4-5", effort("low"));
    short.max_tokens = Some(100);
    assert_eq!(written(&short).1, ["reasoning"]);
    let mut warm = asked("claude-sonnet-4-5", effort("low"));
    warm.temperature = serde_json::Number::from_f64(0.3);
    let (body, losses) = written(&warm);
    assert_eq!((&body["temperature"], losses), (&Value::Null, vec!["temperature".to_owned()]));
    let mut made = asked("claude-sonnet-4-5", effort("low"));
    made.tool_choice = Some(ToolChoice::Required);
    assert_eq!(written(&made).1, ["reasoning"]);
}

#[test]
fn the_newest_choose_by_themselves_and_show_thoughts_if_asked() {
    let mut chat = asked("claude-opus-4-7", effort("xhigh"));
    chat.reasoning.as_mut().unwrap().summary = Some("auto".to_owned());
    let (body, losses) = written(&chat);
    assert_eq!(body["thinking"], json!({"type": "adaptive", "display": "summarized"}));
    assert_eq!((&body["output_config"]["effort"], losses.len()), (&json!("xhigh"), 0));
    "claude-opus-4-6".clone_into(&mut chat.model);
    let (body, losses) = written(&chat);
    assert_eq!(body["thinking"], json!({"type": "adaptive"}));
    assert_eq!(body["output_config"]["effort"], "max");
    assert_eq!(losses, ["reasoning.effort"]);
    let mut chat = asked("claude-opus-4-7", None);
    chat.temperature = serde_json::Number::from_f64(0.5);
    (chat.top_p, chat.top_k) = (serde_json::Number::from_f64(0.9), Some(3));
    let (body, losses) = written(&chat);
    assert_eq!(losses, ["temperature", "top_p", "top_k"]);
    assert!(losses.iter().all(|name| body[name].is_null()));
}

#[test]
fn what_is_hot_is_cooled_and_said() {
    let mut chat = asked("claude-3-haiku-20240307", None);
    chat.temperature = serde_json::Number::from_f64(1.7);
    let (body, losses) = written(&chat);
    assert_eq!((&body["temperature"], losses), (&json!(1), vec!["temperature".to_owned()]));
    assert_eq!(body["max_tokens"], 4096);
    chat.stop.push("\n".to_owned());
    let refused = Anthropic.write_request(&chat, &mut Losses::default()).unwrap_err();
    assert_eq!(refused.at, "stop");
}

#[test]
fn what_is_not_understood_is_refused_where_it_stands() {
    let with = |name: &str, value: Value| {
        let mut body = json!({"messages": [{"role": "user", "content": "hi"}]});
        body[name] = value;
        body
    };
    let block = |block: Value| json!({"messages": [{"role": "user", "content": [block]}]});
    for (body, at) in [
        (with("tools", json!([{"type": "bash_20250124", "name": "bash"}])), "tools[0].type"),
        (with("mcp_servers", json!([{}])), "mcp_servers"),
        (with("messages", json!([])), "messages"),
        (with("stop_sequences", json!([7])), "stop_sequences"),
        (block(json!({"type": "server_tool_use"})), "messages[0].content[0].type"),
        (block(json!({"type": "image"})), "messages[0].content[0].source"),
        (block(json!({"type": "tool_result"})), "messages[0].content[0].tool_use_id"),
        (
            block(json!({"type": "document", "source": {"type": "content"}})),
            "messages[0].content[0].source.type",
        ),
    ] {
        assert_eq!(Anthropic.read_request(&body).unwrap_err().at, at, "{body}");
    }
}

/// A stream as documented, with a thought, a ping and a call without arguments.
const STREAM: &str = r#"event: message_start
data: {"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"claude","content":[],"stop_reason":null,"usage":{"input_tokens":25,"cache_creation_input_tokens":3,"cache_read_input_tokens":2,"output_tokens":1}}}

event: content_block_start
data: {"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"Hm."}}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"c2ln"}}

event: content_block_stop
data: {"type":"content_block_stop","index":0}

event: ping
data: {"type": "ping"}

event: content_block_start
data: {"type":"content_block_start","index":1,"content_block":{"type":"text","text":""}}

event: content_block_delta
data: {"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"Okay"}}

event: content_block_stop
data: {"type":"content_block_stop","index":1}

event: content_block_start
data: {"type":"content_block_start","index":2,"content_block":{"type":"tool_use","id":"toolu_1","name":"look","input":{}}}

event: content_block_delta
data: {"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":""}}

event: content_block_stop
data: {"type":"content_block_stop","index":2}

event: message_delta
data: {"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null},"usage":{"output_tokens":15}}

event: message_stop
data: {"type":"message_stop"}

"#;

#[test]
fn a_published_stream_is_understood() {
    let deltas = read(Dialect::Anthropic, STREAM.as_bytes(), 1000);
    assert!(deltas.contains(&Delta::Ping));
    let answer = assembled(&deltas);
    let usage = answer.usage.unwrap();
    assert_eq!((usage.input, usage.cached, usage.cache_written, usage.output), (30, 2, 3, 15));
    let choice = &answer.choices[0];
    assert_eq!(choice.finish, Finish::ToolCalls);
    let Content::Reasoning { text, signature, .. } = &choice.parts[0].content else { panic!() };
    assert_eq!((text.as_str(), signature.as_deref()), ("Hm.", Some("c2ln")));
    let Content::ToolCall(call) = &choice.parts[2].content else { panic!() };
    assert_eq!(call.arguments, "{}");
}

#[test]
fn a_stream_is_written_as_published() {
    let deltas = read(Dialect::Anthropic, STREAM.as_bytes(), 0);
    let bytes = crate::dialect::generators::written(Dialect::Anthropic, &deltas);
    let names = |bytes: &[u8]| -> Vec<String> {
        let (mut names, mut events) = (Vec::new(), crate::events::Events::new(1 << 20));
        events.push(bytes, |event| names.extend(event.name.map(str::to_owned))).unwrap();
        names.retain(|name| name != "ping");
        names
    };
    assert_eq!(names(&bytes), names(STREAM.as_bytes()));
}

#[test]
fn errors_have_their_words() {
    let fault = |status, code: Option<&str>| Fault {
        status,
        code: code.map(str::to_owned),
        message: "m".to_owned(),
        ..Fault::default()
    };
    for (status, kind) in [
        (400, "invalid_request_error"),
        (401, "authentication_error"),
        (413, "request_too_large"),
        (429, "rate_limit_error"),
        (500, "api_error"),
        (529, "overloaded_error"),
    ] {
        assert_eq!(Anthropic.write_fault(&fault(status, None))["error"]["type"], kind);
    }
    let long = Anthropic.write_fault(&fault(400, Some("context_length_exceeded")));
    assert_eq!(long["error"]["message"], "prompt is too long: m");
}
