//! The operations that requests ask for, with one file for each noun.

pub(crate) mod answers;
pub(crate) mod call;
mod copy;
mod delete;
mod list;
mod multipart;
mod read;
pub(crate) mod uploads;
mod wanted;
mod write;

use crate::body::Body;
use crate::error::{Code, Error};
use crate::key::Key;
use crate::payload::Payload;
use crate::route::{BucketAct, ObjectAct};
use crate::xml::Xml;
use answers::{empty, xml};
use call::Call;
use http::{Response, StatusCode};

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
