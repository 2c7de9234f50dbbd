//! Finds entries by name.

use super::access::refuse;
use super::blocking::{Stop, blocking_until};
use super::glob::Glob;
use super::path::{resolve, text};
use super::walk::{Exclusions, WalkEntry, walk};
use crate::http::{Answer, Error, Request};
use crate::instance::Instance;
use crate::route::PathArgument;
use serde::Serialize;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;

const RESULTS: usize = 20;
const RESULTS_MAX: usize = 1_000;
/// For callers that ask for all results.
const RESULTS_OF_ALL_MAX: usize = 100_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    File,
    Directory,
}

#[derive(Serialize)]
struct Match {
    path: String,
    r#type: Kind,
}

#[derive(Serialize)]
struct Matches {
    total: usize,
    matches: Vec<Match>,
}

struct Wanted {
    kind: Kind,
    patterns: Vec<Glob>,
    results_max: usize,
    exclusions: Exclusions,
}

pub(crate) async fn get(
    instance: &Arc<Instance>,
    argument: &PathArgument,
    request: Request,
) -> Result<Answer, Error> {
    let root = resolve(instance, argument);
    let wanted = Wanted::read(&request)?;
    blocking_until(move |stop| Answer::json(&find(root, &wanted, stop)?)).await
}

impl Wanted {
    fn read(request: &Request) -> Result<Self, Error> {
        let kind = match request.query("type").as_deref() {
            None | Some("" | "file") => Kind::File,
            Some("directory") => Kind::Directory,
            Some(other) => {
                return Err(Error::BadRequest(format!(
                    "`{other}` is neither `file` nor `directory`"
                )));
            }
        };
        let patterns = Glob::parse_list(&request.query("patterns").unwrap_or_default());
        let results_max = results_max(request, RESULTS, RESULTS_OF_ALL_MAX)?;
        Ok(Self {
            kind,
            patterns: patterns.map_err(|error| Error::BadRequest(error.to_string()))?,
            results_max,
            exclusions: exclusions(request, true)?,
        })
    }

    fn takes(&self, found: &WalkEntry<'_>) -> bool {
        let kind = if found.kind.is_dir() { Kind::Directory } else { Kind::File };
        let name = found.name.to_string_lossy();
        kind == self.kind
            && (self.patterns.is_empty() || self.patterns.iter().any(|glob| glob.matches(&name)))
    }
}

/// Reads the requested number of results, up to the limit: `usual` if there is none, and `for_zero`
/// for 0.
pub(crate) fn results_max(
    request: &Request,
    usual: usize,
    for_zero: usize,
) -> Result<usize, Error> {
    Ok(match request.query_number::<i64>("maxResults")? {
        Some(0) => for_zero,
        asked => asked.and_then(|asked| asked.try_into().ok()).unwrap_or(usual).min(RESULTS_MAX),
    })
}

pub(crate) fn exclusions(request: &Request, hidden: bool) -> Result<Exclusions, Error> {
    let hidden = request.query_flag("excludeHidden")?.unwrap_or(hidden);
    Ok(Exclusions::new(request.query("excludeDirs").as_deref(), hidden))
}

fn find(root: PathBuf, wanted: &Wanted, stop: &Stop) -> Result<Matches, Error> {
    let mut matches = Vec::new();
    walk(&root, &wanted.exclusions, stop, |found| {
        if wanted.takes(&found) {
            matches.push(Match { path: text(found.relative), r#type: wanted.kind });
        }
        if matches.len() < wanted.results_max {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    })
    .map_err(|error| refuse(&root, &error))?;
    Ok(Matches { total: matches.len(), matches })
}
