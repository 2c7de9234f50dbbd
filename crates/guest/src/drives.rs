//! Answers requests about drives that come from inside the instance. Mounting is up to the server,
//! which handles these paths before they reach a sandbox: nothing inside a sandbox decides what it
//! may have.

use crate::http::{Answer, Error, Request};
use crate::route::PathArgument;
use serde_json::json;
use types::drive_mounts::DriveOrder;

pub(crate) fn list() -> Result<Answer, Error> {
    Answer::json(&json!({"mounts": []}))
}

pub(crate) async fn mount(mut request: Request) -> Result<Answer, Error> {
    let order: DriveOrder = request.json().await?;
    order.check().map_err(Error::BadRequest)?;
    Err(Error::Internal(format!(
        "drive {} cannot be mounted from inside: ask at the address of the sandbox",
        order.drive_name
    )))
}

pub(crate) fn unmount(path: &PathArgument) -> Result<Answer, Error> {
    Err(Error::NotFound(format!(
        "nothing can be unmounted from inside: ask for /{} at the address of the sandbox",
        String::from_utf8_lossy(path.0.trim_ascii()).trim_start_matches('/')
    )))
}
