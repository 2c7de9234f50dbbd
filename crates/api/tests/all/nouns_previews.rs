//! Previews of sandboxes: their addresses, and the tokens for them.

#![expect(clippy::unwrap_used, reason = "a failed step is a failed test")]

use crate::common::Cloud;
use serde_json::{Value, json};
use store::{Tx, edge_names, resources};
use types::KindName;
use types::ids::ResourceId;

fn named(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {}})
}

async fn workspace(cloud: &Cloud, name: &str) {
    cloud.post("/v0/workspaces", json!({"name": name})).await.ok();
}

#[tokio::test]
async fn an_address_belongs_to_one_preview_unless_it_is_taken_over() {
    let cloud = Cloud::start().await;
    cloud.post("/v0/sandboxes", named("one")).await.ok();
    cloud.post("/v0/sandboxes", named("two")).await.ok();
    let preview = |name: &str| json!({"metadata": {"name": name}, "spec": {"port": 3000, "prefixUrl": "shop"}});
    let made = cloud.post("/v0/sandboxes/one/previews", preview("a")).await.ok();
    assert_eq!(made["spec"]["url"], "http://localhost:8081/-/shop-main.preview");
    let message = cloud.post("/v0/sandboxes/two/previews", preview("b")).await.refused(409);
    assert!(message.contains("`a`") && message.contains("`one`"), "{message}");
    cloud.post("/v0/sandboxes/two/previews?force=true", preview("b")).await.ok();
    cloud.get("/v0/sandboxes/one/previews/a").await.refused(404);
    cloud
        .post(
            "/v0/sandboxes/one/previews",
            json!({"metadata": {"name": "p"}, "spec": {"port": 80}}),
        )
        .await
        .refused(400);
}

/// All of them are deleted with the sandbox in one transaction, for which everybody else waits.
#[tokio::test]
async fn a_sandbox_has_a_thousand_previews_at_most() {
    let cloud = Cloud::start().await;
    cloud.post("/v0/sandboxes", named("box")).await.ok();
    cloud.post("/v0/sandboxes/box/previews", preview_of("first")).await.ok();
    let main = cloud.workspace("main").await;
    let more = move |tx: &mut Tx<'_>| {
        let first = resources::find(tx, &main, KindName::Preview, "box", "first")?.unwrap();
        for number in 1..1000 {
            let (id, name) = (ResourceId::new(tx.world()), format!("p{number}"));
            resources::insert(tx, resources::Stored { id, name, ..first.clone() })?;
        }
        Ok::<_, store::Error>(())
    };
    cloud.store.write(more).await.unwrap();
    let message = cloud.post("/v0/sandboxes/box/previews", preview_of("last")).await.refused(400);
    assert!(message.contains("1000"), "{message}");
    cloud.post("/v0/sandboxes", named("another")).await.ok();
    cloud.post("/v0/sandboxes/another/previews", preview_of("last")).await.ok();
}

fn preview_of(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"port": 3000}})
}

/// A second workspace of the same account. Prefix and workspace may both contain hyphens, so two
/// workspaces may want the same host.
#[tokio::test]
async fn the_host_of_a_preview_is_nobody_elses() {
    for cloud in Cloud::on_both().await {
        let preview = |prefix: &str| json!({"metadata": {"name": "web"}, "spec": {"port": 3000, "prefixUrl": prefix}});
        for name in ["dev", "acme-dev"] {
            workspace(&cloud, name).await;
            cloud.post(&format!("/v0/sandboxes?workspace={name}"), named("box")).await.ok();
        }
        let (victim, thief) = (
            "/v0/sandboxes/box/previews?workspace=acme-dev",
            "/v0/sandboxes/box/previews?workspace=dev",
        );
        let made = cloud.post(victim, preview("shop")).await.ok();
        assert_eq!(made["spec"]["url"], "http://localhost:8081/-/shop-acme-dev.preview");
        for path in [thief.to_owned(), format!("{thief}&force=true")] {
            let message = cloud.post(&path, preview("shop-acme")).await.refused(409);
            assert_eq!(
                message,
                "the address `shop-acme-dev.preview` is taken; choose another prefix"
            );
        }
        cloud.post(thief, preview("stall")).await.ok();
        let moved = "/v0/sandboxes/box/previews/web?workspace=dev";
        cloud.put(moved, preview("shop-acme")).await.refused(409);
        cloud.delete(moved).await.ok();
        let kept = "/v0/sandboxes/box/previews/web?workspace=acme-dev";
        assert_eq!(cloud.get(kept).await.ok()["spec"]["url"], made["spec"]["url"]);
        // An address that is given up is free: by changing the prefix, or with the preview.
        cloud.put(kept, preview("store")).await.ok();
        cloud.post(thief, preview("shop-acme")).await.ok();
        cloud.put(kept, preview("shop")).await.refused(409);
        cloud.delete("/v0/sandboxes/box?workspace=dev").await.ok();
        cloud.put(kept, preview("shop")).await.ok();
    }
}

/// Addresses from an earlier release: recorded nowhere, and some of them given twice.
#[tokio::test]
async fn the_first_keeps_an_address_that_an_earlier_release_gave_twice() {
    for mut cloud in Cloud::on_both().await {
        for name in ["dev", "acme-dev"] {
            workspace(&cloud, name).await;
            cloud.post(&format!("/v0/sandboxes?workspace={name}"), named("box")).await.ok();
        }
        let preview = |name: &str, prefix: Option<&str>| json!({"metadata": {"name": name}, "spec": {"port": 3000, "prefixUrl": prefix}});
        cloud
            .post("/v0/sandboxes/box/previews?workspace=acme-dev", preview("web", Some("shop")))
            .await
            .ok();
        for (name, prefix) in [("web", Some("stall")), ("plain", None)] {
            cloud
                .post("/v0/sandboxes/box/previews?workspace=dev", preview(name, prefix))
                .await
                .ok();
        }
        let plain = cloud.store.write(forget_addresses).await.unwrap();
        cloud.restart().await;
        let url = async |path: &str| {
            cloud.get(&format!("/v0/sandboxes/box/previews/{path}")).await.ok()["spec"]["url"]
                .clone()
        };
        assert_eq!(
            url("web?workspace=acme-dev").await,
            "http://localhost:8081/-/shop-acme-dev.preview"
        );
        let late = url("web?workspace=dev").await;
        assert!(late.is_string() && !late.to_string().contains("shop"), "{late}");
        assert_eq!(
            url("plain?workspace=dev").await,
            format!("http://localhost:8081/-/{plain}.preview")
        );
        let same = cloud
            .put("/v0/sandboxes/box/previews/plain?workspace=dev", preview("plain", None))
            .await
            .ok();
        assert_eq!(same["spec"]["url"], format!("http://localhost:8081/-/{plain}.preview"));
        let third = preview("third", Some("shop-acme"));
        cloud.post("/v0/sandboxes/box/previews?workspace=dev", third).await.refused(409);
    }
}

/// Writes rows as the earlier release did. Returns the label that the preview `plain` had then.
fn forget_addresses(tx: &mut Tx<'_>) -> Result<String, store::Error> {
    let mut plain = String::new();
    for kind in [KindName::Sandbox, KindName::Preview] {
        for mut row in resources::scan(tx, kind, None, 100)? {
            edge_names::give_back(tx, &row.id)?;
            if row.name == "plain" {
                row.id.as_str().trim_start_matches("res_").clone_into(&mut plain);
            }
            let mut state: Value = serde_json::from_str(&row.state).unwrap();
            state.as_object_mut().unwrap().remove("at");
            row.state = state.to_string();
            row.wish = row.wish.replace("stall", "shop-acme");
            resources::update(tx, row)?;
        }
    }
    store::settings::set(tx, "edge-names-adopted", "no")?;
    Ok(plain)
}

#[tokio::test]
async fn a_preview_made_again_under_its_name_has_the_same_address() {
    for cloud in Cloud::on_both().await {
        for name in ["one", "two"] {
            cloud.post("/v0/sandboxes", named(name)).await.ok();
        }
        let preview = |name: &str| json!({"metadata": {"name": name}, "spec": {"port": 3000}});
        let url = async |sandbox: &str, name: &str| {
            cloud.post(&format!("/v0/sandboxes/{sandbox}/previews"), preview(name)).await.ok()["spec"]["url"].clone()
        };
        let first = url("one", "web").await;
        assert_ne!(url("one", "other").await, first);
        assert_ne!(url("two", "web").await, first);
        cloud.delete("/v0/sandboxes/one/previews/web").await.ok();
        assert_eq!(url("one", "web").await, first);
        let path = "/v0/sandboxes/one/previews/web";
        let prefixed =
            json!({"metadata": {"name": "web"}, "spec": {"port": 3000, "prefixUrl": "shop"}});
        assert_ne!(cloud.put(path, prefixed).await.ok()["spec"]["url"], first);
        assert_eq!(cloud.put(path, preview("web")).await.ok()["spec"]["url"], first);
    }
}

#[tokio::test]
async fn tokens_of_one_name_are_told_apart_by_their_value() {
    for cloud in Cloud::on_both().await {
        cloud.post("/v0/sandboxes", named("one")).await.ok();
        let preview = json!({"metadata": {"name": "web"}, "spec": {"port": 3000}});
        cloud.post("/v0/sandboxes/one/previews", preview).await.ok();
        let tokens = "/v0/sandboxes/one/previews/web/tokens";
        let token = || json!({"metadata": {"name": "token-1776300000000"}, "spec": {}});
        let made = tokio::join!(
            cloud.post(tokens, token()),
            cloud.post(tokens, token()),
            cloud.post(tokens, token())
        );
        let values = [made.0.ok(), made.1.ok(), made.2.ok()].map(|made| {
            assert_eq!(made["metadata"]["name"], "token-1776300000000");
            made["spec"]["token"].as_str().expect("a token").to_owned()
        });
        let left = async || -> Vec<String> {
            let listed = cloud.get(tokens).await.ok();
            let value =
                |token: &Value| token["spec"]["token"].as_str().expect("a token").to_owned();
            listed.as_array().expect("a list").iter().map(value).collect()
        };
        cloud.delete(&format!("{tokens}/{}", values[0])).await.ok();
        cloud.delete(&format!("{tokens}/{}", values[0])).await.refused(404);
        let two = left().await;
        assert!(two.len() == 2 && !two.contains(&values[0]), "{two:?}");
        cloud.delete(&format!("{tokens}/token-1776300000000")).await.ok();
        assert!(left().await.is_empty());
    }
}

#[tokio::test]
async fn a_token_of_a_preview_expires_and_can_be_revoked() {
    let cloud = Cloud::start().await;
    cloud.post("/v0/sandboxes", named("one")).await.ok();
    cloud
        .post(
            "/v0/sandboxes/one/previews",
            json!({"metadata": {"name": "web"}, "spec": {"port": 3000}}),
        )
        .await
        .ok();
    let tokens = "/v0/sandboxes/one/previews/web/tokens";
    let token = json!({"metadata": {"name": "t"}, "spec": {"expiresAt": "2026-04-17T00:00:00Z"}});
    let made = cloud.post(tokens, token).await.ok();
    assert_eq!(
        (&made["spec"]["expired"], &made["metadata"]["previewName"]),
        (&json!(false), &json!("web"))
    );
    cloud.clock.advance_s(2 * 24 * 3600);
    let listed = cloud.get(tokens).await.ok();
    assert_eq!(
        (&listed[0]["spec"]["expired"], &listed[0]["spec"]["token"]),
        (&json!(true), &made["spec"]["token"])
    );
    cloud.delete(&format!("{tokens}/t")).await.ok();
    assert_eq!(cloud.get(tokens).await.ok(), json!([]));
    cloud.delete(&format!("{tokens}/t")).await.refused(404);
}
