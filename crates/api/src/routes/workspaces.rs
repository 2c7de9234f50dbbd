//! Workspaces.

use crate::http::call::{Body, Call, Person};
use crate::http::error::Error;
use crate::http::malformed::Malformed;
use crate::http::query::{Flag, NoQuery};
use crate::http::reply::{Answer, Reply};
use auth::Member;
use auth::workspaces::{self, Change, NewWorkspace, Settings};
use axum::response::Response;
use control::Context;
use control::context::as_admin;
use control::error::Absent;
use control::{workspace_defaults, workspace_removal};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use store::{Tx, resources};
use types::wire::{Workspace, WorkspaceAvailability, WorkspaceNameRequest};

fn shown(stored: workspaces::Workspace) -> Workspace {
    Workspace {
        name: Some(stored.name),
        display_name: Some(stored.display_name),
        account_id: Some(stored.account.to_string()),
        group_mappings: stored.settings.group_mappings,
        hipaa_info: stored.settings.hipaa_info,
        labels: Some(stored.labels),
        region: stored.region,
        runtime: stored.settings.runtime,
        id: Some(stored.id.to_string()),
        resource_counts: None,
        status: Some(stored.status),
        status_reason: None,
        created_at: Some(stored.created_at),
        updated_at: Some(stored.updated_at),
        created_by: Some(stored.created_by),
        updated_by: Some(stored.updated_by),
    }
}

pub(crate) async fn list(call: Call<Person>) -> Result<Reply<Vec<Workspace>>, Error> {
    let who = call.who.0.clone();
    let found = call.app.store.read(move |tx| workspaces::list(tx, &who)).await?;
    Ok(Reply::of(&found.into_iter().map(shown).collect::<Vec<_>>()))
}

pub(crate) async fn create(
    call: Call<Person, NoQuery, Body<Workspace>>,
) -> Result<Reply<Workspace>, Error> {
    let (control, who, wish) =
        (call.app.control().clone(), call.who.0.clone(), call.body.0.clone());
    let name = wish.name.clone().ok_or(Malformed::Required("name"))?;
    let new = NewWorkspace {
        name,
        display_name: wish.display_name,
        labels: wish.labels.unwrap_or_default(),
        settings: Settings {
            runtime: wish.runtime,
            group_mappings: wish.group_mappings,
            hipaa_info: wish.hipaa_info,
        },
        region: wish.region,
        account: wish.account_id.map(types::ids::AccountId::known),
    };
    let reply = call
        .once(move |tx| {
            let made = workspaces::create(tx, &who, new.clone())?;
            let context = Context { control: control.clone(), member: as_admin(&who, &made) };
            context.require_region(made.region.as_deref(), "region")?;
            workspace_defaults::create_missing(&context, tx)?;
            Ok::<_, Error>(shown(made))
        })
        .await;
    call.app.auth.forget();
    reply
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AvailabilityQuery {
    /// Whether to answer with an object that contains the reason.
    #[serde(default)]
    pub with_reason: Flag,
}

/// Either just whether the name is free, or also the reason.
pub(crate) enum Availability {
    Bare(bool),
    Reasoned(WorkspaceAvailability),
}

impl Answer for Availability {
    fn into_response(self) -> Response {
        match self {
            Self::Bare(free) => Reply::of(&free).into_response(),
            Self::Reasoned(answer) => Reply::of(&answer).into_response(),
        }
    }

    fn describe(generator: &mut SchemaGenerator) -> Vec<(u16, Option<Schema>)> {
        let reasoned = generator.subschema_for::<WorkspaceAvailability>();
        vec![(200, Some(json_schema!({"oneOf": [{"type": "boolean"}, reasoned]})))]
    }
}

pub(crate) async fn availability(
    call: Call<Person, AvailabilityQuery, Body<WorkspaceNameRequest>>,
) -> Result<Availability, Error> {
    let name = call.body.0.name.clone();
    let refusal = call.app.store.read(move |tx| workspaces::refusal(tx, &name)).await?;
    Ok(match call.query.with_reason.0 {
        false => Availability::Bare(refusal.is_none()),
        true => Availability::Reasoned(WorkspaceAvailability {
            available: refusal.is_none(),
            message: refusal.map(|reason| format!("the name {}", workspaces::reason_text(reason))),
            reason: refusal,
        }),
    })
}

/// Returns the caller as a member of the workspace in the path. Only here are the needed scopes
/// checked.
fn enter<Q, B>(call: &Call<Person, Q, B>) -> Result<Member, Error> {
    let member =
        call.app.auth.enter(&call.who.0, Some(call.path.at(0))).map_err(|denied| match denied {
            // The workspace of a stranger counts as missing.
            auth::Denied::NotMember { workspace } => {
                Error::from(Absent::Workspace { name: workspace })
            }
            other => other.into(),
        })?;
    member.may(call.needs.scopes())?;
    Ok(member)
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CountQuery {
    /// Whether to add the number of objects of each kind.
    #[serde(default)]
    pub count_resources: Flag,
}

pub(crate) async fn get(call: Call<Person, CountQuery>) -> Result<Reply<Workspace>, Error> {
    let (member, count) = (enter(&call)?, call.query.count_resources.0);
    let work = move |tx: &mut Tx<'_>| {
        let mut workspace = shown(workspaces::get(tx, &member)?);
        if count {
            let counts = resources::counts(tx, &member.workspace)?;
            workspace.resource_counts = Some(
                counts.into_iter().map(|(kind, count)| (kind.plural().to_owned(), count)).collect(),
            );
        }
        Ok::<_, Error>(workspace)
    };
    Ok(Reply::of(&call.app.store.read(work).await?))
}

pub(crate) async fn update(
    call: Call<Person, NoQuery, Body<Workspace>>,
) -> Result<Reply<Workspace>, Error> {
    let (member, wish) = (enter(&call)?, call.body.0);
    if wish.name.as_ref().is_some_and(|name| *name != member.workspace_name) {
        return Err(Malformed::NameChanged.into());
    }
    let settings = Settings {
        runtime: wish.runtime,
        group_mappings: wish.group_mappings,
        hipaa_info: wish.hipaa_info,
    };
    let change = Change {
        display_name: Some(wish.display_name.unwrap_or_else(|| member.workspace_name.clone())),
        labels: Some(wish.labels.unwrap_or_default()),
        settings: Some(settings),
    };
    let work = move |tx: &mut Tx<'_>| workspaces::update(tx, &member, change.clone());
    Ok(Reply::of(&shown(call.app.auth.change(work).await?)))
}

/// Removes a workspace with everything in it.
pub(crate) async fn remove(call: Call<Person>) -> Result<Reply<Workspace>, Error> {
    let context = Context { control: call.app.control().clone(), member: enter(&call)? };
    Ok(Reply::of(&shown(workspace_removal::remove(&context).await?)))
}

pub(crate) async fn leave(call: Call<Person>) -> Result<Reply<Workspace>, Error> {
    let member = enter(&call)?;
    let work = move |tx: &mut Tx<'_>| workspaces::leave(tx, &member);
    Ok(Reply::of(&shown(call.app.auth.change(work).await?)))
}
