//! Who calls the registry, and what the credentials are good for.

use super::error::Refusal;
use super::path::Name;
use crate::app::App;
use crate::http::call::note_sign_in;
use crate::http::error::Error;
use crate::http::headers;
use auth::registry_tokens::{Access, Action, Bond};
use auth::{Denied, Identity, Member, Ticket};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::request::Parts;
use http::{HeaderMap, header};
use std::sync::Arc;
use types::ids::WorkspaceId;
use types::{Scope, Verb};

/// Who sent a request, as far as its credentials say.
pub(super) struct Caller {
    pub(super) app: App,
    pub(super) identity: Arc<Identity>,
    pub(super) shown: Shown,
}

/// The credentials that the caller presented.
pub(super) enum Shown {
    /// A key or an access token, valid for everything that its holder may do.
    Credential(String),
    /// A registry token, valid for what it was issued for.
    Token { access: Vec<Access>, bond: Bond },
}

impl Caller {
    pub(super) async fn of(app: App, parts: &Parts) -> Result<Self, Refusal> {
        let bearer = headers::bearer(&parts.headers);
        let ours = match bearer {
            Some(token) => app.auth.identify_registry(token).await.map_err(Refusal::bad_token)?,
            None => None,
        };
        let (identity, shown) = match ours {
            Some(ours) => (ours.identity, Shown::Token { access: ours.access, bond: ours.bond }),
            None => {
                let credential = bearer.map(str::to_owned);
                let credential = credential.or_else(|| password(&parts.headers));
                let credential = credential.ok_or(Denied::Missing)?;
                (app.auth.identify(&credential).await?, Shown::Credential(credential))
            }
        };
        app.limits.take_key(identity.holder()).map_err(Error::from)?;
        note_sign_in(&parts.extensions, Some(&identity));
        Ok(Self { app, identity, shown })
    }

    pub(super) fn member(
        &self,
        workspace: &str,
        scopes: &'static [Scope],
    ) -> Result<Member, Refusal> {
        let member = self.app.auth.enter(&self.identity, Some(workspace))?;
        self.app.limits.take_workspace(member.workspace.as_str()).map_err(Error::from)?;
        member.may(scopes)?;
        Ok(member)
    }

    /// Like [`member`](Self::member), for something done in a repository: a registry token must
    /// have been issued for it.
    pub(super) fn member_at(
        &self,
        name: &Name,
        scopes: &'static [Scope],
    ) -> Result<Member, Refusal> {
        let given = match &self.shown {
            Shown::Credential(_) => None,
            Shown::Token { access, .. } => {
                let place = given_for(access, name, action(scopes));
                Some(place.ok_or_else(Refusal::beyond_token)?)
            }
        };
        let member = self.member(&name.workspace, scopes)?;
        // Another workspace may have taken over the name.
        if given.is_some_and(|given| *given != member.workspace) {
            return Err(Refusal::beyond_token());
        }
        Ok(member)
    }

    pub(super) fn ticket(&self, member: &Member, scopes: &'static [Scope]) -> Ticket {
        match &self.shown {
            Shown::Credential(credential) => Ticket::new(credential, member, scopes),
            Shown::Token { bond, .. } => Ticket::of_registry(bond, member, scopes),
        }
    }
}

/// Returns the workspace of the repository that a token was issued for, if it covers this action
/// there.
fn given_for<'a>(access: &'a [Access], name: &Name, action: Action) -> Option<&'a WorkspaceId> {
    let name = name.to_string();
    access.iter().find_map(|access| match access {
        Access::Repository { name: known, workspace, actions } => {
            (*known == name && actions.contains(&action)).then_some(workspace)
        }
        Access::Catalog => None,
    })
}

/// Returns the token action for an act with these scopes.
pub(super) fn action(scopes: &[Scope]) -> Action {
    match scopes {
        [Scope::Images(Verb::Create)] => Action::Push,
        [Scope::Images(Verb::Delete)] => Action::Delete,
        _ => Action::Pull,
    }
}

/// Returns the password of Basic authentication, whatever the user name.
fn password(headers: &HeaderMap) -> Option<String> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, encoded) = value.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let decoded = String::from_utf8(STANDARD.decode(encoded.trim()).ok()?).ok()?;
    let (_, password) = decoded.split_once(':')?;
    Some(password.to_owned()).filter(|password| !password.is_empty())
}
