//! The records: one small file per instance, by which the next node finds it again.
//!
//! A file is made as a whole, and each change adds one line; the last complete line counts.
//! Replacing the file instead would make the kernel write it to disk at once, which takes longer
//! than making an instance's control groups. Nothing is flushed: the kernel keeps what a killed
//! process has written, and when the machine itself stops, the instances are gone too. Then only
//! the name of the file matters, since it may have the content of an earlier instance.

use crate::body_kind::BodyKind;
use crate::names::{Owner, SnapshotName};
use crate::process::Identity;
use crate::settings::Firewall;
use files::FilePool;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use types::Timestamp;
use types::instance::{Exit, InstanceName, VolumeName};

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Record {
    /// The instance; missing in records of earlier releases. A line about another one does not
    /// count: files are used again, and a power cut may bring back what they had.
    #[serde(default)]
    pub(crate) id: Option<InstanceName>,
    /// The machine's boot that the rest is about.
    pub(crate) boot: String,
    /// The slot of the network pool. Stored under the name that earlier releases used.
    #[serde(rename = "seat")]
    pub(crate) slot: u32,
    pub(crate) memory_mb: u32,
    /// `None` in records of nodes that did not know owners.
    #[serde(default)]
    pub(crate) owner: Option<Owner>,
    /// The size of each of its file systems of limited size, in MB.
    #[serde(default)]
    pub(crate) disks: Vec<u32>,
    /// Missing in records of nodes that knew only one kind.
    #[serde(default, rename = "started_by")]
    pub(crate) body: BodyKind,
    /// The layers of its image, lowest first.
    #[serde(default)]
    pub(crate) layers: Vec<PathBuf>,
    /// The snapshot that it started from.
    #[serde(default)]
    pub(crate) snapshot: Option<SnapshotName>,
    /// The volume that keeps what it writes.
    #[serde(default)]
    pub(crate) kept: Option<VolumeName>,
    /// Whether it is frozen only while a snapshot of it is taken.
    #[serde(default)]
    pub(crate) is_held: bool,
    /// Missing in records of nodes without firewalls per instance.
    #[serde(default)]
    pub(crate) firewall: Firewall,
    /// `None` while the instance is being made.
    pub(crate) process: Option<Identity>,
    pub(crate) end: Option<End>,
}

impl Record {
    /// Returns true if the instance's first process is there. `boot` is the machine's current one.
    pub(crate) fn is_alive(&self, boot: &str) -> bool {
        self.boot == boot && self.process.as_ref().is_some_and(|process| process.open().is_some())
    }
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct End {
    pub(crate) at: Timestamp,
    pub(crate) exit: Exit,
}

#[derive(Debug)]
pub(crate) struct Records {
    files: FilePool,
    /// Locked while a record is read and part of it changed.
    changing: Mutex<()>,
}

impl Records {
    pub(crate) fn open(folder: &Path) -> io::Result<Self> {
        let folder = folder.join("instances");
        fs::create_dir_all(&folder)?;
        Ok(Self { files: FilePool::new(folder), changing: Mutex::new(()) })
    }

    /// Makes the file.
    pub(crate) fn put(&self, id: &InstanceName, record: &Record) -> io::Result<()> {
        // Ids have no dots, so temporary files and spares never belong to an instance.
        self.files.put(id.as_str(), &serde_json::to_vec(record)?)
    }

    /// Adds a new version of the record to an existing file.
    pub(crate) fn change(&self, id: &InstanceName, record: &Record) -> io::Result<()> {
        // The line starts with its break, so that it is separate even from one that was cut off.
        let mut line = vec![b'\n'];
        serde_json::to_writer(&mut line, record)?;
        OpenOptions::new().append(true).open(self.path(id))?.write_all(&line)
    }

    /// Records how an instance ended, so that the next node knows it too.
    pub(crate) fn put_end(&self, id: &InstanceName, end: End) -> io::Result<()> {
        let _changing = self.changing.lock();
        self.change(id, &Record { end: Some(end), ..self.of(id)? })
    }

    /// Records that an instance is held for a snapshot, or no longer is. The next node thaws an
    /// instance that is held.
    pub(crate) fn put_held(&self, id: &InstanceName, is_held: bool) -> io::Result<()> {
        let _changing = self.changing.lock();
        self.change(id, &Record { is_held, ..self.of(id)? })
    }

    /// Records a new firewall. Replaces the whole file, because a tenant can change this often, and
    /// lines would pile up.
    pub(crate) fn put_firewall(&self, id: &InstanceName, firewall: &Firewall) -> io::Result<()> {
        let _changing = self.changing.lock();
        self.put(id, &Record { firewall: firewall.clone(), ..self.of(id)? })
    }

    pub(crate) fn of(&self, id: &InstanceName) -> io::Result<Record> {
        Ok(read(&self.path(id), id)?.ok_or(io::ErrorKind::InvalidData)?)
    }

    pub(crate) fn remove(&self, id: &InstanceName) -> io::Result<()> {
        self.files.remove(id.as_str())
    }

    /// Returns all instances that have a file. Removes what else an earlier node has left. Called
    /// before the first file is made.
    pub(crate) fn list(&self) -> io::Result<Vec<InstanceName>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(self.files.folder())? {
            let path = entry?.path();
            let name = path.file_name().and_then(|name| name.to_str());
            match name.and_then(|name| InstanceName::new(name).ok()) {
                Some(id) => found.push(id),
                None => fs::remove_file(&path)?,
            }
        }
        Ok(found)
    }

    fn path(&self, id: &InstanceName) -> PathBuf {
        self.files.path(id.as_str())
    }
}

fn read(file: &Path, id: &InstanceName) -> io::Result<Option<Record>> {
    let is_its = |record: &Record| record.id.as_ref().is_none_or(|of| of == id);
    Ok(fs::read(file)?
        .rsplit(|byte| *byte == b'\n')
        .find_map(|line| serde_json::from_slice(line).ok().filter(is_its))
        // A line that is made from this one must say whose it is.
        .map(|record| Record { id: Some(id.clone()), ..record }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(slot: u32) -> Record {
        Record { boot: "now".into(), slot, memory_mb: 64, ..Record::default() }
    }

    #[test]
    fn the_last_whole_line_counts() {
        let folder = tempfile::tempdir().unwrap();
        let id = InstanceName::new("one").unwrap();
        let records = Records::open(folder.path()).unwrap();
        records.put(&id, &record(1)).unwrap();
        records.change(&id, &record(2)).unwrap();
        let mut file = OpenOptions::new().append(true).open(records.path(&id)).unwrap();
        file.write_all(b"\n{\"boot\":\"no").unwrap();
        let slot = || records.of(&id).unwrap().slot;
        assert_eq!(slot(), 2);
        records.put_end(&id, End { at: Timestamp::from_ms(1), exit: Exit::Code(0) }).unwrap();
        assert_eq!(slot(), 2);
        assert!(records.of(&id).unwrap().end.is_some());
    }

    #[test]
    fn a_line_about_an_earlier_instance_does_not_count() {
        let folder = tempfile::tempdir().unwrap();
        let records = Records::open(folder.path()).unwrap();
        let [earlier, id] = ["one", "two"].map(|id| InstanceName::new(id).unwrap());
        let of = |id: &InstanceName, slot| Record { id: Some(id.clone()), ..record(slot) };
        records.put(&id, &of(&id, 2)).unwrap();
        records.change(&id, &of(&earlier, 1)).unwrap();
        assert_eq!(records.of(&id).unwrap().slot, 2);
        records.put(&id, &of(&earlier, 1)).unwrap();
        assert!(records.of(&id).is_err());
        assert_eq!(records.list().unwrap(), [id], "known by its name");
    }

    #[test]
    fn a_record_of_a_node_without_owners_is_read() {
        let text = r#"{"boot":"b","seat":3,"memory_mb":64,"process":null,"end":null}"#;
        let record: Record = serde_json::from_str(text).unwrap();
        assert_eq!((record.owner, record.disks, record.body), (None, vec![], BodyKind::Container));
    }
}
