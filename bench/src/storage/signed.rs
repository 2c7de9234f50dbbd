//! Signs requests like clients of S3 (AWS Signature Version 4), with the digest of the whole body.

use anyhow::Context as _;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::{Digest as _, Sha256};
use std::time::{SystemTime, UNIX_EPOCH};

const REGION: &str = "local";
const SIGNED: &str = "host;x-amz-content-sha256;x-amz-date";

/// The credentials that requests are signed with.
#[derive(Clone)]
pub(crate) struct Signer {
    pub(crate) key_id: String,
    pub(crate) secret: String,
}

/// What is sent, with its digest, which is computed once and not while anything is measured.
pub(crate) struct Body {
    pub(crate) bytes: Vec<u8>,
    digest: String,
}

impl Body {
    pub(crate) fn new(bytes: Vec<u8>) -> Self {
        let digest = hex(&Sha256::digest(&bytes));
        Self { bytes, digest }
    }
}

impl Signer {
    /// Returns the lines that go with a request. The path is written as it is sent.
    pub(crate) fn headers(
        &self,
        method: &str,
        host: &str,
        path: &str,
        body: &Body,
    ) -> anyhow::Result<String> {
        let at = timestamp()?;
        let day = at.get(..8).context("a time without a day")?;
        let digest = &body.digest;
        let canonical = format!(
            "{method}\n{path}\n\nhost:{host}\nx-amz-content-sha256:{digest}\nx-amz-date:{at}\n\n{SIGNED}\n{digest}"
        );
        let scope = format!("{day}/{REGION}/s3/aws4_request");
        let text = format!("AWS4-HMAC-SHA256\n{at}\n{scope}\n{}", hex(&Sha256::digest(canonical)));
        let mut key = mac(format!("AWS4{}", self.secret).as_bytes(), day)?;
        for part in [REGION, "s3", "aws4_request"] {
            key = mac(&key, part)?;
        }
        let signature = hex(&mac(&key, &text)?);
        Ok(format!(
            "x-amz-content-sha256: {digest}\r\nx-amz-date: {at}\r\nauthorization: AWS4-HMAC-SHA256 \
             Credential={}/{scope}, SignedHeaders={SIGNED}, Signature={signature}\r\n",
            self.key_id
        ))
    }
}

fn mac(key: &[u8], text: &str) -> anyhow::Result<Vec<u8>> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key)?;
    mac.update(text.as_bytes());
    Ok(mac.finalize().into_bytes().to_vec())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the time like `20260428T101112Z`.
fn timestamp() -> anyhow::Result<String> {
    #[expect(clippy::disallowed_methods, reason = "servers look at when a request was signed")]
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
    let now = jiff::Timestamp::from_second(i64::try_from(now.as_secs())?)?;
    Ok(now.strftime("%Y%m%dT%H%M%SZ").to_string())
}
