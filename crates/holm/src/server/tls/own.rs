//! The server's own certificate, which is read again when its files change.

use super::doubt::Used;
use super::folder::{LOOK_EVERY, Print, print};
use super::{Certificates, Pair};
use crate::config;
use http::Uri;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;
use types::World;

pub(crate) struct Own {
    certificate: PathBuf,
    key: PathBuf,
    /// The name that callers know the server by, if it has one.
    name: Option<String>,
    used: Option<Used>,
    /// What the files looked like when they were last read.
    seen: [Option<Print>; 2],
}

impl Own {
    /// Returns `None` if none is set and the server speaks plain HTTP.
    pub(crate) fn of(settings: &config::Server) -> Option<Self> {
        let certificate = settings.tls_certificate.clone()?;
        let key = settings.tls_key.clone()?;
        let name = name_in(&settings.public_url);
        Some(Self { certificate, key, name, used: None, seen: [None, None] })
    }

    /// Applies changes of the files until the server ends.
    pub(crate) async fn follow(
        mut self,
        certificates: Arc<Certificates>,
        world: World,
        ending: CancellationToken,
    ) {
        while ending.run_until_cancelled(tokio::time::sleep(LOOK_EVERY)).await.is_some() {
            let looked = tokio::task::spawn_blocking(move || (self.look(), self)).await;
            let Ok((changed, own)) = looked else { return };
            self = own;
            if let Some(pair) = changed {
                certificates.replace_own(Arc::clone(&pair.certified));
                self.used = Some(Used::new(pair));
            }
            if let (Some(used), Some(name)) = (&mut self.used, &self.name) {
                used.tell(name, world.now());
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

/// Returns the name in an address; `None` if it has an IP address, or there is no address.
fn name_in(url: &str) -> Option<String> {
    let url: Uri = url.parse().ok()?;
    let host = url.host()?.trim_start_matches('[').trim_end_matches(']');
    host.parse::<IpAddr>().is_err().then(|| host.to_ascii_lowercase())
}
