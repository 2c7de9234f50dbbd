//! Requests signed as S3 clients do.

use super::{Answer, Cloud};
use axum::body::Body;
use hmac::{Hmac, KeyInit, Mac};
use http::{Method, Request, StatusCode};
use serde_json::json;
use sha2::{Digest, Sha256};

/// Time at which the clock of tests starts.
pub const DATE: &str = "20260416T004000Z";
const HOST: &str = "localhost:8080";
const SCOPE: &str = "any/s3/aws4_request";
const UNSIGNED: &str = "UNSIGNED-PAYLOAD";

/// Id and value of a key.
pub type Key<'k> = (&'k str, &'k str);

fn hmac(key: &[u8], text: &str) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("a key");
    mac.update(text.as_bytes());
    mac.finalize().into_bytes().to_vec()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn signature(request: &str, key: &str) -> String {
    let day = &DATE[..8];
    let request = hex(&Sha256::digest(request.as_bytes()));
    let text = format!("AWS4-HMAC-SHA256\n{DATE}\n{day}/{SCOPE}\n{request}");
    let first = format!("AWS4{key}").into_bytes();
    let parts = [day, "any", "s3", "aws4_request"];
    let signing = parts.iter().fold(first, |key, part| hmac(&key, part));
    hex(&hmac(&signing, &text))
}

/// Returns the headers of a signed request. The query in `path` is in its signed form: sorted, with
/// `=`.
pub fn fields(
    method: &Method,
    path: &str,
    more: &[(&str, &str)],
    (id, key): Key<'_>,
) -> Vec<(String, String)> {
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let mut fields: Vec<(String, String)> =
        [("host", HOST), ("x-amz-content-sha256", UNSIGNED), ("x-amz-date", DATE)]
            .iter()
            .chain(more)
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
    fields.sort();
    let names: Vec<&str> = fields.iter().map(|(name, _)| name.as_str()).collect();
    let names = names.join(";");
    let lines: String = fields.iter().map(|(name, value)| format!("{name}:{value}\n")).collect();
    let request = format!("{method}\n{path}\n{query}\n{lines}\n{names}\n{UNSIGNED}");
    let (signature, day) = (signature(&request, key), &DATE[..8]);
    let authorization = format!(
        "AWS4-HMAC-SHA256 Credential={id}/{day}/{SCOPE}, SignedHeaders={names}, Signature={signature}"
    );
    fields.push(("authorization".into(), authorization));
    fields
}

/// Returns an address that reads an object without further credentials.
pub fn presigned(path: &str, (id, key): Key<'_>) -> String {
    let day = &DATE[..8];
    let query = format!(
        "X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential={id}%2F{day}%2Fany%2Fs3%2Faws4_request\
         &X-Amz-Date={DATE}&X-Amz-Expires=60&X-Amz-SignedHeaders=host"
    );
    let request = format!("GET\n{path}\n{query}\nhost:{HOST}\n\nhost\n{UNSIGNED}");
    format!("{path}?{query}&X-Amz-Signature={}", signature(&request, key))
}

#[track_caller]
pub fn code(answer: &Answer) -> (u16, &str) {
    let code = answer.text.split_once("<Code>").and_then(|(_, rest)| rest.split_once("</Code>"));
    (answer.status.as_u16(), code.map_or("", |(code, _)| code))
}

impl Cloud {
    /// Sends a request signed with a key.
    pub async fn s3(
        &self,
        method: Method,
        path: &str,
        more: &[(&str, &str)],
        key: Key<'_>,
        body: &str,
    ) -> Answer {
        let length = body.len().to_string();
        let fields = fields(&method, path, more, key);
        let mut all: Vec<(&str, &str)> =
            fields.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        if method == Method::PUT || method == Method::POST {
            all.push(("content-length", &length));
        }
        self.raw(method, path, &all, body.as_bytes().to_vec()).await
    }

    /// Follows a presigned address.
    pub async fn follow(&self, address: &str) -> Answer {
        self.raw(Method::GET, address, &[("host", HOST)], Vec::new()).await
    }

    /// Sends a PUT whose body never arrives.
    pub async fn hanging_put(&self, path: &str, key: Key<'_>) -> StatusCode {
        use tower::ServiceExt;
        let mut request = Request::builder().method(Method::PUT).uri(path);
        for (name, value) in fields(&Method::PUT, path, &[], key) {
            request = request.header(name, value);
        }
        let never = futures_util::stream::pending::<Result<bytes::Bytes, std::io::Error>>();
        let request = request.header("content-length", "9").body(Body::from_stream(never));
        let request = request.expect("a request");
        self.router.clone().oneshot(request).await.expect("an answer").status()
    }

    /// Makes a key that can sign, for a service account of a workspace.
    pub async fn signing_key(&self, workspace: &str) -> (String, String) {
        let within = [("x-blaxel-workspace", workspace)];
        let post = async |path: &str, body| {
            self.call_with(Method::POST, path, &within, Some(body)).await.ok()
        };
        let account = post("/v0/service_accounts", json!({"name": "s3"})).await;
        let id = account["client_id"].as_str().expect("an id");
        let path = format!("/v0/service_accounts/{id}/api_keys");
        let key = post(&path, json!({"name": "k"})).await;
        let text = |member: &str| key[member].as_str().expect("a text").to_owned();
        (text("id"), text("apiKey"))
    }
}
