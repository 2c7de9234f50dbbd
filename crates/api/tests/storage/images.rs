//! Images of a workspace, and who shares them.

use crate::common::{Cloud, settings};
use http::Method;
use serde_json::{Value, json};
use store::resources;
use types::ids::ResourceId;
use types::{KindName, Timestamp};

impl Cloud {
    /// Makes an image with two tags, as a build leaves it.
    async fn image(&self, name: &'static str) {
        let workspace = self.workspace("main").await;
        let work = move |tx: &mut store::Tx<'_>| {
            let now = Timestamp::from_ms(1_776_300_000_000);
            let tags = json!({"tags": [{"name": "v1"}, {"name": "v2"}], "size": 10});
            let wish = json!({"metadata": {"name": name, "resourceType": "agent"}, "spec": {}});
            let image = resources::Stored {
                id: ResourceId::new(tx.world()),
                workspace: workspace.clone(),
                kind: KindName::Image,
                parent: "agent".into(),
                name: name.into(),
                external_id: None,
                status: None,
                search: name.into(),
                wish: wish.to_string(),
                state: json!({"tags": tags["tags"], "size": 10}).to_string(),
                seal_key: None,
                version: 0,
                created_at: now,
                updated_at: now,
                created_by: "a build".into(),
                updated_by: "a build".into(),
            };
            resources::insert(tx, image).map(drop)
        };
        self.store.write(work).await.unwrap();
    }
}

#[tokio::test]
async fn an_image_that_runs_is_not_removed() {
    for cloud in Cloud::on_both().await {
        cloud.image("bot").await;
        let runs = |image: &str| json!({"metadata": {"name": "bot"}, "spec": {"runtime": {"image": image}}});
        cloud.post("/v0/agents", runs("agent/bot:v1")).await.ok();
        let image = cloud.get("/v0/images/agent/bot").await.ok();
        assert_eq!(image["spec"]["tags"].as_array().unwrap().len(), 2);
        assert_eq!(
            cloud.get("/v0/images/_/bot").await.ok(),
            image,
            "the command line does not know the kind"
        );
        assert_eq!(cloud.get("/v0/images").await.ok(), json!([image]));
        cloud.delete("/v0/images/agent/bot").await.refused(400);
        cloud.delete("/v0/images/agent/bot/tags/v1").await.refused(400);
        cloud.delete("/v0/images/agent/bot:v1").await.refused(400);
        let rest = cloud.delete("/v0/images/agent/bot:v2").await.ok();
        assert_eq!(rest["spec"]["tags"].as_array().unwrap().len(), 1);
        cloud.delete("/v0/images/agent/bot/tags/v2").await.refused(404);
        assert_eq!(cloud.delete("/v0/images").await.ok()["deleted"], 0);
        cloud.delete("/v0/agents/bot").await.ok();
        assert_eq!(cloud.delete("/v0/images").await.ok()["deleted"], 1);
        cloud.get("/v0/images/agent/bot").await.refused(404);
    }
}

#[tokio::test]
async fn an_image_is_shared_within_the_account_at_once() {
    let cloud = Cloud::start().await;
    cloud.image("bot").await;
    cloud.post("/v0/workspaces", json!({"name": "team"})).await.ok();
    let path = |path: &str| format!("/v0/images/agent/bot{path}?workspace=main");
    for (target, status) in [("nobody", 404), ("main", 404)] {
        cloud.post(&path("/share"), json!({"targetWorkspace": target})).await.refused(status);
    }
    cloud.post(&path("/share"), json!({"targetWorkspace": "team"})).await.ok();
    cloud.post(&path("/share"), json!({"targetWorkspace": "team"})).await.refused(409);
    let shares = cloud.get(&path("/share")).await.ok();
    assert_eq!((&shares[0]["workspace"], &shares[0]["status"]), (&json!("team"), &json!("active")));
    let copy = cloud.get("/v0/images/agent/bot?workspace=team").await.ok();
    assert_eq!(copy["metadata"]["sourceWorkspace"], "main");
    let again = cloud
        .post("/v0/images/agent/bot/share?workspace=team", json!({"targetWorkspace": "main"}))
        .await;
    again.refused(400);
    cloud.delete(&path("")).await.refused(400);
    // Somebody who has deleted the copy can get it again.
    cloud.delete("/v0/images/agent/bot?workspace=team").await.ok();
    cloud.post(&path("/share"), json!({"targetWorkspace": "team"})).await.ok();
    cloud.get("/v0/images/agent/bot?workspace=team").await.ok();
    assert_eq!(cloud.get(&path("/share")).await.ok().as_array().unwrap().len(), 1);
    cloud.delete(&path("/share/team")).await.ok();
    cloud.delete(&path("/share/team")).await.refused(404);
    cloud.get("/v0/images/agent/bot?workspace=team").await.refused(404);
    cloud.delete(&path("")).await.ok();
}

#[tokio::test]
async fn an_image_for_another_account_waits_until_it_is_accepted() {
    for cloud in Cloud::on_both().await {
        cloud.image("bot").await;
        let (friend, account) = cloud.stranger("friend@example.com").await;
        friend.post("/v0/workspaces", json!({"name": "theirs"})).await.ok();
        let offer = json!({"targetWorkspace": "theirs", "targetAccountId": account});
        cloud
            .post("/v0/images/agent/bot/share", json!({"targetWorkspace": "theirs"}))
            .await
            .refused(404);
        let share = async || {
            let pending = cloud.post("/v0/images/agent/bot/share", offer.clone()).await;
            assert_eq!(pending.status, 202, "{}", pending.body);
            format!("/v0/pending-image-shares/{}", pending.body["id"].as_str().unwrap())
        };
        let declined = share().await;
        assert_eq!(cloud.get("/v0/images/agent/bot/share").await.ok()[0]["status"], "pending");
        friend.get("/v0/images/agent/bot").await.refused(404);
        assert_eq!(friend.get("/v0/pending-image-shares?direction=outgoing").await.ok(), json!([]));
        assert_eq!(cloud.get("/v0/pending-image-shares?direction=incoming").await.ok(), json!([]));
        let incoming = friend.get("/v0/pending-image-shares").await.ok();
        assert_eq!(
            (&incoming[0]["imageName"], &incoming[0]["hasConflict"]),
            (&json!("bot"), &json!(false))
        );
        cloud.call(Method::POST, &format!("{declined}/accept"), None).await.refused(404);
        assert_eq!(
            friend.call(Method::POST, &format!("{declined}/decline"), None).await.status,
            204
        );
        assert_eq!(cloud.get("/v0/images/agent/bot/share").await.ok(), json!([]));
        let late = share().await;
        cloud.clock.advance_s(8 * 24 * 3600);
        friend.call(Method::POST, &format!("{late}/accept"), None).await.refused(410);
        cloud.delete("/v0/images/agent/bot/share/theirs").await.ok();
        let good = share().await;
        let copy = friend.call(Method::POST, &format!("{good}/accept"), None).await.ok();
        assert_eq!(copy["metadata"]["sourceWorkspace"], "main");
        assert_eq!(friend.get("/v0/images/agent/bot").await.ok(), copy);
        assert_eq!(cloud.get("/v0/images/agent/bot/share").await.ok()[0]["status"], "active");
        friend.call(Method::POST, &format!("{good}/accept"), None).await.refused(404);
    }
}

#[tokio::test]
async fn the_oldest_of_many_images_is_found_and_cleaned_up() {
    let mut settings = settings();
    settings.bare_list_max = 1;
    let cloud = Cloud::start_with(settings).await;
    cloud.image("oldest").await;
    cloud.image("newest").await;
    cloud.get("/v0/images").await.refused(400);
    assert_eq!(cloud.get("/v0/images/_/oldest").await.ok()["metadata"]["name"], "oldest");
    assert_eq!(cloud.get("/v0/images/_/newest").await.ok()["metadata"]["name"], "newest");
    assert_eq!(cloud.delete("/v0/images").await.ok()["deleted"], 2);
}

#[tokio::test]
async fn a_key_shares_accepts_and_declines_an_image_once() {
    let cloud = Cloud::start().await;
    cloud.image("bot").await;
    let (friend, account) = cloud.stranger("friend@example.com").await;
    friend.post("/v0/workspaces", json!({"name": "theirs"})).await.ok();
    let offer = json!({"targetWorkspace": "theirs", "targetAccountId": account});
    let share = async |key: &str| {
        let key = [("idempotency-key", key)];
        let share = "/v0/images/agent/bot/share";
        cloud.call_with(Method::POST, share, &key, Some(offer.clone())).await
    };
    let bearer = format!("Bearer {}", friend.key());
    let answer = async |id: &Value, verb: &str| {
        let path = format!("/v0/pending-image-shares/{}/{verb}", id.as_str().unwrap());
        let headers = [("authorization", bearer.as_str()), ("idempotency-key", verb)];
        cloud.call_with(Method::POST, &path, &headers, None).await
    };
    let first = share("first").await;
    let again = share("first").await;
    assert_eq!((first.status, &first.body), (again.status, &again.body));
    assert_eq!(again.status, 202);
    assert_eq!(again.headers["idempotent-replayed"], "true");
    for _ in ["it is declined", "it stays declined"] {
        assert_eq!(answer(&first.body["id"], "decline").await.status, 204);
    }
    let second = share("second").await;
    assert_ne!(second.body["id"], first.body["id"]);
    let accepted = answer(&second.body["id"], "accept").await.ok();
    let again = answer(&second.body["id"], "accept").await;
    assert_eq!(again.headers["idempotent-replayed"], "true");
    assert_eq!(again.ok(), accepted);
}
