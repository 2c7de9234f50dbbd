use super::variants::is_reasoning_model;
use super::*;
use crate::chat::{Content, Delta, Finish, Format, Reasoning, Role, Source, ToolChoice};
use crate::dialect::Dialect;
use crate::dialect::generators::{assembled, read};
use crate::dialect::parts::plain;
use serde_json::json;
use types::kinds::model::ModelType;
use types::models::TokenUsage;

fn request(body: &Value) -> Chat {
    OpenAi.read_request(body).unwrap()
}

fn refused(body: &Value) -> String {
    OpenAi.read_request(body).unwrap_err().at
}

/// A request as the published clients write it, with everything that they can express.
fn whole() -> Value {
    json!({
        "model": "gpt-4o",
        "messages": [
            {"role": "developer", "content": "Be short."},
            {"role": "user", "name": "ann", "content": [
                {"type": "text", "text": "What is this?"},
                {"type": "image_url", "image_url": {
                    "url": "data:image/png;base64,iVBORw0K", "detail": "high",
                }},
                {"type": "input_audio", "input_audio": {"data": "UklGR", "format": "mp3"}},
                {"type": "file", "file": {
                    "filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERi0",
                }},
            ]},
            {"role": "assistant", "content": null, "refusal": null, "annotations": [],
             "tool_calls": [
                {"id": "call_1", "type": "function",
                 "function": {"name": "look", "arguments": "{\"at\":1}"}},
                {"id": "call_2", "type": "function",
                 "function": {"name": "look", "arguments": "{\"at\":2}"},
                 "extra_content": {"google": {"thought_signature": "c2ln"}}},
            ]},
            {"role": "tool", "tool_call_id": "call_1", "content": "a cat"},
            {"role": "tool", "tool_call_id": "call_2", "content": [{"type": "text", "text": "two"}]},
            {"role": "assistant", "content": "No.", "reasoning_content": "Two cats."},
        ],
        "tools": [{"type": "function", "function": {
            "name": "look", "description": "Looks.", "strict": true,
            "parameters": {"type": "object", "additionalProperties": false},
        }}],
        "tool_choice": {"type": "function", "function": {"name": "look"}},
        "parallel_tool_calls": false,
        "max_completion_tokens": 100, "temperature": 0.5, "top_p": 0.9, "n": 2, "seed": -3,
        "stop": "END", "presence_penalty": 0.1, "frequency_penalty": 0, "user": "u1",
        "reasoning_effort": "low", "logit_bias": {"50256": -100}, "service_tier": "flex",
        "response_format": {"type": "json_schema", "json_schema": {
            "name": "cat", "schema": {"type": "object", "additionalProperties": false}, "strict": true,
        }},
        "stream": true, "stream_options": {"include_usage": true}, "modalities": ["text"],
    })
}

#[test]
fn a_request_is_understood() {
    let chat = request(&whole());
    let roles: Vec<_> = chat.messages.iter().map(|message| message.role).collect();
    let expected = [Role::System, Role::User, Role::Assistant, Role::Tool, Role::Assistant];
    assert_eq!(roles, expected);
    let user = &chat.messages[1];
    assert_eq!(user.name.as_deref(), Some("ann"));
    let data = |media_type: &str, data: &str| Source::Data {
        media_type: media_type.to_owned(),
        data: data.to_owned(),
    };
    let (source, detail) = (data("image/png", "iVBORw0K"), Some("high".to_owned()));
    assert_eq!(user.parts[1], plain(Content::Image { source, detail }));
    assert_eq!(user.parts[2], plain(Content::Audio { source: data("audio/mpeg", "UklGR") }));
    let (source, name) = (data("application/pdf", "JVBERi0"), Some("a.pdf".to_owned()));
    assert_eq!(user.parts[3], plain(Content::File { source, name }));
    let Content::ToolCall(call) = &chat.messages[2].parts[1].content else { panic!() };
    assert_eq!((call.arguments.as_str(), call.signature.as_deref()), ("{\"at\":2}", Some("c2ln")));
    assert_eq!(chat.messages[3].parts.len(), 2);
    assert_eq!(chat.tool_choice, Some(ToolChoice::Named("look".to_owned())));
    assert_eq!(
        (chat.parallel_tools, chat.max_tokens, chat.choices),
        (Some(false), Some(100), Some(2))
    );
    assert_eq!((chat.stop.as_slice(), chat.seed), (["END".to_owned()].as_slice(), Some(-3)));
    let effort = Some("low".to_owned());
    let reasoning = Reasoning { effort, budget_tokens: None, summary: None };
    assert_eq!(chat.reasoning, Some(reasoning));
    assert!(matches!(chat.format, Some(Format::Schema { strict: Some(true), .. })));
    assert!(chat.stream && chat.stream_usage);
    let others: Vec<_> = chat.others.keys().map(String::as_str).collect();
    assert_eq!(others, ["messages.annotations", "logit_bias", "service_tier"]);
}

#[test]
fn what_is_written_is_what_was_read() {
    let mut losses = Losses::default();
    let written = OpenAi.write_request(&request(&whole()), &mut losses).unwrap();
    assert_eq!(losses.0, ["reasoning", "logit_bias"]);
    assert_eq!(written.get("reasoning_effort"), None);
    let whole = whole();
    for name in ["tools", "tool_choice", "response_format", "stream_options", "service_tier"] {
        assert_eq!(written[name], whole[name], "{name}");
    }
    assert_eq!(written["messages"][1]["content"], whole["messages"][1]["content"]);
    assert_eq!(written["messages"][2]["tool_calls"], whole["messages"][2]["tool_calls"]);
    assert_eq!(written["messages"][4]["content"], "two");
    // By the name that this model and merely compatible providers know.
    assert_eq!(
        (&written["max_tokens"], &written["max_completion_tokens"]),
        (&json!(100), &Value::Null)
    );
    for (model, newer) in [
        ("gpt-5-mini", true),
        ("o3", true),
        ("azure/o4-mini", true),
        ("gpt-4.1", false),
        ("olmo", false),
    ] {
        assert_eq!(is_reasoning_model(model), newer, "{model}");
    }
}

#[test]
fn a_name_of_who_asks_that_is_too_long_is_left_out() {
    for (length, losses) in [(64, &[][..]), (65, &["user"][..])] {
        let user = "ä".repeat(length);
        let mut body = json!({"messages": [{"role": "user", "content": "hi"}]});
        body["user"] = json!(user);
        for to in [Dialect::OpenAi, Dialect::Responses] {
            let mut found = Losses::default();
            let written = to.words().write_request(&request(&body), &mut found).unwrap();
            assert_eq!(found.0, losses);
            assert_eq!(written["user"].is_null(), length > 64);
        }
    }
}

#[test]
fn mistral_is_told_nothing_that_it_does_not_know() {
    let mut body = json!({
        "model": "m", "messages": [{"role": "user", "content": "hi"}], "seed": 5, "top_k": 3,
        "user": "ann", "store": true, "metadata": {"a": "b"}, "stream": true,
        "stream_options": {"include_usage": true},
    });
    let mut chat = request(&body);
    chat.provider = Some(ModelType::Mistral);
    let mut losses = Losses::default();
    let written = OpenAi.write_request(&chat, &mut losses).unwrap();
    assert_eq!(losses.0, ["top_k", "user", "store"]);
    let members = body.as_object_mut().unwrap();
    for name in ["seed", "top_k", "user", "store", "stream_options"] {
        members.remove(name);
    }
    body["random_seed"] = json!(5);
    assert_eq!(written, body);
}

#[test]
fn models_of_openai_are_told_what_they_take() {
    let asked = json!({
        "messages": [{"role": "user", "content": "hi"}], "temperature": 0.5, "top_p": 0.9, "top_k": 3,
    });
    let sampling = ["temperature", "top_p", "top_k"];
    for (model, effort, told, losses) in [
        ("gpt-4o", "low", None, &["reasoning", "top_k"][..]),
        ("o3", "max", Some("high"), &["reasoning.effort", "temperature", "top_p", "top_k"]),
        ("gpt-5", "low", Some("low"), &sampling),
        ("gpt-5", "none", Some("minimal"), &["reasoning.effort", "temperature", "top_p", "top_k"]),
        ("o3", "none", Some("low"), &["reasoning.effort", "temperature", "top_p", "top_k"]),
        ("gpt-5.1", "none", Some("none"), &["top_k"]),
        ("gpt-5.2", "xhigh", Some("xhigh"), &sampling),
        ("gpt-5.2", "max", Some("xhigh"), &["reasoning.effort", "temperature", "top_p", "top_k"]),
        ("openai/gpt-oss-120b", "max", Some("max"), &[]),
        ("deepseek-chat", "max", Some("max"), &[]),
    ] {
        let mut chat = request(&asked);
        model.clone_into(&mut chat.model);
        let effort = Some(effort.to_owned());
        chat.reasoning = Some(Reasoning { effort, budget_tokens: None, summary: None });
        let mut found = Losses::default();
        let written = OpenAi.write_request(&chat, &mut found).unwrap();
        assert_eq!(found.0, losses, "{model}");
        assert_eq!(written["reasoning_effort"].as_str(), told, "{model}");
        for name in sampling {
            let is_left_out = losses.contains(&name);
            assert_eq!(written[name].is_null(), is_left_out, "{model}: {name}");
        }
    }
    let mut chat = request(&json!({"messages": [{"role": "user", "content": "hi"}], "stop": "a"}));
    "gpt-5".clone_into(&mut chat.model);
    let refused = OpenAi.write_request(&chat, &mut Losses::default()).unwrap_err();
    assert_eq!(refused.at, "stop");
}

#[test]
fn only_some_providers_refuse_top_k() {
    let mut chat = request(&json!({"messages": [{"role": "user", "content": "hi"}], "top_k": 3}));
    for (provider, is_told) in [
        (None, true),
        (Some(ModelType::Deepseek), true),
        (Some(ModelType::Groq), false),
        (Some(ModelType::AzureOpenaiService), false),
    ] {
        chat.provider = provider;
        let mut losses = Losses::default();
        let written = OpenAi.write_request(&chat, &mut losses).unwrap();
        assert_eq!((!written["top_k"].is_null(), losses.0.is_empty()), (is_told, is_told));
    }
}

#[test]
fn only_schemas_that_openai_takes_are_strict() {
    let open = json!({"type": "object", "properties": {"a": {"type": "string"}}});
    let chat = request(&json!({
        "messages": [{"role": "user", "content": "hi"}],
        "tools": [{"type": "function", "function": {
            "name": "f", "parameters": open, "strict": true,
        }}],
        "response_format": {"type": "json_schema", "json_schema": {
            "name": "a", "schema": open, "strict": true,
        }},
    }));
    for (to, tool, format) in [
        (Dialect::OpenAi, "/tools/0/function/strict", "/response_format/json_schema/strict"),
        (Dialect::Responses, "/tools/0/strict", "/text/format/strict"),
    ] {
        let mut losses = Losses::default();
        let written = to.words().write_request(&chat, &mut losses).unwrap();
        assert!(losses.0.iter().any(|name| name == "tools.strict"), "{losses:?}");
        assert!(losses.0.iter().any(|name| name == "response_format.strict"), "{losses:?}");
        assert_eq!(written.pointer(tool), Some(&json!(false)));
        assert_eq!(written.pointer(format), Some(&json!(false)));
    }
}

#[test]
fn images_of_results_follow_them() {
    let image =
        Content::Image { source: Source::Url("https://a.example/a.png".to_owned()), detail: None };
    let result = |call: &str, content| {
        let (call, name) = (call.to_owned(), None);
        plain(Content::ToolResult { call, name, content, is_error: true })
    };
    let mut chat = Chat::default();
    chat.messages.push(crate::chat::Message {
        role: Role::Tool,
        name: None,
        parts: vec![result("c1", vec![image]), result("c2", vec![Content::Text("b".to_owned())])],
    });
    let mut losses = Losses::default();
    let written = OpenAi.write_request(&chat, &mut losses).unwrap();
    assert_eq!(losses.0, ["tool_result.is_error", "tool_result.content"]);
    let roles: Vec<_> = (0..3).map(|index| written["messages"][index]["role"].clone()).collect();
    assert_eq!(roles, ["tool", "tool", "user"]);
    assert_eq!(written["messages"][2]["content"][0]["text"], "From the result of c1:");
    assert_eq!(written["messages"][2]["content"][1]["type"], "image_url");
}

#[test]
fn what_is_not_understood_is_refused_where_it_stands() {
    let with = |name: &str, value: Value| {
        let mut body = json!({"messages": [{"role": "user", "content": "hi"}]});
        body[name] = value;
        body
    };
    let message = |message: Value| json!({"messages": [message]});
    for (body, at) in [
        (json!({"messages": []}), "messages"),
        (message(json!({"role": "robot", "content": "hi"})), "messages[0].role"),
        (message(json!({"role": "user", "content": 5})), "messages[0].content"),
        (
            message(json!({"role": "user", "content": [{"type": "video"}]})),
            "messages[0].content[0].type",
        ),
        (message(json!({"role": "tool", "content": "a"})), "messages[0].tool_call_id"),
        (message(json!({"role": "assistant", "audio": {"id": "a"}})), "messages[0].audio"),
        (with("functions", json!([{"name": "f"}])), "functions"),
        (with("modalities", json!(["text", "audio"])), "modalities"),
        (with("tools", json!([{"type": "web_search"}])), "tools[0].type"),
        (with("temperature", json!("hot")), "temperature"),
        (with("stop", json!([1])), "stop"),
        (with("tool_choice", json!({"type": "custom"})), "tool_choice"),
    ] {
        assert_eq!(refused(&body), at, "{body}");
    }
    let allowed = json!({"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [
        {"type": "function", "function": {"name": "b"}},
    ]}});
    let mut body = with("tool_choice", allowed);
    let tool = |name: &str| json!({"type": "function", "function": {"name": name}});
    body["tools"] = json!([tool("a"), tool("b")]);
    let chat = request(&body);
    assert_eq!(chat.tool_choice, Some(ToolChoice::Required));
    assert_eq!((chat.tools.len(), chat.tools[0].name.as_str()), (1, "b"));
}

#[test]
fn answers_of_those_who_speak_alike_are_understood() {
    let answer = |message: Value, reason: &str| {
        let body = json!({
            "id": "c", "object": "chat.completion", "created": 5, "model": "m",
            "choices": [{"index": 0, "message": message, "finish_reason": reason}],
            "usage": {"prompt_tokens": 10, "completion_tokens": 4, "total_tokens": 14,
                      "prompt_cache_hit_tokens": 8,
                      "completion_tokens_details": {"reasoning_tokens": 3}},
        });
        OpenAi.read_answer(&body).unwrap()
    };
    let thought = |text: &str| {
        let text = text.to_owned();
        plain(Content::Reasoning { text, signature: None, sealed: None })
    };
    let said = |text: &str| plain(Content::Text(text.to_owned()));
    let deepseek = answer(json!({"content": "Hi", "reasoning_content": "Hm"}), "stop");
    assert_eq!(deepseek.choices[0].parts, [thought("Hm"), said("Hi")]);
    let usage = deepseek.usage.unwrap();
    assert_eq!((usage.input, usage.output, usage.cached, usage.reasoning), (10, 4, 8, 3));
    let groq = answer(json!({"content": "Hi", "reasoning": "Hm"}), "length");
    assert_eq!(groq.choices[0].parts, [thought("Hm"), said("Hi")]);
    assert_eq!(groq.choices[0].finish, Finish::Length);
    let mistral = answer(
        json!({"content": [
            {"type": "thinking", "thinking": [{"type": "text", "text": "Hm"}]},
            {"type": "text", "text": "Hi"},
        ]}),
        "stop",
    );
    assert_eq!(mistral.choices[0].parts, [thought("Hm"), said("Hi")]);
    let refusal = answer(json!({"content": null, "refusal": "No."}), "stop");
    assert_eq!(refusal.choices[0].finish, Finish::Refused);
    let call = json!({"id": "1", "function": {"name": "f", "arguments": "{}"}});
    let stopped = answer(json!({"content": "", "tool_calls": [call]}), "stop");
    assert_eq!(
        (stopped.choices[0].parts.len(), &stopped.choices[0].finish),
        (1, &Finish::ToolCalls)
    );
}

fn stream(chunks: &[Value]) -> Vec<Delta> {
    let mut text: String = chunks.iter().map(|chunk| format!("data: {chunk}\n\n")).collect();
    text.push_str("data: [DONE]\n\n");
    read(Dialect::OpenAi, text.as_bytes(), 17)
}

fn chunk(delta: Value) -> Value {
    json!({"id": "c", "created": 5, "model": "m", "choices": [{"index": 0, "delta": delta}]})
}

fn end(reason: &str) -> Value {
    json!({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
}

#[test]
fn calls_come_in_many_pieces_or_in_one() {
    let call = |index: Value, id: Value, name: Value, arguments: &str| {
        chunk(json!({"tool_calls": [{
            "index": index, "id": id, "function": {"name": name, "arguments": arguments},
        }]}))
    };
    let null = Value::Null;
    let pieces = stream(&[
        chunk(json!({"role": "assistant", "content": null})),
        call(json!(0), json!("a"), json!("f"), ""),
        call(json!(0), null.clone(), null.clone(), "{\"x\":"),
        call(json!(0), null.clone(), null.clone(), "1}"),
        call(json!(1), json!("b"), json!("g"), "{}"),
        end("tool_calls"),
        json!({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}}),
    ]);
    let whole = stream(&[
        call(null.clone(), json!("a"), json!("f"), "{\"x\":1}"),
        call(null, json!("b"), json!("g"), "{}"),
        end("stop"),
    ]);
    // All calls have the number of the first, but each has its own id.
    let same = stream(&[
        call(json!(0), json!("a"), json!("f"), "{\"x\":1}"),
        call(json!(0), json!("b"), json!("g"), "{}"),
        end("tool_calls"),
    ]);
    let (pieces, whole, same) = (assembled(&pieces), assembled(&whole), assembled(&same));
    assert_eq!(pieces.choices, whole.choices);
    assert_eq!(pieces.choices, same.choices);
    assert_eq!(pieces.choices[0].finish, Finish::ToolCalls);
    assert_eq!(pieces.usage.map(TokenUsage::total), Some(5));
    assert_eq!((pieces.id.as_str(), pieces.created), ("c", Some(5)));
}

#[test]
fn what_a_filter_says_begins_no_stream() {
    let deltas = stream(&[
        json!({"choices": [], "created": 0, "id": "", "model": "", "prompt_filter_results": []}),
        chunk(json!({"content": "a"})),
        end("stop"),
    ]);
    let (id, model) = ("c".to_owned(), "m".to_owned());
    assert_eq!(deltas[0], Delta::Begin { id, model, created: Some(5) });
    let undated = stream(&[json!({"id": "c", "created": 0, "choices": []})]);
    assert!(matches!(undated[0], Delta::Begin { created: None, .. }), "{undated:?}");
}

#[test]
fn streams_say_errors_and_other_answers() {
    let deltas = stream(&[
        json!({"choices": [{"index": 1, "delta": {"content": "b"}}]}),
        chunk(json!({"reasoning": "Hm", "content": ""})),
        json!({"error": {"message": "slow down", "code": "rate_limit_exceeded", "type": "x"}}),
    ]);
    assert_eq!(deltas[1], Delta::Text { choice: 1, text: "b".to_owned() });
    assert_eq!(deltas[2], Delta::Reasoning { choice: 0, text: "Hm".to_owned() });
    let Delta::Fault(fault) = &deltas[3] else { panic!("{deltas:?}") };
    assert_eq!((fault.status, fault.message.as_str()), (429, "slow down"));
    let mut reader = OpenAi.reader();
    let endless = json!({"choices": [{"index": 4_000_000, "delta": {"content": "b"}}]}).to_string();
    let event = crate::events::Event { name: None, data: &endless };
    assert!(reader.read(&event, &mut Vec::new()).is_err());
}

#[test]
fn errors_of_all_shapes_are_read() {
    for (body, code, message) in [
        (r#"{"error":{"message":"m","type":"t","param":"p","code":"c"}}"#, Some("c"), "m"),
        (r#"{"error":{"message":"m","code":404}}"#, Some("404"), "m"),
        (r#"{"error":"m"}"#, None, "m"),
        (r#"{"object":"error","message":"m","type":"t"}"#, None, "m"),
        (r#"{"detail":"m"}"#, None, "m"),
        (r#"[{"error":{"message":"m"}}]"#, None, "m"),
        ("m", None, "m"),
    ] {
        let fault = OpenAi.read_fault(400, body.as_bytes());
        assert_eq!((fault.code.as_deref(), fault.message.as_str()), (code, message), "{body}");
    }
    let long = OpenAi.read_fault(502, "ä".repeat(1 << 20).as_bytes());
    assert!(long.message.len() < 4200);
}

#[test]
fn what_was_thought_is_output_also_where_only_the_sum_says_it() {
    let said = json!({"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 35,
                      "completion_tokens_details": {"reasoning_tokens": 30}});
    let usage = super::answer::read_usage(&said);
    assert_eq!((usage.input, usage.output, usage.reasoning), (3, 32, 30));
}
