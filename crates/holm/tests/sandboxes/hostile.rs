//! A tenant at the edge with every key but the right one: objects of others get the same answer as
//! missing ones, and nothing of theirs can be reached.

use crate::domains::echoing;
use crate::setup::{Client, Place};
use reqwest::blocking;
use serde_json::{Value, json};

const DOMAIN: &str = "holm.test";
/// Two names of the same length. The honest tenant has the first.
const HONEST: &str = "honest";
const ABSENT: &str = "absent";

/// A way to request something from a sandbox or a model. `{name}` is its name.
struct Way {
    method: &'static str,
    host: &'static str,
    path: &'static str,
}

const fn by_path(method: &'static str, path: &'static str) -> Way {
    Way { method, host: "", path }
}

const fn by_host(host: &'static str, path: &'static str) -> Way {
    Way { method: "GET", host, path }
}

const WAYS: [Way; 21] = [
    by_path("GET", "/main/sandboxes/{name}"),
    by_path("GET", "/main/sandboxes/{name}/health"),
    by_path("GET", "/run/main/sandboxes/{name}/health"),
    by_path("GET", "/main/sandboxes/{name}/process"),
    by_path("POST", "/main/sandboxes/{name}/process"),
    by_path("GET", "/main/sandboxes/{name}/filesystem//etc/hostname"),
    by_path("PUT", "/main/sandboxes/{name}/filesystem//tmp/taken"),
    by_path("GET", "/main/sandboxes/{name}/watch/filesystem/tmp"),
    by_path("POST", "/main/sandboxes/{name}/mcp"),
    by_path("POST", "/main/sandboxes/{name}/upgrade"),
    by_path("GET", "/main/sandboxes/{name}/port/3000/"),
    by_path("PUT", "/main/sandboxes/{name}/network/tunnel/config"),
    by_path("DELETE", "/main/sandboxes/{name}/network/tunnel"),
    by_host("sbx-{name}-main.holm.test", "/health"),
    by_host("sbx-{name}-main.local.holm.test", "/process"),
    by_host("SBX-{name}-MAIN.holm.test.", "/port/3000/"),
    by_path("POST", "/main/models/{name}"),
    by_path("POST", "/main/models/{name}/v1/chat/completions"),
    by_path("GET", "/main/models/{name}/v1/models"),
    by_path("POST", "/run/main/models/{name}/v1/messages"),
    by_path("POST", "/main/models/{name}/v1beta/models/x:generateContent"),
];

/// Credentials of a caller who has no right here.
struct Shown {
    what: &'static str,
    header: (&'static str, String),
    query: String,
}

fn shown(what: &'static str, name: &'static str, value: String) -> Shown {
    Shown { what, header: (name, value), query: String::new() }
}

struct Caller {
    http: blocking::Client,
    base: String,
}

impl Caller {
    fn new(base: &str) -> Self {
        let http =
            blocking::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none());
        Self { http: http.build().unwrap(), base: base.to_owned() }
    }

    /// Returns status and body, with the requested name replaced.
    fn ask(&self, way: &Way, name: &str, shown: &Shown) -> (u16, String) {
        let path = way.path.replace("{name}", name);
        let url = format!("{}{path}{}", self.base, shown.query);
        let mut request = self
            .http
            .request(way.method.parse().unwrap(), url)
            .header(shown.header.0, &shown.header.1);
        if !way.host.is_empty() {
            request = request.header("host", way.host.replace("{name}", name));
        }
        let answer = request.json(&json!({"command": "touch /tmp/taken"})).send().unwrap();
        let status = answer.status().as_u16();
        let text = answer.text().unwrap().replace(name, "<name>");
        (status, without_time(&text))
    }
}

/// Removes the time from an error of the edge.
fn without_time(text: &str) -> String {
    let Ok(mut body) = serde_json::from_str::<Value>(text) else { return text.to_owned() };
    if let Some(error) = body.get_mut("error").and_then(Value::as_object_mut) {
        error.remove("timestamp");
    }
    body.to_string()
}

fn preview(client: &Client, workspace: &str, sandbox: &str) -> (String, String) {
    let base = format!("/v0/sandboxes/{sandbox}/previews");
    let wish = json!({"metadata": {"name": "web"}, "spec": {"port": 3000, "public": false}});
    let made = client.done("POST", &format!("{base}?workspace={workspace}"), Some(&wish));
    let wish = json!({"metadata": {"name": "token"}, "spec": {}});
    let token =
        client.done("POST", &format!("{base}/web/tokens?workspace={workspace}"), Some(&wish));
    (
        made["spec"]["url"].as_str().unwrap().to_owned(),
        token["spec"]["token"].as_str().unwrap().to_owned(),
    )
}

/// Makes a key that only opens the workspace.
fn key_of(client: &Client, workspace: &str, robot: &str, wish: &Value) -> String {
    let here = |path: &str| format!("{path}?workspace={workspace}");
    let robot = client.done("POST", &here("/v0/service_accounts"), Some(&json!({"name": robot})));
    let id = robot["client_id"].as_str().unwrap();
    client.done("PUT", &here(&format!("/v0/users/{id}")), Some(&json!({"role": "admin"})));
    let keys = here(&format!("/v0/service_accounts/{id}/api_keys"));
    client.done("POST", &keys, Some(wish))["apiKey"].as_str().unwrap().to_owned()
}

/// Makes a model whose provider is never reached.
fn model(client: &Client, workspace: &str, name: &str) {
    let here = |path: &str| format!("{path}?workspace={workspace}");
    let config = json!({"endpoint": "https://provider.invalid/"});
    let spec =
        json!({"integration": "openai", "config": config, "secret": {"apiKey": "sk-of-honest"}});
    let wish = json!({"metadata": {"name": "provider"}, "spec": spec});
    client.done("POST", &here("/v0/integrations/connections"), Some(&wish));
    let spec = json!({"runtime": {"type": "openai"}, "integrationConnections": ["provider"]});
    let wish = json!({"metadata": {"name": name}, "spec": spec});
    client.done("POST", &here("/v0/models"), Some(&wish));
}

#[test]
fn what_is_somebody_elses_is_not_reached_at_the_edge() {
    let mut place = Place::new("15s");
    place.settings.push(("HOLM_GATEWAY__DOMAINS", format!("[\"{DOMAIN}\"]")));
    let (server, client) = place.start();
    client.done("POST", "/v0/workspaces", Some(&json!({"name": "thief"})));
    echoing(&client, "main", HONEST);
    echoing(&client, "thief", "mine");
    model(&client, "main", HONEST);
    model(&client, "thief", "mine");
    let (preview_url, _) = preview(&client, "main", HONEST);
    let (_, token) = preview(&client, "thief", "mine");
    let key = key_of(&client, "thief", "robot", &json!({"name": "key"}));
    let of_models = json!({"name": "models", "models": [HONEST, ABSENT]});
    let of_models = key_of(&client, "thief", "reader", &of_models);
    let wrong = [
        shown("nothing", "x-nothing", "x".into()),
        shown("a key of another workspace", "authorization", format!("Bearer {key}")),
        shown(
            "a key of another workspace, as the clients send it",
            "x-blaxel-authorization",
            format!("Bearer {key}"),
        ),
        shown(
            "a made-up key",
            "authorization",
            "Bearer hk_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa".into(),
        ),
        shown("a key of another workspace, as to Anthropic", "x-api-key", key.clone()),
        shown("a key of another workspace, as to Google", "x-goog-api-key", key.clone()),
        shown(
            "a key for models of this name, of another workspace",
            "authorization",
            format!("Bearer {of_models}"),
        ),
        Shown {
            what: "a key of another workspace in the address",
            header: ("x-nothing", "x".into()),
            query: format!("?key={key}&workspace=thief"),
        },
        shown("a preview token of another workspace", "x-blaxel-preview-token", token.clone()),
        shown(
            "a cookie of another preview",
            "cookie",
            format!("holm_preview={token}; holm_session={token}"),
        ),
        Shown {
            what: "a preview token in the address",
            header: ("x-nothing", "x".into()),
            query: format!("?bl_preview_token={token}&workspace=thief"),
        },
    ];
    let caller = Caller::new(&client.base);
    for shown in &wrong {
        for way in &WAYS {
            let (theirs, absent) = (caller.ask(way, HONEST, shown), caller.ask(way, ABSENT, shown));
            assert!((400..500).contains(&theirs.0), "{} with {}: {theirs:?}", way.path, shown.what);
            assert_eq!(
                theirs, absent,
                "{} {} with {} tells what is there",
                way.host, way.path, shown.what
            );
        }
        let (base, way) = (Caller::new(preview_url.trim_end_matches('/')), by_path("GET", "/"));
        let (status, text) = base.ask(&way, HONEST, shown);
        assert!(
            [401, 403].contains(&status),
            "a private preview with {}: {status} {text}",
            shown.what
        );
    }
    assert_eq!(client.run(HONEST, "ls /tmp/taken 2>/dev/null || echo untouched"), "untouched\n");
    for (workspace, name) in [("main", HONEST), ("thief", "mine")] {
        client.done("DELETE", &format!("/v0/sandboxes/{name}?workspace={workspace}"), None);
        client.done("DELETE", &format!("/v0/models/{name}?workspace={workspace}"), None);
    }
    client.done("DELETE", "/v0/workspaces/thief", None);
    place.clear(server, &client);
}
