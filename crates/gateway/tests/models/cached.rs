//! Answers that are given again.

use crate::stage::{HI, HI_STREAM, Stage, model};
use crate::standin::{ANSWER, STREAM, Standin, json, streamed};
use types::kinds::model::{ModelCache, ModelType};

#[tokio::test]
async fn the_same_request_gets_the_same_answer_and_nobody_is_asked() {
    let stage = Stage::start().await;
    let standin = Standin::start(|number, _, body| {
        if body.windows(6).any(|text| text == b"stream") {
            return streamed(&STREAM);
        }
        json(200, &ANSWER.replace("Hello", &format!("Hello {number}")))
    })
    .await;
    let mut route = model("m", ModelType::Openai, Some(&standin.url));
    route.cache = Some(ModelCache { ttl: 60 });
    stage.route(route.clone());
    let first = stage.chat("m", HI).await;
    assert_eq!(first.header("x-holm-cache"), Some("miss"));
    let again = stage.chat("m", HI).await;
    assert_eq!((again.header("x-holm-cache"), &again.text), (Some("hit"), &first.text));
    let other = stage.chat("m", &HI.replace("hi", "ho")).await;
    assert_ne!(other.text, first.text);
    let stream = stage.chat("m", HI_STREAM).await;
    let replayed = stage.chat("m", HI_STREAM).await;
    assert_eq!((replayed.header("x-holm-cache"), &replayed.text), (Some("hit"), &stream.text));
    assert_eq!(replayed.header("content-type"), Some("text/event-stream"));
    assert_eq!(standin.count(), 3);
    let usage = stage.usage(5).await;
    assert_eq!((usage.calls, usage.input), (5, 30));
    // Told again unchanged, it is the same model. Changed, it is another.
    stage.route(route.clone());
    assert_eq!(stage.chat("m", HI).await.header("x-holm-cache"), Some("hit"));
    route.cache = Some(ModelCache { ttl: 61 });
    stage.route(route);
    assert_eq!(stage.chat("m", HI).await.header("x-holm-cache"), Some("miss"));
}

#[tokio::test]
async fn errors_are_not_kept() {
    let stage = Stage::start().await;
    let standin = Standin::start(|number, _, _| match number {
        0 => json(400, "{}"),
        _ => json(200, ANSWER),
    })
    .await;
    let mut route = model("m", ModelType::Openai, Some(&standin.url));
    route.cache = Some(ModelCache { ttl: 60 });
    stage.route(route);
    assert_eq!(stage.chat("m", HI).await.status.as_u16(), 400);
    assert_eq!(stage.chat("m", HI).await.status.as_u16(), 200);
}

#[tokio::test]
async fn streams_that_fail_are_not_kept_and_translated_ones_are() {
    let stage = Stage::start().await;
    let standin = Standin::start(|number, _, _| match number {
        0 => streamed(&STREAM[..2]),
        _ => streamed(&STREAM),
    })
    .await;
    let mut route = model("m", ModelType::Openai, Some(&standin.url));
    route.cache = Some(ModelCache { ttl: 60 });
    stage.route(route);
    for asked in [1, 2, 2] {
        stage.chat("m", HI_STREAM).await;
        assert_eq!(standin.count(), asked);
    }
    let ours = r#"{"model":"any","max_tokens":9,"stream":true,"messages":[{"role":"user","content":"hi"}]}"#;
    let said = stage.ask("/acme/models/m/v1/messages", ours).await.text;
    assert!(said.contains("message_stop"), "{said}");
    assert_eq!(stage.ask("/acme/models/m/v1/messages", ours).await.text, said);
    assert_eq!(standin.count(), 3);
}
