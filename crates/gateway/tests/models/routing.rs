//! Fallbacks, weights, retries and models that are left alone.

use crate::stage::{HI, HI_STREAM, Stage, model, settings};
use crate::standin::{ANSWER, Standin, events, json, streamed};
use gateway::ModelSettings;
use std::io;
use std::time::Duration;
use types::kinds::model::{ModelFailure, ModelFallback, ModelTarget, ModelType};
use types::models::ModelRoute;

fn fallback(name: &str, on: Option<Vec<ModelFailure>>) -> ModelFallback {
    ModelFallback { model: name.into(), on }
}

fn with_fallback(mut route: ModelRoute, to: ModelFallback, retries: i64) -> ModelRoute {
    route.routing.fallbacks = Some(vec![to]);
    route.routing.retries = Some(retries);
    route
}

#[tokio::test]
async fn another_model_answers_when_one_fails() {
    let stage = Stage::start().await;
    let bad = Standin::start(|_, _, _| json(500, "{}")).await;
    let good = Standin::start(|_, _, _| json(200, ANSWER)).await;
    let first = model("first", ModelType::Openai, Some(&bad.url));
    stage.route(with_fallback(first, fallback("second", None), 0));
    stage.model("second", &good);
    let answer = stage.chat("first", HI).await;
    assert_eq!((answer.text.as_str(), answer.header("x-holm-model")), (ANSWER, Some("second")));
    assert_eq!((bad.count(), good.count()), (1, 1));
    let usage = stage.usage(1).await;
    assert_eq!((usage.calls, usage.input), (1, 10));
}

#[tokio::test]
async fn a_call_that_nobody_answered_counts_once() {
    let rests = ModelSettings {
        breaker_failures: 1,
        breaker_pause: Duration::from_secs(600),
        ..settings()
    };
    let stage = Stage::with(rests).await;
    let bad = Standin::start(|_, _, _| json(500, "{}")).await;
    let mut second = model("second", ModelType::Openai, Some(&bad.url));
    second.routing.retries = Some(0);
    stage.route(second);
    stage.chat("second", HI).await.is(500, "");
    let first = model("first", ModelType::Openai, Some(&bad.url));
    stage.route(with_fallback(first, fallback("second", None), 0));
    // The first gives back what it reserved, so that the second can be asked, which is being left
    // alone.
    stage.chat("first", HI).await.is(503, "MODEL_RESTING");
    assert_eq!(bad.count(), 2);
    let usage = stage.usage(2).await;
    assert_eq!((usage.calls, usage.failed, usage.input), (2, 2, 0));
}

#[tokio::test]
async fn the_caller_s_own_faults_are_not_repeated() {
    let stage = Stage::start().await;
    let bad = Standin::start(|_, _, _| json(400, r#"{"error":{"message":"no"}}"#)).await;
    let good = Standin::start(|_, _, _| json(200, ANSWER)).await;
    let first = model("first", ModelType::Openai, Some(&bad.url));
    stage.route(with_fallback(first.clone(), fallback("second", None), 3));
    stage.model("second", &good);
    let answer = stage.chat("first", HI).await;
    assert_eq!(
        (answer.status.as_u16(), answer.text.as_str()),
        (400, r#"{"error":{"message":"no"}}"#)
    );
    assert_eq!((bad.count(), good.count()), (1, 0));
    let on = Some(vec![ModelFailure::BadRequest]);
    stage.route(with_fallback(first, fallback("second", on), 0));
    assert_eq!(stage.chat("first", HI).await.text, ANSWER);
}

const FILE: &str = "/v1/files";

/// The provider may have made a file or a batch, and only its answer got lost.
#[tokio::test]
async fn what_makes_something_is_asked_of_nobody_twice() {
    let stage = Stage::start().await;
    let good = Standin::start(|_, _, _| json(200, ANSWER)).await;
    stage.model("second", &good);
    let asked = async |standin: &Standin, path: &str, body: &str| {
        let first = model("first", ModelType::Openai, Some(&standin.url));
        stage.route(with_fallback(first, fallback("second", None), 1));
        stage.ask(&format!("/acme/models/first{path}"), body).await
    };
    let fails = Standin::start(|_, _, _| json(503, r#"{"error":{"message":"no"}}"#)).await;
    let answer = asked(&fails, FILE, "{}").await;
    assert_eq!(
        (answer.status.as_u16(), answer.text.as_str()),
        (503, r#"{"error":{"message":"no"}}"#)
    );
    assert_eq!((fails.count(), good.count()), (1, 0));
    // It answered half, so it was asked.
    let breaks = Standin::start(|_, _, _| {
        let (sender, mut answer) = events();
        *answer.status_mut() = http::StatusCode::INTERNAL_SERVER_ERROR;
        sender.send(Err(io::Error::other("gone"))).unwrap();
        answer
    })
    .await;
    asked(&breaks, "/v1/batches", "{}").await.is(502, "MODEL_PROVIDER_FAILED");
    assert_eq!((breaks.count(), good.count()), (1, 0));
    // What only reads or counts makes nothing.
    assert_eq!(asked(&fails, FILE, "").await.text, ANSWER);
    assert_eq!(asked(&fails, "/v1/messages/count_tokens", "{}").await.text, ANSWER);
    assert_eq!((fails.count(), good.count()), (5, 2));
}

#[tokio::test]
async fn what_makes_something_is_asked_again_if_nobody_took_it() {
    let stage = Stage::start().await;
    let good = Standin::start(|_, _, _| json(200, ANSWER)).await;
    let busy = Standin::start(|number, _, _| match number {
        0 => json(429, "{}"),
        _ => json(200, ANSWER),
    })
    .await;
    stage.model("first", &busy);
    assert_eq!(stage.ask(&format!("/acme/models/first{FILE}"), "{}").await.text, ANSWER);
    assert_eq!(busy.count(), 2);
    let closed = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", closed.local_addr().unwrap());
    drop(closed);
    let first = model("first", ModelType::Openai, Some(&url));
    stage.route(with_fallback(first, fallback("second", None), 0));
    stage.model("second", &good);
    assert_eq!(stage.ask(&format!("/acme/models/first{FILE}"), "{}").await.text, ANSWER);
}

#[tokio::test]
async fn a_path_or_name_that_is_none_is_the_caller_s_own_fault() {
    let stage = Stage::start().await;
    let standin = Standin::start(|_, _, _| json(200, ANSWER)).await;
    let mut first = model("first", ModelType::Gemini, Some(&standin.url));
    first.provider.as_mut().unwrap().model = None;
    stage.route(with_fallback(first.clone(), fallback("second", None), 0));
    stage.model("second", &standin);
    for path in ["/v1//files", "/v1/%2e%2e/files", "/v1/a%2fb"] {
        stage.ask(&format!("/acme/models/first{path}"), "a=b").await.is(400, "BAD_REQUEST");
    }
    for name in ["../x", "", "a%2fb"] {
        stage.chat("first", &HI.replace("any", name)).await.is(400, "BAD_REQUEST");
    }
    assert_eq!(standin.count(), 0);
    // A bad name in the model's own settings is not.
    first.provider.as_mut().unwrap().model = Some("../x".into());
    stage.route(first.clone());
    stage.chat("first", HI).await.is(502, "MODEL_CONNECTION_INVALID");
    stage.route(with_fallback(first, fallback("second", None), 0));
    assert_eq!(stage.chat("first", HI).await.text, ANSWER);
}

#[tokio::test]
async fn a_model_is_asked_again_where_that_can_help() {
    let stage = Stage::start().await;
    let standin = Standin::start(|number, _, _| match number {
        0 => json(503, "{}"),
        1 => {
            let mut answer = json(429, "{}");
            answer.headers_mut().insert("retry-after-ms", "5".parse().unwrap());
            answer
        }
        _ => json(200, ANSWER),
    })
    .await;
    let mut route = model("m", ModelType::Openai, Some(&standin.url));
    route.routing.retries = Some(2);
    stage.route(route);
    assert_eq!(stage.chat("m", HI).await.text, ANSWER);
    assert_eq!(standin.count(), 3);
}

#[tokio::test]
async fn a_model_that_only_fails_is_left_alone() {
    let settings = ModelSettings {
        breaker_failures: 3,
        breaker_pause: Duration::from_secs(600),
        ..settings()
    };
    let stage = Stage::with(settings).await;
    let bad = Standin::start(|_, _, _| json(500, "{}")).await;
    let mut route = model("m", ModelType::Openai, Some(&bad.url));
    route.routing.retries = Some(0);
    stage.route(route.clone());
    for _ in 0..3 {
        assert_eq!(stage.chat("m", HI).await.status.as_u16(), 500);
    }
    let answer = stage.chat("m", HI).await;
    answer.is(503, "MODEL_RESTING");
    let wait: u64 = answer.header("retry-after").unwrap().parse().unwrap();
    assert!((500..=600).contains(&wait), "{wait}");
    assert_eq!(bad.count(), 3);
    // This holds even when its route is told again.
    stage.route(route);
    stage.chat("m", HI).await.is(503, "MODEL_RESTING");
}

#[tokio::test]
async fn nobody_else_is_asked_once_a_stream_has_begun() {
    let stage = Stage::start().await;
    let cut = Standin::start(|number, _, _| {
        let (sender, answer) = crate::standin::events();
        let send = |piece| sender.send(piece).unwrap();
        if number == 0 {
            send(Err(std::io::Error::other("gone")));
        } else {
            send(Ok(bytes::Bytes::from_static(crate::standin::STREAM[0].as_bytes())));
            send(Ok(bytes::Bytes::from_static(b"data: {\"choices\":[{\"del")));
        }
        answer
    })
    .await;
    let good = Standin::start(|_, _, _| streamed(&crate::standin::STREAM)).await;
    let first = model("first", ModelType::Openai, Some(&cut.url));
    stage.route(with_fallback(first, fallback("second", None), 0));
    stage.model("second", &good);
    let before = stage.chat("first", HI_STREAM).await;
    assert_eq!(before.header("x-holm-model"), Some("second"), "{before:?}");
    let after = stage.chat("first", HI_STREAM).await;
    assert_eq!(after.header("x-holm-model"), Some("first"));
    assert!(after.text.contains("MODEL_PROVIDER_FAILED"));
    assert_eq!(good.count(), 1);
}

#[tokio::test]
async fn conversations_stay_and_others_are_spread() {
    let stage = Stage::start().await;
    let standin = Standin::start(|_, _, _| json(200, ANSWER)).await;
    stage.model("a", &standin);
    stage.model("b", &standin);
    let target = |name: &str| ModelTarget { model: name.into(), weight: None };
    let mut route = model("v", ModelType::Openai, None);
    route.routing.targets = Some(vec![target("a"), target("b")]);
    stage.route(route.clone());
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..40 {
        let answer = stage.chat("v", HI).await;
        seen.insert(answer.header("x-holm-model").unwrap().to_owned());
    }
    assert_eq!(seen.len(), 2);
    route.routing.sticky = Some(true);
    stage.route(route);
    let first = stage.chat("v", HI).await.header("x-holm-model").unwrap().to_owned();
    for _ in 0..20 {
        assert_eq!(stage.chat("v", HI).await.header("x-holm-model"), Some(first.as_str()));
    }
}
