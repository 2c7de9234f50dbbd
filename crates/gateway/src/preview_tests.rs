use super::*;
use crate::address::{Address, Endpoint};
use http::{Request, Uri};
use proptest::prelude::*;
use url::Url;

fn path() -> impl Strategy<Value = String> {
    let odd = [
        "",
        ".",
        "..",
        "%2e%2e",
        "%2F",
        "\\",
        "evil.example",
        "@evil.example",
        ":80",
        "a",
        "a.preview",
        "-",
    ];
    let piece = prop_oneof![
        proptest::sample::select(odd.to_vec()).prop_map(str::to_owned),
        "[!-~&&[^#?]]{0,6}"
    ];
    (proptest::collection::vec(piece, 0..5), "(\\?[!-~&&[^#]]{0,6}|)")
        .prop_map(|(pieces, query)| format!("/{}{query}", pieces.join("/")))
}

fn head(path: &str) -> Option<Parts> {
    let uri: Uri = path.parse().ok()?;
    Some(Request::get(uri).header(HOST, "p.preview.holm.test").body(()).ok()?.into_parts().0)
}

/// Returns where a browser on the page at `base` is sent.
fn goes_to(response: &Response<Body>, base: &str) -> Url {
    Url::parse(base).unwrap().join(response.headers()[LOCATION].to_str().unwrap()).unwrap()
}

proptest! {
    #[test]
    fn an_address_without_its_token_is_of_the_same_preview(path in path()) {
        let Some(head) = head(&path) else { return Ok(()) };
        let base = "http://p.preview.holm.test/";
        let response = without_token(&head, HeaderValue::from_static("a=b")).unwrap();
        prop_assert_eq!(goes_to(&response, base).origin(), Url::parse(base).unwrap().origin());
    }

    #[test]
    fn what_is_elsewhere_is_where_content_is(label in "[!-~&&[^#?/]]{0,12}", is_preview: bool, rest in path()) {
        let front = if is_preview { format!("{label}.preview") } else { format!("app-{label}") };
        let Some(head) = head(&format!("/-/{front}{rest}")) else { return Ok(()) };
        let no_headers = HeaderMap::new();
        let Ok(Some(address)) = Address::parse(&head.uri, &no_headers, &[], &crate::address::tests::Nothing) else { return Ok(()) };
        let is_label = matches!(&address.endpoint, Endpoint::Preview { .. } | Endpoint::Label { .. });
        prop_assert!(is_label);
        let rest = address.split(&head.uri).1;
        for (content, host) in [("http://10.0.0.7:8701", "10.0.0.7".to_owned()), ("https://c.example", format!("{front}.c.example"))] {
            let url = types::hosts::findable_url(content, &front);
            let to = goes_to(&to_content(&head, &url, rest).unwrap(), "http://holm.test:8700/");
            prop_assert_eq!(to.host_str().unwrap(), host.to_lowercase());
            prop_assert_eq!(to.port_or_known_default(), Url::parse(content).unwrap().port_or_known_default());
        }
    }
}
