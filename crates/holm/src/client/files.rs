//! Files of a sandbox, over its HTTP API.

use super::workload::{Workload, file_segment, is_of_platform, refusal, segment};
use crate::error::Error;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use reqwest::{Method, RequestBuilder, Response, StatusCode, header};
use serde::Deserialize;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::time::sleep;

/// Files up to this size are sent in one request, larger ones in parts of this size. Published
/// clients do the same.
const PART_BYTES: usize = 5 << 20;
const PARTS_AT_ONCE: usize = 3;
/// Most parts that the sandbox's API accepts for one file.
const PARTS_MAX: u32 = 10_000;
const TRIES: u32 = 3;
const RETRY: Duration = Duration::from_millis(500);

/// Content of a path.
pub(crate) enum Found {
    File(Response),
    Folder(Listing),
}

/// Content of a folder, one level deep. The names come from the sandbox and may contain anything.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Listing {
    #[serde(default)]
    pub(crate) files: Vec<Entry>,
    #[serde(default)]
    pub(crate) subdirectories: Vec<Subfolder>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Entry {
    pub(crate) name: String,
    /// Octal digits: the mode of a plain file; for links and other special files, the mode with the
    /// type of the file.
    #[serde(default)]
    pub(crate) permissions: String,
    #[serde(default)]
    pub(crate) size: u64,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Subfolder {
    pub(crate) name: String,
}

const PERMISSION_BITS: u32 = 0o777;
const MODE_BITS: u32 = 0o7777;

impl Entry {
    /// Returns the permissions of a plain file; `None` for links, sockets and devices.
    pub(crate) fn mode(&self) -> Option<u32> {
        let mode = u32::from_str_radix(&self.permissions, 8).ok()?;
        (mode <= MODE_BITS).then_some(mode & PERMISSION_BITS)
    }
}

impl Workload {
    pub(crate) async fn open(&self, path: &str) -> Result<Found, Error> {
        let response = self.find_path(path).await?;
        let response = response.ok_or_else(|| self.no_file(path))?;
        // Only files are sent as attachments.
        if response.headers().contains_key(header::CONTENT_DISPOSITION) {
            return Ok(Found::File(response));
        }
        let text = response.bytes().await.map_err(|source| self.unreachable(source))?;
        let listing = serde_json::from_slice(&text);
        listing.map(Found::Folder).map_err(|_| self.odd("the listing is not JSON"))
    }

    /// Lists a folder; `None` if there is no folder at this path.
    pub(crate) async fn list(&self, path: &str) -> Result<Option<Listing>, Error> {
        match self.find_path(path).await? {
            None => Ok(None),
            Some(file) if file.headers().contains_key(header::CONTENT_DISPOSITION) => Ok(None),
            Some(folder) => {
                let text = folder.bytes().await.map_err(|source| self.unreachable(source))?;
                serde_json::from_slice(&text).map_err(|_| self.odd("the listing is not JSON"))
            }
        }
    }

    fn no_file(&self, path: &str) -> Error {
        let path = self.known_path(path);
        Error::Absent(format!("`{}` has no file or folder `{path}`", self.name))
    }

    async fn find_path(&self, path: &str) -> Result<Option<Response>, Error> {
        let path = format!("/filesystem/{}", file_segment(path));
        let request = self.request(Method::GET, &path).await?;
        let request = request.header(header::ACCEPT, "application/octet-stream");
        let response = self.send(request).await?;
        match response.status() {
            // The edge says the same of a sandbox that is archived, and then the files are safe.
            StatusCode::NOT_FOUND if !is_of_platform(&response) => Ok(None),
            status if status.is_success() => Ok(Some(response)),
            _ => Err(refusal(response).await),
        }
    }

    pub(crate) async fn make_folder(&self, path: &str, mode: u32) -> Result<(), Error> {
        let body = json!({"isDirectory": true, "permissions": format!("{mode:o}")});
        let path = format!("/filesystem/{}", file_segment(path));
        let request = || async { Ok(self.request(Method::PUT, &path).await?.json(&body)) };
        self.ask_again(request).await.map(drop)
    }

    /// Writes a file of any length. `sent` is called with the length of each piece that has
    /// arrived.
    pub(crate) async fn put_file(
        &self,
        path: &str,
        mode: u32,
        mut content: impl AsyncRead + Unpin,
        sent: &(dyn Fn(u64) + Sync),
    ) -> Result<(), Error> {
        let first = read_part(&mut content).await?;
        if first.len() == PART_BYTES {
            return self.put_parts(path, mode, first, content, sent).await;
        }
        let address = format!("/filesystem/{}", file_segment(path));
        let form = Form::new(self, &first, Some(mode));
        let request = || async { Ok(form.put(self.request(Method::PUT, &address).await?)) };
        self.ask_again(request).await?;
        sent(first.len() as u64);
        Ok(())
    }

    async fn put_parts(
        &self,
        path: &str,
        mode: u32,
        first: Bytes,
        content: impl AsyncRead + Unpin,
        sent: &(dyn Fn(u64) + Sync),
    ) -> Result<(), Error> {
        let start = format!("/filesystem-multipart/initiate/{}", file_segment(path));
        let body = json!({"permissions": format!("{mode:o}")});
        let answer = self.ask_json(self.request(Method::POST, &start).await?.json(&body)).await?;
        let id = answer.get("uploadId").and_then(Value::as_str);
        let id = segment(id.ok_or_else(|| self.odd("it names no upload"))?);
        self.uploads.lock().insert(id.clone());
        let done = self.send_parts(&id, first, content, sent).await;
        self.uploads.lock().remove(&id);
        if done.is_err() {
            self.abort_upload(&id).await;
        }
        done
    }

    /// Aborts all unfinished uploads, for when nothing sends them any more.
    pub(crate) async fn abort_uploads(&self) {
        let uploads = std::mem::take(&mut *self.uploads.lock());
        for id in uploads {
            self.abort_upload(&id).await;
        }
    }

    /// Aborts one upload. What it leaves behind is merely untidy, and the error that led here is
    /// reported already, so failures are ignored.
    async fn abort_upload(&self, id: &str) {
        let path = format!("/filesystem-multipart/{id}/abort");
        if let Ok(request) = self.request(Method::DELETE, &path).await {
            let _ = self.send(request).await;
        }
    }

    async fn send_parts(
        &self,
        id: &str,
        first: Bytes,
        mut content: impl AsyncRead + Unpin,
        sent: &(dyn Fn(u64) + Sync),
    ) -> Result<(), Error> {
        let (mut next, mut number) = (first, 1);
        let mut under_way = FuturesUnordered::new();
        let mut etags = Vec::new();
        loop {
            if !next.is_empty() {
                under_way.push(self.send_part(id, number, next));
                number += 1;
            }
            if number > PARTS_MAX {
                return Err(Error::Usage("the file is too large for the interface".into()));
            }
            next = read_part(&mut content).await?;
            let at_once = if next.is_empty() { 1 } else { PARTS_AT_ONCE };
            while under_way.len() >= at_once {
                let Some(part) = under_way.next().await else { break };
                let (number, etag, length) = part?;
                etags.push(json!({"partNumber": number, "etag": etag}));
                sent(length);
            }
            if next.is_empty() {
                break;
            }
        }
        let complete = format!("/filesystem-multipart/{id}/complete");
        let body = json!({"parts": etags});
        self.ask(self.request(Method::POST, &complete).await?.json(&body)).await.map(drop)
    }

    async fn send_part(
        &self,
        id: &str,
        number: u32,
        content: Bytes,
    ) -> Result<(u32, String, u64), Error> {
        let path = format!("/filesystem-multipart/{id}/part?partNumber={number}");
        let form = Form::new(self, &content, None);
        let request = || async { Ok(form.put(self.request(Method::PUT, &path).await?)) };
        let answer: Value = self
            .ask_again(request)
            .await?
            .json()
            .await
            .map_err(|_| self.odd("the answer is not JSON"))?;
        let etag = answer.get("etag").and_then(Value::as_str);
        let etag = etag.ok_or_else(|| self.odd("the part has no etag"))?.to_owned();
        Ok((number, etag, content.len() as u64))
    }

    /// Sends a request that is safe to repeat, and repeats it a few times while the sandbox cannot
    /// be reached.
    async fn ask_again<F>(&self, request: impl Fn() -> F) -> Result<Response, Error>
    where
        F: Future<Output = Result<RequestBuilder, Error>>,
    {
        let mut tries = 1;
        loop {
            match self.ask(request().await?).await {
                Err(Error::Unreachable { .. }) if tries < TRIES => {}
                Err(Error::Answer { status, .. })
                    if matches!(status.as_u16(), 502..=504) && tries < TRIES => {}
                answer => return answer,
            }
            sleep(RETRY * tries).await;
            tries += 1;
        }
    }
}

/// Reads one part. It is shorter than the maximum only at the end of the content.
async fn read_part(content: &mut (impl AsyncRead + Unpin)) -> Result<Bytes, Error> {
    let mut part = Vec::new();
    let read = content.take(PART_BYTES as u64).read_to_end(&mut part).await;
    read.map_err(Error::io("read what is to be copied"))?;
    Ok(part.into())
}

/// Multipart form data with one file.
struct Form {
    boundary: String,
    body: Bytes,
}

impl Form {
    fn new(workload: &Workload, content: &[u8], mode: Option<u32>) -> Self {
        // Random, so that no content can contain it.
        let boundary = URL_SAFE_NO_PAD.encode(workload.world.random_bytes::<24>());
        Self { body: form_body(&boundary, content, mode).into(), boundary }
    }

    fn put(&self, request: RequestBuilder) -> RequestBuilder {
        let kind = format!("multipart/form-data; boundary={}", self.boundary);
        request.header(header::CONTENT_TYPE, kind).body(self.body.clone())
    }
}

fn form_body(boundary: &str, content: &[u8], mode: Option<u32>) -> Vec<u8> {
    let mut body = Vec::with_capacity(content.len() + 512);
    if let Some(mode) = mode {
        let field = format!(
            "--{boundary}\r\nContent-Disposition: form-data; name=\"permissions\"\r\n\r\n{mode:04o}\r\n"
        );
        body.extend_from_slice(field.as_bytes());
    }
    let head = format!(
        "--{boundary}\r\nContent-Disposition: form-data; name=\"file\"; filename=\"file\"\r\n\
         Content-Type: application/octet-stream\r\n\r\n"
    );
    body.extend_from_slice(head.as_bytes());
    body.extend_from_slice(content);
    body.extend_from_slice(format!("\r\n--{boundary}--\r\n").as_bytes());
    body
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn only_plain_files_have_permissions() {
        let mode =
            |text: &str| Entry { name: "a".into(), permissions: text.into(), size: 0 }.mode();
        assert_eq!((mode("755"), mode("4755")), (Some(0o755), Some(0o755)));
        assert_eq!((mode("120777"), mode(""), mode("rwx")), (None, None, None));
    }

    /// Serves multipart uploads and refuses every part. Returns its address and the addresses that
    /// uploads were aborted at.
    async fn refusing() -> (String, Arc<parking_lot::Mutex<Vec<String>>>) {
        let aborted: Arc<parking_lot::Mutex<Vec<String>>> = Arc::default();
        let log = Arc::clone(&aborted);
        let app = axum::Router::new().fallback(async move |request: axum::extract::Request| {
            let (head, body) = request.into_parts();
            axum::body::to_bytes(body, usize::MAX).await.unwrap();
            match head.method.as_str() {
                "POST" => (StatusCode::OK, r#"{"uploadId": "own"}"#),
                "DELETE" => {
                    log.lock().push(head.uri.path().to_owned());
                    (StatusCode::OK, "{}")
                }
                _ => (StatusCode::BAD_REQUEST, "{}"),
            }
        });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async { axum::serve(listener, app).await });
        (url, aborted)
    }

    #[tokio::test]
    async fn an_upload_that_fails_aborts_itself_and_no_other() {
        let (url, aborted) = refusing().await;
        let workload = Workload::at(&url);
        workload.uploads.lock().insert("other".into());
        let content = tokio::io::repeat(0).take(PART_BYTES as u64 + 1);
        let failed = workload.put_file("/big", 0o644, content, &|_| {}).await;
        assert!(matches!(failed, Err(Error::Answer { status: StatusCode::BAD_REQUEST, .. })));
        assert_eq!(*aborted.lock(), ["/filesystem-multipart/own/abort"]);
        workload.abort_uploads().await;
        assert_eq!(aborted.lock().len(), 2);
        assert!(workload.uploads.lock().is_empty());
    }

    #[test]
    fn a_form_has_the_file_last() {
        let body = String::from_utf8(form_body("b", b"hello", Some(0o644))).unwrap();
        assert!(
            body.starts_with("--b\r\n") && body.ends_with("\r\n\r\nhello\r\n--b--\r\n"),
            "{body}"
        );
        assert!(body.contains("\"permissions\"\r\n\r\n0644\r\n"), "{body}");
    }
}
