//! Manifests by tag and digest.

use super::answers::{DIGEST, empty, header_of};
use super::error::Refusal;
use super::session::Session;
use crate::http::bodies::gather;
use axum::body::Body;
use axum::response::Response;
use control::kinds::image::Deployed;
use control::registry::RegistryFault;
use control::repositories::{self, NewManifest};
use http::request::Parts;
use http::{HeaderName, HeaderValue, Method, StatusCode, header};
use store::Tx;
use types::own_image::ImageAt;

const SUBJECT: HeaderName = HeaderName::from_static("oci-subject");

/// Parses a tag or digest. No tag contains a colon, so a text with one can only be a digest.
fn reference(session: &Session, text: &str) -> Result<ImageAt, Refusal> {
    let repository = &session.repository;
    let image = match text.contains(':') {
        true => repository.with_digest(text)?,
        false => repository.tagged(text)?,
    };
    Ok(image.at().clone())
}

pub(super) async fn get(session: &Session, at: &str, parts: &Parts) -> Result<Response, Refusal> {
    let at = reference(session, at)?;
    let found = repositories::manifest(&*session.registry, &session.located, &at).await;
    let (digest, manifest) = match found {
        Err(RegistryFault::NoManifest) if session.located.image.is_none() => {
            return Err(Refusal::no_name());
        }
        found => found?,
    };
    let mut response = empty(StatusCode::OK);
    let length = HeaderValue::from(manifest.bytes.len());
    if parts.method == Method::GET {
        *response.body_mut() = Body::from(manifest.bytes);
    }
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_LENGTH, length);
    headers.insert(header::CONTENT_TYPE, header_of(&manifest.media_type));
    headers.insert(DIGEST, header_of(&digest));
    Ok(response)
}

pub(super) async fn put(
    session: &Session,
    at: &str,
    parts: &Parts,
    body: Body,
) -> Result<Response, Refusal> {
    session.require_own()?;
    let at = reference(session, at)?;
    let kind = parts.headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let media_type =
        kind.and_then(|kind| kind.split(';').next()).map(|kind| kind.trim().to_owned());
    let room = session.caller.app.bodies.of_caller(session.context.member.workspace.as_str());
    let body = gather(body, session.registry.limits().manifest_bytes_max, room).await?;
    // The body may have come long after the head.
    session.caller.app.auth.still_admits(&session.ticket).await?;
    let place = session.located.place.clone();
    let new = NewManifest { place, at, media_type, bytes: body.bytes };
    let taken = repositories::push(&session.context, &*session.registry, new).await??;
    let mut response = empty(StatusCode::CREATED);
    let headers = response.headers_mut();
    headers.insert(header::LOCATION, session.address(&format!("manifests/{}", taken.digest)));
    headers.insert(DIGEST, header_of(&taken.digest));
    if let Some(subject) = taken.subject {
        headers.insert(SUBJECT, header_of(&subject));
    }
    Ok(response)
}

pub(super) async fn remove(session: &Session, at: &str) -> Result<Response, Refusal> {
    session.require_own()?;
    let at = reference(session, at)?;
    let (context, registry) = (&session.context, &*session.registry);
    let (of, workspace) = (context.clone(), context.member.workspace.as_str());
    let look = move |tx: &mut Tx<'_>| Deployed::read(&of, tx);
    let deployed = session.caller.app.lists.read(workspace, look).await?;
    repositories::remove(context, registry, &session.repository, at, deployed).await??;
    Ok(empty(StatusCode::ACCEPTED))
}
