//! Workspaces, people, invitations, service accounts, keys, quotas and rates.

use crate::common::{Cloud, settings};
use control::{Rate, Settings};
use http::Method;
use serde_json::json;
use std::time::Duration;
use store::Tx;
use store::resources::{self, Stored};
use tokio_util::sync::CancellationToken;
use types::KindName;
use types::ids::ResourceId;

#[tokio::test]
async fn a_workspace_belongs_to_who_made_it_and_goes_with_everything_in_it() {
    for cloud in Cloud::on_both().await {
        let made =
            cloud.post("/v0/workspaces", json!({"name": "team", "labels": {"a": "b"}})).await.ok();
        assert_eq!((&made["status"], &made["displayName"]), (&json!("ready"), &json!("team")));
        let users = cloud.get("/v0/users?workspace=team").await.ok();
        assert_eq!(
            (&users[0]["role"], &users[0]["email"]),
            (&json!("admin"), &json!(cloud.first.email))
        );
        let agent = json!({"metadata": {"name": "bot"}, "spec": {}});
        cloud.post("/v0/agents?workspace=team", agent).await.ok();
        let counted = cloud.get("/v0/workspaces/team?countResources=true").await.ok();
        assert_eq!(counted["resourceCounts"]["agents"], 1, "{counted}");
        assert_eq!(cloud.get("/v0/workspaces").await.ok().as_array().unwrap().len(), 2);
        let renamed = json!({"name": "team", "displayName": "The team", "runtime": {"sandbox": {"disableProcessLogging": true}}});
        let renamed = cloud.put("/v0/workspaces/team", renamed).await.ok();
        assert_eq!(
            (
                &renamed["displayName"],
                renamed.get("labels").is_some_and(|labels| labels["a"] == "b")
            ),
            (&json!("The team"), false)
        );
        assert_eq!(renamed["runtime"]["sandbox"]["disableProcessLogging"], true);
        cloud.put("/v0/workspaces/team", json!({"name": "other"})).await.refused(400);
        let elsewhere = json!({"name": "far", "region": "mars"});
        let message = cloud.post("/v0/workspaces", elsewhere).await.refused(400);
        assert!(message.contains("`region` must be a region"), "{message}");
        cloud.get("/v0/workspaces/far").await.refused(404);
        cloud.post("/v0/workspaces", json!({"name": "near", "region": "local"})).await.ok();
        cloud.delete("/v0/workspaces/near").await.ok();
        cloud.delete("/v0/workspaces/team").await.ok();
        cloud.get("/v0/workspaces/team").await.refused(404);
        cloud.get("/v0/agents?workspace=team").await.refused(403);
        cloud.post("/v0/workspaces", json!({"name": "team"})).await.ok();
        assert_eq!(cloud.get("/v0/agents?workspace=team").await.ok()["meta"]["total"], 0);
    }
}

/// More than one step of a deletion.
const MANY: usize = 1200;

#[tokio::test]
async fn a_large_workspace_is_gone_at_once_and_deleted_in_steps() {
    for cloud in Cloud::on_both().await {
        cloud.post("/v0/workspaces", json!({"name": "team"})).await.ok();
        let account = json!({"name": "bot"});
        let account = cloud.post("/v0/service_accounts?workspace=team", account).await.ok();
        let path = format!("/v0/service_accounts/{}", account["client_id"].as_str().unwrap());
        let key = format!("{path}/api_keys?workspace=team");
        let key = cloud.post(&key, json!({"name": "k"})).await.ok()["apiKey"].clone();
        let key = format!("Bearer {}", key.as_str().unwrap());
        let policies = async || {
            let headers = [("authorization", key.as_str())];
            cloud.call_with(Method::GET, "/v0/policies?workspace=team", &headers, None).await
        };
        policies().await.ok();
        let team = cloud.workspace("team").await;
        let locations = json!([{"name": "eu", "type": "continent"}]);
        let spec = json!({"type": "location", "locations": locations});
        let policy = json!({"metadata": {"name": "p"}, "spec": spec});
        cloud.post("/v0/policies?workspace=team", policy.clone()).await.ok();
        let of = team.clone();
        let fill = move |tx: &mut Tx<'_>| {
            let one = resources::find(tx, &of, KindName::Policy, "", "p")?.unwrap();
            for number in 1..MANY {
                let (id, name) = (ResourceId::new(tx.world()), format!("p{number}"));
                resources::insert(tx, Stored { id, name, ..one.clone() })?;
            }
            Ok::<_, store::Error>(())
        };
        cloud.store.write(fill).await.unwrap();
        let of = team.clone();
        let count = move |tx: &mut Tx<'_>| resources::count(tx, &of, KindName::Policy);
        assert_eq!(cloud.delete("/v0/workspaces/team").await.ok()["name"], "team");
        // No server goes on with it yet, so this is between two steps.
        assert_eq!(cloud.store.read(count.clone()).await.unwrap(), 700);
        cloud.post("/v0/policies", policy).await.ok();
        policies().await.refused(401);
        cloud.get("/v0/workspaces/team").await.refused(404);
        cloud.get("/v0/policies?workspace=team").await.refused(403);
        assert_eq!(cloud.get("/v0/workspaces").await.ok().as_array().unwrap().len(), 1);
        cloud.post("/v0/workspaces", json!({"name": "team"})).await.refused(409);
        // The next start.
        let ending = CancellationToken::new();
        drop(control::start(&cloud.control, &ending));
        let _ending = ending.drop_guard();
        let free = "/v0/workspaces/availability";
        let mut commits = cloud.store.commits();
        while cloud.post(free, json!({"name": "team"})).await.ok() == json!(false) {
            let changed = tokio::time::timeout(Duration::from_secs(60), commits.changed());
            changed.await.unwrap().unwrap();
        }
        assert_eq!(cloud.store.read(count).await.unwrap(), 0);
        cloud.post("/v0/workspaces", json!({"name": "team"})).await.ok();
        let again = cloud.get("/v0/policies?workspace=team").await.ok();
        assert_eq!(again["meta"]["total"], 0, "{again}");
        cloud.get("/v0/policies/p?workspace=main").await.ok();
    }
}

#[tokio::test]
async fn a_workspace_name_is_free_or_it_is_said_why_not() {
    let cloud = Cloud::start().await;
    for (name, reason) in [
        ("main", "taken"),
        ("my-blaxel", "forbidden_blaxel"),
        ("v2", "forbidden_v_prefix"),
        ("oauth", "forbidden_reserved"),
    ] {
        let asked = json!({"name": name});
        assert_eq!(
            cloud.post("/v0/workspaces/availability", asked.clone()).await.ok(),
            json!(false),
            "{name}"
        );
        let answer =
            cloud.post("/v0/workspaces/availability?withReason=true", asked.clone()).await.ok();
        assert_eq!(
            (&answer["available"], &answer["reason"]),
            (&json!(false), &json!(reason)),
            "{name}"
        );
        let refused = if reason == "taken" { 409 } else { 400 };
        cloud.post("/v0/workspaces", asked).await.refused(refused);
    }
    assert_eq!(
        cloud.post("/v0/workspaces/availability", json!({"name": "free"})).await.ok(),
        json!(true)
    );
    let answer = cloud
        .post("/v0/workspaces/availability?withReason=true", json!({"name": "free"}))
        .await
        .ok();
    assert_eq!(answer["available"], true);
    for bad in ["", "Upper", "a_b", "-a", &"x".repeat(80)] {
        cloud.post("/v0/workspaces/availability", json!({"name": bad})).await.refused(400);
    }
}

#[tokio::test]
async fn who_has_no_account_makes_no_workspace() {
    let cloud = Cloud::start().await;
    let guest = cloud.guest("guest@example.com").await;
    guest.post("/v0/workspaces", json!({"name": "mine"})).await.refused(403);
    assert_eq!(guest.get("/v0/workspaces").await.ok(), json!([]));
    assert_eq!(guest.get("/v0/accounts").await.ok(), json!([]));
    guest.get("/v0/agents").await.refused(400);
    guest.get("/v0/workspaces/main").await.refused(404);
    guest.delete("/v0/workspaces/main").await.refused(404);
}

#[tokio::test]
async fn an_invitation_opens_the_workspace_only_when_it_is_accepted() {
    for cloud in Cloud::on_both().await {
        let guest = cloud.guest("guest@example.com").await;
        let invited = cloud.post("/v0/users", json!({"email": "Guest@Example.com"})).await.ok();
        assert_eq!(
            (&invited["email"], &invited["role"]),
            (&json!("guest@example.com"), &json!("member"))
        );
        assert!(invited["expiresAt"].is_string() && invited["link"].is_string());
        guest.get("/v0/agents?workspace=main").await.refused(403);
        let users = cloud.get("/v0/users").await.ok();
        let waiting = users
            .as_array()
            .unwrap()
            .iter()
            .find(|user| user["email"] == "guest@example.com")
            .unwrap();
        assert_eq!((&waiting["accepted"], &waiting["expired"]), (&json!(false), &json!(false)));
        let received = guest.get("/v0/invitations").await.ok();
        assert_eq!(
            (&received[0]["workspace"]["name"], &received[0]["role"]),
            (&json!("main"), &json!("member"))
        );
        let path = format!("/v0/invitations/{}", received[0]["invitationId"].as_str().unwrap());
        let other = cloud.guest("other@example.com").await;
        other.call(Method::POST, &format!("{path}/accept"), None).await.refused(404);
        let accepted = guest.call(Method::POST, &format!("{path}/accept"), None).await.ok();
        assert_eq!(accepted["workspace"]["name"], "main");
        guest.get("/v0/agents").await.ok();
        guest.call(Method::POST, &format!("{path}/accept"), None).await.refused(404);
        guest.post("/v0/users", json!({"email": "x@example.com"})).await.refused(403);
        guest.delete("/v0/workspaces/main/leave").await.ok();
        guest.get("/v0/agents?workspace=main").await.refused(403);
    }
}

#[tokio::test]
async fn an_invitation_can_be_declined_taken_back_and_expire() {
    let cloud = Cloud::start().await;
    let guest = cloud.guest("guest@example.com").await;
    let invite = async || {
        cloud.post("/v0/users", json!({"email": "guest@example.com", "role": "admin"})).await.ok();
        let received = guest.get("/v0/invitations").await.ok();
        format!("/v0/invitations/{}", received[0]["invitationId"].as_str().unwrap())
    };
    let declined = invite().await;
    guest.call(Method::POST, &format!("{declined}/decline"), None).await.ok();
    assert_eq!(guest.get("/v0/invitations").await.ok(), json!([]));
    let withdrawn = invite().await;
    cloud.delete("/v0/users/guest@example.com").await.ok();
    guest.call(Method::POST, &format!("{withdrawn}/accept"), None).await.refused(404);
    let late = invite().await;
    cloud.clock.advance_s(60 * 24 * 3600);
    guest.call(Method::POST, &format!("{late}/accept"), None).await.refused(410);
    let users = cloud.get("/v0/users").await.ok();
    assert!(users.as_array().unwrap().iter().any(|user| user["expired"] == true), "{users}");
    for bad in
        [json!({}), json!({"email": "nobody"}), json!({"email": "a@b.example", "role": "owner"})]
    {
        cloud.post("/v0/users", bad).await.refused(400);
    }
}

#[tokio::test]
async fn a_workspace_never_loses_its_last_admin() {
    let cloud = Cloud::start().await;
    let me = cloud.first.email.clone();
    cloud.delete("/v0/workspaces/main/leave").await.refused(409);
    cloud.delete(&format!("/v0/users/{me}")).await.refused(409);
    cloud.put(&format!("/v0/users/{me}"), json!({"role": "member"})).await.refused(409);
    cloud.put(&format!("/v0/users/{me}"), json!({"role": "king"})).await.refused(400);
    cloud.put("/v0/users/nobody@example.com", json!({"role": "member"})).await.refused(404);
    cloud.delete("/v0/users/nobody@example.com").await.refused(404);
    let guest = cloud.guest("guest@example.com").await;
    cloud.post("/v0/users", json!({"email": guest.email, "role": "admin"})).await.ok();
    let received = guest.get("/v0/invitations").await.ok();
    let path = format!("/v0/invitations/{}/accept", received[0]["invitationId"].as_str().unwrap());
    guest.call(Method::POST, &path, None).await.ok();
    let demoted = guest
        .call(Method::PUT, &format!("/v0/users/{me}"), Some(json!({"role": "member"})))
        .await
        .ok();
    assert_eq!(demoted["role"], "member");
    cloud.post("/v0/policies", json!({})).await.refused(403);
    cloud.delete("/v0/workspaces/main/leave").await.ok();
}

#[tokio::test]
async fn a_service_account_shows_its_secrets_once_and_loses_them_at_once() {
    for cloud in Cloud::on_both().await {
        let made = cloud
            .post("/v0/service_accounts", json!({"name": "ci", "description": "builds"}))
            .await
            .ok();
        assert!(made["client_secret"].as_str().unwrap().len() > 20);
        let account = format!("/v0/service_accounts/{}", made["client_id"].as_str().unwrap());
        let listed = cloud.get("/v0/service_accounts").await.ok();
        assert_eq!(listed[0]["name"], "ci");
        assert!(listed[0].get("client_secret").is_none(), "{listed}");
        let renamed = cloud.put(&account, json!({"name": "cd"})).await.ok();
        assert_eq!((&renamed["name"], &renamed["description"]), (&json!("cd"), &json!("builds")));
        let key = cloud
            .post(&format!("{account}/api_keys"), json!({"name": "k", "expires_in": "30d"}))
            .await
            .ok();
        assert_eq!(key["sub_type"], "service_account");
        let keys = cloud.get(&format!("{account}/api_keys")).await.ok();
        assert_eq!((&keys[0]["id"], &keys[0]["expires_in"]), (&key["id"], &json!("30d")));
        assert!(keys[0].get("apiKey").is_none(), "{keys}");
        let bearer = format!("Bearer {}", key["apiKey"].as_str().unwrap());
        let with_key = async || {
            cloud
                .call_with(Method::GET, "/v0/agents", &[("authorization", bearer.as_str())], None)
                .await
        };
        with_key().await.ok();
        cloud.delete(&format!("{account}/api_keys/{}", key["id"].as_str().unwrap())).await.ok();
        with_key().await.refused(401);
        cloud.delete(&account).await.ok();
        cloud.get(&format!("{account}/api_keys")).await.refused(404);
        cloud.delete(&account).await.refused(404);
    }
}

#[tokio::test]
async fn an_answer_is_repeated_only_to_whoever_got_it() {
    for cloud in Cloud::on_both().await {
        let made = cloud.post("/v0/service_accounts", json!({"name": "ci"})).await.ok();
        let keys = format!("/v0/service_accounts/{}/api_keys", made["client_id"].as_str().unwrap());
        let guest = cloud.admin_of_main("guest@example.com").await;
        let role = json!({"role": "member"});
        cloud.put(&format!("/v0/users/{}", guest.email), role).await.ok();
        let bearer = format!("Bearer {}", guest.key());
        let ask = async |headers: &[(&str, &str)]| {
            let mut all = vec![("idempotency-key", "k")];
            all.extend(headers);
            cloud.call_with(Method::POST, &keys, &all, Some(json!({"name": "deploy"}))).await
        };
        let first = ask(&[]).await.ok();
        ask(&[("authorization", bearer.as_str())]).await.refused(403);
        assert_eq!(ask(&[]).await.ok(), first, "the admin's own key still repeats");
        // A member's request under the same key is the member's own, and no conflict.
        let agent = json!({"metadata": {"name": "bot"}, "spec": {}});
        let headers = [("idempotency-key", "k"), ("authorization", bearer.as_str())];
        let own = cloud.call_with(Method::POST, "/v0/agents", &headers, Some(agent)).await;
        assert!(own.headers.get("idempotent-replayed").is_none());
        own.ok();
    }
}

#[tokio::test]
async fn a_limited_token_gets_nothing_that_may_do_more() {
    for cloud in Cloud::on_both().await {
        let robot = cloud.post("/v0/service_accounts", json!({"name": "ci"})).await.ok();
        let keys =
            format!("/v0/service_accounts/{}/api_keys", robot["client_id"].as_str().unwrap());
        let scopes = "apiKey:write apiKey:list workspaces:update workspaces:invite models:get";
        let bearer = format!("Bearer {}", cloud.limited_token(scopes).await);
        let limited = async |method, path: &str, body| {
            cloud.call_with(method, path, &[("authorization", bearer.as_str())], body).await
        };
        let made = cloud.post("/v0/api_keys", json!({"name": "own"})).await.ok();
        for path in ["/v0/api_keys", "/v0/service_accounts", keys.as_str()] {
            let refused = limited(Method::POST, path, Some(json!({"name": "esc"}))).await;
            let message = refused.refused(403);
            assert!(message.contains("limited") && message.contains("`admin`"), "{message}");
        }
        // What the scopes do allow.
        let listed = limited(Method::GET, "/v0/api_keys", None).await.ok();
        assert!(!listed.to_string().contains("esc"), "{listed}");
        let for_models = json!({"name": "chat", "models": ["gpt"]});
        limited(Method::POST, "/v0/api_keys", Some(for_models)).await.ok();
        let own = format!("/v0/api_keys/{}", made["id"].as_str().unwrap());
        limited(Method::DELETE, &own, None).await.ok();
        // Whoever has the link of an invitation can join with all rights of its role.
        let invited = json!({"email": "new@example.com", "role": "admin"});
        let invited = limited(Method::POST, "/v0/users", Some(invited)).await.ok();
        assert_eq!(
            (&invited["email"], invited.get("link")),
            (&json!("new@example.com"), None),
            "{invited}"
        );
    }
}

#[tokio::test]
async fn a_key_of_ones_own_lives_as_long_as_it_was_asked_to() {
    let cloud = Cloud::start().await;
    let made = cloud.post("/v0/api_keys", json!({"name": "laptop", "expires_in": "1h"})).await.ok();
    let bearer = format!("Bearer {}", made["apiKey"].as_str().unwrap());
    let with_key = async || {
        cloud
            .call_with(Method::GET, "/v0/agents", &[("authorization", bearer.as_str())], None)
            .await
    };
    with_key().await.ok();
    let listed = cloud.get("/v0/api_keys").await.ok();
    assert!(
        listed.as_array().unwrap().iter().any(|key| key["name"] == "laptop")
            && !listed.to_string().contains(&bearer[7..])
    );
    cloud.clock.advance_s(3601);
    with_key().await.refused(401);
    for bad in ["0h", "-1d", "11000d", "x", "1 fortnight"] {
        cloud.post("/v0/api_keys", json!({"expires_in": bad})).await.refused(400);
    }
    cloud.post("/v0/api_keys", json!({"expires_in": ""})).await.ok();
    cloud.delete("/v0/api_keys/key_none").await.refused(404);
}

#[tokio::test]
async fn quotas_are_readable_and_refuse() {
    let quotas = [(KindName::Sandbox, 1), (KindName::Volume, 1), (KindName::Preview, 1)].into();
    let cloud = Cloud::start_with(Settings { quotas, ..settings() }).await;
    let body = |name: &str| json!({"metadata": {"name": name}, "spec": {}});
    for (path, status) in [("/v0/sandboxes", 400), ("/v0/volumes", 403)] {
        cloud.post(path, body("one")).await.ok();
        let refusal = cloud.post(path, body("two")).await;
        assert_eq!(refusal.body["error"], "QUOTA_EXCEEDED");
        refusal.refused(status);
        cloud.delete(&format!("{path}/one")).await.ok();
        cloud.post(path, body("two")).await.ok();
    }
    // Counted over all sandboxes of the workspace.
    let previews = "/v0/sandboxes/two/previews";
    let preview =
        |name: &str| json!({"metadata": {"name": name}, "spec": {"port": 3000, "public": true}});
    cloud.post(previews, preview("one")).await.ok();
    let refusal = cloud.post(previews, preview("two")).await;
    assert_eq!(refusal.body["error"], "QUOTA_EXCEEDED");
    refusal.refused(403);
    let quotas = cloud.get("/v0/quotas").await.ok();
    let of =
        |kind: &str| quotas.as_array().unwrap().iter().find(|quota| quota["kind"] == kind).unwrap();
    assert_eq!((&of("sandbox")["used"], &of("sandbox")["limit"]), (&json!(1), &json!(1)));
    assert!(of("agent").get("limit").is_none());
}

#[tokio::test]
async fn who_asks_too_fast_is_told_when_to_come_back() {
    let few = Rate { per_second: 1, burst: 2 };
    let many = settings().key_rate;
    for (key_rate, workspace_rate) in [(few, many), (many, few)] {
        let cloud = Cloud::start_with(Settings { key_rate, workspace_rate, ..settings() }).await;
        cloud.get("/v0/agents").await.ok();
        cloud.get("/v0/agents").await.ok();
        let refusal = cloud.get("/v0/agents").await;
        assert!(refusal.headers["retry-after"].to_str().unwrap().parse::<u64>().unwrap() >= 1);
        assert_eq!(refusal.body["retryable"], true);
        refusal.refused(429);
        cloud.clock.advance_s(2);
        cloud.get("/v0/agents").await.ok();
    }
}
