//! Upload of sources: asking for an address, and sending the archive there.

use super::{Client, Query, refused};
use crate::error::Error;
use bytes::Bytes;
use http::HeaderMap;
use reqwest::{Body, Method, StatusCode, Url, header};
use serde_json::Value;
use std::fmt;
use std::fs::File;
use std::io::{Read, Seek};
use std::time::Duration;

const ADDRESS: &str = "x-blaxel-upload-url";
const PIECE_BYTES: usize = 256 << 10;
/// Long enough for 4 GiB over a slow line.
const UPLOAD_TIMEOUT: Duration = Duration::from_secs(6 * 3600);
const ARCHIVE: &str = "application/zip";

/// URL to which an archive is uploaded. Anybody who knows it may upload, so it is never shown.
pub(crate) struct UploadAddress(Url);

impl fmt::Debug for UploadAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("UploadAddress")
    }
}

impl Client {
    /// Like `call`, but also returns the upload address if the answer has one.
    pub(crate) async fn call_for_upload(
        &mut self,
        method: Method,
        path: &str,
        query: Query<'_>,
        body: &Value,
    ) -> Result<(Value, Option<UploadAddress>), Error> {
        let (headers, answer) = self.exchange(method, path, query, Some(body)).await?;
        Ok((answer, address(&headers)))
    }

    /// Uploads an archive. No credentials are sent, since knowing the address is enough.
    pub(crate) async fn upload(
        &self,
        address: &UploadAddress,
        archive: &File,
        sent: impl Fn(u64) + Send + Sync + 'static,
    ) -> Result<(), Error> {
        let act = "read the archive";
        let mut archive = archive.try_clone().map_err(Error::io(act))?;
        archive.rewind().map_err(Error::io(act))?;
        let length = archive.metadata().map_err(Error::io(act))?.len();
        let pieces = futures_util::stream::unfold(archive, move |mut archive| {
            let mut piece = vec![0; PIECE_BYTES];
            let read = archive.read(&mut piece);
            let next = match read {
                Ok(0) => None,
                Ok(read) => {
                    sent(read as u64);
                    piece.truncate(read);
                    Some(Ok(Bytes::from(piece)))
                }
                Err(error) => Some(Err(error)),
            };
            std::future::ready(next.map(|piece| (piece, archive)))
        });
        let request = self.http.put(address.0.clone());
        let request = request.header(header::CONTENT_TYPE, ARCHIVE);
        let request = request.header(header::CONTENT_LENGTH, length);
        let request = request.timeout(UPLOAD_TIMEOUT).body(Body::wrap_stream(pieces));
        let response = request.send().await;
        let unreachable = |source: reqwest::Error| Error::Unreachable {
            server: "the address for the sources".into(),
            source: source.without_url(),
        };
        let response = response.map_err(unreachable)?;
        let status = response.status();
        if status == StatusCode::OK {
            return Ok(());
        }
        // If the text cannot be read, the status is still reported.
        let text = response.text().await.unwrap_or_default();
        Err(refused(status, &text))
    }
}

fn address(headers: &HeaderMap) -> Option<UploadAddress> {
    let url = Url::parse(headers.get(ADDRESS)?.to_str().ok()?).ok()?;
    matches!(url.scheme(), "http" | "https").then_some(UploadAddress(url))
}
