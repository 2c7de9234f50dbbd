use super::*;
use http::HeaderValue;
use proptest::prelude::*;

const GUEST: u16 = 8080;

/// Knows one host and a few triggers.
struct Told;

impl Known for Told {
    fn host(&self, host: &str) -> bool {
        host == "own.example"
    }

    fn trigger(&self, path: &str) -> Option<bool> {
        match path {
            "w/draft" | "w/agents/a/now" | "w/agents/a/mcp" => Some(true),
            "w/functions/open/mcp" | "w/functions/open/do" => Some(true),
            "w/agents/a/later" => Some(false),
            _ => None,
        }
    }
}

struct All;

impl Known for All {
    fn host(&self, _: &str) -> bool {
        true
    }

    fn trigger(&self, _: &str) -> Option<bool> {
        None
    }
}

pub(crate) struct Nothing;

impl Known for Nothing {
    fn host(&self, _: &str) -> bool {
        false
    }

    fn trigger(&self, _: &str) -> Option<bool> {
        None
    }
}

#[test]
fn triggers_have_paths_of_their_own() {
    let trigger = |path: &str| Ok(Some((Endpoint::Trigger(path.into()), "")));
    check("h", "/w/draft?a=b", trigger("w/draft"));
    check("h", "/run/w/draft", trigger("w/draft"));
    check("h", "/w/agents/a/now", trigger("w/agents/a/now"));
    check("h", "/w/agents/a/mcp", trigger("w/agents/a/mcp"));
    check("h", "/w/functions/open/do", trigger("w/functions/open/do"));
    // The server behind it answers nowhere else.
    for path in ["/w/functions/open/mcp?a=b", "/run/w/functions/open/mcp"] {
        let endpoint = Endpoint::Trigger("w/functions/open/mcp".into());
        check("h", path, Ok(Some((endpoint, "/mcp"))));
    }
    check("h", "/w/agents/a/later", Ok(None));
    check("h", "/w/draft/more", Ok(None));
    check("h", "/w/agents/a?async=true", Ok(None));
    check("h", "/w/functions/a/mcp?x=1&async=true", Ok(None));
    let agent =
        Endpoint::Workload { kind: KindName::Agent, workspace: "w".into(), name: "a".into() };
    check("h", "/w/agents/a?async=false", Ok(Some((agent.clone(), ""))));
    check("h", "/w/agents/a/now/more", Ok(Some((agent, "/now/more"))));
    // A sandbox has no triggers, and its programs may well use such a parameter themselves.
    check("h", "/w/sandboxes/n/x?async=true", Ok(Some((sandbox("w", "n"), "/x"))));
}

#[test]
fn models_answer_by_path_alone() {
    let model = |workspace: &str, name: &str| Endpoint::Model {
        workspace: workspace.into(),
        name: name.into(),
    };
    check("h", "/w/models/m", Ok(Some((model("w", "m"), ""))));
    check("h", "/w/models/m/v1/chat", Ok(Some((model("w", "m"), "/v1/chat"))));
    check("h", "/run/w/models/m/v1", Ok(Some((model("w", "m"), "/v1"))));
    check("h", "/w/models/m/v1?async=true", Ok(Some((model("w", "m"), "/v1"))));
    check("h", "/v0/models/m", Ok(None));
    check("h", "/w/models/", Ok(None));
    check("h", "/w/models//v1", Ok(None));
}

fn domains() -> Vec<String> {
    vec!["holm.test".into(), "localhost".into()]
}

fn hosted(host: &str) -> HeaderMap {
    HeaderMap::from_iter([(HOST, HeaderValue::try_from(host).unwrap())])
}

#[track_caller]
fn check(host: &str, target: &str, wanted: Result<Option<(Endpoint, &str)>, BadAddress>) {
    let (uri, headers) = (target.parse().unwrap(), hosted(host));
    let parsed = Address::parse(&uri, &headers, &domains(), &Told);
    let rest = |address: Address| {
        let rest = address.split(&uri).1;
        (address.endpoint, rest)
    };
    assert_eq!(parsed.map(|address| address.map(rest)), wanted);
}

fn sandbox(workspace: &str, name: &str) -> Endpoint {
    let kind = KindName::Sandbox;
    Endpoint::Workload { kind, workspace: workspace.into(), name: name.into() }
}

#[test]
fn endpoints_are_read_from_hosts_and_paths() {
    let label = |label: &str| Endpoint::Label {
        kind: KindName::Sandbox,
        label: label.into(),
        by_path: false,
    };
    let preview = |label: &str, by_path| Endpoint::Preview { label: label.into(), by_path };
    check("h", "/w/sandboxes/n//a%2Fb", Ok(Some((sandbox("w", "n"), "//a%2Fb"))));
    check("h", "/run/w/sandboxes/n", Ok(Some((sandbox("w", "n"), ""))));
    check("h", "/run/sandboxes/n/x", Ok(Some((sandbox("run", "n"), "/x"))));
    check("h", "/v0/sandboxes/n", Ok(None));
    check("h", "//w/sandboxes/n", Ok(None));
    check("h", "/w//sandboxes/n", Ok(None));
    check("h", "/w/%73andboxes/n", Ok(None));
    check("h", "/w/sandboxes//n", Ok(None));
    check("h", "/w/sandboxes/../x", Ok(Some((sandbox("w", ".."), "/x"))));
    check("h", "/-/a.preview/x", Ok(Some((preview("a", true), "/x"))));
    check("h", "/-/.preview/x", Ok(None));
    check("h", "/-/evil.example\\.preview/x", Ok(None));
    check("h", "/-/x@evil.example:80.preview/x", Ok(None));
    check(
        "A.Preview.Localhost:80",
        "/-/b.preview/x",
        Ok(Some((preview("a", false), "/-/b.preview/x"))),
    );
    check("a.b.preview.holm.test", "/", Ok(None));
    check("sbx-a-b.r.holm.test", "/x", Ok(Some((label("a-b"), "/x"))));
    check("sbx-a-b.r.s.holm.test", "/x", Ok(None));
    check(
        "own.example",
        "/w/sandboxes/n",
        Ok(Some((Endpoint::Host("own.example".into()), "/w/sandboxes/n"))),
    );
    check("sbx-a-b.holm.test", "*", Err(BadAddress::Path));
    check("sbx-a-b.holm.test@evil.example", "/", Err(BadAddress::Host));
    check("evil.example", "http://sbx-a-b.holm.test/", Err(BadAddress::Host));
    check("", "/w/sandboxes/n", Ok(Some((sandbox("w", "n"), ""))));
}

#[test]
fn deployments_answer_by_path_or_by_label() {
    let by_path = |kind| Endpoint::Workload { kind, workspace: "w".into(), name: "n".into() };
    let label = |kind, by_path| Endpoint::Label { kind, label: "n-w".into(), by_path };
    let (agent, function) = (KindName::Agent, KindName::Function);
    check("h", "/w/agents/n/a//b", Ok(Some((by_path(agent), "/a//b"))));
    check("h", "/run/w/agents/n", Ok(Some((by_path(agent), ""))));
    check("h", "/w/functions/n/mcp", Ok(Some((by_path(function), "/mcp"))));
    check("h", "/w/applications/n", Ok(None));
    check("h", "/w/jobs/n", Ok(None));
    check("agent-n-w.holm.test", "/x", Ok(Some((label(agent, false), "/x"))));
    check("function-n-w.eu.holm.test", "/x", Ok(Some((label(function, false), "/x"))));
    check("app-n-w.holm.test", "/-/x", Ok(Some((label(KindName::Application, false), "/-/x"))));
    check("h", "/-/app-n-w/x", Ok(Some((label(KindName::Application, true), "/x"))));
    check("h", "/-/app-n-w", Ok(Some((label(KindName::Application, true), ""))));
    // A workload that has a path below its workspace has no other.
    check("h", "/-/agent-n-w/x", Ok(None));
    check("h", "/-/sbx-n-w/x", Ok(None));
    check("h", "/-/app-evil.example/x", Ok(None));
    check("h", "/-/app-a@evil.example:80/x", Ok(None));
    check("h", "/-/app-%2F/x", Ok(None));
}

fn piece() -> impl Strategy<Value = String> {
    let odd = [
        "",
        ".",
        "..",
        "%2e%2e",
        "%2F",
        "port",
        "02280",
        "3000",
        "sandboxes",
        "agents",
        "-",
        "app-a-b",
        "a.preview",
        "run",
        "v0",
        "?",
        "a=b",
    ];
    prop_oneof![proptest::sample::select(odd.to_vec()).prop_map(str::to_owned), "[!-~&&[^#]]{0,8}"]
}

proptest! {
    #[test]
    fn any_host_and_path_are_read_without_panic(host in "[ -~]{0,40}", pieces in proptest::collection::vec(piece(), 0..8)) {
        let path = format!("/{}", pieces.join("/"));
        if let (Ok(uri), Ok(host)) = (path.parse::<Uri>(), HeaderValue::try_from(&host)) {
            let headers = HeaderMap::from_iter([(HOST, host)]);
            if let Ok(Some(address)) = Address::parse(&uri, &headers, &domains(), &All) {
                // What is passed on is the end of what was sent, byte for byte.
                let (prefix, rest) = address.split(&uri);
                prop_assert_eq!(format!("{prefix}{rest}"), uri.path());
                prop_assert!(rest.is_empty() || rest.starts_with('/'));
            }
        }
    }

    #[test]
    fn names_and_rest_are_what_was_sent(workspace in "[a-z][a-z-]{1,9}", name in "[a-z0-9-]{1,9}", pieces in proptest::collection::vec(piece(), 0..6)) {
        let rest: String = pieces.iter().map(|piece| format!("/{}", piece.replace('?', ""))).collect();
        let path = format!("/{workspace}/sandboxes/{name}{rest}");
        prop_assume!(workspace != "api" && path.parse::<Uri>().is_ok_and(|uri| uri.path() == path));
        let (uri, headers) = (path.parse().unwrap(), HeaderMap::new());
        let address = Address::parse(&uri, &headers, &domains(), &Nothing).unwrap().unwrap();
        prop_assert_eq!(address.split(&uri).1, &rest);
        prop_assert_eq!(address.endpoint, sandbox(&workspace, &name));
    }

    #[test]
    fn only_plain_numbers_are_ports(digits in "[ -~&&[^/]]{0,7}", rest in "(/[a-z%./]{0,9})?") {
        let path = format!("/port/{digits}{rest}");
        let plain = digits.parse::<u16>().ok().filter(|port| *port > 0 && port.to_string() == digits);
        prop_assert_eq!(port_of(&path, GUEST).ok(), plain.map(|port| (port, rest.as_str())));
    }

    #[test]
    fn what_does_not_say_port_goes_to_the_guest(pieces in proptest::collection::vec(piece(), 0..6)) {
        let path = format!("/{}", pieces.join("/"));
        prop_assume!(!path.starts_with("/port/"));
        prop_assert_eq!(port_of(&path, GUEST), Ok((GUEST, path.as_str())));
    }
}
