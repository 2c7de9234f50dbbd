//! The members of a workspace.

use crate::http::call::{Body, Call};
use crate::http::error::Error;
use crate::http::malformed::Malformed;
use crate::http::query::NoQuery;
use crate::http::reply::Reply;
use auth::people::{self, Invitation, Person};
use auth::{Member, invitations};
use store::Tx;
use types::Timestamp;
use types::parts::{Sensitive, Stamped};
use types::wire::{InviteUserRequest, Message, PendingInvitation, UserRoleRequest, WorkspaceUser};

fn shown(person: Person, now: Timestamp) -> WorkspaceUser {
    match person {
        Person::Member { user, role, source } => WorkspaceUser {
            accepted: Some(true),
            email_verified: Some(user.is_proven()),
            email: Some(user.email),
            family_name: Some(user.family_name),
            given_name: Some(user.given_name),
            role: Some(role),
            source,
            sub: Some(user.id.to_string()),
            ..WorkspaceUser::default()
        },
        Person::Invited(invitation) => WorkspaceUser {
            accepted: Some(false),
            expired: Some(invitation.expired(now)),
            email: Some(invitation.email),
            role: Some(invitation.role),
            ..WorkspaceUser::default()
        },
        Person::ServiceAccount { id, role, .. } => WorkspaceUser {
            accepted: Some(true),
            role: Some(role),
            sub: Some(id.to_string()),
            ..WorkspaceUser::default()
        },
    }
}

pub(crate) async fn list(call: Call<Member>) -> Result<Reply<Vec<WorkspaceUser>>, Error> {
    let (member, now) = (call.who.clone(), call.app.world.now());
    let people = call.app.store.read(move |tx| people::list(tx, &member)).await?;
    Ok(Reply::of(&people.into_iter().map(|person| shown(person, now)).collect::<Vec<_>>()))
}

pub(crate) async fn invite(
    call: Call<Member, NoQuery, Body<InviteUserRequest>>,
) -> Result<Reply<PendingInvitation>, Error> {
    let (member, asked) = (call.who.clone(), call.body.0.clone());
    let email = asked.email.ok_or(Malformed::Required("email"))?;
    let (role, issuer) = (asked.role.unwrap_or_default(), call.app.auth.issuer().to_owned());
    let reply = call
        .once(move |tx| {
            let invitation = people::invite(tx, &member, &email, role)?;
            // Whoever has the link can join with all rights of the role, which would free the holder
            // of a limited token from the limit.
            let unlimited = member.who.unlimited().is_ok();
            let link = unlimited.then(|| invitations::link(&issuer, &invitation));
            Ok::<_, Error>(pending(invitation, &member.workspace_name, link))
        })
        .await;
    call.app.auth.forget();
    reply
}

fn pending(invitation: Invitation, workspace: &str, link: Option<String>) -> PendingInvitation {
    PendingInvitation {
        email: Some(invitation.email),
        expires_at: Some(invitation.expires_at),
        invited_by: Some(invitation.invited_by.clone()),
        link: link.map(Sensitive),
        role: Some(invitation.role),
        stamped: Stamped {
            created_at: Some(invitation.created_at),
            updated_at: Some(invitation.created_at),
            created_by: Some(invitation.invited_by.clone()),
            updated_by: Some(invitation.invited_by),
            workspace: Some(workspace.to_owned()),
        },
    }
}

pub(crate) async fn change_role(
    call: Call<Member, NoQuery, Body<UserRoleRequest>>,
) -> Result<Reply<WorkspaceUser>, Error> {
    let (member, name, role, now) =
        (call.who.clone(), call.path.name().to_owned(), call.body.0.role, call.app.world.now());
    let work = move |tx: &mut Tx<'_>| people::set_role(tx, &member, &name, role);
    Ok(Reply::of(&shown(call.app.auth.change(work).await?, now)))
}

pub(crate) async fn remove(call: Call<Member>) -> Result<Reply<Message>, Error> {
    let (member, name) = (call.who.clone(), call.path.name().to_owned());
    call.app.auth.change(move |tx| people::remove(tx, &member, &name)).await?;
    Ok(Reply::of(&Message { message: "removed from the workspace".into() }))
}
