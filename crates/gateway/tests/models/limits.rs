//! Limits hold at the edge: what does not fit is refused, and what was not used is given back.

use crate::stage::{HI, Stage, limit, model, settings};
use crate::standin::{ANSWER, Standin, json};
use gateway::ModelSettings;
use types::kinds::model::{ModelFallback, ModelType};
use types::models::LimitMeasure;

#[tokio::test]
async fn requests_beyond_a_limit_are_refused_until_its_window_ends() {
    let stage = Stage::start().await;
    let standin = Standin::start(|_, _, _| json(200, ANSWER)).await;
    let mut route = model("m", ModelType::Openai, Some(&standin.url));
    route.limits = vec![limit(LimitMeasure::Requests, 3)];
    stage.route(route);
    for _ in 0..3 {
        assert_eq!(stage.chat("m", HI).await.status.as_u16(), 200);
    }
    let answer = stage.chat("m", HI).await;
    answer.is(429, "MODEL_LIMIT_REACHED");
    assert!(answer.text.contains("policy `tight`"), "{answer:?}");
    assert_eq!(answer.header("x-blaxel-source"), Some("platform"));
    let wait: u64 = answer.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=3600).contains(&wait), "{wait}");
    assert_eq!(standin.count(), 3);
}

#[tokio::test]
async fn what_failed_takes_nothing_of_a_limit_of_tokens() {
    let stage = Stage::start().await;
    let standin = Standin::start(|number, _, _| match number {
        0..3 => json(400, r#"{"error":{"message":"no"}}"#),
        _ => json(200, ANSWER),
    })
    .await;
    let mut route = model("m", ModelType::Openai, Some(&standin.url));
    route.limits = vec![limit(LimitMeasure::TotalTokens, 16)];
    stage.route(route);
    for _ in 0..3 {
        assert_eq!(stage.chat("m", HI).await.status.as_u16(), 400);
    }
    // 15 of 16 are used, then one request crosses the limit.
    assert_eq!(stage.chat("m", HI).await.status.as_u16(), 200);
    assert_eq!(stage.chat("m", HI).await.status.as_u16(), 200);
    stage.chat("m", HI).await.is(429, "MODEL_LIMIT_REACHED");
}

#[tokio::test]
async fn money_has_a_limit_only_where_there_is_a_price() {
    let stage = Stage::with(ModelSettings { unpriced: false, ..settings() }).await;
    let standin = Standin::start(|_, _, _| json(200, ANSWER)).await;
    let mut route = model("m", ModelType::Openai, Some(&standin.url));
    route.limits = vec![limit(LimitMeasure::Cost, 1_000_000_000)];
    stage.route(route.clone());
    stage.chat("m", HI).await.is(403, "MODEL_WITHOUT_PRICE");
    assert_eq!(standin.count(), 0);
    route.provider.as_mut().unwrap().model = Some("gpt-4o-mini".into());
    // Another model, whose price is known, answers in its place.
    let mut first = model("first", ModelType::Openai, Some(&standin.url));
    first.limits.clone_from(&route.limits);
    first.routing.fallbacks = Some(vec![ModelFallback { model: "m".into(), on: None }]);
    stage.route(first);
    stage.route(route);
    assert_eq!(stage.chat("m", HI).await.status.as_u16(), 200);
    assert_eq!(stage.chat("first", HI).await.header("x-holm-model"), Some("m"));
    assert!(stage.usage(2).await.cost > 0);
}

/// No other window would help a request that may cost more than the whole limit.
#[tokio::test]
async fn a_request_that_never_fits_is_not_told_to_wait() {
    let stage = Stage::start().await;
    let standin = Standin::start(|_, _, _| json(200, ANSWER)).await;
    let mut route = model("m", ModelType::Openai, Some(&standin.url));
    route.provider.as_mut().unwrap().model = Some("gpt-4o-mini".into());
    route.limits = vec![limit(LimitMeasure::Cost, 1_000_000)];
    stage.route(route.clone());
    let refused = stage.chat("m", HI).await;
    refused.is(403, "MODEL_LIMIT_TOO_SMALL");
    assert!(refused.text.contains("lower `max_tokens`"), "{refused:?}");
    assert_eq!(refused.header("retry-after"), None);
    let with = |tokens: &str| HI.replacen('{', &format!("{{\"max_tokens\":{tokens},"), 1);
    stage.chat("m", &with("-1")).await.is(403, "MODEL_LIMIT_TOO_SMALL");
    assert_eq!(standin.count(), 0);
    assert_eq!(stage.chat("m", &with("10")).await.status.as_u16(), 200);
    // What the model cannot write is not reserved.
    route.limits = vec![limit(LimitMeasure::Cost, 20_000_000)];
    stage.route(route);
    assert_eq!(stage.chat("m", &with("100000000")).await.status.as_u16(), 200);
}

#[tokio::test]
async fn an_answer_in_the_background_is_nothing_for_a_limit_of_tokens() {
    let stage = Stage::start().await;
    let standin = Standin::start(|_, _, _| json(200, ANSWER)).await;
    let mut route = model("m", ModelType::Openai, Some(&standin.url));
    route.limits = vec![limit(LimitMeasure::TotalTokens, 1000)];
    stage.route(route);
    let later = r#"{"model":"any","input":"hi","background":true}"#;
    stage.ask("/acme/models/m/v1/responses", later).await.is(403, "MODEL_PATH_UNCOUNTED");
    assert_eq!(standin.count(), 0);
}
