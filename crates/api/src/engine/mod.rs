//! What the API does for every kind of resource: make, read, replace, remove, list, and keep
//! revisions.
//!
//! A kind takes part by implementing [`Managed`]; a kind that needs nothing more than its [`Kind`]
//! does so in one line. All functions here run inside one store transaction, so an object is never
//! half made.

mod held;
mod list;
mod revisions;
mod secrets;
mod verbs;

pub(crate) use held::Held;
pub(crate) use list::{Listing, Page, everywhere, list, list_all};
pub(crate) use revisions::{earlier, revisions};
pub(crate) use secrets::{MASK, Secrets};
pub(crate) use verbs::{
    change_state, create, create_as, get, opened, present, remove, replace, require_version,
};

use crate::app::App;
use crate::error::Error;
use crate::query::{PAGE, PageSize};
use auth::Member;
use store::Tx;
use store::resources::{self, Stored};
use types::ids::ResourceId;
use types::parts::Generation;
use types::{Kind, KindName, World};

/// Who works where: what the engine needs beside the transaction.
#[derive(Clone)]
pub(crate) struct Desk {
    pub app: App,
    pub member: Member,
}

impl Desk {
    pub(crate) fn world(&self) -> &World {
        &self.app.world
    }

    /// The name that goes into `createdBy`.
    pub(crate) fn actor(&self) -> &str {
        &self.member.who.name
    }

    /// Where an object runs that names a region, or none. Published clients write `auto` for any.
    pub(crate) fn region(&self, wished: Option<&str>) -> String {
        let named = wished.filter(|name| !matches!(*name, "" | "auto"));
        named
            .map(str::to_owned)
            .or_else(|| self.app.settings.regions.first()?.name.clone())
            .unwrap_or_default()
    }

    /// Says in a wish where the object is, if it is in one place and the caller left that to us.
    pub(crate) fn place<K: Kind>(&self, wish: &mut K) {
        if let Some(wished) = wish.region_mut() {
            *wished = Some(self.region(wished.as_deref())).filter(|region| !region.is_empty());
        }
    }

    /// The row of another object of the workspace, if it exists.
    pub(crate) fn find(
        &self,
        tx: &mut Tx<'_>,
        kind: KindName,
        parents: &[String],
        name: &str,
    ) -> Result<Option<Stored>, Error> {
        Ok(resources::find(tx, &self.member.workspace, kind, &parents.join("/"), name)?)
    }
}

/// How a kind is listed.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Paging {
    /// In pages, from the version on that knows them.
    Pages(PageSize),
    /// As a bare array, always.
    Bare,
}

/// A write in progress: what a kind may look at and change before it is stored.
pub(crate) struct Draft<'d, K: Kind> {
    pub wish: &'d mut K,
    pub state: &'d mut K::State,
    pub old: Option<&'d K>,
    pub id: &'d ResourceId,
    pub parents: &'d [String],
}

/// What a kind adds to the engine's verbs.
pub(crate) trait Managed: Kind {
    const PAGING: Paging = Paging::Pages(PAGE);
    /// Whether whoever may read an object may also read its secrets.
    const SHOWS_SECRETS: bool = false;

    /// Where an object is reached, for the kinds that are.
    fn url(_desk: &Desk, _held: &Held<Self>) -> Option<String> {
        None
    }

    /// The name of a new object's row: another than the object's for kinds of which several may
    /// have one name.
    fn row_name(
        _desk: &Desk,
        _tx: &mut Tx<'_>,
        _parents: &[String],
        wish: &Self,
    ) -> Result<String, Error> {
        Ok(wish.name().to_owned())
    }

    /// Adds to an answer what only other rows know.
    fn adorn(&mut self, _desk: &Desk, _tx: &mut Tx<'_>) -> Result<(), Error> {
        Ok(())
    }

    /// Checks and takes what the store must say about a write: names that must be free, volumes to
    /// attach.
    fn settle(_desk: &Desk, _tx: &mut Tx<'_>, _draft: &mut Draft<'_, Self>) -> Result<(), Error> {
        Ok(())
    }

    /// Keeps what other tables hold of an object in step with its wish, as it is stored in the end.
    fn follow(_desk: &Desk, _tx: &mut Tx<'_>, _wish: &Self) -> Result<(), Error> {
        Ok(())
    }

    /// Refuses a deletion, or gives back what the object holds.
    fn release(_desk: &Desk, _tx: &mut Tx<'_>, _held: &Held<Self>) -> Result<(), Error> {
        Ok(())
    }
}

/// What every workload finds in its environment, whatever it is.
pub(crate) fn common_environment(
    desk: &Desk,
    kind: &str,
    name: &str,
    region: String,
    generation: Option<Generation>,
) -> Vec<(&'static str, String)> {
    vec![
        ("BL_WORKSPACE", desk.member.workspace_name.clone()),
        ("BL_WORKSPACE_ID", desk.member.workspace.to_string()),
        ("BL_NAME", name.to_owned()),
        ("BL_TYPE", kind.to_owned()),
        ("BL_REGION", region),
        ("BL_ENV", "prod".to_owned()),
        ("BL_CLOUD", "true".to_owned()),
        ("BL_GENERATION", generation.unwrap_or_default().name().to_owned()),
    ]
}
