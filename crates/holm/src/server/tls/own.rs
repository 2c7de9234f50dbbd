//! The server's own certificate, which is read again when its files change.

use super::folder::{LOOK_EVERY, Print, print};
use super::{Certificates, Pair};
use crate::config;
use std::path::PathBuf;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

pub(crate) struct Own {
    certificate: PathBuf,
    key: PathBuf,
    /// What the files looked like when they were last read.
    seen: [Option<Print>; 2],
}

impl Own {
    /// Returns `None` if none is set and the server speaks plain HTTP.
    pub(crate) fn of(settings: &config::Server) -> Option<Self> {
        let certificate = settings.tls_certificate.clone()?;
        Some(Self { certificate, key: settings.tls_key.clone()?, seen: [None, None] })
    }

    /// Applies changes of the files until the server ends.
    pub(crate) async fn follow(
        mut self,
        certificates: Arc<Certificates>,
        ending: CancellationToken,
    ) {
        while ending.run_until_cancelled(tokio::time::sleep(LOOK_EVERY)).await.is_some() {
            let looked = tokio::task::spawn_blocking(move || (self.look(), self)).await;
            let Ok((changed, own)) = looked else { return };
            self = own;
            if let Some(pair) = changed {
                certificates.replace_own(pair.certified);
            }
        }
    }

    /// Reads the pair if its files have changed. While one of them is new and the other is not, they
    /// do not belong together, and the pair before them stays.
    fn look(&mut self) -> Option<Pair> {
        let now = [print(&self.certificate), print(&self.key)];
        if now == self.seen {
            return None;
        }
        self.seen = now;
        Pair::read(&self.certificate, &self.key)
            .inspect_err(|error| {
                tracing::warn!(error, "server.tls_certificate cannot be used as it is now");
            })
            .ok()
    }
}
