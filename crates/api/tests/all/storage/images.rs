//! Images of a workspace, and who shares them.

use super::workspaces::on_machines;
use crate::common::builder::DIGEST_PREFIX;
use crate::common::{Cloud, settings};
use auth::Identity;
use control::Context;
use control::context::as_admin;
use control::kinds::image::{self, Deployed, TagContent};
use http::Method;
use serde_json::{Value, json};
use std::sync::Arc;
use store::identity::workspaces;
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

    /// Gives an image these tags, in this order.
    async fn tag(&self, name: &'static str, tags: &[&str]) {
        let now = "2026-04-16T00:00:00Z";
        let tag = |tag: &&str| json!({"name": tag, "size": 7, "createdAt": now, "updatedAt": now});
        let tags: Vec<Value> = tags.iter().map(tag).collect();
        self.tell(KindName::Image, "agent", name, json!({"tags": tags})).await;
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
async fn tags_are_listed_by_name_in_pages() {
    for cloud in Cloud::on_both().await {
        cloud.image("bot").await;
        let all = ["v3", "v1", "v10", "Latest", "v2"];
        cloud.tag("bot", &all).await;
        let tags = "/v0/images/agent/bot/tags";
        let names = |page: &Value| -> Vec<String> {
            let tags = page["data"].as_array().unwrap();
            tags.iter().map(|tag| tag["name"].as_str().unwrap().to_owned()).collect()
        };
        let page = cloud.get(tags).await.ok();
        assert_eq!(names(&page), ["Latest", "v1", "v10", "v2", "v3"]);
        assert_eq!(page["meta"], json!({"hasMore": false, "nextCursor": "", "total": 5}));
        assert_eq!(page["data"][0]["size"], 7);
        assert!(
            page["data"][0]["createdAt"].is_string() && page["data"][0]["updatedAt"].is_string()
        );
        for (query, expected) in [
            ("sort=name:desc", vec!["v3", "v2", "v10", "v1", "Latest"]),
            ("q=V1", vec!["v1", "v10"]),
            ("q=1", vec![]),
            ("name=v1", vec!["v1"]),
            ("name=V1", vec![]),
            ("name=&q=&sourceWorkspace=", vec!["Latest", "v1", "v10", "v2", "v3"]),
            ("sourceWorkspace=main&q=l", vec!["Latest"]),
        ] {
            let page = cloud.get(&format!("{tags}?{query}")).await.ok();
            assert_eq!(names(&page), expected, "{query}");
            assert_eq!(page["meta"]["total"], expected.len(), "{query}");
        }
        // A tag that goes or comes between two pages moves none of the others.
        for (sort, first, second) in
            [("asc", ["Latest", "v1"], ["v2", "v3"]), ("desc", ["v3", "v2"], ["v1", "Latest"])]
        {
            let path = format!("{tags}?limit=2&sort=name:{sort}");
            let page = cloud.get(&path).await.ok();
            assert_eq!(names(&page), first);
            let changed = ["v3", "v1", "Latest", "v2", if sort == "asc" { "A" } else { "w" }];
            cloud.tag("bot", &changed).await;
            let cursor = page["meta"]["nextCursor"].as_str().unwrap();
            assert_eq!(names(&cloud.get(&format!("{path}&cursor={cursor}")).await.ok()), second);
            cloud.get(&format!("{path}&q=v&cursor={cursor}")).await.refused(400);
            cloud.tag("bot", &all).await;
        }
        let unknown_kind = cloud.get("/v0/images/_/bot/tags").await.ok();
        assert_eq!(unknown_kind, cloud.get(tags).await.ok());
        cloud.get(&format!("{tags}?sourceWorkspace=other")).await.refused(404);
        cloud.get("/v0/images/agent/nobody/tags").await.refused(404);
        cloud.get(&format!("{tags}?limit=0")).await.refused(400);
        cloud.get(&format!("{tags}?sort=createdAt:asc")).await.refused(400);
    }
}

#[tokio::test]
async fn tags_of_a_shared_image_are_listed_where_it_is_shared() {
    let cloud = Cloud::start().await;
    cloud.image("bot").await;
    cloud.post("/v0/workspaces", json!({"name": "team"})).await.ok();
    let tags = "/v0/images/agent/bot/tags?workspace=team";
    cloud.get(tags).await.refused(404);
    let share = "/v0/images/agent/bot/share?workspace=main";
    cloud.post(share, json!({"targetWorkspace": "team"})).await.ok();
    for (source, status) in [("", 200), ("main", 200), ("team", 404), ("other", 404)] {
        let answer = cloud.get(&format!("{tags}&sourceWorkspace={source}")).await;
        assert_eq!(answer.status, status, "{source}: {}", answer.body);
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
async fn many_images_are_cleaned_up_in_steps_that_miss_nothing() {
    for cloud in Cloud::on_both().await {
        let names: Vec<&'static str> =
            (0..120).map(|number| &*format!("i{number:03}").leak()).collect();
        for name in &names {
            cloud.image(name).await;
        }
        let runs = |name: &str, image: &str| json!({"metadata": {"name": name}, "spec": {"runtime": {"image": image}}});
        cloud.post("/v0/agents", runs("early", "agent/i007:v1")).await.ok();
        let main = cloud.workspace("main").await;
        let find = move |tx: &mut store::Tx<'_>| workspaces::find(tx, &main);
        let main = cloud.store.read(find).await.unwrap().unwrap();
        let member = as_admin(&Arc::new(Identity::system()), &main);
        let context = Context { control: cloud.control.clone(), member };
        let of = context.clone();
        let mut deployed = cloud.store.read(move |tx| Deployed::read(&of, tx)).await.unwrap();
        // Only now, and then with an earlier revision.
        cloud.post("/v0/agents", runs("late", "agent/i111:v2")).await.ok();
        cloud.post("/v0/agents", runs("changed", "agent/i042:v1")).await.ok();
        cloud.put("/v0/agents/changed", runs("changed", "agent/i008:v1")).await.ok();
        let (mut last, mut steps) = (None, Vec::new());
        loop {
            let (of, mut known, after) = (context.clone(), deployed, last);
            let step = move |tx: &mut store::Tx<'_>| {
                image::clean_up(&of, tx, &mut known, after.as_ref()).map(|it| (it, known.clone()))
            };
            let cleaned;
            (cleaned, deployed) = cloud.store.write(step).await.unwrap();
            last = cleaned.last;
            steps.push(cleaned.deleted);
            if last.is_none() {
                break;
            }
        }
        assert_eq!(steps, [47, 50, 19, 0]);
        let left = cloud.get("/v0/images").await.ok();
        let left = left.as_array().unwrap().iter().map(|image| image["metadata"]["name"].clone());
        let mut left: Vec<_> = left.map(|name| name.as_str().unwrap().to_owned()).collect();
        left.sort_unstable();
        assert_eq!(left, ["i007", "i008", "i042", "i111"]);
        assert_eq!(cloud.delete("/v0/images").await.ok()["deleted"], 0);
        cloud.delete("/v0/images/agent/i042").await.refused(400);
    }
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

#[tokio::test]
async fn an_image_that_goes_while_a_sandbox_is_made_is_refused() {
    for (cloud, machine) in on_machines().await {
        let find = |tx: &mut store::Tx<'_>| workspaces::find_by_name(tx, "main");
        let main = cloud.store.read(find).await.unwrap().unwrap();
        let member = as_admin(&Arc::new(Identity::system()), &main);
        let context = Context { control: cloud.control.clone(), member };
        let of = context.clone();
        let pushed = move |tx: &mut store::Tx<'_>| {
            let content = TagContent { digest: format!("{DIGEST_PREFIX}{:060}", 1), size_bytes: 1 };
            image::put_tag(&of, tx, "sandbox", "rc", "v1", &content)
        };
        let image = cloud.store.write(pushed).await.unwrap();
        let (removal, begun) = tokio::sync::oneshot::channel();
        let (mut removal, seen) = (Some(removal), Arc::clone(&machine));
        let removed = cloud.store.write(move |tx| {
            let deployed = Deployed::read(&context, tx)?;
            image::remove(&context, tx, &["sandbox".to_owned()], "rc", deployed)?;
            if let Some(removal) = removal.take() {
                removal.send(()).unwrap();
            }
            // By then the image was looked up. It goes before the row of the sandbox is written.
            while seen.launched.borrow().is_empty() {
                std::thread::yield_now();
            }
            Ok::<_, control::Error>(())
        });
        let made = async {
            begun.await.unwrap();
            let spec = json!({"runtime": {"image": image, "memory": 512}});
            cloud.post("/v0/sandboxes", json!({"metadata": {"name": "one"}, "spec": spec})).await
        };
        let (removed, made) = tokio::join!(removed, made);
        removed.unwrap();
        made.refused(400);
        cloud.get("/v0/sandboxes/one").await.refused(404);
        let launched = machine.until_launched(1).await.remove(0);
        machine.until_retired(launched.instance.as_str()).await;
    }
}
