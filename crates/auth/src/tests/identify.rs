use super::Town;
use crate::jwt::ACCESS_LIFE_S;
use crate::oauth::Params;
use crate::{
    Auth, Blame, Denied, Limits, Role, Settings, Ticket, api_keys, people, service_accounts,
};
use std::time::Duration;
use types::ids::ServiceAccountId;
use types::{Scope, Verb};

/// How long a change may take to reach other servers. On PostgreSQL the feed waits for older
/// transactions, also for those of other tests on the same database server.
const PATIENCE: Duration = Duration::from_secs(60);

on_both!(
    a_revoked_key_stops_at_once,
    a_revoked_key_stops_on_other_servers_too,
    what_was_opened_with_a_key_ends_with_it_on_every_server,
    a_ticket_is_for_one_workspace_and_one_right,
    a_key_expires_when_it_was_told_to,
    what_is_no_credential_is_unknown,
    a_new_role_counts_at_once,
    a_token_may_do_what_its_scopes_and_its_role_allow,
    a_token_ends_with_its_time_its_account_and_at_other_issuers,
    tokens_outlive_the_rotation_of_the_key_that_signed_them,
    a_signing_key_is_replaced_when_it_is_old,
    servers_that_replace_a_signing_key_at_once_make_one,
    the_workspace_is_the_named_one_or_the_only_one,
);

async fn token(town: &Town, scope: &str) -> String {
    let member = town.admin_member().await;
    let (account, secret) =
        town.change(move |tx| service_accounts::create(tx, &member, "robot", "")).await.unwrap();
    let body = format!(
        "grant_type=client_credentials&client_id={}&client_secret={secret}&scope={scope}",
        account.id
    );
    town.auth.token(Params::from_form(body.as_bytes()).unwrap(), None).await.unwrap().access_token
}

async fn a_revoked_key_stops_at_once(town: Town) {
    let admin = town.admin().await;
    let who = admin.clone();
    let new = api_keys::NewKey { name: "laptop".into(), expires_in: None, models: None };
    let (key, value) =
        town.change(move |tx| api_keys::create(tx, &who, new.clone())).await.unwrap();
    assert_eq!(town.auth.identify(&value).await.unwrap().key, Some(key.id.clone()));
    town.change(move |tx| api_keys::delete(tx, &admin, &key.id)).await.unwrap();
    assert!(matches!(town.auth.identify(&value).await, Err(Denied::Unknown)));
}

async fn a_revoked_key_stops_on_other_servers_too(town: Town) {
    let other = Auth::for_test(&town.store, &town.world).await;
    let who = other.identify(&town.first.api_key).await.unwrap();
    let key = who.key.clone().unwrap();
    town.change(move |tx| api_keys::delete(tx, &who, &key)).await.unwrap();
    let forgotten = async {
        while other.identify(&town.first.api_key).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(PATIENCE, forgotten).await.unwrap();
}

async fn what_was_opened_with_a_key_ends_with_it_on_every_server(town: Town) {
    let other = Auth::for_test(&town.store, &town.world).await;
    let key = town.join("bob@holm.example", Role::Member).await;
    let kept = Ticket::new(&town.first.api_key, &town.admin_member().await, &[]);
    let ticket = Ticket::new(&key, &town.member(&key).await, &[]);
    let ends = async { tokio::join!(town.auth.outlived(&ticket), other.outlived(&ticket)) };
    let who = town.auth.identify(&key).await.unwrap();
    let revoke = async {
        let id = who.key.clone().unwrap();
        let who = who.clone();
        town.change(move |tx| api_keys::delete(tx, &who, &id)).await.unwrap();
    };
    let (ends, ()) =
        tokio::time::timeout(PATIENCE, async { tokio::join!(ends, revoke) }).await.unwrap();
    assert!(matches!(ends, (Denied::Unknown, Denied::Unknown)), "{ends:?}");
    town.auth.still_admits(&kept).await.unwrap();
}

async fn a_ticket_is_for_one_workspace_and_one_right(town: Town) {
    let key = town.join("bob@holm.example", Role::Admin).await;
    let ticket = Ticket::new(&key, &town.member(&key).await, &[Scope::Policies(Verb::Create)]);
    town.auth.still_admits(&ticket).await.unwrap();
    let admin = town.admin_member().await;
    town.change(move |tx| people::set_role(tx, &admin, "bob@holm.example", Role::Member))
        .await
        .unwrap();
    assert!(matches!(town.auth.still_admits(&ticket).await, Err(Denied::Role { .. })));
    let admin = town.admin_member().await;
    town.change(move |tx| people::remove(tx, &admin, "bob@holm.example")).await.unwrap();
    assert!(matches!(town.auth.still_admits(&ticket).await, Err(Denied::NotMember { .. })));
    assert!(!format!("{ticket:?}").contains(&key));
}

async fn a_key_expires_when_it_was_told_to(town: Town) {
    let who = town.admin().await;
    let new = api_keys::NewKey { name: String::new(), expires_in: Some("1h".into()), models: None };
    let (_, value) = town.change(move |tx| api_keys::create(tx, &who, new.clone())).await.unwrap();
    town.clock.advance_s(3599);
    town.auth.identify(&value).await.unwrap();
    town.clock.advance_s(1);
    assert!(matches!(town.auth.identify(&value).await, Err(Denied::Expired)));
    assert!(matches!(town.auth.identify(&value).await.unwrap_err().blame(), Blame::Credentials));
}

async fn what_is_no_credential_is_unknown(town: Town) {
    let long = "x".repeat(100_000);
    for text in ["", "hk_", "hk_abc", "a.b.c", "Bearer x", "eyJhbGciOiJub25lIn0.e30.", &long] {
        assert!(matches!(town.auth.identify(text).await, Err(Denied::Unknown)), "{text:.40}");
    }
}

async fn a_new_role_counts_at_once(town: Town) {
    let key = town.join("bob@holm.example", Role::Member).await;
    let needs = [Scope::Policies(Verb::Create)];
    assert!(matches!(
        town.member(&key).await.may(&needs),
        Err(Denied::Role { needed: Role::Admin })
    ));
    let admin = town.admin_member().await;
    town.change(move |tx| people::set_role(tx, &admin, "bob@holm.example", Role::Admin))
        .await
        .unwrap();
    town.member(&key).await.may(&needs).unwrap();
}

async fn a_token_may_do_what_its_scopes_and_its_role_allow(town: Town) {
    let narrow = town.member(&token(&town, "jobs:get").await).await;
    narrow.may(&[Scope::Jobs(Verb::Get)]).unwrap();
    assert!(matches!(
        narrow.may(&[Scope::Jobs(Verb::Get), Scope::Jobs(Verb::Update)]),
        Err(Denied::Scope { needed: Scope::Jobs(Verb::Update) })
    ));
    // The scope `admin` satisfies all others, but the service account's role is still `member`.
    let wide = town.member(&token(&town, "admin").await).await;
    wide.may(&[Scope::Jobs(Verb::Update)]).unwrap();
    assert!(matches!(wide.may(&[Scope::Policies(Verb::Create)]), Err(Denied::Role { .. })));
}

async fn a_token_ends_with_its_time_its_account_and_at_other_issuers(town: Town) {
    let access = token(&town, "").await;
    let who = town.auth.identify(&access).await.unwrap();
    let settings = Settings {
        issuer: "https://other.example".into(),
        feed_poll: Duration::from_secs(1),
        outside: None,
        limits: Limits::default(),
    };
    let other = Auth::new(town.store.clone(), settings, town.world.clone()).await.unwrap();
    assert!(matches!(other.identify(&access).await, Err(Denied::Unknown)));
    let (admin, id) = (town.admin_member().await, ServiceAccountId::known(who.subject.as_str()));
    let second = token(&town, "").await;
    town.change(move |tx| service_accounts::delete(tx, &admin, &id)).await.unwrap();
    assert!(matches!(town.auth.identify(&access).await, Err(Denied::Unknown)));
    town.auth.identify(&second).await.unwrap();
    town.clock.advance_s(ACCESS_LIFE_S);
    assert!(matches!(town.auth.identify(&second).await, Err(Denied::Expired)));
}

async fn tokens_outlive_the_rotation_of_the_key_that_signed_them(town: Town) {
    let other = Auth::for_test(&town.store, &town.world).await;
    let before = token(&town, "").await;
    town.auth.rotate_signing_key().await.unwrap();
    let after = token(&town, "").await;
    assert_ne!(before.split('.').next(), after.split('.').next());
    assert_eq!(town.auth.jwks()["keys"].as_array().unwrap().len(), 2);
    for token in [&before, &after] {
        town.auth.identify(token).await.unwrap();
        other.identify(token).await.unwrap();
    }
    town.clock.advance_s(ACCESS_LIFE_S + 3601);
    town.auth.maintain().await.unwrap();
    assert_eq!(town.auth.jwks()["keys"].as_array().unwrap().len(), 1);
}

async fn a_signing_key_is_replaced_when_it_is_old(town: Town) {
    let before = town.auth.jwks();
    town.auth.maintain().await.unwrap();
    assert_eq!(town.auth.jwks(), before);
    town.clock.advance_s(91 * 24 * 3600);
    town.auth.maintain().await.unwrap();
    assert_eq!(town.auth.jwks()["keys"].as_array().unwrap().len(), 2);
}

async fn the_workspace_is_the_named_one_or_the_only_one(town: Town) {
    let who = town.admin().await;
    assert_eq!(town.auth.enter(&who, None).unwrap().workspace_name, "main");
    assert!(matches!(town.auth.enter(&who, Some("elsewhere")), Err(Denied::NotMember { .. })));
    let new = crate::workspaces::NewWorkspace { name: "second".into(), ..Default::default() };
    // Workspaces are listed in the order of their creation.
    town.clock.advance_s(1);
    town.change(move |tx| crate::workspaces::create(tx, &who, new.clone())).await.unwrap();
    let who = town.admin().await;
    assert!(
        matches!(town.auth.enter(&who, None), Err(Denied::ManyWorkspaces { names }) if names == ["main", "second"])
    );
    assert_eq!(town.auth.enter(&who, Some("second")).unwrap().role, Role::Admin);
}

async fn servers_that_replace_a_signing_key_at_once_make_one(town: Town) {
    town.clock.advance_s(91 * 24 * 3600);
    let all = (0..8).map(|_| {
        let auth = town.auth.clone();
        tokio::spawn(async move { auth.maintain().await })
    });
    for done in all.collect::<Vec<_>>() {
        done.await.unwrap().unwrap();
    }
    let keys = town.store.read(store::identity::signing_keys::list).await.unwrap();
    assert_eq!(keys.iter().filter(|key| key.retires_at.is_none()).count(), 1);
    assert_eq!(keys.len(), 2, "the new one and the old one");
}
