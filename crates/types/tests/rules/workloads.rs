//! Rules of what is deployed: agents, functions, jobs.

use super::*;

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
