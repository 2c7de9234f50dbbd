//! Settings of models, given in a file: the effect of each can be seen from outside.

use crate::provider::Provider;
use crate::settings::{end, start};
use crate::setup::{Client, Place, eventually};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpStream;
use testing::Holm;

/// Starts a server with these settings for models in its file.
fn serve(text: &str) -> (Holm, Place, Client) {
    start(&format!("[models]\ninside = [\"127.0.0.1\"]\n{text}"))
}

/// Makes a model of OpenAI's that is at a different address.
pub(crate) fn model(client: &Client, name: &str, endpoint: &str, more: &Value) {
    let connection = json!({"integration": "openai", "config": {"endpoint": endpoint},
        "secret": {"apiKey": "sk"}});
    let wish = json!({"metadata": {"name": name}, "spec": connection});
    client.done("POST", "/v0/integrations/connections", Some(&wish));
    let mut spec = json!({"integrationConnections": [name],
        "runtime": {"type": "openai", "model": "gpt-4o"}});
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    client.done("POST", "/v0/models", Some(&json!({"metadata": {"name": name}, "spec": spec})));
}

pub(crate) fn path(name: &str) -> String {
    format!("/main/models/{name}/v1/chat/completions")
}

pub(crate) fn chat(text: &str, stream: bool) -> Value {
    json!({"messages": [{"role": "user", "content": text}], "max_tokens": 5, "stream": stream})
}

/// Returns the status, and the whole answer as text.
fn ask(client: &Client, name: &str) -> (u16, String) {
    let (status, body) = client.ask("POST", &path(name), Some(&chat("hi", false))).unwrap();
    (status, body.to_string())
}

fn stream(client: &Client, name: &str) -> (u16, String) {
    let (status, body) = client.ask("POST", &path(name), Some(&chat("hi", true))).unwrap();
    (status, body.to_string())
}

/// Sends a request that announces a body of this length, and only this much of the body.
fn begin(client: &Client, name: &str, length: usize, come: &str) -> TcpStream {
    let mut stream = TcpStream::connect(client.base.trim_start_matches("http://")).unwrap();
    let head = format!("Authorization: Bearer {}\r\nContent-Length: {length}", client.key);
    write!(stream, "POST {} HTTP/1.1\r\nHost: holm\r\n{head}\r\n\r\n{come}", path(name)).unwrap();
    stream
}

#[track_caller]
fn fails(asked: &(u16, String), status: u16, code: &str) {
    assert_eq!(asked.0, status, "{asked:?}");
    assert!(asked.1.contains(code), "{asked:?}");
}

#[test]
fn requests_to_models_are_as_large_as_the_settings_say() {
    let (provider, text) = (Provider::start(), "body_bytes_max = 1000\nbody_timeout = \"1s\"");
    let here = serve(text);
    let client = &here.2;
    model(client, "m", &provider.at("plain"), &json!({}));
    assert_eq!(ask(client, "m").0, 200);
    let large = chat(&"x".repeat(1000), false);
    assert_eq!(client.ask("POST", &path("m"), Some(&large)).unwrap().0, 413);
    let mut answer = String::new();
    begin(client, "m", 900, "{").read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
    assert_eq!(provider.asked("plain"), 1);
    end(here);
}

#[test]
fn bodies_that_are_under_way_take_as_much_as_the_settings_say() {
    for (setting, status) in
        [("bodies_workspace_bytes_max = 200000", 429), ("bodies_bytes_max = 200000", 503)]
    {
        let text = format!("{setting}\nbody_bytes_max = 200000");
        let (provider, here) = (Provider::start(), serve(&text));
        let client = &here.2;
        model(client, "m", &provider.at("plain"), &json!({}));
        let mut held = Vec::new();
        eventually("the next is refused", || {
            held.push(begin(client, "m", 900, "{"));
            ask(client, "m").0 == status
        });
        drop(held);
        eventually("its room is free", || ask(client, "m").0 == 200);
        end(here);
    }
}

#[test]
fn providers_may_take_as_long_as_the_settings_say() {
    let provider = Provider::start();
    // Connections to this address are never accepted, because its queue is full.
    let full = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    full.bind(&"127.0.0.1:0".parse::<std::net::SocketAddr>().unwrap().into()).unwrap();
    full.listen(0).unwrap();
    let address = full.local_addr().unwrap().as_socket().unwrap();
    let soon = std::time::Duration::from_millis(200);
    let queue: Vec<TcpStream> =
        std::iter::from_fn(|| TcpStream::connect_timeout(&address, soon).ok()).collect();
    let once = json!({"routing": {"retries": 0}});
    let unanswered = [
        ("connect_timeout", format!("http://{address}")),
        ("first_timeout", provider.at("slow=60000")),
    ];
    for (setting, endpoint) in unanswered {
        let here = serve(&format!("{setting} = \"1s\""));
        model(&here.2, "m", &endpoint, &once);
        fails(&ask(&here.2, "m"), 504, "MODEL_PROVIDER_TIMEOUT");
        end(here);
    }
    drop(queue);
    for (setting, manner) in
        [("between_timeout", "gap=60000"), ("answer_timeout", "gap=200,pieces=100000")]
    {
        let here = serve(&format!("{setting} = \"5s\""));
        model(&here.2, "m", &provider.at(manner), &once);
        model(&here.2, "quick", &provider.at("gap=10,pieces=10"), &once);
        // The stream had started in time, so later failures are reported inside it.
        fails(&stream(&here.2, "m"), 200, "MODEL_PROVIDER_TIMEOUT");
        assert!(stream(&here.2, "quick").1.contains("[DONE]"));
        end(here);
    }
}

#[test]
fn answers_of_providers_are_as_large_as_the_settings_say() {
    let provider = Provider::start();
    let here = serve("head_bytes_max = 8192\nanswer_bytes_max = 2000\nevent_bytes_max = 2000");
    let client = &here.2;
    let once = json!({"routing": {"retries": 0}});
    model(client, "m", &provider.at("plain"), &once);
    model(client, "head", &provider.at("head=20000"), &once);
    model(client, "long", &provider.at("long=3000"), &once);
    assert_eq!(ask(client, "m").0, 200);
    fails(&ask(client, "head"), 502, "MODEL_PROVIDER_FAILED");
    fails(&ask(client, "long"), 502, "MODEL_PROVIDER_FAILED");
    // An event that is passed on unchanged may have any length; one that is translated is read
    // whole.
    assert!(stream(client, "long").1.contains("[DONE]"));
    let wish = json!({"max_tokens": 5, "stream": true, "model": "m",
        "messages": [{"role": "user", "content": "hi"}]});
    let translated = |name: &str| {
        let path = format!("/main/models/{name}/v1/messages");
        client.ask("POST", &path, Some(&wish)).unwrap().1.to_string()
    };
    assert!(translated("m").contains("message_stop"));
    assert!(translated("long").contains("event: error"));
    end(here);
}

#[test]
fn models_are_asked_as_often_as_the_settings_say() {
    let provider = Provider::start();
    let text = "attempts_max = 2\nretry_pause = \"1ms\"\nretry_after_max = \"2s\"";
    let here = serve(text);
    let client = &here.2;
    let then = |next: &str| json!({"routing": {"retries": 0, "fallbacks": [{"model": next}]}});
    model(client, "good", &provider.at("plain"), &json!({}));
    model(client, "second", &provider.at("fail=500,second"), &then("good"));
    model(client, "first", &provider.at("fail=500,first"), &then("second"));
    assert_eq!(ask(client, "second").0, 200, "the good one is the second");
    assert_eq!(ask(client, "first").0, 500, "the good one would be the third");
    model(client, "again", &provider.at("fail=503,again=1"), &json!({}));
    assert_eq!(ask(client, "again").0, 503);
    assert_eq!(provider.asked("fail=503,again=1"), 2);
    model(client, "later", &provider.at("fail=503,again=3"), &json!({}));
    assert_eq!(ask(client, "later").0, 503);
    assert_eq!(provider.asked("fail=503,again=3"), 1, "it wants to be left alone for longer");
    end(here);
}

#[test]
fn retries_and_failures_in_a_row_are_as_many_as_the_settings_say() {
    let provider = Provider::start();
    let breaker = "breaker_failures = 20\nbreaker_window = \"1m\"\nbreaker_pause = \"2s\"";
    let here = serve(&format!("retry_percent = 0\nretry_pause = \"1ms\"\n{breaker}"));
    let client = &here.2;
    model(client, "m", &provider.at("fail=500"), &json!({"routing": {"retries": 3}}));
    for _ in 0..6 {
        assert_eq!(ask(client, "m").0, 500);
    }
    // A model starts with five saved retries, and earns none.
    assert_eq!(provider.asked("fail=500"), 11);
    eventually("it is left alone", || ask(client, "m").1.contains("MODEL_RESTING"));
    let asked = provider.asked("fail=500");
    assert_eq!(asked, 20);
    eventually("it is tried again", || {
        ask(client, "m");
        provider.asked("fail=500") == asked + 1
    });
    end(here);
}

/// Returns the header that says whether an answer came from the cache.
fn cached(client: &Client, name: &str) -> String {
    let http = reqwest::blocking::Client::builder().no_proxy().build().unwrap();
    let request = http.post(format!("{}{}", client.base, path(name))).bearer_auth(&client.key);
    let answer = request.json(&chat("hi", false)).send().unwrap();
    answer.headers()["x-holm-cache"].to_str().unwrap().to_owned()
}

#[test]
fn answers_are_kept_that_are_no_larger_than_the_settings_say() {
    let cases = ["cache_answer_bytes_max", "cache_workspace_bytes_max", "cache_bytes_max"];
    for setting in cases {
        let (provider, here) = (Provider::start(), serve(&format!("{setting} = 2000")));
        let client = &here.2;
        let cache = json!({"cache": {"ttl": 300}});
        model(client, "short", &provider.at("plain"), &cache);
        model(client, "long", &provider.at("long=3000"), &cache);
        assert_eq!([cached(client, "short"), cached(client, "short")], ["miss", "hit"]);
        assert_eq!([cached(client, "long"), cached(client, "long")], ["miss", "miss"], "{setting}");
        end(here);
    }
}

#[test]
fn hooks_and_logs_are_bounded_as_the_settings_say() {
    let provider = Provider::start();
    let here = serve("hook_timeout = \"1s\"\nlog_body_bytes_max = 40");
    let client = &here.2;
    let hooks = json!([{"when": "before", "webhook": provider.at("slow=60000")}]);
    let log = json!({"enabled": true, "bodies": true});
    model(client, "hooked", &provider.at("plain"), &json!({"hooks": hooks}));
    model(client, "logged", &provider.at("plain"), &json!({"requestLog": log}));
    fails(&ask(client, "hooked"), 502, "MODEL_HOOK_FAILED");
    let marked = chat(&format!("{}END", "x".repeat(100)), false);
    assert_eq!(client.ask("POST", &path("logged"), Some(&marked)).unwrap().0, 200);
    eventually("it is logged", || {
        let path = "/v0/observability/logs?resourceType=models&workloadIds=logged";
        let logs = client.done("GET", path, None).to_string();
        assert!(!logs.contains("END"), "{logs}");
        logs.contains("messages")
    });
    end(here);
}

/// An answer costs at most half a cent, if the request does not limit its length.
const PRICE: &str = r#"
version = "mine"
[[price]]
providers = ["openai"]
models = ["priced"]
input = "0.01"
output = "10"
context = 128000
max_output = 500
"#;

#[test]
fn limits_count_what_the_settings_say() {
    let provider = Provider::start();
    let prices = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(prices.path(), PRICE).unwrap();
    let text = "output_tokens_max = 500\nlimit_wait_max = \"5s\"\nunpriced = true";
    let here = serve(&format!("{text}\nprices = \"{}\"", prices.path().display()));
    let client = &here.2;
    let limits = [("tight", "cost", json!("0.004")), ("wide", "cost", json!("0.006"))];
    for (name, what, amount) in limits.into_iter().chain([("tokens", "output", json!(1200))]) {
        let limit = json!({"granularity": "month", what: amount});
        let spec = json!({"type": "maxToken", "maxTokens": limit});
        let wish = json!({"metadata": {"name": name}, "spec": spec});
        client.done("POST", "/v0/policies", Some(&wish));
    }
    let of = |model: &str, policy: &str| json!({"runtime": {"type": "openai", "model": model}, "policies": [policy]});
    model(client, "tight", &provider.at("plain"), &of("priced", "tight"));
    model(client, "wide", &provider.at("plain"), &of("priced", "wide"));
    model(client, "free", &provider.at("plain"), &of("nobody-knows", "tight"));
    model(client, "held", &provider.at("slow=60000"), &of("priced", "wide"));
    let open = json!({"messages": [{"role": "user", "content": "hi"}]});
    let asked = |name: &str| client.ask("POST", &path(name), Some(&open)).unwrap();
    let (status, why) = asked("tight");
    fails(&(status, why.to_string()), 403, "MODEL_LIMIT_TOO_SMALL");
    assert_eq!(ask(client, "tight").0, 200, "it says that it wants 5");
    assert_eq!(asked("wide").0, 200);
    assert_eq!(asked("free").0, 200, "what has no price costs nothing");
    let whole = open.to_string();
    let held = begin(client, "held", whole.len(), &whole);
    eventually("nobody waits for longer", || {
        provider.asked("slow=60000") == 1 && asked("held").0 == 429
    });
    assert_eq!(provider.asked("slow=60000"), 1);
    // For an unknown model, 500 tokens are reserved, so two requests can be in progress at once.
    model(client, "long", &provider.at("slow=9000"), &of("nobody-knows", "tokens"));
    let long = [(); 2].map(|()| begin(client, "long", whole.len(), &whole));
    eventually("both are asked", || provider.asked("slow=9000") == 2);
    drop((held, long));
    end(here);
}

#[test]
fn lists_of_models_are_kept_as_long_as_the_settings_say() {
    let list = |client: &Client, name: &str| {
        let path = format!("/v0/integrations/connections/{name}/models");
        let list = client.done("GET", &path, None).to_string();
        assert!(list.contains("of-the-provider"), "{list}");
    };
    for (setting, asked) in [("list_life = \"1h\"", 1), ("lists_max = 1", 3)] {
        let (provider, here) = (Provider::start(), serve(setting));
        let client = &here.2;
        model(client, "m", &provider.at("one"), &json!({}));
        model(client, "n", &provider.at("two"), &json!({}));
        ["m", "n", "m", "n", "m"].iter().for_each(|name| list(client, name));
        assert_eq!(provider.asked("one"), asked, "{setting}");
        end(here);
    }
    let (provider, here) = (Provider::start(), serve("list_life = \"100ms\""));
    model(&here.2, "m", &provider.at("one"), &json!({}));
    eventually("it is asked for again", || {
        list(&here.2, "m");
        provider.asked("one") > 2
    });
    end(here);
}

/// Returns the status of a request on behalf of an end user.
fn asked_by(client: &Client, name: &str, user: &str) -> u16 {
    let http = reqwest::blocking::Client::builder().no_proxy().build().unwrap();
    let request = http.post(format!("{}{}", client.base, path(name))).bearer_auth(&client.key);
    let request = request.header("X-Holm-End-User", user).json(&chat("hi", false));
    request.send().unwrap().status().as_u16()
}

fn limited(client: &Client, name: &str, limit: Value) {
    let spec = json!({"type": "maxToken", "maxTokens": limit});
    let wish = json!({"metadata": {"name": name}, "spec": spec});
    client.done("POST", "/v0/policies", Some(&wish));
}

#[test]
fn limits_are_counted_for_as_many_as_the_settings_say() {
    for setting in ["limit_accounts_workspace_max", "limit_accounts_max"] {
        let (provider, here) = (Provider::start(), serve(&format!("{setting} = 3")));
        let client = &here.2;
        limited(client, "p", json!({"granularity": "month", "requests": 9, "per": "endUser"}));
        model(client, "m", &provider.at("plain"), &json!({"policies": ["p"]}));
        let statuses = ["a", "b", "c", "d", "a"].map(|user| asked_by(client, "m", user));
        assert_eq!(statuses, [200, 200, 200, 503, 200], "{setting}");
        end(here);
    }
}

#[test]
fn as_many_wait_for_a_limit_as_the_settings_say() {
    for setting in ["limit_waiting_workspace_max", "limit_waiting_max"] {
        let text = format!("{setting} = 1\nlimit_wait_max = \"10m\"\nunpriced = true");
        let (provider, here) = (Provider::start(), serve(&text));
        let client = &here.2;
        limited(client, "p", json!({"granularity": "month", "total": 100}));
        model(client, "m", &provider.at("slow=600000"), &json!({"policies": ["p"]}));
        let whole = chat("hi", false).to_string();
        let send = || begin(client, "m", whole.len(), &whole);
        let first = send();
        eventually("the first is asked", || provider.asked("slow=600000") == 1);
        let second = send();
        // One of them waits, and the other is refused at once.
        let third = send();
        for stream in [&second, &third] {
            stream.set_nonblocking(true).unwrap();
        }
        let refused = |stream: &TcpStream| {
            let mut head = [0; 12];
            matches!(stream.peek(&mut head), Ok(12)) && &head == b"HTTP/1.1 429"
        };
        eventually("one is refused", || refused(&second) != refused(&third));
        assert_eq!(provider.asked("slow=600000"), 1, "{setting}");
        drop((first, second, third));
        end(here);
    }
}

#[test]
fn as_many_are_asked_for_lists_and_tokens_as_the_settings_say() {
    for (setting, status) in [("lists_asked_workspace_max", 429), ("lists_asked_max", 503)] {
        let (provider, here) = (Provider::start(), serve(&format!("{setting} = 1")));
        let client = &here.2;
        model(client, "m", &provider.at("slow=20000"), &json!({}));
        model(client, "n", &provider.at("plain"), &json!({}));
        let list = |name: &str| format!("/v0/integrations/connections/{name}/models");
        std::thread::scope(|scope| {
            scope.spawn(|| client.ask("GET", &list("m"), None));
            eventually("it is asked", || provider.asked("slow=20000") == 1);
            assert_eq!(client.ask("GET", &list("n"), None).unwrap().0, status, "{setting}");
        });
        assert_eq!(client.ask("GET", &list("n"), None).unwrap().0, 200, "{setting}");
        end(here);
    }
}
