//! Storage for certificates and the account at the authority, readable only by the owner of the
//! data.

use crate::server::tls::Pair;
use files::Readers;
use instant_acme::AccountCredentials;
use serde::{Deserialize, Serialize};
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

const ACCOUNT_FILE: &str = "account.json";
/// What the line begins with that says which authority made a certificate. Readers of PEM skip it.
const MADE_BY: &str = "# ";

pub(super) struct Shelf(PathBuf);

#[derive(Serialize, Deserialize)]
struct Known<C> {
    directory: String,
    credentials: C,
}

impl Shelf {
    pub(super) fn open(folder: &Path) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        Ok(Self(folder.to_owned()))
    }

    /// Returns the file for a name. Names were checked and contain no slashes.
    fn file(&self, name: &str) -> PathBuf {
        self.0.join(format!("{name}.pem"))
    }

    /// Loads a stored certificate, and says whether this authority made it; `None` if there is none
    /// or it is unusable, so that a new one is made. Earlier releases did not note the authority.
    pub(super) fn load(&self, name: &str, directory: &str) -> Option<(Pair, bool)> {
        let text = std::fs::read(self.file(name)).ok()?;
        let pair = Pair::parse(&text, &text)
            .inspect_err(|error| tracing::warn!(name, error, "a certificate is unusable"))
            .ok()?;
        let first = text.split(|byte| *byte == b'\n').next();
        let made_by = first.and_then(|line| line.strip_prefix(MADE_BY.as_bytes()));
        Some((pair, made_by.is_none_or(|made_by| made_by == directory.as_bytes())))
    }

    pub(super) fn keep(
        &self,
        name: &str,
        directory: &str,
        chain: &str,
        key: &str,
    ) -> io::Result<()> {
        let text = format!("{MADE_BY}{directory}\n{}\n{key}", chain.trim_end());
        files::replace(&self.file(name), Readers::Owner, text.as_bytes())
    }

    /// Returns the account at this authority; one at another authority is of no use.
    pub(super) fn account(&self, directory: &str) -> Option<AccountCredentials> {
        let text = std::fs::read(self.0.join(ACCOUNT_FILE)).ok()?;
        let known: Known<AccountCredentials> = serde_json::from_slice(&text).ok()?;
        (known.directory == directory).then_some(known.credentials)
    }

    pub(super) fn keep_account(
        &self,
        directory: &str,
        credentials: &AccountCredentials,
    ) -> io::Result<()> {
        let text = serde_json::to_vec(&Known { directory: directory.to_owned(), credentials })?;
        files::replace(&self.0.join(ACCOUNT_FILE), Readers::Owner, &text)
    }

    pub(super) fn forget_account(&self) -> io::Result<()> {
        std::fs::remove_file(self.0.join(ACCOUNT_FILE))
    }
}
