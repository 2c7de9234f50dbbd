//! Our own certificate authority. Instances trust it, and it issues certificates for the hosts
//! whose connections are opened.

use jiff::tz::TimeZone;
use parking_lot::Mutex;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, SanType, SerialNumber,
};
use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::{NoServerSessionStorage, ResolvesServerCert};
use rustls::sign::{CertifiedKey, SigningKey, SingleCertAndKey};
use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use types::parts::hosts::Host;
use types::{Timestamp, World, hex};
use zeroize::Zeroizing;

/// Holds the key and the certificate, so that neither can exist without the other.
const FILE: &str = "authority.pem";
const CA_DAYS: i64 = 7300;
/// Clients refuse certificates that are valid for more than about a year.
const LEAF_DAYS: i64 = 30;
/// A certificate is replaced long before it expires, because connections that use it may go on.
const LEAF_USED_DAYS: i64 = 7;
const DAY_S: i64 = 86_400;
/// Longest common name. A longer host name is only in the extension, where clients look.
const COMMON_NAME_CHARS_MAX: usize = 64;

#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    #[error("failed to read or write {path}")]
    File { path: PathBuf, source: io::Error },
    /// A new one is not made automatically, because running instances trust the old one.
    #[error(
        "{path} does not hold the key and the certificate of an authority ({why}); restore it, or remove it to have a new one made"
    )]
    Damaged { path: PathBuf, why: String },
    #[error("failed to make a certificate")]
    Sign(#[from] rcgen::Error),
    #[error("failed to make a certificate ready for TLS")]
    Tls(#[from] rustls::Error),
    #[error("the clock says a time that no certificate can hold")]
    Clock(#[from] jiff::Error),
}

pub(crate) struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
    /// The key of all certificates. It never leaves this process.
    leaf_key: KeyPair,
    leaf_signer: Arc<dyn SigningKey>,
    provider: Arc<CryptoProvider>,
    world: World,
    leaves: Mutex<HashMap<Host, Arc<Slot>>>,
    leaves_max: usize,
    uses: AtomicU64,
}

/// A place in the cache. The first to use it makes the certificate, while others wait.
#[derive(Default)]
struct Slot {
    leaf: Mutex<Option<Leaf>>,
    used: AtomicU64,
}

#[derive(Clone)]
struct Leaf {
    #[cfg(test)]
    key: Arc<CertifiedKey>,
    tls: Arc<ServerConfig>,
    made: Timestamp,
}

impl Authority {
    /// Reads the authority from a folder, or makes a new one if there is none. Keeps at most
    /// `leaves_max` certificates of hosts in memory.
    pub(crate) fn open(
        folder: &Path,
        world: World,
        leaves_max: usize,
    ) -> Result<Self, AuthorityError> {
        let path = folder.join(FILE);
        let failed = |source| AuthorityError::File { path: path.clone(), source };
        let text = match fs::read(&path) {
            Ok(text) => Zeroizing::new(text),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let text = make(&world)?;
                fs::create_dir_all(folder).map_err(failed)?;
                files::sync_folder_of(folder).map_err(failed)?;
                files::replace(&path, files::Readers::Owner, &text).map_err(failed)?;
                text
            }
            Err(error) => return Err(failed(error)),
        };
        Self::read(&text, world, leaves_max).map_err(|why| AuthorityError::Damaged { path, why })
    }

    fn read(text: &[u8], world: World, leaves_max: usize) -> Result<Self, String> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let key = PrivatePkcs8KeyDer::from_pem_slice(text).map_err(|_| "its key is no key")?;
        let certificate = CertificateDer::from_pem_slice(text)
            .map_err(|_| "its certificate is no certificate")?;
        let pair = KeyPair::try_from(&key).map_err(|_| "its key is no key")?;
        CertifiedKey::from_der(vec![certificate.clone()], key.into(), &provider)
            .and_then(|both| both.keys_match())
            .map_err(|_| "its certificate is not of its key")?;
        let leaf_key = KeyPair::generate().map_err(|error| error.to_string())?;
        let leaf_der = PrivatePkcs8KeyDer::from(leaf_key.serialize_der());
        let leaf_signer =
            rustls::crypto::ring::sign::any_ecdsa_type(&PrivateKeyDer::from(leaf_der))
                .map_err(|error| error.to_string())?;
        Ok(Self {
            pem: pem(&certificate),
            issuer: Issuer::new(ca_params(&pair), pair),
            leaf_key,
            leaf_signer,
            provider,
            world,
            leaves: Mutex::default(),
            leaves_max: leaves_max.max(1),
            uses: AtomicU64::new(0),
        })
    }

    /// Returns the certificate that instances have to trust.
    pub(crate) fn pem(&self) -> &str {
        &self.pem
    }

    #[cfg(test)]
    pub(crate) fn der(&self) -> CertificateDer<'static> {
        CertificateDer::from_pem_slice(self.pem.as_bytes()).unwrap()
    }

    /// Returns the certificate of a server that stands in for `host`.
    #[cfg(test)]
    pub(crate) fn certificate(&self, host: &Host) -> Result<Arc<CertifiedKey>, AuthorityError> {
        Ok(self.leaf(host)?.key)
    }

    /// Returns the configuration of a TLS server that stands in for `host`, with HTTP/2 and
    /// HTTP/1.1.
    pub(crate) fn tls(&self, host: &Host) -> Result<Arc<ServerConfig>, AuthorityError> {
        Ok(self.leaf(host)?.tls)
    }

    fn leaf(&self, host: &Host) -> Result<Leaf, AuthorityError> {
        let slot = self.slot(host);
        let now = self.world.now();
        let mut leaf = slot.leaf.lock();
        let is_fresh = |leaf: &&Leaf| {
            // Also not fresh if the clock was set back to before it was made.
            (0..LEAF_USED_DAYS * DAY_S * 1000).contains(&now.since(leaf.made))
        };
        match leaf.as_ref().filter(is_fresh) {
            Some(leaf) => Ok(leaf.clone()),
            None => Ok(leaf.insert(self.sign(host, now)?).clone()),
        }
    }

    fn slot(&self, host: &Host) -> Arc<Slot> {
        let use_number = self.uses.fetch_add(1, Ordering::Relaxed);
        let mut leaves = self.leaves.lock();
        if !leaves.contains_key(host) && leaves.len() >= self.leaves_max {
            let used = |slot: &Arc<Slot>| slot.used.load(Ordering::Relaxed);
            let oldest = leaves.iter().min_by_key(|(_, slot)| used(slot));
            if let Some(oldest) = oldest.map(|(host, _)| host.clone()) {
                leaves.remove(&oldest);
            }
        }
        let slot = leaves.entry(host.clone()).or_default();
        slot.used.store(use_number, Ordering::Relaxed);
        Arc::clone(slot)
    }

    fn sign(&self, host: &Host, now: Timestamp) -> Result<Leaf, AuthorityError> {
        let text = host.to_string();
        let mut params = CertificateParams::default();
        params.subject_alt_names = vec![match host {
            Host::Name(name) => SanType::DnsName(name.as_str().try_into()?),
            Host::Address(address) => SanType::IpAddress(*address),
        }];
        params.distinguished_name = DistinguishedName::new();
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        params.serial_number = Some(serial(&self.world));
        if text.len() <= COMMON_NAME_CHARS_MAX {
            params.distinguished_name.push(DnType::CommonName, text);
        }
        set_validity(&mut params, now, LEAF_DAYS)?;
        let certificate = params.signed_by(&self.leaf_key, &self.issuer)?.der().clone();
        let key = Arc::new(CertifiedKey::new(vec![certificate], Arc::clone(&self.leaf_signer)));
        let resolver: Arc<dyn ResolvesServerCert> =
            Arc::new(SingleCertAndKey::from(Arc::clone(&key)));
        let mut tls = ServerConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_cert_resolver(resolver);
        tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        // Resuming a session saves little compared to the connection to the host, and would take
        // memory for each host.
        tls.session_storage = Arc::new(NoServerSessionStorage {});
        tls.send_tls13_tickets = 0;
        Ok(Leaf {
            #[cfg(test)]
            key,
            tls: Arc::new(tls),
            made: now,
        })
    }
}

/// Makes the key and the certificate of a new authority.
fn make(world: &World) -> Result<Zeroizing<Vec<u8>>, AuthorityError> {
    let pair = KeyPair::generate()?;
    let mut params = ca_params(&pair);
    params.serial_number = Some(serial(world));
    set_validity(&mut params, world.now(), CA_DAYS)?;
    let certificate = params.self_signed(&pair)?;
    let key = Zeroizing::new(pair.serialize_pem());
    Ok(Zeroizing::new(format!("{}{}", *key, certificate.pem()).into_bytes()))
}

/// Returns what the certificates it issues must agree with. All of it follows from the key.
fn ca_params(pair: &KeyPair) -> CertificateParams {
    let digest = ring::digest::digest(&ring::digest::SHA256, pair.public_key_raw());
    let tail = hex::encode(&digest.as_ref()[..6]);
    let mut distinguished_name = DistinguishedName::new();
    distinguished_name.push(DnType::CommonName, format!("Holm egress authority {tail}"));
    let mut params = CertificateParams::default();
    params.distinguished_name = distinguished_name;
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

/// Returns a random serial number. Some clients refuse two certificates of an authority with the
/// same one.
fn serial(world: &World) -> SerialNumber {
    let mut bytes: [u8; 16] = world.random_bytes();
    // Positive, and without a leading zero.
    bytes[0] = bytes[0] & 0x3f | 0x40;
    SerialNumber::from_slice(&bytes)
}

/// Sets the validity, beginning a day ago for clients whose clocks are slow.
fn set_validity(
    params: &mut CertificateParams,
    now: Timestamp,
    days: i64,
) -> Result<(), AuthorityError> {
    let date = |at: Timestamp| {
        let date = jiff::Timestamp::from_millisecond(at.ms())?.to_zoned(TimeZone::UTC).date();
        let [month, day] = [date.month(), date.day()].map(i8::unsigned_abs);
        Ok::<_, jiff::Error>(rcgen::date_time_ymd(i32::from(date.year()), month, day))
    };
    params.not_before = date(now.plus_s(-DAY_S))?;
    params.not_after = date(now.plus_s(days * DAY_S))?;
    Ok(())
}

fn pem(certificate: &CertificateDer<'_>) -> String {
    use base64::Engine as _;
    const LINE_CHARS: usize = 64;
    let text = base64::engine::general_purpose::STANDARD.encode(certificate);
    let (mut pem, mut rest) = ("-----BEGIN CERTIFICATE-----\n".to_owned(), text.as_str());
    while !rest.is_empty() {
        let (line, after) = rest.split_at(rest.len().min(LINE_CHARS));
        pem.push_str(line);
        pem.push('\n');
        rest = after;
    }
    pem.push_str("-----END CERTIFICATE-----\n");
    pem
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authority").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{self, HELD_AT_MS};
    use rustls::RootCertStore;
    use rustls::client::WebPkiServerVerifier;
    use rustls::client::danger::ServerCertVerifier as _;
    use rustls::pki_types::{ServerName, UnixTime};
    use std::os::unix::fs::MetadataExt as _;
    use std::time::Duration;

    fn host(text: &str) -> Host {
        Host::parse(text).unwrap()
    }

    fn is_trusted(authority: &Authority, shown_for: &str, name: &str, at_ms: i64) -> bool {
        let mut roots = RootCertStore::empty();
        roots.add(authority.der()).unwrap();
        let verifier = WebPkiServerVerifier::builder_with_provider(
            Arc::new(roots),
            Arc::clone(&authority.provider),
        );
        let certificate = authority.certificate(&host(shown_for)).unwrap();
        let name = ServerName::try_from(name.to_owned()).unwrap();
        let at = UnixTime::since_unix_epoch(Duration::from_millis(at_ms.try_into().unwrap()));
        let verifier = verifier.build().unwrap();
        verifier.verify_server_cert(&certificate.cert[0], &[], &name, &[], at).is_ok()
    }

    #[test]
    fn it_is_made_once_and_vouches_for_hosts() {
        let folder = tempfile::tempdir().unwrap();
        let made = Authority::open(folder.path(), fixture::world(), 8).unwrap();
        let found = Authority::open(folder.path(), fixture::world(), 8).unwrap();
        assert_eq!(made.pem(), found.pem());
        assert_eq!(CertificateDer::from_pem_slice(made.pem().as_bytes()).unwrap(), made.der());
        let mode = fs::metadata(folder.path().join(FILE)).unwrap().mode();
        assert_eq!(mode & 0o777, 0o600);
        let long = format!("{}.example.com", ["a".repeat(60), "b".repeat(60)].join("."));
        for authority in [&made, &found] {
            for name in ["api.example.com", "a_b.example.com", "192.0.2.7", &long] {
                assert!(is_trusted(authority, name, name, HELD_AT_MS), "{name}");
            }
        }
        assert!(is_trusted(&made, "::1", "::1", HELD_AT_MS));
        assert!(!is_trusted(&made, "a.example.com", "b.example.com", HELD_AT_MS));
        let day = DAY_S * 1000;
        assert!(is_trusted(&made, "a.b", "a.b", HELD_AT_MS - day));
        assert!(!is_trusted(&made, "a.b", "a.b", HELD_AT_MS + (LEAF_DAYS + 1) * day));
        // Another authority does not vouch for the certificates of this one.
        let other = Authority::open(tempfile::tempdir().unwrap().path(), fixture::world(), 8);
        assert_ne!(other.unwrap().pem(), made.pem());
    }

    #[test]
    fn a_damaged_file_is_an_error_and_stays() {
        let folder = tempfile::tempdir().unwrap();
        Authority::open(folder.path(), fixture::world(), 8).unwrap();
        let path = folder.path().join(FILE);
        let whole = fs::read(&path).unwrap();
        let other = make(&fixture::world()).unwrap();
        let end = whole.windows(5).position(|text| text == b"-----").unwrap();
        let second = whole.windows(10).rposition(|text| text == b"-----BEGIN").unwrap();
        let mixed = [&whole[..second], &other[second..]].concat();
        for damaged in [&whole[..whole.len() / 2], &whole[..end], b"", b"\0\xff", &mixed] {
            fs::write(&path, damaged).unwrap();
            let error = Authority::open(folder.path(), fixture::world(), 8).unwrap_err();
            assert!(matches!(error, AuthorityError::Damaged { .. }), "{error:?}");
            assert!(!error.to_string().contains("PRIVATE"));
            assert_eq!(fs::read(&path).unwrap(), damaged);
        }
    }

    #[test]
    fn one_name_is_signed_once_and_the_least_used_goes_first() {
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::open(folder.path(), fixture::world(), 2).unwrap();
        let shown = |name: &str| authority.certificate(&host(name)).unwrap();
        let all: Vec<_> = std::thread::scope(|scope| {
            let asked: Vec<_> = (0..8).map(|_| scope.spawn(|| shown("a.b"))).collect();
            asked.into_iter().map(|asked| asked.join().unwrap()).collect()
        });
        assert!(all.iter().all(|key| Arc::ptr_eq(key, &all[0])));
        let b = shown("b.b");
        shown("a.b");
        shown("c.b");
        assert!(Arc::ptr_eq(&shown("a.b"), &all[0]));
        assert!(!Arc::ptr_eq(&shown("b.b"), &b));
        assert_eq!(authority.leaves.lock().len(), 2);
    }

    #[test]
    fn an_old_certificate_is_made_anew() {
        let now = Arc::new(std::sync::atomic::AtomicI64::new(HELD_AT_MS));
        let clock = Arc::clone(&now);
        let time = move || Timestamp::from_ms(clock.load(Ordering::Relaxed));
        let world = World::new(time, fixture::fill);
        let authority = Authority::open(tempfile::tempdir().unwrap().path(), world, 2).unwrap();
        let first = authority.certificate(&host("a.b")).unwrap();
        now.fetch_add((LEAF_USED_DAYS + 1) * DAY_S * 1000, Ordering::Relaxed);
        assert!(!Arc::ptr_eq(&authority.certificate(&host("a.b")).unwrap(), &first));
        assert!(is_trusted(&authority, "a.b", "a.b", now.load(Ordering::Relaxed)));
    }
}
