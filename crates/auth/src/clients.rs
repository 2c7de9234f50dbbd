//! OAuth clients: programs that may ask people for access. Two are built in; account admins
//! register others.

use crate::accounts::administer;
use crate::{Error, Identity, secrets};
use std::fmt;
use store::Tx;
pub use store::identity::clients::Client as Registered;
use store::identity::{Digest, clients};
use types::ids::{AccountId, ClientId};
use url::{Host, Url};

const PER_ACCOUNT_MAX: usize = 100;
const REDIRECT_URIS_MAX: usize = 10;
const REDIRECT_URI_BYTES_MAX: usize = 1024;
const NAME_MAX: usize = 63;

/// Public clients that every server knows: command lines, which sign in only by device code.
const BUILT_IN: [(&str, &str); 2] =
    [("blaxel", "the Blaxel command line"), ("holm", "the Holm command line")];

/// A client, as the authorization server sees it.
#[derive(Clone)]
pub(crate) struct Client {
    pub(crate) id: ClientId,
    pub(crate) name: String,
    pub(crate) redirect_uris: Vec<String>,
    pub(crate) secret: Option<Digest>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Client").field(&self.id).finish()
    }
}

impl Client {
    /// Returns true for a public client, which cannot keep a secret and therefore needs PKCE.
    pub(crate) fn is_public(&self) -> bool {
        self.secret.is_none()
    }
}

pub(crate) fn find(tx: &mut Tx<'_>, id: &str) -> Result<Option<Client>, store::Error> {
    if let Some((id, name)) = BUILT_IN.iter().find(|(built_in, _)| *built_in == id) {
        let (id, name) = (ClientId::known(*id), (*name).to_owned());
        return Ok(Some(Client { id, name, redirect_uris: Vec::new(), secret: None }));
    }
    let registered = clients::find(tx, &ClientId::known(id))?;
    Ok(registered.map(|Registered { id, name, redirect_uris, secret, .. }| Client {
        id,
        name,
        redirect_uris,
        secret,
    }))
}

/// Properties of a new client.
#[derive(Debug, Clone, Default)]
pub struct NewClient {
    pub name: String,
    pub redirect_uris: Vec<String>,
    /// True if the client gets a secret, because it runs where one can be kept.
    pub confidential: bool,
    /// An account that the caller administers; the first one if absent.
    pub account: Option<AccountId>,
}

/// Registers a client. The second value is its secret, if it has one; it cannot be read again.
pub fn create(
    tx: &mut Tx<'_>,
    who: &Identity,
    new: NewClient,
) -> Result<(Registered, Option<String>), Error> {
    let account = account(who, new.account)?;
    check(&new.name, &new.redirect_uris)?;
    if clients::list(tx, &account)?.len() >= PER_ACCOUNT_MAX {
        return Err(Error::TooMany { what: "OAuth clients", limit: PER_ACCOUNT_MAX });
    }
    let secret = new.confidential.then(|| secrets::new_secret(tx.world(), "hs"));
    let client = Registered {
        id: ClientId::new(tx.world()),
        account,
        name: new.name,
        redirect_uris: new.redirect_uris,
        secret: secret.as_deref().map(Digest::of),
        created_at: tx.world().now(),
        created_by: who.name.clone(),
    };
    clients::create(tx, &client)?;
    Ok((client, secret))
}

pub fn list(tx: &mut Tx<'_>, who: &Identity) -> Result<Vec<Registered>, Error> {
    account(who, None)?;
    let mut found = Vec::new();
    for account in &who.administers {
        found.extend(clients::list(tx, account)?);
    }
    Ok(found)
}

/// Removes a client; all tokens that it was given stop working immediately.
pub fn delete(tx: &mut Tx<'_>, who: &Identity, id: &ClientId) -> Result<(), Error> {
    let client = clients::find(tx, id)?.filter(|client| who.administers(&client.account));
    let client = client.ok_or_else(|| Error::not_found("OAuth client", id.as_str()))?;
    clients::delete(tx, &client.account, id, &who.name)?;
    Ok(())
}

fn account(who: &Identity, wanted: Option<AccountId>) -> Result<AccountId, Error> {
    let account = wanted
        .or_else(|| who.administers.first().cloned())
        .ok_or(crate::Denied::NotAccountAdmin)?;
    administer(who, &account)?;
    Ok(account)
}

fn check(name: &str, redirect_uris: &[String]) -> Result<(), Error> {
    if name.trim().is_empty() || name.chars().count() > NAME_MAX || name.contains(char::is_control)
    {
        return Err(Error::invalid(
            "name",
            format!("must have 1 to {NAME_MAX} characters on one line"),
        ));
    }
    if redirect_uris.is_empty() || redirect_uris.len() > REDIRECT_URIS_MAX {
        return Err(Error::invalid(
            "redirect_uris",
            format!("must have 1 to {REDIRECT_URIS_MAX} entries"),
        ));
    }
    match redirect_uris.iter().position(|uri| !may_redirect_to(uri)) {
        None => Ok(()),
        Some(index) => Err(Error::invalid(
            &format!("redirect_uris.{index}"),
            "must be an https address, an http address of this computer, or a scheme of an app such as `com.example.app:/`, \
             without fragment or credentials",
        )),
    }
}

/// Returns true for addresses that are encrypted or stay on the computer. Schemes of apps must be
/// named after a domain (RFC 8252).
fn may_redirect_to(uri: &str) -> bool {
    let Ok(url) = Url::parse(uri) else { return false };
    let plain = uri.len() <= REDIRECT_URI_BYTES_MAX
        && uri.bytes().all(|byte| byte.is_ascii_graphic())
        && url.fragment().is_none()
        && url.username().is_empty()
        && url.password().is_none();
    let loopback = match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(ip)) => ip.is_loopback(),
        Some(Host::Ipv6(ip)) => ip.is_loopback(),
        None => false,
    };
    plain
        && (url.scheme() == "https"
            || (url.scheme() == "http" && loopback)
            || url.scheme().contains('.'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn redirects_stay_encrypted_or_on_the_computer() {
        for uri in [
            "https://a.example/cb",
            "http://localhost:8080/cb",
            "http://127.0.0.1/",
            "http://[::1]:1/",
            "com.example.app:/cb",
        ] {
            assert!(may_redirect_to(uri), "{uri}");
        }
        for uri in [
            "",
            "/cb",
            "http://a.example/",
            "https://a.example/#x",
            "https://u:p@a.example/",
            "javascript:alert(1)",
            "data:text/html,x",
            "ftp://localhost/",
        ] {
            assert!(!may_redirect_to(uri), "{uri}");
        }
    }

    proptest! {
        #[test]
        fn any_redirect_is_taken_or_refused(uri in ".{0,80}") {
            let _ = may_redirect_to(&uri);
        }
    }
}
