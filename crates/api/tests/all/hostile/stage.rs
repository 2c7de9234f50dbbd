//! The three tenants, what the honest one has, and how two answers are compared.

use crate::common::people::Guest;
use crate::common::{Answer, Cloud};
use http::Method;
use regex::Regex;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Text in everything that the honest tenant has.
pub(crate) const MARK: &str = "only-for-the-honest";
/// Name of everything that the honest tenant has, and a name of the same length that nobody uses.
pub(crate) const HONEST: &str = "honest-thing";
pub(crate) const ABSENT: &str = "absent-thing";
/// The honest tenant's workspace, and one that does not exist.
pub(crate) const HOME: &str = "honest-home";
pub(crate) const NOWHERE: &str = "absent-home";

/// Nobody's name.
const RESOURCE_TYPE: &str = "sandbox";

/// Values for parameters in a path: those of the honest tenant, or values of things that do not
/// exist.
pub(crate) struct Names {
    pub(crate) special: BTreeMap<&'static str, String>,
    pub(crate) other: &'static str,
}

impl Names {
    /// Changes a body so that it names what these names stand for.
    pub(crate) fn rename(&self, body: &Value) -> Value {
        let home = if self.other == HONEST { HOME } else { NOWHERE };
        serde_json::from_str(&body.to_string().replace(HONEST, self.other).replace(HOME, home))
            .unwrap()
    }

    pub(crate) fn fill(&self, path: &str) -> String {
        let part = |part: &str| match part.strip_prefix('{').and_then(|part| part.strip_suffix('}'))
        {
            Some(name) => self.special.get(name).cloned().unwrap_or_else(|| self.other.to_owned()),
            None => part.to_owned(),
        };
        path.split('/').map(part).collect::<Vec<_>>().join("/")
    }

    /// Returns the answer without the requested names, and without anything that differs between
    /// any two answers.
    pub(crate) fn forget(&self, answer: &Answer) -> String {
        let mut names: Vec<&str> =
            self.special.values().map(String::as_str).chain([self.other]).collect();
        names.sort_by_key(|name| std::cmp::Reverse(name.len()));
        let mut text = format!("{} {} {}", answer.status, answer.body, header_names(answer));
        for name in names.into_iter().filter(|name| *name != RESOURCE_TYPE) {
            text = text.replace(name, "<name>");
        }
        let times = Regex::new(r"\d{4}-\d\d-\d\dT[\d:.]+Z").unwrap();
        let ids = Regex::new(r"\b[a-z]{2,4}_[0-9a-z]{16,}").unwrap();
        ids.replace_all(&times.replace_all(&text, "<time>"), "<id>").into_owned()
    }
}

fn header_names(answer: &Answer) -> String {
    let mut names: Vec<&str> = answer.headers.keys().map(http::HeaderName::as_str).collect();
    names.sort_unstable();
    names.join(",")
}

pub(crate) struct Stage<'c> {
    pub(crate) cloud: &'c Cloud,
    pub(crate) honest: Names,
    pub(crate) absent: Names,
}

/// Returns one object of each kind, by the path of its collection; objects that contain others come
/// first.
pub(crate) fn objects() -> Vec<(&'static str, Value)> {
    let named = |spec: Value| json!({"metadata": {"name": HONEST, "displayName": MARK, "externalId": HONEST}, "spec": spec});
    let bare =
        |spec: Value| json!({"metadata": {"name": HONEST, "displayName": MARK}, "spec": spec});
    vec![
        (
            "/policies",
            bare(json!({"type": "location", "locations": [{"name": "eu", "type": "continent"}]})),
        ),
        (
            "/integrations/connections",
            bare(json!({"integration": "openai", "secret": {"apiKey": MARK}})),
        ),
        ("/agents", bare(json!({"policies": [HONEST]}))),
        ("/applications", bare(json!({}))),
        ("/functions", bare(json!({"integrationConnections": [HONEST]}))),
        ("/jobs", bare(json!({"triggers": [http_trigger()]}))),
        ("/models", bare(json!({"integrationConnections": [HONEST]}))),
        ("/drives", named(json!({}))),
        ("/volumes", named(json!({}))),
        ("/volume_templates", bare(json!({}))),
        ("/vpcs", bare(json!({"reachable": true}))),
        ("/vpcs/{vpcName}/egressgateways", bare(json!({"region": "local"}))),
        ("/vpcs/{vpcName}/egressgateways/{gatewayName}/ips", bare(json!({"ipFamily": "IPv4"}))),
        ("/sandboxes", named(behind_rules())),
        ("/sandboxes/{sandboxName}/previews", bare(json!({"port": 3000}))),
        ("/sandboxes/{sandboxName}/previews/{previewName}/tokens", bare(json!({}))),
        ("/sandboxes/{sandboxName}/schedules", schedule()),
        ("/customdomains", domain()),
        ("/jobs/{jobId}/executions", json!({"executionId": HONEST, "tasks": [{"mark": MARK}]})),
        ("/secrets", json!({"name": HONEST, "value": MARK})),
    ]
}

fn behind_rules() -> Value {
    let rule = json!({"destinations": [format!("{HONEST}.example.com")], "headers": {"X-Key": "{{SECRET:key}}"}, "secrets": {"key": MARK}});
    json!({
        "vpc": HONEST,
        "network": {
            "egress": {"mode": "dedicated", "gateway": HONEST},
            "proxy": {"allowedDomains": [format!("{HONEST}.example.com")], "routing": [rule]},
        },
    })
}

fn http_trigger() -> Value {
    json!({"id": HONEST, "type": "http", "configuration": {"authenticationType": "private", "path": HONEST}})
}

fn schedule() -> Value {
    json!({"id": HONEST, "type": "cron", "value": "0 0 * * *", "input": {"command": MARK}})
}

fn domain() -> Value {
    json!({"metadata": {"name": format!("{HONEST}.example.com"), "displayName": MARK}, "spec": {}})
}

impl<'c> Stage<'c> {
    /// Gives the honest tenant one of everything.
    pub(crate) async fn furnished(cloud: &'c Cloud) -> Self {
        let everything = Names { special: domain_of(HONEST), other: HONEST };
        cloud.post("/v0/workspaces", json!({"name": HOME, "displayName": MARK})).await.ok();
        let post = async |path: &str, body: Value| {
            at_home(cloud, Method::POST, path, Some(body)).await.ok()
        };
        for (path, body) in objects() {
            post(&format!("/v0{}", everything.fill(path)), body).await;
        }
        let client = text(&post("/v0/service_accounts", json!({"name": MARK})).await["client_id"]);
        let keys = format!("/v0/service_accounts/{client}/api_keys");
        let key = text(&post(&keys, json!({"name": MARK})).await["id"]);
        let invited = cloud.guest("invited@example.com").await;
        post("/v0/users", json!({"email": invited.email})).await;
        let invitations = invited.get("/v0/invitations").await.ok();
        let account = cloud.first.account.to_string();
        let budget = json!({"amount": "10", "thresholds": [50]});
        at_home(
            cloud,
            Method::PUT,
            &format!("/v0/accounts/{account}/budgets/{HONEST}"),
            Some(budget),
        )
        .await
        .ok();
        let mut special = domain_of(HONEST);
        special.extend([
            ("accountId", account),
            ("clientId", client),
            ("apiKeyId", key),
            ("invitationId", text(&invitations[0]["invitationId"])),
            ("subOrEmail", "invited@example.com".into()),
            ("workspace", HOME.into()),
            ("workspaceName", HOME.into()),
            ("targetWorkspace", HOME.into()),
            ("resourceType", RESOURCE_TYPE.into()),
        ]);
        let absent = special.iter().map(|(name, value)| (*name, missing(name, value))).collect();
        let honest = Names { special, other: HONEST };
        Self { cloud, honest, absent: Names { special: absent, other: ABSENT } }
    }

    /// Returns everything that the honest tenant sees of their own objects.
    pub(crate) async fn seen(&self) -> BTreeMap<String, Value> {
        let document = api::document();
        let mut seen = BTreeMap::new();
        for path in document["paths"].as_object().unwrap().keys() {
            let plain = !path.contains('?') && document["paths"][path].get("get").is_some();
            // The stream has no end, and what a caller is told of a provider comes from elsewhere.
            if plain && !["/changes", "/observability/logs"].contains(&path.as_str()) {
                let path_filled = format!("/v0{}", self.honest.fill(path));
                let answer = at_home(self.cloud, Method::GET, &path_filled, None).await;
                seen.insert(path.clone(), answer.body);
            }
        }
        seen
    }
}

/// Sends a request as an admin of the honest tenant's workspace.
pub(crate) async fn at_home(
    cloud: &Cloud,
    method: Method,
    path: &str,
    body: Option<Value>,
) -> Answer {
    cloud.call_with(method, path, &[("x-blaxel-workspace", HOME)], body).await
}

fn domain_of(name: &str) -> BTreeMap<&'static str, String> {
    [("domainName", format!("{name}.example.com"))].into()
}

/// Returns a value of the same form that nobody has.
pub(crate) fn missing(parameter: &str, value: &str) -> String {
    match parameter {
        "resourceType" => value.to_owned(),
        "workspace" | "workspaceName" | "targetWorkspace" => NOWHERE.into(),
        "subOrEmail" => value.replace("invited", "uninvit"),
        "domainName" => value.replace(HONEST, ABSENT),
        // The end of an id is its random part.
        _ => {
            let (kept, changed) = value.split_at(value.len() - 6);
            let turn = |letter: char| if letter.is_ascii_digit() { '7' } else { 'k' };
            format!("{kept}{}", changed.chars().map(turn).collect::<String>())
        }
    }
}

#[track_caller]
fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("not a text: {value}")).to_owned()
}

/// A caller who wants what is not theirs.
pub(crate) enum Attacker<'c> {
    /// Has an account and a workspace of their own.
    Stranger(Guest<'c>),
    /// Administers another workspace of the same account, but not the account.
    Neighbour { cloud: &'c Cloud, key: String },
}

impl<'c> Attacker<'c> {
    pub(crate) async fn both(cloud: &'c Cloud) -> [Self; 2] {
        let (stranger, _) = cloud.stranger("thief@example.com").await;
        stranger.post("/v0/workspaces", json!({"name": "thief"})).await.ok();
        cloud.post("/v0/workspaces", json!({"name": "near"})).await.ok();
        let near = [("x-blaxel-workspace", "near")];
        let made = cloud
            .call_with(Method::POST, "/v0/service_accounts", &near, Some(json!({"name": "spy"})))
            .await
            .ok();
        let id = text(&made["client_id"]);
        let admin = Some(json!({"role": "admin"}));
        cloud.call_with(Method::PUT, &format!("/v0/users/{id}"), &near, admin).await.ok();
        let keys = format!("/v0/service_accounts/{id}/api_keys");
        let key =
            cloud.call_with(Method::POST, &keys, &near, Some(json!({"name": "spy"}))).await.ok();
        [Self::Stranger(stranger), Self::Neighbour { cloud, key: text(&key["apiKey"]) }]
    }

    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Stranger(_) => "the stranger",
            Self::Neighbour { .. } => "the neighbour",
        }
    }

    pub(crate) async fn call(&self, method: Method, path: &str, body: Option<Value>) -> Answer {
        self.call_in(None, method, path, body).await
    }

    /// Sends a request that names a workspace.
    pub(crate) async fn call_in(
        &self,
        workspace: Option<&str>,
        method: Method,
        path: &str,
        body: Option<Value>,
    ) -> Answer {
        let (cloud, key) = match self {
            Self::Stranger(guest) => (guest.cloud(), guest.key()),
            Self::Neighbour { cloud, key } => (*cloud, key.as_str()),
        };
        let bearer = format!("Bearer {key}");
        let mut headers = vec![("authorization", bearer.as_str())];
        headers.extend(workspace.map(|name| ("x-blaxel-workspace", name)));
        cloud.call_with(method, path, &headers, body).await
    }
}
