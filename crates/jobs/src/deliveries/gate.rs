//! Decides which addresses may be called: the internet, and internal hosts that the operator names.
//!
//! Users choose the addresses, so without this they could have the server call what only the server
//! can reach. A name is resolved here, once, and all its addresses must be on the internet. The
//! connection goes to the addresses that were checked.

use futures_util::future::BoxFuture;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use types::parts::addresses::is_public;
use url::{Host, Url};

/// Most addresses of one name that are checked.
const ADDRESSES_MAX: usize = 32;

type Addresses = BoxFuture<'static, io::Result<Vec<IpAddr>>>;

/// Finds the addresses of a name.
pub trait Lookup: Fn(String) -> Addresses + Send + Sync + 'static {}

impl<F: Fn(String) -> Addresses + Send + Sync + 'static> Lookup for F {}

/// Resolves a name as this machine does.
pub(super) fn system_lookup(name: String) -> Addresses {
    Box::pin(async move {
        let found = tokio::net::lookup_host((name, 0)).await?;
        Ok(found.map(|address| address.ip()).take(ADDRESSES_MAX).collect())
    })
}

/// Why an address is not called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Closed {
    #[error("only http and https addresses are called")]
    Scheme,
    #[error("addresses with a user name or a password are not called")]
    Credentials,
    #[error("the host is not on the internet, and `callbacks.inside` does not list its name")]
    Inside,
}

#[derive(Clone)]
pub(super) struct Gate {
    inside: Arc<Vec<String>>,
    lookup: Arc<dyn Lookup<Output = Addresses>>,
}

impl Gate {
    pub(super) fn new(inside: Vec<String>, lookup: impl Lookup) -> Self {
        Self { inside: Arc::new(inside), lookup: Arc::new(lookup) }
    }

    /// Checks what can be checked before names are resolved. Literal addresses are checked only
    /// here, and must be on the internet: only names can be listed.
    pub(super) fn admit(&self, url: &Url) -> Result<(), Closed> {
        if !matches!(url.scheme(), "http" | "https") {
            return Err(Closed::Scheme);
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(Closed::Credentials);
        }
        let literal: Option<IpAddr> = match url.host() {
            Some(Host::Ipv4(address)) => Some(address.into()),
            Some(Host::Ipv6(address)) => Some(address.into()),
            Some(Host::Domain(_)) => None,
            None => return Err(Closed::Inside),
        };
        match literal.is_none_or(is_public) {
            true => Ok(()),
            false => Err(Closed::Inside),
        }
    }

    fn is_inside(&self, host: &str) -> bool {
        let host = host.trim_end_matches('.');
        self.inside.iter().any(|inside| inside.eq_ignore_ascii_case(host))
    }
}

impl Resolve for Gate {
    fn resolve(&self, name: Name) -> Resolving {
        let listed = self.is_inside(name.as_str());
        let found = (self.lookup)(name.as_str().to_owned());
        Box::pin(async move {
            let found = found.await?;
            // One internal address refuses the whole name, because we do not choose which address
            // is called.
            if !listed && !found.iter().all(|address| is_public(*address)) {
                return Err(Closed::Inside.into());
            }
            let found: Vec<_> =
                found.into_iter().map(|address| SocketAddr::new(address, 0)).collect();
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leading_to(addresses: &[&str]) -> Gate {
        let addresses: Vec<IpAddr> =
            addresses.iter().map(|address| address.parse().unwrap()).collect();
        Gate::new(vec!["hooks.lan".into(), "10.0.0.7".into(), "fd00::7".into()], move |_| {
            let addresses = addresses.clone();
            Box::pin(async move { Ok(addresses) })
        })
    }

    #[test]
    fn only_the_internet_and_what_is_named_is_called() {
        let gate = leading_to(&[]);
        let admit = |text: &str| gate.admit(&Url::parse(text).unwrap());
        for open in ["https://a.example/", "http://8.8.8.8:99/", "http://hooks.lan/"] {
            assert_eq!(admit(open), Ok(()), "{open}");
        }
        for inside in [
            "http://10.0.0.7/",
            "http://[fd00::7]/",
            "http://167772167/",
            "http://0x7f.1/",
            "http://[::1]/",
            "http://[::ffff:10.0.0.8]/",
            "http://[::ffff:10.0.0.7]/",
        ] {
            assert_eq!(admit(inside), Err(Closed::Inside), "{inside}");
        }
        assert_eq!(admit("ftp://a.example/"), Err(Closed::Scheme));
        assert_eq!(admit("https://me@a.example/"), Err(Closed::Credentials));
    }

    #[tokio::test]
    async fn a_name_must_lead_to_the_internet_with_all_its_addresses() {
        let resolve = async |addresses: &[&str], name: &str| {
            let found = leading_to(addresses).resolve(name.parse().unwrap()).await;
            found.map(Iterator::count).map_err(|error| error.to_string())
        };
        assert_eq!(resolve(&["1.1.1.1", "2606:4700::1"], "a.example").await, Ok(2));
        for mixed in
            [&["1.1.1.1", "127.0.0.1"][..], &["169.254.169.254"], &["::1"], &["::ffff:10.0.0.1"]]
        {
            assert_eq!(
                resolve(mixed, "a.example").await,
                Err(Closed::Inside.to_string()),
                "{mixed:?}"
            );
        }
        assert_eq!(resolve(&["127.0.0.1"], "hooks.lan").await, Ok(1));
        assert_eq!(resolve(&["127.0.0.1"], "HOOKS.lan.").await, Ok(1));
        let system = Gate::new(Vec::new(), system_lookup);
        assert!(system.resolve("localhost".parse().unwrap()).await.is_err());
    }
}
