//! Callers, and the workspace in which they act.

use crate::{Denied, ScopeSet, roles};
use std::sync::Arc;
use store::Tx;
use store::identity::api_keys::{self, ApiKey};
use store::identity::{Role, Subject, accounts, members, service_accounts, users, workspaces};
use types::Scope;
use types::ids::{AccountId, ApiKeyId, UserId, WorkspaceId};
use types::models::ModelRight;

/// A caller with valid credentials.
#[derive(Debug, Clone)]
pub struct Identity {
    pub subject: Subject,
    /// Email address, or name of the service account. Used as `createdBy`.
    pub name: String,
    pub grant: Grant,
    /// Id of the API key that was sent, if it was one.
    pub key: Option<ApiKeyId>,
    /// Right of a key that is for models only. [`Auth::identify`] refuses such keys.
    ///
    /// [`Auth::identify`]: crate::Auth::identify
    pub models: Option<Arc<ModelRight>>,
    pub memberships: Vec<Membership>,
    pub administers: Vec<AccountId>,
}

/// What the credentials allow, before the role is considered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grant {
    /// An API key, which has every scope.
    Key,
    Token(ScopeSet),
}

#[derive(Debug, Clone)]
pub struct Membership {
    pub workspace: WorkspaceId,
    pub workspace_name: String,
    pub account: AccountId,
    pub plan: String,
    pub role: Role,
}

/// A caller in one of the workspaces that it belongs to.
#[derive(Debug, Clone)]
pub struct Member {
    pub who: Arc<Identity>,
    pub workspace: WorkspaceId,
    pub workspace_name: String,
    pub account: AccountId,
    pub plan: String,
    pub role: Role,
}

impl Identity {
    /// Returns the identity of the server itself, for actions that nobody requested.
    pub fn system() -> Self {
        Self {
            subject: Subject::User(UserId::known("system")),
            name: "holm".into(),
            grant: Grant::Key,
            key: None,
            models: None,
            memberships: Vec::new(),
            administers: Vec::new(),
        }
    }

    /// Returns the id under which requests and connections are counted: the key's, or that of the
    /// person behind a token.
    pub fn holder(&self) -> &str {
        self.key.as_ref().map_or(self.subject.as_str(), ApiKeyId::as_str)
    }

    /// Checks that the credentials have all of `scopes`. Where roles matter, use [`Member::may`].
    pub fn may(&self, scopes: &[Scope]) -> Result<(), Denied> {
        let Grant::Token(held) = self.grant else { return Ok(()) };
        match scopes.iter().find(|scope| !held.satisfies(**scope)) {
            None => Ok(()),
            Some(needed) => Err(Denied::Scope { needed: *needed }),
        }
    }

    /// Refuses tokens that are limited to some scopes. Needed to make other credentials: they have
    /// all scopes and outlive the token, so they would free its holder from the limit.
    pub fn unlimited(&self) -> Result<(), Denied> {
        self.may(&[Scope::Admin]).map_err(|_| Denied::LimitedToken)
    }

    pub fn administers(&self, account: &AccountId) -> bool {
        self.administers.contains(account)
    }

    /// Returns the person behind the credentials; refuses service accounts.
    pub fn person(&self) -> Result<&UserId, Denied> {
        match &self.subject {
            Subject::User(user) => Ok(user),
            Subject::ServiceAccount(_) => Err(Denied::NotPerson),
        }
    }

    /// Selects the workspace: the named one, or the only one.
    pub fn enter(self: &Arc<Self>, workspace: Option<&str>) -> Result<Member, Denied> {
        let found = match (workspace, self.memberships.as_slice()) {
            (Some(name), all) => all
                .iter()
                .find(|membership| membership.workspace_name == name)
                .ok_or_else(|| Denied::NotMember { workspace: name.to_owned() })?,
            (None, [only]) => only,
            (None, []) => return Err(Denied::NoWorkspace),
            (None, all) => {
                let names =
                    all.iter().map(|membership| membership.workspace_name.clone()).collect();
                return Err(Denied::ManyWorkspaces { names });
            }
        };
        let Membership { workspace, workspace_name, account, plan, role } = found.clone();
        Ok(Member { who: self.clone(), workspace, workspace_name, account, plan, role })
    }

    /// Selects a workspace that was entered before. Another one may have taken its name meanwhile.
    pub fn enter_again(
        self: &Arc<Self>,
        workspace: &WorkspaceId,
        name: &str,
    ) -> Result<Member, Denied> {
        let member = self.enter(Some(name))?;
        match member.workspace == *workspace {
            true => Ok(member),
            false => Err(Denied::NotMember { workspace: name.to_owned() }),
        }
    }
}

impl Member {
    /// Checks that both credentials and role allow all of `scopes`.
    pub fn may(&self, scopes: &[Scope]) -> Result<(), Denied> {
        self.who.may(scopes)?;
        let allowed = scopes.iter().all(|scope| roles::allows(self.role, *scope));
        if allowed { Ok(()) } else { Err(Denied::Role { needed: Role::Admin }) }
    }

    /// Refuses callers who are not admins of the workspace.
    pub fn admin(&self) -> Result<(), Denied> {
        match self.role {
            Role::Admin => Ok(()),
            Role::Member => Err(Denied::Role { needed: Role::Admin }),
        }
    }
}

/// Returns true if somebody still belongs to a workspace, and the key that was used is still valid.
/// For actions that were allowed earlier and happen now.
pub fn is_still_member(
    tx: &mut Tx<'_>,
    subject: &Subject,
    key: Option<&ApiKeyId>,
    workspace: &WorkspaceId,
) -> Result<bool, store::Error> {
    if let Some(id) = key {
        let now = tx.world().now();
        let good = |key: ApiKey| key.expires_at.is_none_or(|end| end > now);
        if !api_keys::find(tx, id)?.is_some_and(good) {
            return Ok(false);
        }
    }
    let identity = load(tx, subject, Grant::Key, key.cloned())?;
    let inside = |membership: &Membership| membership.workspace == *workspace;
    Ok(identity.is_some_and(|identity| identity.memberships.iter().any(inside)))
}

/// Loads the identity of a subject; `None` if it no longer exists.
pub(crate) fn load(
    tx: &mut Tx<'_>,
    subject: &Subject,
    grant: Grant,
    key: Option<ApiKeyId>,
) -> Result<Option<Identity>, store::Error> {
    let (name, memberships, administers) = match subject {
        Subject::User(id) => {
            let Some(user) = users::find(tx, id)? else { return Ok(None) };
            let places = members::of_user(tx, id)?;
            let memberships = places
                .into_iter()
                .map(|(workspace, role)| membership(tx, workspace, role))
                .collect::<Result<_, _>>()?;
            (user.email, memberships, accounts::administered_by(tx, id)?)
        }
        Subject::ServiceAccount(id) => {
            let Some(account) = service_accounts::find_anywhere(tx, id)? else { return Ok(None) };
            let Some(workspace) = workspaces::find_open(tx, &account.workspace)? else {
                return Ok(None);
            };
            (account.name, vec![membership(tx, workspace, account.role)?], Vec::new())
        }
    };
    let subject = subject.clone();
    Ok(Some(Identity { subject, name, grant, key, models: None, memberships, administers }))
}

fn membership(
    tx: &mut Tx<'_>,
    workspace: workspaces::Workspace,
    role: Role,
) -> Result<Membership, store::Error> {
    let account = accounts::get(tx, &workspace.account)?;
    Ok(Membership {
        workspace: workspace.id,
        workspace_name: workspace.name,
        account: workspace.account,
        plan: account.plan,
        role,
    })
}
