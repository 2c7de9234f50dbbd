//! Rules of storage, networks, models and policies.

use super::*;
use types::parts::Deployment;

#[test]
fn volumes_grow_only() {
    assert_eq!(made::<Volume>(json!({})).spec.size, Some(1024));
    assert_eq!(made::<Volume>(json!({"template": "t:latest"})).spec.size, None);
    check_spec::<Volume>(json!({"size": 0}), &["spec.size"]);
    check_change::<Volume>(json!({"size": 2}), json!({"size": 3}), &[]);
    check_change::<Volume>(json!({"size": 2}), json!({"size": 1}), &["spec.size"]);
    check_change::<Volume>(json!({"region": "a"}), json!({"region": "b"}), &["spec.region"]);
    check_spec::<VolumeTemplate>(json!({"defaultSize": 0}), &["spec.defaultSize"]);
    assert_eq!(made::<Volume>(json!({"template": "t:3"})).references()[0].name, "t");
}

#[test]
fn drives_have_three_rules_at_most() {
    let rule = json!({"labels": {"a": "b"}, "mode": "read"});
    check_spec::<Drive>(json!({"permissions": [rule, rule, rule], "size": 10}), &[]);
    check_spec::<Drive>(json!({"permissions": [rule, rule, rule, rule]}), &["spec.permissions"]);
    check_spec::<Drive>(json!({"permissions": [{"path": "a"}]}), &["spec.permissions[0].path"]);
    let drive: Drive = made(json!({"permissions": [{}]}));
    assert_eq!(drive.spec.permissions.unwrap()[0].path.as_deref(), Some("/"));
}

#[test]
fn policies_hold_what_their_type_needs() {
    check_spec::<Policy>(json!({}), &["spec.type"]);
    check_spec::<Policy>(json!({"type": "location"}), &["spec.locations"]);
    check_spec::<Policy>(
        json!({"type": "location", "locations": [{"type": "country", "name": "us"}]}),
        &[],
    );
    check_spec::<Policy>(
        json!({"type": "flavor", "flavors": [{"type": "cpu"}]}),
        &["spec.flavors[0].name"],
    );
    check_spec::<Policy>(json!({"type": "maxToken"}), &["spec.maxTokens"]);
    check_spec::<Policy>(
        json!({"type": "maxToken", "maxTokens": {"total": 5}}),
        &["spec.maxTokens.granularity"],
    );
    check_spec::<Policy>(
        json!({"type": "maxToken", "maxTokens": {"granularity": "day", "step": 0, "total": 1}}),
        &["spec.maxTokens.step"],
    );
    for cost in ["0", "-1", "much"] {
        check_spec::<Policy>(
            json!({"type": "maxToken", "maxTokens": {"granularity": "day", "cost": cost}}),
            &["spec.maxTokens.cost"],
        );
    }
    let ignored = json!({"granularity": "day", "input": 0, "output": 0, "total": 0});
    let policy: Policy = made(json!({"type": "maxToken", "maxTokens": ignored}));
    assert!(policy.spec.model_limits("p", "p").is_empty(), "0 is no limit");
    assert_eq!(policy.spec.max_tokens.unwrap().step, Some(1));
}

#[test]
fn connections_name_their_provider_and_keep_it() {
    check_spec::<IntegrationConnection>(json!({}), &["spec.integration"]);
    let some = json!({"integration": "gmail", "secret": {"CLIENT_ID": "a", "CLIENT_SECRET": "b"}});
    check_spec::<IntegrationConnection>(some, &["spec.secret.REFRESH_TOKEN"]);
    check_change::<IntegrationConnection>(
        json!({"integration": "a"}),
        json!({"integration": "b"}),
        &["spec.integration"],
    );
}

#[test]
fn models_know_their_providers() {
    check_spec::<Model>(json!({"runtime": {"type": "azure-ai-inference"}}), &[]);
    check_spec::<Model>(json!({"runtime": {"type": "hf_private_endpoint"}}), &[]);
    check_spec::<Model>(json!({"runtime": {"type": "abacus"}}), &["spec.runtime.type"]);
}

#[test]
fn previews_have_a_port_and_legal_headers() {
    check_spec::<Preview>(
        json!({"port": 443, "public": false, "expires": "2026-04-16T09:30:00Z"}),
        &[],
    );
    check_spec::<Preview>(json!({}), &["spec.port"]);
    check_spec::<Preview>(json!({"port": 80}), &["spec.port"]);
    check_spec::<Preview>(json!({"port": 1, "prefixUrl": "a.b"}), &["spec.prefixUrl"]);
    check_spec::<Preview>(json!({"port": 1, "customDomain": "a"}), &["spec.customDomain"]);
    check_spec::<Preview>(json!({"port": 1, "ttl": "x"}), &["spec.ttl"]);
    check_spec::<Preview>(
        json!({"port": 1, "requestHeaders": {"a b": "c"}}),
        &["spec.requestHeaders"],
    );
    check_spec::<Preview>(
        json!({"port": 1, "responseHeaders": {"a": "b\nc"}}),
        &["spec.responseHeaders.a"],
    );
    let settable = json!({"X-App": "1", "Host": "a.example", "Set-Cookie": "a=b"});
    check_spec::<Preview>(
        json!({"port": 1, "requestHeaders": settable, "responseHeaders": settable}),
        &[],
    );
    for reserved in ["Content-Length", "X_Blaxel_Subject-Id", "upgrade"] {
        let [request, response] =
            ["request", "response"].map(|way| format!("spec.{way}Headers.{reserved}"));
        check_spec::<Preview>(
            json!({"port": 1, "requestHeaders": {reserved: "1"}, "responseHeaders": {reserved: "1"}}),
            &[&request, &response],
        );
    }
    check_spec::<Preview>(
        json!({"port": 1, "responseHeaders": {"Clear-Site-Data": "*"}}),
        &["spec.responseHeaders.Clear-Site-Data"],
    );
    check_spec::<PreviewToken>(json!({"expiresAt": "tomorrow"}), &["spec.expiresAt"]);
}

#[test]
fn domains_are_domain_names() {
    let named = |name: &str| json!({"metadata": {"name": name}, "spec": {"type": "applications"}});
    check::<CustomDomain>(named("app.example.com"), &[]);
    check::<CustomDomain>(named("7.example.com"), &[]);
    let names = "localhost A.example.com a..com a.example.com. *.example.com";
    let addresses = "10.0.0.7 127.1 10.0.0.0x7 ::1 2001:db8::7 ::ffff:10.0.0.7";
    for name in names.split(' ').chain(addresses.split(' ')) {
        check::<CustomDomain>(named(name), &["metadata.name"]);
    }
    let domain: CustomDomain = read(&named("a.example"), None).unwrap();
    assert_eq!(domain.spec.domain_type, Some(custom_domain::DomainType::Applications));
}

#[test]
fn schedules_know_when_and_what() {
    let of =
        |kind: &str, value: &str| json!({"type": kind, "value": value, "input": {"command": "ls"}});
    check::<Schedule>(of("cron", "* * * * *"), &[]);
    check::<Schedule>(of("cron", "* * * *"), &["value"]);
    check::<Schedule>(of("at", "2026-04-16T09:30:00Z"), &[]);
    check::<Schedule>(of("at", "30m"), &["value"]);
    check::<Schedule>(of("sleep", "x"), &["value"]);
    check::<Schedule>(json!({"type": "cron", "value": "* * * * *"}), &["input.command"]);
    let body = json!({"type": "cron", "value": "* * * * *", "maxExecutions": 101, "input": {"command": "ls"}});
    check::<Schedule>(body, &["maxExecutions"]);
    let slept: Schedule = read(&of("sleep", "1h"), None).unwrap();
    assert_eq!(
        (slept.kind, slept.value),
        (Some(schedule::ScheduleType::At), Some(NOW.plus_s(3600).to_string()))
    );
}

#[test]
fn gateways_and_addresses_need_region_and_family() {
    check_spec::<EgressGateway>(json!({}), &["spec.region"]);
    check_spec::<EgressGateway>(json!({"region": "local"}), &[]);
    check_spec::<EgressIp>(json!({"ipFamily": "IPv5"}), &["spec.ipFamily"]);
    check_spec::<EgressIp>(json!({"ipFamily": "IPv6"}), &[]);
    check_spec::<Vpc>(json!({"anything": {"at": "all"}}), &[]);
}

#[test]
fn what_needs_a_machine_waits_for_it() {
    let next = |agent: &Agent, old: Option<(&Agent, &Deployment)>| agent.next_state(old, NOW);
    let status = |state: &types::parts::Lifecycle| state.status().unwrap().name();
    let agent: Agent = made(json!({}));
    let state = next(&agent, None);
    assert_eq!(status(&state.lifecycle), "DEPLOYING");
    assert_eq!(next(&agent, Some((&agent, &state))), state);
    let disabled: Agent = made(json!({"enabled": false}));
    assert_eq!(status(&next(&disabled, Some((&agent, &state))).lifecycle), "DEACTIVATED");
    assert_eq!(status(&made::<Model>(json!({})).next_state(None, NOW)), "DEPLOYED");
}
