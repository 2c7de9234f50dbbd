//! Pushes images to the registry in pieces, continues uploads that a kill interrupted, and reads
//! what was acknowledged.

use super::agent::{Lost, good};
use super::{Actor, pause};
use crate::web::{Answer, Web};
use serde_json::json;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

const PIECES: usize = 6;
const PIECE_BYTES: usize = 20_000;
const REPOSITORY: &str = "/v2/main/agent/pushed";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

/// A blob being uploaded.
struct Upload {
    bytes: Vec<u8>,
    /// Where to continue, once the server has said so.
    place: Option<String>,
}

pub(super) struct Pusher {
    chances: fastrand::Rng,
    /// Acknowledged tags, with the digests of their manifests.
    tags: BTreeMap<String, String>,
    upload: Option<Upload>,
    /// Uploads that were started without anybody learning their names.
    pub(super) nameless: usize,
    pub(super) went_on: usize,
}

fn digest(bytes: &[u8]) -> String {
    let hex: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

fn ask(
    web: &Web,
    method: &str,
    path: &str,
    more: &[(&str, &str)],
    body: Vec<u8>,
) -> Result<Answer, Lost> {
    let key = format!("Bearer {}", web.key);
    let head = [[("authorization", key.as_str())].as_slice(), more].concat();
    web.ask(method, path, &head, body).ok_or(Lost)
}

impl Pusher {
    pub(super) fn new(chances: fastrand::Rng) -> Self {
        Self { chances, tags: BTreeMap::new(), upload: None, nameless: 0, went_on: 0 }
    }

    fn push(&mut self, web: &Web) -> Result<(), Lost> {
        let layer = self.blob(web)?;
        let config = json!({"architecture": "amd64", "os": "linux", "config": {},
            "rootfs": {"type": "layers", "diff_ids": [layer.0]}});
        let config = config.to_string().into_bytes();
        let whole = format!("{REPOSITORY}/blobs/uploads/?digest={}", digest(&config));
        // Sent in one request, so nobody learns the upload's name.
        self.nameless += 1;
        good("a whole blob", ask(web, "POST", &whole, &[], config.clone()).ok())?;
        self.nameless -= 1;
        let manifest = json!({"schemaVersion": 2, "mediaType": MANIFEST,
            "config": {"mediaType": "application/vnd.oci.image.config.v1+json",
                "digest": digest(&config), "size": config.len()},
            "layers": [{"mediaType": "application/vnd.oci.image.layer.v1.tar",
                "digest": layer.0, "size": layer.1}]});
        let manifest = manifest.to_string().into_bytes();
        let tag = format!("t{}", self.chances.u32(..5));
        let path = format!("{REPOSITORY}/manifests/{tag}");
        // Until it is acknowledged, the tag may be the old or the new one.
        self.tags.remove(&tag);
        let put = ask(web, "PUT", &path, &[("content-type", MANIFEST)], manifest.clone());
        good("a manifest", put.ok())?;
        self.tags.insert(tag, digest(&manifest));
        Ok(())
    }

    /// Uploads a blob in pieces, or continues an interrupted upload. Returns digest and size.
    fn blob(&mut self, web: &Web) -> Result<(String, usize), Lost> {
        let chances = &mut self.chances;
        let upload = self.upload.get_or_insert_with(|| {
            let bytes = (0..PIECES * PIECE_BYTES).map(|_| chances.u8(..)).collect();
            Upload { bytes, place: None }
        });
        let place = match upload.place.clone() {
            Some(place) => place,
            None => {
                self.nameless += 1;
                let begun = ask(web, "POST", &format!("{REPOSITORY}/blobs/uploads/"), &[], vec![]);
                let begun = good("an upload", begun.ok())?;
                self.nameless -= 1;
                let place = begun.header("location").unwrap().to_owned();
                let place = place[place.find("/v2/").unwrap()..].to_owned();
                upload.place.insert(place).clone()
            }
        };
        let (wanted, size) = (digest(&upload.bytes), upload.bytes.len());
        let so_far = ask(web, "GET", &place, &[], vec![])?;
        // It may have been completed without anybody learning so.
        if so_far.status == 404 {
            let there = ask(web, "HEAD", &format!("{REPOSITORY}/blobs/{wanted}"), &[], vec![])?;
            if there.status == 404 {
                // It was cut off in between: start again, as clients do.
                upload.place = None;
                return self.blob(web);
            }
            assert_eq!(there.status, 200, "{there:?}");
        } else {
            assert_eq!(so_far.status, 204, "{so_far:?}");
            let range = so_far.header("range").unwrap();
            let last: usize = range.split_once('-').unwrap().1.parse().unwrap();
            let mut from = if last == 0 { 0 } else { last + 1 };
            self.went_on += usize::from(from > 0);
            while from < size {
                let to = size.min(from + PIECE_BYTES);
                let range = format!("{from}-{}", to - 1);
                let piece = upload.bytes[from..to].to_vec();
                let sent = ask(web, "PATCH", &place, &[("content-range", &range)], piece)?;
                assert_eq!(sent.status, 202, "{sent:?}");
                from = to;
                pause(&mut self.chances, 20);
            }
            let done = ask(web, "PUT", &format!("{place}?digest={wanted}"), &[], vec![])?;
            assert_eq!(done.status, 201, "{}", done.text());
        }
        self.upload = None;
        Ok((wanted, size))
    }

    /// Returns how many uploads are unfinished and have known names.
    pub(super) fn open(&self) -> usize {
        usize::from(self.upload.as_ref().is_some_and(|upload| upload.place.is_some()))
    }
}

impl Actor for Pusher {
    fn act(&mut self, web: &Web, over: &AtomicBool) {
        while !over.load(Ordering::Relaxed) {
            if self.push(web).is_err() {
                return;
            }
            pause(&mut self.chances, 100);
        }
    }

    fn rest(&mut self, web: &Web) -> Result<usize, String> {
        let gone = |Lost| "the server is gone".to_owned();
        for (tag, wanted) in &self.tags {
            let path = format!("{REPOSITORY}/manifests/{tag}");
            let found = ask(web, "GET", &path, &[("accept", MANIFEST)], vec![]).map_err(gone)?;
            if found.status != 200 || digest(&found.body) != *wanted {
                return Err(format!("the tag {tag} was acknowledged as {wanted}: {found:?}"));
            }
            let layer = found.json()["layers"][0]["digest"].as_str().unwrap().to_owned();
            let path = format!("{REPOSITORY}/blobs/{layer}");
            let blob = ask(web, "GET", &path, &[], vec![]).map_err(gone)?;
            if blob.status != 200 || digest(&blob.body) != layer {
                return Err(format!("the layer {layer} of {tag} is not what was pushed"));
            }
        }
        Ok(0)
    }

    fn end(&mut self, web: &Web) {
        if let Some(place) = self.upload.take().and_then(|upload| upload.place) {
            let cancelled = ask(web, "DELETE", &place, &[], vec![]).ok().map(|it| it.status);
            assert!(matches!(cancelled, Some(204 | 404)), "{cancelled:?}");
        }
    }
}
