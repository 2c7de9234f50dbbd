//! Lists of tags, of repositories, and of manifests that refer to another one. Long lists come in
//! pages.

use super::answers::header_of;
use super::caller::{Caller, Shown};
use super::error::Refusal;
use super::path::parameter;
use super::session::Session;
use auth::registry_tokens::Access;
use axum::body::Body;
use axum::response::Response;
use control::Context;
use control::kinds::image;
use http::request::Parts;
use http::{HeaderName, HeaderValue, StatusCode, header};
use serde_json::{Value, json};
use store::Tx;
use types::{Scope, Verb};

const FILTERS: HeaderName = HeaderName::from_static("oci-filters-applied");
const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const PAGE_MAX: usize = 1000;

fn answer(body: &Value, kind: &'static str) -> Response {
    let mut response = Response::new(Body::from(body.to_string()));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

/// Returns one page of the sorted names, and a link to the next page.
fn page(
    parts: &Parts,
    mut names: Vec<String>,
) -> Result<(Vec<String>, Option<HeaderValue>), Refusal> {
    let bad = || {
        let why = "`n` must be a number";
        Refusal::new(StatusCode::BAD_REQUEST, "PAGINATION_NUMBER_INVALID", why)
    };
    let number = parameter(parts, "n").map(|n| n.parse::<usize>()).transpose();
    let number = number.map_err(|_| bad())?.unwrap_or(PAGE_MAX).min(PAGE_MAX);
    names.sort_unstable();
    if let Some(last) = parameter(parts, "last") {
        names.retain(|name| *name > last);
    }
    let more = names.len() > number;
    names.truncate(number);
    let next = names.last().filter(|_| more).map(|last| {
        let last: String = form_urlencoded::byte_serialize(last.as_bytes()).collect();
        header_of(&format!("<{}?n={number}&last={last}>; rel=\"next\"", parts.uri.path()))
    });
    Ok((names, next))
}

pub(super) fn tags(session: &Session, parts: &Parts) -> Result<Response, Refusal> {
    let image = session.located.image.as_ref().ok_or_else(Refusal::no_name)?;
    let (tags, next) = page(parts, image.tags().cloned().collect())?;
    let name = session.name.to_string();
    let mut response = answer(&json!({"name": name, "tags": tags}), "application/json");
    response.headers_mut().extend(next.map(|next| (header::LINK, next)));
    Ok(response)
}

/// Lists the repositories of all workspaces in which the caller may list them.
pub(super) async fn catalog(caller: &Caller, parts: &Parts) -> Result<Response, Refusal> {
    if let Shown::Token { access, .. } = &caller.shown
        && !access.contains(&Access::Catalog)
    {
        return Err(Refusal::beyond_token());
    }
    let app = &caller.app;
    let mut contexts = Vec::new();
    for membership in &caller.identity.memberships {
        if let Ok(member) = caller.member(&membership.workspace_name, &[Scope::Images(Verb::List)])
        {
            contexts.push(Context { control: app.control().clone(), member });
        }
    }
    let list = move |tx: &mut Tx<'_>| {
        let mut names = Vec::new();
        for context in &contexts {
            let repositories = image::repositories(context, tx)?.into_iter();
            let workspace = &context.member.workspace_name;
            names.extend(repositories.map(|name| format!("{workspace}/{name}")));
        }
        Ok::<_, control::Error>(names)
    };
    let (names, next) = page(parts, app.store.read(list).await?)?;
    let mut response = answer(&json!({"repositories": names}), "application/json");
    response.headers_mut().extend(next.map(|next| (header::LINK, next)));
    Ok(response)
}

pub(super) async fn referrers(
    session: &Session,
    digest: &str,
    parts: &Parts,
) -> Result<Response, Refusal> {
    let (place, after) = (session.located.place.clone(), parameter(parts, "last"));
    let (found, more) = session.registry.referrers(place, digest.to_owned(), after).await?;
    let next = found.last().filter(|_| more).map(|last| last.digest.clone());
    let kind = parameter(parts, "artifactType");
    let manifests: Vec<Value> = found
        .into_iter()
        .filter(|referrer| kind.is_none() || referrer.artifact_type == kind)
        .map(|referrer| {
            json!({
                "mediaType": referrer.media_type,
                "digest": referrer.digest,
                "size": referrer.size,
                "artifactType": referrer.artifact_type,
                "annotations": referrer.annotations,
            })
        })
        .collect();
    let index = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": manifests});
    let mut response = answer(&index, INDEX);
    if kind.is_some() {
        response.headers_mut().insert(FILTERS, HeaderValue::from_static("artifactType"));
    }
    if let Some(next) = next {
        let kind = kind.map(|kind| {
            let kind: String = form_urlencoded::byte_serialize(kind.as_bytes()).collect();
            format!("&artifactType={kind}")
        });
        let link = format!(
            "<{}?last={next}{}>; rel=\"next\"",
            session.address(&format!("referrers/{digest}")).to_str().unwrap_or_default(),
            kind.unwrap_or_default()
        );
        response.headers_mut().insert(header::LINK, header_of(&link));
    }
    Ok(response)
}
