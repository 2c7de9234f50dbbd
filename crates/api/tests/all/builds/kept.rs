//! What builds find of their workspace, and what of them goes with it.

use super::{agent, quick, stage_on};
use crate::common::builder::DIGEST_PREFIX;
use control::machine::LaunchFault;
use serde_json::json;
use std::time::Duration;
use store::image_rights;

#[tokio::test]
async fn a_build_begins_with_any_image_of_its_workspace_and_nobody_elses() {
    for postgres in [false, true] {
        let stage = stage_on(quick(), postgres).await;
        let main = stage.cloud.workspace("main").await;
        let grant = move |tx: &mut store::Tx<'_>| {
            for number in 0..1_100 {
                let digest = format!("{DIGEST_PREFIX}{number:060}");
                image_rights::grant(tx, &main, &format!("agent/base:v{number}"), &digest)?;
            }
            Ok::<_, store::Error>(())
        };
        stage.cloud.store.write(grant).await.expect("rights");
        stage.deploy("/v0/agents/a", agent(), "an app").await;
        stage.builder.until_began(1).await;
        let own = stage.builder.began.borrow()[0].own_images.clone();
        for name in ["agent/base:v0", "agent/base:v999", "localhost:8080/main/agent/base:v999"] {
            let found = own.find(name).await;
            assert!(matches!(found, Ok(Some(_))), "{name}: {found:?}");
        }
        for name in ["agent/base:v1100", "agent/base", "job/base:v0", "localhost:8080/main/app/a"] {
            let Err(LaunchFault::Image(unknown)) = own.find(name).await else {
                panic!("{name} is found elsewhere")
            };
            let said = unknown.to_string();
            assert!(said.contains("there is no image") && said.contains("agent/base:v0"), "{said}");
        }
        for name in ["docker.io/agent/base:v0", "python:3.12", "localhost:8080/other/agent/base:v0"]
        {
            let found = own.find(name).await;
            assert!(matches!(found, Ok(None)), "{name}: {found:?}");
        }
    }
}

#[tokio::test]
async fn what_builds_keep_goes_with_its_workspace() {
    for postgres in [false, true] {
        let stage = stage_on(quick(), postgres).await;
        stage.deploy("/v0/agents/a", agent(), "an app").await;
        stage.builder.until_began(1).await;
        stage.cloud.post("/v0/workspaces", json!({"name": "team"})).await.ok();
        let team = stage.cloud.workspace("team").await.to_string();
        // One was deleted while this server was not there to see it.
        stage.builder.keeps.lock().extend([team.clone(), "wsp_gone".to_owned()]);
        stage.cloud.delete("/v0/workspaces/team").await.ok();
        let mut forgot = stage.builder.forgot.subscribe();
        let both = forgot
            .wait_for(|forgot| forgot.contains(&team) && forgot.iter().any(|id| id == "wsp_gone"));
        let both = tokio::time::timeout(Duration::from_secs(60), both).await;
        both.expect("they are forgotten").expect("a builder");
        let main = stage.cloud.workspace("main").await.to_string();
        assert!(stage.builder.keeps.lock().iter().eq([&main]));
    }
}
