mod streams;
mod thoughts;

use super::*;
use crate::chat::{Choice, Content, ToolCall};
use crate::dialect::generators::{answer, assembled, chat, deltas, read, written};
use proptest::prelude::*;
use serde_json::json;

pub(super) fn model(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::OpenAi | Dialect::Responses => "gpt-5",
        Dialect::Anthropic => "claude-sonnet-4-5",
        Dialect::Gemini => "gemini-2.5-pro",
        Dialect::Cohere => "command-a-03-2025",
    }
}

/// A call asked for in one dialect and made in another.
fn call(from: Dialect, to: Dialect) -> Translation {
    let body = match from {
        Dialect::Responses => json!({"input": "hi", "stream": true}),
        Dialect::Gemini => json!({"contents": [{"role": "user", "parts": [{"text": "hi"}]}]}),
        _ => json!({
            "model": "m", "messages": [{"role": "user", "content": "hi"}],
            "stream_options": {"include_usage": true},
        }),
    };
    let body = match from {
        Dialect::OpenAi => body,
        _ => without(body, "stream_options"),
    };
    Translation::request(from, to, &body, model(to), true).unwrap().0
}

fn without(mut body: Value, name: &str) -> Value {
    body.as_object_mut().unwrap().shift_remove(name);
    body
}

/// Reduces an answer to what all dialects keep: they differ in what they prove, count and date.
fn kept(mut answer: Answer) -> (Vec<Choice>, u64, u64) {
    for choice in &mut answer.choices {
        choice.parts.retain(|part| !matches!(part.content, Content::Reasoning { .. }));
        for part in &mut choice.parts {
            part.others.clear();
            if let Content::ToolCall(ToolCall { signature, arguments, .. }) = &mut part.content {
                *signature = None;
                // Some write it as a JSON value, so its text may change.
                let value: Value = serde_json::from_str(arguments).unwrap();
                *arguments = value.to_string();
            }
        }
    }
    let usage = answer.usage.unwrap_or_default();
    (answer.choices, usage.input, usage.output)
}

proptest! {
    /// Every request that one dialect can express is either translated into every other one, and
    /// understood there, or refused with a reason.
    #[test]
    fn requests_are_understood(chat in chat()) {
        for from in Dialect::ALL {
            let mut chat = chat.clone();
            chat.model = model(from).to_owned();
            let Ok(body) = from.words().write_request(&chat, &mut Losses::default()) else {
                continue;
            };
            for to in Dialect::ALL {
                match Translation::request(from, to, &body, model(to), chat.stream) {
                    Ok((_, written)) => {
                        let written = serde_json::from_slice(&written).unwrap();
                        let found = to.words().read_request(&written);
                        prop_assert!(found.is_ok(), "{:?} in {}", found, written);
                        // Some express the choice of a tool by leaving out the others.
                        prop_assert_eq!(found.unwrap().tools.is_empty(), chat.tools.is_empty());
                    }
                    Err(refused) => prop_assert!(!refused.at.is_empty() && !refused.why.is_empty()),
                }
            }
        }
    }

    #[test]
    fn answers_are_understood(answer in answer()) {
        for from in Dialect::ALL {
            for to in Dialect::ALL {
                let body = to.words().write_answer(&answer, &mut Losses::default());
                let body = call(from, to).answer(body.to_string().as_bytes()).unwrap();
                let body = serde_json::from_slice(&body).unwrap();
                let found = from.words().read_answer(&body).unwrap();
                prop_assert_eq!(kept(found), kept(answer.clone()), "{:?} {:?}: {}", from, to, body);
            }
        }
    }

    #[test]
    fn streams_are_understood(answer in answer(), length in 1usize..9, at in 0usize..6000) {
        for from in Dialect::ALL {
            for to in Dialect::ALL {
                let bytes = written(to, &deltas(&answer, length));
                let (mut stream, mut out) = (call(from, to).stream(), BytesMut::new());
                let (one, two) = bytes.split_at(at.min(bytes.len()));
                stream.push(one, &mut out).unwrap();
                stream.push(two, &mut out).unwrap();
                stream.end(&mut out).unwrap();
                prop_assert!(stream.fault().is_none());
                let found = assembled(&read(from, &out, at));
                let text = String::from_utf8_lossy(&out);
                prop_assert_eq!(kept(found), kept(answer.clone()), "{:?} {:?}: {}", from, to, text);
            }
        }
    }
}

fn claude(body: &Value) -> (Translation, Value) {
    let (to, model) = (Dialect::Anthropic, "claude-sonnet-4-5");
    let (call, written) = Translation::request(Dialect::OpenAi, to, body, model, true).unwrap();
    (call, serde_json::from_slice(&written).unwrap())
}

#[test]
fn the_provider_is_known_to_who_writes() {
    let named = Named { model: "mistral-large-latest", provider: Some(ModelType::Mistral) };
    let body = json!({"max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]});
    let (from, to) = (Dialect::Anthropic, Dialect::OpenAi);
    let (_, written) = Translation::request(from, to, &body, named, true).unwrap();
    let written: Value = serde_json::from_slice(&written).unwrap();
    assert_eq!((&written["stream"], &written["stream_options"]), (&json!(true), &Value::Null));
}

#[test]
fn claude_is_told_of_no_open_objects() {
    let mut body = hello();
    body["response_format"] = json!({"type": "json_schema", "json_schema": {
        "name": "cat", "schema": {"type": "object", "properties": {"a": {"type": "object"}}},
    }});
    let (call, written) = claude(&body);
    assert_eq!(call.losses(), ["response_format.schema"]);
    let schema = &written["output_config"]["format"]["schema"];
    assert_eq!(schema["additionalProperties"], false);
    assert_eq!(schema["properties"]["a"]["additionalProperties"], false);
}

fn hello() -> Value {
    json!({"model": "m", "messages": [{"role": "user", "content": "hi"}]})
}

/// Returns the events that a caller of chat completions gets.
fn chunks(out: &[u8]) -> Vec<Value> {
    let (mut found, mut events) = (Vec::new(), Events::new(1 << 20));
    let take = |event: crate::events::Event<'_>| {
        found.push(serde_json::from_str(event.data).unwrap_or(json!(event.data)));
    };
    events.push(out, take).unwrap();
    found
}

#[test]
fn many_names_are_not_told() {
    let mut body = hello();
    for index in 0..200 {
        body[format!("\u{1f980}{index}, x\n{}", "y".repeat(100))] = json!(1);
    }
    let (call, _) = claude(&body);
    assert_eq!(call.losses().len(), 32);
    assert!(call.losses()[0].starts_with("?0??x?yyy") && call.losses()[0].len() == 64);
}

#[test]
fn a_schema_is_a_tool_where_there_is_no_other_way() {
    let mut body = hello();
    body["response_format"] = json!({"type": "json_schema", "json_schema": {
        "name": "cat", "schema": {"type": "object"}, "strict": true,
    }});
    let old = "claude-3-5-haiku-latest";
    let (call, written) =
        Translation::request(Dialect::OpenAi, Dialect::Anthropic, &body, old, true).unwrap();
    let written: Value = serde_json::from_slice(&written).unwrap();
    assert_eq!(written["tool_choice"]["name"], "cat");
    assert_eq!(written["tools"][0]["input_schema"], json!({"type": "object"}));
    let answer = json!({
        "id": "msg_1", "model": old, "stop_reason": "tool_use",
        "content": [{"type": "tool_use", "id": "t", "name": "cat", "input": {"a": 1}}],
    });
    let told: Value =
        serde_json::from_slice(&call.answer(answer.to_string().as_bytes()).unwrap()).unwrap();
    assert_eq!(told["choices"][0]["message"]["content"], r#"{"a":1}"#);
    assert_eq!(told["choices"][0]["finish_reason"], "stop");
    let streamed = concat!(
        r#"data: {"type":"content_block_start","content_block":"#,
        r#"{"type":"tool_use","id":"t","name":"cat","input":{}}}"#,
        "\n\n",
        r#"data: {"type":"content_block_delta","delta":"#,
        r#"{"type":"input_json_delta","partial_json":"{\"a\":1}"}}"#,
        "\n\n",
        r#"data: {"type":"message_delta","delta":{"stop_reason":"tool_use"}}"#,
        "\n\n",
        r#"data: {"type":"message_stop"}"#,
        "\n\n",
    );
    let (mut stream, mut out) = (call.stream(), BytesMut::new());
    stream.push(streamed.as_bytes(), &mut out).unwrap();
    let found = chunks(&out);
    assert_eq!(found[1]["choices"][0]["delta"]["content"], r#"{"a":1}"#);
    assert_eq!(found[2]["choices"][0]["finish_reason"], "stop");
    body["tools"] = json!([{"type": "function", "function": {"name": "look"}}]);
    let refused = Translation::request(Dialect::OpenAi, Dialect::Anthropic, &body, old, true);
    assert_eq!(refused.unwrap_err().at, "response_format");
}

#[test]
fn uploads_stay_with_their_provider() {
    let body = json!({"messages": [{"role": "user", "content": [
        {"type": "file", "file": {"file_id": "file-1"}},
    ]}]});
    let to = |to| Translation::request(Dialect::OpenAi, to, &body, model(to), false);
    assert_eq!(to(Dialect::Anthropic).unwrap_err().at, "messages[0]");
    assert!(to(Dialect::Responses).is_ok());
}

#[test]
fn errors_are_told_in_the_words_of_who_asked() {
    let (call, _) = claude(&hello());
    let body = r#"{"type":"error","error":{"type":"invalid_request_error",
        "message":"prompt is too long: 210000 tokens > 200000 maximum"}}"#;
    let told: Value = serde_json::from_slice(&call.fault(400, body.as_bytes())).unwrap();
    assert_eq!(told["error"]["code"], "context_length_exceeded");
    assert_eq!(told["error"]["type"], "invalid_request_error");
    let told: Value = serde_json::from_slice(&call.fault(503, b"upstream down")).unwrap();
    assert_eq!(told["error"]["message"], "upstream down");
    let fault = Fault {
        status: 429,
        code: Some("MODEL_LIMIT_REACHED".to_owned()),
        message: "no more".to_owned(),
        ..Fault::default()
    };
    let told = |dialect| -> Value { serde_json::from_slice(&fault_body(dialect, &fault)).unwrap() };
    assert_eq!(told(Dialect::OpenAi)["error"]["code"], "MODEL_LIMIT_REACHED");
    let anthropic = told(Dialect::Anthropic);
    assert_eq!(anthropic["error"]["type"], "rate_limit_error");
    assert_eq!(anthropic["error"]["code"], "MODEL_LIMIT_REACHED");
    assert_eq!(anthropic["type"], "error");
}

#[test]
fn a_conversation_that_is_too_long_is_known_by_its_words() {
    let bodies = [
        (
            Dialect::Gemini,
            r#"{"error":{"code":400,"message":"The input token count (9) exceeds the maximum number of tokens allowed (8)."}}"#,
        ),
        (
            Dialect::OpenAi,
            r#"{"message":"This model's maximum context length is 8 tokens.","code":400}"#,
        ),
        (Dialect::Cohere, r#"{"message":"too many tokens: size limit exceeded by 10"}"#),
        (
            Dialect::Anthropic,
            r#"{"error":{"message":"input length and `max_tokens` exceed context limit: 9 > 8"}}"#,
        ),
    ];
    let words =
        [(Dialect::OpenAi, "context_length_exceeded"), (Dialect::Anthropic, "prompt is too long")];
    for ((to, body), (from, words)) in
        bodies.into_iter().flat_map(|body| words.map(|it| (body, it)))
    {
        let told =
            |status| String::from_utf8(call(from, to).fault(status, body.as_bytes())).unwrap();
        assert!(told(400).contains(words), "{from:?} of {to:?}: {}", told(400));
        // Google repeats the status in the body.
        assert!(to == Dialect::Gemini || !told(403).contains("context_length_exceeded"));
    }
}

#[test]
fn text_that_says_nothing_is_not_written_beside_calls() {
    for text in ["", "\n\n"] {
        let mut body = hello();
        let call = json!({"id": "a", "type": "function",
            "function": {"name": "look", "arguments": "{}"}});
        let said = json!({"role": "assistant", "content": text, "tool_calls": [call]});
        body["messages"].as_array_mut().unwrap().push(said);
        let (_, written) = claude(&body);
        assert_eq!(written["messages"][1]["content"].as_array().unwrap().len(), 1);
        let (_, written) =
            Translation::request(Dialect::OpenAi, Dialect::Gemini, &body, "gemini-3-pro", false)
                .unwrap();
        let written: Value = serde_json::from_slice(&written).unwrap();
        let parts = written["contents"][1]["parts"].as_array().unwrap();
        assert!(parts.iter().all(|part| part["text"] != ""));
    }
}
