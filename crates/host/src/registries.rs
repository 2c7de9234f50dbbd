//! Decides which registries may be asked: those on the internet, and internal ones that the
//! settings name.
//!
//! Users choose the names of images, so without this a name could make the server call hosts that
//! only it can reach.

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::redirect::{Attempt, Policy};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use types::parts::addresses::is_public;

/// How many redirects are followed. Registries redirect to a store at most a few times.
const REDIRECTS_MAX: usize = 5;

/// The rule which hosts may be asked. Also makes clients that follow it.
#[derive(Clone)]
pub(crate) struct Registries(Arc<Vec<String>>);

impl Registries {
    /// `inside` are hosts, without ports, that may be asked although they are not on the internet.
    pub(crate) fn new(inside: Vec<String>) -> Self {
        Self(Arc::new(inside))
    }

    pub(crate) fn client(&self) -> reqwest::Result<reqwest::Client> {
        let rule = self.clone();
        let redirects = Policy::custom(move |attempt: Attempt<'_>| {
            let known = attempt.url().host_str().is_some_and(|host| rule.permits(host));
            if !known || attempt.previous().len() > REDIRECTS_MAX {
                attempt.stop()
            } else {
                attempt.follow()
            }
        });
        reqwest::Client::builder().redirect(redirects).dns_resolver(Arc::new(self.clone())).build()
    }

    /// Returns true if a host may be asked, judging by its name alone. The addresses of a name are
    /// checked when it is resolved.
    pub(crate) fn permits(&self, host: &str) -> bool {
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        self.is_inside(host) || bare.parse::<IpAddr>().map_or(true, is_public)
    }

    fn is_inside(&self, host: &str) -> bool {
        // IPv6 addresses have brackets in URLs, but need none in the settings.
        let bare = |host: &str| host.trim_matches(['[', ']']).to_ascii_lowercase();
        self.0.iter().any(|inside| bare(inside) == bare(host))
    }
}

impl Resolve for Registries {
    fn resolve(&self, name: Name) -> Resolving {
        let rule = self.clone();
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let inside = rule.is_inside(name.as_str());
            let open: Vec<SocketAddr> =
                found.filter(|address| inside || is_public(address.ip())).collect();
            if open.is_empty() {
                return Err(
                    "the host is not on the internet; images.inside lists registries that may be asked all the same, \
                     builder.inside hosts that ADD may"
                        .into(),
                );
            }
            Ok(Box::new(open.into_iter()) as Addrs)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_internet_and_what_is_named_may_be_asked() {
        let inside = ["registry.lan", "10.0.0.7", "fd00::7", "[fd00::8]"].map(str::to_owned);
        let rule = Registries::new(inside.to_vec());
        for host in [
            "ghcr.io",
            "8.8.8.8",
            "registry.lan",
            "REGISTRY.lan",
            "10.0.0.7",
            "[2606:4700::1]",
            "[fd00::7]",
            "[fd00::8]",
        ] {
            assert!(rule.permits(host), "{host}");
        }
        for host in [
            "127.0.0.1",
            "10.0.0.8",
            "169.254.169.254",
            "[::1]",
            "[::ffff:127.0.0.1]",
            "[fd00::1]",
            "0.0.0.0",
            "100.64.1.1",
            "[64:ff9b::7f00:1]",
        ] {
            assert!(!rule.permits(host), "{host}");
        }
    }

    #[tokio::test]
    async fn a_name_that_leads_inside_is_not_followed() {
        let rule = Registries::new(Vec::new());
        assert!(rule.resolve("localhost".parse().unwrap()).await.is_err());
        let rule = Registries::new(vec!["localhost".into()]);
        assert!(rule.resolve("localhost".parse().unwrap()).await.is_ok());
    }
}
