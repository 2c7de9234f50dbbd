//! What clients can discover by themselves.

use super::token::DEVICE_GRANT;
use crate::{Auth, Identity, Subject};
use serde_json::{Value, json};
use store::identity::users;
use types::Scope;

impl Auth {
    /// Returns the discovery document (RFC 8414).
    pub fn metadata(&self) -> Value {
        let at = |path: &str| format!("{}/oauth/{path}", self.issuer());
        let scopes: Vec<_> = Scope::ALL.iter().map(Scope::to_string).collect();
        json!({
            "issuer": self.issuer(),
            "authorization_endpoint": at("authorize"),
            "token_endpoint": at("token"),
            "device_authorization_endpoint": at("device/code"),
            "revocation_endpoint": at("revoke"),
            "userinfo_endpoint": at("userinfo"),
            "jwks_uri": at("jwks"),
            "scopes_supported": scopes,
            "response_types_supported": ["code"],
            "response_modes_supported": ["query"],
            "grant_types_supported": ["authorization_code", "client_credentials", "refresh_token", DEVICE_GRANT],
            "token_endpoint_auth_methods_supported": ["client_secret_basic", "client_secret_post", "none"],
            "revocation_endpoint_auth_methods_supported": ["client_secret_basic", "client_secret_post", "none"],
            "code_challenge_methods_supported": ["S256"],
            "authorization_response_iss_parameter_supported": true,
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["EdDSA"],
        })
    }

    /// Returns who the caller is, for the userinfo endpoint.
    pub async fn user_info(&self, who: &Identity) -> Result<Value, store::Error> {
        let Subject::User(id) = who.subject.clone() else {
            return Ok(json!({"sub": who.subject.as_str(), "name": who.name}));
        };
        let user = self.store().read(move |tx| users::find(tx, &id)).await?;
        Ok(user.map_or_else(
            || json!({"sub": who.subject.as_str()}),
            |user| {
                json!({
                    "sub": user.id, "email": user.email, "email_verified": user.is_proven(),
                    "given_name": user.given_name, "family_name": user.family_name,
                })
            },
        ))
    }
}
