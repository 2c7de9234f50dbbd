//! Hosts of a custom domain lead to the sandboxes of their previews, and to nothing else.

use crate::dns::NameServer;
use crate::setup::{Client, Place, body};
use serde_json::{Value, json};

/// Returns a path below the domain, for the workspace that owns it.
fn domain(below: &str) -> String {
    format!("/v0/customdomains/app.test{below}?workspace=main")
}

/// Answers with the head of the request.
const ECHO: &str = r#"cat > /tmp/echo <<'END'
all=
while read -r line; do line=${line%?}; [ -z "$line" ] && break; all="$all$line;"; done
printf 'HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %s\r\n\r\n%s' ${#all} "$all"
END"#;

/// Makes a sandbox that echoes at port 3000.
pub(crate) fn echoing(client: &Client, workspace: &str, name: &str) {
    serving(client, workspace, name, ECHO);
}

/// Makes a sandbox that answers at port 3000 with the script `/tmp/echo`, which `write` creates.
pub(crate) fn serving(client: &Client, workspace: &str, name: &str, write: &str) {
    client.done(
        "POST",
        &format!("/v0/sandboxes?workspace={workspace}"),
        Some(&body(name, &json!({}))),
    );
    let process = format!("/{workspace}/sandboxes/{name}/process");
    let write = json!({"command": write, "waitForCompletion": true});
    assert_eq!(client.done("POST", &process, Some(&write))["exitCode"], 0);
    let serve = json!({"command": "nc -ll -p 3000 -e /bin/sh /tmp/echo", "waitForPorts": [3000], "keepAlive": true, "timeout": 0});
    client.done("POST", &process, Some(&serve));
}

pub(crate) fn preview(name: &str, prefix: &str) -> Value {
    json!({"metadata": {"name": name},
        "spec": {"port": 3000, "public": true, "customDomain": "app.test", "prefixUrl": prefix}})
}

pub(crate) fn register(client: &Client) -> Value {
    let made = json!({"metadata": {"name": "app.test"}, "spec": {}});
    client.done("POST", "/v0/customdomains?workspace=main", Some(&made))["spec"].clone()
}

/// Sets the text that the server asks for, and has the domain verified.
pub(crate) fn prove(client: &Client, dns: &NameServer, registered: &Value) -> Value {
    for (name, text) in registered["txtRecords"].as_object().unwrap() {
        dns.set_text(name, text.as_str().unwrap());
    }
    verify(client)
}

fn verify(client: &Client) -> Value {
    client.done("POST", &domain("/verify"), None)["spec"]["status"].clone()
}

fn set_fallback(client: &Client, preview: &str) {
    let wish = json!({"metadata": {"name": "app.test"}, "spec": {"fallbackPreviewId": preview}});
    client.done("PUT", &domain(""), Some(&wish));
}

/// Returns the request that the workload got, or the status of the refusal.
fn at(client: &Client, host: &str) -> Result<String, u16> {
    let http = reqwest::blocking::Client::builder().no_proxy().build().unwrap();
    let forged = "true";
    let request = http.get(format!("{}/hello?x=1", client.base)).header("host", host);
    let response = request.header("x-blaxel-fallback", forged).send().unwrap();
    let status = response.status().as_u16();
    if status == 200 { Ok(response.text().unwrap().to_lowercase()) } else { Err(status) }
}

#[test]
fn a_host_below_a_proven_domain_leads_to_its_preview() {
    let dns = NameServer::start();
    let mut place = Place::new("15s");
    place.settings.push(dns.setting());
    let (server, client) = place.start();
    echoing(&client, "main", "one");
    let registered = register(&client);
    let previews = "/v0/sandboxes/one/previews";
    assert_eq!(
        client.ask("POST", previews, Some(&preview("web", "web"))).unwrap().0,
        400,
        "it is not proven"
    );
    assert_eq!(at(&client, "web.app.test"), Err(404));
    assert_eq!(verify(&client), "failed");
    assert_eq!(prove(&client, &dns, &registered), "verified");
    let made = client.done("POST", previews, Some(&preview("web", "web")));
    let (_, port) = client.base.rsplit_once(':').unwrap();
    assert_eq!(made["spec"]["url"], format!("http://web.app.test:{port}"));
    let asked = at(&client, "web.app.test").unwrap();
    assert!(
        asked.starts_with("get /hello?x=1 http/1.1;") && !asked.contains("x-blaxel-fallback"),
        "{asked}"
    );
    assert_eq!(at(&client, "other.app.test"), Err(404));

    set_fallback(&client, "web");
    let asked = at(&client, "other.app.test").unwrap();
    for header in [
        "x-blaxel-fallback: true",
        "x-blaxel-fallback-preview: web",
        "x-blaxel-fallback-domain: app.test",
    ] {
        assert!(asked.contains(header), "{header} in {asked}");
    }
    set_fallback(&client, "");
    assert_eq!(at(&client, "other.app.test"), Err(404));

    // If the proof is lost, so are the hosts.
    dns.clear();
    assert_eq!(verify(&client), "failed");
    assert_eq!(at(&client, "web.app.test"), Err(404));
    assert_eq!(prove(&client, &dns, &registered), "verified");
    assert!(at(&client, "web.app.test").is_ok());
    client.done("DELETE", &domain(""), None);
    assert_eq!(at(&client, "web.app.test"), Err(404));
    place.clear(server, &client);
}

#[test]
fn a_shared_domain_serves_the_other_workspace_until_it_is_taken_back() {
    let dns = NameServer::start();
    let mut place = Place::new("15s");
    place.settings.push(dns.setting());
    let (server, client) = place.start();
    client.done("POST", "/v0/workspaces", Some(&json!({"name": "team"})));
    echoing(&client, "team", "two");
    let registered = register(&client);
    prove(&client, &dns, &registered);
    let previews = "/v0/sandboxes/two/previews?workspace=team";
    assert_eq!(client.ask("POST", previews, Some(&preview("two", "two"))).unwrap().0, 400);
    client.done("POST", &domain("/share"), Some(&json!({"targetWorkspace": "team"})));
    client.done("POST", previews, Some(&preview("two", "two")));
    assert!(at(&client, "two.app.test").is_ok());
    client.done("DELETE", &domain("/share/team"), None);
    assert_eq!(at(&client, "two.app.test"), Err(404));
    client.done("POST", &domain("/share"), Some(&json!({"targetWorkspace": "account"})));
    assert!(at(&client, "two.app.test").is_ok());
    dns.clear();
    assert_eq!(verify(&client), "failed");
    assert_eq!(at(&client, "two.app.test"), Err(404), "the copy follows the owner's");
    client.done("DELETE", "/v0/sandboxes/two?workspace=team", None);
    client.done("DELETE", "/v0/workspaces/team", None);
    place.clear(server, &client);
}
