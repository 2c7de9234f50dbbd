//! The environment of processes, and its renewal from the metadata document.

use crate::http::{Answer, Error};
use crate::settings::{Settings, User};
use crate::trust::OF_JAVA;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::json;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

const DOCUMENT_BYTES_MAX: u64 = 4 << 20;

#[derive(Default, Deserialize)]
#[serde(default)]
struct Document {
    generation: i64,
    environment: BTreeMap<String, String>,
}

pub(crate) type Variables = BTreeMap<OsString, OsString>;

pub(crate) struct Environment {
    given: Variables,
    from_document: BTreeMap<String, String>,
    /// Variables that point programs to the proxy and to the certificates that it needs.
    of_proxy: BTreeMap<String, String>,
    /// All three combined, later ones taking precedence. Shared by all processes, because many are
    /// remembered.
    all: Arc<Variables>,
}

/// The changes that a renewal made.
#[derive(Debug, PartialEq, Eq)]
struct Renewal {
    applied: usize,
    removed: usize,
}

impl Environment {
    pub(crate) fn new(given: Variables) -> Self {
        let (from_document, of_proxy) = (BTreeMap::new(), BTreeMap::new());
        Self { all: Arc::new(given.clone()), given, from_document, of_proxy }
    }

    pub(crate) fn document(&self) -> BTreeMap<String, String> {
        self.from_document.clone()
    }

    pub(crate) fn set_document(&mut self, from_document: BTreeMap<String, String>) {
        self.from_document = from_document;
        self.put_together();
    }

    pub(crate) fn set_proxy(&mut self, of_proxy: BTreeMap<String, String>) {
        self.of_proxy = of_proxy;
        self.put_together();
    }

    fn put_together(&mut self) {
        let mut all = self.given.clone();
        all.extend(self.from_document.iter().map(|(name, value)| (name.into(), value.into())));
        for (name, value) in &self.of_proxy {
            let mut value = OsString::from(value);
            // All of Java's options are in one variable. The last of two that are equal counts.
            if let Some(own) = all.get(OsStr::new(name)).filter(|_| name == OF_JAVA) {
                value = [own.as_os_str(), OsStr::new(" "), &value].into_iter().collect();
            }
            all.insert(name.into(), value);
        }
        self.all = Arc::new(all);
    }

    pub(crate) fn all(&self) -> Arc<Variables> {
        self.all.clone()
    }

    pub(crate) fn get(&self, name: &str) -> Option<OsString> {
        self.all.get(OsStr::new(name)).cloned()
    }

    /// Applies a new document. Variables that only the previous document had are removed.
    fn renew(&mut self, document: BTreeMap<String, String>) -> Renewal {
        let usable = |name: &String, value: &String| {
            !name.is_empty() && !name.contains(['=', '\0']) && !value.contains('\0')
        };
        let document: BTreeMap<_, _> =
            document.into_iter().filter(|(name, value)| usable(name, value)).collect();
        let removed =
            self.from_document.keys().filter(|name| !document.contains_key(*name)).count();
        let applied = document
            .iter()
            .filter(|(name, value)| self.from_document.get(*name) != Some(*value))
            .count();
        self.set_document(document);
        Renewal { applied, removed }
    }
}

/// Writes the environment to a file for programs that do not inherit it. A failure is only logged,
/// because the environment may be too large for the folder, whose size is limited.
pub(crate) fn write_file(settings: &Settings, variables: &Variables) {
    let Some(path) = &settings.environment_file else { return };
    if let Err(error) = replace_file(path, &pairs(variables), settings.user.as_ref()) {
        let _ = writeln!(io::stderr(), "holm-guest: {} cannot be written: {error}", path.display());
    }
}

/// Encodes names and values, each followed by a zero byte, which neither can contain.
fn pairs(variables: &Variables) -> Vec<u8> {
    variables
        .iter()
        .flat_map(|(name, value)| [name.as_bytes(), b"\0", value.as_bytes(), b"\0"])
        .flatten()
        .copied()
        .collect()
}

/// Replaces the file atomically. Only the user of the processes can read it, because it contains
/// secrets.
fn replace_file(path: &Path, content: &[u8], user: Option<&User>) -> io::Result<()> {
    let fresh = path.with_extension("new");
    let write = || {
        let mut file =
            File::options().write(true).create(true).truncate(true).mode(0o600).open(&fresh)?;
        file.write_all(content)?;
        if let Some(user) = user {
            std::os::unix::fs::fchown(&file, Some(user.uid), Some(user.gid))?;
        }
        fs::rename(&fresh, path)
    };
    write().inspect_err(|_| drop(fs::remove_file(&fresh)))
}

pub(crate) fn reload(
    settings: &Settings,
    environment: &Mutex<Environment>,
) -> Result<Answer, Error> {
    let document = read(&settings.metadata)?;
    let Renewal { applied, removed } = environment.lock().renew(document.environment);
    let variables = environment.lock().all();
    write_file(settings, &variables);
    Answer::json(
        &json!({"generation": document.generation, "applied": applied, "removed": removed}),
    )
}

fn read(path: &Path) -> Result<Document, Error> {
    let file = fs::File::open(path).map_err(|error| match error.kind() {
        ErrorKind::NotFound => Error::NotFound("there is no metadata document".into()),
        _ => Error::Internal(format!("failed to open the metadata document: {error}")),
    })?;
    let mut text = Vec::new();
    let read = file.take(DOCUMENT_BYTES_MAX).read_to_end(&mut text);
    read.map_err(|error| {
        Error::Internal(format!("failed to read the metadata document: {error}"))
    })?;
    // The parser's message could quote a secret.
    serde_json::from_slice(&text)
        .map_err(|_| Error::Internal("the metadata document is not what it should be".into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document(text: &str) -> BTreeMap<String, String> {
        text.split_whitespace()
            .filter_map(|pair| pair.split_once(':'))
            .map(|(a, b)| (a.into(), b.into()))
            .collect()
    }

    #[test]
    fn a_renewal_replaces_what_the_last_one_said_and_uncovers_what_was_given() {
        let mut environment = Environment::new(BTreeMap::from([("A".into(), "given".into())]));
        assert_eq!(environment.renew(document("A:1 B:2 =:x")), Renewal { applied: 2, removed: 0 });
        assert_eq!(environment.renew(document("B:3")), Renewal { applied: 1, removed: 1 });
        assert_eq!(environment.get("A"), Some("given".into()));
        assert_eq!(environment.get("B"), Some("3".into()));
        assert_eq!(environment.all().len(), 2);
    }

    #[test]
    fn the_proxy_wins_over_everything_and_leaves_no_trace() {
        let mut environment = Environment::new(BTreeMap::from([("A".into(), "given".into())]));
        environment.set_proxy(document("A:proxy P:1"));
        environment.renew(document("A:document B:2"));
        assert_eq!(environment.get("A"), Some("proxy".into()));
        environment.set_proxy(BTreeMap::new());
        assert_eq!((environment.get("A"), environment.get("P")), (Some("document".into()), None));
    }

    #[test]
    fn options_for_java_are_added_to_its_own() {
        let own = BTreeMap::from([(OF_JAVA.into(), "-Xmx64m".into())]);
        let mut environment = Environment::new(own);
        for _ in 0..2 {
            environment.set_proxy(document(&format!("{OF_JAVA}:-Da=b")));
            assert_eq!(environment.get(OF_JAVA), Some("-Xmx64m -Da=b".into()));
        }
        environment.set_proxy(BTreeMap::new());
        assert_eq!(environment.get(OF_JAVA), Some("-Xmx64m".into()));
    }
}
