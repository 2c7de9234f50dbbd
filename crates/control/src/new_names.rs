//! New names of what is first made on a machine, and gets its row after that.
//!
//! What a request makes takes room on the machine. Requests that cannot get a row must not take it
//! from the one that can: identical ones would refuse each other for lack of room.

use crate::context::Context;
use crate::error::Error;
use crate::idempotency::{RequestKey, earlier};
use crate::volume_store::VolumeFault;
use tokio::sync::OwnedMutexGuard;
use types::KindName;

/// The name that a request wants, and the key under which it wants it.
pub(crate) struct NewName<'r> {
    context: &'r Context,
    kind: KindName,
    name: &'r str,
    key: Option<&'r RequestKey>,
    _turn: OwnedMutexGuard<()>,
}

impl<'r> NewName<'r> {
    /// Waits until this server makes nothing else for the name.
    pub(crate) async fn take(
        context: &'r Context,
        kind: KindName,
        name: &'r str,
        key: Option<&'r RequestKey>,
    ) -> Self {
        let workspace = &context.member.workspace;
        let turn = context.control.workloads.lock_name(workspace, kind, name).await;
        Self { context, kind, name, key, _turn: turn }
    }

    /// Returns true if the name is taken or the key has its answer. Then nothing is to be made, and
    /// the transaction for the row gives the answer.
    pub(crate) async fn is_decided(&self) -> Result<bool, Error> {
        let store = &self.context.control.store;
        if earlier(store, self.key).await?.is_some() {
            return Ok(true);
        }
        let (of, kind, name) = (self.context.clone(), self.kind, self.name.to_owned());
        store.read(move |tx| Ok(of.find(tx, kind, &[], &name)?.is_some())).await
    }

    /// Returns whether something was made for the name. If there was no room, another server may
    /// have decided the name or the key meanwhile, which says more than that there was no room.
    pub(crate) async fn is_made(&self, made: Result<(), VolumeFault>) -> Result<bool, Error> {
        match made {
            Ok(()) => Ok(true),
            Err(VolumeFault::OverShare(_) | VolumeFault::Full(_)) if self.is_decided().await? => {
                Ok(false)
            }
            Err(fault) => Err(fault.into()),
        }
    }
}
