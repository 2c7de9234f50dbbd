//! Invitations, as the invited person sees them.

use crate::{Denied, Error, Identity, Role};
use store::Tx;
pub use store::identity::invitations::Invitation;
use store::identity::users::{self, User};
use store::identity::workspaces::Workspace;
use store::identity::{accounts, invitations, members, workspaces};
use types::ids::{InvitationId, UserId};
use types::wire::UserSource;

/// An invitation with details for its receiver.
#[derive(Debug, Clone)]
pub struct Received {
    pub invitation: Invitation,
    pub workspace: Workspace,
    pub account_name: String,
    pub members: Vec<String>,
}

/// Lists the caller's open invitations, including expired ones. Empty unless the caller's address
/// is proven, because they may be meant for somebody else.
pub fn list(tx: &mut Tx<'_>, who: &Identity) -> Result<Vec<Received>, Error> {
    let user = own(tx, who)?;
    if !user.is_proven() {
        return Ok(Vec::new());
    }
    let found = invitations::list_of_email(tx, &user.email)?;
    found.into_iter().filter_map(|invitation| received(tx, invitation).transpose()).collect()
}

fn received(tx: &mut Tx<'_>, invitation: Invitation) -> Result<Option<Received>, Error> {
    let Some(workspace) = workspaces::find_open(tx, &invitation.workspace)? else {
        return Ok(None);
    };
    let account_name = accounts::get(tx, &workspace.account)?.name;
    let members =
        members::list(tx, &workspace.id)?.into_iter().map(|member| member.user.email).collect();
    Ok(Some(Received { invitation, workspace, account_name, members }))
}

/// Accepts an invitation; `which` is its id or the name of the workspace. The id is the secret part
/// of the invitation's link, so whoever knows it has proven the address for this invitation. Naming
/// the workspace is only enough for people whose address is proven in general.
pub fn accept(tx: &mut Tx<'_>, who: &Identity, which: &str) -> Result<(Workspace, Role), Error> {
    let user = who.person()?.clone();
    let found = find_own(tx, who, which)?;
    accept_for(tx, &user, &found.invitation)?;
    Ok((found.workspace, found.invitation.role))
}

/// Declines an invitation; `which` is its id or the name of the workspace.
pub fn decline(tx: &mut Tx<'_>, who: &Identity, which: &str) -> Result<Received, Error> {
    let found = find_own(tx, who, which)?;
    invitations::delete(tx, &found.invitation, &who.name)?;
    Ok(found)
}

/// Makes the invited person a member, and deletes the invitation.
pub(crate) fn accept_for(
    tx: &mut Tx<'_>,
    user: &UserId,
    invitation: &Invitation,
) -> Result<(), Error> {
    if invitation.expired(tx.world().now()) {
        return Err(Error::InvitationExpired);
    }
    if !workspaces::keep(tx, &invitation.workspace)? {
        return Err(Error::not_found("invitation", invitation.id.as_str()));
    }
    invitations::delete(tx, invitation, &invitation.email)?;
    if members::role(tx, &invitation.workspace, user)?.is_none() {
        let source = Some(UserSource::Invitation);
        members::add(tx, &invitation.workspace, user, invitation.role, source, &invitation.email)?;
    }
    Ok(())
}

/// Returns the invitation to show to an invited person without an account, who has the id from the
/// link.
pub fn open(tx: &mut Tx<'_>, id: &InvitationId) -> Result<Received, Error> {
    let unknown = || Error::not_found("invitation", "of this link");
    let invitation = invitations::find_by_id(tx, id)?.ok_or_else(unknown)?;
    if invitation.expired(tx.world().now()) {
        return Err(Error::InvitationExpired);
    }
    received(tx, invitation)?.ok_or_else(unknown)
}

/// Creates an account for an invited person, who thereby accepts this invitation and no other.
/// `password` is a PHC string.
pub(crate) fn join(
    tx: &mut Tx<'_>,
    id: &InvitationId,
    user: &User,
    password: &str,
) -> Result<Workspace, Error> {
    let found = open(tx, id)?;
    let email = &found.invitation.email;
    let exists = || Error::Exists(format!("{email} has an account already; sign in to accept"));
    if users::find_by_email(tx, email)?.is_some() {
        return Err(exists());
    }
    let user = User { email: email.clone(), ..user.clone() };
    match users::create(tx, &user, Some(password)) {
        // The same form was sent several times at once.
        Err(store::Error::Duplicate { .. }) => return Err(exists()),
        created => created?,
    }
    accept_for(tx, &user.id, &found.invitation)?;
    Ok(found.workspace)
}

/// Returns the address of the page for joining. Whoever has it can accept, so send it to nobody but
/// the invited person.
pub fn link(issuer: &str, invitation: &Invitation) -> String {
    format!("{issuer}/oauth/join?invitation={}", invitation.id)
}

fn find_own(tx: &mut Tx<'_>, who: &Identity, which: &str) -> Result<Received, Error> {
    let user = own(tx, who)?;
    let by_link = invitations::find_by_id(tx, &InvitationId::known(which))?;
    if let Some(invitation) = by_link.filter(|invitation| invitation.email == user.email) {
        return received(tx, invitation)?.ok_or_else(|| Error::not_found("invitation", which));
    }
    if !user.is_proven() {
        // The same error whether or not such an invitation exists.
        return Err(Denied::AddressUnproven.into());
    }
    let found = list(tx, who)?.into_iter().find(|found| found.workspace.name == which);
    found.ok_or_else(|| Error::not_found("invitation", which))
}

fn own(tx: &mut Tx<'_>, who: &Identity) -> Result<User, Error> {
    users::find(tx, who.person()?)?.ok_or_else(|| Error::not_found("user", who.name.as_str()))
}
