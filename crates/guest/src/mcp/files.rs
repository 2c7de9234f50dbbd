//! MCP tools for files.

use crate::files::{Replacement, handle, replace};
use crate::guest::Guest;
use crate::http::{Error, Request};
use crate::route::{Files, PathArgument};
use http::Method;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;

#[derive(Deserialize, JsonSchema)]
pub(super) struct OnePath {
    /// Path of the file or directory; relative paths start at the working directory.
    path: String,
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Write {
    path: String,
    /// The whole content of the file.
    content: Option<String>,
    /// Mode bits in octal, such as 644.
    permissions: Option<String>,
    /// Whether to create a directory.
    is_directory: Option<bool>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Edit {
    path: String,
    /// The text to replace, exactly as in the file.
    old_string: String,
    new_string: String,
    /// Whether to replace every occurrence.
    replace_all: Option<bool>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Delete {
    path: String,
    /// Whether the path must be a directory; if set, a file is not deleted.
    is_directory: Option<bool>,
    /// Whether to delete a directory together with everything in it.
    recursive: Option<bool>,
}

pub(super) fn argument(path: String) -> PathArgument {
    PathArgument(path.into_bytes())
}

pub(super) async fn ask(
    guest: &Arc<Guest>,
    route: Files,
    request: Request,
) -> Result<Value, Error> {
    handle(&guest.instance, route, request).await?.into_json().await
}

/// Returns the file or directory at a path.
pub(super) async fn entry(guest: &Arc<Guest>, path: String) -> Result<Value, Error> {
    ask(guest, Files::Entry(argument(path)), Request::made(Method::GET, &[], &Value::Null)).await
}

pub(super) fn working_directory(guest: &Guest) -> Value {
    json!({"path": guest.instance.settings.workdir.to_string_lossy()})
}

pub(super) async fn directory(guest: &Arc<Guest>, path: String) -> Result<Value, Error> {
    let refuse = format!("{path} is not a directory");
    let found = entry(guest, path).await?;
    if found.get("files").is_some() { Ok(found) } else { Err(Error::Unprocessable(refuse)) }
}

pub(super) async fn list(guest: &Arc<Guest>, of: OnePath) -> Result<Value, Error> {
    Ok(json!({"directory": directory(guest, of.path).await?}))
}

pub(super) async fn file(guest: &Arc<Guest>, path: String) -> Result<Value, Error> {
    let refuse = format!("{path} is a directory");
    let found = entry(guest, path).await?;
    if found.get("content").is_some() { Ok(found) } else { Err(Error::Unprocessable(refuse)) }
}

pub(super) async fn read(guest: &Arc<Guest>, of: OnePath) -> Result<Value, Error> {
    file(guest, of.path).await
}

pub(super) async fn write(guest: &Arc<Guest>, write: Write) -> Result<Value, Error> {
    let body = json!({
        "content": write.content, "permissions": write.permissions, "isDirectory": write.is_directory,
    });
    ask(guest, Files::Entry(argument(write.path)), Request::made(Method::PUT, &[], &body)).await
}

pub(super) async fn edit(guest: &Arc<Guest>, edit: Edit) -> Result<Value, Error> {
    let replacement = Replacement {
        old: edit.old_string,
        new: edit.new_string,
        all: edit.replace_all == Some(true),
    };
    let count = replace(&guest.instance, &argument(edit.path.clone()), replacement).await?;
    Ok(json!({"path": edit.path, "occurrencesReplaced": count}))
}

pub(super) async fn delete(guest: &Arc<Guest>, delete: Delete) -> Result<Value, Error> {
    if delete.is_directory == Some(true) {
        directory(guest, delete.path.clone()).await?;
    }
    let recursive = if delete.recursive == Some(true) { "true" } else { "false" };
    let request = Request::made(Method::DELETE, &[("recursive", recursive)], &Value::Null);
    ask(guest, Files::Entry(argument(delete.path)), request).await
}
