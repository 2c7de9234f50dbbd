use super::*;
use proptest::prelude::*;
use types::Timestamp;

fn world(at: i64) -> World {
    World::new(move || Timestamp::from_ms(at), |bytes| bytes.fill(200))
}

fn held(whole: u8, base: u8, by_server: bool) -> Grant {
    Grant { whole: [whole; 32], base: [base; 32], by_server }
}

fn token(seconds: u64) -> AccessToken {
    let value = Sensitive("t".to_owned());
    AccessToken { value, expires_in_s: seconds, refresh_token: None }
}

#[test]
fn a_token_that_still_counts_outlives_failures() {
    let access = AccessTokens::new(&Models::default());
    let (id, grants) = (ResourceId::known("res_1"), [held(1, 9, false), held(2, 9, false)]);
    let kept = access.judge(&world(0), Ok(token(100)), (grants, None, 0));
    let (next, ends) = (kept.next_ms, 100_000);
    assert!(next > 70_000 && next < ends, "{next}");
    let old = kept.token.clone();
    let again = access.judge(&world(80_000), Err(("why".into(), true)), (grants, old, 0));
    access.kept.lock().insert(id.clone(), again);
    let by = |grant, ms| access.token(&id, &grant, ms);
    let at = |whole, ms| by(held(whole, 9, false), ms);
    assert_eq!(at(1, 99_999), Ok(Sensitive("t".to_owned())));
    assert_eq!(at(2, 99_999), Ok(Sensitive("t".to_owned())), "after another refresh token");
    assert!(at(1, 100_000).unwrap_err().contains("why"));
    assert!(at(3, 99_999).unwrap_err().contains("yet"), "it holds something else by now");
    let turned = held(3, 9, true);
    assert!(by(turned, 99_999).is_err(), "what failed is tried with the other refresh token");
    let kept = access.judge(&world(0), Ok(token(100)), (grants, None, 0));
    access.kept.lock().insert(id.clone(), kept);
    assert!(by(turned, 99_999).is_ok(), "another server turned the refresh token");
    assert!(by(held(3, 8, true), 99_999).is_err(), "it is of another client by now");
}

/// A token that was fetched while the calendar was ahead would be used long after its end.
#[test]
fn the_calendar_does_not_say_how_long_a_token_counts() {
    let access = AccessTokens::new(&Models::default());
    let at = |ms: i64| {
        let ahead = World::new(|| Timestamp::from_ms(7_200_000), |bytes| bytes.fill(200));
        ahead.with_uptime(move || ms)
    };
    let kept = access.judge(&at(0), Ok(token(100)), ([held(1, 9, false); 2], None, 0));
    assert!(kept.next_ms < 100_000);
    let id = ResourceId::known("res_1");
    access.kept.lock().insert(id.clone(), kept);
    let counts = |ms| access.token(&id, &held(1, 9, false), at(ms).uptime_ms()).is_ok();
    assert!(counts(99_999) && !counts(100_000));
}

#[test]
fn another_refresh_token_takes_the_place_of_the_one_before() {
    let spec = |token: &str| -> IntegrationConnectionSpec {
        let secret = serde_json::json!({"refreshToken": token, "clientId": "c"});
        serde_json::from_value(serde_json::json!({"secret": secret})).unwrap()
    };
    let next = Sensitive("b".to_owned());
    assert_eq!(rotated(&spec("a"), &next), Some(spec("b")));
    assert_eq!(rotated(&spec("b"), &next), None);
    let secrets = |spec: &IntegrationConnectionSpec| digest(secrets(spec).unwrap().iter());
    assert_ne!(secrets(&spec("a")), secrets(&spec("b")));
}

proptest! {
    /// The next exchange is neither immediate nor never, whatever a service says.
    #[test]
    fn the_next_exchange_is_in_time(seconds in any::<u64>(), failures in any::<u32>(), helps in any::<bool>()) {
        let (access, grants) = (AccessTokens::new(&Models::default()), [held(0, 0, false); 2]);
        let kept = access.judge(&world(0), Ok(token(seconds)), (grants, None, 0));
        let ends = kept.token.as_ref().unwrap().ends_ms;
        prop_assert!(kept.next_ms >= 5000 && (seconds < 10 || kept.next_ms < ends));
        let failed = access.judge(&world(0), Err((String::new(), helps)), (grants, None, failures));
        let max = i64::try_from(access.retry_max.as_millis()).unwrap();
        prop_assert!(failed.next_ms >= 1000 && failed.next_ms <= max);
    }
}
