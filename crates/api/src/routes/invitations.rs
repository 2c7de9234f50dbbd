//! The caller's own invitations.

use crate::http::call::{Call, Person};
use crate::http::error::Error;
use crate::http::reply::Reply;
use auth::invitations::{self, Received};
use store::Tx;
use types::wire::{
    Message, PendingInvitationAccept, PendingInvitationRender, PendingInvitationRenderAccount,
    PendingInvitationRenderInvitedBy, PendingInvitationRenderWorkspace,
    PendingInvitationWorkspaceDetails, Workspace,
};

fn shown(received: Received) -> PendingInvitationRender {
    let Received { invitation, workspace, account_name, members } = received;
    let emails = members
        .iter()
        .map(|email| [("email".to_owned(), email.as_str().into())].into_iter().collect());
    PendingInvitationRender {
        account: Some(PendingInvitationRenderAccount {
            display_name: Some(account_name),
            id: Some(workspace.account.to_string()),
        }),
        email: Some(invitation.email),
        expires_at: Some(invitation.expires_at),
        invitation_id: Some(invitation.id.to_string()),
        invited_at: Some(invitation.created_at),
        invited_by: Some(PendingInvitationRenderInvitedBy {
            email: Some(invitation.invited_by),
            ..Default::default()
        }),
        role: Some(invitation.role),
        kind: Some("workspace".into()),
        workspace: Some(PendingInvitationRenderWorkspace {
            display_name: Some(workspace.display_name),
            name: Some(workspace.name),
        }),
        workspace_details: Some(PendingInvitationWorkspaceDetails {
            user_number: Some(members.len() as f64),
            emails: Some(emails.collect()),
        }),
    }
}

pub(crate) async fn list(call: Call<Person>) -> Result<Reply<Vec<PendingInvitationRender>>, Error> {
    let who = call.who.0.clone();
    let received = call.app.store.read(move |tx| invitations::list(tx, &who)).await?;
    Ok(Reply::of(&received.into_iter().map(shown).collect::<Vec<_>>()))
}

pub(crate) async fn accept(call: Call<Person>) -> Result<Reply<PendingInvitationAccept>, Error> {
    let (who, id) = (call.who.0.clone(), call.path.name().to_owned());
    let email = who.name.clone();
    let work = move |tx: &mut Tx<'_>| invitations::accept(tx, &who, &id);
    let (workspace, _) = call.app.auth.change(work).await?;
    let workspace = Workspace {
        name: Some(workspace.name),
        display_name: Some(workspace.display_name),
        id: Some(workspace.id.to_string()),
        status: Some(workspace.status),
        ..Workspace::default()
    };
    Ok(Reply::of(&PendingInvitationAccept { email: Some(email), workspace: Some(workspace) }))
}

pub(crate) async fn decline(call: Call<Person>) -> Result<Reply<Message>, Error> {
    let (who, id) = (call.who.0.clone(), call.path.name().to_owned());
    call.app.auth.change(move |tx| invitations::decline(tx, &who, &id)).await?;
    Ok(Reply::of(&Message { message: "the invitation is declined".into() }))
}
