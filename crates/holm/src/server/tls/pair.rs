//! A certificate chain with its private key, read from PEM.

use rustls::crypto::ring::sign::any_supported_type;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use std::path::Path;
use std::sync::Arc;
use types::Timestamp;
use x509_cert::der::Decode;
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;
use x509_cert::{Certificate, TbsCertificate, Version};

/// Larger files cannot be certificates.
const FILE_BYTES_MAX: u64 = 1 << 20;

pub(crate) struct Pair {
    pub(crate) certified: Arc<CertifiedKey>,
    pub(crate) from: Timestamp,
    pub(crate) until: Timestamp,
    /// The names in DNS that it is for, in lower case.
    pub(crate) names: Vec<String>,
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
        let read = Certificate::from_der(first).map_err(|error| error.to_string())?.tbs_certificate;
        if read.version != Version::V3 {
            return Err("the certificate is of an old version of X.509: TLS needs version 3".into());
        }
        let from = timestamp(read.validity.not_before);
        let until = timestamp(read.validity.not_after);
        let names = names(&read).map_err(|error| error.to_string())?;
        if is_encrypted(key) {
            return Err("the key is encrypted: store it without a password".into());
        }
        let key = PrivateKeyDer::from_pem_slice(key)
            .map_err(|error| format!("the key is not PEM: {error}"))?;
        let key = any_supported_type(&key).map_err(|error| error.to_string())?;
        let certified = CertifiedKey::new(chain, key);
        certified.keys_match().map_err(|error| format!("they do not belong together: {error}"))?;
        Ok(Self { certified: Arc::new(certified), from, until, names })
    }
}

/// True for the two ways in which PEM holds an encrypted key.
fn is_encrypted(key: &[u8]) -> bool {
    let has = |mark: &str| key.windows(mark.len()).any(|part| part == mark.as_bytes());
    has("-----BEGIN ENCRYPTED PRIVATE KEY") || has("Proc-Type: 4,ENCRYPTED")
}

fn names(read: &TbsCertificate) -> x509_cert::der::Result<Vec<String>> {
    let found = read.get::<SubjectAltName>()?;
    let all = found.map(|(_, names)| names.0).unwrap_or_default();
    Ok(all
        .iter()
        .filter_map(|name| match name {
            GeneralName::DnsName(name) => Some(name.as_str().to_ascii_lowercase()),
            _ => None,
        })
        .collect())
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

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, KeyPair};

    fn refusal(chain: &[u8], key: &str) -> String {
        Pair::parse(chain, key.as_bytes()).err().unwrap()
    }

    #[test]
    fn a_pair_that_no_server_can_use_says_why() {
        let key = KeyPair::generate().unwrap();
        let made = CertificateParams::new(["a.test".to_owned()]).unwrap().self_signed(&key);
        let chain = made.unwrap().pem().into_bytes();
        Pair::parse(&chain, key.serialize_pem().as_bytes()).unwrap();
        for head in [
            "-----BEGIN ENCRYPTED PRIVATE KEY-----\nMIIB",
            "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,00\n\nMIIB",
        ] {
            assert!(refusal(&chain, head).contains("is encrypted"), "{head}");
        }
        assert!(refusal(V1.as_bytes(), &key.serialize_pem()).contains("needs version 3"));
    }

    /// Made by `openssl x509 -req` without extensions, which makes version 1.
    const V1: &str = "-----BEGIN CERTIFICATE-----
MIIBHTCBxQIUVmnMizMKsoG8DK+tTNMwzzv71KUwCgYIKoZIzj0EAwIwETEPMA0G
A1UEAwwGYS50ZXN0MCAXDTI2MTEyODIxMzkzM1oYDzIxMjYxMTA0MjEzOTMzWjAR
MQ8wDQYDVQQDDAZhLnRlc3QwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAAQRrzrC
ZbEGjHIBO1MXkGVd5jfb1vCs6U8spPqXtaGt/gmlzTtu7CJvbDTdz5PrrUvmwllw
Q9KxKxnScnE3F0ufMAoGCCqGSM49BAMCA0cAMEQCIDrwSUb9YrYGK785MpqQiFze
OFB5z40ua39N1bo+WBNIAiB1FjPf51hxt/0BEA+1cqYlw2bCZtkLxx3FSyQw022I
hA==
-----END CERTIFICATE-----";
}
