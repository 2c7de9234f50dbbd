//! Revocation (RFC 7009): ending one token ends the whole sign-in.

use super::client::Credentials;
use super::token::check_owner;
use super::{Fault, Params};
use crate::{Auth, jwt};
use store::identity::{Digest, grants};

impl Auth {
    /// Revokes the grant of a refresh or access token. A text that is not one of our tokens needs
    /// no revoking.
    pub async fn revoke(&self, params: Params, authorization: Option<&str>) -> Result<(), Fault> {
        let credentials = Credentials::read(&params, authorization)?;
        let token = params.need("token")?.to_owned();
        let claimed = self.verified_grant(&token);
        self.change(move |tx| {
            let grant = match grants::lock_refresh(tx, &Digest::of(&token))? {
                Some(refresh) => Some(refresh.grant),
                None => claimed.as_ref().map(|id| grants::find(tx, id)).transpose()?.flatten(),
            };
            if let Some(grant) = grant {
                check_owner(tx, &grant, credentials.as_ref())?;
                grants::delete(tx, &grant.id)?;
            }
            Ok(())
        })
        .await
    }

    fn verified_grant(&self, token: &str) -> Option<types::ids::GrantId> {
        let now = self.world().now();
        let key = self.keys().find(&jwt::key_id(token)?, now)?;
        jwt::verify(token, &key, self.issuer(), now).ok().map(|claims| claims.grant())
    }
}
