//! Copies files and whole directories, as `cp -r` does.
//!
//! Links are copied as links and never followed. Files appear whole, by a draft next to their
//! place; a copy that fails or whose caller goes away leaves the entries that were complete.

mod content;

use super::access::{open_file, refuse};
use super::blocking::{Stop, blocking_until};
use super::draft::{self, DIRECTORY_MODE, Draft};
use super::entry;
use super::path::{resolve, text};
use crate::http::{Answer, Error, Request};
use crate::instance::Instance;
use crate::route::PathArgument;
use crate::settings::User;
use rustix::fs::{CWD, FileType, Mode};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::fs::{DirBuilder, Metadata, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, lchown};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The bits of a mode that a copy keeps. A copy belongs to somebody else, so the bits that give its
/// owner's rights to others are left out.
const PERMISSIONS: u32 = 0o777;
/// What a directory has while it is filled.
const FILLING_MODE: u32 = 0o700;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Asked {
    source: String,
    destination: String,
    #[serde(default)]
    no_overwrite: bool,
}

#[derive(Serialize)]
struct Copied {
    message: &'static str,
    source: String,
    /// Where the copy is.
    destination: String,
}

pub(crate) async fn post(instance: &Arc<Instance>, mut request: Request) -> Result<Answer, Error> {
    let asked: Asked = request.json().await?;
    let path = |member: &str, path: String| match path.is_empty() {
        true => Err(Error::BadRequest(format!("`{member}` is empty: it must be a path"))),
        false => Ok(resolve(instance, &PathArgument(path.into()))),
    };
    let source = path("source", asked.source)?;
    let destination = path("destination", asked.destination)?;
    let (instance, exclusive) = (instance.clone(), asked.no_overwrite);
    blocking_until(move |stop| {
        let copy = Copy { exclusive, user: instance.settings.user.as_ref(), stop };
        let target = target_of(&source, destination)?;
        copy.run(&source, &target)?;
        let (source, destination) = (text(&source), text(&target));
        Answer::json(&Copied { message: "Files copied successfully", source, destination })
    })
    .await
}

/// Returns where the copy goes: into a directory that exists, otherwise to that very path.
fn target_of(source: &Path, destination: PathBuf) -> Result<PathBuf, Error> {
    if !destination.is_dir() {
        return Ok(destination);
    }
    let name = source.file_name().ok_or_else(|| {
        Error::Unprocessable("the root of the file system cannot be copied".into())
    })?;
    Ok(destination.join(name))
}

struct Copy<'a> {
    /// Whether every entry must be new.
    exclusive: bool,
    user: Option<&'a User>,
    stop: &'a Stop,
}

/// A directory whose entries are being copied.
struct Level {
    from: PathBuf,
    to: PathBuf,
    names: std::vec::IntoIter<OsString>,
    /// What it gets when it is filled, unless it was there before.
    mode: Option<u32>,
}

impl Copy<'_> {
    fn run(&self, source: &Path, target: &Path) -> Result<(), Error> {
        let metadata = source.symlink_metadata().map_err(|error| refuse(source, &error))?;
        if metadata.is_dir() && is_within(target, &metadata) {
            return Err(Error::Unprocessable(format!(
                "{} cannot be copied into itself, to {}",
                source.display(),
                target.display()
            )));
        }
        if let Some(parent) = target.parent() {
            draft::make_directories(parent, DIRECTORY_MODE, self.user)
                .map_err(|error| refuse(parent, &error))?;
        }
        let mut levels: Vec<Level> =
            self.entry(source.into(), target.into(), &metadata)?.into_iter().collect();
        while let Some(level) = levels.last_mut() {
            if self.stop.is_asked() {
                return Err(Error::Unavailable("nobody waits for the copy any more".into()));
            }
            let Some(name) = level.names.next() else {
                level.close()?;
                levels.pop();
                continue;
            };
            let (from, to) = (level.from.join(&name), level.to.join(&name));
            match from.symlink_metadata() {
                Ok(metadata) => levels.extend(self.entry(from, to, &metadata)?),
                // It was deleted since the directory was listed.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(refuse(&from, &error)),
            }
        }
        Ok(())
    }

    /// Copies one entry. Of a directory, the entries are still to be copied.
    fn entry(
        &self,
        from: PathBuf,
        to: PathBuf,
        metadata: &Metadata,
    ) -> Result<Option<Level>, Error> {
        match FileType::from_raw_mode(metadata.mode()) {
            FileType::Directory => return self.directory(from, to, metadata).map(Some),
            FileType::RegularFile => self.file(&from, &to)?,
            FileType::Symlink => {
                let link = from.read_link().map_err(|error| refuse(&from, &error))?;
                draft::write_link(&link, &to, self.exclusive, self.user)?;
            }
            kind @ (FileType::Fifo | FileType::Socket) => self.node(&to, kind, metadata)?,
            _ => {
                let why = "is a device, which is not copied";
                return Err(Error::Unprocessable(format!("{} {why}", from.display())));
            }
        }
        Ok(None)
    }

    fn file(&self, from: &Path, to: &Path) -> Result<(), Error> {
        let (file, metadata) = open_file(from).map_err(|error| refuse(from, &error))?;
        let mode = metadata.mode() & PERMISSIONS;
        let mut draft = match self.exclusive {
            true => Draft::exclusive(to, self.user, mode)?,
            false if to.metadata().is_ok_and(|there| are_same(&there, &metadata)) => {
                let (from, to) = (from.display(), to.display());
                return Err(Error::Unprocessable(format!("{from} and {to} are the same file")));
            }
            false => Draft::open_as(to, self.user, mode)?,
        };
        content::copy(&file, metadata.len(), draft.file(), self.stop)
            .map_err(|error| refuse(to, &error))?;
        draft.finish(None)
    }

    fn directory(&self, from: PathBuf, to: PathBuf, metadata: &Metadata) -> Result<Level, Error> {
        let fail = |error| refuse(&to, &error);
        let mode = match DirBuilder::new().mode(FILLING_MODE).create(&to) {
            Ok(()) => {
                self.give_away(&to).map_err(fail)?;
                Some(metadata.mode() & PERMISSIONS)
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                self.may_be_merged(&to)?;
                None
            }
            Err(error) => return Err(fail(error)),
        };
        let entries = entry::entries(&from).map_err(|error| refuse(&from, &error))?;
        let names = entries.into_iter().map(|(name, _)| name).collect::<Vec<_>>().into_iter();
        Ok(Level { from, to, names, mode })
    }

    fn may_be_merged(&self, to: &Path) -> Result<(), Error> {
        if self.exclusive {
            return Err(draft::exists(to));
        }
        let there = to.symlink_metadata().map_err(|error| refuse(to, &error))?;
        match there.is_dir() {
            true => Ok(()),
            false => Err(Error::Unprocessable(format!(
                "{} is not a directory, so no directory can be copied there",
                to.display()
            ))),
        }
    }

    /// Makes a pipe or a socket of its own, which shares nothing with the source but its name.
    fn node(&self, to: &Path, kind: FileType, metadata: &Metadata) -> Result<(), Error> {
        let mode = Mode::from_raw_mode(metadata.mode() & PERMISSIONS);
        match rustix::fs::mknodat(CWD, to, kind, mode, 0) {
            Err(rustix::io::Errno::EXIST) if self.exclusive => Err(draft::exists(to)),
            Err(error) => Err(refuse(to, &error.into())),
            Ok(()) => self.give_away(to).map_err(|error| refuse(to, &error)),
        }
    }

    fn give_away(&self, to: &Path) -> io::Result<()> {
        self.user.map_or(Ok(()), |user| lchown(to, Some(user.uid), Some(user.gid)))
    }
}

impl Level {
    fn close(&self) -> Result<(), Error> {
        let Some(mode) = self.mode else { return Ok(()) };
        std::fs::set_permissions(&self.to, Permissions::from_mode(mode))
            .map_err(|error| refuse(&self.to, &error))
    }
}

fn are_same(one: &Metadata, other: &Metadata) -> bool {
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

/// Returns whether a place is a directory or within it, whatever links lead there.
fn is_within(place: &Path, directory: &Metadata) -> bool {
    let existing = place.ancestors().find_map(|above| above.canonicalize().ok());
    existing.is_some_and(|existing| {
        existing
            .ancestors()
            .any(|above| above.metadata().is_ok_and(|above| are_same(&above, directory)))
    })
}
