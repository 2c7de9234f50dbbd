//! Reading of YAML documents.

use crate::client::kinds;
use crate::client::target::{Target, resolve};
use crate::error::Error;
use serde::Deserialize;
use serde_json::Value;
use std::fmt;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Larger files are assumed to be a mistake.
const FILE_BYTES_MAX: u64 = 32 << 20;
/// Greatest depth of folders that are read, which also ends loops of symbolic links.
const DEPTH_MAX: usize = 32;

/// The wanted state of one object, and where it was written.
#[derive(Debug)]
pub(crate) struct Document {
    pub(crate) body: Value,
    place: String,
}

impl fmt::Display for Document {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind =
            self.text("/kind").and_then(kinds::find_document).map_or("object", kinds::Kind::name);
        write!(f, "{kind}/{}", self.text("/metadata/name").unwrap_or("(new)"))
    }
}

impl Document {
    fn text(&self, at: &str) -> Option<&str> {
        self.body.pointer(at).and_then(Value::as_str).filter(|text| !text.is_empty())
    }

    /// Returns the file and the line on which it begins.
    pub(crate) fn place(&self) -> &str {
        &self.place
    }

    pub(crate) fn wrong(&self, message: impl Into<String>) -> Error {
        Error::Document { place: self.place.clone(), message: message.into() }
    }

    pub(crate) fn name(&self) -> Result<&str, Error> {
        self.text("/metadata/name").ok_or_else(|| self.wrong("`metadata.name` is missing"))
    }

    /// Returns the collection that the object belongs to. Objects below others name their parents
    /// in their metadata.
    pub(crate) fn target(&self) -> Result<Target, Error> {
        let name = self.text("/kind").ok_or_else(|| self.wrong("`kind` is missing"))?;
        let kind = kinds::find_document(name).ok_or_else(|| {
            let right = match kinds::like(name, documents()) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("known: {}", documents().collect::<Vec<_>>().join(", ")),
            };
            self.wrong(format!("`kind: {name}` cannot be applied; {right}"))
        })?;
        let mut words = Vec::new();
        for (above, member) in above(kind)? {
            let parent = self.text(&format!("/metadata/{member}"));
            let parent = parent.ok_or_else(|| {
                let above = kinds::find(above).map_or(above, kinds::Kind::one);
                self.wrong(format!("`metadata.{member}` is missing: the name of its {above}"))
            })?;
            words.extend([above.to_owned(), parent.to_owned()]);
        }
        words.push(kind.name().to_owned());
        resolve(&words)
    }
}

/// Returns the kinds above a kind, outermost first, with the metadata member that names each.
fn above(kind: &kinds::Kind) -> Result<Vec<(&'static str, &'static str)>, Error> {
    let kinds::Place::Below { of: [parent, ..], named: Some(member), .. } = kind.place else {
        return Ok(Vec::new());
    };
    let mut all = above(kinds::find(parent)?)?;
    all.push((*parent, member));
    Ok(all)
}

fn documents() -> impl Iterator<Item = &'static str> {
    kinds::KINDS.iter().filter_map(|kind| kind.document)
}

/// Reads all documents of the files and folders, in the order of their names.
pub(crate) fn read(paths: &[PathBuf], recursive: bool) -> Result<Vec<Document>, Error> {
    let mut documents = Vec::new();
    for path in paths {
        if path == Path::new("-") {
            let name = "standard input";
            documents.extend(split(name, &read_whole(std::io::stdin(), name)?)?);
        } else {
            read_path(path, recursive, 0, &mut documents)?;
        }
    }
    if documents.is_empty() {
        return Err(Error::Usage(
            "there is no YAML document in what was named; folders below need -R".into(),
        ));
    }
    Ok(documents)
}

/// Reads the documents directly inside a folder; there may be none.
pub(crate) fn read_folder(folder: &Path) -> Result<Vec<Document>, Error> {
    let mut documents = Vec::new();
    read_path(folder, false, 0, &mut documents)?;
    Ok(documents)
}

fn read_path(
    path: &Path,
    recursive: bool,
    depth: usize,
    documents: &mut Vec<Document>,
) -> Result<(), Error> {
    let act = || format!("read {}", path.display());
    let about = fs::metadata(path).map_err(Error::reading(act()))?;
    if about.is_file() {
        let name = path.display().to_string();
        let file = fs::File::open(path).map_err(Error::io(act()))?;
        documents.extend(split(&name, &read_whole(file, &name)?)?);
        return Ok(());
    }
    let listing = fs::read_dir(path).map_err(Error::io(act()))?;
    let mut inside = listing
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<Vec<_>, _>>()
        .map_err(Error::io(act()))?;
    inside.sort();
    for inner in inside {
        let is_yaml =
            inner.extension().is_some_and(|extension| extension == "yaml" || extension == "yml");
        if (inner.is_file() && is_yaml) || (inner.is_dir() && recursive && depth < DEPTH_MAX) {
            read_path(&inner, recursive, depth + 1, documents)?;
        }
    }
    Ok(())
}

/// Reads a text to its end. One that is too long is refused, since its beginning alone may mean
/// something else.
fn read_whole(from: impl Read, name: &str) -> Result<String, Error> {
    let act = || format!("read {name}");
    let mut text = Vec::new();
    from.take(FILE_BYTES_MAX + 1).read_to_end(&mut text).map_err(Error::io(act()))?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(Error::Document {
            place: name.to_owned(),
            message: "is larger than 32 MiB".into(),
        });
    }
    let invalid = |error| std::io::Error::new(std::io::ErrorKind::InvalidData, error);
    String::from_utf8(text).map_err(invalid).map_err(Error::io(act()))
}

/// Splits a text into documents, without empty ones.
pub(crate) fn split(name: &str, text: &str) -> Result<Vec<Document>, Error> {
    let mut documents = Vec::new();
    let first_lines = first_lines(text);
    for (at, part) in serde_norway::Deserializer::from_str(text).enumerate() {
        let body = Value::deserialize(part).map_err(|error| Error::Document {
            place: name.to_owned(),
            message: format!("not YAML that can be applied: {error}"),
        })?;
        let line = first_lines.get(at);
        let place = line.map_or_else(|| name.to_owned(), |line| format!("{name}:{line}"));
        match body {
            Value::Null => {}
            Value::Object(_) => documents.push(Document { body, place }),
            _ => {
                return Err(Error::Document {
                    place,
                    message: "a document must have `kind`, `metadata` and `spec`".into(),
                });
            }
        }
    }
    Ok(documents)
}

/// Returns the number of the line on which each document begins: its first with content, or that
/// of its `---` if it has none.
fn first_lines(text: &str) -> Vec<usize> {
    let mut lines = Vec::new();
    let mut has_content = false;
    for (line, number) in text.lines().zip(1..) {
        let rest = line.strip_prefix("---");
        if let Some(rest) = rest.filter(|rest| rest.is_empty() || rest.starts_with([' ', '\t'])) {
            lines.push(number);
            has_content = !rest.trim().is_empty();
        } else if line.trim().is_empty() || line.trim_start().starts_with(['#', '%']) || has_content
        {
            // It begins nothing.
        } else {
            // Only the first document may do without `---`.
            lines.pop();
            lines.push(number);
            has_content = true;
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[track_caller]
    fn check(text: &str, collection: &str) {
        let documents = split("test", text).unwrap();
        assert_eq!(documents[0].target().unwrap().collection, collection);
    }

    #[test]
    fn documents_find_their_collection() {
        check("kind: Agent\nmetadata: {name: a}", "agents");
        check("kind: IntegrationConnection\nmetadata: {name: a}", "integrations/connections");
        check("kind: Preview\nmetadata: {name: a, resourceName: box}", "sandboxes/box/previews");
        check(
            "kind: PreviewToken\nmetadata: {resourceName: box, previewName: p}",
            "sandboxes/box/previews/p/tokens",
        );
    }

    #[test]
    fn a_wrong_document_names_its_place() {
        let message = |text: &str| {
            split("a.yaml", text).and_then(|all| all[0].target()).unwrap_err().to_string()
        };
        assert!(message("kind: Unicorn").contains("a.yaml:1: `kind: Unicorn`"));
        assert!(message("kind: Sandbx").contains("did you mean `Sandbox`?"));
        assert!(message("kind: Preview\nmetadata: {name: x}").ends_with("the name of its sandbox"));
        let later = |text: &str| {
            split("a.yaml", text).and_then(|all| all[1].target()).unwrap_err().to_string()
        };
        for (line, second) in [
            (2, "--- {kind: Unicorn}"),
            (3, "---\nkind: Unicorn"),
            (5, "---\n# a note\n\nkind: Unicorn"),
            (4, "...\n---\nkind: Unicorn"),
        ] {
            let said = later(&format!("kind: Agent\n{second}"));
            assert!(said.contains(&format!("a.yaml:{line}: `kind")), "{said}");
        }
        assert!(message("kind: Agent\n---\nkind: [\n").contains("at line 4 column 1"));
        assert!(message("kind: Preview\nmetadata: {name: x}").contains("metadata.resourceName"));
        assert!(message("- a list").contains("a.yaml"));
        assert!(message("kind: [").contains("a.yaml"));
    }

    #[test]
    fn empty_documents_are_left_out() {
        assert_eq!(split("x", "---\n---\nkind: Agent\n---\n# nothing\n").unwrap().len(), 1);
    }

    #[test]
    fn a_text_that_is_too_long_is_refused_and_never_cut() {
        let longest = vec![b'#'; usize::try_from(FILE_BYTES_MAX).unwrap()];
        assert_eq!(read_whole(longest.as_slice(), "standard input").unwrap().len(), longest.len());
        for more in ["#", "ä", "\nkind: Agent\n"] {
            let error = read_whole(longest.chain(more.as_bytes()), "standard input").unwrap_err();
            assert_eq!(error.to_string(), "standard input: is larger than 32 MiB");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_split_or_refused(text in ".*") {
            let _ = split("x", &text);
        }

        #[test]
        fn what_is_joined_is_split_again(names in proptest::collection::vec("\\PC{0,20}", 1..6)) {
            let bodies: Vec<_> = names.iter().map(|name| json!({"kind": "Agent", "metadata": {"name": name}})).collect();
            let text: Vec<_> = bodies.iter().map(|body| serde_norway::to_string(body).unwrap()).collect();
            let split: Vec<_> = split("x", &text.join("---\n")).unwrap().into_iter().map(|document| document.body).collect();
            prop_assert_eq!(split, bodies);
            prop_assert_eq!(first_lines(&text.join("---\n")).len(), names.len());
        }
    }
}
