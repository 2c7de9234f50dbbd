use super::*;
use crate::chat::{Content, Delta, Finish, Format, Reasoning, Role, Source};
use crate::dialect::Dialect;
use crate::dialect::generators::{assembled, read, written};
use serde_json::json;

/// A request as the published clients write it, with everything that they can express.
fn whole() -> Value {
    json!({
        "model": "gpt-5",
        "instructions": "Be short.",
        "input": [
            {"role": "user", "content": "hi"},
            {"type": "message", "role": "user", "content": [
                {"type": "input_text", "text": "What is this?"},
                {"type": "input_image", "image_url": "data:image/png;base64,iVBORw0K", "detail": "low"},
                {"type": "input_file", "file_url": "https://a.example/a.pdf"},
            ]},
            {"type": "reasoning", "id": "rs_1", "summary": [
                {"type": "summary_text", "text": "One"}, {"type": "summary_text", "text": "Two"},
            ], "encrypted_content": "gAAAAA"},
            {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
             "content": [{"type": "output_text", "text": "I look.", "annotations": []}]},
            {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "look",
             "arguments": "{}", "status": "completed"},
            {"type": "function_call_output", "call_id": "call_1", "output": [
                {"type": "input_text", "text": "see"},
                {"type": "input_image", "image_url": "https://a.example/b.png"},
            ]},
        ],
        "tools": [{"type": "function", "name": "look", "strict": true,
                   "parameters": {"type": "object", "additionalProperties": false}}],
        "tool_choice": "auto", "parallel_tool_calls": true, "max_output_tokens": 50,
        "reasoning": {"effort": "medium", "summary": "auto"}, "store": false,
        "include": ["reasoning.encrypted_content"], "user": "u1", "prompt_cache_key": "k",
        "text": {"format": {"type": "json_object"}, "verbosity": "low"}, "stream": true,
    })
}

#[test]
fn a_request_is_understood() {
    let chat = Responses.read_request(&whole()).unwrap();
    let roles: Vec<_> = chat.messages.iter().map(|message| message.role).collect();
    let expected = [Role::System, Role::User, Role::User, Role::Assistant, Role::Tool];
    assert_eq!(roles, expected);
    let turn = &chat.messages[3].parts;
    let Content::Reasoning { text, sealed, .. } = &turn[0].content else { panic!() };
    assert_eq!((text.as_str(), sealed.as_deref()), ("One\n\nTwo", Some("gAAAAA")));
    assert!(matches!(&turn[2].content, Content::ToolCall(call) if call.id == "call_1"));
    let Content::ToolResult { content, .. } = &chat.messages[4].parts[0].content else { panic!() };
    let url = Source::Url("https://a.example/b.png".to_owned());
    assert_eq!(content[1], Content::Image { source: url, detail: None });
    assert_eq!(chat.format, Some(Format::Json));
    let (effort, summary) = (Some("medium".to_owned()), Some("auto".to_owned()));
    assert_eq!(chat.reasoning, Some(Reasoning { effort, budget_tokens: None, summary }));
    let others: Vec<_> = chat.others.keys().map(String::as_str).collect();
    assert_eq!(others, ["verbosity", "store", "prompt_cache_key"]);
    let mut losses = Losses::default();
    let written = Responses.write_request(&chat, &mut losses).unwrap();
    assert_eq!(losses.0, Vec::<String>::new());
    for (name, value) in whole().as_object().unwrap() {
        if name != "input" {
            assert_eq!(&written[name], value, "{name}");
        }
    }
    assert_eq!(written["input"][5], whole()["input"][5]);
}

#[test]
fn what_is_kept_elsewhere_cannot_be_told() {
    let with = |name: &str, value: Value| {
        let mut body = json!({"input": "hi"});
        body[name] = value;
        body
    };
    for (body, at) in [
        (json!({}), "input"),
        (with("previous_response_id", json!("resp_1")), "previous_response_id"),
        (with("conversation", json!("conv_1")), "conversation"),
        (with("prompt", json!({"id": "pmpt_1"})), "prompt"),
        (with("background", json!(true)), "background"),
        (with("input", json!([{"type": "item_reference", "id": "msg_1"}])), "input[0].type"),
        (with("tools", json!([{"type": "web_search"}])), "tools[0].type"),
        (with("tool_choice", json!({"type": "mcp"})), "tool_choice"),
        (with("text", json!({"format": {"type": "xml"}})), "text.format.type"),
    ] {
        assert_eq!(Responses.read_request(&body).unwrap_err().at, at, "{body}");
    }
}

#[test]
fn tools_are_strict_only_where_that_is_said() {
    let mut body = json!({"input": "hi", "tools": [{"type": "function", "name": "f"}]});
    for strict in [Value::Null, json!(false)] {
        body["tools"][0]["strict"] = strict;
        let chat = Responses.read_request(&body).unwrap();
        assert_eq!(chat.tools[0].strict, None);
        let written = Responses.write_request(&chat, &mut Losses::default()).unwrap();
        assert_eq!(written["tools"][0]["strict"], false);
    }
}

/// A stream as documented, with a thought, a message and a call.
const STREAM: &str = r#"event: response.created
data: {"type":"response.created","sequence_number":0,"response":{"id":"resp_1","object":"response","created_at":1741476777,"status":"in_progress","model":"gpt-5","output":[]}}

event: response.output_item.added
data: {"type":"response.output_item.added","output_index":0,"item":{"id":"rs_1","type":"reasoning","summary":[]}}

event: response.reasoning_summary_part.added
data: {"type":"response.reasoning_summary_part.added","item_id":"rs_1","output_index":0,"summary_index":0,"part":{"type":"summary_text","text":""}}

event: response.reasoning_summary_text.delta
data: {"type":"response.reasoning_summary_text.delta","item_id":"rs_1","output_index":0,"summary_index":0,"delta":"Hm."}

event: response.output_item.done
data: {"type":"response.output_item.done","output_index":0,"item":{"id":"rs_1","type":"reasoning","summary":[{"type":"summary_text","text":"Hm."}],"encrypted_content":"gAAAAA"}}

event: response.output_item.added
data: {"type":"response.output_item.added","output_index":1,"item":{"id":"msg_1","type":"message","status":"in_progress","role":"assistant","content":[]}}

event: response.output_text.delta
data: {"type":"response.output_text.delta","item_id":"msg_1","output_index":1,"content_index":0,"delta":"Hi"}

event: response.output_item.added
data: {"type":"response.output_item.added","output_index":2,"item":{"id":"fc_1","type":"function_call","status":"in_progress","call_id":"call_1","name":"look","arguments":""}}

event: response.function_call_arguments.delta
data: {"type":"response.function_call_arguments.delta","item_id":"fc_1","output_index":2,"delta":"{}"}

event: response.output_item.done
data: {"type":"response.output_item.done","output_index":2,"item":{"id":"fc_1","type":"function_call","status":"completed","call_id":"call_1","name":"look","arguments":"{}"}}

event: response.completed
data: {"type":"response.completed","response":{"id":"resp_1","status":"completed","model":"gpt-5","output":[],"usage":{"input_tokens":37,"input_tokens_details":{"cached_tokens":5},"output_tokens":11,"output_tokens_details":{"reasoning_tokens":6},"total_tokens":48}}}

"#;

#[test]
fn a_published_stream_is_understood() {
    let answer = assembled(&read(Dialect::Responses, STREAM.as_bytes(), 700));
    assert_eq!((answer.id.as_str(), answer.created), ("resp_1", Some(1_741_476_777)));
    let usage = answer.usage.unwrap();
    assert_eq!((usage.input, usage.cached, usage.output, usage.reasoning), (37, 5, 11, 6));
    let choice = &answer.choices[0];
    assert_eq!((choice.parts.len(), &choice.finish), (3, &Finish::ToolCalls));
    let Content::Reasoning { text, sealed, .. } = &choice.parts[0].content else { panic!() };
    assert_eq!((text.as_str(), sealed.as_deref()), ("Hm.", Some("gAAAAA")));
    let Content::ToolCall(call) = &choice.parts[2].content else { panic!() };
    assert_eq!(call.arguments, "{}");
}

#[test]
fn calls_that_are_told_whole_are_understood() {
    let item = json!({"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"});
    let events = [
        json!({"type": "response.output_item.done", "output_index": 0, "item": item}),
        json!({"type": "response.incomplete", "response": {
            "incomplete_details": {"reason": "max_output_tokens"},
        }}),
    ];
    let text: String = events.iter().map(|event| format!("data: {event}\n\n")).collect();
    let answer = assembled(&read(Dialect::Responses, text.as_bytes(), 9));
    assert_eq!(answer.choices[0].finish, Finish::Length);
    let Content::ToolCall(call) = &answer.choices[0].parts[0].content else { panic!() };
    assert_eq!((call.id.as_str(), call.arguments.as_str()), ("c", "{}"));
}

fn events(deltas: &[Delta]) -> Vec<Value> {
    let (mut found, mut events) = (Vec::new(), crate::events::Events::new(1 << 20));
    let bytes = written(Dialect::Responses, deltas);
    events
        .push(&bytes, |event| {
            let value: Value = serde_json::from_str(event.data).unwrap();
            assert_eq!(event.name, value["type"].as_str());
            found.push(value);
        })
        .unwrap();
    found
}

#[test]
fn a_stream_is_written_as_published() {
    let found = events(&read(Dialect::Responses, STREAM.as_bytes(), 0));
    let names: Vec<_> = found.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(
        names,
        [
            "response.created",
            "response.in_progress",
            "response.output_item.added",
            "response.reasoning_summary_part.added",
            "response.reasoning_summary_text.delta",
            "response.reasoning_summary_text.done",
            "response.reasoning_summary_part.done",
            "response.output_item.done",
            "response.output_item.added",
            "response.content_part.added",
            "response.output_text.delta",
            "response.output_text.done",
            "response.content_part.done",
            "response.output_item.done",
            "response.output_item.added",
            "response.function_call_arguments.delta",
            "response.function_call_arguments.done",
            "response.output_item.done",
            "response.completed",
        ]
    );
    let numbers = found.iter().map(|event| event["sequence_number"].as_u64().unwrap());
    assert!(numbers.eq(0..19));
    let added: Vec<_> = found.iter().filter(|event| !event["item"].is_null()).collect();
    for pair in added.chunks(2) {
        assert_eq!(pair[0]["item"]["id"], pair[1]["item"]["id"]);
    }
    let end = &found[18]["response"];
    assert_eq!(end["status"], "completed");
    assert_eq!(end["output"][2]["arguments"], "{}");
    assert_eq!(end["output"][1]["content"][0]["text"], "Hi");
    assert_eq!(end["usage"]["input_tokens"], 37);
    assert_eq!(found[11]["item_id"], end["output"][1]["id"]);
}

#[test]
fn a_failure_is_told_once_to_each_kind_of_reader() {
    let begin = Delta::Begin { id: "r".to_owned(), model: "m".to_owned(), created: None };
    let fault = Fault { status: 429, message: "slow down".to_owned(), ..Fault::default() };
    let found = events(&[begin.clone(), Delta::Fault(fault), Delta::End]);
    let names: Vec<_> = found.iter().skip(2).map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(names, ["error", "response.failed"]);
    assert_eq!(found[3]["response"]["error"]["code"], "rate_limit_exceeded");
    let text: String = found.iter().map(|event| format!("data: {event}\n\n")).collect();
    let deltas = read(Dialect::Responses, text.as_bytes(), 3);
    assert_eq!(deltas.len(), 2);
    let Delta::Fault(fault) = &deltas[1] else { panic!("{deltas:?}") };
    assert_eq!((fault.status, fault.message.as_str()), (429, "slow down"));
    // A call that continues after another one has begun cannot be expressed.
    let call = |part, id: &str| Delta::ToolBegin {
        choice: 0,
        part,
        id: id.to_owned(),
        name: "f".to_owned(),
        signature: None,
    };
    let more = Delta::ToolArguments { choice: 0, part: 0, text: "{".to_owned() };
    let found = events(&[begin, call(0, "a"), call(1, "b"), more, Delta::End]);
    assert_eq!(found.last().unwrap()["type"], "response.failed");
}

#[test]
fn an_answer_that_failed_is_none() {
    let body = json!({"status": "failed", "error": {"code": "server_error", "message": "sorry"}});
    assert!(Responses.read_answer(&body).unwrap_err().to_string().ends_with("sorry"));
}
