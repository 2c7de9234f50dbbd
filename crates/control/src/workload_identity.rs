//! The credentials with which a workload calls this server: each workload has a service account of
//! its own. Its secret is derived from a key of the server and the account's id, so it is stored
//! nowhere.

pub(crate) mod key;

use crate::context::Context;
use store::Tx;
use store::identity::service_accounts;
use store::resources::Stored;
use types::ids::ServiceAccountId;

/// Returns the identity of a workload, and makes it when it is first asked for.
pub(crate) fn find_or_make(
    context: &Context,
    tx: &mut Tx<'_>,
    row: &Stored,
) -> Result<ServiceAccountId, store::Error> {
    if let Some(found) = service_accounts::find_of_workload(tx, &row.id)? {
        return Ok(found.id);
    }
    let name = format!("{} {}", row.kind, row.name);
    let secret = |account: &_| context.control.identities.secret(account);
    auth::service_accounts::create_for(tx, &context.member, (&row.id, &name), secret)
}

/// Deletes the identity of a workload, if it has one.
pub(crate) fn end(context: &Context, tx: &mut Tx<'_>, row: &Stored) -> Result<(), store::Error> {
    match service_accounts::find_of_workload(tx, &row.id)? {
        Some(found) => auth::service_accounts::delete_of(tx, &context.member, &found.id),
        None => Ok(()),
    }
}

/// The variables that tell a program where this server is and how to authenticate.
pub(crate) struct Access {
    /// Variables that the user may override, who knows better how this server is reached from
    /// inside.
    pub(crate) addresses: [(&'static str, String); 3],
    pub(crate) credentials: (&'static str, String),
}

impl Access {
    pub(crate) fn of(context: &Context, identity: &ServiceAccountId) -> Self {
        let url = &context.control.settings.public_url;
        Self {
            addresses: [
                ("BL_API_URL", format!("{url}/v0")),
                ("BL_RUN_URL", url.clone()),
                // Otherwise published clients would look up a region's name at their vendor's
                // first.
                ("BL_DISABLE_H2", "1".to_owned()),
            ],
            credentials: (
                "BL_CLIENT_CREDENTIALS",
                context.control.identities.credentials(identity),
            ),
        }
    }
}
