//! How to reach the service.

use object_store::aws::{AmazonS3, AmazonS3Builder, S3ConditionalPut};
use object_store::{BackoffConfig, ClientOptions, RetryConfig};
// Enables the TLS of this project, which `object_store` then uses.
use reqwest as _;
use std::fmt;
use std::time::Duration;
use zeroize::Zeroizing;

/// Timeout for connecting.
const CONNECT_MAX: Duration = Duration::from_secs(10);

#[derive(Debug, Clone)]
pub struct Settings {
    /// `https://host[:port]`, or `http://` if nobody can listen on the way.
    pub endpoint: String,
    pub bucket: String,
    pub region: String,
    pub key_id: String,
    pub secret: Secret,
    /// The beginning of every key.
    pub prefix: String,
    /// How many requests may carry content at the same time.
    pub parallel: usize,
    /// Timeout for one request.
    pub timeout: Duration,
    /// How often a failed request is repeated.
    pub retries: usize,
}

/// The secret of the key. It is never printed.
#[derive(Clone)]
pub struct Secret(Zeroizing<String>);

impl Secret {
    pub fn new(text: impl Into<String>) -> Self {
        Self(Zeroizing::new(text.into()))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

impl Settings {
    pub(crate) fn connect(&self) -> Result<AmazonS3, object_store::Error> {
        let client = ClientOptions::new()
            .with_timeout(self.timeout)
            .with_connect_timeout(CONNECT_MAX.min(self.timeout))
            .with_allow_http(self.endpoint.starts_with("http://"));
        let tries = u32::try_from(self.retries).unwrap_or(u32::MAX).saturating_add(1);
        let retry = RetryConfig {
            backoff: BackoffConfig::default(),
            max_retries: self.retries,
            retry_timeout: self.timeout.saturating_mul(tries),
        };
        AmazonS3Builder::new()
            .with_endpoint(&self.endpoint)
            .with_bucket_name(&self.bucket)
            .with_region(&self.region)
            .with_access_key_id(&self.key_id)
            .with_secret_access_key(self.secret.0.as_str())
            .with_virtual_hosted_style_request(false)
            .with_conditional_put(S3ConditionalPut::ETagMatch)
            .with_client_options(client)
            .with_retry(retry)
            .build()
    }
}
