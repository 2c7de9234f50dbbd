//! What is refused, in which dialect, and whose fault it is.

use crate::stage::{CHAT, HI, KEY, Stage, model, settings};
use crate::standin::{ANSWER, Standin, json};
use gateway::ModelSettings;
use std::sync::Arc;
use types::edge::RouteChange;
use types::kinds::model::ModelType;

#[tokio::test]
async fn strangers_and_unknown_models_are_refused_in_the_words_of_the_client() {
    let stage = Stage::start().await;
    let path = format!("/acme/models/none{CHAT}");
    let answer = stage.ask_with(&path, &[], HI).await;
    answer.is(401, "AUTHENTICATION_REQUIRED");
    assert_eq!(answer.header("x-blaxel-source"), Some("platform"));
    stage.ask_with(&path, &[("x-api-key", "wrong")], HI).await.is(401, "AUTHENTICATION_FAILED");
    let unknown = stage.ask(&path, HI).await;
    unknown.is(404, "WORKLOAD_NOT_FOUND");
    assert!(unknown.json()["error"]["message"].is_string());
    stage.ask(&format!("/others/models/none{CHAT}"), HI).await.is(403, "FORBIDDEN");
    let anthropic = stage.ask("/acme/models/none/v1/messages", HI).await.json();
    assert!(anthropic["error"]["message"].is_string(), "{anthropic}");
    let other = stage.ask("/acme/models/none/v1/files", HI).await.json();
    assert_eq!(other["error"]["code"], "WORKLOAD_NOT_FOUND");
}

#[tokio::test]
async fn bodies_that_are_none_are_refused_before_anybody_is_asked() {
    let settings = ModelSettings { body_max: 1 << 20, ..settings() };
    let stage = Stage::with(settings).await;
    let standin = Standin::start(|_, _, _| json(200, ANSWER)).await;
    stage.model("m", &standin);
    for body in ["{", "[1]", "{\"model\":\"a\",\"model\":\"b\"}"] {
        stage.chat("m", body).await.is(400, "BAD_REQUEST");
    }
    stage.ask(&format!("/acme/models/m{CHAT}"), "").await.is(400, "POST");
    let long = format!("{{\"messages\":\"{}\"}}", "x".repeat(2 << 20));
    stage.chat("m", &long).await.is(413, "REQUEST_ENTITY_TOO_LARGE");
    assert_eq!(standin.count(), 0);
}

#[tokio::test]
async fn what_is_off_or_leads_nowhere_says_so() {
    let stage = Stage::start().await;
    let off = model("off", ModelType::Openai, Some("http://127.0.0.1:1"));
    stage.route(types::models::ModelRoute { off: Some("is disabled".into()), ..off });
    stage.chat("off", HI).await.is(404, "is disabled");
    stage.route(model("empty", ModelType::Openai, None));
    stage.chat("empty", HI).await.is(404, "WORKLOAD_UNAVAILABLE");
    let mut bare = model("bare", ModelType::Openai, Some("http://127.0.0.1:1"));
    bare.provider.as_mut().unwrap().secrets.0.clear();
    stage.route(bare);
    stage.chat("bare", HI).await.is(502, "MODEL_CONNECTION_INVALID");
}

#[tokio::test]
async fn what_is_inside_is_not_reached_and_redirects_are_not_followed() {
    let standin = Standin::start(|_, _, _| {
        let mut answer = json(307, "{}");
        answer.headers_mut().insert("location", "http://127.0.0.1:1/".parse().unwrap());
        answer
    })
    .await;
    let closed = Stage::with(settings().with_inside(&[]).unwrap()).await;
    closed.model("m", &standin);
    closed.chat("m", HI).await.is(502, "not on the internet");
    assert_eq!(standin.count(), 0);
    let stage = Stage::start().await;
    stage.model("m", &standin);
    stage.chat("m", HI).await.is(502, "elsewhere");
}

#[tokio::test]
async fn a_connection_that_leads_back_here_is_noticed_at_once() {
    let stage = Stage::start().await;
    let back = |name: &str| {
        let endpoint = format!("http://{}/acme/models/loop/v1", stage.address);
        let mut route = model(name, ModelType::Openai, Some(&endpoint));
        let secrets = &mut route.provider.as_mut().unwrap().secrets.0;
        secrets.insert("apiKey".to_owned(), KEY.to_owned());
        route
    };
    stage.route(back("loop"));
    let before = stage.usage(0).await.calls;
    stage.chat("loop", HI).await.is(508, "MODEL_LOOP");
    assert_eq!(stage.usage(1).await.calls - before, 1);
    // Nothing is wrong with the model for a breaker to note, and it is not asked again in vain.
    for _ in 0..20 {
        stage.chat("loop", HI).await.is(508, "MODEL_LOOP");
    }
}

#[tokio::test]
async fn a_provider_is_told_through_which_installations_a_request_has_come() {
    let stage = Stage::start().await;
    let standin = Standin::start(|_, _, _| json(200, ANSWER)).await;
    stage.model("m", &standin);
    let bearer = format!("Bearer {KEY}");
    let ask = async |through: &str| {
        let headers = [("authorization", bearer.as_str()), ("cdn-loop", through)];
        stage.ask_with(&format!("/acme/models/m{CHAT}"), &headers, HI).await
    };
    ask("cloud; loops=1, holm-other").await.is(200, "");
    assert_eq!(standin.asked.lock()[0].0.headers["cdn-loop"], "holm-other, holm-stage");
    ask("holm-other, holm-stage").await.is(508, "MODEL_LOOP");
    assert_eq!(standin.count(), 1);
}

#[tokio::test]
async fn a_connection_whose_key_is_refused_shows_nothing_of_it() {
    let stage = Stage::start().await;
    let standin =
        Standin::start(|_, _, _| json(401, r#"{"error":{"message":"bad key sk-provider"}}"#)).await;
    stage.model("m", &standin);
    let answer = stage.chat("m", HI).await;
    answer.is(502, "MODEL_CONNECTION_INVALID");
    assert!(!answer.text.contains("sk-provider"));
}

#[tokio::test]
async fn a_provider_s_own_limit_is_told_from_ours() {
    let stage = Stage::start().await;
    let standin = Standin::start(|_, _, _| {
        let mut answer = json(429, r#"{"error":{"message":"slow down","code":"rate_limit"}}"#);
        answer.headers_mut().insert("retry-after", "30".parse().unwrap());
        answer
    })
    .await;
    stage.model("m", &standin);
    let answer = stage.chat("m", HI).await;
    answer.is(429, "slow down");
    assert_eq!(answer.header("retry-after"), Some("30"));
    assert_eq!(
        (answer.header("x-blaxel-source"), answer.header("x-holm-model")),
        (None, Some("m"))
    );
    assert_eq!(standin.count(), 1);
}

#[tokio::test]
async fn who_waits_for_a_model_that_is_deleted_is_told_that_it_is_gone() {
    let stage = Stage::start().await;
    let (_silent, answer) = crate::standin::events();
    let answer = parking_lot::Mutex::new(Some(answer));
    let asked = Arc::new(tokio::sync::Notify::new());
    let tell = Arc::clone(&asked);
    let standin = Standin::start(move |_, _, _| {
        tell.notify_one();
        answer.lock().take().unwrap()
    })
    .await;
    stage.model("m", &standin);
    let gone = async {
        asked.notified().await;
        let id = model("m", ModelType::Openai, None).id;
        stage.gateway.routes().apply(RouteChange::Gone(id));
    };
    let (answer, ()) = tokio::join!(stage.chat("m", crate::stage::HI_STREAM), gone);
    answer.is(404, "WORKLOAD_NOT_FOUND");
}

#[tokio::test]
async fn a_revoked_key_ends_its_stream() {
    let stage = Stage::start().await;
    let (sender, standin) = Standin::event_by_event().await;
    stage.model("m", &standin);
    sender.send(Ok(bytes::Bytes::from_static(crate::standin::STREAM[0].as_bytes()))).unwrap();
    let mut response = stage.open_stream("m").await;
    use http_body_util::BodyExt as _;
    assert!(response.body_mut().frame().await.unwrap().is_ok());
    stage.revoke();
    assert!(response.body_mut().frame().await.is_none_or(|frame| frame.is_err()));
    sender.closed().await;
}
