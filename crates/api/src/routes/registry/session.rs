//! Requests to a repository, once their caller is admitted to it.

use super::answers::header_of;
use super::caller::Caller;
use super::error::Refusal;
use super::path::{BASE, Name};
use crate::http::long_request::LongRequest;
use auth::Ticket;
use control::Context;
use control::registry::Registry;
use control::repositories::{self, Located};
use http::request::Parts;
use http::{HeaderValue, StatusCode};
use std::sync::Arc;
use store::Tx;
use types::Scope;
use types::own_image::OwnRepository;

/// A request to a repository that the caller is allowed to make.
pub(super) struct Session {
    pub(super) caller: Caller,
    pub(super) context: Context,
    pub(super) registry: Arc<dyn Registry>,
    /// As the caller wrote it, for addresses in answers.
    pub(super) name: Name,
    pub(super) repository: OwnRepository,
    pub(super) located: Located,
    /// The credentials of the request: content is sent only as long as they are valid.
    pub(super) ticket: Arc<Ticket>,
    pub(super) long: LongRequest,
}

impl Session {
    /// Lets a caller into a repository.
    pub(super) async fn open(
        caller: Caller,
        name: Name,
        scopes: &'static [Scope],
        parts: &Parts,
    ) -> Result<Self, Refusal> {
        let member = caller.member_at(&name, scopes)?;
        let app = &caller.app;
        let none =
            || Refusal::new(StatusCode::NOT_FOUND, "UNSUPPORTED", "this server keeps no images");
        let registry = app.machine().and_then(|machine| machine.registry()).ok_or_else(none)?;
        let context = Context { control: app.control().clone(), member };
        let (repository, located) = locate(&context, &name).await?;
        let ticket = Arc::new(caller.ticket(&context.member, scopes));
        let long = parts.extensions.get::<LongRequest>().cloned().unwrap_or_default();
        Ok(Self { caller, context, registry, name, repository, located, ticket, long })
    }

    /// Fails if the image is shared by another workspace, which alone can change it.
    pub(super) fn require_own(&self) -> Result<(), Refusal> {
        if self.located.is_shared(&self.context) {
            let why = "another workspace shares this image, and alone can change it";
            return Err(Refusal::new(StatusCode::FORBIDDEN, "DENIED", why));
        }
        Ok(())
    }

    pub(super) fn address(&self, rest: &str) -> HeaderValue {
        header_of(&format!("{BASE}{}/{rest}", self.name))
    }
}

/// Finds the repository that a name means in the workspace, and where its content is.
pub(super) async fn locate(
    context: &Context,
    name: &Name,
) -> Result<(OwnRepository, Located), Refusal> {
    let (of, name) = (context.clone(), name.clone());
    let work = move |tx: &mut Tx<'_>| {
        let repository = match name.repository() {
            Some(repository) => repository,
            None => repositories::of_any_type(&of, tx, &name.name)?,
        };
        let Ok(repository) = repository else { return Ok(Err(repository)) };
        let located = repositories::locate(&of, tx, &repository)?;
        Ok::<_, control::Error>(Ok((repository, located)))
    };
    match context.control.store.read(work).await? {
        Ok(found) => Ok(found),
        Err(Err(bad)) => Err(bad.into()),
        Err(Ok(_)) => Err(Refusal::no_name()),
    }
}
