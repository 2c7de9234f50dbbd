use super::*;
use crate::models::served::tests::route;
use crate::models::settings::ModelSettings;
use crate::models::upstream::Client;
use admission::Limits;
use serde_json::json;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

fn hooks(pattern: &str, action: Option<ModelHookAction>) -> Hooks {
    let mut route = route("m", None);
    route.hooks = vec![ModelHook {
        when: ModelHookTime::Before,
        pattern: Some(pattern.into()),
        action,
        webhook: None,
        optional: None,
    }];
    Hooks::new(&route)
}

fn look(hooks: &Hooks, body: &'static str) -> Result<Option<Bytes>, Stopped> {
    let hook = &hooks.hooks[0];
    match &hook.what {
        What::Pattern { pattern, action } => {
            let until = Instant::now() + Duration::from_secs(60);
            hook.look_for(pattern, *action, &Bytes::from_static(body.as_bytes()), until)
        }
        _ => Err(hook.failed("no pattern")),
    }
}

#[test]
fn a_pattern_finds_what_is_written_in_any_way() {
    let blocks = hooks("secret", None);
    assert!(look(&blocks, r#"{"a":[{"b":"a secret"}]}"#).is_err());
    assert!(look(&blocks, r#"{"a":"\u0073ecret"}"#).is_err());
    assert!(look(&blocks, r#"{"secret":"a"}"#).unwrap().is_none());
    assert!(look(&blocks, "no JSON, but a secret").is_err());
    let masks = hooks("[0-9]{4}", Some(ModelHookAction::Mask));
    let masked = look(&masks, r#"{"a":"pin 1234", "n":1234,"f":1.10}"#).unwrap().unwrap();
    assert_eq!(&masked[..], br#"{"a":"pin ***", "n":1234,"f":1.10}"#, "a setting is no text");
    assert!(matches!(hooks("(", None).hooks[0].what, What::Broken(_)));
    let deep = format!("{}\"\\u0073ecret\"{}", "[".repeat(200), "]".repeat(200)).leak();
    assert!(look(&blocks, deep).is_err(), "what cannot be read is no plain text");
}

/// The caller can mend a request that cannot be looked at, and not an answer.
#[test]
fn a_request_that_cannot_be_looked_at_is_refused() {
    let mut hooks = hooks("secret", None);
    let cut = r#"{"messages":[{"content":"hello \ud83d"}]}"#;
    let refused = look(&hooks, cut);
    assert!(matches!(&refused, Err(Stopped::Blocked { why: Some(_), .. })), "{refused:?}");
    hooks.hooks[0].when = ModelHookTime::After;
    assert!(matches!(look(&hooks, cut), Err(Stopped::Failed { .. })));
    (hooks.hooks[0].when, hooks.hooks[0].optional) = (ModelHookTime::Before, true);
    assert!(matches!(look(&hooks, cut), Err(Stopped::Failed { .. })));
}

/// What tools are given counts as text, be it a number or JSON of its own, in any spelling.
#[test]
fn what_a_tool_is_given_hides_nothing() {
    let card = "[0-9]{16}";
    let (blocks, masks) = (hooks(card, None), hooks(card, Some(ModelHookAction::Mask)));
    let number = r#"{"content":[{"type":"tool_use","input":{"card":4111111111111111,"n":12}}]}"#;
    let long = r#"{"content":[{"input":{"card":4111111111111111.0}}]}"#;
    let escaped = r#"{"tool_calls":[{"arguments":"{\"card\":\"4111111\\u003111111111\"}"}]}"#;
    let bare = r#"{"tool_calls":[{"arguments":"{\"card\":4111111111111111}"}]}"#;
    for body in [number, long, escaped, bare] {
        let blocked = look(&blocks, body);
        assert!(matches!(blocked, Err(Stopped::Blocked { .. })), "{body}: {blocked:?}");
    }
    let masked = |body| String::from_utf8(look(&masks, body).unwrap().unwrap().to_vec()).unwrap();
    assert_eq!(masked(number), number.replace("4111111111111111", "\"***\""));
    assert_eq!(masked(long), long.replace("4111111111111111.0", "\"***\""));
    assert_eq!(masked(escaped), r#"{"tool_calls":[{"arguments":"{\"card\":\"***\"}"}]}"#);
    assert_eq!(masked(bare), masked(escaped));
    let deep: &'static str =
        (0..6).fold(escaped.to_owned(), |json, _| json!([json]).to_string()).leak();
    for hooks in [&blocks, &masks] {
        assert!(matches!(look(hooks, deep), Err(Stopped::Blocked { why: Some(_), .. })));
    }
}

#[test]
fn a_stream_is_looked_at_across_its_pieces() {
    let mut route = route("m", None);
    route.hooks = vec![ModelHook {
        when: ModelHookTime::After,
        pattern: Some("abc".into()),
        action: None,
        webhook: None,
        optional: None,
    }];
    let mut watch = Hooks::new(&route).watch().unwrap();
    let place = |choice| TextOfAnswer { choice, part: PartOfAnswer::Text };
    for _ in 0..10_000 {
        watch.look(place(0), "a b c é ").unwrap();
    }
    for (choice, text) in [(0, "xa"), (1, "a"), (0, "b"), (1, "c"), (2, "c")] {
        watch.look(place(choice), text).unwrap();
    }
    assert!(watch.look(place(0), "c").is_err(), "the others lie between its pieces");
    let more = (3..1000).map(|choice| watch.look(place(choice), "x"));
    assert!(more.into_iter().any(|looked| looked.is_err()), "windows have an end");
}

/// Answers one request with this JSON, and returns the address to ask at.
async fn webhook(json: String) -> Uri {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let uri = format!("http://{}/", listener.local_addr().unwrap()).parse().unwrap();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut asked = Vec::new();
        while !asked.ends_with(b"{}") {
            stream.read_buf(&mut asked).await.unwrap();
        }
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", json.len());
        // Whoever has no room for it hangs up.
        let _ = stream.write_all((head + &json).as_bytes()).await;
    });
    uri
}

#[tokio::test]
async fn what_hooks_put_in_place_of_a_body_takes_room_of_the_workspace() {
    let settings = ModelSettings::default().with_inside(&["127.0.0.1".to_owned()]).unwrap();
    let client: SharedClient = Arc::new(Client::new(&settings));
    let looks = Turns::from(settings.looks);
    let long = format!(r#"{{"a":"{}"}}"#, "1234 ".repeat(50_000));
    for (share, is_enough) in [(1 << 20, true), (100_000, false)] {
        let bodies = Pool::new("bytes of a test", Limits { total: 1 << 20, share });
        let time = Duration::from_secs(60);
        let ask = HooksAsk { client: &client, looks: &looks, bodies: &bodies, owner: "acme", time };
        let check = async |hooks: Hooks, body: Bytes| {
            let looked = hooks.look(ModelHookTime::Before, body, ask).await;
            assert_eq!(bodies.held() >= 200_000, is_enough, "{}", bodies.held());
            match looked {
                Ok(changed) => assert!(is_enough && changed.len() > 200_000),
                Err(stopped) => assert!(!is_enough && matches!(stopped, Stopped::Crowded(_))),
            }
            assert_eq!(bodies.held(), 0, "it is given back with the body");
        };
        let masks = hooks("[0-9]{4}", Some(ModelHookAction::Mask));
        check(masks, Bytes::from(long.clone())).await;
        let mut asks = hooks("", None);
        asks.hooks[0].what = What::Webhook(webhook(long.clone()).await);
        check(asks, Bytes::from_static(b"{}")).await;
    }
}
