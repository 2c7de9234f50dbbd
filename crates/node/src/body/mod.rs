//! What an instance runs in: a container started by the node itself, or by an OCI program.
//! Everything that depends on the difference is here: start, freeze, thaw, connect, measure,
//! destroy, and finding it again. MicroVMs will be another variant.

mod container;
mod process;
mod runc;

use crate::body_kind::BodyKind;
use crate::cgroup::{Group, Usage};
use crate::console;
use crate::error::{Attempt, CreateError, Doing};
use crate::names::Owner;
use crate::network_pool::Slot;
use crate::records::Record;
use crate::settings::Backend;
use crate::shared::{Shared, Stores};
use crate::spec::Spec;
use crate::written::Written;
use container::Container;
pub(crate) use container::Wanted;
pub(crate) use process::Process;
use runc::Runc;
use std::collections::HashSet;
use std::io;
use types::instance::InstanceName;

#[derive(Debug)]
pub(crate) enum Body {
    Container(Container),
    Runc(Runc),
}

/// Checks that this machine has what the backend needs.
pub(crate) fn check_machine(backend: &Backend) -> io::Result<()> {
    match backend {
        Backend::Direct => Ok(()),
        Backend::Runc { program } => std::fs::metadata(program).map(drop),
    }
}

/// Refuses what an instance cannot have with this backend.
pub(crate) fn check(backend: &Backend, spec: &Spec) -> Result<(), CreateError> {
    match backend {
        Backend::Direct => Ok(()),
        Backend::Runc { .. } => runc::check(spec),
    }
}

/// Removes what is left of instances that are not `known`.
pub(crate) fn keep_only(stores: &Stores, known: &HashSet<&InstanceName>) -> io::Result<()> {
    stores.bundles.keep_only(known)
}

/// Ends all processes of a half-made instance and removes it.
pub(crate) fn clear(shared: &Shared, owner: &Owner, id: &InstanceName) -> io::Result<()> {
    shared.groups.find(Some(owner), id).sweep()?;
    shared.stores.bundles.remove(id)
}

impl Body {
    /// Starts the first process, which keeps what it was given of the slot.
    pub(crate) fn start(
        shared: &Shared,
        wanted: &Wanted<'_>,
        slot: Slot,
        group: Group,
    ) -> Result<Self, CreateError> {
        match &shared.settings.backend {
            Backend::Direct => Container::start(shared, wanted, slot, group).map(Self::Container),
            Backend::Runc { program } => {
                Runc::start(shared, wanted, slot, group, program).map(Self::Runc)
            }
        }
    }

    /// Makes the body that an earlier node recorded, with the process if it is alive.
    pub(crate) fn adopt(
        stores: &Stores,
        id: &InstanceName,
        record: &Record,
        group: Group,
        process: Option<Process>,
    ) -> Self {
        let container = Container { group, process, layer: None, hands_over: false };
        match record.body {
            BodyKind::Container => Self::Container(container),
            BodyKind::Runc => Self::Runc(Runc { container, bundle: stores.bundles.of(id) }),
        }
    }

    /// Returns the container, which both variants have: they differ in how they are started and
    /// removed.
    fn container(&self) -> &Container {
        match self {
            Self::Container(container) => container,
            Self::Runc(runc) => &runc.container,
        }
    }

    /// Returns the first process. `None` if it was lost with a restart of the machine, or had ended
    /// when it was found.
    pub(crate) fn process(&self) -> Option<&Process> {
        self.container().process.as_ref()
    }

    /// Freezes all processes, or none of them.
    pub(crate) fn freeze(&self) -> Result<(), Attempt> {
        let group = &self.container().group;
        group.freeze().or_else(|error| {
            // Some may be frozen already; the instance is either running as a whole or not.
            group.thaw().doing("thaw")?;
            Err(error).doing("freeze")
        })
    }

    pub(crate) fn thaw(&self) -> Result<(), Attempt> {
        self.container().group.thaw().doing("thaw")
    }

    pub(crate) fn is_frozen(&self) -> io::Result<bool> {
        self.container().group.frozen()
    }

    pub(crate) fn limit_cpu(&self, millicores: u32) -> Result<(), Attempt> {
        self.container().group.limit_cpu(millicores).doing("limit the processor time of")
    }

    pub(crate) fn lift_cpu_limit(&self) -> Result<(), Attempt> {
        self.container().group.lift_cpu_limit().doing("lift the processor limit of")
    }

    pub(crate) fn usage(&self) -> Result<Usage, Attempt> {
        self.container().group.usage().doing("measure")
    }

    pub(crate) fn oom_kills(&self) -> Result<u64, Attempt> {
        self.container().group.oom_kills().doing("measure")
    }

    /// Returns the end of what the first process printed.
    pub(crate) fn console(&self) -> Result<Vec<u8>, Attempt> {
        match self.process().and_then(|process| process.console.as_ref()) {
            Some(console) => console::tail(console).doing("read the output of"),
            None => Ok(Vec::new()),
        }
    }

    /// Returns what the instance wrote, if it is to be handed over.
    pub(crate) fn written(&self) -> Option<&Written> {
        let container = self.container();
        container.layer.as_ref().filter(|_| container.hands_over)
    }

    /// Returns the layer that it writes into. `None` for an adopted instance, and for one whose
    /// layer is a volume that stays.
    pub(crate) fn layer(&self) -> Option<&Written> {
        self.container().layer.as_ref()
    }

    /// Ends every process and removes what belongs to the body. The first process must have ended.
    pub(crate) fn destroy(&self) -> Result<(), Attempt> {
        match self {
            Self::Container(container) => container.destroy(),
            Self::Runc(runc) => runc.destroy(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_of_earlier_releases_tell_the_kind() {
        for (text, kind) in [(r#""node""#, BodyKind::Container), (r#""tool""#, BodyKind::Runc)] {
            assert_eq!(serde_json::from_str::<BodyKind>(text).unwrap(), kind);
            assert_eq!(serde_json::to_string(&kind).unwrap(), text);
        }
    }
}
