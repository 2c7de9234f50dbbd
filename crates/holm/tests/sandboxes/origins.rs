//! What sandboxes serve is another origin than the server's own pages, and sees nothing of a session there.

use crate::domains::echoing;
use crate::setup::{Client, Place, eventually};
use reqwest::blocking::{Client as Http, Response};
use reqwest::redirect::Policy;
use serde_json::json;

const COOKIES: &str = "holm_session=hush; __Host-holm_session=hush; holm_form=hush; app=1";

fn ask(url: &str, headers: &[(&str, &str)]) -> Response {
    let http = Http::builder().no_proxy().redirect(Policy::none()).build().unwrap();
    let request = headers.iter().fold(http.get(url), |request, (name, value)| request.header(*name, *value));
    request.header("cookie", COOKIES).send().unwrap()
}

fn header<'r>(response: &'r Response, name: &str) -> &'r str {
    response.headers().get(name).map_or("", |value| value.to_str().unwrap())
}

/// Where content answers.
fn content(place: &Place) -> String {
    let address = std::fs::read_to_string(place.data().join("content-address")).unwrap();
    format!("http://{}", address.trim())
}

fn preview(client: &Client) -> String {
    let wish = json!({"metadata": {"name": "web"}, "spec": {"port": 3000, "public": true}});
    let made = client.done("POST", "/v0/sandboxes/box/previews", Some(&wish));
    made["spec"]["url"].as_str().unwrap().to_owned()
}

#[test]
fn no_session_reaches_a_sandbox_on_any_way() {
    let mut place = Place::new("15s");
    let (server, client) = place.start();
    echoing(&client, "main", "box");
    let (content, url) = (content(&place), preview(&client));
    let path = url.strip_prefix(&content).expect("a preview has the address of content");
    assert!(path.starts_with("/-/"), "{path}");

    let answer = ask(&url, &[]);
    let policy = header(&answer, "content-security-policy").to_owned();
    assert!(policy.starts_with("sandbox ") && !policy.contains("allow-same-origin"), "{policy}");
    assert_eq!(
        (header(&answer, "x-content-type-options"), header(&answer, "referrer-policy")),
        ("nosniff", "no-referrer")
    );
    let bearer = format!("Bearer {}", client.key);
    let host = path.trim_start_matches("/-/").to_owned() + ".localhost";
    let by_sandbox = format!("{}/main/sandboxes/box/port/3000/", client.base);
    for answer in [
        answer,
        ask(&content, &[("host", &host)]),
        ask(&client.base, &[("host", &host)]),
        ask(&by_sandbox, &[("authorization", &bearer), ("x_blaxel_subject_id", "hush")]),
    ] {
        assert_eq!(answer.status(), 200);
        let told = answer.text().unwrap();
        assert!(told.contains("app=1") && !told.contains("hush"), "{told}");
    }

    // Beside our own pages there are none of theirs, and the other way round.
    let moved = ask(&format!("{}{path}/x?y", client.base), &[]);
    assert_eq!((moved.status().as_u16(), header(&moved, "location")), (307, &*format!("{url}/x?y")));
    assert_eq!(ask(&by_sandbox, &[]).status(), 401);
    for own in ["/oauth/sign-in", "/oauth/device", "/v0/workspaces", "/health", "/"] {
        assert_eq!(ask(&format!("{content}{own}"), &[("authorization", &bearer)]).status(), 404, "{own}");
    }
    assert_eq!(ask(&format!("{}/oauth/sign-in", client.base), &[]).status(), 200);
    place.clear(server, &client);
    assert!(!place.data().join("content-address").exists());
}

#[test]
fn a_server_with_a_name_has_its_content_at_hosts_below_it() {
    let mut place = Place::new("15s");
    place.settings.push(("HOLM_SERVER__PUBLIC_URL", "http://holm.test".into()));
    let (server, mut client) = place.start();
    // What it greets with is its name, which leads nowhere.
    let file = place.data().join("address");
    eventually("it serves", || file.exists());
    client.base = format!("http://{}", std::fs::read_to_string(file).unwrap().trim());
    echoing(&client, "main", "box");
    let url = preview(&client);
    let host = url.strip_prefix("http://").unwrap();
    let label = host.strip_suffix(".preview.holm.test").unwrap();
    assert!(!place.data().join("content-address").exists(), "no second port is needed");
    let told = ask(&client.base, &[("host", host)]).text().unwrap();
    assert!(told.contains("app=1") && !told.contains("hush"), "{told}");
    let moved = ask(&format!("{}/-/{label}.preview/x", client.base), &[("host", "holm.test")]);
    assert_eq!((moved.status().as_u16(), header(&moved, "location")), (307, &*format!("{url}/x")));
    place.clear(server, &client);
}
