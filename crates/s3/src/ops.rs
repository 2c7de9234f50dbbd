//! The operations that requests ask for, with one file for each noun.

mod copy;
mod delete;
mod list;
mod multipart;
mod read;
pub(crate) mod uploads;
mod write;

use crate::access::Caller;
use crate::body::{self, Body};
use crate::error::{Code, Error};
use crate::folder::{Folder, Locks, Turn};
use crate::key::Key;
use crate::payload::Payload;
use crate::route::{BucketAct, ObjectAct, Query};
use crate::settings::Settings;
use crate::xml::Xml;
use http::header::HeaderValue;
use http::request::Parts;
use http::{Response, StatusCode};
use std::sync::Arc;
use types::World;

/// A request of an authenticated caller to an open bucket.
pub(crate) struct Call {
    pub(crate) parts: Parts,
    /// The bucket's name in the request.
    pub(crate) bucket: String,
    pub(crate) query: Query,
    pub(crate) folder: Folder,
    pub(crate) may_write: bool,
    pub(crate) key_id: String,
    pub(crate) caller: Arc<dyn Caller>,
    pub(crate) settings: Arc<Settings>,
    pub(crate) locks: Arc<Locks>,
    pub(crate) turn: Turn,
    pub(crate) world: World,
}

pub(crate) async fn bucket(
    call: Call,
    act: BucketAct,
    name: &str,
    payload: Payload,
) -> Result<Response<Body>, Error> {
    match act {
        BucketAct::Head => Ok(empty(StatusCode::OK)),
        BucketAct::Location => Ok(xml(Xml::begin("LocationConstraint", true))),
        BucketAct::Versioning => Ok(xml(Xml::begin("VersioningConfiguration", true))),
        BucketAct::Uploads => multipart::list(call, name).await,
        BucketAct::ListV1 | BucketAct::ListV2 => {
            list::page(call, name, act == BucketAct::ListV2).await
        }
        BucketAct::DeleteMany => delete::many(call, payload).await,
        // Buckets are created along with drives, and this one exists.
        BucketAct::Create => {
            let message = "The bucket is there: it is a drive of your workspace.";
            Err(Error::new(Code::BucketOwned, message))
        }
    }
}

pub(crate) async fn object(
    call: Call,
    act: ObjectAct,
    (bucket, key): (&str, &str),
    payload: Payload,
) -> Result<Response<Body>, Error> {
    let key = Key::new(key)?;
    match act {
        ObjectAct::Get => read::get(call, key).await,
        ObjectAct::Head => read::head(call, key).await,
        ObjectAct::Put => write::put(call, key, payload).await,
        ObjectAct::Copy => copy::object(call, key).await,
        ObjectAct::Delete => delete::one(call, key).await,
        ObjectAct::CreateUpload => multipart::create(call, bucket, key).await,
        ObjectAct::PutPart => multipart::put_part(call, key, payload).await,
        ObjectAct::CopyPart => multipart::copy_part(call, key).await,
        ObjectAct::CompleteUpload => multipart::complete(call, bucket, key, payload).await,
        ObjectAct::AbortUpload => multipart::abort(call, key).await,
        ObjectAct::ListParts => multipart::list_parts(call, bucket, key).await,
    }
}

/// Runs blocking work on a thread for it.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    tokio::task::spawn_blocking(work).await?
}

fn empty(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(body::empty());
    *response.status_mut() = status;
    response
}

pub(crate) fn xml(xml: Xml) -> Response<Body> {
    let mut response = Response::new(body::of(xml.end()));
    let xml = HeaderValue::from_static("application/xml");
    response.headers_mut().insert("content-type", xml);
    response
}

fn quoted(etag: &str) -> String {
    format!("\"{etag}\"")
}

/// Sets a field to a value made here. A value that cannot be in a header is left out.
fn set(response: &mut Response<Body>, name: &'static str, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        response.headers_mut().insert(name, value);
    }
}
