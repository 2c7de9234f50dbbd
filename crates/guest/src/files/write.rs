//! Writes files, directories and whole trees.

use super::access::refuse;
use super::blocking::blocking;
use super::done::Done;
use super::draft::{self, DIRECTORY_MODE, Draft};
use super::path::{self, resolve};
use super::{entry, intake};
use crate::http::{Answer, Error, Request};
use crate::instance::Instance;
use crate::route::PathArgument;
use http::header;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[derive(Default)]
struct FileRequest {
    content: Option<String>,
    is_directory: Option<bool>,
    permissions: Option<String>,
}

#[derive(Deserialize)]
struct TreeRequest {
    #[serde(default)]
    files: BTreeMap<String, String>,
}

/// Writes one file or creates one directory. The content type determines whether the body is JSON
/// or form data.
pub(crate) async fn put(
    instance: &Arc<Instance>,
    argument: &PathArgument,
    mut request: Request,
) -> Result<Answer, Error> {
    let path = resolve(instance, argument);
    let content_type = request.header(header::CONTENT_TYPE).unwrap_or_default().to_owned();
    if content_type.trim_start().to_ascii_lowercase().starts_with("multipart/") {
        return put_form(instance, path, &content_type, request).await;
    }
    let wanted: FileRequest = request.json().await?;
    let mode = draft::parse_mode(wanted.permissions.as_deref())?;
    let instance = instance.clone();
    blocking(move || {
        let user = instance.settings.user.as_ref();
        let message = if wanted.is_directory == Some(true) {
            draft::make_directories(&path, mode.unwrap_or(DIRECTORY_MODE), user)
                .map_err(|error| refuse(&path, &error))?;
            "Directory created successfully"
        } else {
            write(&path, wanted.content.unwrap_or_default().as_bytes(), mode, user)?;
            "File created/updated successfully"
        };
        Done::of(message, &path)
    })
    .await
}

async fn put_form(
    instance: &Arc<Instance>,
    path: PathBuf,
    content_type: &str,
    request: Request,
) -> Result<Answer, Error> {
    let (opening, instance) = (path.clone(), instance.clone());
    let open = move || Draft::open(&opening, instance.settings.user.as_ref());
    let received = intake::receive(content_type, request.into_body(), open).await?;
    let mode = draft::parse_mode(received.permissions.as_deref())?;
    blocking(move || {
        received.sink.finish(mode)?;
        Done::of("Binary file uploaded successfully", &path)
    })
    .await
}

pub(crate) fn write(
    path: &Path,
    content: &[u8],
    mode: Option<u32>,
    user: Option<&crate::settings::User>,
) -> Result<(), Error> {
    let mut draft = Draft::open(path, user)?;
    draft.write_all(content).map_err(|error| refuse(path, &error))?;
    draft.finish(mode)
}

/// Writes many files below one directory and lists that directory. No path among them can lead out
/// of it by its text (links are followed).
pub(crate) async fn put_tree(
    instance: &Arc<Instance>,
    argument: &PathArgument,
    mut request: Request,
) -> Result<Answer, Error> {
    let root = resolve(instance, argument);
    let wanted: TreeRequest = request.json().await?;
    let instance = instance.clone();
    blocking(move || {
        let user = instance.settings.user.as_ref();
        draft::make_directories(&root, DIRECTORY_MODE, user)
            .map_err(|error| refuse(&root, &error))?;
        for (relative, content) in &wanted.files {
            let target = path::below(&root, relative);
            if target == root {
                return Err(Error::BadRequest(format!("`{relative}` names no file")));
            }
            write(&target, content.as_bytes(), None, user)?;
        }
        Answer::json(&entry::list(&root, &entry::Names::read())?)
    })
    .await
}
