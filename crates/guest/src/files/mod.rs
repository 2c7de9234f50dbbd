//! Operations on files: reading, writing, deleting, uploads, search, watch and edits.
//!
//! Paths are bytes. In JSON, bytes that are not UTF-8 become U+FFFD; such a file is reached by its
//! percent-encoded bytes. All work on files happens on threads for blocking work, never on the one
//! that serves.

mod access;
mod blocking;
mod codegen;
mod copy;
mod done;
mod draft;
mod entry;
mod find;
mod form;
mod fuzzy_search;
mod glob;
mod intake;
mod json_text;
mod kind;
mod path;
mod range;
mod read;
mod remove;
mod replace;
mod text_search;
mod tree;
mod uploads;
mod walk;
mod watch;
mod write;

pub(crate) use codegen::offered;
pub(crate) use replace::{Replacement, replace};

use crate::http::{Answer, Error, Request};
use crate::instance::Instance;
use crate::route::Files;
use http::Method;
use std::sync::Arc;

pub(crate) async fn handle(
    instance: &Arc<Instance>,
    route: Files,
    request: Request,
) -> Result<Answer, Error> {
    match route {
        Files::Entry(path) => match request.method {
            Method::PUT => write::put(instance, &path, request).await,
            Method::DELETE => remove::delete(instance, &path, request).await,
            _ => read::get(instance, &path, request).await,
        },
        Files::Tree(path) => match request.method {
            Method::PUT => write::put_tree(instance, &path, request).await,
            Method::DELETE => remove::delete(instance, &path, request).await,
            _ => tree::get(instance, &path, request).await,
        },
        Files::Uploads => uploads::list().await,
        Files::UploadStart(path) => uploads::start(instance, &path, request).await,
        Files::UploadPart(id) => uploads::put_part(id, request).await,
        Files::UploadParts(id) => uploads::parts(id).await,
        Files::UploadComplete(id) => uploads::complete(instance, id, request).await,
        Files::UploadAbort(id) => uploads::abort(id).await,
        Files::Find(path) => find::get(instance, &path, request).await,
        Files::Search(query) => fuzzy_search::get(instance, &query, request).await,
        Files::ContentSearch(path) => text_search::get(instance, &path, request).await,
        Files::Copy => copy::post(instance, request).await,
        Files::Watch(path) => watch::get(instance, &path, request).await,
        Files::FastApply(path) => codegen::put_edit(instance, &path, request).await,
        Files::Reranking(path) => codegen::get_ranking(instance, &path, request).await,
    }
}
