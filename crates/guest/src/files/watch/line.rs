//! The lines that a watch sends.

use crate::files::path::text;
use serde::Serialize;
use std::path::Path;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub(crate) enum Op {
    Create,
    Write,
    Remove,
    Rename,
    Chmod,
    /// Events were lost; the reader should read the directory again.
    Overflow,
}

#[derive(Serialize)]
struct Line<'a> {
    op: Op,
    name: String,
    /// Path of the directory that contains the entry.
    path: String,
    error: Option<&'a str>,
}

/// Lines that are still to be sent.
#[derive(Default)]
pub(crate) struct Lines {
    bytes: Vec<u8>,
    ignored: Vec<String>,
}

impl Lines {
    pub(crate) fn new(ignored: Vec<String>) -> Self {
        Self { bytes: Vec::new(), ignored }
    }

    pub(crate) fn add(&mut self, op: Op, path: &Path) {
        let whole = text(path);
        if self.ignored.iter().any(|part| whole.contains(part.as_str())) {
            return;
        }
        let name = path.file_name().map(text).unwrap_or_default();
        self.write(&Line { op, name, path: text(path.parent().unwrap_or(path)), error: None });
    }

    pub(crate) fn overflow(&mut self, directory: &Path, why: &str) {
        self.write(&Line {
            op: Op::Overflow,
            name: String::new(),
            path: text(directory),
            error: Some(why),
        });
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(crate) fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.bytes)
    }

    fn write(&mut self, line: &Line<'_>) {
        // A struct of strings can always be written as JSON.
        if serde_json::to_writer(&mut self.bytes, line).is_ok() {
            self.bytes.push(b'\n');
        }
    }
}
