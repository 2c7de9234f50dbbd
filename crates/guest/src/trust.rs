//! Installs trusted certificates: those of the image and, while there is a proxy that opens TLS,
//! those of its authority.
//!
//! The authority is added to the image's own certificate file, between two marker lines by which it
//! is found again, so that programs that look nowhere else trust it. Variables point other programs
//! to that file.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use std::collections::BTreeMap;
use std::fs::{self, File, Permissions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use types::guest::{BUNDLES, JAVA_PASSWORD, ProxySettings};

const FOLDER: &str = "/etc/holm";
const AUTHORITY: &str = "authority.pem";
const JAVA: &str = "cacerts.jks";
const BEGIN: &str = "# Begin of the authority of the proxy\n";
const END: &str = "# End of the authority of the proxy\n";
/// Variables by which programs find the file with all certificates to trust: OpenSSL and programs
/// based on it, Python's requests, pip, curl, git, npm, cargo, and clients of cloud services.
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
/// Variables whose certificates are added to those that the program trusts anyway.
const OF_AUTHORITY: [&str; 2] = ["NODE_EXTRA_CA_CERTS", "DENO_CERT"];
pub(crate) const OF_JAVA: &str = "JAVA_TOOL_OPTIONS";
const FILE_BYTES_MAX: u64 = 16 << 20;

/// The certificate files below one root, which is that of the instance except in tests.
pub(crate) struct Trust {
    root: PathBuf,
}

impl Default for Trust {
    fn default() -> Self {
        Self { root: "/".into() }
    }
}

impl Trust {
    /// Makes the files match the settings. Returns the variables that point programs to them.
    pub(crate) fn follow(&self, settings: &ProxySettings) -> io::Result<BTreeMap<String, String>> {
        if settings.authority.is_empty() {
            self.forget()?;
            return Ok(BTreeMap::new());
        }
        fs::create_dir_all(self.below(FOLDER))?;
        let (authority, java) = (format!("{FOLDER}/{AUTHORITY}"), format!("{FOLDER}/{JAVA}"));
        // A certificate file can only contain our authority if this file existed before.
        let is_first = !self.below(&authority).exists();
        replace(&self.below(&authority), settings.authority.as_bytes())?;
        let bundle = self.add_to_bundle(settings, is_first)?;
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

    /// Adds the authority to the file with all certificates, and returns the path of that file.
    fn add_to_bundle(&self, settings: &ProxySettings, is_first: bool) -> io::Result<String> {
        let there_is = |path: &&&str| self.below(path).exists();
        let path = BUNDLES.iter().find(there_is).unwrap_or(&BUNDLES[0]);
        let addition = format!("{BEGIN}{}\n{END}", settings.authority.trim_end());
        let file = self.below(path);
        match open(&file)? {
            // Most starts take this path, and a caller waits for them.
            Some(own) if is_first => add(&file, own, &addition)?,
            Some(own) => {
                let own = without_authority(&text(own)?);
                replace(&file, with_line(&own, &addition).as_bytes())?;
            }
            None => {
                let roots = settings.roots.as_deref().unwrap_or_default();
                replace(&file, with_line(roots, &addition).as_bytes())?;
            }
        }
        Ok(format!("/{path}"))
    }

    fn forget(&self) -> io::Result<()> {
        if !self.below(&format!("{FOLDER}/{AUTHORITY}")).exists() {
            return Ok(());
        }
        for path in BUNDLES {
            let path = self.below(path);
            let text = open(&path)?.map(text).transpose()?;
            if let Some(text) = text.filter(|text| text.contains(BEGIN)) {
                replace(&path, without_authority(&text).as_bytes())?;
            }
        }
        // Last of all the file whose existence says that there is something to undo.
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

/// Opens a file; `None` if it does not exist.
fn open(path: &Path) -> io::Result<Option<File>> {
    match fs::metadata(path) {
        Ok(about) if about.len() > FILE_BYTES_MAX => Err(ErrorKind::FileTooLarge.into()),
        // Reading a pipe that somebody put there could block forever.
        Ok(about) if !about.is_file() => Err(ErrorKind::InvalidInput.into()),
        Ok(_) => File::open(path).map(Some),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Reads a file as text. Bytes that are not UTF-8 become U+FFFD.
fn text(file: File) -> io::Result<String> {
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Returns the content of a certificate file without our authority.
fn without_authority(text: &str) -> String {
    let (mut own, mut rest) = (String::with_capacity(text.len()), text);
    while let Some((before, after)) = rest.split_once(BEGIN) {
        own.push_str(before);
        rest = after.split_once(END).map_or("", |(_, after)| after);
    }
    own + rest
}

fn with_line(own: &str, addition: &str) -> String {
    let line_break = if own.is_empty() || own.ends_with('\n') { "" } else { "\n" };
    format!("{own}{line_break}{addition}")
}

/// Appends to a file of which only the last byte is read here: the kernel copies the rest.
fn add(path: &Path, mut own: File, addition: &str) -> io::Result<()> {
    let length = own.metadata()?.len();
    let mut last = *b"\n";
    if let Some(end) = length.checked_sub(1) {
        own.read_exact_at(&mut last, end)?;
    }
    let line_break = if last == *b"\n" { "" } else { "\n" };
    write_anew(path, |fresh| {
        // The file may grow meanwhile.
        io::copy(&mut (&mut own).take(length), fresh)?;
        fresh.write_all(format!("{line_break}{addition}").as_bytes())
    })
}

/// Replaces the content of a file if it differs.
fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    if has(path, content) {
        return Ok(());
    }
    write_anew(path, |fresh| fresh.write_all(content))
}

fn has(path: &Path, content: &[u8]) -> bool {
    // Most files that differ already differ in length.
    let fits = |about: fs::Metadata| about.is_file() && about.len() == content.len() as u64;
    fs::metadata(path).is_ok_and(fits) && fs::read(path).is_ok_and(|now| now == content)
}

/// Writes a file atomically, even if the path is a link to the real file.
fn write_anew(path: &Path, write: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<()> {
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let fresh = path.with_extension("holm-new");
    let make = || {
        let mut file = File::create(&fresh)?;
        write(&mut file)?;
        file.set_permissions(Permissions::from_mode(0o644))?;
        fs::rename(&fresh, &path)
    };
    make().inspect_err(|_| drop(fs::remove_file(&fresh)))
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
    fn a_file_that_ends_within_a_line_or_has_nothing_gets_lines_of_its_own() {
        for (own, kept) in [("", ""), ("no end of a line", "no end of a line\n")] {
            let (folder, trust) = scene();
            write(&folder, "etc/ssl/cert.pem", own);
            trust.follow(&settings("ours\n")).unwrap();
            let text = fs::read_to_string(folder.path().join("etc/ssl/cert.pem")).unwrap();
            assert_eq!(text, format!("{kept}{BEGIN}ours\n{END}"));
        }
    }

    /// Root inside the instance may change the files between two calls.
    #[test]
    fn what_was_added_twice_goes_all_at_once() {
        let (folder, trust) = scene();
        write(&folder, "etc/ssl/cert.pem", OWN);
        trust.follow(&settings("first")).unwrap();
        fs::remove_dir_all(folder.path().join("etc/holm")).unwrap();
        trust.follow(&settings("second")).unwrap();
        trust.follow(&settings("third")).unwrap();
        let text = fs::read_to_string(folder.path().join("etc/ssl/cert.pem")).unwrap();
        assert_eq!(text, format!("{OWN}{BEGIN}third\n{END}"));
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
