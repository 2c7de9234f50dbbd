//! The rules of each kind: which fields of a body are refused, after what the server fills was
//! filled.

#![expect(clippy::unwrap_used, reason = "a failure here is a failed test")]

use serde_json::{Value, json};
use types::kinds::*;
use types::parts::Sensitive;
use types::schema::Checker;
use types::{Kind, Problems, Timestamp, World};

const NOW: Timestamp = Timestamp::from_ms(1_776_331_800_000);

fn world() -> World {
    World::new(|| NOW, |bytes| bytes.fill(7))
}

/// Takes a body the way of a request: schema, type, what the server fills, rules.
fn read<K: Kind>(body: &Value, old: Option<&K>) -> Result<K, Problems> {
    Checker::of::<K>().check(body)?;
    let mut wish: K = serde_json::from_value(body.clone()).unwrap();
    wish.complete(old, &world());
    let mut problems = Problems::default();
    wish.check(&mut problems);
    if let Some(old) = old {
        wish.check_change(old, &mut problems);
    }
    problems.into_result()?;
    Ok(wish)
}

#[track_caller]
fn refused(problems: Result<(), Problems>, expect: &[&str]) {
    let problems = problems.err().unwrap_or_default();
    let fields: Vec<&str> = problems.iter().map(|problem| problem.field.as_str()).collect();
    assert_eq!(fields, expect, "{problems}");
}

/// Checks which fields of a body are refused.
#[track_caller]
fn check<K: Kind>(body: Value, expect: &[&str]) {
    refused(read::<K>(&body, None).map(|_| ()), expect);
}

/// Checks which fields of a spec are refused.
#[track_caller]
fn check_spec<K: Kind>(spec: Value, expect: &[&str]) {
    check::<K>(json!({"metadata": {"name": "a"}, "spec": spec}), expect);
}

/// Checks which fields of a spec cannot follow another.
#[track_caller]
fn check_change<K: Kind>(old: Value, new: Value, expect: &[&str]) {
    let body = |spec| json!({"metadata": {"name": "a"}, "spec": spec});
    let old = read::<K>(&body(old), None).unwrap();
    refused(read::<K>(&body(new), Some(&old)).map(|_| ()), expect);
}

fn made<K: Kind>(spec: Value) -> K {
    read(&json!({"metadata": {"name": "a"}, "spec": spec}), None).unwrap()
}

#[test]
fn metadata_keeps_its_limits() {
    let with = |metadata: Value| json!({"metadata": metadata, "spec": {}});
    check::<Agent>(with(json!({"name": "a".repeat(49), "displayName": "ä".repeat(63)})), &[]);
    check::<Agent>(with(json!({"name": "a".repeat(50)})), &["metadata.name"]);
    check::<Agent>(with(json!({"name": "A"})), &["metadata.name"]);
    check::<Agent>(with(json!({})), &["metadata.name"]);
    check::<Agent>(
        with(json!({"name": "a", "displayName": "x".repeat(64)})),
        &["metadata.displayName"],
    );
    check::<Agent>(
        with(json!({"name": "a", "externalId": "x".repeat(65)})),
        &["metadata.externalId"],
    );
    check::<Agent>(with(json!({"name": "a", "externalId": "a_b"})), &["metadata.externalId"]);
    check::<Agent>(with(json!({"name": "a", "labels": {"k": "a\nb"}})), &["metadata.labels.k"]);
    let many: serde_json::Map<String, Value> =
        (0..65).map(|number| (number.to_string(), json!("x"))).collect();
    check::<Agent>(with(json!({"name": "a", "labels": many})), &["metadata.labels"]);
    check::<Agent>(json!({"metadata": {"name": "a"}}), &["spec"]);
}

#[test]
fn read_only_members_are_ignored_whatever_they_hold() {
    let body = json!({
        "metadata": {"name": "a", "createdAt": 5, "url": {}}, "status": "NO", "events": "x",
        "spec": {"triggers": [{"type": "http-async", "configuration": {"callbackSecret": 5, "callbackUrl": "https://a.example"}}]},
    });
    check::<Agent>(body, &[]);
}

#[test]
fn variables_are_named_once_and_not_like_the_platforms() {
    let envs = |envs: Value| json!({"runtime": {"envs": envs}});
    check_spec::<Agent>(envs(json!([{"name": "A", "value": ""}, {"name": "a_1"}])), &[]);
    check_spec::<Agent>(
        envs(json!([{"name": "A"}, {"name": "A"}])),
        &["spec.runtime.envs[1].name"],
    );
    check_spec::<Agent>(envs(json!([{"name": "PORT", "value": "3000"}])), &[]);
    check_spec::<Sandbox>(
        envs(json!([{"name": "PORT", "value": "3000"}])),
        &["spec.runtime.envs[0].name"],
    );
    for name in ["", "1A", "A-B", "HOST", "BL_WORKSPACE", "BL_AGENT_X_SERVICE_NAME"] {
        check_spec::<Agent>(envs(json!([{"name": name}])), &["spec.runtime.envs[0].name"]);
    }
    check_spec::<Job>(
        envs(json!([{"name": "A", "value": "a\u{0}"}])),
        &["spec.runtime.envs[0].value"],
    );
}

#[test]
fn triggers_say_when_and_how() {
    let one = |kind: &str, configuration: Value| json!({"triggers": [{"type": kind, "configuration": configuration}]});
    check_spec::<Job>(one("cron", json!({"schedule": "*/5 * * * *", "tasks": [{"a": 1}]})), &[]);
    for line in ["* * * *", "0 0 30 2 *", ""] {
        let field = ["spec.triggers[0].configuration.schedule"];
        check_spec::<Job>(one("cron", json!({"schedule": line})), &field);
    }
    check_spec::<Job>(
        one("cron", json!({"schedule": "* * * * *", "tasks": [1]})),
        &["spec.triggers[0].configuration.tasks[0]"],
    );
    check_spec::<Agent>(one("http-async", json!({"timeout": 900})), &[]);
    check_spec::<Agent>(
        one("http-async", json!({"timeout": 901})),
        &["spec.triggers[0].configuration.timeout"],
    );
    check_spec::<Agent>(json!({"triggers": [{}]}), &["spec.triggers[0].type"]);
    check_spec::<Agent>(one("sometimes", json!({})), &["spec.triggers[0].type"]);
    check_spec::<Job>(
        one("cron", json!({"schedule": "0 3 * * *", "timezone": "Europe/Paris"})),
        &[],
    );
    check_spec::<Job>(
        one("cron", json!({"schedule": "0 3 * * *", "timezone": "Paris"})),
        &["spec.triggers[0].configuration.timezone"],
    );
    for address in [
        "ftp://a.example",
        "x",
        "https://",
        "http://10.1.2.3/",
        "https://me:pw@a.example/",
        "http://[::1]:80/",
    ] {
        check_spec::<Agent>(
            one("http-async", json!({"callbackUrl": address})),
            &["spec.triggers[0].configuration.callbackUrl"],
        );
    }
    let container = json!({"runtime": {"generation": "mk2"}, "triggers": [{"type": "http-async", "configuration": {"timeout": 5}}]});
    check_spec::<Function>(container, &["spec.triggers[0].configuration.timeout"]);
}

#[test]
fn a_trigger_of_a_job_answers_where_nothing_else_does() {
    let one = |path: &str| json!({"triggers": [{"type": "http", "id": "t", "configuration": {"path": path}}]});
    for path in ["", "/x", "x/y.z", "jobs/a/run", "/jobs/a/run/now", "hooks/executions"] {
        check_spec::<Job>(one(path), &[]);
    }
    for path in [
        "//x",
        "x/",
        "x/../y",
        "x y",
        "x%2fy",
        "/jobs/b/run",
        "agents/x",
        "jobs",
        "jobs/a",
        "jobs/a/executions",
    ] {
        check_spec::<Job>(one(path), &["spec.triggers[0].configuration.path"]);
    }
    let twice = json!({"triggers": [
        {"type": "http", "configuration": {"path": "/x"}}, {"type": "http-async", "configuration": {"path": "x"}},
    ]});
    check_spec::<Job>(twice, &["spec.triggers[1].configuration.path"]);
}

#[test]
fn triggers_get_ids_and_secrets_of_their_own() {
    let async_trigger = json!({"id": "a", "type": "http-async", "configuration": {"callbackUrl": "https://a.example", "callbackSecret": "mine"}});
    let spec =
        json!({"triggers": [async_trigger.clone(), {"id": "a", "type": "http"}, {"type": "http"}]});
    let agent: Agent = made(spec);
    let triggers = agent.spec.triggers.as_ref().unwrap();
    let ids: Vec<_> = triggers.iter().map(|trigger| trigger.id.as_deref().unwrap()).collect();
    assert_eq!(ids[..2], ["a", "a-2"]);
    assert!(ids[2].starts_with("trigger-"));
    let secret = |agent: &Agent| {
        agent.spec.triggers.as_ref().unwrap()[0]
            .configuration
            .as_ref()
            .unwrap()
            .callback_secret
            .clone()
    };
    let Some(Sensitive(made)) = secret(&agent) else { panic!("no secret") };
    assert!(made.len() == 40 && made != "mine");
    let update = json!({"metadata": {"name": "a"}, "spec": {"triggers": [async_trigger]}});
    assert!(!format!("{agent:?}").contains(&made));
    assert_eq!(secret(&read(&update, Some(&agent)).unwrap()), Some(Sensitive(made)));
}

#[test]
fn traffic_is_a_percentage() {
    check_spec::<Agent>(
        json!({"revision": {"canaryPercent": 100, "traffic": 0, "stickySessionTtl": 0}}),
        &[],
    );
    check_spec::<Agent>(
        json!({"revision": {"canaryPercent": 101}}),
        &["spec.revision.canaryPercent"],
    );
    check_spec::<Function>(json!({"revision": {"traffic": -1}}), &["spec.revision.traffic"]);
}

#[test]
fn agents_scale_and_mount_within_reason() {
    check_spec::<Agent>(
        json!({"runtime": {"minScale": 2, "maxScale": 1}}),
        &["spec.runtime.minScale"],
    );
    check_spec::<Agent>(json!({"runtime": {"memory": 127}}), &["spec.runtime.memory"]);
    check_spec::<Agent>(json!({"volumes": [{"name": "v", "mountPath": "/a"}]}), &["spec.region"]);
    check_change::<Agent>(json!({"region": "a"}), json!({"region": "b"}), &["spec.region"]);
    check_change::<Agent>(json!({"region": "a"}), json!({}), &[]);
    let generation = |generation| json!({"runtime": {"generation": generation}});
    check_change::<Agent>(generation("mk2"), generation("mk3"), &["spec.runtime.generation"]);
    check_change::<Agent>(json!({}), generation("mk2"), &["spec.runtime.generation"]);
    check_change::<Agent>(generation("mk2"), json!({}), &[]);
}

#[test]
fn functions_keep_what_clients_send() {
    let function: Function = made(
        json!({"type": "mcp", "runtime": {"type": "mcp", "transport": "http-stream"}, "odd": 1}),
    );
    let shown = serde_json::to_value(&function).unwrap();
    assert_eq!(
        shown["spec"],
        json!({"type": "mcp", "enabled": true, "runtime": {"type": "mcp", "transport": "http-stream"}})
    );
    check_spec::<Function>(
        json!({"runtime": {"transport": "pigeon"}}),
        &["spec.runtime.transport"],
    );
    check_spec::<Function>(
        json!({"runtime": {"ports": [{"target": 1}, {"target": 1}]}}),
        &["spec.runtime.ports[1].target"],
    );
    check_spec::<Function>(
        json!({"runtime": {"ports": [{"target": 65536}]}}),
        &["spec.runtime.ports[0].target"],
    );
}

#[test]
fn jobs_have_only_ephemeral_volumes_and_a_share_of_memory_as_disk() {
    let volume = |path: &str, size: i64| json!({"name": path, "mountPath": path, "type": "ephemeral", "sizeMb": size});
    check_spec::<Job>(json!({"volumes": [volume("/a", 1), volume("/b", 1)]}), &[]);
    check_spec::<Job>(json!({"volumes": [volume("/a", 0)]}), &["spec.volumes[0].sizeMb"]);
    check_spec::<Job>(json!({"volumes": [volume("/a/../b", 1)]}), &["spec.volumes[0].mountPath"]);
    check_spec::<Job>(
        json!({"volumes": [volume("/a", 1), volume("/a//", 1)]}),
        &["spec.volumes[1].mountPath"],
    );
    let persistent = json!({"name": "v", "mountPath": "/v", "type": "persistent", "sizeMb": 1});
    check_spec::<Job>(json!({"volumes": [persistent]}), &["spec.volumes[0].type"]);
    for percent in [9, 96] {
        check_spec::<Job>(
            json!({"runtime": {"diskPercent": percent}}),
            &["spec.runtime.diskPercent"],
        );
    }
    check_spec::<Job>(
        json!({"runtime": {"diskPercent": 50, "generation": "mk2"}}),
        &["spec.runtime.diskPercent"],
    );
    let job: Job = made(json!({}));
    let runtime = job.spec.runtime.unwrap();
    assert_eq!(
        (runtime.disk_percent, runtime.max_retries, runtime.generation),
        (Some(50), Some(0), None)
    );
    check_spec::<Job>(json!({"runtime": {"timeout": 0}}), &["spec.runtime.timeout"]);
    check_spec::<Job>(json!({"githubRunner": {"repositories": ["me/it"]}}), &[]);
    check_spec::<Job>(
        json!({"githubRunner": {"repositories": ["me"]}}),
        &["spec.githubRunner.repositories[0]"],
    );
}

#[test]
fn sandboxes_get_defaults_and_declare_any_port() {
    let sandbox: Sandbox = made(json!({"runtime": {"ttl": ""}, "triggers": null}));
    let runtime = sandbox.spec.runtime.unwrap();
    assert_eq!(
        (runtime.image.as_deref(), runtime.memory),
        (Some("blaxel/base-image:latest"), Some(4096))
    );
    assert_eq!(runtime.ttl, None);
    for port in [80, 443, 8080] {
        check_spec::<Sandbox>(json!({"runtime": {"ports": [{"target": port}]}}), &[]);
    }
    check_spec::<Sandbox>(json!({"runtime": {"extraArgs": {"tun": "enabled"}}}), &[]);
    check_spec::<Sandbox>(
        json!({"runtime": {"extraArgs": {"tun": "yes"}}}),
        &["spec.runtime.extraArgs.tun"],
    );
    check_spec::<Sandbox>(json!({"runtime": {"ttl": "soon"}}), &["spec.runtime.ttl"]);
    check_spec::<Sandbox>(json!({"runtime": {"expires": "soon"}}), &["spec.runtime.expires"]);
}

#[test]
fn sandbox_lifecycles_are_lengths_or_dates() {
    let policy = |kind: &str, value: &str| json!({"lifecycle": {"expirationPolicies": [{"type": kind, "value": value}]}});
    let field = ["spec.lifecycle.expirationPolicies[0].value"];
    check_spec::<Sandbox>(policy("ttl-idle", "30m"), &[]);
    check_spec::<Sandbox>(policy("ttl-max-age", "2026-04-16T09:30:00Z"), &field);
    check_spec::<Sandbox>(policy("date", "2026-04-16T09:30:00Z"), &[]);
    check_spec::<Sandbox>(policy("date", "30m"), &field);
    check_spec::<Sandbox>(
        json!({"lifecycle": {"terminatedRetention": "x"}}),
        &["spec.lifecycle.terminatedRetention"],
    );
}

#[test]
fn the_first_condition_ends_a_sandbox() {
    let sandbox: Sandbox = made(json!({
        "runtime": {"ttl": "2h"},
        "lifecycle": {"expirationPolicies": [{"type": "ttl-idle", "value": "30m"}, {"type": "ttl-max-age", "value": "1h"}]},
    }));
    assert_eq!(sandbox.expires_at(NOW, None), Some(NOW.plus_s(1800)));
    assert_eq!(sandbox.expires_at(NOW, Some(NOW.plus_s(3000))), Some(NOW.plus_s(3600)));
    assert_eq!(made::<Sandbox>(json!({})).expires_at(NOW, None), None);
}

#[test]
fn sandbox_volumes_are_fixed_and_at_most_one_persists() {
    let volume = |name: &str| json!({"name": name, "mountPath": format!("/{name}")});
    check_spec::<Sandbox>(json!({"volumes": [volume("a")]}), &[]);
    check_spec::<Sandbox>(json!({"volumes": [volume("a"), volume("b")]}), &["spec.volumes"]);
    let unsized_volume = json!({"name": "a", "mountPath": "/a", "type": "ephemeral"});
    check_spec::<Sandbox>(json!({"volumes": [unsized_volume]}), &["spec.volumes[0].sizeMb"]);
    let at_root =
        json!({"volumes": [{"name": "a", "mountPath": "/"}], "runtime": {"storageMb": 5}});
    check_spec::<Sandbox>(at_root, &["spec.runtime.storageMb"]);
    check_change::<Sandbox>(
        json!({"volumes": [volume("a")]}),
        json!({"volumes": []}),
        &["spec.volumes"],
    );
    check_change::<Sandbox>(json!({"volumes": [volume("a")]}), json!({}), &[]);
}

#[test]
fn a_proxy_is_turned_on_and_off_in_place() {
    let proxy = json!({"network": {"proxy": {}}});
    check_change::<Sandbox>(proxy.clone(), json!({"network": {}}), &[]);
    check_change::<Sandbox>(json!({}), proxy, &[]);
    let routing = |headers: Value| json!({"network": {"proxy": {"routing": [{"destinations": ["*"], "headers": headers}]}}});
    check_spec::<Sandbox>(routing(json!({"X-A": "{{SECRET:a}}"})), &[]);
    check_spec::<Sandbox>(
        routing(json!({"X-A": "a\r\nb"})),
        &["spec.network.proxy.routing[0].headers.X-A"],
    );
    check_spec::<Sandbox>(
        json!({"network": {"firewall": {"rulesets": ["odd"]}}}),
        &["spec.network.firewall.rulesets[0]"],
    );
    check_spec::<Sandbox>(
        json!({"network": {"egress": {"mode": "dedicated"}}}),
        &["spec.network.egress.gateway"],
    );
}

#[test]
fn applications_take_what_the_command_line_puts_into_revisions() {
    let application: Application =
        made(json!({"revisions": [{"image": "app/a:1", "envs": [{"name": "A"}]}]}));
    let spec = application.spec;
    assert_eq!(
        (spec.image.as_deref(), spec.memory, spec.port),
        (Some("app/a:1"), Some(2048), Some(8080))
    );
    assert_eq!((spec.envs.map(|envs| envs.len()), spec.revisions), (Some(1), None));
    check_spec::<Application>(json!({"urls": [{"domain": "A"}]}), &["spec.urls[0].domain"]);
    check_spec::<Application>(
        json!({"urls": [{"domain": "a.example", "subdomain": "a.b"}]}),
        &["spec.urls[0].subdomain"],
    );
    check_spec::<Application>(json!({"port": 0}), &["spec.port"]);
}

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
        json!({"type": "maxToken", "maxTokens": {"granularity": "day", "step": 0}}),
        &["spec.maxTokens.step"],
    );
    let policy: Policy = made(json!({"type": "maxToken", "maxTokens": {"granularity": "day"}}));
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
    check_spec::<PreviewToken>(json!({"expiresAt": "tomorrow"}), &["spec.expiresAt"]);
}

#[test]
fn domains_are_domain_names() {
    let named = |name: &str| json!({"metadata": {"name": name}, "spec": {"type": "applications"}});
    check::<CustomDomain>(named("app.example.com"), &[]);
    for name in ["localhost", "A.example.com", "a..com", "*.example.com"] {
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
    let next =
        |agent: &Agent, old: Option<(&Agent, &types::parts::Lifecycle)>| agent.next_state(old, NOW);
    let status = |state: &types::parts::Lifecycle| state.status().unwrap().name();
    let agent: Agent = made(json!({}));
    let state = next(&agent, None);
    assert_eq!(status(&state), "DEPLOYING");
    assert_eq!(next(&agent, Some((&agent, &state))), state);
    let disabled: Agent = made(json!({"enabled": false}));
    assert_eq!(status(&next(&disabled, Some((&agent, &state)))), "DEACTIVATED");
    assert_eq!(status(&made::<Model>(json!({})).next_state(None, NOW)), "DEPLOYED");
}
