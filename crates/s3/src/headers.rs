//! Header fields that are stored with an object, and those that ask for something unsupported.

use crate::error::{Code, Error};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue};

const META: &str = "x-amz-meta-";
const DEFAULT_TYPE: &str = "binary/octet-stream";
/// Most bytes of the fields below together.
const FIELDS_BYTES_MAX: usize = 1024;
const KEPT: [&str; 6] = [
    "content-type",
    "cache-control",
    "content-disposition",
    "content-encoding",
    "content-language",
    "expires",
];
/// Fields that are refused: ignoring them would promise something that does not happen.
const NOT_HERE: [&str; 15] = [
    "x-amz-server-side-encryption",
    "x-amz-server-side-encryption-customer-algorithm",
    "x-amz-server-side-encryption-aws-kms-key-id",
    "x-amz-tagging",
    "x-amz-website-redirect-location",
    "x-amz-object-lock-mode",
    "x-amz-object-lock-legal-hold",
    "x-amz-object-lock-retain-until-date",
    "x-amz-grant-read",
    "x-amz-grant-read-acp",
    "x-amz-grant-write",
    "x-amz-grant-write-acp",
    "x-amz-grant-full-control",
    "x-amz-rename-source",
    "x-amz-write-offset-bytes",
];

/// Returns the fields that a request wants to store with the object.
pub(crate) fn to_keep(
    headers: &HeaderMap,
    metadata_max: usize,
) -> Result<Vec<(String, String)>, Error> {
    refuse_unknown(headers)?;
    let (mut kept, mut fields, mut metadata) = (Vec::new(), 0, 0);
    for name in headers.keys() {
        let is_meta = name.as_str().starts_with(META);
        if !is_meta && !KEPT.contains(&name.as_str()) {
            continue;
        }
        let mut values = Vec::new();
        for value in headers.get_all(name) {
            let text = std::str::from_utf8(value.as_bytes());
            values.push(text.map_err(|_| Error::argument("A header field is not UTF-8."))?);
        }
        let mut value = values.join(",");
        if name == "content-encoding" {
            value = without_chunks(&value);
            if value.is_empty() {
                continue;
            }
        }
        let bytes = if is_meta { &mut metadata } else { &mut fields };
        *bytes += name.as_str().len() + value.len();
        kept.push((name.as_str().to_owned(), value));
    }
    if metadata > metadata_max || fields > FIELDS_BYTES_MAX {
        let message = "The metadata of an object is too large.";
        return Err(Error::new(Code::MetadataTooLarge, message));
    }
    Ok(kept)
}

/// Removes `aws-chunked`, which describes the transfer of the body and not the object.
fn without_chunks(value: &str) -> String {
    let parts = value.split(',').map(str::trim);
    let parts: Vec<&str> = parts
        .filter(|part| !part.is_empty() && !part.eq_ignore_ascii_case("aws-chunked"))
        .collect();
    parts.join(",")
}

fn refuse_unknown(headers: &HeaderMap) -> Result<(), Error> {
    if let Some(name) = NOT_HERE.into_iter().find(|name| headers.contains_key(*name)) {
        let message = format!("A drive has nothing that {name} asks for.");
        return Err(Error::new(Code::NotImplemented, message));
    }
    let value = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    if !matches!(value("x-amz-acl"), None | Some("private" | "bucket-owner-full-control")) {
        let message = "Objects of a drive are private.";
        return Err(Error::new(Code::NotImplemented, message));
    }
    if !matches!(value("x-amz-storage-class"), None | Some("STANDARD")) {
        return Err(Error::argument("A drive has the storage class STANDARD alone."));
    }
    Ok(())
}

/// Adds the stored fields to an answer.
pub(crate) fn restore(kept: &[(String, String)], answer: &mut HeaderMap) {
    answer.insert("content-type", HeaderValue::from_static(DEFAULT_TYPE));
    for (name, value) in kept {
        let name = HeaderName::from_bytes(name.as_bytes()).ok();
        let name =
            name.filter(|name| name.as_str().starts_with(META) || KEPT.contains(&name.as_str()));
        // Whatever is stored, only these fields of an answer are made from it.
        if let (Some(name), Ok(value)) = (name, HeaderValue::from_bytes(value.as_bytes())) {
            answer.insert(name, value);
        }
    }
}

/// Sets fields of an answer from the query of a signed request.
pub(crate) fn override_by(query: &[(String, String)], answer: &mut HeaderMap) -> Result<(), Error> {
    for (name, value) in query {
        let Some(field) = name.strip_prefix("response-") else { continue };
        let Some(field) = KEPT.into_iter().find(|kept| *kept == field) else { continue };
        let value = HeaderValue::from_str(value);
        let value = value.map_err(|_| Error::argument(format!("{name} is no header field.")))?;
        answer.insert(field, value);
    }
    Ok(())
}

pub(crate) fn text<'p>(parts: &'p Parts, name: &str) -> Option<&'p str> {
    parts.headers.get(name)?.to_str().ok()
}
