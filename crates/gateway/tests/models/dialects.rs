//! A client of one provider, answered by another.

use crate::stage::{HI, HI_STREAM, Stage, model};
use crate::standin::{Standin, json, streamed};
use serde_json::Value;
use types::kinds::model::{ModelCache, ModelType};

const ANTHROPIC: &str = r#"{"id":"msg_1","type":"message","role":"assistant","model":"claude-x","content":[{"type":"text","text":"Hello"}],"stop_reason":"end_turn","stop_sequence":null,"usage":{"input_tokens":10,"output_tokens":5}}"#;
const EVENTS: [&str; 6] = [
    "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"msg_1\",\"type\":\"message\",\"role\":\"assistant\",\"model\":\"claude-x\",\"content\":[],\"stop_reason\":null,\"usage\":{\"input_tokens\":10,\"output_tokens\":1}}}\n\n",
    "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n",
    "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"Hello\"}}\n\n",
    "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":0}\n\n",
    "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":5}}\n\n",
    "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
];

#[tokio::test]
async fn openai_s_client_is_answered_by_anthropic() {
    let stage = Stage::start().await;
    let standin = Standin::start(|number, _, _| match number {
        0 => json(200, ANTHROPIC),
        1 => streamed(&EVENTS),
        _ => json(529, r#"{"type":"error","error":{"type":"overloaded_error","message":"busy"}}"#),
    })
    .await;
    let mut route = model("claude", ModelType::Anthropic, Some(&standin.url));
    route.routing.retries = Some(0);
    stage.route(route);
    let answer = stage.chat("claude", HI).await;
    assert_eq!(answer.json()["choices"][0]["message"]["content"], "Hello", "{answer:?}");
    assert_eq!(answer.json()["created"], 1_800_000_030, "the present time");
    let stream = stage.chat("claude", HI_STREAM).await;
    assert_eq!(stream.header("content-type"), Some("text/event-stream"));
    assert!(
        stream.text.contains("Hello") && stream.text.ends_with("data: [DONE]\n\n"),
        "{stream:?}"
    );
    let busy = stage.chat("claude", HI).await;
    assert_eq!(busy.json()["error"]["message"], "busy");
    let (head, body) = standin.asked.lock()[0].clone();
    assert_eq!(head.uri.path(), "/v1/messages");
    assert_eq!(head.headers["x-api-key"], "sk-provider");
    let sent: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(sent["model"], "gpt-x");
    let usage = stage.usage(3).await;
    assert_eq!((usage.input, usage.output, usage.failed), (20, 10, 1));
}

#[tokio::test]
async fn what_cannot_be_said_is_refused_before_anybody_is_asked() {
    let stage = Stage::start().await;
    let standin = Standin::start(|_, _, _| json(200, ANTHROPIC)).await;
    stage.route(model("claude", ModelType::Anthropic, Some(&standin.url)));
    let answer = stage.ask("/acme/models/claude/v1/embeddings", r#"{"input":"a"}"#).await;
    assert_eq!(answer.status.as_u16(), 400, "{answer:?}");
    assert_eq!(standin.count(), 0);
}

#[tokio::test]
async fn gemini_s_streams_are_events_or_one_list() {
    let stage = Stage::start().await;
    let standin = Standin::start(|number, _, _| match number {
        0 | 1 => streamed(&EVENTS),
        _ => streamed(&EVENTS[..3]),
    })
    .await;
    let mut route = model("claude", ModelType::Anthropic, Some(&standin.url));
    route.cache = Some(ModelCache { ttl: 60 });
    stage.route(route);
    let path = "/acme/models/claude/v1beta/models/x:streamGenerateContent";
    let body = r#"{"contents":[{"role":"user","parts":[{"text":"hi"}]}]}"#;
    let list = stage.ask(path, body).await;
    assert_eq!(list.header("content-type"), Some("application/json"), "{list:?}");
    assert_eq!(list.json()[0]["candidates"][0]["content"]["parts"][0]["text"], "Hello", "{list:?}");
    assert_eq!(stage.ask(path, body).await.text, list.text);
    assert_eq!(standin.count(), 1);
    let events = stage.ask(&format!("{path}?alt=sse"), body).await;
    assert!(events.text.starts_with("data: {") && events.text.contains("Hello"), "{events:?}");
    let cut = stage.ask(path, &body.replace("hi", "ho")).await;
    let last = cut.json().as_array().unwrap().last().unwrap().clone();
    assert_eq!(last["error"]["code"], 502, "{cut:?}");
}
