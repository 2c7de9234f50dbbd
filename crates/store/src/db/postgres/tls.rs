//! Which certificates of the database are trusted.

use crate::Error;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use std::path::Path;
use std::sync::Arc;
use tokio_postgres_rustls::MakeRustlsConnect;

pub(super) fn tls(root_certificates: Option<&Path>) -> Result<MakeRustlsConnect, Error> {
    let mut roots = rustls::RootCertStore::empty();
    match root_certificates {
        Some(file) => {
            let unusable = |error: rustls::pki_types::pem::Error| {
                Error::Unusable(format!(
                    "the certificates in {} cannot be read: {error}",
                    file.display()
                ))
            };
            for certificate in CertificateDer::pem_file_iter(file).map_err(unusable)? {
                roots.add(certificate.map_err(unusable)?).map_err(Error::database)?;
            }
        }
        None => add_usual(&mut roots, rustls_native_certs::load_native_certs())?,
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider);
    let builder = builder.with_safe_default_protocol_versions().map_err(Error::database)?;
    Ok(MakeRustlsConnect::new(builder.with_root_certificates(roots).with_no_client_auth()))
}

/// Adds the certificates of the machine. Those that cannot be read are skipped, unless there would
/// be none then: the next connection may find them.
fn add_usual(
    roots: &mut rustls::RootCertStore,
    found: rustls_native_certs::CertificateResult,
) -> Result<(), Error> {
    let _ = roots.add_parsable_certificates(found.certs);
    for error in &found.errors {
        tracing::warn!(%error, "some certificates of this machine cannot be read");
    }
    match found.errors.first().filter(|_| roots.is_empty()) {
        Some(error) => Err(Error::Unusable(format!(
            "the certificates of this machine's authorities cannot be read: {error}"
        ))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls_native_certs::load_certs_from_paths;

    #[test]
    fn a_bundle_that_cannot_be_read_is_not_taken_for_an_empty_one() {
        let add = |file| {
            add_usual(&mut rustls::RootCertStore::empty(), load_certs_from_paths(file, None))
        };
        let unreadable = add(Some(Path::new("/nowhere/bundle.pem")));
        assert!(matches!(unreadable, Err(Error::Unusable(_))));
        assert!(add(None).is_ok(), "there is none");
    }
}
