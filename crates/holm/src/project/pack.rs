//! Packing of a project into an archive, for the server to build.

use super::folder::{Entry, Kind, Walk, walk};
use super::ignore::Ignore;
use super::zip::{FILES_MAX, Zip};
use crate::error::Error;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

/// Content of an archive.
pub(crate) struct Sources {
    pub(crate) entries: Vec<Entry>,
    pub(crate) left_out: Vec<(PathBuf, &'static str)>,
    /// Extra files, as name and content, that replace files with the same name in the folder.
    pub(crate) added: Vec<(&'static str, Vec<u8>)>,
}

const IGNORE_FILE: &str = ".blaxelignore";
const SECRET_MODE: u32 = 0o600;
const USUAL_MODE: u32 = 0o644;
/// Files with credentials are only made from flags, never taken from a folder in which they happen
/// to be.
pub(crate) const DOCKER_CONFIG: &str = ".docker/config.json";
pub(crate) const BUILD_ENVIRONMENT: &str = ".env.build";

impl Sources {
    /// Reads a folder, except for what is ignored.
    pub(crate) fn read(folder: &Path) -> Result<Self, Error> {
        let file = folder.join(IGNORE_FILE);
        let text = match fs::read_to_string(&file) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Err(source) => {
                return Err(Error::Io { act: format!("read {}", file.display()), source });
            }
        };
        let ignore = Ignore::new(&text);
        let found = walk(folder, &|path, kind| {
            matches!(path, DOCKER_CONFIG | BUILD_ENVIRONMENT)
                || ignore.matches(path, kind == Kind::Folder)
        })?;
        Self::of(folder, found)
    }

    /// Reads everything in a folder, except for one file at its top.
    pub(crate) fn read_all(folder: &Path, without: &str) -> Result<Self, Error> {
        Self::of(folder, walk(folder, &|path, _| path == without)?)
    }

    fn of(folder: &Path, found: Walk) -> Result<Self, Error> {
        if found.entries.len() >= FILES_MAX {
            let message = format!(
                "{} holds more than {FILES_MAX} files; name those to leave out in {IGNORE_FILE}",
                folder.display()
            );
            return Err(Error::Usage(message));
        }
        Ok(Self { entries: found.entries, left_out: found.left_out, added: Vec::new() })
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.added.iter().any(|(added, _)| *added == name)
            || self.entries.iter().any(|entry| entry.path == name && entry.kind == Kind::File)
    }

    pub(crate) fn files(&self) -> usize {
        self.entries.iter().filter(|entry| entry.kind == Kind::File).count() + self.added.len()
    }

    /// Writes the archive to a temporary file without a name, which is deleted when it is closed.
    /// The task yields after each file, so that it can be cancelled.
    pub(crate) async fn pack(&self) -> Result<File, Error> {
        let out = tempfile::tempfile().map_err(Error::io("make a temporary file"))?;
        let mut zip = Zip::new(io::BufWriter::new(out));
        for entry in &self.entries {
            if self.added.iter().any(|(added, _)| *added == entry.path) {
                continue;
            }
            let done = match entry.kind {
                Kind::Folder => zip.add_folder(&entry.path, entry.mode),
                Kind::File => File::open(&entry.full)
                    .and_then(|content| zip.add_file(&entry.path, entry.mode, content)),
            };
            done.map_err(Error::io(format!("pack {}", entry.full.display())))?;
            tokio::task::yield_now().await;
        }
        for (name, content) in &self.added {
            let is_secret = matches!(*name, DOCKER_CONFIG | BUILD_ENVIRONMENT);
            let mode = if is_secret { SECRET_MODE } else { USUAL_MODE };
            let done = zip.add_file(name, mode, content.as_slice());
            done.map_err(Error::io(format!("pack {name}")))?;
        }
        let out = zip.finish().map_err(Error::io("write the archive"))?;
        out.into_inner().map_err(|error| Error::io("write the archive")(error.into_error()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::{Read, Seek};
    use std::os::unix::fs::PermissionsExt;

    fn packed(sources: &Sources) -> File {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(sources.pack()).unwrap()
    }

    /// Returns name, mode and content of each entry in the central directory.
    fn unpack(mut file: File) -> Vec<(String, u32, Vec<u8>)> {
        let mut bytes = Vec::new();
        file.rewind().unwrap();
        file.read_to_end(&mut bytes).unwrap();
        let u16_at = |at: usize| usize::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]));
        let u32_at = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
        let end = bytes.len() - 22;
        assert_eq!(u32_at(end), 0x0605_4b50);
        let mut at = u32_at(end + 16) as usize;
        let mut found = Vec::new();
        for _ in 0..u16_at(end + 10) {
            let (method, crc) = (u16_at(at + 10), u32_at(at + 16));
            let (packed, length) = (u32_at(at + 20) as usize, u16_at(at + 28));
            let name = String::from_utf8(bytes[at + 46..at + 46 + length].to_vec()).unwrap();
            let local = u32_at(at + 42) as usize;
            assert_eq!(bytes[local + 14..local + 26], bytes[at + 16..at + 28], "{name}");
            let begin = local + 30 + length;
            let mut content = Vec::new();
            match method {
                0 => assert_eq!(packed, 0),
                _ => drop(
                    flate2::read::DeflateDecoder::new(&bytes[begin..begin + packed])
                        .read_to_end(&mut content)
                        .unwrap(),
                ),
            }
            let mut sum = flate2::Crc::new();
            sum.update(&content);
            assert_eq!(sum.sum(), crc);
            found.push((name, u32_at(at + 38) >> 16, content));
            at += 46 + length;
        }
        found
    }

    #[test]
    fn an_archive_has_what_is_not_ignored_with_its_permissions() {
        let place = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let file = place.path().join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        };
        for name in ["node_modules/x", ".env", ".docker/config.json", ".env.build", "notes.md"] {
            write(name, "no");
        }
        write(".blaxelignore", "*.md\n!.env.build\n!.docker");
        write("src/run.sh", "echo");
        write("blaxel.toml", "old");
        let script = place.path().join("src/run.sh");
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
        let mut sources = Sources::read(place.path()).unwrap();
        sources.added.push(("blaxel.toml", b"new".to_vec()));
        sources.added.push((BUILD_ENVIRONMENT, b"A=b".to_vec()));
        let found = unpack(packed(&sources));
        let names: Vec<_> = found.iter().map(|(name, ..)| name.as_str()).collect();
        assert_eq!(
            names,
            [".blaxelignore", ".docker/", "src/", "src/run.sh", "blaxel.toml", ".env.build"]
        );
        assert_eq!((found[3].1, found[3].2.as_slice()), (0o100_755, &b"echo"[..]));
        assert_eq!((found[4].2.as_slice(), found[5].1), (&b"new"[..], 0o100_600));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]
        #[test]
        fn every_file_has_its_plain_name_in_the_archive(
            files in proptest::collection::btree_map("[^/\0]{1,20}", proptest::collection::vec(any::<u8>(), 0..99), 0..6),
        ) {
            let place = tempfile::tempdir().unwrap();
            let mut written = Vec::new();
            for (name, content) in files {
                if !matches!(name.as_str(), "." | ".." | ".blaxelignore") && fs::write(place.path().join(&name), &content).is_ok() {
                    written.push((name, content));
                }
            }
            let found = unpack(packed(&Sources::read(place.path()).unwrap()));
            for (name, ..) in &found {
                prop_assert!(!name.starts_with('/') && name.split('/').all(|part| part != ".."));
            }
            let ignore = Ignore::new("");
            let expected: Vec<_> = written.into_iter().filter(|(name, _)| !ignore.matches(name, false)).collect();
            let found: Vec<_> = found.into_iter().map(|(name, _, content)| (name, content)).collect();
            prop_assert_eq!(found, expected);
        }
    }
}
