//! Content of sandboxes has a different origin than the server's own pages, and gets nothing of a
//! session there.

use crate::domains::{echoing, serving};
use crate::setup::{Client, Place, eventually};
use reqwest::blocking::{Client as Http, Response};
use reqwest::redirect::Policy;
use serde_json::{Value, json};
use std::process::{Child, Command, Stdio};

const COOKIES: &str = "holm_session=hush; __Host-holm_session=hush; holm_form=hush; app=1";

fn ask(url: &str, headers: &[(&str, &str)]) -> Response {
    let http = Http::builder().no_proxy().redirect(Policy::none()).build().unwrap();
    let request =
        headers.iter().fold(http.get(url), |request, (name, value)| request.header(*name, *value));
    request.header("cookie", COOKIES).send().unwrap()
}

fn header<'r>(response: &'r Response, name: &str) -> &'r str {
    response.headers().get(name).map_or("", |value| value.to_str().unwrap())
}

/// Returns the address at which content is served.
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

    // The server's own address serves no content, and the other way round.
    let moved = ask(&format!("{}{path}/x?y", client.base), &[]);
    assert_eq!(
        (moved.status().as_u16(), header(&moved, "location")),
        (307, &*format!("{url}/x?y"))
    );
    assert_eq!(ask(&by_sandbox, &[]).status(), 401);
    for own in ["/oauth/sign-in", "/oauth/device", "/v0/workspaces", "/health", "/"] {
        assert_eq!(
            ask(&format!("{content}{own}"), &[("authorization", &bearer)]).status(),
            404,
            "{own}"
        );
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
    // The greeting has its public name, which leads nowhere.
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

/// Answers with a page that tries what a page of the same origin could do, and reports the results.
const CURIOUS: &str = r#"cat > /tmp/page <<'END'
<!doctype html><title>curious</title><script>
const tried = async (what) => { try { return String(await what()) } catch (error) { return error.name } };
(async () => {
  document.cookie;
  const found = {};
  found.origin = self.origin;
  found.storage = await tried(() => localStorage.length);
  found.worker = await tried(() => navigator.serviceWorker.register("sw.js"));
  found.pages = await tried(() => fetch("http://holm.test:MANAGEMENT/oauth/sign-in", { credentials: "include" }));
  document.cookie = "holm_session=theirs; path=/; domain=localhost";
  document.cookie = "app=1; path=/";
  found.cookies = document.cookie;
  return found;
})().catch((error) => ({ refused: error.name })).then((found) => fetch("told?" + encodeURIComponent(JSON.stringify(found)), { mode: "no-cors" }));
</script>
END
cat > /tmp/echo <<'END'
read -r first; echo "$first" >> /tmp/asked
while read -r line; do [ "$line" = "$(printf '\r')" ] && break; done
printf 'HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: text/html\r\nContent-Length: %s\r\n\r\n' "$(wc -c < /tmp/page)"
cat /tmp/page
END"#;

/// Killed on drop, so also if a test fails.
struct Browser(Child);

impl Drop for Browser {
    fn drop(&mut self) {
        // Both fail only if it has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns what the page at an address reports from a real browser, for which `holm.test` is this
/// machine.
fn browse(client: &Client, url: &str) -> Value {
    let profile = tempfile::tempdir().unwrap();
    let mut chromium = Command::new("chromium");
    chromium.args([
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--no-first-run",
        "--disable-background-networking",
    ]);
    chromium.args(["--host-resolver-rules=MAP holm.test 127.0.0.1", "--remote-debugging-port=0"]);
    chromium
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .arg(url)
        .stderr(Stdio::null());
    client.run("box", "rm -f /tmp/asked; touch /tmp/asked");
    let browser = Browser(chromium.spawn().expect("chromium"));
    let mut told = None;
    eventually("the page has told", || {
        let asked = client.run("box", "cat /tmp/asked");
        told = asked
            .split_once("told?")
            .and_then(|(_, rest)| Some(rest.split_once(' ')?.0.to_owned()));
        told.is_some()
    });
    drop(browser);
    let told = format!("http://told/?it={}", told.unwrap());
    let told = reqwest::Url::parse(&told).unwrap();
    serde_json::from_str(&told.query_pairs().next().unwrap().1).unwrap()
}

#[test]
fn a_real_browser_gives_a_page_by_path_no_origin() {
    let mut place = Place::new("15s");
    let (server, client) = place.start();
    let port = client.base.rsplit(':').next().unwrap();
    serving(&client, "main", "box", &CURIOUS.replace("MANAGEMENT", port));
    let (content, url) = (content(&place), preview(&client));
    let path = url.strip_prefix(&content).unwrap();
    let content_port = content.rsplit(':').next().unwrap();

    let by_path = browse(&client, &format!("http://holm.test:{content_port}{path}/"));
    assert_eq!(by_path, json!({"refused": "SecurityError"}), "its document has no cookies");
    // A browser on this machine is sent on to a host of the page's own, where it lacks nothing but
    // what belongs to the server.
    let by_host = browse(&client, &format!("{url}/"));
    let wanted = json!({
        "origin": format!("http://{}.localhost:{content_port}", path.trim_start_matches("/-/")),
        "storage": "0", "worker": "SecurityError", "pages": "TypeError", "cookies": "app=1",
    });
    assert_eq!(by_host, wanted);
    place.clear(server, &client);
}
