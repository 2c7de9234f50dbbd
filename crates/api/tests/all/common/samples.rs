//! One object of each kind that callers make, with many members set. Objects that contain others
//! come before them.

use serde_json::{Value, json};

/// The name of each sample.
pub const NAME: &str = "one";

pub struct Sample {
    /// Path of the collection.
    pub path: &'static str,
    pub item: String,
    /// Place of a text that may be changed; `None` if the object cannot be replaced.
    pub text: Option<&'static str>,
    pub body: Value,
}

const TITLE: &str = "/metadata/displayName";

fn sample(path: &'static str, text: Option<&'static str>, spec: Value) -> Sample {
    let metadata = json!({"name": NAME, "displayName": "First"});
    Sample {
        path,
        item: format!("{path}/{NAME}"),
        text,
        body: json!({"metadata": metadata, "spec": spec}),
    }
}

fn runtime() -> Value {
    json!({"image": "agent/one:1", "memory": 2048, "envs": [
        {"name": "TOKEN", "value": "hunter2", "secret": true}, {"name": "MODE", "value": "fast"}]})
}

pub fn samples() -> Vec<Sample> {
    let mut samples = workloads();
    samples.extend(below_sandboxes());
    samples.extend(storage());
    samples.extend(network());
    samples
}

fn workloads() -> Vec<Sample> {
    let trigger = json!([{"type": "cron", "configuration": {"schedule": "0 4 * * *", "tasks": [{"day": 1}]}}]);
    vec![
        sample(
            "/v0/policies",
            Some(TITLE),
            json!({"type": "location", "locations": [{"name": "eu", "type": "continent"}]}),
        ),
        sample(
            "/v0/integrations/connections",
            Some(TITLE),
            json!({"integration": "openai", "config": {"base": "x"}, "secret": {"apiKey": "sk-1"}}),
        ),
        sample(
            "/v0/models",
            Some(TITLE),
            json!({"runtime": {"type": "openai", "model": "m"}, "integrationConnections": [NAME], "policies": [NAME]}),
        ),
        sample(
            "/v0/agents",
            Some(TITLE),
            json!({"runtime": runtime(), "policies": [NAME], "region": "local"}),
        ),
        sample(
            "/v0/functions",
            Some(TITLE),
            json!({"runtime": runtime(), "integrationConnections": [NAME]}),
        ),
        sample("/v0/jobs", Some(TITLE), json!({"runtime": runtime(), "triggers": trigger})),
        sample(
            "/v0/applications",
            Some(TITLE),
            json!({"image": "app/one:1", "port": 3000, "envs": [{"name": "A", "value": "b"}]}),
        ),
        sample(
            "/v0/sandboxes",
            Some(TITLE),
            json!({"runtime": runtime(), "lifecycle": {"terminatedRetention": "5m"}}),
        ),
    ]
}

fn below_sandboxes() -> Vec<Sample> {
    let id = |path: &'static str, body: Value| Sample {
        path,
        item: format!("{path}/{NAME}"),
        text: Some("/input/command"),
        body,
    };
    vec![
        sample(
            "/v0/sandboxes/one/previews",
            Some(TITLE),
            json!({"port": 3000, "public": false, "requestHeaders": {"X-A": "b"}}),
        ),
        id(
            "/v0/sandboxes/one/schedules",
            json!({"id": NAME, "type": "cron", "value": "0 0 * * *", "input": {"command": "date", "env": {"KEY": "hunter2"}}}),
        ),
    ]
}

fn storage() -> Vec<Sample> {
    vec![
        sample("/v0/volumes", Some(TITLE), json!({"size": 1024, "region": "local"})),
        sample(
            "/v0/drives",
            Some(TITLE),
            json!({"permissions": [{"labels": {"a": "b"}, "mode": "read", "path": "/x"}]}),
        ),
        sample(
            "/v0/volume_templates",
            Some(TITLE),
            json!({"defaultSize": 2048, "description": "d"}),
        ),
    ]
}

fn network() -> Vec<Sample> {
    let domain = json!({"metadata": {"name": "one.example.com", "displayName": "First"}, "spec": {"region": "local"}});
    vec![
        sample("/v0/vpcs", None, json!({})),
        sample("/v0/vpcs/one/egressgateways", None, json!({"region": "local"})),
        sample("/v0/vpcs/one/egressgateways/one/ips", None, json!({"ipFamily": "IPv6"})),
        Sample {
            path: "/v0/customdomains",
            item: "/v0/customdomains/one.example.com".into(),
            text: Some(TITLE),
            body: domain,
        },
    ]
}
