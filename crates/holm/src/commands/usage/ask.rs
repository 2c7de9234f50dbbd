//! Requests for usage, page by page.

use crate::client::Client;
use crate::error::Error;
use serde_json::Value;
use types::Timestamp;
use types::wire::AccountMetrics;

/// Most pages that are read, in case a server never ends.
const PAGES_MAX: usize = 100_000;
/// Lengths of steps that can be asked for.
pub(super) const RESOLUTIONS: [&str; 4] = ["hourly", "daily", "weekly", "monthly"];

/// Which account's usage to show, and which part of it.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct Scope {
    /// Id of the account; by default yours, if you have one
    #[arg(long, value_name = "ID")]
    account: Option<String>,
    /// Only one workspace; for administrators of the account
    #[arg(long, value_name = "NAME")]
    of_workspace: Option<String>,
    /// Only resources of this type, such as sandbox
    #[arg(long = "type", value_name = "TYPE")]
    resource_type: Option<String>,
    /// Only resources with this name
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Only this billing dimension
    #[arg(long, value_name = "NAME")]
    dimension: Option<String>,
}

/// What to ask for.
#[derive(Debug, Clone)]
pub(crate) struct Question {
    pub(crate) from: Timestamp,
    pub(crate) to: Timestamp,
    pub(crate) by: String,
    pub(crate) resolution: Option<String>,
    pub(crate) scope: Scope,
}

/// Returns the named account, or the only one that the caller can mean.
pub(crate) async fn account(scope: &Scope, client: &mut Client) -> Result<String, Error> {
    if let Some(account) = &scope.account {
        let plain =
            account.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte));
        return if plain {
            Ok(account.clone())
        } else {
            Err(Error::Usage(format!("`{account}` is no id of an account")))
        };
    }
    let answer = client.get("accounts", &[]).await?;
    let accounts = answer.as_array().cloned().unwrap_or_default();
    let id = |account: &Value| account["id"].as_str().map(str::to_owned);
    let own: Vec<_> =
        accounts.iter().filter(|account| account["admin"] == true).filter_map(id).collect();
    let all: Vec<_> = accounts.iter().filter_map(id).collect();
    match (own.as_slice(), all.as_slice()) {
        ([only], _) | ([], [only]) => Ok(only.clone()),
        (_, []) => Err(Error::Absent("you belong to no account whose usage could be shown".into())),
        (_, several) => Err(Error::Usage(format!(
            "name one of your accounts with --account: {}",
            several.join(", ")
        ))),
    }
}

/// Reads all pages and passes each to `take`.
pub(crate) async fn pages(
    account: &str,
    question: &Question,
    client: &mut Client,
    mut take: impl FnMut(AccountMetrics) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut cursor = String::new();
    for _ in 0..PAGES_MAX {
        let page = page(account, question, &cursor, client).await?;
        cursor.clone_from(&page.meta.next_cursor);
        let more = page.meta.has_more;
        take(page)?;
        if !more || cursor.is_empty() {
            return Ok(());
        }
    }
    Err(Error::NotHolm { server: client.server(), message: "its pages have no end".into() })
}

async fn page(
    account: &str,
    question: &Question,
    cursor: &str,
    client: &mut Client,
) -> Result<AccountMetrics, Error> {
    let (from, to) = (question.from.to_string(), question.to.to_string());
    let scope = &question.scope;
    let mut query = vec![("startTime", from.as_str()), ("endTime", to.as_str())];
    let filters = [
        ("groupBy", Some(question.by.as_str()).filter(|by| !by.is_empty())),
        ("resolution", question.resolution.as_deref()),
        ("workspace", scope.of_workspace.as_deref()),
        ("resourceType", scope.resource_type.as_deref()),
        ("resourceName", scope.name.as_deref()),
        ("billingDimension", scope.dimension.as_deref()),
        ("cursor", Some(cursor).filter(|cursor| !cursor.is_empty())),
    ];
    query.extend(filters.into_iter().filter_map(|(name, value)| Some((name, value?))));
    let answer = client.get(&format!("accounts/{account}/metrics"), &query).await?;
    serde_json::from_value(answer).map_err(|error| Error::NotHolm {
        server: client.server(),
        message: format!("its usage cannot be read: {error}"),
    })
}
