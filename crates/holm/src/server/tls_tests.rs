use super::{CHALLENGE_PROTOCOL, Certificates, Folder, Own, Pair};
use crate::config::{Config, load};
use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use std::path::Path;
use std::sync::Arc;
use tokio_rustls::TlsConnector;
use tokio_util::sync::CancellationToken;

/// Writes a pair of files for a name, and returns the certificate.
fn write(folder: &Path, file: &str, name: &str) -> Vec<u8> {
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new([name.to_owned()]).unwrap().self_signed(&key).unwrap();
    std::fs::write(folder.join(format!("{file}.key")), key.serialize_pem()).unwrap();
    // The certificate is written last, because a pair is read once its certificate is there.
    std::fs::write(folder.join(format!("{file}.crt")), certificate.pem()).unwrap();
    certificate.der().to_vec()
}

fn settings(folder: &Path) -> Config {
    let file = |kind: &str| folder.join(format!("own.{kind}")).display().to_string();
    let flags = [("server.tls_certificate", file("crt")), ("server.tls_key", file("key"))];
    load(None, std::iter::empty(), &flags).unwrap()
}

/// Returns the certificate that is shown to a client asking for this name.
async fn shown(
    certificates: &Arc<Certificates>,
    name: &str,
    protocols: &[&[u8]],
) -> Option<Vec<u8>> {
    let (near, far) = tokio::io::duplex(1 << 16);
    let acceptor = certificates.acceptor();
    let server = tokio::spawn(async move { acceptor.accept(far).await.map(drop) });
    let seen = Arc::new(See(parking_lot::Mutex::default()));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut client = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    client.dangerous().set_certificate_verifier(Arc::clone(&seen) as _);
    client.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let _ = TlsConnector::from(Arc::new(client)).connect(name, near).await;
    let _ = server.await.unwrap();
    seen.0.lock().take()
}

/// A verifier that notes the certificate and trusts none.
#[derive(Debug)]
struct See(parking_lot::Mutex<Option<Vec<u8>>>);

mod see {
    use super::See;
    use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
    use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
    use rustls::{DigitallySignedStruct, Error, SignatureScheme};

    impl ServerCertVerifier for See {
        fn verify_server_cert(
            &self,
            end: &CertificateDer<'_>,
            _: &[CertificateDer<'_>],
            _: &ServerName<'_>,
            _: &[u8],
            _: UnixTime,
        ) -> Result<ServerCertVerified, Error> {
            *self.0.lock() = Some(end.to_vec());
            Err(Error::General("seen".into()))
        }

        fn verify_tls12_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            Err(Error::General("seen".into()))
        }

        fn verify_tls13_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            Err(Error::General("seen".into()))
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            vec![SignatureScheme::ECDSA_NISTP256_SHA256]
        }
    }
}

const WEB: &[&[u8]] = &[b"h2", b"http/1.1"];

fn prepare() {
    // Fails only if it is already installed.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

#[tokio::test]
async fn a_caller_is_shown_the_certificate_of_the_name_it_asks_for() {
    prepare();
    let (own, given) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let own_certificate = write(own.path(), "own", "holm.example.org");
    let certificates = Certificates::open(&settings(own.path()).server).unwrap().unwrap();
    let exact = write(given.path(), "app.a.org", "app.a.org");
    let wildcard = write(given.path(), "_.a.org", "*.a.org");
    let upper = write(given.path(), "Shop.B.org", "shop.b.org");
    write(given.path(), "APP.a.org", "app.a.org");
    std::fs::write(given.path().join("broken.org.crt"), "no certificate").unwrap();
    Folder::open(given.path(), &certificates).unwrap();
    for (name, expected) in [
        ("app.a.org", &exact),
        ("APP.a.org", &exact),
        ("other.a.org", &wildcard),
        ("shop.b.org", &upper),
        ("deep.other.a.org", &own_certificate),
        ("a.org", &own_certificate),
        ("broken.org", &own_certificate),
    ] {
        assert_eq!(shown(&certificates, name, WEB).await.as_ref(), Some(expected), "{name}");
    }
    assert!(
        certificates.is_given("app.a.org")
            && certificates.is_given("x.a.org")
            && !certificates.is_given("a.org")
    );
}

#[tokio::test]
async fn a_folder_is_read_again_when_it_changes() {
    prepare();
    let (own, given) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let own_certificate = write(own.path(), "own", "holm.example.org");
    let certificates = Certificates::open(&settings(own.path()).server).unwrap().unwrap();
    let folder = Folder::open(given.path(), &certificates).unwrap();
    let ending = CancellationToken::new();
    let following = tokio::spawn(folder.follow(
        Arc::clone(&certificates),
        crate::world::system(),
        ending.clone(),
    ));
    let added = write(given.path(), "b.org", "b.org");
    while shown(&certificates, "b.org", WEB).await.as_ref() != Some(&added) {
        tokio::task::yield_now().await;
    }
    std::fs::remove_file(given.path().join("b.org.crt")).unwrap();
    while shown(&certificates, "b.org", WEB).await.as_ref() != Some(&own_certificate) {
        tokio::task::yield_now().await;
    }
    ending.cancel();
    following.await.unwrap();
}

#[tokio::test]
async fn the_servers_own_certificate_is_read_again_when_it_changes() {
    prepare();
    let place = tempfile::tempdir().unwrap();
    let first = write(place.path(), "own", "holm.example.org");
    let settings = settings(place.path());
    let certificates = Certificates::open(&settings.server).unwrap().unwrap();
    assert_eq!(shown(&certificates, "holm.example.org", WEB).await, Some(first));
    let (own, ending) = (Own::of(&settings.server).unwrap(), CancellationToken::new());
    let following =
        tokio::spawn(own.follow(Arc::clone(&certificates), crate::world::system(), ending.clone()));
    let renewed = write(place.path(), "own", "holm.example.org");
    while shown(&certificates, "holm.example.org", WEB).await.as_ref() != Some(&renewed) {
        tokio::task::yield_now().await;
    }
    ending.cancel();
    following.await.unwrap();
}

#[tokio::test]
async fn only_a_challenge_is_shown_the_answer_to_it() {
    prepare();
    let own = tempfile::tempdir().unwrap();
    let own_certificate = write(own.path(), "own", "holm.example.org");
    let certificates = Certificates::open(&settings(own.path()).server).unwrap().unwrap();
    let answer = write(own.path(), "answer", "c.org");
    let pair = Pair::read(&own.path().join("answer.crt"), &own.path().join("answer.key")).unwrap();
    assert_eq!(shown(&certificates, "c.org", &[CHALLENGE_PROTOCOL]).await, None);
    let challenge = certificates.challenge("c.org", pair.certified);
    assert_eq!(shown(&certificates, "c.org", &[CHALLENGE_PROTOCOL]).await, Some(answer));
    for (name, protocols) in
        [("c.org", WEB), ("c.org", &[CHALLENGE_PROTOCOL, b"h2".as_slice()][..])]
    {
        assert_eq!(shown(&certificates, name, protocols).await.as_ref(), Some(&own_certificate));
    }
    drop(challenge);
    assert_eq!(shown(&certificates, "c.org", &[CHALLENGE_PROTOCOL]).await, None);
}

#[test]
fn a_key_of_another_certificate_is_refused_without_showing_it() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["one", "two"] {
        write(folder.path(), name, "a.org");
    }
    let error =
        Pair::read(&folder.path().join("one.crt"), &folder.path().join("two.key")).err().unwrap();
    assert!(error.contains("do not belong together") && !error.contains("PRIVATE"), "{error}");
    assert!(Pair::parse(b"", b"").is_err());
}
