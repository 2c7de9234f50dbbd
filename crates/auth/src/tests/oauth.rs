use super::Town;
use crate::clients::{self, NewClient, Registered};
use crate::oauth::{Code, Fault, Params, Tokens, Wrong};
use crate::{Denied, service_accounts};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use store::identity::users::User;
use types::{Remote, Scope, Verb};
use url::Url;

/// Published clients configure themselves with this document.
#[tokio::test]
async fn the_discovery_document_is_as_clients_know_it() {
    let town = Town::on_sqlite().await;
    insta::assert_json_snapshot!(town.auth.metadata());
}

on_both!(
    client_credentials_come_by_header_form_or_json,
    a_bad_request_names_the_parameter,
    nobody_is_sent_to_an_address_that_is_not_registered,
    answers_to_clients_carry_state_and_issuer,
    a_code_is_bound_to_client_address_and_verifier,
    a_verifier_without_a_challenge_shows_a_downgrade,
    a_code_expires,
    the_second_use_of_a_code_revokes_what_the_first_gave,
    a_used_code_in_the_hands_of_another_client_revokes_nothing,
    the_second_use_of_a_refresh_token_revokes_the_whole_sign_in,
    a_second_use_at_the_same_time_revokes_as_a_later_one_does,
    a_new_password_ends_what_programs_have_not_fetched_yet,
    a_refresh_token_belongs_to_its_client_and_may_narrow_only,
    revoking_one_token_ends_the_sign_in,
    a_deleted_client_takes_its_tokens_along,
    secrets_never_reach_the_log,
);

const CALLBACK: &str = "https://app.example/cb?tenant=1";
const VERIFIER: &str = "a-verifier-of-forty-three-characters-or-more-0";

pub(super) fn form(pairs: &[(&str, &str)]) -> Params {
    let text = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(pairs).finish();
    Params::from_form(text.as_bytes()).unwrap()
}

fn challenge() -> String {
    URL_SAFE_NO_PAD.encode(Sha256::digest(VERIFIER))
}

fn query_of(location: &str) -> HashMap<String, String> {
    Url::parse(location).unwrap().query_pairs().into_owned().collect()
}

#[track_caller]
pub(super) fn refused<T: std::fmt::Debug>(result: Result<T, Fault>, expected: Code) -> String {
    match result {
        Err(Fault::Refused { code, description }) if code == expected => description,
        other => panic!("expected {expected:?}, not {other:?}"),
    }
}

struct App {
    client: Registered,
    secret: Option<String>,
    user: User,
}

impl Town {
    async fn app(&self, confidential: bool) -> App {
        let who = self.admin().await;
        let new = NewClient {
            name: "App".into(),
            redirect_uris: vec![CALLBACK.into()],
            confidential,
            account: None,
        };
        let (client, secret) =
            self.change(move |tx| clients::create(tx, &who, new.clone())).await.unwrap();
        App { client, secret, user: self.user(&self.first.email).await }
    }

    /// Goes through the consent page, and returns the code.
    async fn code(&self, app: &App, more: &[(&str, &str)]) -> String {
        let mut pairs = vec![
            ("response_type", "code"),
            ("client_id", app.client.id.as_str()),
            ("redirect_uri", CALLBACK),
        ];
        pairs.extend_from_slice(more);
        let request = self.auth.check_authorization(&form(&pairs)).await.unwrap();
        query_of(&self.auth.approve(&request, &app.user).await.unwrap())["code"].clone()
    }

    async fn pkce_code(&self, app: &App) -> String {
        self.code(app, &[("code_challenge", &challenge()), ("code_challenge_method", "S256")]).await
    }

    async fn exchange(
        &self,
        app: &App,
        code: &str,
        more: &[(&str, &str)],
    ) -> Result<Tokens, Fault> {
        let mut pairs = vec![
            ("grant_type", "authorization_code"),
            ("client_id", app.client.id.as_str()),
            ("redirect_uri", CALLBACK),
            ("code", code),
        ];
        pairs.extend(app.secret.as_deref().map(|secret| ("client_secret", secret)));
        pairs.retain(|(name, _)| more.iter().all(|(other, _)| other != name));
        pairs.extend_from_slice(more);
        self.auth.token(form(&pairs), None).await
    }

    pub(super) async fn refresh(
        &self,
        token: &str,
        more: &[(&str, &str)],
    ) -> Result<Tokens, Fault> {
        let mut pairs = vec![("grant_type", "refresh_token"), ("refresh_token", token)];
        pairs.extend_from_slice(more);
        self.auth.token(form(&pairs), None).await
    }

    async fn signed_in(&self) -> (App, Tokens) {
        let app = self.app(false).await;
        let code = self.pkce_code(&app).await;
        let tokens = self.exchange(&app, &code, &[("code_verifier", VERIFIER)]).await.unwrap();
        (app, tokens)
    }

    async fn revoked(&self, tokens: &Tokens) -> bool {
        matches!(self.auth.identify(&tokens.access_token).await, Err(Denied::Unknown))
            && self.refresh(&tokens.refresh_token, &[]).await.is_err()
    }
}

async fn client_credentials_come_by_header_form_or_json(town: Town) {
    let member = town.admin_member().await;
    let (account, secret) =
        town.change(move |tx| service_accounts::create(tx, &member, "robot", "")).await.unwrap();
    let header = format!("Basic {}", STANDARD.encode(format!("{}:{secret}", account.id)));
    let json = format!(
        r#"{{"grant_type":"client_credentials","client_id":"{}","client_secret":"{secret}"}}"#,
        account.id
    );
    let by_header = town
        .auth
        .token(form(&[("grant_type", "client_credentials")]), Some(&header))
        .await
        .unwrap();
    let by_json = town.auth.token(Params::from_json(json.as_bytes()).unwrap(), None).await.unwrap();
    for tokens in [by_header, by_json] {
        let answer = serde_json::to_value(&tokens).unwrap();
        let members: Vec<_> = answer.as_object().unwrap().keys().cloned().collect();
        assert_eq!(members, ["access_token", "token_type", "expires_in", "refresh_token"]);
        assert_eq!(answer["expires_in"], 7200);
        assert_eq!(town.auth.identify(&tokens.access_token).await.unwrap().name, "robot");
        // The refresh token is useless without the secret.
        refused(town.refresh(&tokens.refresh_token, &[]).await, Code::InvalidClient);
        let proof = [("client_id", account.id.as_str()), ("client_secret", secret.as_str())];
        town.refresh(&tokens.refresh_token, &proof).await.unwrap();
    }
    let odd = format!("Basic {}", STANDARD.encode("sva_\0:x"));
    refused(
        town.auth.token(form(&[("grant_type", "client_credentials")]), Some(&odd)).await,
        Code::InvalidClient,
    );
    let wrong = [
        ("grant_type", "client_credentials"),
        ("client_id", account.id.as_str()),
        ("client_secret", "x"),
    ];
    refused(town.auth.token(form(&wrong), None).await, Code::InvalidClient);
    let people_only = [("grant_type", "client_credentials"), ("client_id", "blaxel")];
    refused(town.auth.token(form(&people_only), None).await, Code::UnauthorizedClient);
}

async fn a_bad_request_names_the_parameter(town: Town) {
    assert!(
        refused(town.auth.token(Params::default(), None).await, Code::InvalidRequest)
            .contains("`grant_type`")
    );
    let unknown = form(&[("grant_type", "password")]);
    assert!(
        refused(town.auth.token(unknown, None).await, Code::UnsupportedGrantType)
            .contains("`grant_type`")
    );
    let no_token = form(&[("grant_type", "refresh_token")]);
    assert!(
        refused(town.auth.token(no_token, None).await, Code::InvalidRequest)
            .contains("`refresh_token`")
    );
    let no_code = form(&[("grant_type", "authorization_code"), ("client_id", "blaxel")]);
    assert!(refused(town.auth.token(no_code, None).await, Code::InvalidRequest).contains("`code`"));
    let scope = form(&[("client_id", "blaxel"), ("scope", "jobs:fly")]);
    assert!(
        refused(town.auth.begin_device(Remote::UNKNOWN, scope, None).await, Code::InvalidScope)
            .contains("jobs:fly")
    );
}

async fn nobody_is_sent_to_an_address_that_is_not_registered(town: Town) {
    let app = town.app(false).await;
    let check = |client: String, uri: String| {
        let town = &town;
        async move {
            let pairs = [
                ("response_type", "code"),
                ("client_id", client.as_str()),
                ("redirect_uri", uri.as_str()),
            ];
            town.auth.check_authorization(&form(&pairs)).await
        }
    };
    let id = app.client.id.as_str().to_owned();
    for uri in [
        "",
        "https://evil.example/",
        "https://app.example/cb",
        "https://app.example/cb?tenant=1&x=2",
        "https://app.example/cb?tenant=1/../x",
    ] {
        assert!(matches!(check(id.clone(), uri.into()).await, Err(Wrong::Show(_))), "{uri}");
    }
    for client in ["", "cli_unknown", "blaxel"] {
        assert!(
            matches!(check(client.into(), CALLBACK.into()).await, Err(Wrong::Show(_))),
            "{client}"
        );
    }
}

async fn answers_to_clients_carry_state_and_issuer(town: Town) {
    let app = town.app(false).await;
    let base =
        [("client_id", app.client.id.as_str()), ("redirect_uri", CALLBACK), ("state", "s&=1")];
    let challenge = challenge();
    let good = [
        ("response_type", "code"),
        ("code_challenge", &*challenge),
        ("code_challenge_method", "S256"),
    ];
    let request = town.auth.check_authorization(&form(&[&base[..], &good].concat())).await.unwrap();
    let mut answers =
        vec![town.auth.approve(&request, &app.user).await.unwrap(), town.auth.refuse(&request)];
    for bad in [
        &[("response_type", "token")][..],
        &[("response_type", "code")],
        &[("response_type", "code"), ("code_challenge", &*challenge)],
        &[
            ("response_type", "code"),
            ("code_challenge", &*challenge),
            ("code_challenge_method", "plain"),
        ],
        &[
            ("response_type", "code"),
            ("code_challenge", "short"),
            ("code_challenge_method", "S256"),
        ],
        &[("response_type", "code"), ("scope", "nonsense")],
    ] {
        match town.auth.check_authorization(&form(&[&base[..], bad].concat())).await {
            Err(Wrong::Redirect(location)) => {
                assert!(query_of(&location).contains_key("error"), "{location}");
                answers.push(location);
            }
            other => panic!("{bad:?}: {other:?}"),
        }
    }
    for answer in answers {
        let query = query_of(&answer);
        assert!(answer.starts_with("https://app.example/cb?tenant=1&"), "{answer}");
        assert_eq!(
            (query["state"].as_str(), query["iss"].as_str()),
            ("s&=1", "https://holm.example")
        );
    }
}

async fn a_code_is_bound_to_client_address_and_verifier(town: Town) {
    let (app, other) = (town.app(false).await, town.app(false).await);
    let code = town.pkce_code(&app).await;
    refused(town.exchange(&app, &code, &[]).await, Code::InvalidRequest);
    let wrong = "another-verifier-of-forty-three-characters-or-more";
    refused(town.exchange(&app, &code, &[("code_verifier", wrong)]).await, Code::InvalidGrant);
    let verifier = ("code_verifier", VERIFIER);
    refused(town.exchange(&other, &code, &[verifier]).await, Code::InvalidGrant);
    let elsewhere = ("redirect_uri", "https://app.example/other");
    refused(town.exchange(&app, &code, &[verifier, elsewhere]).await, Code::InvalidGrant);
    refused(town.exchange(&app, "hc_unknown", &[verifier]).await, Code::InvalidGrant);
    let tokens = town.exchange(&app, &code, &[verifier]).await.unwrap();
    assert_eq!(town.auth.identify(&tokens.access_token).await.unwrap().name, town.first.email);
}

async fn a_verifier_without_a_challenge_shows_a_downgrade(town: Town) {
    let app = town.app(true).await;
    let code = town.code(&app, &[]).await;
    refused(town.exchange(&app, &code, &[("code_verifier", VERIFIER)]).await, Code::InvalidGrant);
    refused(town.exchange(&app, &code, &[("client_secret", "wrong")]).await, Code::InvalidClient);
    town.exchange(&app, &code, &[]).await.unwrap();
}

async fn a_code_expires(town: Town) {
    let app = town.app(false).await;
    let code = town.pkce_code(&app).await;
    town.clock.advance_s(120);
    let late = town.exchange(&app, &code, &[("code_verifier", VERIFIER)]).await;
    assert!(refused(late, Code::InvalidGrant).contains("expired"));
}

async fn the_second_use_of_a_code_revokes_what_the_first_gave(town: Town) {
    let app = town.app(false).await;
    let code = town.pkce_code(&app).await;
    let tokens = town.exchange(&app, &code, &[("code_verifier", VERIFIER)]).await.unwrap();
    town.auth.identify(&tokens.access_token).await.unwrap();
    refused(town.exchange(&app, &code, &[("code_verifier", VERIFIER)]).await, Code::InvalidGrant);
    assert!(town.revoked(&tokens).await);
}

async fn a_used_code_in_the_hands_of_another_client_revokes_nothing(town: Town) {
    let app = town.app(false).await;
    let code = town.pkce_code(&app).await;
    let tokens = town.exchange(&app, &code, &[("code_verifier", VERIFIER)]).await.unwrap();
    let by_other = [("client_id", "blaxel"), ("code_verifier", VERIFIER)];
    let answer = town.exchange(&app, &code, &by_other).await;
    assert!(refused(answer, Code::InvalidGrant).contains("another client"));
    town.auth.identify(&tokens.access_token).await.unwrap();
}

async fn the_second_use_of_a_refresh_token_revokes_the_whole_sign_in(town: Town) {
    let (_, first) = town.signed_in().await;
    let second = town.refresh(&first.refresh_token, &[]).await.unwrap();
    assert_ne!(first.refresh_token, second.refresh_token);
    for tokens in [&first, &second] {
        town.auth.identify(&tokens.access_token).await.unwrap();
    }
    refused(town.refresh(&first.refresh_token, &[]).await, Code::InvalidGrant);
    assert!(town.revoked(&first).await && town.revoked(&second).await);
}

async fn a_second_use_at_the_same_time_revokes_as_a_later_one_does(town: Town) {
    // Often enough for both to look before either has written.
    for _ in 0..20 {
        let app = town.app(false).await;
        let code = town.pkce_code(&app).await;
        let verifier = [("code_verifier", VERIFIER)];
        let exchange = || town.exchange(&app, &code, &verifier);
        let given = one_of(tokio::join!(exchange(), exchange()));
        assert!(town.revoked(&given).await);
        let (_, tokens) = town.signed_in().await;
        let refresh = || town.refresh(&tokens.refresh_token, &[]);
        let given = one_of(tokio::join!(refresh(), refresh()));
        assert!(town.revoked(&given).await);
    }
}

async fn a_new_password_ends_what_programs_have_not_fetched_yet(town: Town) {
    let app = town.app(false).await;
    let code = town.pkce_code(&app).await;
    let asked = form(&[("client_id", "blaxel")]);
    let device = town.auth.begin_device(Remote::UNKNOWN, asked, None).await.unwrap();
    town.auth.decide_device(&app.user, &device.user_code, true).await.unwrap();
    let password = "a much better one".to_owned();
    town.auth.set_password(&town.first.email, password, "operator").await.unwrap();
    refused(town.exchange(&app, &code, &[("code_verifier", VERIFIER)]).await, Code::InvalidGrant);
    let poll = form(&[
        ("grant_type", "urn:ietf:params:oauth:grant-type:device_code"),
        ("client_id", "blaxel"),
        ("device_code", &device.device_code),
    ]);
    refused(town.auth.token(poll, None).await, Code::InvalidGrant);
    town.auth.identify(&town.first.api_key).await.unwrap();
}

/// Returns what the winner of two got. The other must have been refused.
#[track_caller]
fn one_of(both: (Result<Tokens, Fault>, Result<Tokens, Fault>)) -> Tokens {
    let (won, lost) = match both {
        (Ok(won), lost) | (lost, Ok(won)) => (won, lost),
        neither => panic!("{neither:?}"),
    };
    refused(lost, Code::InvalidGrant);
    won
}

async fn a_refresh_token_belongs_to_its_client_and_may_narrow_only(town: Town) {
    let app = town.app(false).await;
    let more = [
        ("code_challenge", &*challenge()),
        ("code_challenge_method", "S256"),
        ("scope", "jobs:get jobs:list"),
    ];
    let code = town.code(&app, &more).await;
    let tokens = town.exchange(&app, &code, &[("code_verifier", VERIFIER)]).await.unwrap();
    refused(
        town.refresh(&tokens.refresh_token, &[("client_id", "blaxel")]).await,
        Code::InvalidGrant,
    );
    refused(town.refresh(&tokens.refresh_token, &[("scope", "admin")]).await, Code::InvalidScope);
    let narrow = town.refresh(&tokens.refresh_token, &[("scope", "jobs:get")]).await.unwrap();
    let who = town.auth.identify(&narrow.access_token).await.unwrap();
    assert!(
        who.may(&[Scope::Jobs(Verb::Get)]).is_ok() && who.may(&[Scope::Jobs(Verb::List)]).is_err()
    );
    town.clock.advance_s(30 * 24 * 3600);
    assert!(
        refused(town.refresh(&narrow.refresh_token, &[]).await, Code::InvalidGrant)
            .contains("expired")
    );
}

async fn revoking_one_token_ends_the_sign_in(town: Town) {
    for pick in [
        |tokens: &Tokens| tokens.access_token.clone(),
        |tokens: &Tokens| tokens.refresh_token.clone(),
    ] {
        let (app, tokens) = town.signed_in().await;
        let token = pick(&tokens);
        let by_other = form(&[("token", &token), ("client_id", "blaxel")]);
        refused(town.auth.revoke(by_other, None).await, Code::InvalidGrant);
        town.auth
            .revoke(form(&[("token", &token), ("client_id", app.client.id.as_str())]), None)
            .await
            .unwrap();
        assert!(town.revoked(&tokens).await);
        town.auth.revoke(form(&[("token", &token)]), None).await.unwrap();
    }
}

async fn a_deleted_client_takes_its_tokens_along(town: Town) {
    let (app, tokens) = town.signed_in().await;
    let who = town.admin().await;
    town.change(move |tx| clients::delete(tx, &who, &app.client.id)).await.unwrap();
    assert!(town.revoked(&tokens).await);
}

async fn secrets_never_reach_the_log(town: Town) {
    let (_, tokens) = town.signed_in().await;
    let params = form(&[("refresh_token", "hr_secret")]);
    let device = town
        .auth
        .begin_device(Remote::UNKNOWN, form(&[("client_id", "blaxel")]), None)
        .await
        .unwrap();
    let shown = format!("{tokens:?} {params:?} {device:?}");
    for secret in [&tokens.access_token, &tokens.refresh_token, "hr_secret", &device.device_code] {
        assert!(!shown.contains(secret));
    }
}
