//! What every workspace has from its first moment.

use crate::engine::{self, Desk};
use crate::error::Error;
use auth::workspaces::Workspace;
use auth::{Identity, Member};
use std::sync::Arc;
use store::Tx;
use types::kinds::vpc::{Vpc, VpcSpec};

/// The VPC that belongs to the workspace and stays.
pub(crate) const DEFAULT_VPC: &str = "default";

/// Whoever made a workspace, in it.
pub(crate) fn as_admin(who: &Arc<Identity>, workspace: &Workspace) -> Member {
    Member {
        who: Arc::clone(who),
        workspace: workspace.id.clone(),
        workspace_name: workspace.name.clone(),
        account: workspace.account.clone(),
        plan: String::new(),
        role: auth::Role::Admin,
    }
}

/// Makes what every workspace has, where it is missing.
pub(crate) fn furnish(desk: &Desk, tx: &mut Tx<'_>) -> Result<(), Error> {
    if desk.find(tx, types::KindName::Vpc, &[], DEFAULT_VPC)?.is_none() {
        let metadata = types::parts::Metadata { name: DEFAULT_VPC.into(), ..Default::default() };
        let vpc = Vpc { metadata, spec: VpcSpec::default(), events: None, status: None };
        engine::create(desk, tx, &[], vpc)?;
    }
    Ok(())
}
