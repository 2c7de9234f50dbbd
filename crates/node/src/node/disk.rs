//! What there is of the machine's disk, after the start.

use super::Node;
use crate::capacity::Capacity;
use std::io;
use std::sync::atomic::Ordering;

impl Node {
    /// Looks at the disk again. The shares of it grow with what is free now, where the settings do
    /// not say what they are, and never shrink: at the start the disk may have been full.
    pub fn look_at_disk(&self) -> io::Result<()> {
        let (settings, stores) = (&self.shared.settings, &self.shared.stores);
        let capacity = Capacity::of(&settings.limits, &settings.folder)?;
        stores.shares.raise_disk(capacity.disk_mb);
        stores.volumes.raise(capacity.volume_mb)?;
        self.shared.drive_mb.fetch_max(capacity.drive_mb, Ordering::Relaxed);
        Ok(())
    }
}
