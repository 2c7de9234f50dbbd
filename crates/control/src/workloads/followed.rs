//! The kinds whose rows the background follows, and what a row of each kind asks for.

use super::instances::Inventory;
use super::rows::Workspaces;
use crate::control::Control;
use crate::engine::{Held, Managed};
use crate::error::Error;
use futures_util::future::BoxFuture;
use std::future::Future;
use std::marker::PhantomData;
use store::Tx;
use store::resources::Stored;
use types::edge::RouteChange;
use types::ids::ResourceId;
use types::kinds::{
    Agent, Application, CustomDomain, Drive, Function, IntegrationConnection, Job, Model, Preview,
    Sandbox, Schedule, Snapshot, Volume, VolumeTemplate,
};
use types::{KindName, Timestamp};

/// What a row asks for at present.
#[derive(Default)]
pub(super) struct Look {
    pub(super) route: Option<RouteChange>,
    /// The time at which something has to be done about it.
    pub(super) due: Option<Timestamp>,
    /// Whether what runs may differ from what the row asks for.
    pub(super) differs: bool,
}

/// The context in which rows are read.
pub(super) struct Reader<'r> {
    pub(super) control: &'r Control,
    pub(super) workspaces: Workspaces,
    /// What runs here, if it has just been listed.
    pub(super) inventory: Option<&'r Inventory>,
}

/// A kind whose rows are followed.
pub(super) trait Followed: Managed {
    /// Whether its rows have routes at the edge.
    const ROUTED: bool;
    /// Whether something may still run for a row that is gone.
    const RUNS: bool = false;
    /// How its rows are reconciled in the background if requests may wait for that: without a slot,
    /// of which a workspace has only its share.
    const WITHOUT_SLOT: Option<fn(&Control, ResourceId)> = None;

    fn look(reader: &mut Reader<'_>, tx: &mut Tx<'_>, held: Held<Self>) -> Result<Look, Error>;

    /// Makes what runs match what a row asks for. Repeating it is harmless.
    fn reconcile(
        _control: &Control,
        _id: &ResourceId,
    ) -> impl Future<Output = Result<(), Error>> + Send {
        async { Ok(()) }
    }

    /// Does what is due. The row decides, because it may have changed since its due time was set.
    fn act_when_due(
        _control: &Control,
        _id: &ResourceId,
    ) -> impl Future<Output = Result<(), Error>> + Send {
        async { Ok(()) }
    }
}

/// [`Followed`] for a kind that is known only by its name.
pub(super) trait Rows: Send + Sync {
    fn kind(&self) -> KindName;
    fn is_routed(&self) -> bool;
    fn runs(&self) -> bool;
    fn without_slot(&self) -> Option<fn(&Control, ResourceId)>;
    fn look(&self, reader: &mut Reader<'_>, tx: &mut Tx<'_>, row: Stored) -> Result<Look, Error>;
    fn reconcile<'a>(
        &self,
        control: &'a Control,
        id: &'a ResourceId,
    ) -> BoxFuture<'a, Result<(), Error>>;
    fn act_when_due<'a>(
        &self,
        control: &'a Control,
        id: &'a ResourceId,
    ) -> BoxFuture<'a, Result<(), Error>>;
}

struct Of<K>(PhantomData<fn() -> K>);

impl<K: Followed> Rows for Of<K> {
    fn kind(&self) -> KindName {
        K::NAME
    }

    fn is_routed(&self) -> bool {
        K::ROUTED
    }

    fn runs(&self) -> bool {
        K::RUNS
    }

    fn without_slot(&self) -> Option<fn(&Control, ResourceId)> {
        K::WITHOUT_SLOT
    }

    fn look(&self, reader: &mut Reader<'_>, tx: &mut Tx<'_>, row: Stored) -> Result<Look, Error> {
        K::look(reader, tx, Held::read(row)?)
    }

    fn reconcile<'a>(
        &self,
        control: &'a Control,
        id: &'a ResourceId,
    ) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(K::reconcile(control, id))
    }

    fn act_when_due<'a>(
        &self,
        control: &'a Control,
        id: &'a ResourceId,
    ) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(K::act_when_due(control, id))
    }
}

/// All followed kinds.
pub(super) const ALL: [&dyn Rows; 14] = [
    &Of::<VolumeTemplate>(PhantomData),
    &Of::<Snapshot>(PhantomData),
    &Of::<Volume>(PhantomData),
    &Of::<Drive>(PhantomData),
    &Of::<Sandbox>(PhantomData),
    &Of::<Preview>(PhantomData),
    &Of::<CustomDomain>(PhantomData),
    &Of::<Schedule>(PhantomData),
    &Of::<Job>(PhantomData),
    &Of::<Agent>(PhantomData),
    &Of::<Application>(PhantomData),
    &Of::<Function>(PhantomData),
    &Of::<IntegrationConnection>(PhantomData),
    &Of::<Model>(PhantomData),
];

pub(super) fn find(kind: KindName) -> Option<&'static dyn Rows> {
    ALL.into_iter().find(|rows| rows.kind() == kind)
}
