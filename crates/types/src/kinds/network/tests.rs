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
fn what_was_fixed_is_kept_and_a_rule_that_changed_needs_its_secrets_again() {
    let target = |header: &str| json!({"destinations": ["*"], "headers": {"A": header}});
    let mut old = network(json!({
        "egress": {"gateway": "out", "mode": "dedicated"},
        "proxy": {"routing": [target("1"), target("2")]},
    }));
    let secret = Sensitive([("k".to_owned(), "v".to_owned())].into());
    old.targets_mut().for_each(|target| target.secrets = Some(secret.clone()));
    let mut new = Some(network(json!({"proxy": {"routing": [target("2"), target("3")]}})));
    Network::keep(&mut new, Some(&old));
    let new = new.unwrap();
    assert_eq!(new.gateway(), Some("out"));
    let kept: Vec<_> = new.targets().iter().map(|target| target.secrets.clone()).collect();
    assert_eq!(kept, [Some(secret), None]);
    let mut none = None;
    Network::keep(&mut none, Some(&old));
    assert_eq!(none.unwrap().rules(), EgressRules::default(), "only the gateway stays");
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
