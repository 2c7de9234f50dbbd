//! TLS by name: the choice of certificate for each caller, made from memory.

mod doubt;
mod folder;
mod own;
mod pair;

use crate::config;
use crate::error::Error;
use parking_lot::RwLock;
use rustls::ServerConfig;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use std::collections::HashMap;
use std::sync::Arc;
use tokio_rustls::TlsAcceptor;

pub(crate) use folder::Folder;
pub(crate) use own::Own;
pub(crate) use pair::Pair;

/// ALPN protocol of certificate authorities that check whether a name is served here before they
/// sign a certificate for it.
pub(crate) const CHALLENGE_PROTOCOL: &[u8] = b"acme-tls/1";

/// All certificates of the server.
pub(crate) struct Certificates {
    own: RwLock<Arc<CertifiedKey>>,
    table: RwLock<Table>,
}

/// Certificates by name in lower case; `*.example.org` covers every name directly below.
#[derive(Default)]
struct Table {
    given: HashMap<String, Arc<CertifiedKey>>,
    made: HashMap<String, Arc<CertifiedKey>>,
    challenges: HashMap<String, Arc<CertifiedKey>>,
}

impl Certificates {
    /// Reads the server's own certificate; `None` if none is set and the server speaks plain HTTP.
    pub(crate) fn open(settings: &config::Server) -> Result<Option<Arc<Self>>, Error> {
        let (Some(certificate), Some(key)) = (&settings.tls_certificate, &settings.tls_key) else {
            return Ok(None);
        };
        let own = Pair::read(certificate, key).map_err(|message| Error::Start {
            act: "use server.tls_certificate with server.tls_key".into(),
            message,
        })?;
        Ok(Some(Arc::new(Self { own: RwLock::new(own.certified), table: RwLock::default() })))
    }

    pub(crate) fn acceptor(self: &Arc<Self>) -> TlsAcceptor {
        let resolver: Arc<dyn ResolvesServerCert> = Arc::clone(self) as _;
        let mut settings =
            ServerConfig::builder().with_no_client_auth().with_cert_resolver(resolver);
        settings.alpn_protocols =
            vec![b"h2".to_vec(), b"http/1.1".to_vec(), CHALLENGE_PROTOCOL.to_vec()];
        TlsAcceptor::from(Arc::new(settings))
    }

    /// Replaces the server's own certificate.
    fn replace_own(&self, certified: Arc<CertifiedKey>) {
        *self.own.write() = certified;
    }

    /// Replaces all certificates from the operator's folder.
    pub(crate) fn give(&self, given: HashMap<String, Arc<CertifiedKey>>) {
        self.table.write().given = given;
    }

    pub(crate) fn has_made(&self, name: &str) -> bool {
        self.table.read().made.contains_key(name)
    }

    pub(crate) fn is_given(&self, name: &str) -> bool {
        let table = self.table.read();
        table.given.contains_key(name) || table.given.contains_key(&above(name))
    }

    pub(crate) fn put_made(&self, name: &str, certified: Arc<CertifiedKey>) {
        self.table.write().made.insert(name.to_owned(), certified);
    }

    pub(crate) fn remove_made(&self, name: &str) {
        self.table.write().made.remove(name);
    }

    /// Answers challenges for a name until the answer is dropped.
    pub(crate) fn challenge(self: &Arc<Self>, name: &str, answer: Arc<CertifiedKey>) -> Challenge {
        self.table.write().challenges.insert(name.to_owned(), answer);
        Challenge { certificates: Arc::clone(self), name: name.to_owned() }
    }

    fn find(&self, name: &str, challenged: bool) -> Option<Arc<CertifiedKey>> {
        let table = self.table.read();
        if challenged {
            return table.challenges.get(name).cloned();
        }
        let found = table
            .given
            .get(name)
            .or_else(|| table.given.get(&above(name)))
            .or_else(|| table.made.get(name));
        Some(found.cloned().unwrap_or_else(|| Arc::clone(&self.own.read())))
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let name = hello.server_name().unwrap_or_default().to_ascii_lowercase();
        let challenged = hello.alpn().is_some_and(|protocols| protocols.eq([CHALLENGE_PROTOCOL]));
        self.find(&name, challenged)
    }
}

impl std::fmt::Debug for Certificates {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Certificates").finish_non_exhaustive()
    }
}

pub(crate) struct Challenge {
    certificates: Arc<Certificates>,
    name: String,
}

impl Drop for Challenge {
    fn drop(&mut self) {
        self.certificates.table.write().challenges.remove(&self.name);
    }
}

/// Returns the wildcard that covers a name.
fn above(name: &str) -> String {
    name.split_once('.').map_or_else(String::new, |(_, above)| format!("*.{above}"))
}

#[cfg(test)]
#[path = "../tls_tests.rs"]
mod tests;
