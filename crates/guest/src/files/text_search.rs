//! Searches files for lines with a given text.

use super::access::{open_file, refuse};
use super::blocking::{Stop, blocking_until};
use super::find::{exclusions, results_max};
use super::glob::Glob;
use super::path::{resolve, text};
use super::walk::{Exclusions, walk};
use crate::http::{Answer, Error, Request};
use crate::instance::Instance;
use crate::route::PathArgument;
use regex::{Regex, RegexBuilder};
use serde::Serialize;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const RESULTS: usize = 100;
/// Only this much of a longer line is searched.
const LINE_BYTES_MAX: u64 = 1 << 20;
/// Longest part of a matching line that is shown.
const SHOWN_CHARS_MAX: usize = 2_000;
/// A zero byte within this many first bytes makes a file binary.
const LOOK_BYTES: usize = 8 << 10;

#[derive(Serialize)]
struct Match {
    path: String,
    line: u64,
    column: usize,
    text: String,
}

#[derive(Serialize)]
struct Matches {
    query: String,
    matches: Vec<Match>,
    total: usize,
}

struct Wanted {
    needle: Needle,
    results_max: usize,
    included: Option<Glob>,
    excluded: Option<Glob>,
    exclusions: Exclusions,
}

pub(crate) async fn get(
    instance: &Arc<Instance>,
    argument: &PathArgument,
    request: Request,
) -> Result<Answer, Error> {
    let root = resolve(instance, argument);
    let query = request.query("query").filter(|query| !query.is_empty());
    let query = query.ok_or_else(|| Error::BadRequest("`query` is missing".into()))?;
    let case_sensitive = request.query_flag("caseSensitive")? == Some(true);
    let wanted = Wanted {
        needle: match request.query_flag("regex")? {
            Some(true) => Needle::pattern(&query, case_sensitive)?,
            Some(false) | None => Needle::new(&query, case_sensitive),
        },
        results_max: results_max(&request, RESULTS, RESULTS)?,
        included: glob(&request, "filePattern")?,
        excluded: glob(&request, "excludePattern")?,
        exclusions: exclusions(&request, false)?,
    };
    blocking_until(move |stop| {
        let matches = search(&root, &wanted, stop)?;
        let total = matches.len();
        Answer::json(&Matches { query, matches, total })
    })
    .await
}

fn glob(request: &Request, name: &str) -> Result<Option<Glob>, Error> {
    let pattern = request.query(name).filter(|pattern| !pattern.is_empty());
    let pattern = pattern.map(|pattern| Glob::parse(&pattern)).transpose();
    pattern.map_err(|error| Error::BadRequest(error.to_string()))
}

impl Wanted {
    fn takes(&self, name: &str) -> bool {
        self.included.as_ref().is_none_or(|pattern| pattern.matches(name))
            && !self.excluded.as_ref().is_some_and(|pattern| pattern.matches(name))
    }
}

fn search(root: &Path, wanted: &Wanted, stop: &Stop) -> Result<Vec<Match>, Error> {
    let mut matches = Vec::new();
    walk(root, &wanted.exclusions, stop, |found| {
        if found.kind.is_file() && wanted.takes(&found.name.to_string_lossy()) {
            // A file that cannot be read counts as missing.
            let _ = search_file(found.path, found.relative, wanted, stop, &mut matches);
        }
        if matches.len() < wanted.results_max {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    })
    .map_err(|error| refuse(root, &error))?;
    Ok(matches)
}

fn search_file(
    path: PathBuf,
    relative: &Path,
    wanted: &Wanted,
    stop: &Stop,
    matches: &mut Vec<Match>,
) -> io::Result<()> {
    let mut lines = Lines::new(open_file(&path)?.0)?;
    while let Some(line) = lines.next()? {
        if matches.len() == wanted.results_max || stop.is_asked() {
            return Ok(());
        }
        let line = String::from_utf8_lossy(line);
        if let Some(column) = wanted.needle.column(&line) {
            let shown = line.trim_end_matches(['\n', '\r']).chars().take(SHOWN_CHARS_MAX).collect();
            matches.push(Match { path: text(relative), line: lines.number, column, text: shown });
        }
    }
    Ok(())
}

/// The lines of a text file; a binary file has none.
struct Lines {
    reader: BufReader<File>,
    line: Vec<u8>,
    number: u64,
    binary: bool,
}

impl Lines {
    fn new(file: File) -> io::Result<Self> {
        let mut reader = BufReader::with_capacity(LOOK_BYTES, file);
        let binary = reader.fill_buf()?.contains(&0);
        Ok(Self { reader, line: Vec::new(), number: 0, binary })
    }

    fn next(&mut self) -> io::Result<Option<&[u8]>> {
        self.line.clear();
        if self.binary
            || self.reader.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut self.line)? == 0
        {
            return Ok(None);
        }
        if self.line.last() != Some(&b'\n') {
            self.reader.skip_until(b'\n')?;
        }
        self.number += 1;
        Ok(Some(&self.line))
    }
}

enum Needle {
    Exact(String),
    AnyCase(String),
    Pattern(Regex),
}

impl Needle {
    fn new(query: &str, case_sensitive: bool) -> Self {
        if case_sensitive {
            Self::Exact(query.to_owned())
        } else {
            Self::AnyCase(query.to_lowercase())
        }
    }

    fn pattern(query: &str, case_sensitive: bool) -> Result<Self, Error> {
        let pattern = RegexBuilder::new(query).case_insensitive(!case_sensitive).build();
        pattern
            .map(Self::Pattern)
            .map_err(|error| Error::BadRequest(format!("`query` cannot be read: {error}")))
    }

    /// Returns the column of the first match, in characters counted from one.
    fn column(&self, line: &str) -> Option<usize> {
        let place =
            |line: &str, needle: &str| line.find(needle).map(|at| line[..at].chars().count() + 1);
        match self {
            Self::Exact(needle) => place(line, needle),
            Self::AnyCase(needle) => place(&line.to_lowercase(), needle),
            Self::Pattern(pattern) => pattern
                .find(line.trim_end_matches(['\n', '\r']))
                .map(|found| line[..found.start()].chars().count() + 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_count_characters_from_one() {
        assert_eq!(Needle::new("World", false).column("é, wORLD"), Some(4));
        assert_eq!(Needle::new("World", true).column("é, wORLD"), None);
        assert_eq!(Needle::new("é", true).column("é"), Some(1));
    }

    #[test]
    fn a_long_line_does_not_shift_the_numbers_of_the_next() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("long");
        std::fs::write(&path, format!("{}\nsecond", "x".repeat(3 << 20))).unwrap();
        let mut lines = Lines::new(File::open(path).unwrap()).unwrap();
        assert_eq!(lines.next().unwrap().unwrap().len() as u64, LINE_BYTES_MAX);
        assert_eq!(lines.next().unwrap().unwrap(), b"second");
        assert_eq!(lines.number, 2);
        assert!(lines.next().unwrap().is_none());
    }
}
