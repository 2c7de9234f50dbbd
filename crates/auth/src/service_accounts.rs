//! Service accounts: identities of programs, managed by the admins of their workspace.

use crate::{Error, Member, Role, secrets, workspaces};
use store::Tx;
use store::identity::Digest;
use store::identity::service_accounts;
pub use store::identity::service_accounts::ServiceAccount;
use types::ids::{ResourceId, ServiceAccountId};

const PER_WORKSPACE_MAX: usize = 1000;

/// Creates a service account with the role `member`. The second value is its secret, which cannot
/// be read again and gives tokens with all scopes.
pub fn create(
    tx: &mut Tx<'_>,
    member: &Member,
    name: &str,
    description: &str,
) -> Result<(ServiceAccount, String), Error> {
    member.admin()?;
    member.who.unlimited()?;
    workspaces::keep(tx, member)?;
    if service_accounts::list(tx, &member.workspace)?.len() >= PER_WORKSPACE_MAX {
        return Err(Error::TooMany { what: "service accounts", limit: PER_WORKSPACE_MAX });
    }
    let now = tx.world().now();
    let secret = secrets::new_secret(tx.world(), "hs");
    let account = ServiceAccount {
        id: ServiceAccountId::new(tx.world()),
        workspace: member.workspace.clone(),
        workload: None,
        name: name.to_owned(),
        description: description.to_owned(),
        role: Role::Member,
        secret: Digest::of(&secret),
        created_at: now,
        updated_at: now,
        created_by: member.who.name.clone(),
        updated_by: member.who.name.clone(),
    };
    service_accounts::create(tx, &account)?;
    Ok((account, secret))
}

/// Creates the identity of a workload: a member of its workspace that nobody sees or changes. The
/// caller generates the secret and passes it on, and has locked the workload: it is deleted before its
/// workspace.
pub fn create_for(
    tx: &mut Tx<'_>,
    member: &Member,
    (workload, name): (&ResourceId, &str),
    secret: impl FnOnce(&ServiceAccountId) -> String,
) -> Result<ServiceAccountId, store::Error> {
    let (id, now) = (ServiceAccountId::new(tx.world()), tx.world().now());
    let account = ServiceAccount {
        workspace: member.workspace.clone(),
        workload: Some(workload.clone()),
        name: name.to_owned(),
        description: String::new(),
        role: Role::Member,
        secret: Digest::of(&secret(&id)),
        created_at: now,
        updated_at: now,
        created_by: member.who.name.clone(),
        updated_by: member.who.name.clone(),
        id,
    };
    service_accounts::create(tx, &account)?;
    Ok(account.id)
}

/// Deletes the identity of a workload; its tokens stop working immediately.
pub fn delete_of(
    tx: &mut Tx<'_>,
    member: &Member,
    id: &ServiceAccountId,
) -> Result<(), store::Error> {
    service_accounts::delete(tx, &member.workspace, id, &member.who.name).map(drop)
}

pub fn list(tx: &mut Tx<'_>, member: &Member) -> Result<Vec<ServiceAccount>, Error> {
    Ok(service_accounts::list(tx, &member.workspace)?)
}

pub fn get(
    tx: &mut Tx<'_>,
    member: &Member,
    id: &ServiceAccountId,
) -> Result<ServiceAccount, Error> {
    let found = service_accounts::find(tx, &member.workspace, id)?;
    found.ok_or_else(|| Error::not_found("service account", id.as_str()))
}

/// Changes name and description; `None` leaves them as they are.
pub fn update(
    tx: &mut Tx<'_>,
    member: &Member,
    id: &ServiceAccountId,
    name: Option<String>,
    description: Option<String>,
) -> Result<ServiceAccount, Error> {
    change(tx, member, id, |account| {
        account.name = name.unwrap_or_else(|| account.name.clone());
        account.description = description.unwrap_or_else(|| account.description.clone());
    })
}

pub fn set_role(
    tx: &mut Tx<'_>,
    member: &Member,
    id: &ServiceAccountId,
    role: Role,
) -> Result<ServiceAccount, Error> {
    change(tx, member, id, |account| account.role = role)
}

fn change(
    tx: &mut Tx<'_>,
    member: &Member,
    id: &ServiceAccountId,
    apply: impl FnOnce(&mut ServiceAccount),
) -> Result<ServiceAccount, Error> {
    member.admin()?;
    let mut account = get(tx, member, id)?;
    apply(&mut account);
    account.updated_at = tx.world().now();
    account.updated_by = member.who.name.clone();
    service_accounts::update(tx, &account)?;
    Ok(account)
}

/// Removes a service account; its keys and tokens stop working immediately.
pub fn delete(
    tx: &mut Tx<'_>,
    member: &Member,
    id: &ServiceAccountId,
) -> Result<ServiceAccount, Error> {
    member.admin()?;
    let account = get(tx, member, id)?;
    service_accounts::delete(tx, &member.workspace, id, &member.who.name)?;
    Ok(account)
}
