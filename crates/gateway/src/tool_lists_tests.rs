use super::asking::PATH;
use super::message::{Id, only_message, result_of};
use super::*;
use crate::traffic::Traffic;
use admission::{Limits, Pool};
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{Request, Response};
use http_body_util::BodyExt;
use proptest::prelude::*;
use std::sync::Arc;
use types::KindName;
use types::edge::WorkloadRoute;
use types::ids::{ResourceId, WorkspaceId};

const LIST: &str = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;

fn traffic() -> Arc<Traffic> {
    let workspace = (WorkspaceId::known("w"), "w".to_owned());
    let id = ResourceId::known("res_1");
    Arc::new(Traffic::new(&WorkloadRoute::new(KindName::Function, id, workspace, "n")))
}

fn pool(total: u64, share: u64) -> Pool<String> {
    Pool::new("bytes of lists", Limits { total, share })
}

fn store(traffic: &Arc<Traffic>, pool: &Pool<String>, owner: &str) -> ListStore {
    let (traffic, owner) = (Arc::clone(traffic), owner.to_owned());
    ListStore { traffic, pool: pool.clone(), owner, bytes_max: 100_000 }
}

fn asked_with(body: &str, sent: &[(&str, &str)]) -> Option<ListRequest> {
    let mut request = Request::post(PATH);
    for (name, value) in sent {
        request = request.header(*name, *value);
    }
    let request = request.body(()).unwrap();
    let session = crate::affinity::session(request.headers(), KindName::Function);
    ListRequest::of(&request, session, body.as_bytes())
}

fn asked(sent: &[(&str, &str)]) -> ListRequest {
    asked_with(LIST, sent).unwrap()
}

/// Passes an answer to the caller who asked.
fn pass(
    store: ListStore,
    revision: &str,
    asked: &ListRequest,
    sent: &[(&str, &str)],
    pieces: &[&str],
) -> bool {
    let outdated = store.traffic.tool_lists.ask(asked);
    pass_late(store, revision, (asked, outdated), sent, pieces)
}

/// Passes an answer to the caller who asked some time ago.
fn pass_late(
    store: ListStore,
    revision: &str,
    (asked, outdated): (&ListRequest, Outdated),
    sent: &[(&str, &str)],
    pieces: &[&str],
) -> bool {
    let mut response = Response::builder();
    for (name, value) in sent {
        response = response.header(*name, *value);
    }
    let response = response.body(()).unwrap();
    let Some(mut listen) = Listen::to(&response, store, revision, (asked.clone(), outdated)) else {
        return false;
    };
    if pieces.iter().all(|piece| listen.copy(&Bytes::from((*piece).to_owned()))) {
        listen.finish();
    }
    true
}

const JSON: (&str, &str) = ("content-type", "application/json; charset=utf-8");
const EVENTS: (&str, &str) = ("content-type", "text/event-stream");

fn list_of(name: &str) -> String {
    format!(r#"{{"result":{{"tools":[{{"name":"{name}"}}]}},"jsonrpc":"2.0","id":1}}"#)
}

async fn text(response: Response<String>) -> String {
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[tokio::test]
async fn the_same_question_gets_the_same_list_with_its_own_number() {
    let (traffic, pool) = (traffic(), pool(1 << 20, 1 << 20));
    pass(store(&traffic, &pool, "me"), "r1", &asked(&[]), &[JSON], &[&list_of("a")]);
    let again = LIST.replace("\"id\":1", "\"id\":\"x\\\"y\"");
    let other = asked_with(&again, &[("x-request-id", "7"), ("traceparent", "t")]).unwrap();
    let answer = traffic.tool_lists.find("r1", &other).unwrap();
    assert_eq!(answer.headers()[CONTENT_TYPE], "application/json");
    let wanted = r#"{"jsonrpc":"2.0","id":"x\"y","result":{"tools":[{"name":"a"}]}}"#;
    assert_eq!(text(answer).await, wanted);
    // Another revision has not been asked yet, and a revision that no longer serves is forgotten.
    assert!(traffic.tool_lists.find("r2", &other).is_none());
    traffic.tool_lists.keep(["r2"].into_iter());
    assert!(traffic.tool_lists.find("r1", &other).is_none());
    assert_eq!((traffic.tool_lists.len(), pool.held()), (0, 0));
}

#[tokio::test]
async fn an_answer_in_events_is_given_in_events() {
    let (traffic, pool) = (traffic(), pool(1 << 20, 1 << 20));
    let (whole, stream) = (list_of("a"), |text: &str| {
        format!(
            "id: 1_1\r\nretry: 5\r\ndata:\r\n\r\n: hi\r\nevent: message\r\nid: 1_2\r\ndata: {text}\r\n\r\n"
        )
    });
    let stream = stream(&whole);
    let (first, second) = stream.split_at(40);
    pass(store(&traffic, &pool, "me"), "r1", &asked(&[]), &[EVENTS], &[first, second]);
    let answer = traffic.tool_lists.find("r1", &asked(&[])).unwrap();
    assert_eq!(answer.headers()[CONTENT_TYPE], "text/event-stream");
    let wanted = r#"{"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"a"}]}}"#;
    assert_eq!(text(answer).await, format!("event: message\ndata: {wanted}\n\n"));
}

#[test]
fn only_a_plain_and_whole_list_is_kept() {
    let good = list_of("a");
    let session = ("mcp-session-id", "s");
    for (answered, body) in [
        (&[JSON, ("content-encoding", "gzip")][..], good.as_str()),
        (&[JSON, ("set-cookie", "a=b")], &good),
        (&[JSON, ("cache-control", "private, no-store")], &good),
        (&[JSON, session], &good),
        (&[("content-type", "text/plain")], &good),
        (&[], &good),
        (&[JSON], r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"no"}}"#),
        (&[JSON], r#"{"jsonrpc":"2.0","id":1,"result":{"tools":[],"nextCursor":"2"}}"#),
        (&[JSON], r#"{"jsonrpc":"2.0","id":1,"result":{}}"#),
        (&[JSON], &good.replace("\"id\":1", "\"id\":2")),
        (&[JSON], &good[..good.len() - 1]),
        (&[EVENTS], &format!("data: {good}\n\ndata: {good}\n\n")),
        (&[EVENTS], &format!("event: other\ndata: {good}\n\n")),
        (&[EVENTS], &format!("data: {good}")),
    ] {
        let (traffic, pool) = (traffic(), pool(1 << 20, 1 << 20));
        pass(store(&traffic, &pool, "me"), "r1", &asked(&[]), answered, &[body]);
        assert_eq!((traffic.tool_lists.len(), pool.held()), (0, 0), "{answered:?} {body}");
    }
}

#[test]
fn only_the_bare_question_is_one() {
    for body in [
        "",
        "[]",
        r#"[{"jsonrpc":"2.0","id":1,"method":"tools/list"}]"#,
        r#"{"jsonrpc":"2.0","method":"tools/list"}"#,
        r#"{"jsonrpc":"2.0","id":null,"method":"tools/list"}"#,
        r#"{"jsonrpc":"1.0","id":1,"method":"tools/list"}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call"}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","method":"initialize"}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","more":1}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"cursor":"2"}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"progressToken":1}}}"#,
    ] {
        assert!(asked_with(body, &[]).is_none(), "{body}");
    }
    let empty = r#"{"method":"tools/list","params":{},"id":1,"jsonrpc":"2.0"}"#;
    assert_eq!(asked_with(empty, &[]).unwrap(), asked(&[]));
    let other = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"a":1}}}"#;
    assert_ne!(asked_with(other, &[]).unwrap().digest, asked(&[]).digest);
}

#[test]
fn a_list_is_not_kept_if_something_else_was_asked_before_its_answer() {
    let (traffic, pool) = (traffic(), pool(1 << 20, 1 << 20));
    let (s, t) = (("mcp-session-id", "s"), ("mcp-session-id", "t"));
    let lists = &traffic.tool_lists;
    let [early, other] = [s, t].map(|session| (asked(&[session]), lists.ask(&asked(&[session]))));
    lists.forget_session(early.0.session.unwrap());
    let late = lists.ask(&early.0);
    let pass = |(asked, outdated), session, name: &str| {
        let store = store(&traffic, &pool, "me");
        pass_late(store, "r1", (asked, outdated), &[JSON, session], &[&list_of(name)]);
        lists.find("r1", asked).is_some()
    };
    assert!(!pass((&early.0, early.1), s, "old"), "the tools may have changed since");
    assert!(pass((&early.0, late), s, "new"));
    assert!(pass((&other.0, other.1), t, "a"), "another session has other tools");
}

#[test]
fn a_session_has_a_list_of_its_own_until_something_else_is_asked_in_it() {
    let (traffic, pool) = (traffic(), pool(1 << 20, 1 << 20));
    let (s, t) = (("mcp-session-id", "s"), ("mcp-session-id", "t"));
    pass(store(&traffic, &pool, "me"), "r1", &asked(&[s]), &[JSON, s], &[&list_of("a")]);
    let found = |sent: &[(&str, &str)]| traffic.tool_lists.find("r1", &asked(sent));
    assert_eq!(found(&[s]).unwrap().headers()["mcp-session-id"], "s");
    assert!(found(&[t]).is_none() && found(&[]).is_none());
    // A caller who only learned the session's name is somebody else.
    assert!(found(&[s, ("x-blaxel-subject-id", "other")]).is_none());
    traffic.tool_lists.forget_session(asked(&[t]).session.unwrap());
    assert!(found(&[s]).is_some());
    traffic.tool_lists.forget_session(asked(&[s]).session.unwrap());
    assert!(found(&[s]).is_none());
    assert_eq!(pool.held(), 0);
}

#[test]
fn who_keeps_too_much_loses_its_own_oldest() {
    let (mine, theirs, pool) = (traffic(), traffic(), pool(100_000, 40_000));
    let name = |number: u32| format!("{number}{}", "x".repeat(9_000));
    let of = |number: u32| asked(&[("accept", &format!("v{number}"))]);
    pass(store(&theirs, &pool, "them"), "r1", &of(0), &[JSON], &[&list_of(&name(0))]);
    for number in 0..4 {
        pass(store(&mine, &pool, "me"), "r1", &of(number), &[JSON], &[&list_of(&name(number))]);
    }
    let there = |number: u32| mine.tool_lists.find("r1", &of(number)).is_some();
    assert!(!there(0) && there(3));
    assert!(theirs.tool_lists.find("r1", &of(0)).is_some());
    assert!(pool.held_by(&"me".to_owned()) <= 40_000);
    // An answer that is too large to copy passes uncopied.
    let large = list_of(&"x".repeat(200_000));
    pass(store(&theirs, &pool, "them"), "r2", &of(9), &[JSON], &[&large]);
    assert!(theirs.tool_lists.find("r2", &of(9)).is_none());
    drop(mine);
    drop(theirs);
    assert_eq!(pool.held(), 0);
}

proptest! {
    #[test]
    fn any_bytes_are_read_as_a_question_or_not(body in ".{0,80}", bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        asked_with(&body, &[]);
        only_message(&bytes);
        result_of(&bytes, &Id::Number(1));
    }

    #[test]
    fn whatever_differs_in_a_request_differs_in_what_is_kept(
        one in prop::collection::vec(("[a-c]", "[a-z]{0,3}"), 0..4),
        other in prop::collection::vec(("[a-c]", "[a-z]{0,3}"), 0..4),
    ) {
        fn sent(all: &[(String, String)]) -> Vec<(&str, &str)> {
            all.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect()
        }
        fn sorted(all: &[(String, String)]) -> Vec<(&str, &str)> {
            let mut all = sent(all);
            all.sort_by_key(|(name, _)| *name);
            all
        }
        let same = asked(&sent(&one)).digest == asked(&sent(&other)).digest;
        prop_assert_eq!(same, sorted(&one) == sorted(&other));
    }

    #[test]
    fn a_message_survives_its_stream(text in "[ -~]{1,60}") {
        let stream = format!("data: {text}\n\n");
        prop_assert_eq!(only_message(stream.as_bytes()), Some(text));
    }

    #[test]
    fn no_order_of_events_exceeds_the_share(steps in prop::collection::vec((0u8..4, 0u32..6, 0usize..9_000), 0..40)) {
        let (traffic, pool) = (traffic(), pool(200_000, 40_000));
        for (step, number, size) in steps {
            let session = format!("s{number}");
            let sent = [("mcp-session-id", session.as_str())];
            let asked = asked(if step < 2 { &sent } else { &[] });
            match step {
                0 => traffic.tool_lists.forget_session(asked.session.unwrap()),
                1 | 2 => {
                    let revision = format!("r{number}");
                    let list = list_of(&"x".repeat(size));
                    pass(store(&traffic, &pool, "me"), &revision, &asked, &[JSON], &[&list]);
                    prop_assert!(traffic.tool_lists.find(&revision, &asked).is_some());
                }
                _ => traffic.tool_lists.keep(["r1", "r2"].into_iter()),
            }
            prop_assert!(pool.held() <= 40_000);
            prop_assert_eq!(traffic.tool_lists.len() == 0, pool.held() == 0);
        }
    }
}
