//! A certificate chain with its private key, read from PEM.

use rustls::crypto::ring::sign::any_supported_type;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use std::path::Path;
use std::sync::Arc;
use types::Timestamp;
use x509_cert::Certificate;
use x509_cert::der::Decode;

/// Larger files cannot be certificates.
const FILE_BYTES_MAX: u64 = 1 << 20;

pub(crate) struct Pair {
    pub(crate) certified: Arc<CertifiedKey>,
    pub(crate) from: Timestamp,
    pub(crate) until: Timestamp,
}

impl Pair {
    pub(crate) fn read(certificate: &Path, key: &Path) -> Result<Self, String> {
        Self::parse(&read(certificate)?, &read(key)?).map_err(|message| {
            format!("{} with {}: {message}", certificate.display(), key.display())
        })
    }

    /// Parses a pair. Errors must not quote the texts, because one of them is the key.
    pub(crate) fn parse(chain: &[u8], key: &[u8]) -> Result<Self, String> {
        let chain = CertificateDer::pem_slice_iter(chain)
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| format!("the certificate is not PEM: {error}"))?;
        let first = chain.first().ok_or("there is no certificate in PEM")?;
        let validity = Certificate::from_der(first)
            .map_err(|error| error.to_string())?
            .tbs_certificate
            .validity;
        let from = timestamp(validity.not_before);
        let until = timestamp(validity.not_after);
        let key = PrivateKeyDer::from_pem_slice(key)
            .map_err(|error| format!("the key is not PEM: {error}"))?;
        let key = any_supported_type(&key).map_err(|error| error.to_string())?;
        let certified = CertifiedKey::new(chain, key);
        certified.keys_match().map_err(|error| format!("they do not belong together: {error}"))?;
        Ok(Self { certified: Arc::new(certified), from, until })
    }
}

fn timestamp(time: x509_cert::time::Time) -> Timestamp {
    Timestamp::from_ms(0).plus(time.to_unix_duration())
}

fn read(file: &Path) -> Result<Vec<u8>, String> {
    let told = |error: std::io::Error| format!("cannot read {}: {error}", file.display());
    if std::fs::metadata(file).map_err(told)?.len() > FILE_BYTES_MAX {
        return Err(format!("{} is too large for a PEM file", file.display()));
    }
    std::fs::read(file).map_err(told)
}
