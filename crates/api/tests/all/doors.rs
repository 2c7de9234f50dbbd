//! Every operation is closed to callers who may not use it. The list of operations is the published
//! document itself, so that none is left out.

#![expect(clippy::unwrap_used, reason = "a failed step is a failed test")]

use crate::common::Cloud;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::Method;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use types::Scope;

/// Operations that anybody may call.
const PUBLIC: [&str; 2] = ["GetChangelog", "GetDriveJWKS"];
/// Text in everything that the first workspace has.
const MARK: &str = "only-for-main";
/// Name of everything that the first workspace has.
const NAME: &str = "doors";

struct Door {
    id: String,
    method: Method,
    path: String,
    /// `None` means that any valid credential will do.
    scopes: Option<Vec<Scope>>,
}

/// Returns all operations, with names filled into their paths.
fn doors() -> Vec<Door> {
    let document = api::document();
    let mut doors = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        let base = if item.get("servers").is_some() { "" } else { "/v0" };
        for method in [Method::GET, Method::POST, Method::PUT, Method::DELETE] {
            let operation = &item[method.as_str().to_lowercase()];
            if operation.is_null() {
                continue;
            }
            let security = operation.get("security").unwrap_or(&document["security"]);
            let scopes = security[0]["OAuth2"].as_array().map(|scopes| {
                scopes
                    .iter()
                    .map(|scope| Scope::parse(scope.as_str().unwrap()).unwrap())
                    .collect::<Vec<_>>()
            });
            let id = operation["operationId"].as_str().unwrap().to_owned();
            assert_eq!(scopes.is_none(), PUBLIC.contains(&id.as_str()), "{id}");
            doors.push(Door { id, method, path: format!("{base}{}", filled(path)), scopes });
        }
    }
    doors
}

fn filled(path: &str) -> String {
    let part = |part: &str| match part.trim_matches(['{', '}']) {
        "workspace" | "workspaceName" => "main".to_owned(),
        "domainName" => format!("{NAME}.example.com"),
        "resourceType" => "agent".into(),
        _ if part.starts_with('{') => NAME.into(),
        plain => plain.to_owned(),
    };
    path.split('/').map(part).collect::<Vec<_>>().join("/")
}

fn closed() -> impl Iterator<Item = Door> {
    doors().into_iter().filter(|door| !PUBLIC.contains(&door.id.as_str()))
}

async fn knock(
    cloud: &Cloud,
    door: &Door,
    token: &str,
    more: &[(&str, &str)],
) -> crate::common::Answer {
    let bearer = format!("Bearer {token}");
    let mut headers = vec![("authorization", if token.is_empty() { "" } else { bearer.as_str() })];
    headers.extend_from_slice(more);
    cloud.raw(door.method.clone(), &door.path, &headers, b"{}".to_vec()).await
}

/// Makes a service account of a workspace; returns its id and its secret.
async fn service_account(cloud: &Cloud, workspace: &str, role: &str) -> (String, String) {
    let here = [("x-blaxel-workspace", workspace)];
    let made = cloud
        .call_with(Method::POST, "/v0/service_accounts", &here, Some(json!({"name": role})))
        .await
        .ok();
    let id = made["client_id"].as_str().unwrap().to_owned();
    cloud
        .call_with(Method::PUT, &format!("/v0/users/{id}"), &here, Some(json!({"role": role})))
        .await
        .ok();
    (id, made["client_secret"].as_str().unwrap().to_owned())
}

async fn key(
    cloud: &Cloud,
    workspace: &str,
    account: &str,
    expires_in: Option<&str>,
) -> (String, String) {
    let path = format!("/v0/service_accounts/{account}/api_keys");
    let body = json!({"name": "k", "expires_in": expires_in});
    let made = cloud
        .call_with(Method::POST, &path, &[("x-blaxel-workspace", workspace)], Some(body))
        .await
        .ok();
    (made["id"].as_str().unwrap().to_owned(), made["apiKey"].as_str().unwrap().to_owned())
}

/// Issues an access token of a service account with the given scopes.
async fn token(cloud: &Cloud, account: &(String, String), scopes: &[Scope]) -> String {
    let scope = scopes.iter().map(Scope::to_string).collect::<Vec<_>>().join(" ");
    let body = json!({"grant_type": "client_credentials", "client_id": account.0, "client_secret": account.1, "scope": scope});
    let answer = cloud
        .raw(
            Method::POST,
            "/oauth/token",
            &[("content-type", "application/json")],
            body.to_string().into_bytes(),
        )
        .await;
    answer.ok()["access_token"].as_str().unwrap().to_owned()
}

/// Returns the token with one member of its header or claims replaced.
fn forged(token: &str, part: usize, member: &str, value: Value) -> String {
    let mut parts: Vec<String> = token.split('.').map(str::to_owned).collect();
    let mut json: Value =
        serde_json::from_slice(&URL_SAFE_NO_PAD.decode(&parts[part]).unwrap()).unwrap();
    json[member] = value;
    parts[part] = URL_SAFE_NO_PAD.encode(json.to_string());
    parts.join(".")
}

#[tokio::test]
async fn nobody_gets_in_without_valid_credentials() {
    let cloud = Cloud::start().await;
    let account = service_account(&cloud, "main", "admin").await;
    let good = token(&cloud, &account, &[Scope::Admin]).await;
    let (id, revoked) = key(&cloud, "main", &account.0, None).await;
    let (_, expired) = key(&cloud, "main", &account.0, Some("1h")).await;
    cloud.delete(&format!("/v0/service_accounts/{}/api_keys/{id}", account.0)).await.ok();
    cloud.clock.advance_s(3601);
    let unsigned = forged(&good, 0, "alg", json!("none"));
    let bad = [
        ("nothing", String::new()),
        ("an unknown key", "hk_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa".into()),
        ("no token", "x".into()),
        ("a revoked key", revoked),
        ("an expired key", expired),
        ("a token of another issuer", forged(&good, 1, "iss", json!("https://elsewhere.example"))),
        ("a token with more scopes", forged(&good, 1, "scope", json!("admin agents:list"))),
        ("an unsigned token", format!("{}.", unsigned.rsplit_once('.').unwrap().0)),
    ];
    for door in closed() {
        for (what, credentials) in &bad {
            let answer = knock(&cloud, &door, credentials, &[]).await;
            assert_eq!(answer.status, 401, "{} with {what}: {}", door.id, answer.body);
            answer.refused(401);
        }
    }
    cloud.clock.advance_s(7200);
    for door in closed() {
        assert_eq!(
            knock(&cloud, &door, &good, &[]).await.status,
            401,
            "{} with an expired token",
            door.id
        );
    }
}

#[tokio::test]
async fn a_token_opens_only_what_its_scopes_name() {
    let cloud = Cloud::start().await;
    let account = service_account(&cloud, "main", "admin").await;
    let mut tokens: BTreeMap<Scope, String> = BTreeMap::new();
    for door in closed() {
        for needed in door.scopes.iter().flatten() {
            if !tokens.contains_key(needed) {
                let others: Vec<Scope> = Scope::ALL
                    .iter()
                    .copied()
                    .filter(|scope| scope != needed && *scope != Scope::Admin)
                    .collect();
                tokens.insert(*needed, token(&cloud, &account, &others).await);
            }
            let message = knock(&cloud, &door, &tokens[needed], &[]).await.refused(403);
            assert!(message.contains(&needed.to_string()), "{}: {message}", door.id);
        }
    }
    assert!(tokens.len() > 70, "only {} scopes are in use", tokens.len());
}

/// Operations of a person on workspaces: they are checked against the role in that workspace, or
/// need no role.
const PERSONAL: [&str; 6] = [
    "/v0/workspaces",
    "/v0/accounts",
    "/v0/invitations",
    "/v0/api_keys",
    "/v0/seal_keys",
    "/v0/mcp",
];

#[tokio::test]
async fn a_member_may_not_do_what_is_for_admins() {
    let cloud = Cloud::start().await;
    let account = service_account(&cloud, "main", "member").await;
    let (_, key) = key(&cloud, "main", &account.0, None).await;
    let mut refused = BTreeSet::new();
    // The stream is open to members, and has no end.
    let ended = |door: &Door| {
        door.id != "StreamChanges" && !PERSONAL.iter().any(|prefix| door.path.starts_with(prefix))
    };
    for door in closed().filter(ended) {
        let allowed =
            door.scopes.iter().flatten().all(|scope| auth::allows(auth::Role::Member, *scope));
        let answer = knock(&cloud, &door, &key, &[]).await;
        if !allowed {
            answer.refused(403);
            refused.insert(door.id);
        }
    }
    for id in ["CreatePolicy", "CreateIntegrationConnection", "InviteWorkspaceUser", "CreateVPC"] {
        assert!(refused.contains(id), "{id} is open to members");
    }
    let seen = json!({"metadata": {"name": "one"}, "spec": {}});
    cloud.post("/v0/agents", seen).await.ok();
    let show = Door {
        id: String::new(),
        method: Method::GET,
        path: "/v0/agents/one?show_secrets=true".into(),
        scopes: None,
    };
    knock(&cloud, &show, &key, &[]).await.refused(403);
}

/// Creates one object of each kind in the first workspace, each containing the mark.
async fn furnish(cloud: &Cloud) {
    let metadata = json!({"name": NAME, "displayName": MARK});
    for (path, spec) in [
        ("/v0/agents", json!({})),
        ("/v0/applications", json!({})),
        ("/v0/functions", json!({})),
        ("/v0/jobs", json!({})),
        ("/v0/models", json!({})),
        ("/v0/drives", json!({})),
        ("/v0/volumes", json!({})),
        ("/v0/volume_templates", json!({})),
        ("/v0/vpcs", json!({})),
        ("/v0/vpcs/doors/egressgateways", json!({"region": "local"})),
        ("/v0/vpcs/doors/egressgateways/doors/ips", json!({"ipFamily": "IPv4"})),
        (
            "/v0/policies",
            json!({"type": "location", "locations": [{"name": "eu", "type": "continent"}]}),
        ),
        (
            "/v0/integrations/connections",
            json!({"integration": "openai", "secret": {"apiKey": MARK}}),
        ),
        ("/v0/sandboxes", json!({})),
        ("/v0/sandboxes/doors/previews", json!({"port": 3000})),
    ] {
        cloud.post(path, json!({"metadata": metadata, "spec": spec})).await.ok();
    }
    let domain = json!({"metadata": {"name": format!("{NAME}.example.com"), "displayName": MARK}, "spec": {}});
    cloud.post("/v0/customdomains", domain).await.ok();
    cloud
        .post(
            "/v0/sandboxes/doors/previews/doors/tokens",
            json!({"metadata": {"name": NAME}, "spec": {}}),
        )
        .await
        .ok();
    let schedule =
        json!({"id": NAME, "type": "cron", "value": "0 0 * * *", "input": {"command": MARK}});
    cloud.post("/v0/sandboxes/doors/schedules", schedule).await.ok();
}

#[tokio::test]
async fn another_workspace_does_not_exist() {
    let cloud = Cloud::start().await;
    furnish(&cloud).await;
    cloud.post("/v0/workspaces", json!({"name": "other"})).await.ok();
    let account = service_account(&cloud, "other", "admin").await;
    let (_, key) = key(&cloud, "other", &account.0, None).await;
    for door in closed().filter(|door| door.id != "StreamChanges") {
        let about_an_object = door.path.contains(NAME) || door.path.contains("/main");
        let answer = knock(&cloud, &door, &key, &[]).await;
        assert!(
            !answer.body.to_string().contains(MARK),
            "{} tells of the other workspace: {}",
            door.id,
            answer.body
        );
        // A change is refused because of its body first, or because the object does not exist; a
        // list is empty.
        if about_an_object && door.method == Method::GET {
            assert!(
                [403, 404].contains(&answer.status.as_u16()),
                "{}: {} {}",
                door.id,
                answer.status,
                answer.body
            );
        }
        if about_an_object {
            assert!(
                answer.status.is_client_error(),
                "{}: {} {}",
                door.id,
                answer.status,
                answer.body
            );
        }
        let named = knock(&cloud, &door, &key, &[("x-service-workspace", "main")]).await;
        assert!(!named.body.to_string().contains(MARK), "{} tells of the other workspace", door.id);
        if !PERSONAL.iter().any(|prefix| door.path.starts_with(prefix))
            && !door.path.starts_with("/main/")
        {
            named.refused(403);
        }
    }
    let still = cloud
        .call_with(Method::GET, "/v0/agents/doors", &[("x-blaxel-workspace", "main")], None)
        .await;
    assert_eq!(still.ok()["metadata"]["displayName"], MARK);
}

#[tokio::test]
async fn the_workspace_is_named_in_any_of_the_ways_or_is_the_only_one() {
    let cloud = Cloud::start().await;
    cloud.get("/v0/agents").await.ok();
    cloud.post("/v0/workspaces", json!({"name": "other"})).await.ok();
    let message = cloud.get("/v0/agents").await.refused(400);
    assert!(message.contains("main") && message.contains("other"), "{message}");
    for header in ["x-blaxel-workspace", "x-service-workspace"] {
        cloud.call_with(Method::GET, "/v0/agents", &[(header, "other")], None).await.ok();
    }
    cloud.get("/v0/agents?workspace=main").await.ok();
    cloud.get("/v0/agents?workspace=nobodys").await.refused(403);
    let key = format!("Bearer {}", cloud.first.api_key);
    for header in ["authorization", "x-blaxel-authorization", "x-service-authorization"] {
        let headers = [(header, key.as_str()), ("x-blaxel-workspace", "main")];
        cloud.raw(Method::GET, "/v0/agents", &headers, Vec::new()).await.ok();
    }
}
