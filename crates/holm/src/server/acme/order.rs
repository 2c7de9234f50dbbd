//! Ordering one certificate from the authority. The server proves that a name leads here on its own
//! listener (TLS-ALPN-01), so no other port needs to be open.

use super::shelf::Shelf;
use crate::config;
use crate::server::tls::{Certificates, Pair};
use instant_acme::{
    Account, AuthorizationStatus, ChallengeType, Identifier, NewAccount, NewOrder, OrderStatus,
    RetryPolicy,
};
use rcgen::{CertificateParams, CustomExtension, DistinguishedName, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;
use rustls::sign::CertifiedKey;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;

/// If the authority takes longer to decide, the order is given up and tried again later.
const ORDER_MAX: Duration = Duration::from_secs(180);
const POLL: RetryPolicy = RetryPolicy::new()
    .initial_delay(Duration::from_millis(500))
    .backoff(1.5)
    .timeout(Duration::from_secs(60));

#[derive(Debug, thiserror::Error)]
pub(super) enum OrderError {
    #[error("the authority refused: {0}")]
    Refused(#[from] instant_acme::Error),
    #[error("the authority offers no proof by TLS (tls-alpn-01)")]
    NoChallenge,
    #[error("the proof failed: the order is {0:?}")]
    Unproven(OrderStatus),
    #[error("the certificate cannot be used: {0}")]
    Unusable(String),
    #[error("a key cannot be made: {0}")]
    Key(#[from] rcgen::Error),
    #[error("it cannot be kept: {0}")]
    Unkept(#[from] std::io::Error),
    #[error("the authority took too long")]
    TimedOut,
    #[error("its task broke off")]
    BrokenOff,
}

/// What an authority says that has lost its accounts, or was set up anew.
const NO_ACCOUNT: &str = "urn:ietf:params:acme:error:accountDoesNotExist";

impl OrderError {
    fn is_of_account(&self) -> bool {
        let Self::Refused(instant_acme::Error::Api(problem)) = self else { return false };
        problem.r#type.as_deref() == Some(NO_ACCOUNT)
    }
}

pub(super) struct Authority {
    pub(super) directory: String,
    contact: Option<String>,
    root: Option<PathBuf>,
    agree: bool,
    shelf: Arc<Shelf>,
    account: Mutex<Option<Account>>,
}

impl Authority {
    pub(super) fn new(directory: String, settings: &config::Acme, shelf: Arc<Shelf>) -> Self {
        Self {
            directory,
            contact: settings.contact.clone(),
            root: settings.root.clone(),
            agree: settings.agree,
            shelf,
            account: Mutex::default(),
        }
    }

    pub(super) async fn order(
        &self,
        certificates: &Arc<Certificates>,
        name: &str,
    ) -> Result<Pair, OrderError> {
        let order = Box::pin(async {
            let account = self.account().await?;
            match prove_and_fetch(&account, certificates, name).await {
                Err(error) if error.is_of_account() => {
                    self.forget(&account).await?;
                    prove_and_fetch(&self.account().await?, certificates, name).await
                }
                made => made,
            }
        });
        let made =
            tokio::time::timeout(ORDER_MAX, order).await.map_err(|_| OrderError::TimedOut)??;
        let pair = Pair::parse(made.chain.as_bytes(), made.key.as_bytes())
            .map_err(OrderError::Unusable)?;
        self.shelf.keep(name, &self.directory, &made.chain, &made.key)?;
        Ok(pair)
    }

    async fn account(&self) -> Result<Account, OrderError> {
        let mut account = self.account.lock().await;
        if let Some(account) = &*account {
            return Ok(account.clone());
        }
        Ok(account.insert(self.sign_in().await?).clone())
    }

    /// Forgets an account that the authority does not have any more, so that another one is made.
    async fn forget(&self, gone: &Account) -> Result<(), OrderError> {
        let mut account = self.account.lock().await;
        if account.as_ref().is_some_and(|known| known.id() == gone.id()) {
            *account = None;
            self.shelf.forget_account()?;
        }
        Ok(())
    }

    /// Signs in with the account of an earlier run, or makes a new one.
    async fn sign_in(&self) -> Result<Account, OrderError> {
        let builder = || match &self.root {
            Some(root) => Account::builder_with_root(root),
            None => Account::builder(),
        };
        if let Some(known) = self.shelf.account(&self.directory) {
            return Ok(builder()?.from_credentials(known).await?);
        }
        let contact = self.contact.as_ref().map(|address| format!("mailto:{address}"));
        let contact: Vec<&str> = contact.iter().map(String::as_str).collect();
        let wish = NewAccount {
            contact: &contact,
            terms_of_service_agreed: self.agree,
            only_return_existing: false,
        };
        let (account, credentials) = builder()?.create(&wish, self.directory.clone(), None).await?;
        self.shelf.keep_account(&self.directory, &credentials)?;
        Ok(account)
    }
}

/// A certificate chain and its key, in PEM.
struct Made {
    chain: String,
    key: String,
}

async fn prove_and_fetch(
    account: &Account,
    certificates: &Arc<Certificates>,
    name: &str,
) -> Result<Made, OrderError> {
    let names = [Identifier::Dns(name.to_owned())];
    let mut order = account.new_order(&NewOrder::new(&names)).await?;
    let mut answers = Vec::new();
    let mut authorizations = order.authorizations();
    while let Some(authorization) = authorizations.next().await {
        let mut authorization = authorization?;
        if authorization.status == AuthorizationStatus::Valid {
            continue;
        }
        let mut challenge =
            authorization.challenge(ChallengeType::TlsAlpn01).ok_or(OrderError::NoChallenge)?;
        let answer = answer(name, challenge.key_authorization().digest().as_ref())?;
        answers.push(certificates.challenge(name, answer));
        challenge.set_ready().await?;
    }
    let status = order.poll_ready(&POLL).await?;
    drop(answers);
    if status != OrderStatus::Ready {
        return Err(OrderError::Unproven(status));
    }
    let key = KeyPair::generate()?;
    let mut wish = CertificateParams::new([name.to_owned()])?;
    wish.distinguished_name = DistinguishedName::new();
    order.finalize_csr(wish.serialize_request(&key)?.der()).await?;
    let chain = order.poll_certificate(&POLL).await?;
    Ok(Made { chain, key: key.serialize_pem() })
}

/// Makes the certificate that answers a challenge. Only the authority is shown it.
fn answer(name: &str, digest: &[u8]) -> Result<Arc<CertifiedKey>, OrderError> {
    let key = KeyPair::generate()?;
    let mut wish = CertificateParams::new([name.to_owned()])?;
    wish.custom_extensions = vec![CustomExtension::new_acme_identifier(digest)];
    let certificate = wish.self_signed(&key)?;
    let unusable = |error: &dyn std::fmt::Display| OrderError::Unusable(error.to_string());
    let private = PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes())
        .map_err(|error| unusable(&error))?;
    let private = rustls::crypto::ring::sign::any_supported_type(&private)
        .map_err(|error| unusable(&error))?;
    Ok(Arc::new(CertifiedKey::new(vec![certificate.der().clone()], private)))
}
