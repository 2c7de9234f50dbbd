//! Files with certificates of authorities, which settings name. They are read when the server
//! starts, because one that holds nothing would otherwise only be noticed by whoever is not trusted.

use crate::error::Error;
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use std::path::Path;

/// Reads the PEM file that `setting` names. Without one there are no authorities.
pub(super) fn read(setting: &str, file: Option<&Path>) -> Result<RootCertStore, Error> {
    let mut roots = RootCertStore::empty();
    let Some(file) = file else { return Ok(roots) };
    let wrong = |message: String| Error::Start {
        act: format!("use the certificates of authorities in {} ({setting})", file.display()),
        message,
    };
    let certificates = CertificateDer::pem_file_iter(file);
    for certificate in certificates.map_err(|error| wrong(error.to_string()))? {
        let certificate = certificate.map_err(|error| wrong(error.to_string()))?;
        roots.add(certificate).map_err(|error| wrong(error.to_string()))?;
    }
    match roots.is_empty() {
        true => Err(wrong("it has no certificate in PEM".to_owned())),
        false => Ok(roots),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_a_usable_certificate_is_refused() {
        let own = rcgen::generate_simple_self_signed(["a.test".to_owned()]).unwrap().cert;
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("authorities");
        let read_file = || read("models.authorities", Some(&file));
        assert!(read("models.authorities", None).unwrap().is_empty());
        assert!(read_file().is_err(), "there is none");
        std::fs::write(&file, own.pem()).unwrap();
        assert_eq!(read_file().unwrap().len(), 1);
        let broken = own.pem().replace('M', "-");
        let no_certificate = "-----BEGIN CERTIFICATE-----\nQUJD\n-----END CERTIFICATE-----\n";
        for content in [
            b"".as_slice(),
            b"root:x:0:0".as_slice(),
            own.der().as_ref(),
            broken.as_bytes(),
            no_certificate.as_bytes(),
        ] {
            std::fs::write(&file, content).unwrap();
            let error = read_file().unwrap_err().to_string();
            assert!(error.contains("(models.authorities)"), "{error}");
        }
    }
}
