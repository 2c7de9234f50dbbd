//! Fetches files for ADD. Nothing is fetched from the internal network, unless the settings name its
//! host.

use crate::registries::Registries;
use control::machine::BuildFault;
use futures_util::StreamExt as _;
use images::build::Download;
use std::path::PathBuf;
use std::time::Duration;
use tokio::io::AsyncWriteExt as _;
use types::Timestamp;

/// How long a transfer may go without a byte.
const STALL: Duration = Duration::from_secs(30);
const NAME_BYTES_MAX: usize = 255;

pub(super) struct Fetcher {
    rule: Registries,
    http: reqwest::Client,
}

impl Fetcher {
    pub(super) fn new(inside: Vec<String>) -> reqwest::Result<Self> {
        let rule = Registries::new(inside);
        Ok(Self { http: rule.client()?, rule })
    }

    /// Fetches a file for ADD.
    pub(super) async fn fetch(
        &self,
        address: &str,
        file: PathBuf,
        bytes_max: u64,
    ) -> Result<Download, BuildFault> {
        let failed = |why: &str| BuildFault::Failed(format!("ADD {}: {why}", shown(address)));
        let url: reqwest::Url = address.parse().map_err(|_| failed("it is no address"))?;
        // IP addresses are never resolved, so they are checked here.
        if !url.host_str().is_some_and(|host| self.rule.permits(host)) {
            return Err(failed(
                "its host is not on the internet; builder.inside lists those that may be",
            ));
        }
        let name = name(&url);
        if name.len() > NAME_BYTES_MAX {
            return Err(failed("its name is too long"));
        }
        let network = |error: reqwest::Error| failed(&types::chain(&error.without_url()));
        let answer = tokio::time::timeout(STALL, self.http.get(url).send());
        let answer = answer.await.map_err(|_| failed("no answer"))?.map_err(network)?;
        if !answer.status().is_success() {
            return Err(failed(&format!("the answer is {}", answer.status())));
        }
        let modified = answer
            .headers()
            .get(reqwest::header::LAST_MODIFIED)
            .and_then(|value| Timestamp::from_http_date(value.to_str().ok()?))
            .map_or(0, Timestamp::seconds);
        let broken = |error: std::io::Error| BuildFault::Broken(types::chain(&error));
        let mut to = tokio::fs::File::create(&file).await.map_err(broken)?;
        let (mut body, mut size) = (answer.bytes_stream(), 0u64);
        loop {
            let piece = tokio::time::timeout(STALL, body.next());
            let Some(piece) = piece.await.map_err(|_| failed("it stopped in the middle"))? else {
                break;
            };
            let piece = piece.map_err(network)?;
            size = size.saturating_add(piece.len() as u64);
            if size > bytes_max {
                return Err(failed(&format!("it has more than {bytes_max} bytes")));
            }
            to.write_all(&piece).await.map_err(broken)?;
        }
        to.flush().await.map_err(broken)?;
        Ok(Download { file, name, modified })
    }
}

/// Returns the name of the file at an address: the last part of its path, empty if it has none.
fn name(url: &reqwest::Url) -> String {
    let mut parts = url.path_segments().into_iter().flatten();
    parts.rfind(|part| !part.is_empty()).unwrap_or_default().to_owned()
}

/// Removes what may be secret from an address.
fn shown(address: &str) -> String {
    let until = address.find('?').unwrap_or(address.len());
    let plain = &address[..until];
    match (plain.find("://"), plain.rfind('@')) {
        (Some(start), Some(at)) if at > start => format!("{}://…{}", &plain[..start], &plain[at..]),
        _ => plain.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_named_by_the_last_part_of_its_address() {
        for (address, wanted) in [
            ("https://host/a/b.zip?x=/c", "b.zip"),
            ("https://host/a/b/", "b"),
            ("https://host/a//", "a"),
            ("https://host/a/..", ""),
            ("https://host/", ""),
            ("https://host", ""),
        ] {
            assert_eq!(name(&address.parse().unwrap()), wanted, "{address}");
        }
    }

    #[test]
    fn secrets_in_addresses_are_not_shown() {
        assert_eq!(shown("https://me:pass@host/x?token=1"), "https://…@host/x");
        assert_eq!(shown("https://host/x"), "https://host/x");
    }

    #[tokio::test]
    async fn nothing_is_fetched_from_the_inside() {
        // The program does this when it starts; another test may have done it.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let fetcher = Fetcher::new(Vec::new());
        let Ok(fetcher) = fetcher else { panic!("no client") };
        let folder = tempfile::tempdir().unwrap();
        for address in
            ["http://127.0.0.1/x", "http://[::1]/x", "http://169.254.169.254/x", "nonsense"]
        {
            let fetched = fetcher.fetch(address, folder.path().join("x"), 1).await;
            assert!(matches!(fetched, Err(BuildFault::Failed(_))), "{address}");
        }
    }
}
