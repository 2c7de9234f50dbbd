//! The caller on whose behalf rules run, and the workspace they run in.

use crate::control::Control;
use crate::error::Error;
use auth::workspaces::Workspace;
use auth::{Identity, Member};
use std::sync::Arc;
use store::Tx;
use store::resources::{self, Stored};
use types::{Kind, KindName, Problems, World};

/// What rules need besides the transaction.
#[derive(Clone)]
pub struct Context {
    pub control: Control,
    pub member: Member,
}

impl Context {
    pub fn world(&self) -> &World {
        &self.control.world
    }

    /// The name recorded in `createdBy` and `updatedBy`.
    pub fn actor(&self) -> &str {
        &self.member.who.name
    }

    /// The same caller in another workspace of the account, for when one workspace gives something
    /// to another.
    pub fn in_workspace(&self, workspace: &Workspace) -> Self {
        let member = Member {
            workspace: workspace.id.clone(),
            workspace_name: workspace.name.clone(),
            ..self.member.clone()
        };
        Self { control: self.control.clone(), member }
    }

    /// Returns the region of an object whose wish names `wished`: that region, or the first one of
    /// this installation if it names none. Published clients write `auto` for "any".
    pub fn region(&self, wished: Option<&str>) -> String {
        let named = wished.filter(|name| !matches!(*name, "" | "auto"));
        named
            .map(str::to_owned)
            .or_else(|| self.control.settings.regions.first()?.name.clone())
            .unwrap_or_default()
    }

    /// Fills in the region of a wish if its kind has one and the caller left the choice to us.
    pub(crate) fn fill_region<K: Kind>(&self, wish: &mut K) {
        if let Some(wished) = wish.region_mut() {
            *wished = Some(self.region(wished.as_deref())).filter(|region| !region.is_empty());
        }
    }

    /// Checks that a named region is one of this installation's. Published clients write `auto` for
    /// "any".
    pub fn require_region(&self, region: Option<&str>, field: &str) -> Result<(), Error> {
        let regions = &self.control.settings.regions;
        let names: Vec<&str> = regions.iter().filter_map(|region| region.name.as_deref()).collect();
        match region {
            None | Some("" | "auto") => Ok(()),
            Some(name) if names.contains(&name) => Ok(()),
            Some(_) => {
                let rule = format!("must be a region of this installation: {}", names.join(", "));
                Err(Problems::one(field, rule).into())
            }
        }
    }

    /// Finds the row of another object in the workspace.
    pub fn find(
        &self,
        tx: &mut Tx<'_>,
        kind: KindName,
        parents: &[String],
        name: &str,
    ) -> Result<Option<Stored>, Error> {
        Ok(resources::find(tx, &self.member.workspace, kind, &parents.join("/"), name)?)
    }
}

/// Returns a caller as an admin of a workspace: the person who has just created it, or the server
/// itself.
pub fn as_admin(who: &Arc<Identity>, workspace: &Workspace) -> Member {
    Member {
        who: Arc::clone(who),
        workspace: workspace.id.clone(),
        workspace_name: workspace.name.clone(),
        account: workspace.account.clone(),
        plan: String::new(),
        role: auth::Role::Admin,
    }
}
