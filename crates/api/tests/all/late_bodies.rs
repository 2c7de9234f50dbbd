//! A body may come long after the head of its request. Whoever lost the right meanwhile must not
//! act any more.

#![expect(clippy::unwrap_used, reason = "a failed step is a failed test")]

use crate::common::people::Guest;
use crate::common::{Answer, Cloud};
use http::Method;
use serde_json::{Value, json};

/// A key of the first person, which is revoked while a body is on its way.
struct Lost<'c> {
    cloud: &'c Cloud,
    id: String,
    bearer: String,
}

impl<'c> Lost<'c> {
    async fn make(cloud: &'c Cloud) -> Self {
        let made = cloud.post("/v0/api_keys", json!({"name": "lost"})).await.ok();
        let text = |member: &str| made[member].as_str().unwrap().to_owned();
        Self { cloud, id: text("id"), bearer: format!("Bearer {}", text("apiKey")) }
    }

    async fn sends(&self, method: Method, path: &str, body: &Value) -> Answer {
        let revoke = async { self.cloud.delete(&format!("/v0/api_keys/{}", self.id)).await.ok() };
        let headers = [("authorization", self.bearer.as_str())];
        self.cloud.late((method, path), &headers, &body.to_string(), revoke).await
    }
}

impl Guest<'_> {
    /// Sends a request whose body comes when `meanwhile` is over.
    async fn late(
        &self,
        method: Method,
        path: &str,
        body: &Value,
        meanwhile: impl Future,
    ) -> Answer {
        let bearer = format!("Bearer {}", self.key());
        let headers = [("authorization", bearer.as_str())];
        self.cloud().late((method, path), &headers, &body.to_string(), meanwhile).await
    }
}

#[tokio::test]
async fn a_body_that_comes_in_time_is_taken() {
    let cloud = Cloud::start().await;
    let guest = cloud.guest("late@example.com").await;
    let key = json!({"name": "late"});
    guest.late(Method::POST, "/v0/api_keys", &key, async {}).await.ok();
}

#[tokio::test]
async fn a_revoked_key_does_nothing_with_a_late_body() {
    for cloud in Cloud::on_both().await {
        let trigger =
            json!({"id": "t", "type": "http-async", "configuration": {"path": "/private"}});
        let spec = json!({"runtime": {"image": "x"}, "triggers": [trigger]});
        let object = |name: &str| json!({"metadata": {"name": name}, "spec": spec});
        cloud.post("/v0/jobs", object("j")).await.ok();
        let agent = json!({"metadata": {"name": "a"}, "spec": {"runtime": {"image": "x"}}});
        cloud.post("/v0/agents", agent).await.ok();
        let client = json!({"name": "App", "redirect_uris": ["https://app.example/cb"]});
        for (path, body) in [
            ("/v0/api_keys", json!({"name": "new"})),
            ("/v0/volumes", json!({"metadata": {"name": "v"}, "spec": {"size": 64}})),
            ("/v0/oauth/clients", client),
            ("/main/private", json!({})),
            ("/main/agents/a?async=true", json!({})),
        ] {
            let lost = Lost::make(&cloud).await;
            lost.sends(Method::POST, path, &body).await.refused(401);
        }
        let lost = Lost::make(&cloud).await;
        lost.sends(Method::DELETE, "/v0/jobs/j", &json!({})).await.refused(401);
        assert_eq!(cloud.get("/v0/api_keys").await.ok().as_array().unwrap().len(), 1);
        cloud.get("/v0/volumes/v").await.refused(404);
        assert_eq!(cloud.get("/v0/oauth/clients").await.ok(), json!([]));
        assert_eq!(cloud.get("/v0/jobs/j/executions").await.ok()["meta"]["total"], 0);
    }
}

#[tokio::test]
async fn a_lost_role_is_not_won_back_with_a_late_body() {
    for cloud in Cloud::on_both().await {
        let guest = cloud.admin_of_main("late@example.com").await;
        let own = format!("/v0/users/{}", guest.email);
        let demote = async { cloud.put(&own, json!({"role": "member"})).await.ok() };
        let admin = json!({"role": "admin"});
        guest.late(Method::PUT, &own, &admin, demote).await.refused(403);
        cloud.put(&own, admin).await.ok();
        let remove = async { cloud.delete(&own).await.ok() };
        let account = json!({"name": "robot"});
        guest.late(Method::POST, "/v0/service_accounts", &account, remove).await.refused(403);
        assert_eq!(cloud.get("/v0/service_accounts").await.ok(), json!([]));
    }
}

#[tokio::test]
async fn a_late_body_is_not_for_another_workspace_of_the_same_name() {
    for cloud in Cloud::on_both().await {
        let team = json!({"name": "team"});
        cloud.post("/v0/workspaces", team.clone()).await.ok();
        let replace = async {
            cloud.delete("/v0/workspaces/team").await.ok();
            cloud.post("/v0/workspaces", team).await.ok()
        };
        let bearer = format!("Bearer {}", cloud.first.api_key);
        let headers = [("authorization", bearer.as_str())];
        let path = "/v0/volumes?workspace=team";
        let volume = json!({"metadata": {"name": "v"}, "spec": {"size": 64}}).to_string();
        cloud.late((Method::POST, path), &headers, &volume, replace).await.refused(403);
        cloud.get("/v0/volumes/v?workspace=team").await.refused(404);
    }
}
