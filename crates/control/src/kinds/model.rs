//! Model APIs.

use crate::context::Context;
use crate::engine::{Draft, Held, Managed};
use crate::error::{Conflict, Error};
use crate::models::route::{self, of_integration};
use crate::placement_policies;
use ::models::catalogue::catalogue;
use regex::RegexBuilder;
use store::Tx;
use types::kinds::model::ModelSpec;
use types::kinds::policy::PolicyResourceType;
use types::kinds::{IntegrationConnection, Model};
use types::parts::limits::MODEL_PATTERN_BYTES_MAX;
use types::{Kind, KindName, Problems};

impl Managed for Model {
    fn url(context: &Context, held: &Held<Self>) -> Option<String> {
        Some(super::inference_url(context, Self::NAME, &held.row.name, None))
    }

    fn prepare(
        context: &Context,
        tx: &mut Tx<'_>,
        draft: &mut Draft<'_, Self>,
    ) -> Result<(), Error> {
        let spec = &draft.wish.spec;
        let mut problems = Problems::default();
        check_patterns(spec, &mut problems);
        check_connections(context, tx, spec, &mut problems)?;
        problems.into_result()?;
        let policies = spec.policies.as_deref().unwrap_or_default();
        let what = placement_policies::Placed {
            resource: Some(PolicyResourceType::Model),
            region: None,
            flavors: spec.flavors.as_deref().unwrap_or_default(),
        };
        match draft.wish.enabled() {
            true => placement_policies::require(context, tx, policies, what),
            false => Ok(()),
        }
    }

    fn require_unused(context: &Context, tx: &mut Tx<'_>, held: &Held<Self>) -> Result<(), Error> {
        let users = route::users(context, tx, (KindName::Model, &held.row.name))?;
        match users.into_iter().next() {
            Some(user) => Err(Conflict::ModelUsed { model: user.row.name }.into()),
            None => Ok(()),
        }
    }
}

/// Checks the patterns for requests and answers. Their size is limited, so that matching takes
/// limited time; the edge limits the time as well.
fn check_patterns(spec: &ModelSpec, problems: &mut Problems) {
    let hooks = spec.hooks.iter().flatten().enumerate().filter_map(|(index, hook)| {
        Some((format!("spec.hooks[{index}].pattern"), hook.pattern.as_ref()?))
    });
    let redact = spec.request_log.iter().filter_map(|log| log.redact.as_ref()).flatten();
    let redact = redact
        .enumerate()
        .map(|(index, pattern)| (format!("spec.requestLog.redact[{index}]"), pattern));
    for (field, pattern) in hooks.chain(redact) {
        let read = RegexBuilder::new(pattern).size_limit(MODEL_PATTERN_BYTES_MAX).build();
        let why = match read {
            Ok(_) if pattern.is_empty() => "is empty".to_owned(),
            Ok(_) => continue,
            Err(regex::Error::CompiledTooBig(_)) => "is too large a pattern".to_owned(),
            Err(error) => {
                let text = error.to_string();
                let reason = text.lines().last().unwrap_or_default();
                format!("is no regular expression: {}", reason.trim_start_matches("error: "))
            }
        };
        problems.add(field, why);
    }
}

/// Checks that the connection which gives a model its credentials is to the model's provider.
fn check_connections(
    context: &Context,
    tx: &mut Tx<'_>,
    spec: &ModelSpec,
    problems: &mut Problems,
) -> Result<(), Error> {
    let names = spec.integration_connections.as_deref().unwrap_or_default();
    let kind = spec.runtime.as_ref().and_then(|runtime| runtime.kind);
    let (mut has_test, sandbox) = (false, spec.sandbox == Some(true));
    for (index, name) in names.iter().enumerate() {
        // It existed once, or the references would have been refused, but is gone by now.
        let Some(held) = Held::<IntegrationConnection>::find(context, tx, &[], name)? else {
            continue;
        };
        let tests = held.wish.spec.sandbox == Some(true);
        has_test |= tests;
        let serves = if sandbox { tests } else { index == 0 };
        let integration = held.wish.spec.integration.as_deref().unwrap_or_default();
        let field = format!("spec.integrationConnections[{index}]");
        match kind {
            _ if !serves => {}
            Some(kind) if !catalogue().fits(integration, kind) => problems.add(
                field,
                format!("is to `{integration}`, which does not answer for `spec.runtime.type`"),
            ),
            None if of_integration(integration).is_none() => {
                problems.add(field, format!("is to `{integration}`, which has no models"));
            }
            Some(_) | None => {}
        }
    }
    let rule = "needs a connection whose `spec.sandbox` is set, which has the test credentials";
    problems.require(!sandbox || has_test || names.is_empty(), "spec.sandbox", rule);
    Ok(())
}
