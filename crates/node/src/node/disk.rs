//! What there is of the machine's disk, after the start.

use super::Node;
use crate::capacity::{Capacity, free_disk_mb};
use crate::file_system::Format;
use crate::instance::Instance;
use crate::loops::Device;
use rustix::fd::AsFd;
use rustix::fs::fstat;
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use types::instance::Exit;

/// How much of the machine's disk must be free for instances to start anew: reading the journals of
/// their disks writes what is in them.
const ROOM_MB: u64 = 256;

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

    /// Ends the instances whose kept disk has stopped, once there is room on the machine's disk, for
    /// which its journal could not be written. All that they do is answered with "Input/output
    /// error". Their disk goes on when they start anew.
    pub fn end_stopped(&self) -> io::Result<()> {
        let kept = self.kept_disks();
        if kept.is_empty() || free_disk_mb(&self.shared.settings.folder)? < ROOM_MB {
            return Ok(());
        }
        for (file, device) in Device::all()? {
            let Some((instance, format)) = kept.get(&file) else { continue };
            if !has_stopped(&device, *format) {
                continue;
            }
            drop(device);
            tracing::warn!(instance = %instance.id, "it is ended: its disk has stopped, and goes on when it starts anew");
            if let Err(error) = instance.end_as(Exit::DiskStopped) {
                tracing::error!(%error, "an instance whose disk has stopped cannot be ended");
            }
        }
        Ok(())
    }

    /// Returns the instances that keep a disk, by the numbers of its file. Those of which something
    /// cannot be read are left out: they may just be ending.
    fn kept_disks(&self) -> HashMap<(u64, u64), (Arc<Instance>, Format)> {
        let instances: Vec<_> = self.registry.lock().by_id.values().cloned().collect();
        let stores = &self.shared.stores;
        let one = |instance: Arc<Instance>| {
            let kept = stores.records.of(&instance.id).ok()?.kept?;
            let file = File::open(stores.volumes.path(&kept).ok()?).ok()?;
            let stat = fstat(&file).ok()?;
            Some(((stat.st_dev, stat.st_ino), (instance, Format::read(&file).ok()?)))
        };
        instances.into_iter().filter_map(one).collect()
    }
}

fn has_stopped(device: &Device, format: Format) -> bool {
    let mount = device.mount(format.name(), format.options());
    mount.is_ok_and(|mount| format.has_stopped(mount.as_fd()))
}
