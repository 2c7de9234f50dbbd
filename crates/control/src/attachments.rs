//! The holder of a volume: one sandbox, or one agent with all its revisions. A volume is taken in
//! the transaction that writes its holder, and given back in the one that removes it from the
//! holder.

use crate::context::Context;
use crate::engine::{self, Held};
use crate::error::{Error, Unfit};
use crate::missing::Missing;
use std::fmt;
use store::Tx;
use types::KindName;
use types::kinds::{Agent, Sandbox, Volume};
use types::parts::VolumeAttachment;

/// A resource that holds volumes, or wants to.
pub(crate) struct Holder<'h> {
    kind: KindName,
    name: &'h str,
    region: Option<&'h str>,
    wished: &'h [VolumeAttachment],
}

/// Written the way the state of a volume names its holder.
impl fmt::Display for Holder<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.kind, self.name)
    }
}

impl<'h> Holder<'h> {
    pub(crate) fn sandbox(sandbox: &'h Sandbox) -> Self {
        Self {
            kind: KindName::Sandbox,
            name: &sandbox.metadata.name,
            region: sandbox.spec.region.as_deref(),
            wished: sandbox.spec.volumes.as_deref().unwrap_or_default(),
        }
    }

    pub(crate) fn agent(agent: &'h Agent) -> Self {
        Self {
            kind: KindName::Agent,
            name: &agent.metadata.name,
            region: agent.spec.region.as_deref(),
            wished: agent.spec.volumes.as_deref().unwrap_or_default(),
        }
    }

    /// Returns the mounted volumes that outlive the holder.
    pub(crate) fn persistent(&self) -> impl Iterator<Item = &'h VolumeAttachment> + use<'h> {
        self.wished.iter().filter(|wished| wished.is_persistent())
    }

    fn names(&self) -> impl Iterator<Item = &'h str> + use<'h> {
        self.persistent().filter_map(|wished| wished.name.as_deref())
    }

    /// Takes the volumes that are mounted and not yet taken, and gives back those that `old`, the
    /// holder's earlier wish, had in addition. What serves keeps its own until something else does.
    pub(crate) fn take(
        &self,
        context: &Context,
        tx: &mut Tx<'_>,
        old: Option<&Self>,
        serving: Option<&Self>,
    ) -> Result<(), Error> {
        self.require_store(context)?;
        for name in self.names() {
            let had = old.is_some_and(|old| old.names().any(|before| before == name));
            // A volume of the earlier wish may have been deleted since.
            if had && context.find(tx, KindName::Volume, &[], name)?.is_none() {
                continue;
            }
            self.take_one(context, tx, name)?;
        }
        let kept: Vec<&Self> = serving.into_iter().chain([self]).collect();
        old.map_or(Ok(()), |old| old.leave_but(context, tx, &kept))
    }

    /// Gives back the volumes that none of these, other wishes of the same holder, has.
    pub(crate) fn leave_but(
        &self,
        context: &Context,
        tx: &mut Tx<'_>,
        others: &[&Self],
    ) -> Result<(), Error> {
        let is_kept = |name: &str| others.iter().any(|other| other.names().any(|had| had == name));
        self.give_back(context, tx, self.names().filter(|name| !is_kept(name)))
    }

    /// Gives back all volumes, because the holder is about to be deleted.
    pub(crate) fn leave(&self, context: &Context, tx: &mut Tx<'_>) -> Result<(), Error> {
        self.give_back(context, tx, self.names())
    }

    fn give_back<'n>(
        &self,
        context: &Context,
        tx: &mut Tx<'_>,
        names: impl Iterator<Item = &'n str>,
    ) -> Result<(), Error> {
        for name in names {
            // A restore may have removed the volume; then there is nothing to give back.
            if context.find(tx, KindName::Volume, &[], name)?.is_none() {
                continue;
            }
            let volume = Held::<Volume>::lock(context, tx, &[], name)?;
            if volume.state.attached_to.as_deref() == Some(&*self.to_string()) {
                let free =
                    types::kinds::volume::State { attached_to: None, ..volume.state.clone() };
                engine::change_state(context, tx, volume, free)?;
            }
        }
        Ok(())
    }

    fn take_one(&self, context: &Context, tx: &mut Tx<'_>, name: &str) -> Result<(), Error> {
        let volume = Held::<Volume>::lock(context, tx, &[], name)?;
        let me = self.to_string();
        match &volume.state.attached_to {
            Some(holder) if *holder == me => return Ok(()),
            Some(holder) => {
                let (volume, holder) = (name.to_owned(), holder.clone());
                return Err(Unfit::VolumeAttached { volume, holder }.into());
            }
            None => {}
        }
        let of_volume = volume.wish.spec.region.as_deref();
        if of_volume.zip(self.region).is_some_and(|(volume, own)| volume != own) {
            let (volume, kind) = (name.to_owned(), self.kind);
            return Err(Unfit::VolumeElsewhere { volume, kind }.into());
        }
        let elsewhere = |machine: &String| volume.state.machine.as_ref() != Some(machine);
        if context.control.volume_store().is_some_and(|(_, machine)| elsewhere(&machine)) {
            let why = context.control.kept_elsewhere(volume.state.machine.as_deref());
            return Err(Unfit::VolumeOnOtherMachine { volume: name.to_owned(), why }.into());
        }
        let taken = types::kinds::volume::State { attached_to: Some(me), ..volume.state.clone() };
        engine::change_state(context, tx, volume, taken).map(drop)
    }

    /// Refuses volumes on a machine that keeps none, where everything written to them would be
    /// lost.
    fn require_store(&self, context: &Context) -> Result<(), Error> {
        // A sandbox's volumes that go with its instance need a disk too.
        let mounts = match self.kind {
            KindName::Sandbox => !self.wished.is_empty(),
            _ => self.persistent().next().is_some(),
        };
        match context.control.machine() {
            Some(machine) if mounts && machine.volumes().is_none() => {
                Err(Error::Missing(Missing::MountVolume))
            }
            _ => Ok(()),
        }
    }
}
