//! One small file per instance, by which the next node finds it again.
//!
//! A file is replaced as a whole, but not forced onto the disk: the kernel keeps what a killed process has written, and when
//! the machine itself stops, the instances are gone too. Then the name of the file is all that is needed of it.

use crate::process::Identity;
use crate::spec::Id;
use crate::state::Exit;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use types::Timestamp;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Record {
    /// The start of the machine that the rest is about.
    pub(crate) boot: String,
    pub(crate) seat: u32,
    pub(crate) memory_mb: u32,
    /// Absent while the instance is being made.
    pub(crate) process: Option<Identity>,
    pub(crate) end: Option<End>,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct End {
    pub(crate) at: Timestamp,
    pub(crate) exit: Exit,
}

#[derive(Debug)]
pub(crate) struct Records {
    folder: PathBuf,
}

impl Records {
    pub(crate) fn open(folder: &Path) -> io::Result<Self> {
        let folder = folder.join("instances");
        fs::create_dir_all(&folder)?;
        Ok(Self { folder })
    }

    pub(crate) fn put(&self, id: &Id, record: &Record) -> io::Result<()> {
        // No id has a dot, so this is no instance's file.
        let fresh = self.folder.join(format!("{id}.new"));
        fs::write(&fresh, serde_json::to_vec(record)?)?;
        fs::rename(fresh, self.path(id))
    }

    /// Keeps how an instance ended, so that the next node still knows.
    pub(crate) fn put_end(&self, id: &Id, end: End) -> io::Result<()> {
        let mut record: Record = serde_json::from_slice(&fs::read(self.path(id))?)?;
        record.end = Some(end);
        self.put(id, &record)
    }

    pub(crate) fn remove(&self, id: &Id) -> io::Result<()> {
        match fs::remove_file(self.path(id)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// All instances that have a file, with what can be read of it.
    pub(crate) fn list(&self) -> io::Result<Vec<(Id, Option<Record>)>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            let path = entry?.path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if let Ok(id) = Id::new(name) {
                let record = fs::read(&path).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
                found.push((id, record));
            } else {
                fs::remove_file(&path)?;
            }
        }
        Ok(found)
    }

    fn path(&self, id: &Id) -> PathBuf {
        self.folder.join(id.as_str())
    }
}
