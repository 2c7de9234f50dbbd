//! Whom programs in here trust: the certificates of the image and, while there is a proxy that
//! opens TLS, those of its authority.
//!
//! The authority stands in the image's own file of certificates, between two lines by which it is
//! found again, so that programs trust it that look nowhere else. Variables lead the others there.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use types::guest::ProxySettings;

/// Where images have their certificates, by what they are made of.
const BUNDLES: [&str; 6] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/cert.pem",
    "/usr/lib/ssl/cert.pem",
];
const FOLDER: &str = "/etc/holm";
const AUTHORITY: &str = "authority.pem";
const JAVA: &str = "cacerts.jks";
/// Key stores have one; it protects nothing.
const JAVA_PASSWORD: &str = "changeit";
const BEGIN: &str = "# Begin of the authority of the proxy\n";
const END: &str = "# End of the authority of the proxy\n";
/// Variables by which programs find a file of all certificates that they are to trust: OpenSSL and
/// what is made with it, Python's requests, pip, curl, git, npm, cargo, and the clients of clouds.
const OF_BUNDLE: [&str; 8] = [
    "SSL_CERT_FILE",
    "REQUESTS_CA_BUNDLE",
    "PIP_CERT",
    "CURL_CA_BUNDLE",
    "GIT_SSL_CAINFO",
    "NPM_CONFIG_CAFILE",
    "CARGO_HTTP_CAINFO",
    "AWS_CA_BUNDLE",
];
/// These add to what they trust anyway.
const OF_AUTHORITY: [&str; 2] = ["NODE_EXTRA_CA_CERTS", "DENO_CERT"];
const OF_JAVA: &str = "JAVA_TOOL_OPTIONS";
const FILE_BYTES_MAX: u64 = 16 << 20;

/// The files below one root, which is that of the instance but in tests.
pub(crate) struct Trust {
    root: PathBuf,
}

impl Default for Trust {
    fn default() -> Self {
        Self { root: "/".into() }
    }
}

impl Trust {
    /// Makes the files what the settings ask for. Answers the variables that lead programs there.
    pub(crate) fn follow(&self, settings: &ProxySettings) -> io::Result<BTreeMap<String, String>> {
        if settings.authority.is_empty() {
            self.forget()?;
            return Ok(BTreeMap::new());
        }
        fs::create_dir_all(self.below(FOLDER))?;
        let (authority, java) = (format!("{FOLDER}/{AUTHORITY}"), format!("{FOLDER}/{JAVA}"));
        replace(&self.below(&authority), settings.authority.as_bytes())?;
        let bundle = self.add_to_bundle(settings)?;
        let mut variables: BTreeMap<String, String> =
            OF_BUNDLE.iter().map(|name| ((*name).to_owned(), bundle.clone())).collect();
        variables.extend(OF_AUTHORITY.map(|name| (name.to_owned(), authority.clone())));
        if let Some(store) = &settings.java {
            let store = STANDARD.decode(store).map_err(io::Error::other)?;
            replace(&self.below(&java), &store)?;
            let options = format!(
                "-Djavax.net.ssl.trustStore={java} -Djavax.net.ssl.trustStorePassword={JAVA_PASSWORD}"
            );
            variables.insert(OF_JAVA.to_owned(), options);
        }
        Ok(variables)
    }

    /// Answers the path of the file that has all certificates.
    fn add_to_bundle(&self, settings: &ProxySettings) -> io::Result<String> {
        let there_is = |path: &&&str| self.below(path).exists();
        let path = BUNDLES.iter().find(there_is).unwrap_or(&BUNDLES[0]);
        let own = match read(&self.below(path))? {
            Some(own) => without_authority(&own),
            None => settings.roots.clone().unwrap_or_default(),
        };
        let line_break = if own.is_empty() || own.ends_with('\n') { "" } else { "\n" };
        let text = format!("{own}{line_break}{BEGIN}{}\n{END}", settings.authority.trim_end());
        replace(&self.below(path), text.as_bytes())?;
        Ok((*path).to_owned())
    }

    fn forget(&self) -> io::Result<()> {
        if !self.below(&format!("{FOLDER}/{AUTHORITY}")).exists() {
            return Ok(());
        }
        for path in BUNDLES {
            let path = self.below(path);
            if let Some(text) = read(&path)?.filter(|text| text.contains(BEGIN)) {
                replace(&path, without_authority(&text).as_bytes())?;
            }
        }
        // The one by which it is known that there is something to forget goes last.
        for name in [JAVA, AUTHORITY] {
            match fs::remove_file(self.below(&format!("{FOLDER}/{name}"))) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    fn below(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }
}

/// `None` where there is no such file. What is not text is no file of certificates of ours.
fn read(path: &Path) -> io::Result<Option<String>> {
    match fs::metadata(path) {
        Ok(about) if about.len() > FILE_BYTES_MAX => Err(ErrorKind::FileTooLarge.into()),
        // Reading a pipe that somebody put there would wait for ever.
        Ok(about) if !about.is_file() => Err(ErrorKind::InvalidInput.into()),
        Ok(_) => fs::read(path).map(|bytes| Some(String::from_utf8_lossy(&bytes).into_owned())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// What an image has of its own in such a file.
fn without_authority(text: &str) -> String {
    let Some((before, rest)) = text.split_once(BEGIN) else { return text.to_owned() };
    let after = rest.split_once(END).map_or("", |(_, after)| after);
    format!("{before}{after}")
}

/// Whole or not at all, also where the path is a link to the real file.
fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    if fs::read(&path).is_ok_and(|now| now == content) {
        return Ok(());
    }
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let fresh = path.with_extension("holm-new");
    let write = || {
        fs::write(&fresh, content)?;
        fs::set_permissions(&fresh, Permissions::from_mode(0o644))?;
        fs::rename(&fresh, &path)
    };
    write().inspect_err(|_| drop(fs::remove_file(&fresh)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: &str = "-----BEGIN CERTIFICATE-----\nimage\n-----END CERTIFICATE-----\n";

    fn scene() -> (tempfile::TempDir, Trust) {
        let folder = tempfile::tempdir().unwrap();
        let trust = Trust { root: folder.path().to_owned() };
        (folder, trust)
    }

    fn settings(authority: &str) -> ProxySettings {
        let roots = Some("the machine's roots\n".to_owned());
        ProxySettings { authority: authority.to_owned(), roots, ..ProxySettings::default() }
    }

    fn write(folder: &tempfile::TempDir, path: &str, text: &str) {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn the_authority_is_added_once_exchanged_and_taken_out_again() {
        let (folder, trust) = scene();
        write(&folder, "etc/pki/tls/certs/ca-bundle.crt", OWN);
        let bundle = || fs::read_to_string(folder.path().join("etc/pki/tls/certs/ca-bundle.crt"));
        for authority in ["first", "first", "second"] {
            let variables = trust.follow(&settings(authority)).unwrap();
            assert_eq!(variables["SSL_CERT_FILE"], "/etc/pki/tls/certs/ca-bundle.crt");
            assert_eq!(bundle().unwrap(), format!("{OWN}{BEGIN}{authority}\n{END}"));
        }
        assert_eq!(fs::read(folder.path().join("etc/holm/authority.pem")).unwrap(), b"second");
        assert_eq!(trust.follow(&ProxySettings::default()).unwrap(), BTreeMap::new());
        assert_eq!(bundle().unwrap(), OWN);
        assert!(!folder.path().join("etc/holm/authority.pem").exists());
    }

    #[test]
    fn an_image_without_certificates_gets_those_of_the_machine() {
        let (folder, trust) = scene();
        let variables = trust.follow(&settings("ours")).unwrap();
        let path = folder.path().join(variables["CURL_CA_BUNDLE"].trim_start_matches('/'));
        let text = fs::read_to_string(path).unwrap();
        assert!(text.starts_with("the machine's roots\n") && text.contains("ours"), "{text}");
    }

    #[test]
    fn a_link_stays_one_and_what_it_leads_to_is_changed() {
        let (folder, trust) = scene();
        write(&folder, "real.pem", OWN);
        let link = folder.path().join("etc/ssl/certs/ca-certificates.crt");
        fs::create_dir_all(link.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(folder.path().join("real.pem"), &link).unwrap();
        trust.follow(&settings("ours")).unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert!(fs::read_to_string(folder.path().join("real.pem")).unwrap().contains("ours"));
    }
}
