//! Hooks, and the request log.

use crate::stage::{HI, HI_STREAM, KEY, Stage, limit, model};
use crate::standin::{ANSWER, STREAM, Standin, json, streamed};
use types::kinds::model::{
    ModelFailure, ModelFallback, ModelHook, ModelHookAction, ModelHookTime, ModelRequestLog,
    ModelTarget, ModelType,
};
use types::models::{LimitMeasure, ModelLogEntry, ModelOutcome, ModelRoute};

fn pattern(when: ModelHookTime, pattern: &str, action: ModelHookAction) -> ModelHook {
    let (pattern, action) = (Some(pattern.to_owned()), Some(action));
    ModelHook { when, pattern, action, webhook: None, optional: None }
}

#[tokio::test]
async fn patterns_block_and_mask() {
    let stage = Stage::start().await;
    let standin =
        Standin::start(|_, _, body| match body.windows(6).any(|text| text == b"stream") {
            true => streamed(&STREAM),
            false => json(200, ANSWER),
        })
        .await;
    let mut route = model("m", ModelType::Openai, Some(&standin.url));
    route.hooks = vec![
        pattern(ModelHookTime::Before, "secret", ModelHookAction::Block),
        pattern(ModelHookTime::Before, "[0-9]{4}", ModelHookAction::Mask),
        pattern(ModelHookTime::After, "Hell", ModelHookAction::Mask),
    ];
    stage.route(route.clone());
    stage.chat("m", &HI.replace("hi", "a s\\u0065cret")).await.is(400, "hook 0");
    assert_eq!(standin.count(), 0);
    let answer = stage.chat("m", &HI.replace("hi", "pin 1234")).await;
    assert_eq!(answer.json()["choices"][0]["message"]["content"], "***o");
    assert!(String::from_utf8_lossy(&standin.asked.lock()[0].1).contains("pin ***"));
    route.hooks = vec![pattern(ModelHookTime::After, "Hello", ModelHookAction::Block)];
    stage.route(route);
    stage.chat("m", HI).await.is(400, "MODEL_HOOK_BLOCKED");
    let stream = stage.chat("m", HI_STREAM).await;
    assert!(
        stream.text.contains("MODEL_HOOK_BLOCKED") && !stream.text.contains("\"lo\""),
        "{stream:?}"
    );
}

#[tokio::test]
async fn no_way_leads_past_hooks_that_look_at_answers() {
    let stage = Stage::start().await;
    let text = r#"[{"candidates":[{"content":{"parts":[{"text":"Hello"}]}}]}]"#;
    let standin = Standin::start(move |_, head, _| match head.uri.path().contains("stream") {
        true => json(200, text),
        false => streamed(&STREAM),
    })
    .await;
    let block = |word| vec![pattern(ModelHookTime::After, word, ModelHookAction::Block)];
    let mut route = model("m", ModelType::Gemini, Some(&standin.url));
    route.hooks = block("Hello");
    stage.route(route);
    let list = "/acme/models/m/v1beta/models/gpt-x:streamGenerateContent";
    stage.ask(list, r#"{"contents":[]}"#).await.is(400, "MODEL_HOOK_BLOCKED");
    let mut target = model("target", ModelType::Openai, Some(&standin.url));
    target.hooks = block("Hel");
    stage.route(target);
    let mut asked = model("asked", ModelType::Openai, None);
    asked.hooks = block("never");
    let to = ModelTarget { model: "target".into(), weight: None };
    asked.routing.targets = Some(vec![to]);
    stage.route(asked);
    let stream = stage.chat("asked", HI_STREAM).await;
    assert!(stream.text.contains("MODEL_HOOK_BLOCKED"), "{stream:?}");
    let count = standin.count();
    stage.ask("/acme/models/target/v1/completions", HI).await.is(502, "MODEL_HOOK_FAILED");
    // An answer that the provider keeps.
    stage.ask("/acme/models/target/v1/responses/resp_1", "").await.is(502, "MODEL_HOOK_FAILED");
    assert_eq!(standin.count(), count);
}

/// What tools are given is looked at as numbers and as JSON of its own, in requests and answers;
/// what only counts is not.
#[tokio::test]
async fn the_arguments_of_tools_are_looked_at() {
    let stage = Stage::start().await;
    let answer = r#"{"id":"c1","created":1700000000,"choices":[{"index":0,"message":{"role":"assistant","tool_calls":[{"id":"t","type":"function","function":{"name":"f","arguments":"{\"n\":1234567890,\"s\":\"12345\\u00367890\"}"}}]},"logprobs":[-0.1234567890123]}],"usage":{"prompt_tokens":1234567890,"completion_tokens":5}}"#;
    let standin = Standin::start(move |_, _, _| json(200, answer)).await;
    let mut route = model("m", ModelType::Openai, Some(&standin.url));
    let found = "[0-9]{10}";
    route.hooks = vec![pattern(ModelHookTime::After, found, ModelHookAction::Mask)];
    stage.route(route.clone());
    let masked = r#"{\"n\":\"***\",\"s\":\"***\"}"#;
    let arguments = r#"{\"n\":1234567890,\"s\":\"12345\\u00367890\"}"#;
    assert_eq!(stage.chat("m", HI).await.text, answer.replace(arguments, masked));
    route.hooks = vec![pattern(ModelHookTime::After, found, ModelHookAction::Block)];
    stage.route(route.clone());
    stage.chat("m", HI).await.is(400, "MODEL_HOOK_BLOCKED");
    let asks = |input: &str| {
        format!(
            r#"{{"model":"m","seed":1234567890,"messages":[{{"role":"assistant","content":[{{"type":"tool_use","id":"t","name":"f","input":{input}}}]}}]}}"#
        )
    };
    let path = "/acme/models/m/v1/chat/completions";
    let hidden = r#"{"n":1234567890}"#;
    route.hooks = vec![pattern(ModelHookTime::Before, found, ModelHookAction::Block)];
    stage.route(route.clone());
    let count = standin.count();
    stage.ask(path, &asks(hidden)).await.is(400, "MODEL_HOOK_BLOCKED");
    assert_eq!(standin.count(), count);
    route.hooks = vec![pattern(ModelHookTime::Before, found, ModelHookAction::Mask)];
    stage.route(route);
    assert_eq!(stage.ask(path, &asks(hidden)).await.status.as_u16(), 200);
    let sent = String::from_utf8(standin.asked.lock()[count].1.to_vec()).unwrap();
    assert_eq!(sent, asks(r#"{"n":"***"}"#).replace("\"m\"", "\"gpt-x\""));
}

#[tokio::test]
async fn webhooks_decide_and_change() {
    let stage = Stage::start().await;
    let hook = Standin::start(|number, _, _| match number {
        0 => json(200, ""),
        1 => json(200, &HI.replace("hi", "changed")),
        2 => json(403, "never that"),
        _ => json(500, ""),
    })
    .await;
    let standin = Standin::start(|_, _, _| json(200, ANSWER)).await;
    let mut route = model("m", ModelType::Openai, Some(&standin.url));
    route.hooks = vec![ModelHook {
        when: ModelHookTime::Before,
        pattern: None,
        action: None,
        webhook: Some(format!("{}/look", hook.url)),
        optional: None,
    }];
    stage.route(route.clone());
    assert_eq!(stage.chat("m", HI).await.status.as_u16(), 200);
    assert_eq!(stage.chat("m", HI).await.status.as_u16(), 200);
    stage.chat("m", HI).await.is(400, "never that");
    stage.chat("m", HI).await.is(502, "MODEL_HOOK_FAILED");
    assert!(String::from_utf8_lossy(&standin.asked.lock()[1].1).contains("changed"));
    route.hooks[0].optional = Some(true);
    stage.route(route);
    assert_eq!(stage.chat("m", HI).await.status.as_u16(), 200);
    assert!(hook.asked.lock().iter().all(|(head, _)| head.uri.path() == "/look"));
}

/// A webhook looks at whole answers, so `stream` would lead past it: such a request is refused
/// before anybody is asked, whatever model on the way has the webhook.
#[tokio::test]
async fn a_stream_does_not_pass_a_webhook_that_has_to_look_at_it() {
    let stage = Stage::start().await;
    let hook = Standin::start(|_, _, _| json(422, "")).await;
    let standin =
        Standin::start(|_, _, body| match body.windows(6).any(|text| text == b"stream") {
            true => streamed(&STREAM),
            false => json(200, ANSWER),
        })
        .await;
    let mut route = model("m", ModelType::Openai, Some(&standin.url));
    let mut webhook = pattern(ModelHookTime::After, "", ModelHookAction::Block);
    (webhook.pattern, webhook.webhook) = (None, Some(hook.url.clone()));
    route.hooks = vec![webhook];
    stage.route(route.clone());
    let mut first = model("first", ModelType::Openai, None);
    first.routing.targets = Some(vec![ModelTarget { model: "m".into(), weight: None }]);
    stage.route(first);
    for name in ["m", "first"] {
        let refused = stage.chat(name, HI_STREAM).await;
        refused.is(400, "MODEL_HOOK_BLOCKED");
        assert!(refused.text.contains("without `stream`"), "{refused:?}");
    }
    assert_eq!((standin.count(), hook.count()), (0, 0));
    stage.chat("m", HI).await.is(400, "MODEL_HOOK_BLOCKED");
    assert_eq!(hook.count(), 1);
    let mut broken = pattern(ModelHookTime::After, "(", ModelHookAction::Block);
    broken.optional = Some(false);
    stage.route(ModelRoute { hooks: vec![broken], ..route.clone() });
    stage.chat("m", HI_STREAM).await.is(502, "MODEL_HOOK_FAILED");
    route.hooks[0].optional = Some(true);
    stage.route(route);
    assert_eq!(stage.chat("m", HI_STREAM).await.status.as_u16(), 200);
}

#[tokio::test]
async fn the_log_has_who_and_how_much_and_bodies_only_where_they_are_wanted() {
    let stage = Stage::start().await;
    let standin = Standin::start(|_, _, _| json(200, ANSWER)).await;
    let mut route = model("m", ModelType::Openai, Some(&standin.url));
    stage.route(route.clone());
    stage.chat("m", HI).await;
    let log = |bodies, redact| ModelRequestLog { enabled: Some(true), bodies, redact };
    route.request_log = Some(log(None, None));
    stage.route(route.clone());
    stage.chat("m", HI).await;
    route.request_log = Some(log(Some(true), Some(vec!["Hel+o".into()])));
    stage.route(route);
    stage.chat("m", HI).await;
    let mut entries = stage.gateway.model_log().await;
    if entries.len() < 2 {
        entries.extend(stage.gateway.model_log().await);
    }
    assert_eq!(entries.len(), 2);
    assert_eq!(entries[0].call.outcome, ModelOutcome::Answered);
    assert_eq!((entries[0].status, &entries[0].request), (200, &None));
    assert!(entries[1].request.as_ref().unwrap().contains("hi"));
    let answer = entries[1].answer.as_ref().unwrap();
    assert!(answer.contains("***") && !answer.contains("Hello"), "{answer}");
}

async fn logged(stage: &Stage) -> ModelLogEntry {
    let mut entries = stage.gateway.model_log().await;
    assert_eq!(entries.len(), 1, "one request is one line: {entries:?}");
    entries.remove(0)
}

/// Every request that was read is one line with the status that its caller got, whoever refused it
/// and however many models were tried.
#[tokio::test]
async fn a_request_that_fails_is_a_line_of_the_log() {
    let stage = Stage::start().await;
    let standin = Standin::start(|number, _, _| match number {
        0 => json(400, r#"{"error":{"message":"bad k-1"}}"#),
        1 => json(401, r#"{"error":{"message":"bad key"}}"#),
        2 => json(429, "{}"),
        3 => json(500, "{}"),
        4 => json(200, "no JSON"),
        _ => json(200, ANSWER),
    })
    .await;
    let mut route = model("m", ModelType::Openai, Some(&standin.url));
    let (bodies, redact) = (Some(true), Some(vec!["k-[0-9]".to_owned()]));
    route.request_log = Some(ModelRequestLog { enabled: Some(true), bodies, redact });
    route.routing.retries = Some(0);
    stage.route(route.clone());
    for (status, error, failure) in [
        (400, None, ModelFailure::BadRequest),
        (502, Some("MODEL_CONNECTION_INVALID"), ModelFailure::Credentials),
        (429, None, ModelFailure::RateLimit),
        (500, None, ModelFailure::ServerError),
        (502, Some("MODEL_PROVIDER_FAILED"), ModelFailure::ServerError),
    ] {
        let told = stage.chat("m", HI).await;
        assert_eq!(told.status.as_u16(), status, "{told:?}");
        let entry = logged(&stage).await;
        assert_eq!((entry.status, entry.error.as_deref()), (status, error));
        assert_eq!(entry.call.outcome, ModelOutcome::Failed(failure));
        assert!(entry.request.unwrap().contains("hi"));
        if failure == ModelFailure::BadRequest {
            assert_eq!(entry.answer.unwrap(), r#"{"error":{"message":"bad ***"}}"#);
        }
    }
    route.hooks = vec![pattern(ModelHookTime::After, "Hello", ModelHookAction::Block)];
    stage.route(route.clone());
    stage.chat("m", HI).await.is(400, "MODEL_HOOK_BLOCKED");
    let entry = logged(&stage).await;
    let seen = (entry.status, entry.call.outcome, entry.call.usage.output);
    assert_eq!(seen, (400, ModelOutcome::Answered, 5));
    let asked = standin.count();
    route.hooks = vec![pattern(ModelHookTime::Before, "hi", ModelHookAction::Block)];
    stage.route(route.clone());
    stage.chat("m", HI).await.is(400, "MODEL_HOOK_BLOCKED");
    let entry = logged(&stage).await;
    assert_eq!((entry.status, entry.call.outcome), (400, ModelOutcome::Refused));
    assert_eq!(entry.request, None, "what a hook blocks is not in the log either");
    (route.hooks, route.limits) = (Vec::new(), vec![limit(LimitMeasure::Requests, 0)]);
    stage.route(route);
    stage.chat("m", HI).await.is(429, "MODEL_LIMIT_REACHED");
    let entry = logged(&stage).await;
    assert_eq!((entry.status, entry.error.as_deref()), (429, Some("MODEL_LIMIT_REACHED")));
    assert_eq!(entry.call.outcome, ModelOutcome::Refused);
    assert_eq!(standin.count(), asked);
}

#[tokio::test]
async fn a_request_that_reaches_several_models_is_one_line() {
    let stage = Stage::start().await;
    let standin = Standin::start(|number, _, _| match number {
        0 => json(200, "{"),
        1 => json(500, "{}"),
        _ => json(200, ANSWER),
    })
    .await;
    let mut first = model("first", ModelType::Openai, Some(&standin.url));
    first.request_log = Some(ModelRequestLog { enabled: Some(true), ..Default::default() });
    first.routing.retries = Some(0);
    let to = |name: &str| ModelFallback { model: name.into(), on: None };
    first.routing.fallbacks = Some(vec![to("second"), to("third")]);
    stage.route(first);
    stage.model("second", &standin);
    stage.model("third", &standin);
    assert_eq!(stage.chat("first", HI).await.status.as_u16(), 200);
    let entry = logged(&stage).await;
    let failed = |name: &str| (name.to_owned(), ModelFailure::ServerError);
    assert_eq!((entry.status, entry.tried), (200, vec![failed("first"), failed("second")]));
}

/// A caller who leaves before the answer begins is charged, and has a line.
#[tokio::test]
async fn a_request_that_nobody_waits_for_is_a_line_of_the_log() {
    let stage = Stage::start().await;
    let (sender, standin) = Standin::event_by_event().await;
    let mut route = model("m", ModelType::Openai, Some(&standin.url));
    route.request_log = Some(ModelRequestLog { enabled: Some(true), ..Default::default() });
    stage.route(route);
    let leaves = async {
        while standin.count() == 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        told = stage.chat("m", HI_STREAM) => panic!("{told:?}"),
        () = leaves => {}
    }
    stage.revoke();
    let entry = logged(&stage).await;
    assert_eq!((entry.status, entry.call.outcome), (499, ModelOutcome::Aborted));
    drop(sender);
}

/// What `redact` matches is masked also where it comes in several pieces, or is spelled otherwise.
#[tokio::test]
async fn no_spelling_and_no_stream_hides_a_secret_from_redaction() {
    let stage = Stage::start().await;
    let chunk =
        |delta: &str| format!("data: {{\"choices\":[{{\"index\":0,\"delta\":{delta}}}]}}\n\n");
    let pieces = ["x s", "k-Q", "Q12", "345"].map(|it| chunk(&format!("{{\"content\":\"{it}\"}}")));
    let [a, b, c, d] = &pieces;
    let ends = [a.as_str(), b, c, d, STREAM[2], STREAM[3]].map(str::to_owned);
    let standin = Standin::start(move |_, head, _| match head.uri.path() {
        "/v1/messages" => streamed(&["data: no JSON\n\n"]),
        _ => streamed(&ends.each_ref().map(String::as_str)),
    })
    .await;
    let mut route = model("m", ModelType::Openai, Some(&standin.url));
    let redact = ["sk-[A-Za-z0-9]+", "Müller", "password: \"[^\"]+\""].map(str::to_owned);
    route.request_log = Some(ModelRequestLog {
        enabled: Some(true),
        bodies: Some(true),
        redact: Some(redact.to_vec()),
    });
    stage.route(route.clone());
    let hi = r#"M\u00fcller, password: \"hunter2\", sk\u002dABC123!"#;
    let stream = stage.chat("m", &HI_STREAM.replace("hi", hi)).await;
    assert!(stream.text.contains("k-Q"), "{stream:?}");
    let entries = stage.gateway.model_log().await;
    let request = entries[0].request.as_ref().unwrap();
    assert!(request.contains(r#""content":"***, ***, ***!""#), "{request}");
    assert_eq!(entries[0].answer.as_deref(), Some(r#"[{"text":"x ***"}]"#));
    // A stream that cannot be read.
    route.provider.as_mut().unwrap().kind = ModelType::Anthropic;
    stage.route(route);
    stage.ask("/acme/models/m/v1/messages", HI_STREAM).await;
    let entries = stage.gateway.model_log().await;
    let answer = entries[0].answer.as_ref().unwrap();
    assert!(answer.starts_with("(not shown"), "{answer}");
}

/// The model that a request reaches applies its limits and hooks, however many others led to it.
#[tokio::test]
async fn models_that_lead_to_others_are_not_passed_by() {
    let stage = Stage::start().await;
    let standin = Standin::start(|_, _, _| json(200, ANSWER)).await;
    let to = |name: &str| Some(vec![ModelTarget { model: name.into(), weight: None }]);
    stage.model("real", &standin);
    let mut middle = model("middle", ModelType::Openai, None);
    middle.routing.targets = to("real");
    middle.limits = vec![limit(LimitMeasure::Requests, 1)];
    stage.route(middle.clone());
    let mut first = model("first", ModelType::Openai, None);
    first.routing.targets = to("middle");
    stage.route(first);
    assert_eq!(stage.chat("first", HI).await.status.as_u16(), 200);
    stage.chat("first", HI).await.is(429, "MODEL_LIMIT_REACHED");
    middle.limits.clear();
    for when in [ModelHookTime::Before, ModelHookTime::After] {
        middle.hooks = vec![pattern(when, "hi|Hello", ModelHookAction::Block)];
        stage.route(middle.clone());
        stage.chat("first", HI).await.is(400, "MODEL_HOOK_BLOCKED");
    }
    middle.hooks.clear();
    stage.route(middle.clone());
    assert_eq!(stage.chat("first", HI).await.status.as_u16(), 200);
    middle.off = Some("it is disabled".into());
    stage.route(middle);
    let count = standin.count();
    assert!(!stage.chat("first", HI).await.status.is_success());
    assert_eq!(standin.count(), count);
}

/// Several answers come mixed, tool calls in an old format, and some events malformed: none of this
/// hides what a hook looks for.
#[tokio::test]
async fn hooks_find_what_streams_tell_in_pieces() {
    let stage = Stage::start().await;
    let chunk = |index: u32, delta: &str| {
        format!("data: {{\"id\":\"1\",\"choices\":[{{\"index\":{index},\"delta\":{delta}}}]}}\n\n")
    };
    let text = |index, text: &str| chunk(index, &format!("{{\"content\":\"{text}\"}}"));
    let call = |text: &str| chunk(0, &format!("{{\"function_call\":{text}}}"));
    let streams = [
        vec![text(0, "Hel"), text(1, "And"), text(0, "lo"), text(1, " more")],
        vec![call(r#"{"name":"f","arguments":"Hel"}"#), call(r#"{"arguments":"lo"}"#)],
        vec![text(0, "Hi"), text(4_000_000, "Hello")],
    ];
    let (given, count) = (streams.clone(), streams.len());
    let standin = Standin::start(move |number, _, _| {
        let pieces: Vec<&str> = given[number % count].iter().map(String::as_str).collect();
        streamed(&pieces)
    })
    .await;
    let mut route = model("m", ModelType::Openai, Some(&standin.url));
    route.hooks = vec![pattern(ModelHookTime::After, "Hello", ModelHookAction::Block)];
    stage.route(route);
    for (stream, code) in streams.iter().zip(["BLOCKED", "BLOCKED", "FAILED"]) {
        let told = stage.chat("m", HI_STREAM).await;
        assert!(told.text.contains(&format!("MODEL_HOOK_{code}")), "{stream:?}: {told:?}");
    }
}

/// What a hook reads is what the provider reads.
#[tokio::test]
async fn requests_that_can_be_read_in_two_ways_are_blocked() {
    let stage = Stage::start().await;
    let standin = Standin::start(|_, _, _| json(200, ANSWER)).await;
    let mut route = model("m", ModelType::Openai, Some(&standin.url));
    route.hooks = vec![pattern(ModelHookTime::Before, "secret", ModelHookAction::Block)];
    stage.route(route);
    let other = "/acme/models/m/v1/completions";
    assert_eq!(stage.ask(other, r#"{"prompt":"hi"}"#).await.status.as_u16(), 200);
    let twice = r#"{"prompt":"secret","prompt":"hi"}"#;
    stage.ask(other, twice).await.is(400, "there twice");
    let wide: String = r#"{"prompt":"secret"}"#.chars().flat_map(|c| [c, '\0']).collect();
    stage.ask(other, &wide).await.is(400, "UTF-8");
    let coded = [("x-api-key", KEY), ("content-encoding", "gzip")];
    stage.ask_with(other, &coded, "any").await.is(400, "compressed");
    let deep = format!("{{\"prompt\":{}\"\\u0073ecret\"{}}}", "[".repeat(200), "]".repeat(200));
    stage.ask(other, &deep).await.is(400, "nested too deep");
    assert_eq!(standin.count(), 1);
}
