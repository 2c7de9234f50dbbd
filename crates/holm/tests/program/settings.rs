//! Settings, given in a file, of a server that runs no workloads: the effect of each can be seen
//! from outside. Settings of machines and of workloads are tested elsewhere.

use crate::common::{Server, holm, text, write};
use reqwest::blocking::{Client, RequestBuilder, Response};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// Nothing takes longer, however busy the machine is.
const PATIENCE: Duration = Duration::from_secs(60);

struct Caller {
    server: Server,
    http: Client,
    key: String,
}

/// Starts a server with these settings in its file.
fn start(text: &str) -> Caller {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "holm.toml", text);
    let server = Server::start_in(folder);
    let key = server.api_key();
    // Fails only if it is already installed.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let http = Client::builder().no_proxy().timeout(PATIENCE).build().unwrap();
    Caller { server, http, key }
}

impl Caller {
    fn stranger(&self, method: &str, path: &str) -> RequestBuilder {
        self.http.request(method.parse().unwrap(), format!("{}{path}", self.server.url()))
    }

    fn member(&self, method: &str, path: &str) -> RequestBuilder {
        self.stranger(method, path).bearer_auth(&self.key)
    }

    fn status(&self, method: &str, path: &str, body: &Value) -> (u16, String) {
        said(self.member(method, path).json(body).send().unwrap())
    }

    #[track_caller]
    fn get(&self, path: &str) -> Value {
        let (status, text) = said(self.member("GET", path).send().unwrap());
        assert_eq!(status, 200, "{path}: {text}");
        serde_json::from_str(&text).unwrap()
    }

    fn account(&self) -> String {
        let account = &self.get("/v0/accounts")[0];
        format!("/v0/accounts/{}", account["id"].as_str().unwrap_or_else(|| panic!("{account}")))
    }

    /// Sends the head of a request whose body does not come.
    fn begin(&self, line: &str, more: &str) -> TcpStream {
        let mut stream = TcpStream::connect(&self.server.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let head = format!("Host: h\r\nAuthorization: Bearer {}\r\nContent-Length: 9", self.key);
        write!(stream, "{line} HTTP/1.1\r\n{head}\r\n{more}\r\n").unwrap();
        stream
    }
}

fn start_of_answer(stream: &mut TcpStream) -> String {
    let mut start = [0; 12];
    stream.read_exact(&mut start).unwrap();
    String::from_utf8_lossy(&start).into_owned()
}

fn said(response: Response) -> (u16, String) {
    (response.status().as_u16(), response.text().unwrap())
}

fn policy(name: &str) -> Value {
    let tokens = json!({"granularity": "day", "step": 1, "total": 5});
    json!({"metadata": {"name": name}, "spec": {"type": "maxToken", "maxTokens": tokens}})
}

#[test]
fn bodies_are_as_large_as_the_settings_say() {
    let caller = start("[server]\nbody_bytes_max = 1000");
    assert_eq!(caller.status("POST", "/v0/policies", &policy("small")).0, 200);
    let (status, said) = caller.status("POST", "/v0/policies", &policy(&"x".repeat(1000)));
    assert!(status == 413 && said.contains("1000"), "{status} {said}");
}

#[test]
fn a_file_of_authorities_that_has_none_ends_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let mut up = holm(folder.path());
    up.args(["up", "--data", "data", "--listen", "127.0.0.1:0"]);
    let told = text(&up.env("HOLM_MODELS__AUTHORITIES", "/dev/null").output().unwrap(), 1);
    assert!(told.contains("(models.authorities)") && told.contains("no certificate"), "{told}");
}

#[test]
fn a_collector_that_nobody_reaches_is_reported_once() {
    let caller = start("[telemetry]\notlp_endpoint = \"http://127.0.0.1:1\"");
    caller.get("/v0/policies");
    let (_, log, _folder) = caller.server.stop();
    for part in ["traces cannot be sent", "the last traces could not be sent"] {
        assert_eq!(log.matches(part).count(), 1, "{log}");
    }
}

#[test]
fn sign_in_over_tls_has_cookies_of_its_own_however_the_address_is_written() {
    let caller = start("[server]\npublic_url = \"HTTPS://Holm.Test\"");
    let page = caller.stranger("GET", "/oauth/sign-in").send().unwrap();
    let cookies = page.headers().get_all("set-cookie").iter();
    let cookies: Vec<_> = cookies.map(|cookie| cookie.to_str().unwrap().to_owned()).collect();
    assert!(!cookies.is_empty());
    for cookie in cookies {
        assert!(cookie.starts_with("__Host-") && cookie.contains("; Secure"), "{cookie}");
    }
}

#[test]
fn a_request_takes_no_longer_than_the_settings_say() {
    let caller = start("[server]\nrequest_timeout = \"500ms\"");
    let mut stream = caller.begin("POST /v0/policies", "");
    assert_eq!(start_of_answer(&mut stream), "HTTP/1.1 503");
}

#[test]
fn a_server_that_ends_waits_as_long_as_the_settings_say() {
    // Far below the default of 20 s.
    let caller = start("[server]\ndrain_timeout = \"500ms\"");
    let mut stream = caller.begin("POST /v0/policies", "Expect: 100-continue\r\n");
    // The server has asked for the body, so the request is in flight.
    assert_eq!(start_of_answer(&mut stream), "HTTP/1.1 100");
    let (status, log, _folder) = caller.server.stop();
    assert!(status.success() && log.contains("cut off"), "{log}");
}

#[test]
fn streams_are_as_many_as_the_settings_say() {
    for (setting, status) in
        [("streams_max", 503), ("streams_workspace_max", 429), ("streams_key_max", 429)]
    {
        let caller = start(&format!("[server]\n{setting} = 1"));
        let first = caller.member("GET", "/v0/changes").send().unwrap();
        assert_eq!(first.status().as_u16(), 200);
        let (refused, why) = said(caller.member("GET", "/v0/changes").send().unwrap());
        assert_eq!(refused, status, "{setting}: {why}");
    }
}

#[test]
fn a_workspace_has_as_many_of_a_kind_as_the_settings_say() {
    let spec = |spec: Value| json!({"metadata": {"name": "NAME"}, "spec": spec});
    let image = json!({"runtime": {"image": "holm/base"}});
    let custom = json!({"region": "local", "type": "previews"});
    let kinds = [
        ("agents", "agents", spec(image.clone())),
        ("applications", "applications", spec(image.clone())),
        ("connections", "integrations/connections", spec(json!({"integration": "slack"}))),
        ("customdomains", "customdomains", spec(custom)),
        ("drives", "drives", spec(json!({"region": "local"}))),
        ("functions", "functions", spec(image.clone())),
        ("jobs", "jobs", spec(image.clone())),
        ("models", "models", spec(json!({}))),
        ("policies", "policies", policy("NAME")["spec"].clone()),
        ("sandboxes", "sandboxes", spec(image)),
        ("volumes", "volumes", spec(json!({"size": 64}))),
    ];
    let lines = kinds.iter().map(|(setting, ..)| format!("{setting} = 1\n"));
    let caller = start(&format!("[limits.quotas]\n{}", lines.collect::<String>()));
    for (setting, path, wish) in kinds {
        let name = |name: &str| {
            if path == "customdomains" { format!("{name}.example.org") } else { name.to_owned() }
        };
        let wish = if setting == "policies" { policy("NAME") } else { wish };
        let wish = |which: &str| -> Value {
            serde_json::from_str(&wish.to_string().replace("NAME", &name(which))).unwrap()
        };
        let (status, why) = caller.status("POST", &format!("/v0/{path}"), &wish("one"));
        assert_eq!(status, 200, "{setting}: {why}");
        let (status, why) = caller.status("POST", &format!("/v0/{path}"), &wish("two"));
        assert!([400, 403].contains(&status), "{setting}: {status} {why}");
        assert!(why.contains('1'), "{setting}: {why}");
    }
}

#[test]
fn kinds_without_a_quota_and_plain_lists_have_their_limits() {
    let caller = start("[limits]\nobjects_max = 1\nbare_list_max = 1");
    let template = |name: &str| json!({"metadata": {"name": name}, "spec": {"defaultSize": 64}});
    assert_eq!(caller.status("POST", "/v0/volume_templates", &template("a")).0, 200);
    let (status, why) = caller.status("POST", "/v0/volume_templates", &template("b"));
    assert_eq!(status, 403, "{why}");
    // Policies have a quota of their own.
    for name in ["a", "b"] {
        assert_eq!(caller.status("POST", "/v0/policies", &policy(name)).0, 200);
    }
    let (status, why) = said(caller.member("GET", "/v0/policies").send().unwrap());
    assert!(status == 400 && why.contains("more than 1"), "{status} {why}");
}

#[test]
fn device_codes_are_counted_by_address_and_who_says_it_is_told_by_the_settings() {
    let asks = |settings: &str| {
        let caller = start(settings);
        ["192.0.2.1", "192.0.2.1", "192.0.2.2"].map(|from| {
            let asked = caller.stranger("POST", "/v0/login/device").header("X-Forwarded-For", from);
            asked.json(&json!({"client_id": "blaxel"})).send().unwrap().status().as_u16()
        })
    };
    let limited = "[auth]\nclient_devices_max = 1\n";
    assert_eq!(asks(&format!("{limited}[gateway]\ntrust_forwarded = true")), [200, 429, 200]);
    // All from this machine itself, which is not limited.
    assert_eq!(asks(limited), [200, 200, 200]);
}

#[test]
fn the_oldest_device_code_makes_room() {
    let caller = start("[auth]\ndevices_max = 1");
    let device = || -> Value {
        let asked =
            caller.stranger("POST", "/v0/login/device").json(&json!({"client_id": "blaxel"}));
        asked.send().unwrap().json().unwrap()
    };
    let poll = |device: &Value| -> Value {
        let grant = "urn:ietf:params:oauth:grant-type:device_code";
        let wish = json!({"grant_type": grant, "client_id": "blaxel", "device_code": device["device_code"]});
        caller.stranger("POST", "/v0/oauth/token").json(&wish).send().unwrap().json().unwrap()
    };
    let (first, second) = (device(), device());
    assert_eq!(poll(&second)["error"], "authorization_pending");
    assert_ne!(poll(&first)["error"], "authorization_pending");
}

#[test]
fn the_first_start_makes_what_the_settings_say() {
    let caller = start(
        "[first_start]\nadmin_email = \"me@example.org\"\naccount = \"Ours\"\nworkspace = \"team\"\n\
         [meter.prices]\nvolume_storage_gbs = \"0.25\"",
    );
    assert!(caller.server.greeting().contains("me@example.org"));
    assert_eq!(caller.get("/v0/accounts")[0]["name"], "Ours");
    assert_eq!(caller.get("/v0/workspaces")[0]["name"], "team");
    let prices = caller.get(&format!("{}/prices", caller.account())).to_string();
    assert!(prices.contains("0.25"), "{prices}");
}

#[test]
fn an_account_has_as_many_budgets_as_the_settings_say() {
    let caller = start("[meter]\nbudgets_max = 1\npoints_max = 10");
    let budgets = format!("{}/budgets", caller.account());
    let put =
        |name: &str| caller.status("PUT", &format!("{budgets}/{name}"), &json!({"amount": "5"}));
    assert_eq!(put("one").0, 200);
    let (status, why) = put("two");
    assert!(status != 200 && why.contains("1 budget"), "{status} {why}");
}
