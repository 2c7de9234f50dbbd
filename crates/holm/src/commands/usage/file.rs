//! The file that an export writes: its format, and its name until it is whole.

use crate::error::Error;
use std::path::{Path, PathBuf};

/// Format of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Form {
    Csv,
    Parquet,
}

/// Returns the given format, or that of the file's name.
pub(super) fn form_of(said: Option<Form>, file: &Path) -> Result<Form, Error> {
    let ending = file.extension().and_then(|ending| ending.to_str());
    match (said, ending) {
        (Some(form), _) => Ok(form),
        (None, Some("csv")) => Ok(Form::Csv),
        (None, Some("parquet")) => Ok(Form::Parquet),
        _ => Err(Error::Usage(
            "say which form the file has: --format csv or --format parquet".into(),
        )),
    }
}

/// Returns the name of the file while it is written, if there is no such file yet.
pub(super) fn part_of(file: &Path) -> Result<PathBuf, Error> {
    if file.exists() {
        return Err(Error::Taken(format!("{} exists already: name a new file", file.display())));
    }
    let mut name = file.file_name().unwrap_or_default().to_owned();
    name.push(".part");
    Ok(file.with_file_name(name))
}
