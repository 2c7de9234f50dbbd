//! Identification and authentication of OAuth clients.

use super::{Fault, Params};
use crate::clients::{self, Client};
use crate::secrets;
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use store::Tx;
use store::identity::service_accounts::{self, ServiceAccount};
use types::ids::ServiceAccountId;

/// Credentials that a client sent. The secret is not checked yet.
#[derive(Clone)]
pub(super) struct Credentials {
    pub(super) id: String,
    pub(super) secret: Option<String>,
}

impl Credentials {
    /// Reads them from the `Authorization` header or the body, which must not contradict each
    /// other.
    pub(super) fn read(
        params: &Params,
        authorization: Option<&str>,
    ) -> Result<Option<Self>, Fault> {
        let in_body = params.get("client_id");
        let in_header = authorization.map(basic).transpose()?;
        match (in_header, in_body) {
            (Some(header), Some(body)) if header.id != body => Err(Fault::request(
                "`client_id` differs from the one in the `Authorization` header",
            )),
            (Some(header), _) => Ok(Some(header)),
            (None, Some(id)) => Ok(Some(Self {
                id: id.to_owned(),
                secret: params.get("client_secret").map(str::to_owned),
            })),
            (None, None) => Ok(None),
        }
    }
}

fn basic(authorization: &str) -> Result<Credentials, Fault> {
    let wrong = || {
        Fault::client(
            "the `Authorization` header is not `Basic` with base64 of `client_id:client_secret`",
        )
    };
    let (scheme, encoded) = authorization.split_once(' ').ok_or_else(wrong)?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return Err(wrong());
    }
    let decoded = BASE64.decode(encoded.trim()).map_err(|_| wrong())?;
    // None of our ids contains NUL, and PostgreSQL does not accept it.
    let text =
        String::from_utf8(decoded).ok().filter(|text| !text.contains('\0')).ok_or_else(wrong)?;
    let (id, secret) = text.split_once(':').ok_or_else(wrong)?;
    Ok(Credentials {
        id: id.to_owned(),
        secret: Some(secret.to_owned()).filter(|secret| !secret.is_empty()),
    })
}

/// Returns the built-in or registered client behind the credentials. A confidential client must
/// have sent its secret.
pub(super) fn authenticate(
    tx: &mut Tx<'_>,
    credentials: Option<&Credentials>,
) -> Result<Client, Fault> {
    let credentials = credentials.ok_or_else(|| Fault::request("`client_id` is missing"))?;
    let client = clients::find(tx, &credentials.id)?
        .ok_or_else(|| Fault::client("`client_id` is not known"))?;
    match (&client.secret, &credentials.secret) {
        (None, None) => Ok(client),
        (Some(stored), Some(given)) if secrets::matches(given, stored) => Ok(client),
        (None, Some(_)) => Err(Fault::client("`client_secret` is given, but this client has none")),
        (Some(_), None) => Err(Fault::client("`client_secret` is missing")),
        (Some(_), Some(_)) => Err(Fault::client("`client_secret` is wrong")),
    }
}

/// Returns the service account behind the credentials. The error does not tell whether id or secret
/// is wrong.
pub(super) fn service_account(
    tx: &mut Tx<'_>,
    credentials: &Credentials,
) -> Result<ServiceAccount, Fault> {
    let secret =
        credentials.secret.as_deref().ok_or_else(|| Fault::client("`client_secret` is missing"))?;
    let account =
        service_accounts::find_anywhere(tx, &ServiceAccountId::known(credentials.id.as_str()))?;
    let account = account.filter(|account| secrets::matches(secret, &account.secret));
    account.ok_or_else(|| Fault::client("`client_id` or `client_secret` is wrong"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn header_and_body_say_the_same() {
        let header = format!("Basic {}", BASE64.encode("sva_1:secret"));
        let params = Params::from_form(b"client_id=sva_1&client_secret=secret").unwrap();
        for (params, header) in [(Params::default(), Some(header.as_str())), (params, None)] {
            let credentials = Credentials::read(&params, header).unwrap().unwrap();
            assert_eq!(
                (credentials.id.as_str(), credentials.secret.as_deref()),
                ("sva_1", Some("secret"))
            );
        }
        let other = Params::from_form(b"client_id=sva_2").unwrap();
        assert!(Credentials::read(&other, Some(&header)).is_err());
    }

    proptest! {
        #[test]
        fn any_header_is_read_or_refused(text in "(Basic |basic)?.{0,40}") {
            let _ = basic(&text);
        }

        #[test]
        fn any_basic_content_is_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            let _ = basic(&format!("Basic {}", BASE64.encode(bytes)));
        }
    }
}
