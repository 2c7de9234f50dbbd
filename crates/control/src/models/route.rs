//! The routes of models, as they are published to the edge.

use crate::context::Context;
use crate::control::Control;
use crate::engine::{self, Held};
use crate::error::Error;
use crate::workloads::rows;
use ::models::catalogue::catalogue;
use store::Tx;
use store::resources::{self, Query};
use types::edge::RouteChange;
use types::ids::{ResourceId, WorkspaceId};
use types::kinds::model::{ModelSpec, ModelType};
use types::kinds::policy::PolicyResourceType;
use types::kinds::{IntegrationConnection, Model, Policy};
use types::models::{ModelLimit, ModelProvider, ModelRoute};
use types::{Kind, KindName};

/// Most models of one workspace that are searched.
const MODELS_MAX: i64 = 100_000;

/// Returns the route of a model as its rows say; `None` if its workspace is gone.
pub(crate) fn of(
    control: &Control,
    tx: &mut Tx<'_>,
    held: &Held<Model>,
) -> Result<Option<RouteChange>, Error> {
    let Some((context, workspace)) = rows::context(control, tx, &held.row.workspace)? else {
        return Ok(None);
    };
    let (revision, spec) = serving(&context, tx, held)?;
    let (provider, lack) = match provider(&context, tx, &spec)? {
        Ok(provider) => (provider, None),
        Err(lack) => (None, Some(lack)),
    };
    let off = if held.wish.enabled() { lack } else { Some("is disabled".to_owned()) };
    let limits = limits(&context, tx, spec.policies.as_deref().unwrap_or_default())?;
    Ok(Some(RouteChange::Model(Box::new(ModelRoute {
        id: held.row.id.clone(),
        workspace: workspace.id,
        workspace_name: workspace.name,
        name: held.row.name.clone(),
        revision,
        off,
        provider,
        routing: spec.routing.unwrap_or_default(),
        limits,
        cache: spec.cache,
        request_log: spec.request_log.filter(|log| log.enabled == Some(true)),
        hooks: spec.hooks.unwrap_or_default(),
    }))))
}

/// Returns the active revision, which may be older than the wish in the row, and its spec.
fn serving(
    context: &Context,
    tx: &mut Tx<'_>,
    held: &Held<Model>,
) -> Result<(String, ModelSpec), Error> {
    let configuration = held.wish.spec.revision.as_ref();
    let Some(active) = configuration.and_then(|revision| revision.active.clone()) else {
        return Ok((String::new(), held.wish.spec.clone()));
    };
    let kept = engine::wish_of::<Model>(context, tx, &held.row.id, &active)?;
    let spec = kept.map_or_else(|| held.wish.spec.clone(), |kept| kept.spec);
    Ok((active, spec))
}

/// Returns the provider that answers, or why there is none. `None` if other models answer.
fn provider(
    context: &Context,
    tx: &mut Tx<'_>,
    spec: &ModelSpec,
) -> Result<Result<Option<ModelProvider>, String>, Error> {
    if spec.is_virtual() {
        return Ok(Ok(None));
    }
    let held = match connection(context, tx, spec)? {
        Ok(held) => held,
        Err(lack) => return Ok(Err(lack)),
    };
    let runtime = spec.runtime.clone().unwrap_or_default();
    let integration = held.wish.spec.integration.as_deref().unwrap_or_default();
    let Some(kind) = runtime.kind.or_else(|| of_integration(integration)) else {
        let name = &held.row.name;
        let lack = format!("has the connection `{name}` to `{integration}`, which has no models");
        return Ok(Err(lack));
    };
    let opened = engine::opened(context, &held)?;
    let provider = ModelProvider {
        kind,
        model: runtime.model.filter(|model| !model.is_empty()),
        endpoint_name: runtime.endpoint_name.filter(|name| !name.is_empty()),
        organization: runtime.organization.filter(|name| !name.is_empty()),
        connection: Some(held.row.name.clone()),
        config: opened.spec.config.unwrap_or_default(),
        secrets: opened.spec.secret.unwrap_or_default(),
        sandbox: spec.sandbox == Some(true),
    };
    let control = &context.control;
    Ok(match control.models.access.complete(&held.row, provider, &control.world) {
        Ok(provider) => Ok(Some(provider)),
        Err(why) => Err(format!("has the connection `{}`, {why}", held.row.name)),
    })
}

/// Returns the type of models with a connection of this type, for models that do not name it
/// themselves.
pub(crate) fn of_integration(integration: &str) -> Option<ModelType> {
    catalogue().of_integration(integration).map(|(kind, _)| kind)
}

/// Finds the connection that gives the credentials: the first one, or for a model that asks for
/// test credentials the first one that has such.
fn connection(
    context: &Context,
    tx: &mut Tx<'_>,
    spec: &ModelSpec,
) -> Result<Result<Held<IntegrationConnection>, String>, Error> {
    let names = spec.integration_connections.as_deref().unwrap_or_default();
    let Some(first) = names.first() else {
        let lack =
            "has neither a connection to a provider nor targets; set `spec.integrationConnections`";
        return Ok(Err(lack.to_owned()));
    };
    if spec.sandbox != Some(true) {
        let found = Held::<IntegrationConnection>::find(context, tx, &[], first)?;
        return Ok(found.ok_or_else(|| format!("lacks its connection `{first}`, which is gone")));
    }
    for name in names {
        let found = Held::<IntegrationConnection>::find(context, tx, &[], name)?;
        if let Some(held) = found.filter(|held| held.wish.spec.sandbox == Some(true)) {
            return Ok(Ok(held));
        }
    }
    let lack = "asks for test credentials, and none of its connections has `spec.sandbox` set";
    Ok(Err(lack.to_owned()))
}

/// Returns the limits of the policies that a model names. A policy that is gone limits nothing.
fn limits(
    context: &Context,
    tx: &mut Tx<'_>,
    policies: &[String],
) -> Result<Vec<ModelLimit>, Error> {
    let mut limits = Vec::new();
    for name in policies {
        let Some(held) = Held::<Policy>::find(context, tx, &[], name)? else { continue };
        if held.wish.spec.concerns(PolicyResourceType::Model) {
            limits.extend(held.wish.spec.model_limits(held.row.id.as_str(), name));
        }
    }
    limits.dedup();
    Ok(limits)
}

/// Returns the provider of a connection alone, without a model's settings, to ask the provider
/// itself.
pub(super) fn bare_provider(
    context: &Context,
    held: &Held<IntegrationConnection>,
) -> Result<Result<ModelProvider, String>, Error> {
    let integration = held.wish.spec.integration.as_deref().unwrap_or_default();
    let Some(kind) = of_integration(integration) else {
        return Ok(Err(format!("is to `{integration}`, which has no models")));
    };
    let opened = engine::opened(context, held)?;
    let provider = ModelProvider {
        kind,
        model: None,
        endpoint_name: None,
        organization: None,
        connection: Some(held.row.name.clone()),
        config: opened.spec.config.unwrap_or_default(),
        secrets: opened.spec.secret.unwrap_or_default(),
        sandbox: held.wish.spec.sandbox == Some(true),
    };
    let control = &context.control;
    Ok(control.models.access.complete(&held.row, provider, &control.world))
}

/// Returns the models that serve with a connection or a policy, whose routes change with it. The
/// revision that serves may be older than the one whose references are kept.
pub(crate) fn models_with(
    control: &Control,
    tx: &mut Tx<'_>,
    workspace: &WorkspaceId,
    (kind, name): (KindName, &str),
) -> Result<Vec<ResourceId>, Error> {
    let Some((context, _)) = rows::context(control, tx, workspace)? else { return Ok(Vec::new()) };
    Ok(users(&context, tx, (kind, name))?.into_iter().map(|held| held.row.id).collect())
}

/// Returns the models that name something, either in their row or in the revision that serves.
pub(crate) fn users(
    context: &Context,
    tx: &mut Tx<'_>,
    (kind, name): (KindName, &str),
) -> Result<Vec<Held<Model>>, Error> {
    let workspace = &context.member.workspace;
    let query = Query { limit: MODELS_MAX, ..Query::new(workspace, KindName::Model, None) };
    let mut found = Vec::new();
    for row in resources::list(tx, &query)? {
        let held = Held::<Model>::read(row)?;
        let (_, spec) = serving(context, tx, &held)?;
        let named =
            |wish: &Model| wish.references().iter().any(|to| to.kind == kind && to.name == name);
        if named(&held.wish) || named(&Model { spec, ..held.wish.clone() }) {
            found.push(held);
        }
    }
    Ok(found)
}
