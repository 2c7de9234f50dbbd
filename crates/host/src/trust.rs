//! The certificates that this machine trusts, for images that have none of their own, and for Java,
//! which has its own format for them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use images::Image;
use ring::digest::{Context, SHA1_FOR_LEGACY_USE_ONLY};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use types::guest::{BUNDLES, JAVA_PASSWORD};

/// Where distributions put Java. Images that have it elsewhere usually say so in a variable.
const JAVA_FOLDERS: [&str; 4] = ["usr/lib/jvm", "usr/java", "opt/java", "opt/jdk"];
const JAVA_HOME: &str = "JAVA_HOME";
const PEM_BEGIN: &str = "-----BEGIN CERTIFICATE-----";
const PEM_END: &str = "-----END CERTIFICATE-----";
const PEM_LINE: usize = 64;

/// Returns true if one of the layers has a file of certificates.
pub(crate) fn has_bundle(layers: &[PathBuf]) -> bool {
    has_any(layers, &BUNDLES)
}

pub(crate) fn has_java(image: &Image) -> bool {
    image.config.env.contains_key(JAVA_HOME) || has_any(&image.layers, &JAVA_FOLDERS)
}

/// Does not follow links, because in a single layer they lead nowhere.
fn has_any(layers: &[PathBuf], paths: &[&str]) -> bool {
    let there_is =
        |layer: &Path| paths.iter().any(|path| layer.join(path).symlink_metadata().is_ok());
    layers.iter().any(|layer| there_is(layer))
}

/// The certificates of this machine, read when they are first needed.
#[derive(Default)]
pub(crate) struct Roots {
    der: OnceLock<Vec<Vec<u8>>>,
    pem: OnceLock<String>,
    java: OnceLock<String>,
}

impl Roots {
    fn der(&self) -> &[Vec<u8>] {
        self.der.get_or_init(|| {
            let found = rustls_native_certs::load_native_certs();
            for error in &found.errors {
                tracing::warn!(%error, "some certificates of this machine cannot be read");
            }
            found.certs.iter().map(|certificate| certificate.to_vec()).collect()
        })
    }

    pub(crate) fn pem(&self) -> &str {
        self.pem.get_or_init(|| self.der().iter().map(|der| to_pem(der)).collect())
    }

    /// Returns a key store with all of them and these authorities, in base64.
    pub(crate) fn java(&self, authority: &str) -> String {
        let make = || {
            let authorities = all_in(authority);
            let all = self.der().iter().chain(&authorities);
            STANDARD.encode(key_store(&all.map(Vec::as_slice).collect::<Vec<_>>()))
        };
        self.java.get_or_init(make).clone()
    }
}

fn to_pem(der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let lines = text.as_bytes().chunks(PEM_LINE).map(String::from_utf8_lossy);
    let body: Vec<_> = lines.collect();
    format!("{PEM_BEGIN}\n{}\n{PEM_END}\n", body.join("\n"))
}

/// Returns the certificates in a text. Invalid ones are left out; whoever made the text reports
/// them.
fn all_in(text: &str) -> Vec<Vec<u8>> {
    let parts = text.split(PEM_BEGIN).skip(1).filter_map(|part| part.split_once(PEM_END));
    let bodies = parts.map(|(body, _)| body.split_whitespace().collect::<String>());
    bodies.filter_map(|body| STANDARD.decode(body).ok()).collect()
}

/// Makes a key store in the `JKS` format, which every Java reads: a header, trusted certificates
/// with names, and a digest over everything with a well-known password.
fn key_store(certificates: &[&[u8]]) -> Vec<u8> {
    const MAGIC: u32 = 0xfeed_feed;
    const VERSION: u32 = 2;
    const TRUSTED: u32 = 2;
    /// Part of the digest, together with the password, as the format defines it.
    const SALT: &[u8] = b"Mighty Aphrodite";
    let mut store = Vec::new();
    let number = |store: &mut Vec<u8>, number: u32| store.extend(number.to_be_bytes());
    number(&mut store, MAGIC);
    number(&mut store, VERSION);
    number(&mut store, length(certificates.len()));
    for (index, certificate) in certificates.iter().enumerate() {
        number(&mut store, TRUSTED);
        text(&mut store, &format!("root-{index}"));
        store.extend(0_u64.to_be_bytes());
        text(&mut store, "X.509");
        number(&mut store, length(certificate.len()));
        store.extend(*certificate);
    }
    let mut digest = Context::new(&SHA1_FOR_LEGACY_USE_ONLY);
    let password: Vec<u8> = JAVA_PASSWORD.encode_utf16().flat_map(u16::to_be_bytes).collect();
    for part in [password.as_slice(), SALT, store.as_slice()] {
        digest.update(part);
    }
    store.extend(digest.finish().as_ref());
    store
}

fn text(store: &mut Vec<u8>, text: &str) {
    #[expect(clippy::expect_used, reason = "the texts are our own and short")]
    let length = u16::try_from(text.len()).expect("a short text");
    store.extend(length.to_be_bytes());
    store.extend(text.as_bytes());
}

fn length(length: usize) -> u32 {
    #[expect(clippy::expect_used, reason = "certificates of a machine have some hundred kilobytes")]
    u32::try_from(length).expect("a few certificates")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_in_text_is_read_again() {
        let der: Vec<u8> = (0..=255).collect();
        let pem = to_pem(&der);
        assert!(pem.lines().all(|line| line.len() <= PEM_LINE), "{pem}");
        assert_eq!(all_in(&format!("{pem}# between\n{pem}")), [der.clone(), der]);
        assert!(all_in("nothing of the sort").is_empty());
    }

    #[test]
    fn a_key_store_has_the_form_that_java_reads() {
        let store = key_store(&[b"abc"]);
        let head = [0xfe, 0xed, 0xfe, 0xed, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 2, 0, 6];
        assert_eq!(&store[..head.len()], head);
        assert_eq!(&store[head.len()..head.len() + 6], b"root-0");
        // Its digest is at the end.
        assert_eq!(store.len(), head.len() + 6 + 8 + 2 + 5 + 4 + 3 + 20);
    }

    #[test]
    fn what_an_image_has_is_seen_in_any_of_its_layers() {
        let [first, second] = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let layers = [first.path().to_owned(), second.path().to_owned()];
        assert!(!has_bundle(&layers));
        std::fs::create_dir_all(second.path().join("etc/ssl")).unwrap();
        std::os::unix::fs::symlink("/nowhere", second.path().join("etc/ssl/cert.pem")).unwrap();
        assert!(has_bundle(&layers));
    }

    #[test]
    fn java_is_seen_by_its_folder_or_by_the_variable_for_it() {
        let layer = tempfile::tempdir().unwrap();
        let image = |env: &[(&str, &str)]| Image {
            digest: images::Digest::of(b"image"),
            config: images::Config {
                env: env.iter().map(|&(name, value)| (name.into(), value.into())).collect(),
                ..images::Config::default()
            },
            layers: vec![layer.path().to_owned()],
            size_bytes: 0,
        };
        assert!(!has_java(&image(&[("PATH", "/bin")])));
        assert!(has_java(&image(&[("JAVA_HOME", "/usr/local/openjdk-21")])));
        std::fs::create_dir_all(layer.path().join("usr/lib/jvm")).unwrap();
        assert!(has_java(&image(&[])));
    }
}
