use super::Town;
use crate::passwords::WAITING;
use crate::sessions::{Joining, LIFE_S, SignInError};
use crate::{Auth, Error, Limits, Role, invitations, known_browser, people};
use std::task::{Context, Waker};
use store::identity::users::{Address, User};
use types::Remote;
use types::ids::{InvitationId, UserId};

on_both!(
    a_session_lasts_until_its_end_or_sign_out,
    guessing_a_password_is_throttled_and_known_and_unknown_addresses_look_alike,
    who_guesses_for_many_addresses_is_stopped_and_nobody_else,
    a_browser_that_signed_in_before_is_not_locked_out_by_strangers,
    an_unknown_invitation_costs_neither_a_hash_nor_a_place,
    who_guesses_invitations_is_stopped_and_nobody_else,
    a_new_password_ends_sessions,
    an_invitation_that_is_accepted_twice_at_once_makes_one_account,
);

/// Returns the secret of the session.
async fn sign_in(town: &Town, email: &str, password: String) -> String {
    town.auth.sign_in(Remote::UNKNOWN, email, password, None).await.unwrap().session
}

async fn a_session_lasts_until_its_end_or_sign_out(town: Town) {
    let (email, password) = (town.first.email.clone(), town.first.password.clone());
    let session = sign_in(&town, &email.to_uppercase(), password.clone()).await;
    assert_eq!(town.auth.session(&session).await.unwrap().unwrap().email, email);
    town.auth.sign_out(&session).await.unwrap();
    assert!(town.auth.session(&session).await.unwrap().is_none());
    let session = sign_in(&town, &email, password).await;
    town.clock.advance_s(LIFE_S);
    assert!(town.auth.session(&session).await.unwrap().is_none());
}

async fn guessing_a_password_is_throttled_and_known_and_unknown_addresses_look_alike(town: Town) {
    for email in [town.first.email.as_str(), "nobody@holm.example"] {
        for _ in 0..10 {
            assert!(matches!(
                town.auth.sign_in(Remote::UNKNOWN, email, "guess".into(), None).await,
                Err(SignInError::Wrong)
            ));
        }
        assert!(matches!(
            town.auth.sign_in(Remote::UNKNOWN, email, "guess".into(), None).await,
            Err(SignInError::Throttled(_))
        ));
    }
    let (email, password) = (&town.first.email, &town.first.password);
    let right = || town.auth.sign_in(Remote::UNKNOWN, email, password.clone(), None);
    assert!(matches!(right().await, Err(SignInError::Throttled(_))));
    town.clock.advance_s(15 * 60);
    right().await.unwrap();
}

async fn who_guesses_for_many_addresses_is_stopped_and_nobody_else(town: Town) {
    let limits = Limits { client_guesses_max: 3, ..Limits::default() };
    let auth = Auth::for_test_with(&town.store, &town.world, limits).await;
    let client = |last: u8| Remote::of([192, 0, 2, last].into());
    for number in 0..3 {
        let wrong =
            auth.sign_in(client(1), &format!("{number}@holm.example"), "guess".into(), None).await;
        assert!(matches!(wrong, Err(SignInError::Wrong)));
    }
    let right = |from| auth.sign_in(from, &town.first.email, town.first.password.clone(), None);
    assert!(matches!(right(client(1)).await, Err(SignInError::Throttled(_))));
    // Correct passwords are not counted, so that a proxy in front of many people is not stopped.
    for _ in 0..5 {
        right(client(2)).await.unwrap();
    }
}

async fn a_browser_that_signed_in_before_is_not_locked_out_by_strangers(town: Town) {
    let (email, password) = (town.first.email.as_str(), town.first.password.as_str());
    let attempt = async |email: &str, password: &str, known: Option<&str>| {
        town.auth.sign_in(Remote::UNKNOWN, email, password.to_owned(), known).await
    };
    let known = attempt(email, password, None).await.unwrap().known;
    for _ in 0..10 {
        assert!(matches!(attempt(email, "guess", None).await, Err(SignInError::Wrong)));
    }
    let made_up = known.to_uppercase();
    for stranger in [None, Some(""), Some("browser 1"), Some(made_up.as_str())] {
        let refused = attempt(email, password, stranger).await;
        assert!(matches!(refused, Err(SignInError::Throttled(_))));
    }
    // It is known for one account, and guesses from it are limited too.
    let other = "nobody@holm.example";
    for number in 0..11 {
        let refused = attempt(other, "guess", Some(&known)).await;
        assert_eq!(matches!(refused, Err(SignInError::Throttled(_))), number == 10);
    }
    attempt(email, password, Some(&known)).await.unwrap();
    for number in 0..11 {
        let refused = attempt(email, "guess", Some(&known)).await;
        assert_eq!(matches!(refused, Err(SignInError::Throttled(_))), number == 10);
    }
    town.clock.advance_s(known_browser::LIFE_S);
    for number in 0..11 {
        let refused = attempt(email, "guess", Some(&known)).await;
        assert_eq!(matches!(refused, Err(SignInError::Throttled(_))), number == 10);
    }
    assert!(town.auth.sign_ins().watches(email));
}

async fn an_unknown_invitation_costs_neither_a_hash_nor_a_place(town: Town) {
    let (client, other) = (Remote::of([192, 0, 2, 1].into()), Remote::of([192, 0, 2, 2].into()));
    let invited = invite(&town, "bob@holm.example").await;
    let join = |from, id: InvitationId| {
        let auth = town.auth.clone();
        async move { auth.join(from, &id, Joining::default(), "correct horse".into()).await }
    };
    // As long as these are not dropped, the client has its share of those who wait for a hash.
    let waiting: Vec<_> = (0..WAITING.share)
        .map(|_| {
            let waits = town.auth.passwords().matches(client, "guess".into(), None);
            let mut waits = Box::pin(waits);
            assert!(waits.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
            waits
        })
        .collect();
    let unknown = InvitationId::known("inv_nobody");
    assert!(matches!(join(client, unknown.clone()).await, Err(Error::NotFound { .. })));
    assert!(!town.auth.sign_ins().watches(unknown.as_str()));
    for _ in 0..20 {
        assert!(matches!(join(client, invited.clone()).await, Err(Error::Crowded(_))));
    }
    drop(waiting);
    join(other, invited).await.unwrap();
}

async fn who_guesses_invitations_is_stopped_and_nobody_else(town: Town) {
    let limits = Limits { client_guesses_max: 3, ..Limits::default() };
    let auth = Auth::for_test_with(&town.store, &town.world, limits).await;
    let (client, other) = (Remote::of([192, 0, 2, 1].into()), Remote::of([192, 0, 2, 2].into()));
    let invited = invite(&town, "bob@holm.example").await;
    let join = |from, id: InvitationId| {
        let auth = auth.clone();
        async move { auth.join(from, &id, Joining::default(), "correct horse".into()).await }
    };
    for number in 0..3 {
        let wrong = join(client, InvitationId::known(format!("inv_{number}"))).await;
        assert!(matches!(wrong, Err(Error::NotFound { .. })));
    }
    assert!(matches!(join(client, invited.clone()).await, Err(Error::Crowded(_))));
    join(other, invited).await.unwrap();
}

async fn an_invitation_that_is_accepted_twice_at_once_makes_one_account(town: Town) {
    // Often enough for both to look before either has written.
    for number in 0..10 {
        let id = invite(&town, &format!("bob{number}@holm.example")).await;
        let join = || {
            let user = User {
                id: UserId::new(&town.world),
                email: String::new(),
                given_name: String::new(),
                family_name: String::new(),
                address: Address::Claimed,
                created_at: town.world.now(),
            };
            let id = id.clone();
            town.change(move |tx| invitations::join(tx, &id, &user, "a hash"))
        };
        let both = tokio::join!(join(), join());
        let ((Ok(_), lost) | (lost, Ok(_))) = both else { panic!("{both:?}") };
        assert!(matches!(lost, Err(Error::Exists(_) | Error::NotFound { .. })), "{lost:?}");
    }
}

async fn invite(town: &Town, email: &str) -> InvitationId {
    let (member, email) = (town.admin_member().await, email.to_owned());
    let invitation = town.change(move |tx| people::invite(tx, &member, &email, Role::Member)).await;
    invitation.unwrap().id
}

async fn a_new_password_ends_sessions(town: Town) {
    let (email, password) = (&town.first.email, &town.first.password);
    let session = sign_in(&town, email, password.clone()).await;
    town.auth
        .set_password(&town.first.email, "a much better one".into(), "operator")
        .await
        .unwrap();
    assert!(town.auth.session(&session).await.unwrap().is_none());
    let old = town.auth.sign_in(Remote::UNKNOWN, email, password.clone(), None).await;
    assert!(matches!(old, Err(SignInError::Wrong)));
    sign_in(&town, email, "a much better one".into()).await;
    assert!(town.auth.set_password(&town.first.email, "short".into(), "operator").await.is_err());
}
