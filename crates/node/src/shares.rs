//! Counts what instances hold of the machine for each owner, so that an owner who takes too much is
//! refused, and not somebody else.
//!
//! Memory is counted twice. The kernel limits what an owner really uses ([`crate::cgroup`]). Before
//! that, the node promises no instance more than the machine could ever give it, and all awake
//! instances together at most a multiple of the total. A sleeping instance has given its promise
//! back; waking it is never refused.

use crate::capacity::Capacity;
use crate::error::CreateError;
use crate::names::Owner;
use crate::spec::Spec;
use admission::{Limits, Permit, Pool, Refused};

/// `None` for instances of nodes that did not know owners.
type Who = Option<Owner>;

#[derive(Debug)]
pub(crate) struct Shares {
    instance_mb: u64,
    instances: Pool<Who>,
    promised_mb: Pool<Who>,
    disks: Pool<Who>,
    disk_mb: Pool<Who>,
}

/// The largest sizes of an instance on this machine, no matter what others have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Largest {
    pub memory_mb: u32,
    pub disk_mb: u32,
}

/// What an instance holds as long as it exists.
#[derive(Debug)]
pub(crate) struct Stake {
    _instance: Permit<Who>,
    /// The number of its disks and their size in MB, if it has any.
    _disks: Option<[Permit<Who>; 2]>,
}

/// The memory promised to an instance while it is awake.
#[derive(Debug)]
pub(crate) struct Promise {
    _permit: Permit<Who>,
}

impl Shares {
    pub(crate) fn new(capacity: &Capacity) -> Self {
        Self {
            instance_mb: capacity.instance_mb,
            instances: Pool::new("sandboxes and tasks", capacity.instances),
            promised_mb: Pool::new("MB of memory promised to what is awake", capacity.promised_mb),
            disks: Pool::new("disks of limited size", capacity.disks),
            disk_mb: Pool::new("MB of disk", capacity.disk_mb),
        }
    }

    /// Notes how much disk there is by now.
    pub(crate) fn raise_disk(&self, disk_mb: Limits) {
        self.disk_mb.raise(disk_mb);
    }

    /// Returns what one instance can have if its owner has no other, in MB.
    pub(crate) fn largest(&self) -> Largest {
        let memory_mb = self.promised_mb.limits().share.min(self.instance_mb);
        let whole = |mb: u64| u32::try_from(mb).unwrap_or(u32::MAX);
        Largest { memory_mb: whole(memory_mb), disk_mb: whole(self.disk_mb.limits().share) }
    }

    pub(crate) fn take(&self, spec: &Spec) -> Result<(Stake, Promise), CreateError> {
        let wanted_mb = self.possible(spec.memory_mb)?;
        let who = Some(spec.owner.clone());
        let stake = self.stake(&who, spec)?;
        let promise = match spec.again {
            true => self.adopt_promise(&who, spec.memory_mb),
            false => Promise { _permit: self.promised_mb.take(&who, wanted_mb)? },
        };
        Ok((stake, promise))
    }

    /// Checks whether an awake instance could have this much memory, which is `more_mb` more than
    /// it has.
    pub(crate) fn require_memory(
        &self,
        owner: &Owner,
        memory_mb: u32,
        more_mb: u32,
    ) -> Result<(), CreateError> {
        if more_mb == 0 {
            return Ok(());
        }
        self.possible(memory_mb)?;
        drop(self.promised_mb.take(&Some(owner.clone()), more_mb.into())?);
        Ok(())
    }

    /// Returns the memory that is wanted, if this machine could ever give that to one instance.
    fn possible(&self, memory_mb: u32) -> Result<u64, CreateError> {
        let (wanted_mb, most_mb) = (u64::from(memory_mb), self.instance_mb);
        match wanted_mb > most_mb {
            true => Err(CreateError::TooLarge { wanted_mb, most_mb }),
            false => Ok(wanted_mb),
        }
    }

    fn stake(&self, who: &Who, spec: &Spec) -> Result<Stake, Refused> {
        let disks = match amounts(spec.disks()) {
            (0, _) => None,
            (count, mb) => Some([self.disks.take(who, count)?, self.disk_mb.take(who, mb)?]),
        };
        Ok(Stake { _instance: self.instances.take(who, 1)?, _disks: disks })
    }

    /// Counts an instance that an earlier node has made, with the sizes of its disks.
    pub(crate) fn adopt(&self, who: &Who, disks: &[u32]) -> Stake {
        let (count, mb) = amounts(disks.iter().copied());
        let disks =
            (count > 0).then(|| [self.disks.adopt(who, count), self.disk_mb.adopt(who, mb)]);
        Stake { _instance: self.instances.adopt(who, 1), _disks: disks }
    }

    /// Counts the memory of an awake instance, even beyond the total, but only up to its owner's
    /// share: waking is never refused, and an owner who wakes a thousand must not shut others out.
    pub(crate) fn adopt_promise(&self, who: &Who, memory_mb: u32) -> Promise {
        let left_mb = self.promised_mb.limits().share.saturating_sub(self.promised_mb.held_by(who));
        Promise { _permit: self.promised_mb.adopt(who, left_mb.min(memory_mb.into())) }
    }
}

/// Returns how many there are, and their total size.
fn amounts(sizes_mb: impl Iterator<Item = u32>) -> (u64, u64) {
    sizes_mb.fold((0, 0), |(count, mb), size_mb| (count + 1, mb + u64::from(size_mb)))
}
