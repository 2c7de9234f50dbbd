//! The parts that an object is to be made of, as the request that ends an upload names them.

use super::copy::each_piece;
use super::uploads::Upload;
use crate::checksum::{Algorithm, Checksum, Running, decoded};
use crate::error::{Code, Error};
use crate::folder::Object;
use crate::settings::Settings;
use crate::xml::Element;
use std::fs::File;

/// What an object is to be made of.
pub(super) struct Wanted {
    pub(super) parts: Vec<WantedPart>,
    /// The checksum that the object is to have.
    pub(super) checksum: Option<Checksum>,
}

/// A part as the request names it.
pub(super) struct WantedPart {
    pub(super) number: u32,
    pub(super) etag: String,
    pub(super) checksum: Option<Checksum>,
}

impl Wanted {
    /// Checks the checksums that were named. Returns that of the object, to keep it, if it is one
    /// of all its content.
    pub(super) fn check(
        &self,
        upload: &Upload,
        draft: &File,
    ) -> Result<Option<(String, String)>, Error> {
        for named in &self.parts {
            let Some(Checksum { algorithm, value }) = &named.checksum else { continue };
            if part_checksum(upload, named, *algorithm)? != *value {
                let message = format!("Part {} has another {}.", named.number, algorithm.field());
                return Err(Error::new(Code::InvalidPart, message));
            }
        }
        let Some(Checksum { algorithm, value }) = &self.checksum else { return Ok(None) };
        let Some((of_parts, count)) = value.split_once('-') else {
            let mut running = Running::new(*algorithm);
            each_piece(draft, |piece| running.update(piece))?;
            return Ok(Some(running.check(value)?.into_field()));
        };
        let mut running = Running::new(*algorithm);
        for named in &self.parts {
            running.update(&decoded(&part_checksum(upload, named, *algorithm)?)?);
        }
        running.check(of_parts)?;
        if count.parse() != Ok(self.parts.len()) {
            let message = "The checksum is not of as many parts as the request names.";
            return Err(Error::new(Code::BadDigest, message));
        }
        Ok(None)
    }
}

/// Returns the checksum that a part came with, or computes it.
fn part_checksum(
    upload: &Upload,
    named: &WantedPart,
    algorithm: Algorithm,
) -> Result<String, Error> {
    let part = find_part(upload, named)?;
    match part.sheet.checksum(&part.facts) {
        Some((field, value)) if field == algorithm.field() => Ok(value.clone()),
        _ => {
            let mut running = Running::new(algorithm);
            each_piece(&part.open()?, |piece| running.update(piece))?;
            Ok(running.value())
        }
    }
}

/// Reads the requested parts.
pub(super) fn read_parts(body: &[u8], settings: &Settings) -> Result<Vec<WantedPart>, Error> {
    let malformed = || Error::new(Code::MalformedXml, "The body names no parts, or too many.");
    let root = Element::read(body, settings.xml_elements_max)?;
    let parts = root.children.iter().filter(|child| child.name == "Part").map(|part| {
        let number = part.child("PartNumber")?.trim().parse().ok()?;
        let etag = part.child("ETag")?.trim().trim_matches('"').to_owned();
        let checksum = Algorithm::all().find_map(|algorithm| {
            let value = part.child(algorithm.element())?.trim().to_owned();
            Some(Checksum { algorithm, value })
        });
        Some(WantedPart { number, etag, checksum })
    });
    let parts: Vec<WantedPart> = parts.collect::<Option<_>>().ok_or_else(malformed)?;
    let most = usize::try_from(settings.parts_max).unwrap_or(usize::MAX);
    if root.name != "CompleteMultipartUpload" || parts.is_empty() || parts.len() > most {
        return Err(malformed());
    }
    if !parts.windows(2).all(|pair| matches!(pair, [a, b] if a.number < b.number)) {
        let message = "The parts are not in the order of their numbers.";
        return Err(Error::new(Code::InvalidPartOrder, message));
    }
    Ok(parts)
}

pub(super) fn find_part(upload: &Upload, named: &WantedPart) -> Result<Object, Error> {
    let WantedPart { number, etag, .. } = named;
    let part = upload.part(*number)?.filter(|part| part.etag() == *etag);
    part.ok_or_else(|| {
        Error::new(Code::InvalidPart, format!("Part {number} is not there as named."))
    })
}
