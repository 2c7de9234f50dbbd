use super::*;
use proptest::prelude::*;
use serde_json::{Value, json};

fn network(wish: Value) -> Network {
    serde_json::from_value(wish).unwrap()
}

#[test]
fn both_places_of_a_list_are_one_list() {
    let rules = network(json!({
        "allowedDomains": ["a.example", "b.example"], "forbiddenDomains": ["x.example"],
        "proxy": {"allowedDomains": ["b.example", "c.example"], "bypass": ["d.example"]},
        "firewall": {"rulesets": ["default", "proxy"]},
    }))
    .rules();
    assert_eq!(rules.allowed_domains, ["a.example", "b.example", "c.example"]);
    assert_eq!(rules.forbidden_domains, ["x.example"]);
    assert_eq!(rules.bypass, ["d.example"]);
    assert!(rules.proxy_only);
    assert_eq!(network(json!({"proxy": {}})).rules(), EgressRules::default());
}

#[test]
fn only_the_gateway_is_fixed() {
    let old = network(json!({
        "egress": {"gateway": "out", "mode": "dedicated"}, "forbiddenDomains": ["x.example"],
    }));
    let mut new = None;
    Network::keep(&mut new, Some(&old));
    let new = new.unwrap();
    assert_eq!((new.gateway(), new.rules()), (Some("out"), EgressRules::default()));
}

/// Replaces rules, and returns the values of the secrets that the new ones have, or the fields
/// that were refused.
fn replaced(old: Value, new: Value) -> Result<Vec<String>, Vec<String>> {
    let rules = |routing: Value| network(json!({"proxy": {"routing": routing}}));
    let (old, mut new) = (rules(old), Some(rules(new)));
    Network::keep(&mut new, Some(&old));
    let mut problems = Problems::default();
    Network::check_change(new.as_ref(), Some(&old), &mut problems);
    let cut = |field: &str| field.replace("spec.network.proxy.routing", "");
    let refused: Vec<_> = problems.iter().map(|problem| cut(&problem.field)).collect();
    problems.into_result().map_err(|_| refused)?;
    let new = new.unwrap();
    let secrets = new.targets().iter().flat_map(|target| target.secrets().values());
    Ok(secrets.cloned().collect())
}

#[test]
fn secrets_stay_with_their_destinations_and_never_go_to_others() {
    let old = json!([
        {"destinations": ["a", "b"], "headers": {"K": "{{SECRET:k}}"}, "secrets": {"k": "of a"}},
        {"destinations": ["c"], "secrets": {"k": "of c"}},
        {"destinations": ["d"]},
    ]);
    let kept = |new: Value, secrets: &[&str]| {
        assert_eq!(replaced(old.clone(), new).unwrap(), secrets);
    };
    let refused = |new: Value, field: &str| {
        assert_eq!(replaced(old.clone(), new).unwrap_err(), [field]);
    };
    let first = json!({"destinations": ["a", "b"], "headers": {"K": "{{SECRET:k}}"}});
    kept(json!([{"destinations": ["c"]}, first]), &["of c", "of a"]);
    kept(json!([{"destinations": ["b"], "headers": {"L": "{{SECRET:k}}"}}]), &["of a"]);
    kept(json!([{"destinations": ["b"], "secrets": {"k": "***"}}]), &["of a"]);
    kept(json!([{"destinations": ["a"], "secrets": {}}]), &[]);
    kept(json!([{"destinations": ["x"], "secrets": {"k": "of x"}}]), &["of x"]);
    kept(json!([{"destinations": ["x"]}, {"destinations": ["d"], "body": {"n": "1"}}]), &[]);
    kept(json!([]), &[]);

    refused(json!([{"destinations": ["a", "x"]}]), "[0].secrets");
    refused(json!([{"destinations": ["x"], "headers": {"K": "{{SECRET:k}}"}}]), "[0].secrets");
    refused(json!([{"destinations": ["x"], "secrets": {"k": "***"}}]), "[0].secrets.k");
    refused(json!([first, {"destinations": ["x"], "secrets": {"k": "***"}}]), "[1].secrets.k");
    refused(json!([first, {"destinations": ["c"], "secrets": {"l": "***"}}]), "[1].secrets.l");
}

#[test]
fn a_rule_adds_what_it_says_or_is_refused() {
    let check = |rule: Value, fields: &[&str]| {
        let mut rule = rule;
        rule["destinations"] = json!(["a.example"]);
        let mut problems = Problems::default();
        network(json!({"proxy": {"routing": [rule]}})).check(&mut problems);
        let found: Vec<_> = problems.iter().map(|problem| problem.field.as_str()).collect();
        let fields = fields.iter().map(|field| format!("spec.network.proxy.routing[0].{field}"));
        assert_eq!(found, fields.collect::<Vec<_>>());
    };
    check(json!({"headers": {"Authorization": "a", "Cookie": "b", "X-Ü": "c"}}), &["headers"]);
    let names = "Host content-length Transfer-Encoding CONNECTION Upgrade TE Trailer Expect \
        Keep-Alive Proxy-Connection Proxy-Authorization HTTP2-Settings X-Blaxel-Request-Id";
    for name in names.split_whitespace() {
        check(json!({"headers": {name: "a"}}), &[&format!("headers.{name}")]);
    }
    for value in ["a\r\nHost: b", "a\nb", "a\u{0}b"] {
        check(json!({"headers": {"A": value}}), &["headers.A"]);
    }
    check(json!({"headers": {"A\r\nB": "c"}}), &["headers"]);
    check(json!({"secrets": {"k}": "a"}}), &["secrets.k}"]);
    let secret = |header: &str, value: &str| json!({"headers": {"A": header}, "body": {"b": "{{SECRET:k}}"}, "secrets": {"k": value}});
    check(secret("{{SECRET:k}}", "a\n"), &["secrets.k"]);
    check(secret("a", "a\n"), &[]);
}

proptest! {
    /// Whatever passes the checks reaches the machine as written, each pattern once.
    #[test]
    fn no_pattern_is_lost(top in prop::collection::vec(".{0,6}", 0..4), proxy in prop::collection::vec(".{0,6}", 0..4)) {
        let network = network(json!({"forbiddenDomains": top, "proxy": {"forbiddenDomains": proxy}}));
        let mut problems = Problems::default();
        network.check(&mut problems);
        let all: Vec<_> = top.iter().chain(&proxy).collect();
        let well = all.iter().all(|it| !it.is_empty() && !it.chars().any(|it| it.is_whitespace() || it.is_control()));
        prop_assert_eq!(problems.into_result().is_ok(), well);
        let rules = network.rules().forbidden_domains;
        prop_assert!(all.iter().all(|pattern| rules.contains(pattern)));
        prop_assert!(rules.iter().all(|rule| rules.iter().filter(|other| *other == rule).count() == 1));
    }
}
