//! The name of a deleted workspace is taken by somebody else: what was meant for the earlier
//! workspace does not reach the later one, and nothing of the later one is touched for it.

use super::stage::{HOME, HONEST, MARK};
use crate::common::Cloud;
use http::Method;
use serde_json::{Value, json};
use store::resources;
use types::KindName;
use types::ids::ResourceId;

/// The name that is used twice.
const AGAIN: &str = "used-again";
const DOMAIN: &str = "/v0/customdomains/example.com";

/// Makes an image in the honest tenant's workspace, as a build leaves it.
async fn image(cloud: &Cloud) {
    let workspace = cloud.workspace(HOME).await;
    let work = move |tx: &mut store::Tx<'_>| {
        let wish = json!({"metadata": {"name": HONEST, "resourceType": "agent"}, "spec": {}});
        let image = resources::Stored {
            id: ResourceId::new(tx.world()),
            workspace: workspace.clone(),
            kind: KindName::Image,
            parent: "agent".into(),
            name: HONEST.into(),
            external_id: None,
            status: None,
            search: HONEST.into(),
            wish: wish.to_string(),
            state: json!({"tags": [{"name": "v1"}], "size": 10}).to_string(),
            seal_key: None,
            version: 0,
            created_at: tx.world().now(),
            updated_at: tx.world().now(),
            created_by: "a build".into(),
            updated_by: "a build".into(),
        };
        resources::insert(tx, image).map(drop)
    };
    cloud.store.write(work).await.unwrap();
}

#[tokio::test]
async fn an_offer_is_not_for_whoever_takes_the_name_of_its_workspace() {
    for cloud in Cloud::on_both().await {
        cloud.post("/v0/workspaces", json!({"name": HOME})).await.ok();
        image(&cloud).await;
        let (friend, account) = cloud.stranger("friend@example.com").await;
        friend.post("/v0/workspaces", json!({"name": AGAIN})).await.ok();
        let offer = json!({"targetWorkspace": AGAIN, "targetAccountId": account});
        let share = format!("/v0/images/agent/{HONEST}/share?workspace={HOME}");
        let offered = cloud.post(&share, offer).await;
        assert_eq!(offered.status, 202, "{}", offered.body);
        let path = format!("/v0/pending-image-shares/{}", offered.body["id"].as_str().unwrap());
        let seen = friend.get("/v0/pending-image-shares").await.ok();
        assert_eq!(seen[0]["imageName"], HONEST);
        friend.delete(&format!("/v0/workspaces/{AGAIN}")).await.ok();

        let (thief, _) = cloud.stranger("thief@example.com").await;
        thief.post("/v0/workspaces", json!({"name": AGAIN, "displayName": MARK})).await.ok();
        assert_eq!(thief.get("/v0/pending-image-shares").await.ok(), json!([]));
        for verb in ["accept", "decline"] {
            thief.call(Method::POST, &format!("{path}/{verb}"), None).await.refused(404);
        }
        thief.get(&format!("/v0/images/agent/{HONEST}")).await.refused(404);
        let outgoing = format!("/v0/pending-image-shares?workspace={HOME}");
        let outgoing = cloud.get(&outgoing).await.ok();
        assert_eq!(outgoing.as_array().unwrap().len(), 1, "it still waits: {outgoing}");
        assert!(!outgoing.to_string().contains(MARK), "{outgoing}");
    }
}

async fn domain(cloud: &Cloud, workspace: &str) -> Value {
    cloud.get(&format!("{DOMAIN}?workspace={workspace}")).await.ok()
}

/// Earlier releases kept deleted workspaces among the shares of a domain.
#[tokio::test]
async fn a_domain_of_whoever_takes_the_name_of_a_sharing_workspace_is_their_own() {
    for cloud in Cloud::on_both().await {
        let registered = json!({"metadata": {"name": "example.com"}, "spec": {}});
        let made = cloud.post("/v0/customdomains", registered.clone()).await.ok();
        cloud.post("/v0/workspaces", json!({"name": "near"})).await.ok();
        cloud.post("/v0/customdomains?workspace=near", registered.clone()).await.ok();
        let (thief, _) = cloud.stranger("thief@example.com").await;
        thief.post("/v0/workspaces", json!({"name": AGAIN, "displayName": MARK})).await.ok();
        thief.post("/v0/customdomains", registered).await.ok();
        let theirs = thief.get(DOMAIN).await.ok();
        let near = domain(&cloud, "near").await;

        let shared = json!({"shared_with": [AGAIN, "near"]});
        cloud.tell(KindName::CustomDomain, "", "example.com", shared).await;
        for (name, text) in made["spec"]["txtRecords"].as_object().unwrap() {
            cloud.dns.set_text(name, text.as_str().unwrap());
        }
        let verify = format!("{DOMAIN}/verify?workspace=main");
        let verified = cloud.call(Method::POST, &verify, None).await.ok();
        assert_eq!(verified["spec"]["status"], "verified");
        assert_eq!(thief.get(DOMAIN).await.ok(), theirs);
        assert_eq!(domain(&cloud, "near").await, near);
        let shares = cloud.get(&format!("{DOMAIN}/share?workspace=main")).await.ok();
        assert!(!shares.to_string().contains(MARK), "{shares}");
        cloud.delete(&format!("{DOMAIN}/share/account?workspace=main")).await.ok();
        assert_eq!(thief.get(DOMAIN).await.ok(), theirs);
        assert_eq!(domain(&cloud, "near").await, near);
    }
}
