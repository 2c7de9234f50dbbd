//! What reaches a provider, and which parts of its answer reach the caller.

use crate::stage::{CHAT, HI, HI_STREAM, KEY, NARROW_KEY, Stage, model, settings};
use crate::standin::{ANSWER, STREAM, Standin, json, streamed, with};
use bytes::Bytes;
use gateway::ModelSettings;
use http_body_util::BodyExt;
use std::sync::atomic::Ordering;
use types::kinds::model::{ModelTarget, ModelType};

#[tokio::test]
async fn an_answer_passes_byte_for_byte_and_is_counted() {
    let stage = Stage::start().await;
    let standin = Standin::start(|_, _, _| json(200, ANSWER)).await;
    stage.model("m", &standin);
    let answer = stage.chat("m", HI).await;
    assert_eq!((answer.status.as_u16(), answer.text.as_str()), (200, ANSWER));
    assert_eq!(answer.header("x-holm-model"), Some("m"));
    let (head, body) = standin.asked.lock()[0].clone();
    assert_eq!(head.headers["authorization"], "Bearer sk-provider");
    assert_eq!(body, HI.replace("any", "gpt-x"));
    let usage = stage.usage(1).await;
    assert_eq!((usage.calls, usage.input, usage.output, usage.estimated), (1, 10, 5, 0));
}

#[tokio::test]
async fn no_key_of_a_caller_is_passed_on() {
    let stage = Stage::start().await;
    let standin = Standin::start(|_, _, _| json(200, ANSWER)).await;
    stage.model("m", &standin);
    let bearer = format!("Bearer {KEY}");
    for slot in ["x-blaxel-authorization", "x-service-authorization", "authorization"] {
        let headers = [
            (slot, bearer.as_str()),
            ("x-api-key", "theirs"),
            ("cookie", "a=b"),
            ("openai-organization", "o"),
        ];
        let answer = stage.ask_with(&format!("/acme/models/m{CHAT}"), &headers, HI).await;
        assert_eq!(answer.status.as_u16(), 200, "{slot}");
    }
    for slot in ["x-api-key", "api-key", "x-goog-api-key"] {
        let answer = stage.ask_with(&format!("/acme/models/m{CHAT}"), &[(slot, KEY)], HI).await;
        assert_eq!(answer.status.as_u16(), 200, "{slot}");
    }
    let answer = stage.ask_with(&format!("/acme/models/m{CHAT}?a=b&key={KEY}"), &[], HI).await;
    assert_eq!(answer.status.as_u16(), 200);
    for (head, _) in standin.asked.lock().iter() {
        let text = format!("{:?} {}", head.headers, head.uri);
        assert!(!text.contains(KEY) && !text.contains("theirs"), "{text}");
        assert!(!head.headers.contains_key("cookie"));
        assert_eq!(head.headers["authorization"], "Bearer sk-provider");
    }
}

#[tokio::test]
async fn an_error_does_not_repeat_the_key_of_the_connection() {
    let stage = Stage::start().await;
    let standin = Standin::start(|_, head, _| {
        let sent = head.headers["authorization"].to_str().unwrap();
        json(400, &format!("{{\"error\":{{\"message\":\"{sent} {sent}.\"}}}}"))
    })
    .await;
    stage.model("m", &standin);
    let told = stage.chat("m", HI).await;
    assert_eq!(told.status.as_u16(), 400);
    assert_eq!(told.text, r#"{"error":{"message":"Bearer *** Bearer ***."}}"#);
}

#[tokio::test]
async fn a_body_that_was_read_as_json_is_sent_as_json() {
    let stage = Stage::start().await;
    let standin = Standin::start(|_, _, _| json(200, ANSWER)).await;
    stage.model("m", &standin);
    stage.route(model("claude", ModelType::Anthropic, Some(&standin.url)));
    let bearer = format!("Bearer {KEY}");
    // What curl says of a body if it is not told.
    let form = ("content-type", "application/x-www-form-urlencoded");
    let headers = [("authorization", bearer.as_str()), form];
    for path in [CHAT, "/v1/messages", "/v1/responses", "/v1/embeddings"] {
        stage.ask_with(&format!("/acme/models/m{path}"), &headers, HI).await;
    }
    stage.ask_with(&format!("/acme/models/claude{CHAT}"), &headers, HI).await;
    stage.ask(&format!("/acme/models/m{CHAT}"), HI).await;
    stage.ask_with("/acme/models/m/v1/files", &headers, "a=b").await;
    let asked = standin.asked.lock();
    let mut kinds: Vec<_> = asked.iter().map(|(head, _)| &head.headers["content-type"]).collect();
    assert_eq!(kinds.pop().unwrap(), form.1);
    assert_eq!(kinds, ["application/json"; 6]);
}

#[tokio::test]
async fn a_stream_passes_piece_by_piece_without_usage_that_was_not_asked_for() {
    let stage = Stage::start().await;
    let (sender, standin) = Standin::event_by_event().await;
    stage.model("m", &standin);
    sender.send(Ok(Bytes::from_static(STREAM[0].as_bytes()))).unwrap();
    let mut response = stage.open_stream("m").await;
    let piece = |frame: Option<_>| {
        let frame: Result<http_body::Frame<Bytes>, hyper::Error> = frame.unwrap();
        frame.unwrap().into_data().unwrap()
    };
    assert_eq!(piece(response.body_mut().frame().await), STREAM[0]);
    for event in &STREAM[1..] {
        sender.send(Ok(Bytes::from_static(event.as_bytes()))).unwrap();
    }
    drop(sender);
    let rest = response.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(rest, [STREAM[1], STREAM[3]].concat());
    let (_, body) = standin.asked.lock()[0].clone();
    assert!(String::from_utf8_lossy(&body).contains(r#""include_usage":true"#));
    let usage = stage.usage(1).await;
    assert_eq!((usage.input, usage.output, usage.estimated), (10, 5, 0));
}

#[tokio::test]
async fn usage_that_was_asked_for_passes() {
    let stage = Stage::start().await;
    let standin = Standin::start(|_, _, _| streamed(&STREAM)).await;
    stage.model("m", &standin);
    let body = HI_STREAM
        .replace("\"stream\":true", "\"stream\":true,\"stream_options\":{\"include_usage\":true}");
    assert_eq!(stage.chat("m", &body).await.text, STREAM.concat());
    assert_eq!(standin.asked.lock()[0].1, body.replace("any", "gpt-x"));
}

#[tokio::test]
async fn a_connection_serves_one_request_after_the_other() {
    let stage = Stage::start().await;
    let standin = Standin::start(|number, _, _| match number % 2 {
        0 => json(200, ANSWER),
        _ => json(400, r#"{"error":{"message":"no"}}"#),
    })
    .await;
    stage.model("m", &standin);
    for number in 0..20 {
        let answer = stage.chat("m", HI).await;
        assert_eq!(answer.status.as_u16(), if number % 2 == 0 { 200 } else { 400 });
    }
    assert_eq!(standin.connections.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn http_2_carries_many_at_once() {
    let standin =
        Standin::secure(|_, _, body| match body.windows(6).any(|text| text == b"stream") {
            false => json(200, ANSWER),
            true => streamed(&STREAM),
        })
        .await;
    let settings = ModelSettings { authorities: standin.authority.clone(), ..settings() };
    let stage = Stage::with(settings).await;
    stage.model("m", &standin);
    assert_eq!(stage.chat("m", HI).await.text, ANSWER);
    let both = |number| stage.chat("m", if number % 2 == 0 { HI } else { HI_STREAM });
    let answers = futures_util::future::join_all((0..50).map(both)).await;
    assert!(answers.iter().all(|answer| answer.status.as_u16() == 200), "{answers:?}");
    assert_eq!(standin.connections.load(Ordering::Relaxed), 1);
    assert!(standin.asked.lock().iter().all(|(head, _)| head.version == http::Version::HTTP_2));
}

#[tokio::test]
async fn certificates_of_nobody_are_refused() {
    let standin = Standin::secure(|_, _, _| json(200, ANSWER)).await;
    let stage = Stage::start().await;
    stage.model("m", &standin);
    stage.chat("m", HI).await.is(502, "MODEL_PROVIDER_FAILED");
}

#[tokio::test]
async fn other_paths_pass_as_they_are() {
    let stage = Stage::start().await;
    let standin = Standin::start(|_, head, _| match head.uri.path() {
        "/v1/files/f1/content" => with(200, "text/html", "<script>"),
        _ => json(200, r#"{"data":[]}"#),
    })
    .await;
    stage.model("m", &standin);
    let answer = stage.ask("/acme/models/m/v1/files/f1/content", "").await;
    assert_eq!(answer.text, "<script>");
    // Beside the server's own pages it must not act as one of them.
    assert!(answer.header("content-security-policy").unwrap().contains("sandbox"));
    assert_eq!(stage.ask("/acme/models/m/v1/models", "").await.text, r#"{"data":[]}"#);
}

#[tokio::test]
async fn a_count_of_tokens_is_of_the_provider_s_model() {
    let stage = Stage::start().await;
    let standin = Standin::start(|_, _, _| json(200, r#"{"totalTokens":7}"#)).await;
    stage.route(model("claude", ModelType::Anthropic, Some(&standin.url)));
    stage.route(model("gemini", ModelType::Gemini, Some(&standin.url)));
    let mut named = model("named", ModelType::Gemini, Some(&standin.url));
    named.provider.as_mut().unwrap().model = None;
    stage.route(named);
    for (first, second) in [("v1", "claude"), ("v2", "gemini")] {
        let mut virtual_model = model(first, ModelType::Openai, None);
        let target = ModelTarget { model: second.into(), weight: None };
        virtual_model.routing.targets = Some(vec![target]);
        stage.route(virtual_model);
    }
    let anthropic = "/v1/messages/count_tokens";
    let gemini = "/v1beta/models/any:countTokens";
    let contents = r#"{"contents":[]}"#;
    let renamed = gemini.replace("any", "gpt-x");
    let (is, filled) = (HI.replace("any", "gpt-x"), r#"{"model":"gpt-x","messages":[]}"#);
    for (name, path, body, asked_path, asked_body) in [
        ("claude", anthropic, HI, anthropic, is.as_str()),
        ("claude", anthropic, r#"{"messages":[]}"#, anthropic, filled),
        ("v1", anthropic, HI, anthropic, &is),
        ("gemini", gemini, contents, &renamed, contents),
        ("v2", gemini, contents, &renamed, contents),
        ("named", gemini, contents, gemini, contents),
    ] {
        let answer = stage.ask(&format!("/acme/models/{name}{path}"), body).await;
        assert_eq!(answer.status.as_u16(), 200, "{name}: {answer:?}");
        let (head, body) = standin.asked.lock().last().unwrap().clone();
        assert_eq!((head.uri.path(), &*body), (asked_path, asked_body.as_bytes()), "{name}");
    }
    // One reader could count for one of them, and the provider for the other.
    let twice = r#"{"model":"a","model":"b"}"#;
    stage.ask(&format!("/acme/models/claude{anthropic}"), twice).await.is(400, "two ways");
}

#[tokio::test]
async fn a_key_for_some_models_opens_no_others() {
    let stage = Stage::start().await;
    let standin = Standin::start(|_, _, _| json(200, ANSWER)).await;
    stage.model("narrow", &standin);
    stage.model("other", &standin);
    let headers = [("x-api-key", NARROW_KEY)];
    let ask = async |name: &str| {
        stage.ask_with(&format!("/acme/models/{name}{CHAT}"), &headers, HI).await
    };
    assert_eq!(ask("narrow").await.status.as_u16(), 200);
    ask("other").await.is(403, "other models");
    assert_eq!(standin.count(), 1);
}

#[tokio::test]
async fn a_model_that_stands_for_others_tells_of_itself() {
    let stage = Stage::start().await;
    stage.route(model("v", ModelType::Openai, None));
    let list = stage.ask("/acme/models/v/v1/models", "").await.json();
    assert_eq!(list["data"][0]["id"], "v");
}
