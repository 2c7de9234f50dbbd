//! Requests for a terminal.

use crate::http::{Error, Request};
use crate::instance::Instance;
use std::path::{Path, PathBuf};

const ID_CHARS_MAX: usize = 128;

/// What a caller asks for. Later callers of a session get it as it is.
pub(super) struct Ask {
    pub(super) session: String,
    pub(super) shell: PathBuf,
    pub(super) working_dir: PathBuf,
    pub(super) size: Size,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Size {
    pub(super) columns: u16,
    pub(super) rows: u16,
}

impl Ask {
    pub(super) fn read(instance: &Instance, request: &Request) -> Result<Self, Error> {
        let text = |name: &str| {
            request.query(name).filter(|value| !value.is_empty() && !value.contains('\0'))
        };
        let session = text("sessionId").unwrap_or_else(|| "default".into());
        if session.chars().count() > ID_CHARS_MAX {
            return Err(Error::BadRequest("`sessionId` is too long".into()));
        }
        let working_dir = instance.settings.workdir.join(text("workingDir").unwrap_or_default());
        if !working_dir.is_dir() {
            return Err(Error::Unprocessable(format!(
                "'{}' does not exist",
                working_dir.display()
            )));
        }
        let number = |name: &str, otherwise: u16| -> Result<u16, Error> {
            Ok(request.query_number(name)?.filter(|number| *number > 0).unwrap_or(otherwise))
        };
        let size = Size { columns: number("cols", 80)?, rows: number("rows", 24)? };
        let shell = text("shell").map(PathBuf::from).unwrap_or_else(|| default_shell(instance));
        Ok(Self { session, shell, working_dir, size })
    }
}

fn default_shell(instance: &Instance) -> PathBuf {
    let set = instance.variable("SHELL").filter(|shell| !shell.is_empty()).map(PathBuf::from);
    let found = || {
        ["/bin/zsh", "/usr/bin/zsh", "/bin/bash"]
            .into_iter()
            .find(|shell| Path::new(shell).exists())
    };
    set.or_else(|| found().map(PathBuf::from)).unwrap_or_else(|| "/bin/sh".into())
}
