//! Removes objects.

use super::answers::{empty, xml};
use super::call::{Call, blocking};
use super::write::holding;
use crate::body::Body;
use crate::conditions::Conditions;
use crate::error::{Code, Error};
use crate::key::Key;
use crate::payload::Payload;
use crate::settings::Settings;
use crate::xml::{Element, Xml};
use http::{Response, StatusCode};

/// Removes an object. Succeeds if there is none.
pub(super) async fn one(call: Call, key: Key) -> Result<Response<Body>, Error> {
    let conditions = Conditions::read(&call.parts.headers);
    blocking(move || call.folder.remove(&key, holding(&conditions))).await?;
    Ok(empty(StatusCode::NO_CONTENT))
}

pub(super) async fn many(call: Call, payload: Payload) -> Result<Response<Body>, Error> {
    let body = payload.collect(call.settings.xml_bytes_max).await?;
    let (keys, quiet) = read(&body, &call.settings)?;
    let turn = call.heavy().await?;
    let results = blocking(move || {
        let _turn = turn;
        let each = keys.into_iter().map(|text| {
            let removed = Key::new(&text).and_then(|key| call.folder.remove(&key, |_| Ok(())));
            (text, removed)
        });
        Ok(each.collect::<Vec<_>>())
    })
    .await?;
    let mut answer = Xml::begin("DeleteResult", true);
    for (key, removed) in results {
        match removed {
            Ok(_) if quiet => {}
            Ok(_) => {
                answer.open("Deleted");
                answer.leaf("Key", &key);
                answer.close();
            }
            Err(error) => {
                if let Some(cause) = &error.cause {
                    tracing::error!(error = cause as &dyn std::error::Error, "failed to delete");
                }
                answer.open("Error");
                answer.leaf("Key", &key);
                answer.leaf("Code", error.code.text());
                answer.leaf("Message", &error.message);
                answer.close();
            }
        }
    }
    Ok(xml(answer))
}

/// Reads the keys from a request that deletes many, and whether only failures should be reported.
fn read(body: &[u8], settings: &Settings) -> Result<(Vec<String>, bool), Error> {
    let malformed = |why: &'static str| Error::new(Code::MalformedXml, why);
    let root = Element::read(body, settings.xml_elements_max)?;
    if root.name != "Delete" {
        return Err(malformed("The body is no Delete."));
    }
    let objects = root.children.iter().filter(|child| child.name == "Object");
    let keys: Option<Vec<String>> =
        objects.map(|object| object.child("Key").map(str::to_owned)).collect();
    let keys = keys.ok_or_else(|| malformed("An Object has no Key."))?;
    if keys.is_empty() || keys.len() > settings.delete_keys_max {
        return Err(malformed("There are no objects in the body, or too many."));
    }
    Ok((keys, root.child("Quiet") == Some("true")))
}
