//! TLS to hosts: which authorities vouch for them, and which versions of HTTP are offered.

use rustls::pki_types::{InvalidDnsNameError, ServerName};
use rustls::{ClientConfig, RootCertStore};
use rustls_native_certs::{CertificateResult, load_native_certs};
use std::sync::Arc;
use types::parts::hosts::Host;

/// The TLS configurations for connections to hosts.
pub(crate) struct UpstreamTls {
    pub(crate) either: Arc<ClientConfig>,
    /// For what HTTP/2 cannot express, such as upgrades, and for an organisation's proxy.
    pub(crate) one: Arc<ClientConfig>,
}

#[derive(Debug, thiserror::Error)]
pub enum RootsError {
    #[error("the certificates of this machine's authorities cannot be read")]
    Machine(#[source] rustls_native_certs::Error),
    #[error("failed to make TLS ready")]
    Tls(#[from] rustls::Error),
}

impl UpstreamTls {
    /// Trusts the authorities that this machine trusts, and these.
    pub(crate) fn of_machine(extra: &RootCertStore) -> Result<Self, RootsError> {
        let mut roots = of_authorities(load_native_certs())?;
        roots.extend(extra.roots.iter().cloned());
        Self::new(roots)
    }

    pub(crate) fn new(roots: RootCertStore) -> Result<Self, RootsError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut either = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let mut one = either.clone();
        either.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        one.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self { either: Arc::new(either), one: Arc::new(one) })
    }
}

/// Returns what the certificate of a host has to be for.
pub(crate) fn server_name(host: &Host) -> Result<ServerName<'static>, InvalidDnsNameError> {
    match host {
        Host::Name(name) => ServerName::try_from(name.clone()),
        Host::Address(address) => Ok(ServerName::IpAddress((*address).into())),
    }
}

/// Collects what was found of the machine's certificates. A machine may have none, but where there
/// are some and none can be read, no host could ever prove who it is.
fn of_authorities(found: CertificateResult) -> Result<RootCertStore, RootsError> {
    let mut roots = RootCertStore::empty();
    for error in &found.errors {
        tracing::warn!(%error, "some certificates of this machine cannot be read");
    }
    roots.add_parsable_certificates(found.certs);
    match found.errors.into_iter().next().filter(|_| roots.is_empty()) {
        Some(error) => Err(RootsError::Machine(error)),
        None => Ok(roots),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls_native_certs::load_certs_from_paths;
    use std::path::Path;

    #[test]
    fn a_bundle_that_cannot_be_read_is_not_taken_for_an_empty_one() {
        let unreadable = load_certs_from_paths(Some(Path::new("/nowhere/bundle.pem")), None);
        assert!(matches!(of_authorities(unreadable), Err(RootsError::Machine(_))));
        assert!(of_authorities(load_certs_from_paths(None, None)).is_ok(), "there are none");
    }
}
