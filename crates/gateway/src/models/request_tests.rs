use super::*;
use proptest::prelude::*;
use serde_json::{Value, json};

const CHAT: &str = "/v1/chat/completions";

fn asked(body: &str) -> ModelRequest {
    ModelRequest::read(CHAT, Bytes::copy_from_slice(body.as_bytes())).unwrap()
}

fn sent(body: &str, model: Option<&str>, usage: bool) -> String {
    String::from_utf8(asked(body).spliced(model, usage).whole().to_vec()).unwrap()
}

#[test]
fn a_model_is_filled_in_or_replaced_and_nothing_else_changes() {
    let body = r#" { "x" : 1.0e2, "model" : "mine" ,"y":[ ] } "#;
    assert_eq!(sent(body, None, false), body);
    assert_eq!(sent(body, Some("mine"), false), body);
    assert_eq!(sent(body, Some("g\"4"), false), body.replace("\"mine\"", r#""g\"4""#));
    assert_eq!(sent(r#"{"a":1}"#, Some("g"), false), r#"{"model":"g","a":1}"#);
    assert_eq!(sent("{ }", Some("g"), false), r#"{"model":"g" }"#);
    assert_eq!(sent(r#"{"model":null}"#, Some("g"), false), r#"{"model":"g"}"#);
}

#[test]
fn answers_that_cannot_be_counted_are_as_many_as_there_may_be() {
    let path = "/v1beta/models/g:generateContent";
    let choices = |config: &str| {
        let body = format!("{{\"generationConfig\":{config}}}");
        ModelRequest::read(path, Bytes::from(body)).unwrap().choices
    };
    assert_eq!((choices("{}"), choices("null")), (1, 1));
    assert_eq!(choices(r#"{"candidateCount":3}"#), 3);
    assert_eq!(choices(r#"{"candidateCount":"2"}"#), CANDIDATES_MAX);
    assert_eq!(choices(r#"{"candidateCount":1,"candidate_count":8}"#), CANDIDATES_MAX);
}

#[test]
fn a_call_before_others_is_known_however_it_is_written() {
    for body in [r#"{"service_tier":"priority"}"#, r#"{"service_tier":"prior\u0069ty"}"#] {
        assert!(asked(body).has_priority, "{body}");
    }
    for body in ["{}", r#"{"service_tier":"flex"}"#, r#"{"service_tier":["priority"]}"#] {
        assert!(!asked(body).has_priority, "{body}");
    }
}

#[test]
fn usage_is_asked_for_in_streams_that_do_not() {
    assert_eq!(
        sent(r#"{"model":"m","stream":true}"#, Some("g"), true),
        format!(r#"{{"stream_options":{USAGE},"model":"g","stream":true}}"#)
    );
    let body = r#"{"stream_options":{"include_usage":false},"stream":true}"#;
    assert_eq!(sent(body, None, true), format!(r#"{{"stream_options":{USAGE},"stream":true}}"#));
    let more = r#"{"stream_options":{"include_obfuscation":false},"stream":true}"#;
    let sent: serde_json::Value = serde_json::from_str(&sent(more, None, true)).unwrap();
    assert_eq!(sent["stream_options"]["include_usage"], true);
    assert_eq!(sent["stream_options"]["include_obfuscation"], false, "the rest stays");
    assert!(asked(r#"{"stream_options":{"include_usage":true}}"#).wants_usage);
}

#[test]
fn what_is_counted_by_is_read_in_every_dialect() {
    let openai = asked(r#"{"max_tokens":5,"max_completion_tokens":7,"n":2,"user":"u"}"#);
    assert_eq!((openai.max_output, openai.choices), (Some(7), 2));
    assert_eq!(openai.end_user.as_deref(), Some("u"));
    let in_words_of = |path: &str, body: &str| {
        ModelRequest::read(path, Bytes::copy_from_slice(body.as_bytes())).unwrap()
    };
    let body = r#"{"max_tokens":5,"max_completion_tokens":1,"metadata":{"user_id":"a","tag":"t"}}"#;
    let anthropic = in_words_of("/v1/messages", body);
    assert_eq!(anthropic.end_user.as_deref(), Some("a"));
    assert_eq!((anthropic.tag.as_deref(), anthropic.max_output), (Some("t"), Some(5)));
    for body in [
        r#"{"max_tokens":1,"generationConfig":{"maxOutputTokens":9,"candidateCount":3}}"#,
        r#"{"max_tokens":1,"generation_config":{"max_output_tokens":9,"candidate_count":3}}"#,
    ] {
        let gemini = in_words_of("/v1beta/models/g:generateContent", body);
        assert_eq!((gemini.max_output, gemini.choices), (Some(9), 3));
    }
    let both = r#"{"generationConfig":{"maxOutputTokens":9,"max_output_tokens":1}}"#;
    assert_eq!(in_words_of("/v1beta/models/g:generateContent", both).max_output, None);
}

#[test]
fn what_could_be_read_in_two_ways_is_refused() {
    for body in ["", "{", "[]", "7", "{\"model\":\"a\",\"model\":\"b\"}", "{\"model\":1}"] {
        assert!(
            ModelRequest::read(CHAT, Bytes::copy_from_slice(body.as_bytes())).is_err(),
            "{body}"
        );
    }
    assert!(ModelRequest::read("/v1/files", Bytes::from_static(b"\x00\x01")).is_ok());
}

#[test]
fn numbers_are_read_however_servers_take_them() {
    let read = |body: &str| {
        let asked = asked(body);
        (asked.max_output, asked.choices)
    };
    assert_eq!(read(r#"{"max_tokens":100.0,"n":1.0}"#), (Some(100), 1));
    assert_eq!(read(r#"{"max_tokens":1e2,"n":2}"#), (Some(100), 2));
    assert_eq!(read(r#"{"max_tokens":null,"n":null}"#), (None, 1));
    // What may mean any number must not lower what is reserved.
    for any in ["-1", "1.5", "\"100\"", "[]", "true"] {
        let body = format!("{{\"max_tokens\":{any},\"max_completion_tokens\":5}}");
        assert_eq!(read(&body), (None, 1), "{any}");
        assert_eq!(read(&format!("{{\"n\":{any}}}")), (None, u64::MAX), "{any}");
    }
    assert_eq!(asked(r#"{"user":123}"#).end_user.as_deref(), Some("123"));
    assert_eq!(asked(r#"{"user":[1],"metadata":{"user_id":"a"}}"#).end_user.as_deref(), Some("a"));
    let embeddings = Bytes::from_static(br#"{"input":"a","user":7}"#);
    let embeddings = ModelRequest::read("/v1/embeddings", embeddings).unwrap();
    assert_eq!(embeddings.end_user.as_deref(), Some("7"));
}

#[test]
fn what_is_refused_says_why() {
    let refused = |body: &'static str| {
        ModelRequest::read(CHAT, Bytes::from_static(body.as_bytes())).unwrap_err().to_string()
    };
    assert_eq!(refused(r#"{"stream":"true"}"#), "`stream` must be true or false");
    assert_eq!(refused(r#"{"background":1}"#), "`background` must be true or false");
    assert!(refused(r#"{"n":1,"n":2}"#).contains("duplicate field `n`"));
    assert!(refused(r#"{"n":1"#).starts_with("the body is not JSON"));
    let other = Bytes::from_static(br#"{"model":"m","stream":"true"}"#);
    assert!(ModelRequest::read("/v1/audio/speech", other).unwrap().is_object);
}

#[test]
fn a_conversation_is_known_by_how_it_began() {
    let of = |body: &Value| asked(&body.to_string()).conversation();
    let first =
        json!({"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "a"}]});
    let later = json!({"messages": [{"role": "system", "content": "new"}, {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}]});
    let other = json!({"messages": [{"role": "user", "content": "b"}]});
    assert_eq!(of(&first), of(&later));
    assert_ne!(of(&first), of(&other));
    assert!(of(&json!({"input": "text"})).is_some());
    assert_eq!(of(&json!({})), None);
}

proptest! {
    /// Whatever else a body has, it reads the same afterwards, with these members set.
    #[test]
    fn only_what_is_set_changes(keys in proptest::collection::btree_map("[a-l]{1,4}", ".{0,8}", 0..5), model in proptest::option::of(".{0,6}"), stream in any::<bool>()) {
        let mut body = serde_json::Map::new();
        body.extend(keys.into_iter().map(|(key, value)| (key, Value::from(value))));
        if let Some(model) = &model {
            body.insert("model".into(), model.clone().into());
        }
        body.insert("stream".into(), stream.into());
        let text = Value::Object(body.clone()).to_string();
        let sent: Value = serde_json::from_str(&sent(&text, Some("new"), stream)).unwrap();
        body.insert("model".into(), "new".into());
        if stream {
            body.insert("stream_options".into(), json!({"include_usage": true}));
        }
        prop_assert_eq!(sent, Value::Object(body));
    }

    #[test]
    fn no_body_is_trouble(body in proptest::collection::vec(any::<u8>(), 0..60)) {
        let _ = ModelRequest::read(CHAT, body.clone().into());
        if let Ok(asked) = ModelRequest::read("/x", body.into()) {
            asked.spliced(Some("m"), true).whole();
            asked.conversation();
        }
    }
}
