//! The object service that keeps archives, unused snapshots and versions of volume templates.

use super::error::Wrong;
use super::values;
use crate::duration::Span;
use serde::Deserialize;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Objects {
    #[serde(deserialize_with = "values::text_or_none")]
    pub(crate) endpoint: Option<String>,
    pub(crate) bucket: String,
    pub(crate) region: String,
    pub(crate) key_id: String,
    #[serde(deserialize_with = "values::text_or_none")]
    pub(crate) secret: Option<String>,
    #[serde(deserialize_with = "values::path_or_none")]
    pub(crate) secret_file: Option<PathBuf>,
    pub(crate) prefix: String,
    pub(crate) parallel: usize,
    pub(crate) transfers_max: usize,
    pub(crate) transfers_workspace_max: usize,
    pub(crate) timeout: Span,
    pub(crate) retries: usize,
    pub(crate) tidy_every: Span,
}

impl std::fmt::Debug for Objects {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Objects")
            .field("endpoint", &self.endpoint)
            .field("bucket", &self.bucket)
            .field("prefix", &self.prefix)
            .finish_non_exhaustive()
    }
}

impl Objects {
    /// Returns what is most likely a mistake: settings of a service that has no address.
    pub(super) fn doubt(&self) -> Option<Wrong> {
        let set = [("objects.bucket", &self.bucket), ("objects.key_id", &self.key_id)];
        let (key, _) = set.into_iter().find(|(_, value)| !value.is_empty())?;
        let message =
            "does nothing without objects.endpoint, such as https://s3.eu-central-1.amazonaws.com";
        self.endpoint.is_none().then(|| Wrong::new(key, message))
    }

    /// Checks the settings. Without an endpoint there is no service, and the other keys do not
    /// matter.
    pub(super) fn check(&self) -> Result<(), Wrong> {
        let wrong = |key, message: &str| Err(Wrong::new(key, message));
        let Some(endpoint) = &self.endpoint else { return Ok(()) };
        let address = reqwest::Url::parse(endpoint).ok();
        let plain = |url: &reqwest::Url| {
            matches!(url.scheme(), "http" | "https")
                && url.has_host()
                && url.path() == "/"
                && url.username().is_empty()
                && url.password().is_none()
                && url.query().is_none()
        };
        if !address.is_some_and(|url| plain(&url)) {
            return wrong(
                "objects.endpoint",
                "must be an address such as https://s3.example.com, without a path: the bucket is objects.bucket",
            );
        }
        let names = [
            ("objects.bucket", &self.bucket),
            ("objects.region", &self.region),
            ("objects.key_id", &self.key_id),
        ];
        if let Some((key, _)) = names.into_iter().find(|(_, name)| name.is_empty()) {
            return wrong(key, "is missing: objects.endpoint needs it");
        }
        match (&self.secret, &self.secret_file) {
            (None, None) => wrong("objects.secret", "is missing: set it, or objects.secret_file"),
            (Some(_), Some(_)) => {
                wrong("objects.secret_file", "cannot be set beside objects.secret")
            }
            _ => Ok(()),
        }
    }

    /// Makes the settings of the service and reads its secret; `None` if no service is configured.
    pub(crate) fn settings(&self) -> std::io::Result<Option<objects::Settings>> {
        let Some(endpoint) = &self.endpoint else { return Ok(None) };
        let secret = match (&self.secret, &self.secret_file) {
            (Some(secret), _) => objects::Secret::new(secret),
            (None, Some(file)) => match std::fs::read_to_string(file)?.trim() {
                "" => return Err(std::io::Error::other(format!("{} is empty", file.display()))),
                secret => objects::Secret::new(secret),
            },
            (None, None) => return Ok(None),
        };
        Ok(Some(objects::Settings {
            endpoint: endpoint.trim_end_matches('/').to_owned(),
            bucket: self.bucket.clone(),
            region: self.region.clone(),
            key_id: self.key_id.clone(),
            secret,
            prefix: self.prefix.clone(),
            parallel: self.parallel,
            timeout: self.timeout.0,
            retries: self.retries,
        }))
    }

    pub(crate) fn remote(&self, offload_after: Duration) -> host::RemoteSettings {
        host::RemoteSettings {
            transfers_max: self.transfers_max,
            transfers_workspace_max: self.transfers_workspace_max,
            tidy_every: self.tidy_every.0,
            offload_after,
        }
    }

    pub(crate) fn template_copies(&self, unused_after: Duration) -> control::TemplateCopies {
        control::TemplateCopies { tidy_every: self.tidy_every.0, unused_after }
    }
}
