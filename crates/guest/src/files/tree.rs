//! Returns a whole tree in one answer.

use super::access::{open_file, refuse};
use super::blocking::{Stop, blocking_until};
use super::entry::{Directory, File, Names, Subdirectory};
use super::glob::Glob;
use super::path::{resolve, text};
use super::read;
use super::walk::{Exclusions, WalkEntry, walk};
use crate::http::{Answer, Error, Request};
use crate::instance::Instance;
use crate::route::PathArgument;
use std::io::Read;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const FILES: usize = 10_000;
const FILES_MAX: usize = 50_000;
const DIRECTORIES_MAX: usize = 50_000;
const BYTES: u64 = 32 << 20;
const BYTES_MAX: u64 = 64 << 20;

struct Wanted {
    content: bool,
    patterns: Vec<Glob>,
    exclusions: Exclusions,
    files_max: usize,
    bytes_max: u64,
}

/// Lists a tree. Without `recursive=true` this is the ordinary listing of a directory, one level
/// deep.
pub(crate) async fn get(
    instance: &Arc<Instance>,
    argument: &PathArgument,
    request: Request,
) -> Result<Answer, Error> {
    if request.query_flag("recursive")? != Some(true) {
        return read::get(instance, argument, request).await;
    }
    let root = resolve(instance, argument);
    let wanted = Wanted::read(&request)?;
    blocking_until(move |stop| Answer::json(&collect(&root, &wanted, stop)?)).await
}

impl Wanted {
    fn read(request: &Request) -> Result<Self, Error> {
        let patterns = Glob::parse_list(&request.query("patterns").unwrap_or_default());
        // By default nothing is left out of a tree.
        let excluded = request.query("excludeDirs").unwrap_or_default();
        let hidden = request.query_flag("excludeHidden")? == Some(true);
        Ok(Self {
            content: request.query_flag("content")? == Some(true),
            patterns: patterns.map_err(|error| Error::BadRequest(error.to_string()))?,
            exclusions: Exclusions::new(Some(&excluded), hidden),
            files_max: request.query_number("maxFiles")?.unwrap_or(FILES).min(FILES_MAX),
            bytes_max: request.query_number("maxBytes")?.unwrap_or(BYTES).min(BYTES_MAX),
        })
    }
}

/// Collects the tree, or fails if it exceeds a limit.
fn collect(root: &Path, wanted: &Wanted, stop: &Stop) -> Result<Directory, Error> {
    let mut tree = Tree { directory: Directory::new(root), bytes: 0, names: Names::read() };
    tree.directory.recursive = Some(true);
    let mut refused = None;
    walk(root, &wanted.exclusions, stop, |found| match tree.add(found, wanted) {
        Ok(()) => ControlFlow::Continue(()),
        Err(error) => {
            refused = Some(error);
            ControlFlow::Break(())
        }
    })
    .map_err(|error| refuse(root, &error))?;
    refused.map_or(Ok(tree.directory), Err)
}

struct Tree {
    directory: Directory,
    bytes: u64,
    names: Names,
}

impl Tree {
    fn add(&mut self, found: WalkEntry<'_>, wanted: &Wanted) -> Result<(), Error> {
        let name = text(found.name);
        if found.kind.is_dir() {
            if self.directory.subdirectories.len() == DIRECTORIES_MAX {
                return Err(Error::Unprocessable(format!(
                    "the tree has more than {DIRECTORIES_MAX} directories"
                )));
            }
            self.directory.subdirectories.push(Subdirectory { path: text(&found.path), name });
        } else if wanted.patterns.is_empty()
            || wanted.patterns.iter().any(|glob| glob.matches(&name))
        {
            self.add_file(found.path, name, wanted)?;
        }
        Ok(())
    }

    fn add_file(&mut self, path: PathBuf, name: String, wanted: &Wanted) -> Result<(), Error> {
        if self.directory.files.len() >= wanted.files_max {
            return Err(Error::Unprocessable(format!(
                "the tree has more than {} files",
                wanted.files_max
            )));
        }
        // It may have been deleted since it was listed.
        let Ok(metadata) = path.symlink_metadata() else { return Ok(()) };
        let mut file = File::new(&path, name, &metadata, &self.names);
        if wanted.content
            && let Ok((source, _)) = open_file(&path)
        {
            let mut bytes = Vec::new();
            let room = wanted.bytes_max - self.bytes;
            source.take(room + 1).read_to_end(&mut bytes).map_err(|error| refuse(&path, &error))?;
            if bytes.len() as u64 > room {
                return Err(Error::Unprocessable(format!(
                    "the tree holds more than {} bytes",
                    wanted.bytes_max
                )));
            }
            self.bytes += bytes.len() as u64;
            file.content = Some(text_of(bytes));
        }
        self.directory.files.push(file);
        Ok(())
    }
}

fn text_of(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}
