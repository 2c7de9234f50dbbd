use super::Town;
use crate::registry_tokens::{Access, Action, LIFE_S};
use crate::{Denied, Ticket, api_keys};
use types::{Scope, Verb};

on_both!(
    neither_kind_of_token_is_taken_for_the_other,
    a_token_ends_with_its_time_and_what_it_opened_with_its_key,
);

const SCOPES: &[Scope] = &[Scope::Images(Verb::Get)];

async fn access(town: &Town) -> Vec<Access> {
    let workspace = town.admin_member().await.workspace;
    vec![Access::Repository {
        name: "main/job/a".into(),
        workspace,
        actions: vec![Action::Pull, Action::Push],
    }]
}

async fn neither_kind_of_token_is_taken_for_the_other(town: Town) {
    let key = town.first.api_key.clone();
    let who = town.auth.identify(&key).await.unwrap();
    let wanted = access(&town).await;
    let issued = town.auth.registry_token(&who, &key, wanted.clone()).await.unwrap();
    assert!(matches!(town.auth.identify(&issued.token).await, Err(Denied::Unknown)));
    let bearer = town.auth.identify_registry(&issued.token).await.unwrap().unwrap();
    assert_eq!((&bearer.access, &bearer.identity.subject), (&wanted, &who.subject));
    assert!(town.auth.identify_registry(&key).await.unwrap().is_none());
    // A token that was changed, or signed for another use, is refused.
    let (rest, signature) = issued.token.rsplit_once('.').unwrap();
    let other = if signature.starts_with('A') { "B" } else { "A" };
    let forged = format!("{rest}.{other}{}", &signature[1..]);
    let forged = town.auth.identify_registry(&forged).await;
    assert!(matches!(forged, Err(Denied::Unknown)));
}

async fn a_token_ends_with_its_time_and_what_it_opened_with_its_key(town: Town) {
    let admin = town.admin().await;
    let (owner, new) = (
        admin.clone(),
        api_keys::NewKey { name: "ci".into(), expires_in: Some("1h".into()), models: None },
    );
    let (key, value) =
        town.change(move |tx| api_keys::create(tx, &owner, new.clone())).await.unwrap();
    let who = town.auth.identify(&value).await.unwrap();
    let issued = town.auth.registry_token(&who, &value, access(&town).await).await.unwrap();
    let bearer = town.auth.identify_registry(&issued.token).await.unwrap().unwrap();
    let member = town.auth.enter(&bearer.identity, None).unwrap();
    let ticket = Ticket::of_registry(&bearer.bond, &member, SCOPES);
    town.clock.advance_s(LIFE_S + 1);
    assert!(matches!(town.auth.identify_registry(&issued.token).await, Err(Denied::Expired)));
    town.auth.still_admits(&ticket).await.unwrap();
    town.change(move |tx| api_keys::delete(tx, &admin, &key.id)).await.unwrap();
    assert!(matches!(town.auth.still_admits(&ticket).await, Err(Denied::Unknown)));
}
