use super::Town;
use crate::api_keys::NewKey;
use crate::setup::{Wishes, first_start};
use crate::workspaces::{self, Change, NewWorkspace};
use crate::{
    Denied, Error, Grant, Identity, Member, Role, ScopeSet, accounts, api_keys, clients,
    invitations, people, service_accounts, sessions,
};
use proptest::prelude::*;
use std::sync::Arc;
use store::identity::users;
use types::ids::UserId;
use types::models::KeyModels;
use types::wire::WorkspaceReason::{ForbiddenBlaxel, ForbiddenReserved, ForbiddenVPrefix, Taken};
use types::{Remote, Scope};

on_both!(
    the_first_start_happens_once,
    names_that_would_collide_are_refused,
    a_workspace_is_made_by_account_admins_only,
    the_last_admins_stay,
    members_administer_nothing,
    a_limited_token_makes_no_credential_that_may_do_more,
    an_invited_person_gets_in_by_accepting_only,
    a_claimed_address_is_nobodys,
    an_invitation_expires_and_can_be_renewed_or_declined,
    a_deleted_service_account_takes_its_keys_along,
    a_deleted_workspace_takes_everything_of_it_along,
    nothing_is_added_to_a_workspace_that_was_deleted_meanwhile,
    a_key_of_a_bad_duration_is_refused_by_name,
);

async fn the_first_start_happens_once(town: Town) {
    assert!(first_start(&town.store, &town.world, Wishes::default()).await.unwrap().is_none());
    let who = town.admin().await;
    assert!(who.administers(&town.first.account));
    assert_eq!(town.admin_member().await.role, Role::Admin);
    town.auth
        .sign_in(Remote::UNKNOWN, &town.first.email, town.first.password.clone(), None)
        .await
        .unwrap();
    let shown = format!("{:?}", town.first);
    assert!(!shown.contains(&town.first.api_key) && !shown.contains(&town.first.password));
}

async fn names_that_would_collide_are_refused(town: Town) {
    for (name, reason) in [
        ("main", Some(Taken)),
        ("oauth", Some(ForbiddenReserved)),
        ("mcp", Some(ForbiddenReserved)),
        ("my-blaxel", Some(ForbiddenBlaxel)),
        ("v0", Some(ForbiddenVPrefix)),
        ("v2beta", Some(ForbiddenVPrefix)),
        ("vega", None),
    ] {
        let found = town.store.read(move |tx| workspaces::refusal(tx, name)).await.unwrap();
        assert_eq!(found, reason, "{name}");
    }
    for name in ["", "Big", "under_score", "-x", "x-", "ünïcode", &"x".repeat(50)] {
        let name = name.to_owned();
        let found = town.store.read(move |tx| workspaces::refusal(tx, &name)).await;
        assert!(matches!(found, Err(Error::Invalid(_))));
    }
}

async fn a_workspace_is_made_by_account_admins_only(town: Town) {
    let bob = town.join("bob@holm.example", Role::Admin).await;
    let who = town.auth.identify(&bob).await.unwrap();
    let new = NewWorkspace { name: "bobs".into(), ..NewWorkspace::default() };
    let made = town.change(move |tx| workspaces::create(tx, &who, new.clone())).await;
    assert!(matches!(made, Err(Error::Denied(Denied::NoAccount))));
    let who = town.admin().await;
    let (account, made) = (town.first.account.clone(), who.clone());
    town.change(move |tx| accounts::add_admin(tx, &who, &account, "bob@holm.example"))
        .await
        .unwrap();
    let who = town.auth.identify(&bob).await.unwrap();
    let new = NewWorkspace { name: "bobs".into(), ..NewWorkspace::default() };
    town.change(move |tx| workspaces::create(tx, &who, new.clone())).await.unwrap();
    let taken = NewWorkspace { name: "bobs".into(), ..NewWorkspace::default() };
    let again = town.change(move |tx| workspaces::create(tx, &made, taken.clone())).await;
    assert!(matches!(again, Err(Error::Exists(_))));
}

async fn the_last_admins_stay(town: Town) {
    let me = town.admin_member().await;
    let (leaver, email, account) =
        (me.clone(), town.first.email.clone(), town.first.account.clone());
    assert!(matches!(
        town.change(move |tx| workspaces::leave(tx, &leaver)).await,
        Err(Error::LastAdmin)
    ));
    let (admin, address) = (me.clone(), email.clone());
    let lowered = town.change(move |tx| people::set_role(tx, &admin, &address, Role::Member)).await;
    assert!(matches!(lowered, Err(Error::LastAdmin)));
    let (admin, address) = (me.clone(), email.clone());
    assert!(matches!(
        town.change(move |tx| people::remove(tx, &admin, &address)).await,
        Err(Error::LastAdmin)
    ));
    let (who, user) = (me.who.clone(), UserId::known(me.who.subject.as_str()));
    let removed = town.change(move |tx| accounts::remove_admin(tx, &who, &account, &user)).await;
    assert!(matches!(removed, Err(Error::LastAccountAdmin)));
    town.join("bob@holm.example", Role::Admin).await;
    town.change(move |tx| workspaces::leave(tx, &me)).await.unwrap();
    assert!(matches!(town.auth.enter(&town.admin().await, None), Err(Denied::NoWorkspace)));
}

async fn members_administer_nothing(town: Town) {
    let key = town.join("bob@holm.example", Role::Member).await;
    let member = town.member(&key).await;
    let refused = town
        .store
        .read(move |tx| {
            let id = types::ids::ServiceAccountId::known("sva_x");
            Ok::<_, store::Error>([
                people::invite(tx, &member, "eve@holm.example", Role::Member).map(drop),
                people::set_role(tx, &member, "bob@holm.example", Role::Admin).map(drop),
                people::remove(tx, &member, "admin@holm.local"),
                service_accounts::create(tx, &member, "robot", "").map(drop),
                service_accounts::delete(tx, &member, &id).map(drop),
                api_keys::create_of_service_account(tx, &member, &id, Default::default()).map(drop),
                workspaces::update(tx, &member, Change::default()).map(drop),
                workspaces::delete(tx, &member).map(drop),
            ])
        })
        .await
        .unwrap();
    for result in refused {
        assert!(
            matches!(result, Err(Error::Denied(Denied::Role { needed: Role::Admin }))),
            "{result:?}"
        );
    }
    let who = town.auth.identify(&key).await.unwrap();
    let account = town.first.account.clone();
    let refused = town.store.read(move |tx| {
        Ok::<_, store::Error>([
            clients::list(tx, &who).map(drop),
            accounts::workspaces(tx, &who, &account).map(drop),
        ])
    });
    for result in refused.await.unwrap() {
        assert!(matches!(result, Err(Error::Denied(Denied::NotAccountAdmin))), "{result:?}");
    }
}

/// Tries each way to make a credential, with a token of an admin with these scopes.
async fn make_all(town: &Town, scopes: &str, new: NewKey) -> [Result<(), Error>; 3] {
    let admin = town.admin_member().await;
    let maker = admin.clone();
    let robot = town.change(move |tx| service_accounts::create(tx, &maker, "robot", "")).await;
    let robot = robot.unwrap().0.id;
    let grant = Grant::Token(ScopeSet::parse(scopes).unwrap());
    let who = Arc::new(Identity { grant, ..(*admin.who).clone() });
    let member = Member { who, ..admin };
    let made = town.change(move |tx| {
        Ok([
            api_keys::create(tx, &member.who, new.clone()).map(drop),
            api_keys::create_of_service_account(tx, &member, &robot, new.clone()).map(drop),
            service_accounts::create(tx, &member, "other", "").map(drop),
        ])
    });
    made.await.unwrap()
}

async fn a_limited_token_makes_no_credential_that_may_do_more(town: Town) {
    let limited = |made: &Result<(), Error>| {
        let Err(Error::Denied(denied)) = made else { return false };
        matches!(denied, Denied::LimitedToken) && denied.to_string().contains("`admin`")
    };
    let most = Scope::ALL.iter().copied().filter(|scope| *scope != Scope::Admin);
    let most = most.collect::<ScopeSet>().to_string();
    for scopes in ["apiKey:write workspaces:update", &most] {
        let made = make_all(&town, scopes, NewKey::default()).await;
        assert!(made.iter().all(limited), "{scopes}: {made:?}");
    }
    let made = make_all(&town, "admin", NewKey::default()).await;
    assert!(made.iter().all(Result::is_ok), "{made:?}");
    let for_models = NewKey { models: Some(KeyModels::default()), ..NewKey::default() };
    let made = make_all(&town, "apiKey:write", for_models.clone()).await;
    for made in &made[..2] {
        assert!(matches!(made, Err(Error::Denied(Denied::Scope { .. }))), "{made:?}");
    }
    let made = make_all(&town, "apiKey:write models:get", for_models).await;
    assert!(made[..2].iter().all(Result::is_ok) && limited(&made[2]), "{made:?}");
}

async fn an_invited_person_gets_in_by_accepting_only(town: Town) {
    let bob = town.join("bob@holm.example", Role::Member).await;
    let who = town.admin().await;
    let new = NewWorkspace { name: "second".into(), ..NewWorkspace::default() };
    town.change(move |tx| workspaces::create(tx, &who, new.clone())).await.unwrap();
    let second = town.auth.enter(&town.admin().await, Some("second")).unwrap();
    let inviter = second.clone();
    town.change(move |tx| people::invite(tx, &inviter, " Bob@Holm.example ", Role::Admin))
        .await
        .unwrap();
    let listed = town.store.read(move |tx| people::list(tx, &second)).await.unwrap();
    assert!(
        matches!(&listed[1], people::Person::Invited(invitation) if invitation.email == "bob@holm.example")
    );

    let who = town.auth.identify(&bob).await.unwrap();
    assert!(matches!(town.auth.enter(&who, Some("second")), Err(Denied::NotMember { .. })));
    let user = town.user("bob@holm.example").await.id;
    town.change(move |tx| Ok(users::prove_address(tx, &user)?)).await.unwrap();
    let reader = who.clone();
    let mine = town.store.read(move |tx| invitations::list(tx, &reader)).await.unwrap();
    assert_eq!(mine[0].workspace.name, "second");
    town.change(move |tx| invitations::accept(tx, &who, "second")).await.unwrap();
    assert!(
        matches!(town.auth.identify(&bob).await, Err(Denied::Unknown)),
        "the key was made before the proof"
    );
    let who = town.identity("bob@holm.example").await;
    assert_eq!(town.auth.enter(&who, Some("second")).unwrap().role, Role::Admin);
    let again = town.change(move |tx| invitations::accept(tx, &who, "second")).await;
    assert!(matches!(again, Err(Error::NotFound { .. })));
}

/// Whoever invites an address also has the link, and may have joined with it in the owner's place.
async fn a_claimed_address_is_nobodys(town: Town) {
    let squatter =
        town.auth.identify(&town.join("bob@holm.example", Role::Member).await).await.unwrap();
    let who = town.admin().await;
    let new = NewWorkspace { name: "second".into(), ..NewWorkspace::default() };
    town.change(move |tx| workspaces::create(tx, &who, new.clone())).await.unwrap();
    let second = town.auth.enter(&town.admin().await, Some("second")).unwrap();
    let invited = town
        .change(move |tx| people::invite(tx, &second, "bob@holm.example", Role::Admin))
        .await
        .unwrap();

    let who = squatter.clone();
    assert!(town.store.read(move |tx| invitations::list(tx, &who)).await.unwrap().is_empty());
    for name in ["second", "main", "nothing"] {
        let who = squatter.clone();
        let accepted = town.change(move |tx| invitations::accept(tx, &who, name)).await;
        assert!(
            matches!(accepted, Err(Error::Denied(Denied::AddressUnproven))),
            "{name}: {accepted:?}"
        );
        let who = squatter.clone();
        let declined = town.change(move |tx| invitations::decline(tx, &who, name)).await;
        assert!(
            matches!(declined, Err(Error::Denied(Denied::AddressUnproven))),
            "{name}: {declined:?}"
        );
    }
    // The link of the invitation proves the address for this invitation.
    town.change(move |tx| invitations::accept(tx, &squatter, invited.id.as_str())).await.unwrap();
    let bob = town.identity("bob@holm.example").await;
    assert_eq!(town.auth.enter(&bob, Some("second")).unwrap().role, Role::Admin);
}

async fn an_invitation_expires_and_can_be_renewed_or_declined(town: Town) {
    let admin = town.admin_member().await;
    let inviter = admin.clone();
    let first = town
        .change(move |tx| people::invite(tx, &inviter, "bob@holm.example", Role::Member))
        .await
        .unwrap();
    town.clock.advance_s(7 * 24 * 3600);
    let late = town
        .auth
        .join(Remote::UNKNOWN, &first.id, sessions::Joining::default(), "correct horse".into())
        .await;
    assert!(matches!(late, Err(Error::InvitationExpired)));
    let inviter = admin.clone();
    let renewed = town
        .change(move |tx| people::invite(tx, &inviter, "bob@holm.example", Role::Member))
        .await
        .unwrap();
    let gone = town
        .auth
        .join(Remote::UNKNOWN, &first.id, sessions::Joining::default(), "correct horse".into())
        .await;
    assert!(matches!(gone, Err(Error::NotFound { .. })));
    let weak = town
        .auth
        .join(Remote::UNKNOWN, &renewed.id, sessions::Joining::default(), "short".into())
        .await;
    assert!(matches!(weak, Err(Error::Invalid(_))));
    town.auth
        .join(Remote::UNKNOWN, &renewed.id, sessions::Joining::default(), "correct horse".into())
        .await
        .unwrap();
    let again =
        town.change(move |tx| people::invite(tx, &admin, "bob@holm.example", Role::Member)).await;
    assert!(matches!(again, Err(Error::Exists(_))));
}

async fn a_deleted_service_account_takes_its_keys_along(town: Town) {
    let admin = town.admin_member().await;
    let maker = admin.clone();
    let (account, _) =
        town.change(move |tx| service_accounts::create(tx, &maker, "robot", "x")).await.unwrap();
    let (maker, id) = (admin.clone(), account.id.clone());
    let made = town
        .change(move |tx| api_keys::create_of_service_account(tx, &maker, &id, Default::default()))
        .await;
    let value = made.unwrap().1;
    let robot = town.member(&value).await;
    assert_eq!((robot.who.name.as_str(), robot.workspace_name.as_str()), ("robot", "main"));
    assert!(matches!(robot.who.person(), Err(Denied::NotPerson)));
    town.change(move |tx| service_accounts::delete(tx, &admin, &account.id)).await.unwrap();
    assert!(matches!(town.auth.identify(&value).await, Err(Denied::Unknown)));
}

async fn a_deleted_workspace_takes_everything_of_it_along(town: Town) {
    let bob = town.join("bob@holm.example", Role::Member).await;
    let admin = town.admin_member().await;
    let maker = admin.clone();
    let key = town.change(move |tx| {
        let (account, _) = service_accounts::create(tx, &maker, "robot", "")?;
        api_keys::create_of_service_account(tx, &maker, &account.id, Default::default())
    });
    let key = key.await.unwrap().1;
    town.change(move |tx| workspaces::delete(tx, &admin)).await.unwrap();
    assert!(matches!(town.auth.identify(&key).await, Err(Denied::Unknown)));
    let who = town.auth.identify(&bob).await.unwrap();
    assert!(matches!(town.auth.enter(&who, Some("main")), Err(Denied::NotMember { .. })));
}

/// The caller was let in, and then somebody else was faster.
async fn nothing_is_added_to_a_workspace_that_was_deleted_meanwhile(town: Town) {
    town.join("bob@holm.example", Role::Member).await;
    let bob = town.user("bob@holm.example").await.id;
    let (admin, maker) = (town.admin_member().await, town.admin_member().await);
    let (account, invited) = town
        .change(move |tx| {
            let invited = people::invite(tx, &maker, "eve@holm.example", Role::Member)?;
            Ok((service_accounts::create(tx, &maker, "robot", "")?.0.id, invited))
        })
        .await
        .unwrap();
    let gone = admin.clone();
    town.change(move |tx| workspaces::delete(tx, &gone)).await.unwrap();
    let (me, id) = (admin.clone(), account.clone());
    let key = town.change(move |tx| {
        api_keys::create_of_service_account(tx, &me, &id, NewKey::default()).map(drop)
    });
    let me = admin.clone();
    let robot = town.change(move |tx| service_accounts::create(tx, &me, "late", "").map(drop));
    let invitation = town
        .change(move |tx| people::invite(tx, &admin, "kim@holm.example", Role::Member).map(drop));
    for refused in [key.await, robot.await, invitation.await] {
        assert!(matches!(refused, Err(Error::Denied(Denied::NotMember { .. }))), "{refused:?}");
    }
    let accepted = town.change(move |tx| invitations::accept_for(tx, &bob, &invited)).await;
    assert!(matches!(accepted, Err(Error::NotFound { .. })), "{accepted:?}");
}

async fn a_key_of_a_bad_duration_is_refused_by_name(town: Town) {
    for expires_in in ["0d", "-1d", "11000d", "soon", "1y"] {
        let who = town.admin().await;
        let new = api_keys::NewKey {
            name: String::new(),
            expires_in: Some(expires_in.into()),
            models: None,
        };
        let made = town.change(move |tx| api_keys::create(tx, &who, new.clone())).await;
        assert!(
            matches!(made, Err(Error::Invalid(problems)) if problems.to_string().contains("expires_in")),
            "{expires_in}"
        );
    }
}

proptest! {
    #[test]
    fn any_address_is_taken_or_refused(email in "[a-z.+]{0,5}@?[a-z.-]{0,8}|.{0,30}") {
        if let Ok(normal) = people::check_email(&email) {
            prop_assert_eq!(people::check_email(&normal).unwrap(), normal);
        }
    }
}
