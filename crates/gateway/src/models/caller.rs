//! Decides who may use a model, taking the key from whatever slot the client of a provider puts it
//! into.

use super::served::Served;
use crate::context::Context;
use crate::credentials;
use crate::guard::{Caller, Refused};
use crate::problem::Problem;
use crate::query;
use crate::routes::Routes;
use http::HeaderMap;
use http::request::Parts as Head;
use std::borrow::Cow;
use std::sync::Arc;
use types::KindName;

/// Headers in which clients of providers send the bare key.
const SLOTS: [&str; 3] = ["x-api-key", "api-key", "x-goog-api-key"];
/// The same as parameters of a query.
const PARAMETERS: [&str; 2] = ["key", "api_key"];

/// The key of a caller.
pub(crate) struct Shown(String);

impl Shown {
    pub(crate) fn of(head: &Head) -> Option<Self> {
        let by_slot = || SLOTS.iter().find_map(|name| plain(&head.headers, name));
        let token = credentials::token(&head.headers).or_else(by_slot).map(Cow::Borrowed);
        let in_query = || {
            let values = |name| query::values(head.uri.query(), name);
            PARAMETERS.into_iter().flat_map(values).find(|value| !value.is_empty())
        };
        token.or_else(in_query).map(|token| Self(token.into_owned()))
    }
}

fn plain<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    let value = headers.get(name)?.to_str().ok()?.trim();
    // Some clients put the scheme into any slot.
    let value = value.strip_prefix("Bearer ").unwrap_or(value).trim();
    (!value.is_empty()).then_some(value)
}

/// Returns whether a query parameter holds a key of ours.
pub(crate) fn is_key(parameter: &str) -> bool {
    PARAMETERS.contains(&parameter)
}

/// Lets a caller in, or says why not. To a caller from outside the workspace, a model that does not
/// exist looks the same as one that is not the caller's.
pub(crate) async fn admit(
    context: &Context,
    shown: Option<&Shown>,
    (workspace, name): (&str, &str),
) -> Result<(Caller, Arc<Served>), Problem> {
    let Shown(token) = shown.ok_or(Problem::NoCredentials)?;
    let caller = context.guard.admit(token, workspace, KindName::Model).await?;
    if let Some(right) = &caller.models
        && !right.models.is_empty()
        && !right.models.iter().any(|model| model == name)
    {
        let why = format!("the key is for other models than `{name}`");
        return Err(Problem::Refused(Refused::Forbidden { why }));
    }
    let routes: &Routes = &context.routes;
    let served = routes.model(workspace, name).ok_or(Problem::NoWorkload)?;
    Ok((caller, served))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Request;

    fn shown(uri: &str, headers: &[(&str, &str)]) -> Option<String> {
        let mut request = Request::builder().uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        Shown::of(&request.body(()).unwrap().into_parts().0).map(|shown| shown.0)
    }

    #[test]
    fn a_key_is_found_in_the_slots_of_all_providers() {
        let of = |headers: &[(&str, &str)]| shown("/a/models/b", headers);
        let all = [
            ("x-blaxel-authorization", "Bearer 1"),
            ("x-service-authorization", "Bearer 2"),
            ("authorization", "Bearer 3"),
            ("x-api-key", "4"),
            ("api-key", "5"),
            ("x-goog-api-key", "6"),
        ];
        for first in 0..all.len() {
            assert_eq!(of(&all[first..]), Some((first + 1).to_string()));
        }
        assert_eq!(shown("/a/models/b?alt=sse&key=7", &[]), Some("7".into()));
        assert_eq!(of(&[("authorization", "Basic x")]), None);
        assert_eq!(of(&[("x-api-key", " ")]), None);
    }
}
