//! What providers are asked: their models, and access tokens.

use super::*;

fn listed(request: &OutsideRequest) -> Result<(u16, String), String> {
    let header = |name: &str| {
        let found = request.headers.iter().find(|(it, _)| it.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.0.clone()).unwrap_or_default()
    };
    match header("authorization").as_str() {
        "Bearer sk-good" => {
            let models = json!({"object": "list", "data": [{"id": "gpt-x", "object": "model"}, {"id": "a/b", "object": "model"}]});
            Ok((200, models.to_string()))
        }
        "Bearer sk-odd" => Ok((200, "<html>".to_owned())),
        "Bearer sk-down" => Err("it refuses connections".to_owned()),
        "Bearer sk-busy" => Ok((503, String::new())),
        _ => Ok((401, r#"{"error": "sk-bad is not a key"}"#.to_owned())),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_provider_is_asked_for_its_models_once_in_a_while() {
    let cloud = cloud().await;
    cloud.routes.answer(listed);
    cloud.post(CONNECTIONS, connection("k", "sk-good")).await.ok();
    let path = &format!("{CONNECTIONS}/k/models");
    let models = cloud.get(path).await.ok();
    assert_eq!((models[0]["id"].as_str(), models.as_array().unwrap().len()), (Some("gpt-x"), 2));
    assert_eq!(cloud.get(&format!("{path}/gpt-x")).await.ok()["id"], "gpt-x");
    assert_eq!(cloud.get(&format!("{path}/a%2Fb")).await.ok()["id"], "a/b");
    cloud.get(&format!("{path}/none")).await.refused(404);
    assert_eq!(cloud.routes.questions.lock().len(), 1, "the answer is kept");
    cloud.clock.advance_s(301);
    cloud.get(path).await.ok();
    assert_eq!(cloud.routes.questions.lock().len(), 2);

    // Whose fault it is, in the form of the contract, without what the provider repeats.
    for (key, status, why) in [
        ("sk-bad", 502, "refuses the credentials of the connection `k`"),
        ("sk-down", 502, "cannot be reached: it refuses connections"),
        ("sk-busy", 502, "answered with status 503"),
        ("sk-odd", 502, "something else than models"),
    ] {
        cloud.put(&format!("{CONNECTIONS}/k"), connection("k", key)).await.ok();
        let message = cloud.get(path).await.refused(status);
        assert!(message.contains(why) && !message.contains(key), "{message}");
    }
    cloud.post(CONNECTIONS, object("gh", json!({"integration": "github"}))).await.ok();
    let why = cloud.get(&format!("{CONNECTIONS}/gh/models")).await.refused(400);
    assert!(why.contains("has no models"), "{why}");
    cloud.get(&format!("{CONNECTIONS}/none/models")).await.refused(404);
}

fn oauth(name: &str, token: &str) -> Value {
    let secret = json!({"CLIENT_ID": "c", "CLIENT_SECRET": "s", "REFRESH_TOKEN": token});
    let config = json!({"tokenUrl": "https://token.example/", "endpoint": "https://api.example/"});
    object(name, json!({"integration": "openai", "config": config, "secret": secret}))
}

fn token_of(route: &ModelRoute) -> Option<String> {
    route.provider.as_ref()?.secrets.0.get("accessToken").cloned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn access_tokens_are_fetched_ahead_of_their_end_and_refresh_tokens_turn() {
    let cloud = cloud().await;
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    cloud.routes.answer(move |request| {
        let body = String::from_utf8_lossy(&request.body.0).into_owned();
        let at = counted.load(Ordering::SeqCst);
        // Each refresh token is valid once.
        if !body.contains(&format!("refresh_token=turn-{at}")) {
            return Ok((400, r#"{"error": "invalid_grant", "error_description": "turn-0"}"#.into()));
        }
        counted.fetch_add(1, Ordering::SeqCst);
        let next = at + 1;
        let token = json!({"access_token": format!("at-{next}"), "expires_in": 1000, "refresh_token": format!("turn-{next}")});
        Ok((200, token.to_string()))
    });
    cloud.post(CONNECTIONS, oauth("k", "turn-0")).await.ok();
    cloud.post("/v0/models", model("k")).await.ok();
    let token =
        |wanted: &'static str| move |route: &ModelRoute| token_of(route).as_deref() == Some(wanted);
    let route = cloud.routes.until_model("m", token("at-1")).await;
    assert_eq!(route.off, None);
    for wanted in ["at-2", "at-3"] {
        cloud.clock.advance_s(950);
        cloud.routes.until_model("m", token(wanted)).await;
    }
    let shown = cloud.get(&format!("{CONNECTIONS}/k?show_secrets=true")).await.ok();
    assert_eq!(shown["spec"]["secret"]["REFRESH_TOKEN"], "***");
    assert!(shown["spec"]["secret"].get("accessToken").is_none(), "{shown}");
    let rows = cloud
        .store
        .read(|tx| store::resources::scan(tx, types::KindName::IntegrationConnection, None, 10));
    for row in rows.await.unwrap() {
        assert!(!row.wish.contains("turn-") && !row.wish.contains("at-"), "it is sealed");
    }

    // A revoked connection gives no token, and the model says so.
    cloud.put(&format!("{CONNECTIONS}/k"), oauth("k", "taken-back")).await.ok();
    let off =
        |route: &ModelRoute| route.off.as_deref().is_some_and(|off| off.contains("invalid_grant"));
    let route = cloud.routes.until_model("m", off).await;
    assert_eq!(route.provider, None);
    cloud.put(&format!("{CONNECTIONS}/k"), oauth("k", "turn-3")).await.ok();
    cloud.routes.until_model("m", token("at-4")).await;
}
