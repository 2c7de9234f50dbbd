use super::Town;
use crate::sessions::{LIFE_S, SignInError};
use crate::{Auth, Limits};
use types::Remote;

on_both!(
    a_session_lasts_until_its_end_or_sign_out,
    guessing_a_password_is_throttled_and_known_and_unknown_addresses_look_alike,
    who_guesses_for_many_addresses_is_stopped_and_nobody_else,
    a_new_password_ends_sessions,
);

async fn a_session_lasts_until_its_end_or_sign_out(town: Town) {
    let (email, password) = (town.first.email.clone(), town.first.password.clone());
    let session =
        town.auth.sign_in(Remote::UNKNOWN, &email.to_uppercase(), password.clone()).await.unwrap();
    assert_eq!(town.auth.session(&session).await.unwrap().unwrap().email, email);
    town.auth.sign_out(&session).await.unwrap();
    assert!(town.auth.session(&session).await.unwrap().is_none());
    let session = town.auth.sign_in(Remote::UNKNOWN, &email, password).await.unwrap();
    town.clock.advance_s(LIFE_S);
    assert!(town.auth.session(&session).await.unwrap().is_none());
}

async fn guessing_a_password_is_throttled_and_known_and_unknown_addresses_look_alike(town: Town) {
    for email in [town.first.email.as_str(), "nobody@holm.example"] {
        for _ in 0..10 {
            assert!(matches!(
                town.auth.sign_in(Remote::UNKNOWN, email, "guess".into()).await,
                Err(SignInError::Wrong)
            ));
        }
        assert!(matches!(
            town.auth.sign_in(Remote::UNKNOWN, email, "guess".into()).await,
            Err(SignInError::Throttled(_))
        ));
    }
    let right =
        || town.auth.sign_in(Remote::UNKNOWN, &town.first.email, town.first.password.clone());
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
            auth.sign_in(client(1), &format!("{number}@holm.example"), "guess".into()).await;
        assert!(matches!(wrong, Err(SignInError::Wrong)));
    }
    let right = |from| auth.sign_in(from, &town.first.email, town.first.password.clone());
    assert!(matches!(right(client(1)).await, Err(SignInError::Throttled(_))));
    // Correct passwords are not counted, so that a proxy in front of many people is not stopped.
    for _ in 0..5 {
        right(client(2)).await.unwrap();
    }
}

async fn a_new_password_ends_sessions(town: Town) {
    let session = town
        .auth
        .sign_in(Remote::UNKNOWN, &town.first.email, town.first.password.clone())
        .await
        .unwrap();
    town.auth
        .set_password(&town.first.email, "a much better one".into(), "operator")
        .await
        .unwrap();
    assert!(town.auth.session(&session).await.unwrap().is_none());
    let old =
        town.auth.sign_in(Remote::UNKNOWN, &town.first.email, town.first.password.clone()).await;
    assert!(matches!(old, Err(SignInError::Wrong)));
    town.auth
        .sign_in(Remote::UNKNOWN, &town.first.email, "a much better one".into())
        .await
        .unwrap();
    assert!(town.auth.set_password(&town.first.email, "short".into(), "operator").await.is_err());
}
