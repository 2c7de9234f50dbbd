//! Signing in through an outside OpenID Connect provider: authorization code with PKCE, state and
//! nonce.
//!
//! State, nonce and verifier are all derived from one secret in a cookie of the browser, so nothing
//! is stored, and nothing from one browser fits another. The provider only vouches for an address;
//! our own people and invitations decide who that is here and whether they may come in.

mod discovery;
mod error;
mod id_token;
mod provider;
mod wire;

use crate::oauth::Params;
use crate::{Auth, Error, invitations, secrets};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use sha2::{Digest as _, Sha256};
use store::Tx;
use store::identity::invitations as invited;
use store::identity::users::{self, Address, User, normal_email};
use types::Remote;
use types::ids::UserId;
use url::Url;

pub(crate) use discovery::Discoveries;
pub use error::OutsideError;
pub use provider::Provider;

/// What the provider vouches for.
struct Voucher {
    email: String,
    given_name: String,
    family_name: String,
}

impl Auth {
    /// Returns the name of the outside provider, if there is one.
    pub fn outside(&self) -> Option<&str> {
        self.provider().ok().map(|provider| provider.name.as_str())
    }

    fn redirect_uri(&self) -> String {
        format!("{}/oauth/outside/callback", self.issuer())
    }

    /// Returns a secret for the cookie of a browser that starts to sign in.
    pub fn new_outside_secret(&self) -> String {
        secrets::new_secret(self.world(), "ho")
    }

    /// Returns the address to which the browser goes to sign in. `secret` is in its cookie.
    pub async fn begin_outside(&self, secret: &str) -> Result<String, OutsideError> {
        let provider = self.provider()?;
        let found = self.discoveries().of(&provider.issuer, self.world().uptime_ms()).await?;
        let broken =
            |_| OutsideError::Provider("its authorization endpoint is not an address".into());
        let mut url = Url::parse(&found.authorization_endpoint).map_err(broken)?;
        url.query_pairs_mut()
            .append_pair("response_type", "code")
            .append_pair("client_id", &provider.client_id)
            .append_pair("redirect_uri", &self.redirect_uri())
            .append_pair("scope", "openid email profile")
            .append_pair("state", &derived(secret, "state"))
            .append_pair("nonce", &derived(secret, "nonce"))
            .append_pair("code_challenge", &challenge(&derived(secret, "verifier")))
            .append_pair("code_challenge_method", "S256");
        Ok(url.into())
    }

    /// Completes the sign-in when the browser is back. Returns the secret of its new session.
    pub async fn finish_outside(
        &self,
        from: Remote,
        secret: &str,
        params: &Params,
    ) -> Result<String, OutsideError> {
        let provider = self.provider()?;
        let state = params.get("state").unwrap_or_default();
        if !secrets::same(state, &derived(secret, "state")) {
            return Err(OutsideError::NotBegun);
        }
        if params.get("iss").is_some_and(|issuer| issuer != provider.issuer) {
            return Err(OutsideError::Provider("the answer comes from another provider".into()));
        }
        if let Some(error) = params.get("error") {
            return Err(OutsideError::Declined(
                error.chars().filter(|letter| !letter.is_control()).take(80).collect(),
            ));
        }
        let code = params.get("code").ok_or(OutsideError::NotBegun)?;
        // Anybody can make up a code, and only the provider knows that it is wrong.
        self.count_guess(from)?;
        let vouched = self.vouched(provider, secret, code).await;
        if !matches!(vouched, Err(OutsideError::Provider(_))) {
            self.uncount_guess(from);
        }
        let voucher = vouched?;
        let user = self.admit(voucher).await?;
        Ok(self.open_session(user).await?)
    }

    async fn vouched(
        &self,
        provider: &Provider,
        secret: &str,
        code: &str,
    ) -> Result<Voucher, OutsideError> {
        let wire = self.discoveries().wire()?;
        let found = self.discoveries().of(&provider.issuer, self.world().uptime_ms()).await?;
        let verifier = derived(secret, "verifier");
        let fields = [
            ("grant_type", "authorization_code"),
            ("code", code),
            ("redirect_uri", &self.redirect_uri()),
            ("code_verifier", &verifier),
        ];
        let token = wire.id_token(&found.token_endpoint, provider, &fields).await?;
        let keys = wire.keys(&found.jwks_uri).await?;
        let claims = id_token::verify(
            &token,
            &keys,
            provider,
            &derived(secret, "nonce"),
            self.world().now(),
        );
        let claims = claims
            .map_err(|why| OutsideError::Provider(format!("its ID token is refused: {why}")))?;
        let email = claims.verified_email().ok_or(OutsideError::Unverified)?;
        Ok(Voucher {
            email: normal_email(email),
            given_name: claims.given_name,
            family_name: claims.family_name,
        })
    }

    /// Finds the person, or creates one who was invited.
    async fn admit(&self, voucher: Voucher) -> Result<UserId, OutsideError> {
        self.change(move |tx| match users::find_by_email(tx, &voucher.email)? {
            Some(user) => {
                if !user.is_proven() {
                    users::prove_address(tx, &user.id)?;
                }
                Ok(user.id)
            }
            None => welcome(tx, &voucher),
        })
        .await
    }
}

fn welcome(tx: &mut Tx<'_>, voucher: &Voucher) -> Result<UserId, OutsideError> {
    let now = tx.world().now();
    let open: Vec<_> = invited::list_of_email(tx, &voucher.email)?
        .into_iter()
        .filter(|invitation| !invitation.expired(now))
        .collect();
    if open.is_empty() {
        return Err(OutsideError::NotInvited(voucher.email.clone()));
    }
    let user = User {
        id: UserId::new(tx.world()),
        email: voucher.email.clone(),
        given_name: voucher.given_name.clone(),
        family_name: voucher.family_name.clone(),
        address: Address::Proven,
        created_at: now,
    };
    users::create(tx, &user, None)?;
    for invitation in &open {
        invitations::accept_for(tx, &user.id, invitation).map_err(|error| match error {
            Error::Store(error) => OutsideError::Store(error),
            other => OutsideError::NotAccepted(other.to_string()),
        })?;
    }
    Ok(user.id)
}

fn derived(secret: &str, what: &str) -> String {
    BASE64.encode(Sha256::digest(format!("{what}:{secret}").as_bytes()))
}

fn challenge(verifier: &str) -> String {
    BASE64.encode(Sha256::digest(verifier.as_bytes()))
}
