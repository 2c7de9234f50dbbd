//! Kinds of objects as the command line knows them: names, addresses, columns and how each is
//! written.

mod table;

use crate::error::Error;
pub(crate) use table::KINDS;

#[derive(Debug)]
pub(crate) struct Kind {
    /// All accepted names; the first is shown to users.
    pub(crate) names: &'static [&'static str],
    /// Value of `kind` in documents, for kinds that can be applied.
    pub(crate) document: Option<&'static str>,
    pub(crate) place: Place,
    pub(crate) read: Read,
    pub(crate) write: Write,
    pub(crate) columns: &'static [Column],
}

/// Where the collection of a kind lives.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Place {
    Root(&'static str),
    /// Below an object of one of the kinds in `of`.
    Below {
        of: &'static [&'static str],
        segment: &'static str,
        /// Member of the metadata in which documents name the object above.
        named: Option<&'static str>,
    },
}

/// How one object of a kind is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Read {
    /// At an address of its own.
    Alone,
    /// Only in the list of all.
    InList,
}

/// How `holm apply` writes an object of a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Write {
    /// Created if missing, else replaced as a whole.
    Upsert,
    /// Created if missing, else left alone.
    CreateOnly,
    /// Created anew by each document.
    Append,
    /// Not writable by documents.
    Never,
}

/// A column of a table: its heading, and the JSON pointers at which kinds keep the value.
#[derive(Debug)]
pub(crate) struct Column {
    pub(crate) heading: &'static str,
    pub(crate) at: &'static [&'static str],
    pub(crate) form: Form,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Form {
    Text,
    /// A time, shown as its age.
    Age,
    /// Bytes.
    Size,
    /// Number of items in a list.
    Count,
    /// Array of tags: the newest one.
    Tag,
}

impl Kind {
    pub(crate) fn name(&self) -> &'static str {
        self.names.first().copied().unwrap_or_default()
    }

    /// Returns the page size for lists, which is the most that the API allows.
    pub(crate) fn page(&self) -> &'static str {
        match self.name() {
            "executions" | "schedules" | "schedule-executions" => "100",
            _ => "200",
        }
    }
}

pub(crate) fn find(word: &str) -> Result<&'static Kind, Error> {
    let word = word.to_ascii_lowercase();
    KINDS.iter().find(|kind| kind.names.contains(&word.as_str())).ok_or_else(|| unknown(&word))
}

/// Finds the kind that a document's `kind` names.
pub(crate) fn find_document(name: &str) -> Option<&'static Kind> {
    KINDS
        .iter()
        .find(|kind| kind.document.is_some_and(|document| document.eq_ignore_ascii_case(name)))
}

/// Least likeness of a word that is suggested, from 0 to 1.
const LIKENESS_MIN: f64 = 0.85;

pub(super) fn unknown(word: &str) -> Error {
    let all = KINDS.iter().flat_map(|kind| kind.names);
    let nearest = all
        .map(|name| (strsim::jaro_winkler(word, name), name))
        .filter(|(likeness, _)| *likeness >= LIKENESS_MIN)
        .max_by(|(a, _), (b, _)| a.total_cmp(b));
    let meant = nearest.map(|(_, name)| format!("; did you mean `{name}`?")).unwrap_or_default();
    let names: Vec<_> = KINDS.iter().map(Kind::name).collect();
    Error::Usage(format!("there is no kind `{word}`{meant}\nKinds: {}", names.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_means_two_kinds() {
        let mut names: Vec<_> = KINDS.iter().flat_map(|kind| kind.names).collect();
        names.sort_unstable();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]));
    }

    /// Fails for whoever adds a kind to the API and forgets the command line.
    #[test]
    fn every_list_of_the_interface_can_be_shown() {
        let text = include_str!("../../../../../docs/openapi.json");
        let document: serde_json::Value = serde_json::from_str(text).unwrap();
        let lists = document["paths"].as_object().unwrap().iter().filter(|(path, methods)| {
            let is_list =
                methods["get"]["operationId"].as_str().is_some_and(|id| id.starts_with("List"));
            is_list && !NOT_SHOWN.iter().any(|other| path.ends_with(other))
        });
        for (path, _) in lists {
            let words: Vec<_> =
                path.trim_start_matches("/v0").split('/').filter(|word| !word.is_empty()).collect();
            assert!(is_known(&words), "no kind of the command line has the address {path}");
        }
    }

    /// Fails for whoever adds a kind that is read in another way than the table says.
    #[test]
    fn one_object_is_read_where_the_interface_has_it() {
        let text = include_str!("../../../../../docs/openapi.json");
        let document: serde_json::Value = serde_json::from_str(text).unwrap();
        let paths = document["paths"].as_object().unwrap();
        for kind in KINDS {
            let is_its_own = |path: &str| {
                let words: Vec<_> = path.trim_matches('/').split('/').collect();
                let [above @ .., last] = words.as_slice() else { return false };
                // The names of images have two parts.
                let above = match above {
                    [above @ .., _] if kind.name() == "images" => above,
                    above => above,
                };
                let is_below = |segment| above.len() > 2 && above.last() == Some(&segment);
                last.starts_with('{')
                    && match kind.place {
                        Place::Root(path) => above.join("/") == path,
                        Place::Below { segment, .. } => is_below(segment),
                    }
            };
            let alone = paths.iter().any(|(path, it)| it["get"].is_object() && is_its_own(path));
            let expected = if alone { Read::Alone } else { Read::InList };
            assert_eq!(kind.read, expected, "{}", kind.name());
        }
    }

    #[test]
    fn only_what_is_alike_is_suggested() {
        let message = |word: &str| find(word).unwrap_err().to_string();
        assert!(message("sandbxes").contains("did you mean `sandboxes`?"));
        assert!(message("agnet").contains("did you mean `agent`?"));
        for word in ["nonsense", "unicorns", "", "x"] {
            assert!(!message(word).contains("did you mean"), "{}", message(word));
        }
    }

    /// Lists with commands of their own, or that are shown as part of another object.
    const NOT_SHOWN: &[&str] = &[
        "/deliveries",
        "/share",
        "/publicIps",
        "{connectionName}/models",
        "/pending-image-shares",
        "/accounts",
        "/invitations",
        "/api_keys",
        "/quotas",
        "/enums/group-by",
        "/enums/resource-types",
        "/budgets",
        "/usage/models",
    ];

    fn is_known(words: &[&str]) -> bool {
        let last = words[words.len() - 1];
        KINDS.iter().any(|kind| match kind.place {
            Place::Root(path) => words.join("/") == path,
            Place::Below { segment, .. } => words.len() > 2 && last == segment,
        })
    }
}
