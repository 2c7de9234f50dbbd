//! Uploads of objects in parts.

use super::answers::{empty, quoted, xml};
use super::call::{Call, blocking};
use super::copy::{draft_of, source, span_of};
use super::uploads::{self, Begin, Upload, no_upload};
use super::wanted::{Wanted, WantedPart, find_part, read_parts};
use super::write::{Received, echo, holding, receive, stored};
use crate::body::Body;
use crate::conditions::Conditions;
use crate::error::{Code, Error};
use crate::folder::{Folder, Sheet};
use crate::headers::{text, to_keep};
use crate::key::Key;
use crate::payload::Payload;
use crate::signature::encode;
use crate::xml::Xml;
use http::{Response, StatusCode};
use md5::{Digest, Md5};
use std::fs::File;
use std::io::{self, Read};
use types::hex;

fn id_of(call: &Call) -> Result<String, Error> {
    call.query.get("uploadId").map(str::to_owned).ok_or_else(no_upload)
}

fn number_of(call: &Call) -> Result<u32, Error> {
    let (text, most) = (call.query.get("partNumber").unwrap_or_default(), call.settings.parts_max);
    let number = text.parse().ok().filter(|number| (1..=most).contains(number));
    number.ok_or_else(|| Error::argument(format!("partNumber is a number from 1 to {most}.")))
}

pub(super) async fn create(call: Call, bucket: &str, key: Key) -> Result<Response<Body>, Error> {
    if key.is_folder() {
        return Err(Error::argument("A folder has no content that could come in parts."));
    }
    let headers = to_keep(&call.parts.headers, call.settings.metadata_bytes_max)?;
    // Else its parts would come in vain.
    Sheet::new(headers.clone()).require_room()?;
    let begin = Begin { key: key.as_str().to_owned(), headers };
    let most = call.settings.uploads_max;
    let id = blocking(move || uploads::create(&call.folder, &begin, most, &call.world)).await?;
    let mut answer = Xml::begin("InitiateMultipartUploadResult", true);
    answer.leaf("Bucket", bucket);
    answer.leaf("Key", key.as_str());
    answer.leaf("UploadId", &id);
    Ok(xml(answer))
}

/// Opens the upload that a request names.
async fn open(call: &Call, key: Key) -> Result<(String, Upload), Error> {
    let (id, folder) = (id_of(call)?, call.folder.clone());
    blocking(move || uploads::open(&folder, &id, &key).map(|upload| (id, upload))).await
}

pub(super) async fn put_part(
    call: Call,
    key: Key,
    payload: Payload,
) -> Result<Response<Body>, Error> {
    let number = number_of(&call)?;
    let (_, upload) = open(&call, key).await?;
    let (folder, bytes_max) = (call.folder.clone(), call.settings.put_bytes_max);
    let (etag, checksum) = receive(&call, payload, bytes_max, move |received| {
        let Received { draft, md5, checksum } = received;
        let etag = hex::encode(&md5);
        let sheet = Sheet::default().with_checksum(checksum.clone());
        upload.keep(&folder, number, (&draft, sheet, &etag))?;
        Ok((etag, checksum))
    })
    .await?;
    let mut response = stored(&etag);
    echo(&mut response, checksum);
    Ok(response)
}

pub(super) async fn copy_part(call: Call, key: Key) -> Result<Response<Body>, Error> {
    let number = number_of(&call)?;
    let source = source(&call).await?;
    let (_, upload) = open(&call, key).await?;
    let conditions = Conditions::of_source(&call.parts.headers);
    let turn = call.heavy().await?;
    call.require_bucket().await?;
    let (etag, modified_at) = blocking(move || {
        let _turn = turn;
        let object = source.find(&conditions)?;
        let span = span_of(&call, object.size())?;
        if object.is_folder() || span.length > call.settings.put_bytes_max {
            return Err(Error::new(Code::EntityTooLarge, "The part is too large, or a folder."));
        }
        let (draft, md5) = draft_of(&call.folder, &object, span)?;
        let etag = hex::encode(&md5);
        let facts = upload.keep(&call.folder, number, (&draft, Sheet::default(), &etag))?;
        Ok((etag, facts.modified_at()))
    })
    .await?;
    let mut answer = Xml::begin("CopyPartResult", true);
    answer.leaf("LastModified", &modified_at.to_string());
    answer.leaf("ETag", &quoted(&etag));
    Ok(xml(answer))
}

pub(super) async fn complete(
    call: Call,
    bucket: &str,
    key: Key,
    mut payload: Payload,
) -> Result<Response<Body>, Error> {
    let opened = open(&call, key.clone()).await.map(|(_, upload)| upload);
    // Here the header is about the object, and not about the body.
    let checksum = payload.take_announced();
    let body = payload.collect(call.settings.xml_bytes_max).await?;
    let wanted = Wanted { parts: read_parts(&body, &call.settings)?, checksum };
    let location = format!("{}/{}/{}", call.settings.base, encode(bucket), encode(key.as_str()));
    let etag = end(call, key.clone(), opened, wanted).await?;
    let mut answer = Xml::begin("CompleteMultipartUploadResult", true);
    answer.leaf("Location", &location);
    answer.leaf("Bucket", bucket);
    answer.leaf("Key", key.as_str());
    answer.leaf("ETag", &quoted(&etag));
    Ok(xml(answer))
}

/// Ends an upload and returns the ETag of the object that it has become. Another request may have
/// ended it before this one opened it, or while this one waited for its turn: then parts are gone,
/// or the object does not meet the conditions any more because it is there.
async fn end(
    call: Call,
    key: Key,
    opened: Result<Upload, Error>,
    wanted: Wanted,
) -> Result<String, Error> {
    let (id, folder) = (id_of(&call)?, call.folder.clone());
    let ended = match opened {
        Ok(upload) => publish(call, key.clone(), (id.clone(), upload), wanted).await,
        Err(error) => Err(error),
    };
    match ended {
        Err(error)
            if matches!(
                error.code,
                Code::NoSuchUpload | Code::InvalidPart | Code::PreconditionFailed
            ) =>
        {
            published(folder, id, key).await?.ok_or(error)
        }
        ended => ended,
    }
}

/// Makes an upload the object of its key, and returns the ETag.
async fn publish(
    call: Call,
    key: Key,
    (id, upload): (String, Upload),
    wanted: Wanted,
) -> Result<String, Error> {
    let turn = call.heavy().await?;
    call.require_bucket().await?;
    blocking(move || {
        let _turn = turn;
        check_parts(&call, &upload, &wanted.parts)?;
        let (draft, etag) = join(&call, &upload, &wanted.parts)?;
        let checksum = wanted.check(&upload, &draft)?;
        let headers = upload.begin.headers;
        let mut sheet = Sheet::new(headers).of_upload(&id).with_checksum(checksum);
        call.folder.finish(&draft, &mut sheet, &etag)?;
        let conditions = Conditions::read(&call.parts.headers);
        let draft = (&draft, sheet);
        call.folder.publish(draft, &key, conditions.is_exclusive(), holding(&conditions))?;
        // If the server is killed here, the object is complete, and the upload can be completed
        // again.
        uploads::remove(&call.folder, &id)?;
        Ok(etag)
    })
    .await
}

/// Returns the ETag of the object that an upload has become already: a client whose answer was lost
/// asks again.
async fn published(folder: Folder, id: String, key: Key) -> Result<Option<String>, Error> {
    blocking(move || {
        let found = folder.find(&key)?;
        let found = found.filter(|object| object.sheet.is_of_upload(&id, &object.facts));
        if found.is_some() {
            // Whoever published it may not have come so far, or was killed before.
            folder.flush_name(&key)?;
            uploads::remove(&folder, &id)?;
        }
        Ok(found.map(|object| object.etag()))
    })
    .await
}

/// Checks that the parts can make up an object. Looks at one after another, because an open part
/// takes a descriptor, and all workspaces share those.
fn check_parts(call: &Call, upload: &Upload, wanted: &[WantedPart]) -> Result<(), Error> {
    let mut size = 0_u64;
    for (place, named) in wanted.iter().enumerate() {
        let part = find_part(upload, named)?;
        if place + 1 < wanted.len() && part.size() < call.settings.part_bytes_min {
            let message = "A part other than the last is too small.";
            return Err(Error::new(Code::EntityTooSmall, message));
        }
        size = size.saturating_add(part.size());
    }
    if size > call.settings.object_bytes_max {
        return Err(Error::new(Code::EntityTooLarge, "The object is too large."));
    }
    match text(&call.parts, "x-amz-mp-object-size") {
        Some(announced) if announced.trim().parse() != Ok(size) => {
            let message = format!("The parts have {size} bytes, and not {announced}.");
            Err(Error::new(Code::InvalidRequest, message))
        }
        _ => Ok(()),
    }
}

/// Joins all parts in a draft. Nothing is copied if the file system can share blocks.
fn join(call: &Call, upload: &Upload, wanted: &[WantedPart]) -> Result<(File, String), Error> {
    let (draft, mut md5) = (call.folder.draft()?, Md5::new());
    for named in wanted {
        let part = find_part(upload, named)?;
        let bytes = part.etag().get(..32).and_then(hex::decode);
        let changed = || Error::new(Code::InvalidPart, "A part was changed past this server.");
        md5.update(bytes.ok_or_else(changed)?);
        let source = part.open()?;
        let copied = io::copy(&mut (&source).take(part.size()), &mut &draft)?;
        if copied != part.size() {
            return Err(changed());
        }
    }
    let digest: [u8; 16] = md5.finalize().into();
    Ok((draft, format!("{}-{}", hex::encode(&digest), wanted.len())))
}

pub(super) async fn abort(call: Call, key: Key) -> Result<Response<Body>, Error> {
    let (id, _) = open(&call, key).await?;
    blocking(move || uploads::remove(&call.folder, &id)).await?;
    Ok(empty(StatusCode::NO_CONTENT))
}

/// Returns how many entries a page has, and the number after which it begins.
fn page_of(call: &Call, most: &str, after: &str) -> Result<(usize, u32), Error> {
    let bad = || Error::argument(format!("{most} or {after} is not a number."));
    let number = |name: &str| call.query.get(name).filter(|text| !text.is_empty()).map(str::parse);
    let all = call.settings.keys_per_page_max;
    let most_: usize = number(most)
        .transpose()
        .map_err(|_| bad())?
        .map_or(all, |most: u32| usize::try_from(most).unwrap_or(all).min(all));
    Ok((most_, number(after).transpose().map_err(|_| bad())?.unwrap_or(0)))
}

pub(super) async fn list_parts(
    call: Call,
    bucket: &str,
    key: Key,
) -> Result<Response<Body>, Error> {
    let (most, after) = page_of(&call, "max-parts", "part-number-marker")?;
    let (id, upload) = open(&call, key.clone()).await?;
    let parts_max = call.settings.parts_max;
    let turn = call.heavy().await?;
    let (parts, more) = blocking(move || {
        let _turn = turn;
        let numbers = upload.numbers(parts_max)?;
        let mut behind = numbers.into_iter().filter(|number| *number > after);
        let mut parts = Vec::new();
        for number in behind.by_ref().take(most) {
            if let Some(part) = upload.part(number)? {
                let (etag, size) = (quoted(&part.etag()), part.size());
                parts.push((number, part.facts.modified_at(), etag, size));
            }
        }
        Ok((parts, behind.next().is_some()))
    })
    .await?;
    let mut answer = Xml::begin("ListPartsResult", true);
    answer.leaf("Bucket", bucket);
    answer.leaf("Key", key.as_str());
    answer.leaf("UploadId", &id);
    answer.leaf("StorageClass", "STANDARD");
    answer.leaf("PartNumberMarker", &after.to_string());
    let last = parts.last().map_or(after, |(number, ..)| *number);
    answer.leaf("NextPartNumberMarker", &last.to_string());
    answer.leaf("MaxParts", &most.to_string());
    answer.leaf("IsTruncated", if more { "true" } else { "false" });
    for (number, modified_at, etag, size) in parts {
        answer.open("Part");
        answer.leaf("PartNumber", &number.to_string());
        answer.leaf("LastModified", &modified_at.to_string());
        answer.leaf("ETag", &etag);
        answer.leaf("Size", &size.to_string());
        answer.close();
    }
    Ok(xml(answer))
}

pub(super) async fn list(call: Call, bucket: &str) -> Result<Response<Body>, Error> {
    if call.query.get("delimiter").is_some_and(|delimiter| !delimiter.is_empty()) {
        let message = "Uploads are listed without a delimiter.";
        return Err(Error::new(Code::NotImplemented, message));
    }
    let (most, _) = page_of(&call, "max-uploads", "unused")?;
    let text = |name: &str| call.query.get(name).unwrap_or_default().to_owned();
    let (prefix, key_marker, id_marker) =
        (text("prefix"), text("key-marker"), text("upload-id-marker"));
    let encoded = call.query.get("encoding-type") == Some("url");
    let uploads_max = call.settings.uploads_max;
    let turn = call.heavy().await?;
    let all = blocking(move || {
        let _turn = turn;
        uploads::list(&call.folder, uploads_max)
    });
    let all = all.await?;
    let mut wanted = all.into_iter().filter(|upload| {
        let behind = upload.key > key_marker
            || upload.key == key_marker && !id_marker.is_empty() && upload.id > id_marker;
        upload.key.starts_with(&prefix) && (key_marker.is_empty() || behind)
    });
    let page: Vec<_> = wanted.by_ref().take(most).collect();
    let more = wanted.next().is_some();
    let text = |text: &str| if encoded { encode(text) } else { text.to_owned() };
    let mut answer = Xml::begin("ListMultipartUploadsResult", true);
    answer.leaf("Bucket", bucket);
    answer.leaf("KeyMarker", &text(&key_marker));
    answer.leaf("UploadIdMarker", &id_marker);
    answer.leaf("Prefix", &text(&prefix));
    answer.leaf("MaxUploads", &most.to_string());
    answer.leaf("IsTruncated", if more { "true" } else { "false" });
    if let Some(last) = page.last().filter(|_| more) {
        answer.leaf("NextKeyMarker", &text(&last.key));
        answer.leaf("NextUploadIdMarker", &last.id);
    }
    if encoded {
        answer.leaf("EncodingType", "url");
    }
    for upload in page {
        answer.open("Upload");
        answer.leaf("Key", &text(&upload.key));
        answer.leaf("UploadId", &upload.id);
        answer.leaf("StorageClass", "STANDARD");
        answer.leaf("Initiated", &upload.begun_at.to_string());
        answer.close();
    }
    Ok(xml(answer))
}

#[cfg(test)]
mod tests {
    use super::super::call::tests::call;
    use super::*;
    use crate::route::Query;
    use admission::Turns;
    use std::io::Write as _;
    use std::path::Path;
    use std::sync::Arc;

    /// Begins an upload of one part, and returns its id and the ETag of the part.
    fn begin(root: &Path, key: &Key) -> (String, String) {
        let call = call(root, &Arc::new(Turns::new(1, 1)));
        let begin = Begin { key: key.as_str().to_owned(), headers: Vec::new() };
        let id = uploads::create(&call.folder, &begin, 10, &call.world).unwrap();
        let upload = uploads::open(&call.folder, &id, key).unwrap();
        let (mut draft, etag) = (call.folder.draft().unwrap(), hex::encode(&Md5::digest(b"part")));
        draft.write_all(b"part").unwrap();
        upload.keep(&call.folder, 1, (&draft, Sheet::default(), &etag)).unwrap();
        (id, etag)
    }

    fn parts(etag: &str) -> Wanted {
        let part = WantedPart { number: 1, etag: etag.to_owned(), checksum: None };
        Wanted { parts: vec![part], checksum: None }
    }

    fn end_of(root: &Path, id: &str, conditions: &[(&'static str, &str)]) -> Call {
        let mut call = call(root, &Arc::new(Turns::new(1, 1)));
        call.query = Query(vec![("uploadId".into(), id.into())]);
        for (name, value) in conditions {
            call.parts.headers.insert(*name, value.parse().unwrap());
        }
        call
    }

    #[tokio::test]
    async fn an_upload_that_two_end_at_once_is_the_same_to_both() {
        let root = tempfile::tempdir().unwrap();
        let key = Key::new("a/b").unwrap();
        let none: &[(&'static str, &str)] = &[];
        for conditions in [none, &[("if-none-match", "*")]] {
            let (id, part) = begin(root.path(), &key);
            let wanted = || parts(&part);
            // Both have found the upload before either ends it.
            let [(first, one), (second, two)] = [(), ()].map(|()| {
                let call = end_of(root.path(), &id, conditions);
                let upload = uploads::open(&call.folder, &id, &key);
                (call, upload)
            });
            let etag = end(first, key.clone(), one, wanted()).await.unwrap();
            assert_eq!(end(second, key.clone(), two, wanted()).await.unwrap(), etag);
            // Without the object, it is an upload that nobody has ended.
            std::fs::remove_file(root.path().join("a/b")).unwrap();
            let late = end_of(root.path(), &id, conditions);
            let gone = uploads::open(&late.folder, &id, &key);
            let error = end(late, key.clone(), gone, wanted()).await.unwrap_err();
            assert_eq!(error.code, Code::NoSuchUpload);
        }
    }

    #[tokio::test]
    async fn an_object_meets_the_conditions_of_the_upload_that_it_was() {
        let root = tempfile::tempdir().unwrap();
        let key = Key::new("key").unwrap();
        let end_again = async || {
            // Every upload has the same id here. So the parts are as if they had not been removed.
            let (id, part) = begin(root.path(), &key);
            let call = end_of(root.path(), &id, &[("if-none-match", "*")]);
            let upload = uploads::open(&call.folder, &id, &key);
            end(call, key.clone(), upload, parts(&part)).await
        };
        let etag = end_again().await.unwrap();
        assert_eq!(end_again().await.unwrap(), etag);
        std::fs::write(root.path().join("key"), "of somebody else").unwrap();
        assert_eq!(end_again().await.unwrap_err().code, Code::PreconditionFailed);
    }
}
