//! Uploaded sources: an archive whose type is detected from its content, and the settings in it.

use super::Fault;
use super::ignore::{Ignore, Matched};
use super::project::Project;
use super::zip;
use crate::error::Error;
use crate::packing;
use crate::settings::{Devices, Limits, Names, Overlay, Privileges, Rules, Settings};
use crate::unpack::{Tree, is_folder, unpack};
use std::fs::File;
use std::io::{Read, Seek as _};
use std::path::Path;

/// Files that only the build reads; they can never be copied.
const HIDDEN: [&str; 2] = [".env.build", ".docker"];
const DOCUMENT_BYTES_MAX: u64 = 1 << 20;

/// Limits on a folder of sources.
#[derive(Debug, Clone, Copy)]
pub struct SourceLimits {
    pub bytes: u64,
    pub entries: u64,
    /// Unpacked size divided by packed size.
    pub ratio: u64,
}

impl SourceLimits {
    pub(crate) fn of_archive(self) -> Limits {
        Limits {
            layer_bytes_max: self.bytes,
            entries_max: self.entries,
            ratio_max: self.ratio,
            ratio_free_bytes: (32 << 20).min(self.bytes),
            ..Limits::default()
        }
    }
}

/// Unpacks an archive into an empty folder.
pub(crate) fn unpack_archive(
    archive: &Path,
    folder: &Path,
    limits: SourceLimits,
) -> Result<(), Fault> {
    let (file, is_zip) = open_archive(archive)?;
    let limits = limits.of_archive();
    if is_zip {
        return zip::unpack(&file, &Tree::open(folder)?, &limits);
    }
    let rules = Rules {
        devices: Devices::Refuse,
        privileges: Privileges::Drop,
        names: Names::Files,
        owner: Some((0, 0)),
    };
    let settings = Settings { limits, overlay: Overlay::User, rules };
    let tar = packing::unpacked(file, &settings.limits).map_err(Error::from);
    tar.and_then(|tar| unpack(tar, folder, &settings)).map(drop).map_err(as_archive)
}

/// Opens an archive at its beginning, and returns whether it is a zip.
pub(crate) fn open_archive(archive: &Path) -> Result<(File, bool), Fault> {
    let mut file = File::open(archive).map_err(Error::io("open", archive))?;
    let mut start = [0; 4];
    let read = file.read(&mut start).map_err(Error::io("read", archive))?;
    file.rewind().map_err(Error::io("read", archive))?;
    Ok((file, zip::is_zip(&start[..read])))
}

pub(crate) fn as_archive(error: Error) -> Fault {
    match error {
        Error::Malformed { .. } => Fault::Sources(
            "what was uploaded is neither a zip nor a tar archive (tar may be packed with gzip or zstd)"
                .to_owned(),
        ),
        Error::Read(source)
            if matches!(
                source.kind(),
                std::io::ErrorKind::InvalidData
                    | std::io::ErrorKind::InvalidInput
                    | std::io::ErrorKind::UnexpectedEof
                    | std::io::ErrorKind::Other
            ) =>
        {
            Fault::Sources("the archive that was uploaded is damaged".to_owned())
        }
        other => other.into(),
    }
}

/// Reads the files that the build needs, and removes what must not be copied.
pub(super) fn read_project(folder: &Path) -> Result<Project, Fault> {
    let tree = Tree::open(folder)?;
    let text = |name: &str| document(&tree, name);
    let name = ["Dockerfile", "dockerfile"]
        .into_iter()
        .find(|name| tree.look(Path::new(name), true).is_ok_and(|stat| !is_folder(&stat)));
    let dockerfile = name.map(text).transpose()?.flatten();
    let ignore = match name.map(|name| format!("{name}.dockerignore")) {
        Some(own) => text(&own)?.map_or_else(|| text(".dockerignore"), |own| Ok(Some(own)))?,
        None => text(".dockerignore")?,
    };
    let project = Project {
        dockerfile,
        settings: text("blaxel.toml")?,
        secrets: text(".env.build")?,
        registries: text(".docker/config.json")?,
        files: listing(&tree)?,
        package: text("package.json")?,
        requirements: text("requirements.txt")?,
    };
    for name in HIDDEN {
        remove(folder, Path::new(name))?;
    }
    if let Some(ignore) = ignore {
        let rules = Ignore::parse(&ignore).map_err(in_ignore)?;
        leave_out(&tree, folder, Path::new(""), (&rules, &rules.top()))?;
    }
    Ok(project)
}

/// Lists the top of the sources, and the folder `src`, in which a program may be.
fn listing(tree: &Tree) -> Result<Vec<String>, Fault> {
    let text = |name: std::ffi::OsString| name.into_string().ok();
    let mut files: Vec<String> = tree.names(Path::new(""))?.into_iter().filter_map(text).collect();
    if tree.look(Path::new("src"), true).is_ok_and(|stat| is_folder(&stat)) {
        let inside = tree.names(Path::new("src"))?.into_iter().filter_map(text);
        files.extend(inside.map(|name| format!("src/{name}")));
    }
    Ok(files)
}

/// Reads a small text file of the sources if it exists.
fn document(tree: &Tree, name: &str) -> Result<Option<String>, Fault> {
    let Ok(stat) = tree.look(Path::new(name), true) else { return Ok(None) };
    if is_folder(&stat) {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    let file = super::copy::open_file(tree, Path::new(name))?;
    file.take(DOCUMENT_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(Error::from)?;
    if bytes.len() as u64 > DOCUMENT_BYTES_MAX {
        return Err(Fault::Sources(format!("{name} has more than {DOCUMENT_BYTES_MAX} bytes")));
    }
    let text = String::from_utf8(bytes);
    text.map(Some).map_err(|_| Fault::Sources(format!("{name} is not text in UTF-8")))
}

fn in_ignore(why: String) -> Fault {
    Fault::Sources(format!(".dockerignore: {why}"))
}

/// Removes what the rules cover, and returns whether the folder is empty afterwards. The folder is
/// private to the build, and no link is followed.
fn leave_out(
    tree: &Tree,
    folder: &Path,
    path: &Path,
    (rules, above): (&Ignore, &Matched),
) -> Result<bool, Fault> {
    let mut empty = true;
    for name in tree.names(path)? {
        let inside = path.join(&name);
        let stat = tree.look(&inside, false)?;
        let matched = rules.matched(&inside.to_string_lossy(), above).map_err(in_ignore)?;
        let keeps = match (rules.covers(&matched), is_folder(&stat)) {
            (true, true) if rules.has_exceptions() => {
                // The folder stays if something in it is brought back.
                let emptied = leave_out(tree, folder, &inside, (rules, &matched))?;
                if emptied {
                    remove(folder, &inside)?;
                }
                !emptied
            }
            (true, _) => {
                remove(folder, &inside)?;
                false
            }
            (false, true) => {
                leave_out(tree, folder, &inside, (rules, &matched))?;
                true
            }
            (false, false) => true,
        };
        empty &= !keeps;
    }
    Ok(empty)
}

/// Removes a path. It contains no links, because it was listed folder by folder.
fn remove(folder: &Path, path: &Path) -> Result<(), Fault> {
    let tree = Tree::open(folder)?;
    let place = tree.place(path)?;
    Ok(place.remove()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_in_src_is_found() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("src")).unwrap();
        std::fs::write(folder.path().join("src/app.py"), "").unwrap();
        let mut files = read_project(folder.path()).unwrap().files;
        files.sort();
        assert_eq!(files, ["src", "src/app.py"]);
    }
}
