//! The connections of a workspace to the code host, and what each of them allows us to do.

use std::fmt;
use store::resources::{self, Query, Stored};
use store::{Error, KeyFile, Keyring, Tx};
use types::ids::{ResourceId, WorkspaceId};
use types::kinds::IntegrationConnection;
use types::parts::{Sensitive, TextMap};
use types::{Kind, KindName};

/// The `spec.integration` of a connection to the code host.
const INTEGRATION: &str = "github";
/// Most connections of one workspace that are read.
const CONNECTIONS_MAX: i64 = 1000;

/// The credentials that our requests are signed with.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum Credentials {
    Token(Sensitive<String>),
    App { id: String, key: Sensitive<String>, installation: String },
}

#[derive(Clone)]
pub(super) struct Connection {
    pub(super) id: ResourceId,
    /// Rises when the connection's secrets change.
    pub(super) version: i64,
    /// The repositories it is for, in lower case. Empty means all.
    repositories: Vec<String>,
    pub(super) credentials: Option<Credentials>,
    pub(super) webhook_secret: Sensitive<String>,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("id", &self.id)
            .field("repositories", &self.repositories)
            .finish_non_exhaustive()
    }
}

/// Returns all connections of a workspace to the code host, oldest first, without those whose
/// secrets cannot be opened.
pub(super) fn all(
    tx: &mut Tx<'_>,
    keyring: &KeyFile,
    workspace: &WorkspaceId,
) -> Result<Vec<Connection>, Error> {
    let order = resources::Order::CreatedAsc;
    let kind = KindName::IntegrationConnection;
    let rows = resources::list(
        tx,
        &Query { order, limit: CONNECTIONS_MAX, ..Query::new(workspace, kind, Some("")) },
    )?;
    let keyring = keyring.read();
    Ok(rows.into_iter().filter_map(|row| open(row, &keyring)).collect())
}

/// Returns the connection for a repository: the first that lists it, otherwise the only one that
/// lists none.
pub(super) fn choose<'a>(
    connections: &'a [Connection],
    repository: &str,
) -> Option<&'a Connection> {
    let listed =
        |connection: &&Connection| connection.repositories.iter().any(|name| name == repository);
    connections.iter().find(listed).or_else(|| {
        let mut open = connections.iter().filter(|connection| connection.repositories.is_empty());
        open.next().filter(|_| open.next().is_none())
    })
}

impl Connection {
    /// True if webhooks of this connection may speak for the repository.
    pub(super) fn covers(&self, repository: &str) -> bool {
        self.repositories.is_empty() || self.repositories.iter().any(|name| name == repository)
    }
}

fn open(row: Stored, keyring: &Keyring) -> Option<Connection> {
    let mut wish: IntegrationConnection = serde_json::from_str(&row.wish).ok()?;
    if wish.spec.integration.as_deref() != Some(INTEGRATION) {
        return None;
    }
    let context = format!("resources/{}", row.id);
    let mut opened = Ok(());
    wish.secrets(&mut |_, value| match keyring.open(&context, value) {
        Ok(plain) => *value = plain,
        Err(error) => opened = Err(error),
    });
    if let Err(error) = opened {
        tracing::error!(%error, connection = %row.id, "the secrets of a connection cannot be opened");
        return None;
    }
    let Sensitive(mut secret) = wish.spec.secret.unwrap_or_default();
    let listed =
        wish.spec.config.as_ref().and_then(|config| config.get("repositories")).map(String::as_str);
    let names = listed
        .unwrap_or_default()
        .split([',', ' ', '\n'])
        .map(str::trim)
        .filter(|name| !name.is_empty());
    Some(Connection {
        id: row.id,
        version: row.version,
        repositories: names.map(str::to_ascii_lowercase).collect(),
        credentials: credentials(&mut secret),
        webhook_secret: Sensitive(secret.remove("webhookSecret").unwrap_or_default()),
    })
}

/// Prefers the credentials of an app, because an app has narrower rights.
fn credentials(secret: &mut TextMap) -> Option<Credentials> {
    let mut take = |name: &str| secret.remove(name).filter(|value| !value.is_empty());
    match (take("appId"), take("privateKey"), take("installationId")) {
        (Some(id), Some(key), Some(installation)) => {
            Some(Credentials::App { id, key: Sensitive(key), installation })
        }
        _ => take("token").map(|token| Credentials::Token(Sensitive(token))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connection(id: &str, repositories: &[&str]) -> Connection {
        Connection {
            id: ResourceId::known(id),
            version: 1,
            repositories: repositories.iter().map(|name| (*name).to_owned()).collect(),
            credentials: None,
            webhook_secret: Sensitive("s".into()),
        }
    }

    #[track_caller]
    fn check(connections: &[Connection], expected: Option<&str>) {
        assert_eq!(
            choose(connections, "me/repo").map(|connection| connection.id.as_str()),
            expected
        );
    }

    #[test]
    fn the_connection_that_lists_a_repository_serves_it_else_the_only_one_that_lists_none() {
        let (listing, open) =
            (connection("listing", &["me/other", "me/repo"]), connection("open", &[]));
        let elsewhere = connection("elsewhere", &["me/other"]);
        check(&[open.clone(), listing.clone()], Some("listing"));
        check(&[elsewhere.clone(), open.clone()], Some("open"));
        check(&[open.clone(), open.clone()], None);
        check(std::slice::from_ref(&elsewhere), None);
        check(&[], None);
        assert!(
            open.covers("me/repo") && listing.covers("me/repo") && !elsewhere.covers("me/repo")
        );
    }

    #[test]
    fn nothing_secret_is_shown() {
        let connection = connection("a", &[]);
        assert!(!format!("{connection:?}").contains("webhook"));
        let mut secret = TextMap::from([("token".to_owned(), "ghp_x".to_owned())]);
        assert!(
            matches!(credentials(&mut secret), Some(Credentials::Token(Sensitive(token))) if token == "ghp_x")
        );
    }
}
