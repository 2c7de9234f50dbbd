//! Devices that wait while their user signs in elsewhere.

use super::Town;
use super::oauth::{form, refused};
use crate::oauth::{Code, DeviceError, Fault, Tokens};
use crate::{Auth, Limits, Throttled};
use types::Remote;

on_both!(
    a_device_waits_for_its_user_and_gets_tokens_once,
    a_steady_device_is_never_told_to_slow_down,
    a_device_learns_of_refusal_and_expiry,
    guessing_user_codes_is_throttled,
    a_right_user_code_forgives_no_wrong_ones,
    a_stranger_who_takes_all_device_codes_blocks_nobody,
    when_all_device_codes_are_taken_the_oldest_makes_room,
);

async fn poll(town: &Town, code: &str) -> Result<Tokens, Fault> {
    let kind = "urn:ietf:params:oauth:grant-type:device_code";
    town.auth
        .token(form(&[("grant_type", kind), ("client_id", "blaxel"), ("device_code", code)]), None)
        .await
}

async fn a_device_waits_for_its_user_and_gets_tokens_once(town: Town) {
    let user = town.user(&town.first.email).await;
    let device = town
        .auth
        .begin_device(
            Remote::UNKNOWN,
            form(&[("client_id", "blaxel"), ("scope", "offline_access")]),
            None,
        )
        .await
        .unwrap();
    assert_eq!(
        device.verification_uri_complete,
        format!("https://holm.example/oauth/device?user_code={}", device.user_code)
    );
    refused(poll(&town, &device.device_code).await, Code::AuthorizationPending);
    refused(poll(&town, &device.device_code).await, Code::SlowDown);
    town.clock.advance_s(8);
    refused(poll(&town, &device.device_code).await, Code::AuthorizationPending);
    let typed = device.user_code.to_lowercase().replace('-', " ");
    assert_eq!(town.auth.device(&user, &typed).await.unwrap().user_code, device.user_code);
    town.auth.decide_device(&user, &typed, true).await.unwrap();
    let tokens = poll(&town, &device.device_code).await.unwrap();
    assert_eq!(town.auth.identify(&tokens.access_token).await.unwrap().name, town.first.email);
    // Refreshes like the published clients: with the old device code, and with or without a client
    // id.
    let tokens =
        town.refresh(&tokens.refresh_token, &[("device_code", &device.device_code)]).await.unwrap();
    town.refresh(&tokens.refresh_token, &[("client_id", "blaxel")]).await.unwrap();
    refused(poll(&town, &device.device_code).await, Code::InvalidGrant);
    assert!(matches!(
        town.auth.decide_device(&user, &typed, true).await,
        Err(DeviceError::Unknown)
    ));
}

async fn a_steady_device_is_never_told_to_slow_down(town: Town) {
    let device = town
        .auth
        .begin_device(Remote::UNKNOWN, form(&[("client_id", "blaxel")]), None)
        .await
        .unwrap();
    for _ in 0..60 {
        refused(poll(&town, &device.device_code).await, Code::AuthorizationPending);
        town.clock.advance_s(device.interval);
    }
}

async fn a_device_learns_of_refusal_and_expiry(town: Town) {
    let user = town.user(&town.first.email).await;
    let device = town
        .auth
        .begin_device(Remote::UNKNOWN, form(&[("client_id", "holm")]), None)
        .await
        .unwrap();
    refused(poll(&town, &device.device_code).await, Code::InvalidGrant);
    let device = town
        .auth
        .begin_device(Remote::UNKNOWN, form(&[("client_id", "blaxel")]), None)
        .await
        .unwrap();
    town.auth.decide_device(&user, &device.user_code, false).await.unwrap();
    refused(poll(&town, &device.device_code).await, Code::AccessDenied);
    let device = town
        .auth
        .begin_device(Remote::UNKNOWN, form(&[("client_id", "blaxel")]), None)
        .await
        .unwrap();
    town.clock.advance_s(device.expires_in);
    refused(poll(&town, &device.device_code).await, Code::ExpiredToken);
    assert!(matches!(town.auth.device(&user, &device.user_code).await, Err(DeviceError::Unknown)));
    town.auth.maintain().await.unwrap();
    refused(poll(&town, &device.device_code).await, Code::InvalidGrant);
}

async fn guessing_user_codes_is_throttled(town: Town) {
    let user = town.user(&town.first.email).await;
    for _ in 0..10 {
        assert!(matches!(town.auth.device(&user, "BBBB-BBBB").await, Err(DeviceError::Unknown)));
    }
    assert!(matches!(town.auth.device(&user, "BBBB-BBBB").await, Err(DeviceError::Throttled(_))));
}

async fn a_right_user_code_forgives_no_wrong_ones(town: Town) {
    let user = town.user(&town.first.email).await;
    let device =
        town.auth.begin_device(Remote::UNKNOWN, form(&[("client_id", "holm")]), None).await;
    let right = device.unwrap().user_code;
    for _ in 0..10 {
        town.auth.device(&user, &right).await.unwrap();
        assert!(matches!(town.auth.device(&user, "BBBB-BBBB").await, Err(DeviceError::Unknown)));
    }
    for code in ["BBBB-BBBB", &right] {
        assert!(matches!(town.auth.device(&user, code).await, Err(DeviceError::Throttled(_))));
    }
    town.clock.advance_s(15 * 60);
    assert!(matches!(town.auth.device(&user, &right).await, Err(DeviceError::Unknown)), "expired");
}

fn client(last: u8) -> Remote {
    Remote::of([192, 0, 2, last].into())
}

async fn a_stranger_who_takes_all_device_codes_blocks_nobody(town: Town) {
    let limits = Limits { client_devices_max: 3, ..Limits::default() };
    let auth = Auth::for_test_with(&town.store, &town.world, limits).await;
    let ask = |from| auth.begin_device(from, form(&[("client_id", "blaxel")]), None);
    for _ in 0..3 {
        ask(client(1)).await.unwrap();
    }
    assert!(matches!(ask(client(1)).await, Err(Fault::Throttled(Throttled { wait_s: 600 }))));
    ask(client(2)).await.unwrap();
    town.clock.advance_s(600);
    ask(client(1)).await.unwrap();
}

async fn when_all_device_codes_are_taken_the_oldest_makes_room(town: Town) {
    let user = town.user(&town.first.email).await;
    let auth = Auth::for_test_with(
        &town.store,
        &town.world,
        Limits { devices_max: 3, ..Limits::default() },
    )
    .await;
    let mut devices = Vec::new();
    for number in 0..4 {
        devices.push(
            auth.begin_device(client(number), form(&[("client_id", "blaxel")]), None)
                .await
                .unwrap(),
        );
        town.clock.advance_s(1);
    }
    assert!(matches!(auth.device(&user, &devices[0].user_code).await, Err(DeviceError::Unknown)));
    for device in &devices[1..] {
        auth.device(&user, &device.user_code).await.unwrap();
    }
    // Approved codes are not the first to be dropped.
    auth.decide_device(&user, &devices[1].user_code, true).await.unwrap();
    auth.begin_device(client(9), form(&[("client_id", "blaxel")]), None).await.unwrap();
    poll(&town, &devices[1].device_code).await.unwrap();
}
