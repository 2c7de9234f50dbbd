use super::Town;
use crate::oauth::Params;
use crate::outside::{OutsideError, Provider};
use crate::sessions::SignInError;
use crate::{Auth, Denied, Limits, Role, Settings, people};
use axum::Router;
use axum::routing::{get, post};
use jose::Ed25519;
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use types::Remote;
use url::Url;

on_both!(
    a_verified_address_signs_in_who_has_an_account,
    an_invitation_lets_a_stranger_in,
    who_proves_an_address_shuts_out_who_claimed_it,
    what_the_provider_did_not_say_for_this_sign_in_is_refused,
    an_answer_for_another_browser_or_provider_is_refused,
    a_token_that_ends_in_the_far_future_has_not_expired,
    the_provider_is_asked_once_for_many_who_begin,
    a_provider_that_fails_is_left_alone_for_a_while,
    made_up_codes_of_one_client_stop_before_the_provider,
);

/// A provider on the loopback interface that vouches for whatever the test says.
struct Peer {
    issuer: String,
    claims: Arc<Mutex<Value>>,
    /// How often it was asked for its addresses.
    asked: Arc<AtomicU32>,
    server: tokio::task::JoinHandle<()>,
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.server.abort();
    }
}

fn key() -> Ed25519 {
    Ed25519::from_seed(&[9; 32]).unwrap()
}

fn sign(claims: &Value) -> String {
    key().sign("JWT", "p", claims).unwrap()
}

impl Peer {
    async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let issuer = format!("http://{}", listener.local_addr().unwrap());
        let claims = Arc::new(Mutex::new(Value::Null));
        let discovery = json!({
            "issuer": issuer, "authorization_endpoint": format!("{issuer}/authorize"),
            "token_endpoint": format!("{issuer}/token"), "jwks_uri": format!("{issuer}/keys"),
        });
        let keys = json!({"keys": [key().jwk("p")]});
        let told = claims.clone();
        let asked = Arc::new(AtomicU32::new(0));
        let count = asked.clone();
        let router = Router::new()
            .route(
                "/.well-known/openid-configuration",
                get(move || async move {
                    count.fetch_add(1, Ordering::SeqCst);
                    discovery.to_string()
                }),
            )
            .route("/keys", get(move || async move { keys.to_string() }))
            .route(
                "/token",
                post(move || async move { json!({"id_token": sign(&told.lock())}).to_string() }),
            );
        let server = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { issuer, claims, asked, server }
    }

    async fn auth(&self, town: &Town) -> Auth {
        // Ignored: another test of this process may have done this already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let provider = Provider {
            name: "Peer".into(),
            issuer: self.issuer.clone(),
            client_id: "holm-here".into(),
            client_secret: "s".into(),
        };
        let settings = Settings {
            issuer: "https://holm.example".into(),
            feed_poll: Duration::from_secs(1),
            outside: Some(provider),
            limits: Limits::default(),
        };
        Auth::new(town.store.clone(), settings, town.world.clone()).await.unwrap()
    }

    /// Goes to the provider and back; `change` alters what the provider says.
    async fn sign_in(
        &self,
        auth: &Auth,
        email: &str,
        change: impl FnOnce(&mut Value),
    ) -> Result<String, OutsideError> {
        let secret = auth.new_outside_secret();
        let location = Url::parse(&auth.begin_outside(&secret).await?).unwrap();
        let asked = |name: &str| {
            location.query_pairs().find(|(key, _)| key == name).unwrap().1.into_owned()
        };
        assert_eq!(asked("code_challenge_method"), "S256");
        let mut claims = json!({
            "iss": self.issuer, "aud": "holm-here", "exp": auth.world().now().seconds() + 60, "nonce": asked("nonce"),
            "email": email, "email_verified": true, "given_name": "Eve",
        });
        change(&mut claims);
        *self.claims.lock() = claims;
        let answer = format!("code=c&state={}", asked("state"));
        let params = Params::from_form(answer.as_bytes()).unwrap();
        auth.finish_outside(Remote::UNKNOWN, &secret, &params).await
    }
}

async fn a_verified_address_signs_in_who_has_an_account(town: Town) {
    let peer = Peer::start().await;
    let auth = peer.auth(&town).await;
    let session = peer.sign_in(&auth, &town.first.email.to_uppercase(), |_| {}).await.unwrap();
    assert_eq!(auth.session(&session).await.unwrap().unwrap().email, town.first.email);
}

async fn an_invitation_lets_a_stranger_in(town: Town) {
    let peer = Peer::start().await;
    let auth = peer.auth(&town).await;
    let stranger = peer.sign_in(&auth, "eve@holm.example", |_| {}).await;
    assert!(matches!(stranger, Err(OutsideError::NotInvited(_))));
    let member = town.admin_member().await;
    town.change(move |tx| people::invite(tx, &member, "eve@holm.example", Role::Member))
        .await
        .unwrap();
    let session = peer.sign_in(&auth, "eve@holm.example", |_| {}).await.unwrap();
    let user = auth.session(&session).await.unwrap().unwrap();
    assert_eq!((user.given_name.as_str(), user.is_proven()), ("Eve", true));
}

async fn who_proves_an_address_shuts_out_who_claimed_it(town: Town) {
    let peer = Peer::start().await;
    let auth = peer.auth(&town).await;
    let key = town.join("eve@holm.example", Role::Member).await;
    let claimed = town
        .auth
        .sign_in(Remote::UNKNOWN, "eve@holm.example", "correct horse".into(), None)
        .await
        .unwrap()
        .session;
    let proven = peer.sign_in(&auth, "eve@holm.example", |_| {}).await.unwrap();
    assert!(auth.session(&proven).await.unwrap().unwrap().is_proven());
    assert!(auth.session(&claimed).await.unwrap().is_none());
    assert!(matches!(auth.identify(&key).await, Err(Denied::Unknown)));
    let password =
        auth.sign_in(Remote::UNKNOWN, "eve@holm.example", "correct horse".into(), None).await;
    assert!(matches!(password, Err(SignInError::Wrong)));
    // A proven address stays proven, and the next sign-in ends nothing.
    peer.sign_in(&auth, "eve@holm.example", |_| {}).await.unwrap();
    assert!(auth.session(&proven).await.unwrap().is_some());
}

async fn what_the_provider_did_not_say_for_this_sign_in_is_refused(town: Town) {
    let peer = Peer::start().await;
    let auth = peer.auth(&town).await;
    let email = town.first.email.clone();
    let changes: [fn(&mut Value); 7] = [
        |claims| claims["iss"] = json!("http://other.example"),
        |claims| claims["aud"] = json!("somebody-else"),
        |claims| claims["aud"] = json!(["holm-here", "somebody-else"]),
        |claims| claims["exp"] = json!(0),
        |claims| claims["nonce"] = json!("another"),
        |claims| claims["email_verified"] = json!(false),
        |claims| claims["email"] = Value::Null,
    ];
    for change in changes {
        let result = peer.sign_in(&auth, &email, change).await;
        assert!(
            matches!(result, Err(OutsideError::Provider(_) | OutsideError::Unverified)),
            "{result:?}"
        );
    }
}

async fn an_answer_for_another_browser_or_provider_is_refused(town: Town) {
    let peer = Peer::start().await;
    let auth = peer.auth(&town).await;
    let secret = auth.new_outside_secret();
    let location = Url::parse(&auth.begin_outside(&secret).await.unwrap()).unwrap();
    let state = location.query_pairs().find(|(key, _)| key == "state").unwrap().1.into_owned();
    let finish = |secret: String, query: String| {
        let auth = auth.clone();
        async move {
            let params = Params::from_form(query.as_bytes()).unwrap();
            auth.finish_outside(Remote::UNKNOWN, &secret, &params).await
        }
    };
    let other = auth.new_outside_secret();
    assert!(matches!(
        finish(other, format!("code=c&state={state}")).await,
        Err(OutsideError::NotBegun)
    ));
    let mixed =
        finish(secret.clone(), format!("code=c&state={state}&iss=https://evil.example")).await;
    assert!(matches!(mixed, Err(OutsideError::Provider(_))));
    let declined = finish(secret, format!("error=access_denied&state={state}")).await;
    assert!(matches!(declined, Err(OutsideError::Declined(_))));
    assert!(matches!(town.auth.begin_outside("x").await, Err(OutsideError::Off)));
}

async fn a_token_that_ends_in_the_far_future_has_not_expired(town: Town) {
    let peer = Peer::start().await;
    let auth = peer.auth(&town).await;
    let far = |claims: &mut Value| claims["exp"] = json!(i64::MAX);
    peer.sign_in(&auth, &town.first.email, far).await.unwrap();
}

async fn the_provider_is_asked_once_for_many_who_begin(town: Town) {
    let peer = Peer::start().await;
    let auth = peer.auth(&town).await;
    let secret = auth.new_outside_secret();
    let all = (0..20).map(|_| {
        let (auth, secret) = (auth.clone(), secret.clone());
        tokio::spawn(async move { auth.begin_outside(&secret).await })
    });
    for begun in all.collect::<Vec<_>>() {
        begun.await.unwrap().unwrap();
    }
    assert_eq!(peer.asked.load(Ordering::SeqCst), 1);
    town.clock.advance_s(3600);
    auth.begin_outside(&secret).await.unwrap();
    assert_eq!(peer.asked.load(Ordering::SeqCst), 2);
}

async fn a_provider_that_fails_is_left_alone_for_a_while(town: Town) {
    let mut peer = Peer::start().await;
    // The provider names its issuer without the slash, so its answer is refused.
    peer.issuer.push('/');
    let auth = peer.auth(&town).await;
    let fails = async || {
        let failed = auth.begin_outside("x").await;
        assert!(matches!(failed, Err(OutsideError::Provider(_))), "{failed:?}");
        peer.asked.load(Ordering::SeqCst)
    };
    assert_eq!((fails().await, fails().await), (1, 1));
    town.clock.advance_s(60);
    assert_eq!(fails().await, 2);
    town.clock.set_back_s(86_400);
    town.clock.advance_s(60);
    assert_eq!(fails().await, 3);
}

async fn made_up_codes_of_one_client_stop_before_the_provider(town: Town) {
    let peer = Peer::start().await;
    let auth = peer.auth(&town).await;
    let email = &town.first.email;
    for _ in 0..Limits::default().client_guesses_max {
        // Right ones do not count.
        peer.sign_in(&auth, email, |_| {}).await.unwrap();
        let wrong = peer.sign_in(&auth, email, |claims| claims["nonce"] = json!("made up")).await;
        assert!(matches!(wrong, Err(OutsideError::Provider(_))), "{wrong:?}");
    }
    let refused = peer.sign_in(&auth, email, |_| {}).await;
    assert!(matches!(refused, Err(OutsideError::Throttled(_))), "{refused:?}");
}
