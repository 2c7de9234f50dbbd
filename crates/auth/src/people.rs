//! The people of a workspace: members and those invited.

use crate::workspaces::{self, keep_an_admin};
use crate::{Error, Member, Role};
use store::Tx;
pub use store::identity::invitations::Invitation;
use store::identity::users::{User, normal_email};
use store::identity::{
    invitations, members, service_accounts, users, workspaces as stored_workspaces,
};
use types::Timestamp;
use types::ids::{InvitationId, ServiceAccountId};
use types::wire::UserSource;

/// How long an invitation can be accepted.
const INVITED_FOR_S: i64 = 7 * 24 * 3600;
/// Most members and invitations of one workspace.
const PER_WORKSPACE_MAX: usize = 1000;
const EMAIL_MAX: usize = 254;

/// An entry in the list of a workspace's people.
#[derive(Debug, Clone)]
pub enum Person {
    Member {
        user: User,
        role: Role,
        source: Option<UserSource>,
    },
    Invited(Invitation),
    /// Only in the answer to a change of its role; service accounts have lists of their own.
    ServiceAccount {
        id: ServiceAccountId,
        name: String,
        role: Role,
    },
}

/// Checks that a text can be an email address, and normalizes it. Only an answer from there would
/// prove that it exists.
pub fn check_email(email: &str) -> Result<String, Error> {
    let email = normal_email(email);
    let fits = email.len() <= EMAIL_MAX
        && email.split_once('@').is_some_and(|(local, domain)| {
            !local.is_empty() && types::parts::names::is_dns_name(domain)
        })
        && !email.contains(|letter: char| letter.is_whitespace() || letter.is_control());
    if fits { Ok(email) } else { Err(Error::invalid("email", "must be an email address")) }
}

pub fn list(tx: &mut Tx<'_>, member: &Member) -> Result<Vec<Person>, Error> {
    let present = members::list(tx, &member.workspace)?.into_iter();
    let mut people: Vec<_> = present
        .map(|found| Person::Member { user: found.user, role: found.role, source: found.source })
        .collect();
    people.extend(invitations::list(tx, &member.workspace)?.into_iter().map(Person::Invited));
    Ok(people)
}

/// Invites somebody. Inviting the same address again renews the invitation.
pub fn invite(
    tx: &mut Tx<'_>,
    member: &Member,
    email: &str,
    role: Role,
) -> Result<Invitation, Error> {
    member.admin()?;
    let email = check_email(email)?;
    // One after another: an invitation replaces the one before.
    stored_workspaces::lock(tx, &member.workspace)?;
    workspaces::keep(tx, member)?;
    let belongs = match users::find_by_email(tx, &email)? {
        Some(user) => members::role(tx, &member.workspace, &user.id)?.is_some(),
        None => false,
    };
    if belongs {
        return Err(Error::Exists(format!("{email} belongs to the workspace already")));
    }
    if let Some(before) = invitations::find(tx, &member.workspace, &email)? {
        invitations::delete(tx, &before, &member.who.name)?;
    }
    if list(tx, member)?.len() >= PER_WORKSPACE_MAX {
        return Err(Error::TooMany { what: "members and invitations", limit: PER_WORKSPACE_MAX });
    }
    let now = tx.world().now();
    let invitation = Invitation {
        id: InvitationId::new(tx.world()),
        workspace: member.workspace.clone(),
        email,
        role,
        invited_by: member.who.name.clone(),
        created_at: now,
        expires_at: expires_at(now),
    };
    invitations::create(tx, &invitation)?;
    Ok(invitation)
}

fn expires_at(now: Timestamp) -> Timestamp {
    now.plus_s(INVITED_FOR_S)
}

/// Changes the role of a member, an invited person or a service account, named by `sub` or address.
pub fn set_role(
    tx: &mut Tx<'_>,
    member: &Member,
    sub_or_email: &str,
    role: Role,
) -> Result<Person, Error> {
    member.admin()?;
    let by = member.who.name.as_str();
    match find(tx, member, sub_or_email)? {
        Person::Member { user, source, .. } => {
            if role != Role::Admin {
                keep_an_admin(tx, &member.workspace, &user.id)?;
            }
            members::set_role(tx, &member.workspace, &user.id, role, by)?;
            Ok(Person::Member { user, role, source })
        }
        Person::Invited(invitation) => {
            invitations::set_role(tx, &invitation, role, by)?;
            Ok(Person::Invited(Invitation { role, ..invitation }))
        }
        Person::ServiceAccount { id, name, .. } => {
            crate::service_accounts::set_role(tx, member, &id, role)?;
            Ok(Person::ServiceAccount { id, name, role })
        }
    }
}

/// Removes a member or withdraws an invitation.
pub fn remove(tx: &mut Tx<'_>, member: &Member, sub_or_email: &str) -> Result<(), Error> {
    member.admin()?;
    let by = member.who.name.as_str();
    match find(tx, member, sub_or_email)? {
        Person::Member { user, .. } => {
            keep_an_admin(tx, &member.workspace, &user.id)?;
            members::remove(tx, &member.workspace, &user.id, by)?;
        }
        Person::Invited(invitation) => invitations::delete(tx, &invitation, by)?,
        // Service accounts have an operation of their own, which also ends their keys.
        Person::ServiceAccount { .. } => return Err(Error::not_found("user", sub_or_email)),
    }
    Ok(())
}

fn find(tx: &mut Tx<'_>, member: &Member, sub_or_email: &str) -> Result<Person, Error> {
    let email = normal_email(sub_or_email);
    let named = |user: &User| user.id.as_str() == sub_or_email || user.email == email;
    if let Some(found) =
        members::list(tx, &member.workspace)?.into_iter().find(|found| named(&found.user))
    {
        return Ok(Person::Member { user: found.user, role: found.role, source: found.source });
    }
    if let Some(invitation) = invitations::find(tx, &member.workspace, &email)? {
        return Ok(Person::Invited(invitation));
    }
    let id = ServiceAccountId::known(sub_or_email);
    match service_accounts::find(tx, &member.workspace, &id)? {
        Some(account) => Ok(Person::ServiceAccount { id, name: account.name, role: account.role }),
        None => Err(Error::not_found("user", sub_or_email)),
    }
}
