//! Removes objects.

use super::answers::{empty, xml};
use super::call::{Call, blocking};
use super::write::holding;
use crate::body::Body;
use crate::conditions::Conditions;
use crate::error::{Code, Error};
use crate::folder::Folder;
use crate::key::Key;
use crate::payload::Payload;
use crate::settings::Settings;
use crate::xml::{Element, Xml};
use http::{Response, StatusCode};

/// Conditions of a deletion that are refused: ignoring them would remove what should stay.
const CONDITIONS_NOT_HERE: [&str; 2] = ["x-amz-if-match-size", "x-amz-if-match-last-modified-time"];

/// An object to remove, or why it is not removed.
struct Deletion {
    key: String,
    conditions: Result<Conditions, Error>,
}

impl Deletion {
    fn read(object: &Element) -> Option<Self> {
        let refused = ["Size", "LastModifiedTime"].into_iter().find(|name| has(object, name));
        let version = object.child("VersionId").filter(|version| *version != "null");
        let refused = version.map(|_| "VersionId").or(refused);
        let conditions = match (refused, object.child("ETag")) {
            (Some(name), _) => Err(nothing_of(name)),
            (None, Some(etag)) => Ok(Conditions::matching(etag)),
            (None, None) => Ok(Conditions::default()),
        };
        Some(Self { key: object.child("Key")?.to_owned(), conditions })
    }

    fn carry_out(self, folder: &Folder) -> (String, Result<(), Error>) {
        let Self { key: text, conditions } = self;
        let removed = conditions.and_then(|conditions| {
            let key = Key::new(&text)?;
            folder.remove(&key, holding(&conditions)).map(drop)
        });
        (text, removed)
    }
}

fn has(object: &Element, name: &str) -> bool {
    object.child(name).is_some()
}

fn nothing_of(name: &str) -> Error {
    let message = format!("Objects of a drive are not deleted by {name}.");
    Error::new(Code::NotImplemented, message)
}

/// Removes an object. Succeeds if there is none.
pub(super) async fn one(call: Call, key: Key) -> Result<Response<Body>, Error> {
    let headers = &call.parts.headers;
    if let Some(name) = CONDITIONS_NOT_HERE.into_iter().find(|name| headers.contains_key(*name)) {
        return Err(nothing_of(name));
    }
    let conditions = Conditions::read(&call.parts.headers);
    blocking(move || call.folder.remove(&key, holding(&conditions))).await?;
    Ok(empty(StatusCode::NO_CONTENT))
}

pub(super) async fn many(call: Call, payload: Payload) -> Result<Response<Body>, Error> {
    let body = payload.collect(call.settings.xml_bytes_max).await?;
    let (deletions, quiet) = read(&body, &call.settings)?;
    let turn = call.heavy().await?;
    let results = blocking(move || {
        let _turn = turn;
        let each = deletions.into_iter().map(|deletion| deletion.carry_out(&call.folder));
        Ok(each.collect::<Vec<_>>())
    })
    .await?;
    let mut answer = Xml::begin("DeleteResult", true);
    for (key, removed) in results {
        match removed {
            Ok(()) if quiet => {}
            Ok(()) => {
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

/// Reads the objects of a request that deletes many, and whether only failures should be reported.
fn read(body: &[u8], settings: &Settings) -> Result<(Vec<Deletion>, bool), Error> {
    let malformed = |why: &'static str| Error::new(Code::MalformedXml, why);
    let root = Element::read(body, settings.xml_elements_max)?;
    if root.name != "Delete" {
        return Err(malformed("The body is no Delete."));
    }
    let objects = root.children.iter().filter(|child| child.name == "Object");
    let deletions: Option<Vec<Deletion>> = objects.map(Deletion::read).collect();
    let deletions = deletions.ok_or_else(|| malformed("An Object has no Key."))?;
    if deletions.is_empty() || deletions.len() > settings.delete_keys_max {
        return Err(malformed("There are no objects in the body, or too many."));
    }
    Ok((deletions, root.child("Quiet") == Some("true")))
}
