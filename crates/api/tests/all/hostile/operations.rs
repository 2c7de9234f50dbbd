//! Operations of the table.

use super::stage::{Attacker, HOME, HONEST, MARK, NOWHERE, Names, Stage, at_home, objects};
use crate::common::Cloud;
use http::Method;
use serde_json::{Value, json};
use std::collections::BTreeMap;

struct Operation {
    id: String,
    method: Method,
    /// Including its parameters.
    path: String,
}

impl Operation {
    fn has_parameters(&self) -> bool {
        self.path.contains('{')
    }

    /// Returns a body that would have an effect if the object belonged to the caller.
    fn body(&self, bodies: &BTreeMap<&str, Value>) -> Option<Value> {
        if self.method == Method::GET || self.method == Method::DELETE {
            return None;
        }
        let path = self.path.strip_prefix("/v0").unwrap_or(&self.path);
        let collection = path.rsplit_once('/').map_or(path, |(collection, _)| collection);
        let known = bodies.get(path).or_else(|| bodies.get(collection)).cloned();
        Some(known.unwrap_or_else(
            || json!({"workspace": HOME, "targetWorkspace": HOME, "role": "admin", "name": MARK}),
        ))
    }
}

fn operations() -> Vec<Operation> {
    let document = api::document();
    let mut operations = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        let base = if item.get("servers").is_some() { "" } else { "/v0" };
        for method in [Method::GET, Method::POST, Method::PUT, Method::DELETE] {
            if let Some(id) = item[method.as_str().to_lowercase()]["operationId"].as_str() {
                operations.push(Operation { id: id.into(), method, path: format!("{base}{path}") });
            }
        }
    }
    operations
}

fn bodies() -> BTreeMap<&'static str, Value> {
    let fork = json!({"targetType": "sandbox", "targetName": "stolen"});
    let of_snapshots = [
        ("/sandboxes/{sandboxName}/fork", fork.clone()),
        ("/sandboxes/{sandboxName}/snapshots", json!({"name": "stolen"})),
        ("/snapshots/{snapshotName}/fork", fork),
        ("/snapshots", json!({"source": {"name": HONEST}})),
    ];
    objects().into_iter().chain(of_snapshots).collect()
}

/// Returns whether the answer ends; the stream does not.
fn ends(operation: &Operation) -> bool {
    operation.id != "StreamChanges"
}

#[tokio::test]
async fn what_is_somebody_elses_answers_as_what_is_not_there() {
    let cloud = Cloud::start().await;
    let stage = Stage::furnished(&cloud).await;
    let attackers = Attacker::both(&cloud).await;
    let before = stage.seen().await;
    let tried = reach(&stage, &attackers).await;
    assert!(tried > 200, "only {tried} were tried");
    assert_same(&before, &stage.seen().await);
}

/// Tries every operation that names something, on objects of the honest tenant and on missing ones:
/// nobody can tell the two apart. Returns how many were tried.
pub(crate) async fn reach(stage: &Stage<'_>, attackers: &[Attacker<'_>]) -> usize {
    let (bodies, mut tried) = (bodies(), 0);
    for attacker in attackers {
        for operation in
            operations().iter().filter(|operation| operation.has_parameters() && ends(operation))
        {
            // A caller with a workspace in an account knows that the account exists.
            if operation.path.contains("{accountId}")
                && matches!(attacker, Attacker::Neighbour { .. })
            {
                continue;
            }
            let body = operation.body(&bodies);
            let ask = async |names: &Names| {
                let body = body.as_ref().map(|body| names.rename(body));
                let answer = attacker
                    .call(operation.method.clone(), &names.fill(&operation.path), body)
                    .await;
                assert!(
                    !answer.status.is_server_error(),
                    "{}: {} {}",
                    operation.id,
                    answer.status,
                    answer.body
                );
                names.forget(&answer)
            };
            let (absent, theirs) = (ask(&stage.absent).await, ask(&stage.honest).await);
            assert_eq!(theirs, absent, "{} tells {} what is there", operation.id, attacker.name());
            tried += 1;
        }
    }
    tried
}

#[track_caller]
pub(crate) fn assert_same(before: &BTreeMap<String, Value>, after: &BTreeMap<String, Value>) {
    for (path, was) in before {
        assert_eq!(&after[path], was, "{path} has changed for the honest tenant");
    }
}

#[tokio::test]
async fn no_answer_carries_a_byte_of_somebody_elses() {
    let cloud = Cloud::start().await;
    let _stage = Stage::furnished(&cloud).await;
    for attacker in &Attacker::both(&cloud).await {
        for operation in operations()
            .iter()
            .filter(|operation| operation.method == Method::GET && ends(operation))
        {
            for query in ["", QUERY] {
                let path = format!(
                    "{}{query}",
                    operation.path.replace("{accountId}", cloud.first.account.as_str())
                );
                let answer = attacker.call(Method::GET, &path, None).await;
                let text = answer.body.to_string();
                for word in [MARK, HONEST, HOME, "invited@example.com"] {
                    // A refusal repeats what the caller has sent.
                    let echoed = query.contains(word) && answer.status.is_client_error();
                    assert!(
                        echoed || !text.contains(word),
                        "{} shows {word} to {}: {text}",
                        operation.id,
                        attacker.name()
                    );
                }
            }
        }
    }
}

/// Every parameter by which a caller may reach for more than is theirs.
const QUERY: &str = "?workspace=honest-home&show_secrets=true&showTerminated=true&limit=100&q=honest&externalId=honest-thing\
    &groupBy=resource_name&resourceName=honest-thing&startTime=2026-04-01T00:00:00Z&endTime=2026-05-01T00:00:00Z\
    &workloadIds=honest-thing&resourceType=sandbox&direction=incoming&sandbox=honest-thing&schedule=honest-thing\
    &sourceWorkspace=honest-home";

#[tokio::test]
async fn a_workspace_of_somebody_elses_is_as_one_that_is_not_there() {
    let cloud = Cloud::start().await;
    let stage = Stage::furnished(&cloud).await;
    let bodies = bodies();
    for attacker in &Attacker::both(&cloud).await {
        // Names of workspaces are unique on the whole server, so a second one with the same name is
        // refused.
        for operation in operations().iter().filter(|it| ends(it) && it.id != "CreateWorkspace") {
            let path = stage.absent.fill(&operation.path);
            let body = operation.body(&bodies).map(|body| stage.absent.rename(&body));
            let ask = async |workspace: &str| {
                let named = attacker
                    .call_in(Some(workspace), operation.method.clone(), &path, body.clone())
                    .await;
                (named.status, stage.absent.forget(&named).replace(workspace, "<name>"))
            };
            let (there, gone) = (ask(HOME).await, ask(NOWHERE).await);
            assert_eq!(there, gone, "{} tells {} of a workspace", operation.id, attacker.name());
        }
    }
}

/// Names belong to workspaces: a name that somebody else uses is free.
#[tokio::test]
async fn names_of_others_are_free_and_their_owner_is_not_touched() {
    let cloud = Cloud::start().await;
    let stage = Stage::furnished(&cloud).await;
    let attackers = Attacker::both(&cloud).await;
    let before = stage.seen().await;
    let names = &stage.honest;
    for attacker in &attackers {
        for (path, body) in objects() {
            let made =
                attacker.call(Method::POST, &format!("/v0{}", names.fill(path)), Some(body)).await;
            assert_eq!(made.status, 200, "{path} for {}: {}", attacker.name(), made.body);
        }
        assert_same(&before, &stage.seen().await);
        for (path, _) in objects().iter().rev() {
            let item = if *path == "/customdomains" { "{domainName}" } else { HONEST };
            let gone = attacker
                .call(Method::DELETE, &names.fill(&format!("/v0{path}/{item}")), None)
                .await;
            assert!(gone.status.is_success(), "{path} for {}: {}", attacker.name(), gone.body);
        }
        assert_same(&before, &stage.seen().await);
    }
}

/// Members of a body that name something else: somebody else's object counts as missing.
#[tokio::test]
async fn references_do_not_reach_into_another_workspace() {
    let cloud = Cloud::start().await;
    let stage = Stage::furnished(&cloud).await;
    let attackers = Attacker::both(&cloud).await;
    let before = stage.seen().await;
    for attacker in &attackers {
        for (path, spec) in references() {
            let ask = async |names: &Names| {
                let body = json!({"metadata": {"name": "mine"}, "spec": names.rename(&spec)});
                let answer = attacker.call(Method::POST, path, Some(body)).await;
                if answer.status.is_success() {
                    attacker.call(Method::DELETE, &format!("{path}/mine"), None).await.ok();
                }
                names.forget(&answer)
            };
            let (theirs, absent) = (ask(&stage.honest).await, ask(&stage.absent).await);
            assert_eq!(theirs, absent, "{path} with {spec} tells {}", attacker.name());
        }
    }
    assert_same(&before, &stage.seen().await);
}

fn references() -> Vec<(&'static str, Value)> {
    vec![
        ("/v0/agents", json!({"policies": [HONEST]})),
        ("/v0/jobs", json!({"policies": [HONEST]})),
        ("/v0/functions", json!({"integrationConnections": [HONEST]})),
        ("/v0/models", json!({"integrationConnections": [HONEST]})),
        ("/v0/sandboxes", json!({"volumes": [{"name": HONEST, "mountPath": "/data"}]})),
        ("/v0/sandboxes", json!({"network": {"egress": {"mode": "dedicated", "gateway": HONEST}}})),
        ("/v0/sandboxes", json!({"vpc": HONEST})),
        ("/v0/sandboxes", json!({"runtime": {"image": format!("sandbox/{HONEST}:latest")}})),
        ("/v0/sandboxes", json!({"runtime": {"image": format!("{HOME}/{HONEST}:latest")}})),
        ("/v0/volumes", json!({"template": HONEST})),
        (
            "/v0/applications",
            json!({"image": format!("app/{HONEST}:1"), "urls": [{"domain": format!("{HONEST}.example.com")}]}),
        ),
    ]
}

/// A position in somebody else's list is useless.
#[tokio::test]
async fn a_cursor_of_somebody_elses_is_refused_as_one_that_was_made_up() {
    let cloud = Cloud::start().await;
    let _stage = Stage::furnished(&cloud).await;
    for name in ["one", "two", "three"] {
        let body = json!({"metadata": {"name": name}, "spec": {}});
        at_home(&cloud, Method::POST, "/v0/agents", Some(body)).await.ok();
    }
    let page = at_home(&cloud, Method::GET, "/v0/agents?limit=2", None).await.ok();
    let cursor = page["meta"]["nextCursor"].as_str().unwrap();
    let (head, tail) = cursor.split_at(cursor.len() / 2);
    let made_up = format!("{head}{}", tail.chars().rev().collect::<String>());
    for attacker in &Attacker::both(&cloud).await {
        let ask = async |cursor: &str| {
            let answer = attacker
                .call(Method::GET, &format!("/v0/agents?limit=2&cursor={cursor}"), None)
                .await;
            (answer.status, answer.body.to_string().replace(cursor, "<cursor>"))
        };
        let theirs = ask(cursor).await;
        assert_eq!(theirs.0, 400, "{}", theirs.1);
        assert_eq!(theirs, ask(&made_up).await);
    }
}
