//! Every operation of the published interface exists.

use crate::common::Guest;
use serde_json::Value;

const UNKNOWN: &str = "there is nothing at this path";

#[test]
fn no_published_operation_is_missing() {
    let guest = Guest::start();
    let paths: Value = serde_json::from_str(include_str!("../contract/sandbox.json")).unwrap();
    for (path, methods) in paths.as_object().unwrap() {
        let path = path.replace(['{', '}'], "");
        for method in methods.as_array().unwrap() {
            let method = method.as_str().unwrap().to_ascii_uppercase();
            let response =
                guest.send(&method, &path, &[("Content-Type", "application/json")], b"?");
            assert_ne!(response.status, 405, "{method} {path}");
            assert!(!response.text().contains(UNKNOWN), "{method} {path}");
        }
    }
    // Clients take JSON for the answer of an existing operation.
    let response = guest.get("/nothing/here");
    assert_eq!((response.status, response.text().as_str()), (404, UNKNOWN));
}

#[test]
fn the_page_of_the_interface_shows_all_of_it() {
    let guest = Guest::start();
    let page = guest.get("/swagger");
    assert_eq!(page.header("content-type"), Some("text/html; charset=utf-8"));
    assert_eq!(guest.get("/swagger/index.html").text(), page.text());
    let text = page.text();
    let data = text.split("application/json\">").nth(1).unwrap().split("</script>").next().unwrap();
    let shown: Value = serde_json::from_str(data).unwrap();
    let published: Value = serde_json::from_str(include_str!("../contract/sandbox.json")).unwrap();
    for (path, methods) in published.as_object().unwrap() {
        let operation =
            shown.as_array().unwrap().iter().find(|operation| operation["path"] == path.as_str());
        let operation = operation.unwrap_or_else(|| panic!("{path} is not shown"));
        let shown: Vec<String> = methods
            .as_array()
            .unwrap()
            .iter()
            .map(|m| m.as_str().unwrap().to_uppercase())
            .collect();
        assert!(shown.iter().all(|method| {
            operation["methods"].as_array().unwrap().contains(&Value::from(method.clone()))
        }));
    }
}
