//! Addresses of the server, and how many of them there must be.

use super::*;

#[test]
fn addresses_of_the_server_are_as_browsers_write_them() {
    let origins = |url: &str| {
        let text = format!("[server]\npublic_url = \"{url}\"\ncontent_url = \"{url}\"");
        let server = load_text(&text).unwrap().server;
        (server.public_url, server.content_url.unwrap())
    };
    for (told, is) in [
        ("HTTPS://Holm.Test/", "https://holm.test"),
        ("https://holm.test:443", "https://holm.test"),
        ("http://holm.test:8700", "http://holm.test:8700"),
        ("https://bücher.example", "https://xn--bcher-kva.example"),
    ] {
        assert_eq!(origins(told), (is.to_owned(), is.to_owned()), "{told}");
    }
    for key in ["public_url", "content_url"] {
        refused(
            &format!("[server]\n{key} = \"https://*.example.org\""),
            &[&format!("holm.toml:2: `server.{key}`"), "name one host, without `*`"],
        );
    }
}

/// What follows from the settings is refused by the check, not when the server has begun to start.
#[test]
fn content_has_a_place_of_its_own() {
    let server = |text: &str| format!("[server]\nlisten = \"127.0.0.1:8700\"\n{text}");
    for (text, key) in [
        ("content_listen = \"127.0.0.1:8700\"", "content_listen"),
        ("content_url = \"http://127.0.0.1:8700\"", "content_url"),
        ("content_url = \"HTTP://127.0.0.1:8700/\"", "content_url"),
    ] {
        let place = ["holm.toml:3", "`server.listen` is set in", "holm.toml:2"];
        refused(&server(text), &[&format!("`server.{key}`")]);
        refused(&server(text), &place);
    }
    refused(
        &server("public_url = \"http://10.0.0.7:8701\""),
        &["`server.content_listen`", "http://10.0.0.7:8701", "another port"],
    );
    refused("[server]\nlisten = \"0.0.0.0:65535\"", &["`server.content_listen`", "no port after"]);
    for text in [
        server("content_listen = \"127.0.0.1:8800\""),
        server("public_url = \"http://10.0.0.7:8700\""),
        server("public_url = \"https://x.org\"\ncontent_url = \"https://x.org\""),
        "[server]\nlisten = \"127.0.0.1:65535\"\npublic_url = \"https://x.org\"".to_owned(),
        "[server]\nlisten = \"127.0.0.1:65535\"\nroles = [\"api\"]".to_owned(),
        "[server]\nlisten = \"127.0.0.1:0\"\ncontent_listen = \"127.0.0.1:0\"".to_owned(),
    ] {
        load_text(&text).unwrap_or_else(|error| panic!("{text}: {error}"));
    }
}

#[test]
fn a_server_without_the_management_api_is_refused() {
    let roles = |roles: &str| format!("[server]\nroles = [{roles}]");
    refused(&roles("\"gateway\", \"node\""), &["holm.toml:2: `server.roles`", "later release"]);
    assert!(load_text(&roles("\"api\"")).is_ok());
}
