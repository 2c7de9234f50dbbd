//! Providers that are slow, cut off, compressed or talk nonsense, and callers that hang up.

use crate::stage::{CHAT, HI, HI_STREAM, KEY, Stage, limit, model, settings};
use crate::standin::{ANSWER, STREAM, Standin, events, json, streamed, with};
use admission::Limits;
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use gateway::ModelSettings;
use http_body_util::BodyExt;
use std::io::{self, Write};
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use types::kinds::model::{ModelFallback, ModelType};
use types::models::LimitMeasure;

#[tokio::test]
async fn answers_that_are_no_json_are_the_provider_s_fault() {
    let stage = Stage::start().await;
    let standin = Standin::start(|number, _, _| match number {
        0 => with(200, "text/html", "<h1>Welcome</h1>"),
        1 => json(200, "{\"half\":"),
        2 => json(200, ""),
        _ => json(200, ANSWER),
    })
    .await;
    stage.model("m", &standin);
    for _ in 0..3 {
        stage.chat("m", HI).await.is(502, "MODEL_PROVIDER_FAILED");
    }
    assert_eq!(stage.chat("m", HI).await.text, ANSWER);
    // Each connection was returned clean.
    assert_eq!(standin.connections.load(Ordering::Relaxed), 1);
    // For the one that broke off, what was asked is charged.
    let usage = stage.usage(4).await;
    assert_eq!((usage.failed, usage.estimated), (2, 1));
    assert!(usage.input > 10, "{usage:?}");
}

/// What is no stream is not taken for one: it costs nothing, and another model is asked.
#[tokio::test]
async fn a_stream_that_is_none_is_the_provider_s_fault() {
    let stage = Stage::with(ModelSettings { breaker_failures: 4, ..settings() }).await;
    let standin = Standin::start(|number, _, _| match number % 2 {
        0 => with(200, "text/html", "<h1>Welcome</h1>"),
        _ => with(200, "text/html", ""),
    })
    .await;
    let other = Standin::start(|_, _, _| streamed(&STREAM)).await;
    let mut route = model("m", ModelType::Openai, Some(&standin.url));
    route.provider.as_mut().unwrap().model = Some("gpt-4o-mini".into());
    stage.route(route.clone());
    for _ in 0..2 {
        stage.chat("m", HI_STREAM).await.is(502, "MODEL_PROVIDER_FAILED");
    }
    let usage = stage.usage(2).await;
    assert_eq!((usage.failed, usage.input, usage.output, usage.cost), (2, 0, 0, 0));
    route.routing.fallbacks = Some(vec![ModelFallback { model: "other".into(), on: None }]);
    stage.route(route);
    stage.model("other", &other);
    // It is left alone after the first two, and these.
    for _ in 0..3 {
        let answer = stage.chat("m", HI_STREAM).await;
        assert_eq!(answer.header("x-holm-model"), Some("other"), "{answer:?}");
    }
    assert_eq!((standin.count(), other.count()), (4, 3));
}

#[tokio::test]
async fn an_answer_to_who_asks_for_a_stream_is_known_by_how_it_begins() {
    let stage = Stage::start().await;
    let standin = Standin::start(|number, _, _| match number {
        0 => with(200, "text/plain", &STREAM.concat()),
        1 => with(200, "text/plain", &format!(": hi\n\n{}", STREAM.concat())),
        2 => json(200, ANSWER),
        _ => json(200, "{\"half\":"),
    })
    .await;
    stage.model("m", &standin);
    for _ in 0..2 {
        let answer = stage.chat("m", HI_STREAM).await;
        assert_eq!(answer.header("content-type"), Some("text/event-stream"));
        assert!(answer.text.ends_with(STREAM[3]), "{answer:?}");
    }
    // A server that knows no streams: the caller gets what there is.
    let answer = stage.chat("m", HI_STREAM).await;
    assert_eq!(answer.header("content-type"), Some("application/json"));
    assert_eq!(answer.text, ANSWER);
    let usage = stage.usage(3).await;
    assert_eq!((usage.input, usage.output, usage.estimated), (30, 15, 0));
    stage.chat("m", HI_STREAM).await.is(502, "MODEL_PROVIDER_FAILED");
}

#[tokio::test]
async fn a_stream_that_breaks_off_says_so_and_is_counted() {
    let stage = Stage::start().await;
    let standin = Standin::start(|_, _, _| {
        let (sender, answer) = events();
        sender.send(Ok(Bytes::from_static(STREAM[0].as_bytes()))).unwrap();
        sender.send(Ok(Bytes::from_static(b"data: {\"choices\":[{\"del"))).unwrap();
        answer
    })
    .await;
    stage.model("m", &standin);
    let answer = stage.chat("m", HI_STREAM).await;
    assert!(answer.text.starts_with(STREAM[0]), "{answer:?}");
    assert!(answer.text.contains("MODEL_PROVIDER_FAILED"), "{answer:?}");
    assert!(answer.text.ends_with("\n\n") && !answer.broken);
    let usage = stage.usage(1).await;
    assert_eq!((usage.calls, usage.estimated), (1, 1));
    assert!(usage.input > 0 && usage.output > 0, "{usage:?}");
}

#[tokio::test]
async fn a_provider_that_hangs_up_half_way_is_told_of_in_the_stream() {
    let stage = Stage::start().await;
    let (sender, standin) = Standin::event_by_event().await;
    stage.model("m", &standin);
    sender.send(Ok(Bytes::from_static(STREAM[0].as_bytes()))).unwrap();
    let mut response = stage.open_stream("m").await;
    assert!(response.body_mut().frame().await.unwrap().is_ok());
    sender.send(Err(io::Error::other("gone"))).unwrap();
    let rest = response.into_body().collect().await.unwrap().to_bytes();
    let rest = String::from_utf8_lossy(&rest);
    assert!(
        rest.trim_start().starts_with("data: {\"error\"") && rest.contains("MODEL_PROVIDER_FAILED"),
        "{rest}"
    );
    assert_eq!(stage.usage(1).await.estimated, 1);
}

const BEGUN: [&str; 2] = [
    "event: response.created\ndata: {\"type\":\"response.created\",\"sequence_number\":0,\"response\":{\"id\":\"resp_1\",\"model\":\"gpt-x\",\"output\":[]}}\n\n",
    "event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"sequence_number\":1,\"delta\":\"Hel\"}\n\n",
];

#[tokio::test]
async fn a_stream_that_ends_early_does_not_look_complete() {
    let stage = Stage::start().await;
    let message = "event: message_start\ndata: {\"type\":\"message_start\"}\n\n";
    let line = STREAM[0].trim_end();
    let standin = Standin::start(move |number, _, _| match number {
        0 => streamed(&STREAM[..1]),
        1 => streamed(&[line]),
        2 => streamed(&[]),
        3 => streamed(&[message]),
        4 => streamed(&BEGUN),
        // Not every provider has the mark behind the end.
        5 => streamed(&STREAM[..2]),
        _ => streamed(&["data: {\"error\":{\"message\":\"no\"}}\n\n"]),
    })
    .await;
    stage.model("m", &standin);
    for begin in [STREAM[0], line, ""] {
        let told = stage.chat("m", HI_STREAM).await.text;
        let last = told.strip_prefix(begin).unwrap().trim_start();
        assert!(last.starts_with("data: {\"error\":{\"message\":"), "{told}");
        assert!(last.contains("MODEL_PROVIDER_FAILED"), "{told}");
    }
    for path in ["/v1/messages", "/v1/responses"] {
        let kind = if path == "/v1/messages" { ModelType::Anthropic } else { ModelType::Openai };
        stage.route(model("n", kind, Some(&standin.url)));
        let told = stage.ask(&format!("/acme/models/n{path}"), HI_STREAM).await.text;
        assert!(told.contains("event: error\ndata: "), "{told}");
    }
    assert_eq!(stage.chat("m", HI_STREAM).await.text, STREAM[..2].concat());
    assert!(!stage.chat("m", HI_STREAM).await.text.contains("MODEL_"));
    assert_eq!(stage.usage(7).await.estimated, 7);
}

#[tokio::test]
async fn an_error_in_a_stream_of_responses_has_the_shape_of_theirs() {
    let stage = Stage::start().await;
    let standin = Standin::start(|_, _, _| streamed(&BEGUN)).await;
    stage.model("m", &standin);
    let told = stage.ask("/acme/models/m/v1/responses", HI_STREAM).await.text;
    let last = told.strip_prefix(BEGUN.concat().as_str()).unwrap();
    let data = last.lines().filter_map(|line| line.strip_prefix("data: "));
    let events: Vec<serde_json::Value> =
        data.map(|data| serde_json::from_str(data).unwrap()).collect();
    let [error, failed] = &events[..] else { panic!("{told}") };
    assert_eq!((&error["type"], &error["sequence_number"]), (&"error".into(), &2.into()));
    assert_eq!((&error["code"], &error["param"]), (&"MODEL_PROVIDER_FAILED".into(), &().into()));
    assert!(error["message"].is_string(), "{told}");
    assert_eq!(
        (&failed["type"], &failed["sequence_number"]),
        (&"response.failed".into(), &3.into())
    );
    let response = &failed["response"];
    assert_eq!((&response["id"], &response["status"]), (&"resp_1".into(), &"failed".into()));
    assert_eq!(response["error"]["code"], "MODEL_PROVIDER_FAILED");
    assert!(response["created_at"].as_i64().unwrap() > 0);
}

#[tokio::test]
async fn a_caller_who_hangs_up_is_counted_and_the_provider_let_go() {
    let stage = Stage::start().await;
    let (sender, standin) = Standin::event_by_event().await;
    stage.model("m", &standin);
    sender.send(Ok(Bytes::from_static(STREAM[0].as_bytes()))).unwrap();
    let mut response = stage.open_stream("m").await;
    assert!(response.body_mut().frame().await.unwrap().is_ok());
    drop(response);
    tokio::time::timeout(Duration::from_secs(20), sender.closed()).await.unwrap();
    let usage = stage.usage(1).await;
    assert_eq!((usage.calls, usage.estimated, usage.failed), (1, 1, 0));
    assert!(usage.output > 0, "{usage:?}");
}

#[tokio::test]
async fn who_hangs_up_right_before_the_numbers_pays_by_them() {
    let stage = Stage::start().await;
    let (sender, standin) = Standin::event_by_event().await;
    stage.model("m", &standin);
    let (before, numbers) = STREAM.split_at(2);
    for piece in before {
        sender.send(Ok(Bytes::from_static(piece.as_bytes()))).unwrap();
    }
    let mut response = stage.open_stream("m").await;
    let (mut read, length) = (0, before.concat().len());
    while read < length {
        read += response.body_mut().frame().await.unwrap().unwrap().into_data().unwrap().len();
    }
    drop(response);
    sender.send(Ok(Bytes::from(numbers.concat()))).unwrap();
    let usage = stage.usage(1).await;
    assert_eq!((usage.calls, usage.estimated, usage.input, usage.output), (1, 0, 10, 5));
}

#[tokio::test]
async fn who_hangs_up_under_a_limit_pays_what_the_provider_may_have_read() {
    let stage = Stage::start().await;
    let (sender, standin) = Standin::event_by_event().await;
    let mut route = model("m", ModelType::Openai, Some(&standin.url));
    route.provider.as_mut().unwrap().model = Some("gpt-4o-mini".into());
    route.limits = vec![limit(LimitMeasure::Cost, 1_000_000_000)];
    stage.route(route);
    sender.send(Ok(Bytes::from_static(STREAM[0].as_bytes()))).unwrap();
    let bearer = format!("Bearer {KEY}");
    let path = format!("/acme/models/m{CHAT}");
    let kept = HI_STREAM.replacen('{', "{\"previous_response_id\":\"resp_1\",", 1);
    let mut response = stage.open(&path, &[("authorization", &bearer)], &kept).await;
    assert!(response.body_mut().frame().await.unwrap().is_ok());
    drop(response);
    let usage = stage.usage(1).await;
    assert_eq!((usage.estimated, usage.input), (1, 128_000));
}

#[tokio::test]
async fn silence_ends_in_time() {
    let settings = ModelSettings {
        first_timeout: Duration::from_millis(200),
        between_timeout: Duration::from_millis(200),
        ..settings()
    };
    let stage = Stage::with(settings).await;
    let kept = parking_lot::Mutex::new(Vec::new());
    let standin = Standin::start(move |number, _, _| {
        let (sender, answer) = events();
        if number > 0 {
            sender.send(Ok(Bytes::from_static(STREAM[0].as_bytes()))).unwrap();
        }
        kept.lock().push(sender);
        answer
    })
    .await;
    stage.model("m", &standin);
    stage.chat("m", HI_STREAM).await.is(504, "MODEL_PROVIDER_TIMEOUT");
    let answer = stage.chat("m", HI_STREAM).await;
    assert!(answer.text.contains("MODEL_PROVIDER_TIMEOUT"), "{answer:?}");
    let usage = stage.usage(2).await;
    assert_eq!((usage.failed, usage.estimated), (1, 2), "both were at work");
}

fn gzip(text: &str) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(text.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

#[tokio::test]
async fn what_is_compressed_all_the_same_is_read() {
    let settings = ModelSettings { answer_max: 1 << 20, ..settings() };
    let stage = Stage::with(settings).await;
    let standin = Standin::start(|number, head, _| {
        assert_eq!(head.headers["accept-encoding"], "identity");
        let (sender, mut answer) = events();
        let text = match number {
            0 => ANSWER.to_owned(),
            1 => STREAM.concat(),
            _ => format!("{{\"a\":\"{}\"}}", "x".repeat(8 << 20)),
        };
        if number != 1 {
            answer.headers_mut().insert("content-type", "application/json".parse().unwrap());
        }
        answer.headers_mut().insert("content-encoding", "gzip".parse().unwrap());
        sender.send(Ok(Bytes::from(gzip(&text)))).unwrap();
        answer
    })
    .await;
    stage.model("m", &standin);
    let answer = stage.chat("m", HI).await;
    assert_eq!((answer.text.as_str(), answer.header("content-encoding")), (ANSWER, None));
    let body = HI_STREAM
        .replace("\"stream\":true", "\"stream\":true,\"stream_options\":{\"include_usage\":true}");
    assert_eq!(stage.chat("m", &body).await.text, STREAM.concat());
    stage.chat("m", HI).await.is(502, "MODEL_PROVIDER_FAILED");
    let usage = stage.usage(3).await;
    assert_eq!((usage.failed, usage.estimated), (0, 1));
    assert!(usage.input > 20 && usage.output >= 10, "{usage:?}");
}

#[tokio::test]
async fn a_provider_that_leaves_usage_out_is_estimated() {
    let stage = Stage::start().await;
    let standin = Standin::start(|_, _, _| streamed(&[STREAM[0], STREAM[1], STREAM[3]])).await;
    stage.model("m", &standin);
    assert_eq!(stage.chat("m", HI_STREAM).await.status.as_u16(), 200);
    let usage = stage.usage(1).await;
    assert_eq!(usage.estimated, 1);
    assert!(usage.input > 0 && usage.output > 0, "{usage:?}");
}

#[tokio::test]
async fn calls_that_end_together_are_all_counted() {
    let stage = Stage::start().await;
    let standin = Standin::start(|_, _, _| streamed(&[STREAM[0], STREAM[1], STREAM[3]])).await;
    stage.model("m", &standin);
    let calls = (0..20).map(|_| stage.chat("m", HI_STREAM));
    for answer in futures_util::future::join_all(calls).await {
        assert_eq!(answer.status.as_u16(), 200);
    }
    let usage = stage.usage(20).await;
    assert_eq!((usage.calls, usage.estimated), (20, 20));
}

#[tokio::test]
async fn a_closed_connection_is_not_a_failed_request() {
    let stage = Stage::start().await;
    let standin = Standin::start(|_, _, _| {
        let mut answer = json(200, ANSWER);
        answer.headers_mut().insert("connection", "close".parse().unwrap());
        answer
    })
    .await;
    stage.model("m", &standin);
    for _ in 0..5 {
        assert_eq!(stage.chat("m", HI).await.status.as_u16(), 200);
    }
    assert_eq!(standin.count(), 5);
}

#[tokio::test]
async fn half_a_file_is_not_taken_for_a_whole_one() {
    let stage = Stage::start().await;
    let (sender, mut answer) = events();
    answer.headers_mut().insert("content-type", "audio/mpeg".parse().unwrap());
    let answer = parking_lot::Mutex::new(Some(answer));
    let standin = Standin::start(move |_, _, _| answer.lock().take().unwrap()).await;
    stage.model("m", &standin);
    sender.send(Ok(Bytes::from_static(b"half"))).unwrap();
    let bearer = format!("Bearer {KEY}");
    let path = "/acme/models/m/v1/files/f/content";
    let mut response = stage.open(path, &[("authorization", &bearer)], "").await;
    let first = response.body_mut().frame().await.unwrap().unwrap();
    assert_eq!(&first.into_data().unwrap()[..], b"half");
    sender.send(Err(io::Error::other("gone"))).unwrap();
    assert!(response.into_body().collect().await.is_err());
}

#[tokio::test]
async fn a_file_of_two_lengths_comes_whole() {
    let stage = Stage::start().await;
    let provider = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", provider.local_addr().unwrap());
    stage.route(model("m", ModelType::Openai, Some(&url)));
    let answers = tokio::spawn(async move {
        let (mut stream, _) = provider.accept().await.unwrap();
        stream.read_buf(&mut Vec::new()).await.unwrap();
        let head = "HTTP/1.1 200 OK\r\ncontent-type: audio/mpeg\r\ncontent-length: 2\r\n";
        let rest = "transfer-encoding: chunked\r\n\r\n5\r\nwhole\r\n0\r\n\r\n";
        stream.write_all(format!("{head}{rest}").as_bytes()).await.unwrap();
    });
    let answer = stage.ask("/acme/models/m/v1/files/f/content", "").await;
    assert_eq!((answer.text.as_str(), answer.broken), ("whole", false));
    assert_eq!(answer.header("content-length"), None);
    answers.await.unwrap();
}

#[tokio::test]
async fn whoever_hangs_up_before_the_answer_pays_for_what_was_asked() {
    let stage = Stage::start().await;
    let provider = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", provider.local_addr().unwrap());
    stage.route(model("m", ModelType::Openai, Some(&url)));
    let asked = async {
        let (mut stream, _) = provider.accept().await.unwrap();
        let mut request = Vec::new();
        while !request.ends_with(HI.replace("any", "gpt-x").as_bytes()) {
            stream.read_buf(&mut request).await.unwrap();
        }
        stream
    };
    let _kept = tokio::select! {
        answer = stage.chat("m", HI) => panic!("{answer:?}"),
        stream = asked => stream,
    };
    let usage = stage.usage(1).await;
    assert_eq!((usage.estimated, usage.output), (1, 0));
    assert!(usage.input > 0, "{usage:?}");
}

#[tokio::test]
async fn answers_take_room_until_they_are_read() {
    let bodies = Limits { total: 64 << 20, share: 40 << 20 };
    let stage = Stage::with(ModelSettings { bodies, ..settings() }).await;
    let text = format!("{{\"a\":\"{}\"}}", "x".repeat(16 << 20));
    let standin = Standin::start(move |_, _, _| json(200, &text)).await;
    stage.model("m", &standin);
    let bearer = format!("Bearer {KEY}");
    let path = format!("/acme/models/m{CHAT}");
    let unread = stage.open(&path, &[("authorization", &bearer)], HI).await;
    assert_eq!(unread.status().as_u16(), 200);
    assert_eq!(stage.chat("m", HI).await.status.as_u16(), 429);
    drop(unread);
    let again = async { while stage.chat("m", HI).await.status.as_u16() != 200 {} };
    tokio::time::timeout(Duration::from_secs(20), again).await.unwrap();
}

#[tokio::test]
async fn a_small_body_that_becomes_many_values_takes_the_room_of_these() {
    let bodies = Limits { total: 64 << 20, share: 1 << 20 };
    let stage = Stage::with(ModelSettings { bodies, ..settings() }).await;
    let standin = Standin::start(|_, _, _| json(200, ANSWER)).await;
    stage.model("m", &standin);
    stage.route(model("claude", ModelType::Anthropic, Some(&standin.url)));
    let many = HI.replace("\"hi\"", &format!("[{}1]", "1,".repeat(100_000)));
    assert_eq!(stage.chat("claude", &many).await.status.as_u16(), 429);
    assert_eq!(stage.chat("m", &many).await.status.as_u16(), 200, "it is not read as values");
}

/// What a stream holds here takes room of its workspace's share, not of everybody's memory.
#[tokio::test]
async fn a_stream_that_has_to_be_held_takes_room_that_ends() {
    let room = Limits { total: 1 << 20, share: 200 << 10 };
    let stage = Stage::with(ModelSettings { bodies: room, ..settings() }).await;
    let chunk = |bytes: usize| {
        let text = "x".repeat(bytes);
        format!(
            "data: {{\"id\":\"1\",\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{text}\"}}}}]}}\n\n"
        )
    };
    let (small, large) = (chunk(50 << 10), chunk(300 << 10));
    let standin = Standin::start(move |number, _, _| match number {
        0 => streamed(&[&small, STREAM[1], STREAM[3]]),
        _ => streamed(&[STREAM[0], &large]),
    })
    .await;
    stage.model("m", &standin);
    let path = "/acme/models/m/v1/messages";
    let body =
        r#"{"model":"m","max_tokens":9,"stream":true,"messages":[{"role":"user","content":"hi"}]}"#;
    let told = stage.ask(path, body).await;
    assert!(told.text.contains("message_stop") && told.text.len() > 50_000);
    let told = stage.ask(path, body).await;
    assert!(
        told.text.contains("TOO_MANY_REQUESTS") && told.text.len() < 1_000,
        "{}",
        told.text.len()
    );
}
