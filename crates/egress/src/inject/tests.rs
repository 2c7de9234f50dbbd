use super::*;
use crate::fixture;
use http::Request;
use proptest::prelude::*;

fn map(entries: &[(&str, &str)]) -> Option<TextMap> {
    let entry = |&(name, value): &(&str, &str)| (name.to_owned(), value.to_owned());
    Some(entries.iter().map(entry).collect())
}

fn target(
    headers: &[(&str, &str)],
    body: &[(&str, &str)],
    secrets: &[(&str, &str)],
) -> ProxyTarget {
    ProxyTarget {
        headers: map(headers),
        body: map(body),
        secrets: map(secrets).map(Sensitive),
        destinations: None,
    }
}

fn parts(method: &str, uri: &str, headers: &[(&str, &str)]) -> Parts {
    let request = Request::builder().method(method).uri(uri);
    let request =
        headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
    request.body(()).unwrap().into_parts().0
}

fn head(targets: &[ProxyTarget], parts: &mut Parts) -> Report {
    let world = fixture::world();
    let mut injector = Injector::new(targets.iter().collect(), &world);
    injector.head(parts);
    injector.finish()
}

fn body(targets: &[ProxyTarget], parts: &Parts, body: &str) -> String {
    let world = fixture::world();
    let mut injector = Injector::new(targets.iter().collect(), &world);
    let length = u64::try_from(body.len()).unwrap();
    if !injector.wants_body(parts, Some(length)) {
        return body.to_owned();
    }
    String::from_utf8(injector.body(parts, Bytes::from(body.to_owned())).to_vec()).unwrap()
}

fn values<'a>(parts: &'a Parts, name: &str) -> Vec<&'a str> {
    parts.headers.get_all(name).iter().map(|value| value.to_str().unwrap()).collect()
}

const JSON: (&str, &str) = ("content-type", "application/json; charset=utf-8");

#[test]
fn headers_come_beside_the_clients_own() {
    let targets = [
        target(
            &[("Authorization", "Bearer {{SECRET:key}}"), ("X-A", "a")],
            &[],
            &[("key", "hush")],
        ),
        target(&[("x-a", "{{SECRET:key}} {{SECRET:other}}")], &[], &[("other", "o")]),
    ];
    let mut parts =
        parts("GET", "/", &[("authorization", "Bearer dummy"), ("x-b", "{{SECRET:key}}")]);
    let report = head(&targets, &mut parts);
    assert_eq!(values(&parts, "authorization"), ["Bearer dummy", "Bearer hush"]);
    // Each rule has its own secrets, but what the program wrote may name those of all its rules.
    assert_eq!(values(&parts, "x-a"), ["a", "{{SECRET:key}} o"]);
    assert_eq!(values(&parts, "x-b"), ["hush"]);
    assert!(!format!("{:?} {report:?}", parts.headers).contains("hush"));
    let told = ["secret key", "header authorization", "header x-a", "secret other"];
    assert_eq!(report.injected, told);
}

#[test]
fn a_password_may_be_a_secret() {
    let targets = [target(&[], &[], &[("key", "hush\r\n")])];
    let sent = |value: &str| {
        let mut parts = parts("GET", "/", &[("authorization", value)]);
        head(&targets, &mut parts);
        values(&parts, "authorization")[0].to_owned()
    };
    let encoded = |text: &str| format!("Basic {}", STANDARD.encode(text));
    assert_eq!(sent(&encoded("me:{{SECRET:key}}")), encoded("me:hush\r\n"));
    for kept in [&encoded("me:{{SECRET:no}}"), "basic e3tTRUNSRVQ6a2V5fX0", "Basic \t", "Basic"] {
        assert_eq!(sent(kept), kept);
    }
}

#[test]
fn no_secret_splits_a_request() {
    for bad in ["a\r\nhost: evil", "a\nb", "a\0b", "a\x7fb"] {
        let targets = [target(&[("x-rule", "{{SECRET:bad}}"), ("x-b", "b")], &[], &[("bad", bad)])];
        let mut parts = parts("GET", "/{{SECRET:bad}}", &[("x-own", "1 {{SECRET:bad}}")]);
        let report = head(&targets, &mut parts);
        assert!(values(&parts, "x-rule").is_empty());
        assert_eq!(values(&parts, "x-own"), ["1 {{SECRET:bad}}"]);
        assert_eq!(values(&parts, "x-b"), ["b"]);
        assert!(parts.uri.path().starts_with("/a%"), "{}", parts.uri);
        let told = report.injected.join("; ");
        assert!(
            told.contains("header x-rule left out") && told.contains("header x-own left"),
            "{told}"
        );
    }
    for name in ["host", "Content-Length", "transfer-encoding", "connection", "a b", ""] {
        let mut parts = parts("GET", "/", &[]);
        let report = head(&[target(&[(name, "x")], &[], &[])], &mut parts);
        assert!(parts.headers.is_empty());
        assert!(report.injected[0].contains("left out"));
    }
}

#[test]
fn secrets_in_what_the_program_wrote() {
    let targets = [target(&[], &[], &[("k", "a\"&/ é{{SECRET:k}}"), ("a b", "2")])];
    let mut uri = parts("GET", "/x/{{SECRET:k}}?q=%7b%7BSECRET%3Ak%7D%7d&z={{SECRET:nope}}", &[]);
    head(&targets, &mut uri);
    let encoded = "a%22%26%2F%20%C3%A9%7B%7BSECRET%3Ak%7D%7D";
    assert_eq!(uri.uri.to_string(), format!("/x/{encoded}?q={encoded}&z={{{{SECRET:nope}}}}"));
    let post = |media: &str| parts("POST", "/", &[("content-type", media)]);
    let text = "{{{SECRET:k}}} {{SECRET:a b}} {{SECRET:nope}} {{secret:k}} {{SECRET:k";
    let plain = "{a\"&/ é{{SECRET:k}}} 2 {{SECRET:nope}} {{secret:k}} {{SECRET:k";
    assert_eq!(body(&targets, &post("text/plain"), text), plain);
    let json = body(&targets, &post("application/vnd.x+json"), r#"{"a":"{{SECRET:k}}"}"#);
    assert_eq!(serde_json::from_str::<TextMap>(&json).unwrap()["a"], "a\"&/ é{{SECRET:k}}");
    let form = body(&targets, &post("application/x-www-form-urlencoded"), "a=%7B%7BSECRET:k%7D%7D");
    assert_eq!(form, format!("a={encoded}"));
    let mut packed = post("text/plain");
    packed.headers.insert("content-encoding", HeaderValue::from_static("gzip"));
    assert_eq!(body(&targets, &packed, text), text);
    let world = fixture::world();
    let injector = Injector::new(targets.iter().collect(), &world);
    for length in [None, Some(0), Some(BODY_BYTES_MAX + 1)] {
        assert!(!injector.wants_body(&post("text/plain"), length));
    }
}

#[test]
fn fields_go_into_objects_and_the_users_own_win() {
    let targets = [
        target(&[], &[("a", "{{SECRET:k}}"), ("b", "2")], &[("k", "\"}")]),
        target(&[], &[("b", "3"), ("c", "{{SECRET:k}}")], &[]),
    ];
    let of = |method: &str, media: (&str, &str), text: &str| {
        body(&targets, &parts(method, "/", &[media]), text)
    };
    let merged = of("POST", JSON, r#" { "b": 1e999, "z": 12345678901234567890123 }"#);
    let wanted = r#" {"c":"{{SECRET:k}}","a":"\"}", "b": 1e999, "z": 12345678901234567890123 }"#;
    assert_eq!(merged, wanted);
    assert_eq!(of("PUT", JSON, "{}"), r#"{"c":"{{SECRET:k}}","a":"\"}","b":"2"}"#);
    for (method, media, text) in [
        ("DELETE", JSON, "{}"),
        ("POST", ("content-type", "text/plain"), "{}"),
        ("POST", JSON, "[]"),
        ("POST", JSON, "{"),
        ("POST", JSON, "{} {}"),
        ("POST", JSON, ""),
    ] {
        assert_eq!(of(method, media, text), text);
    }
}

#[test]
fn functions_are_worked_out_in_rules_alone() {
    let calls = [
        ("{{FUNC:timestamp()}}", "1780000000"),
        ("{{func:Timestamp_MS()}}", "1780000000123"),
        ("{{FUNC:timestamp_ns()}}", "1780000000123000000"),
        ("{{FUNC:datetime()}} {{FUNC:iso8601( )}}", "2026-05-28T20:26:40Z 2026-05-28T20:26:40Z"),
        ("{{FUNC:date()}}T{{FUNC:time()}}", "2026-05-28T20:26:40"),
        ("{{FUNC:randint(1)}}", "0"),
    ];
    let literal = [
        "{{FUNC:randint(0)}}",
        "{{FUNC:randint(1025)}}",
        "{{FUNC:randhex(-1)}}",
        "{{FUNC:randhex(1,2)}}",
        "{{FUNC:uuid(1)}}",
        "{{FUNC:uuid}}",
        "{{FUNC:nope()}}",
        "{{FUNC:uuid()",
        "{{FUNC :uuid()}}",
        "{{FUNC:uuid ()}}",
    ];
    for (value, wanted) in calls.into_iter().chain(literal.map(|value| (value, value))) {
        let mut parts = parts("GET", "/", &[("own", "{{FUNC:uuid()}}")]);
        head(&[target(&[("x", value)], &[], &[])], &mut parts);
        assert_eq!(values(&parts, "x"), [wanted]);
        assert_eq!(values(&parts, "own"), ["{{FUNC:uuid()}}"]);
    }
    let mut lengths = parts("GET", "/", &[]);
    let value = "{{FUNC:uuid()}} {{FUNC:uuidv7()}} {{FUNC:randhex()}} {{FUNC:randhex(1024)}} {{FUNC:nonce()}} \
        {{FUNC:randstr()}} {{FUNC:randstr(7)}}";
    head(&[target(&[("x", value)], &[], &[])], &mut lengths);
    let given: Vec<&str> = values(&lengths, "x")[0].split(' ').collect();
    assert_eq!(
        given.iter().map(|text| text.len()).collect::<Vec<_>>(),
        [36, 36, 32, 1024, 32, 16, 7]
    );
    let version = |text: &str| text.split('-').nth(2).unwrap().as_bytes()[0];
    assert_eq!((version(given[0]), version(given[1])), (b'4', b'7'));
    assert!(given[1].starts_with(&format!("{:08x}-", fixture::HELD_AT_MS >> 16)));
}

#[test]
fn what_functions_gave_is_echoed_unless_a_secret_fails() {
    let targets = [target(
        &[
            ("X-One", "{{FUNC:date()}} {{FUNC:TIME()}}"),
            ("X-Two", "{{FUNC:date()}} {{SECRET:nope}}"),
            ("X-Three", "{{FUNC:date()}} {{SECRET:k}}"),
            ("X-Four", "four"),
        ],
        &[("request", "{{FUNC:date()}}"), ("not a header", "{{FUNC:date()}}")],
        &[("k", "hush")],
    )];
    let world = fixture::world();
    let mut injector = Injector::new(targets.iter().collect(), &world);
    let mut parts = parts("POST", "/", &[JSON]);
    injector.head(&mut parts);
    injector.body(&parts, Bytes::from_static(b"{}"));
    let echoes = injector.finish().echoes;
    let echo = |name: &str| echoes.get(name).map(|value| value.to_str().unwrap());
    assert_eq!(echo("x-blaxel-func-x-one"), Some("date=2026-05-28, time=20:26:40"));
    assert_eq!(echo("x-blaxel-func-x-three"), Some("date=2026-05-28"));
    assert_eq!(echo("x-blaxel-func-request"), Some("date=2026-05-28"));
    assert_eq!(echoes.len(), 3);
    assert_eq!(values(&parts, "x-two"), ["2026-05-28 {{SECRET:nope}}"]);
}

#[test]
fn ten_functions_are_worked_out_in_one_request() {
    let six = "{{FUNC:randint(1)}}".repeat(6);
    let mut parts = parts("GET", "/", &[]);
    head(&[target(&[("a", &six), ("b", &six)], &[], &[])], &mut parts);
    assert_eq!(values(&parts, "a"), ["000000"]);
    assert_eq!(values(&parts, "b"), [format!("0000{}", "{{FUNC:randint(1)}}".repeat(2))]);
}

proptest! {
    #[test]
    fn nothing_that_is_written_breaks_it(
        value in "(\\{|\\}|SECRET:|FUNC:|k|uuid|\\(|\\)|%7B|%7d|%|é|\r| ){0,24}",
        secret in ".{0,20}",
    ) {
        let targets = [target(&[("x", &value)], &[("f", &value)], &[("k", &secret)])];
        let post = parts("POST", "/", &[JSON]);
        head(&targets, &mut parts("GET", "/", &[]));
        let text = serde_json::Value::from(value.as_str()).to_string();
        let merged = body(&targets, &post, &format!("{{\"own\":{text}}}"));
        let merged: TextMap = serde_json::from_str(&merged).unwrap();
        // The field of the rule and the text of the program become the same, except for functions.
        if !value.to_lowercase().contains("func") {
            prop_assert_eq!(&merged["own"], &merged["f"]);
        }
        let replaced = value.replace("{{SECRET:k}}", &secret);
        if !value.contains("{{{") && !value.to_lowercase().contains("func") {
            prop_assert_eq!(&merged["f"], &replaced);
        }
    }

    #[test]
    fn a_path_stays_one(text in "(\\{|\\}|SECRET:|k|%7B|%7D|/|\\?|a|=){0,24}", secret in ".{0,20}") {
        let targets = [target(&[], &[], &[("k", &secret)])];
        if let Ok(uri) = Uri::try_from(format!("/{text}")) {
            let mut parts = parts("GET", "/", &[]);
            let (slashes, marks) = (text.matches('/').count(), text.matches('?').count());
            parts.uri = uri;
            head(&targets, &mut parts);
            let filled = parts.uri.to_string();
            prop_assert_eq!(filled.matches('/').count(), slashes + 1);
            prop_assert_eq!(filled.matches('?').count(), marks);
        }
    }
}
