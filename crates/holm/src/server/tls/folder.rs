//! Certificates that the operator puts into a folder, as `{name}.crt` with `{name}.key`. In file
//! names `_` stands for the `*` of a wildcard.

use super::doubt::Used;
use super::{Certificates, Pair};
use crate::error::Error;
use rustls::sign::CertifiedKey;
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio_util::sync::CancellationToken;
use types::World;
use types::parts::names::is_dns_name;

pub(super) const LOOK_EVERY: Duration = Duration::from_secs(2);
/// Most certificates read from one folder; any others are ignored.
const CERTIFICATES_MAX: usize = 10_000;

pub(crate) struct Folder {
    path: PathBuf,
    /// What each pair looked like when it was last read.
    seen: BTreeMap<String, Prints>,
    given: HashMap<String, Used>,
}

/// What the certificate and key files of a name look like.
#[derive(PartialEq)]
struct Prints {
    /// Name of both files without extension, in the case in which it was written.
    stem: String,
    files: [Option<Print>; 2],
}

/// Modification time and length of a file.
pub(super) type Print = (SystemTime, u64);

impl Folder {
    pub(crate) fn open(path: &Path, certificates: &Certificates) -> Result<Self, Error> {
        let mut folder =
            Self { path: path.to_owned(), seen: BTreeMap::new(), given: HashMap::new() };
        let act = format!("read the folder {} (domains.certificates)", path.display());
        folder.look().map_err(Error::io(act))?;
        certificates.give(folder.certified());
        Ok(folder)
    }

    /// Applies changes in the folder until the server ends.
    pub(crate) async fn follow(
        mut self,
        certificates: Arc<Certificates>,
        world: World,
        ending: CancellationToken,
    ) {
        while ending.run_until_cancelled(tokio::time::sleep(LOOK_EVERY)).await.is_some() {
            let looked = tokio::task::spawn_blocking(move || (self.look(), self)).await;
            let Ok((changed, folder)) = looked else { return };
            self = folder;
            match changed {
                Ok(true) => certificates.give(self.certified()),
                Ok(false) => {}
                Err(error) => tracing::warn!(%error, "the folder of certificates cannot be read"),
            }
            let now = world.now();
            self.given.iter_mut().for_each(|(name, used)| used.tell(name, now));
        }
    }

    fn certified(&self) -> HashMap<String, Arc<CertifiedKey>> {
        let of = |used: &Used| Arc::clone(&used.pair.certified);
        self.given.iter().map(|(name, used)| (name.clone(), of(used))).collect()
    }

    /// Reads what has changed, and returns whether anything did. A new pair that cannot be used
    /// does not replace the one before it.
    fn look(&mut self) -> io::Result<bool> {
        let prints = self.prints()?;
        if prints == self.seen {
            return Ok(false);
        }
        self.given.retain(|name, _| prints.contains_key(name));
        for (name, print) in &prints {
            if self.seen.get(name) == Some(print) {
                continue;
            }
            match Pair::read(&self.file(&print.stem, "crt"), &self.file(&print.stem, "key")) {
                Ok(pair) => {
                    self.given.insert(name.clone(), Used::new(pair));
                }
                Err(error) => tracing::warn!(name, error, "a certificate cannot be used"),
            }
        }
        self.seen = prints;
        Ok(true)
    }

    fn prints(&self) -> io::Result<BTreeMap<String, Prints>> {
        let mut prints = BTreeMap::new();
        for entry in std::fs::read_dir(&self.path)? {
            let file = PathBuf::from(entry?.file_name());
            let (Some(stem), Some("crt")) =
                (file.file_stem().and_then(|stem| stem.to_str()), extension(&file))
            else {
                continue;
            };
            let name = stem.to_lowercase().replacen("_.", "*.", 1);
            if !is_dns_name(name.strip_prefix("*.").unwrap_or(&name))
                || prints.len() == CERTIFICATES_MAX
            {
                tracing::warn!(file = %file.display(), "a certificate is left out");
                continue;
            }
            // If files differ only in case, those in lower case count.
            if prints.get(&name).is_some_and(|known: &Prints| known.stem.as_str() > stem) {
                continue;
            }
            let files = ["crt", "key"].map(|kind| print(&self.file(stem, kind)));
            prints.insert(name, Prints { stem: stem.to_owned(), files });
        }
        Ok(prints)
    }

    fn file(&self, stem: &str, kind: &str) -> PathBuf {
        self.path.join(format!("{stem}.{kind}"))
    }
}

fn extension(file: &Path) -> Option<&str> {
    file.extension().and_then(|extension| extension.to_str())
}

pub(super) fn print(file: &Path) -> Option<Print> {
    let known = std::fs::metadata(file).ok()?;
    Some((known.modified().ok()?, known.len()))
}
