//! What the command line knows of each kind: its names, its address, its columns and how it is
//! written.

mod table;

use crate::error::Error;
pub(crate) use table::KINDS;

#[derive(Debug)]
pub(crate) struct Kind {
    /// All names that are understood; the first is shown.
    pub(crate) names: &'static [&'static str],
    /// `kind` in documents, for the kinds that can be applied.
    pub(crate) document: Option<&'static str>,
    pub(crate) place: Place,
    pub(crate) write: Write,
    pub(crate) columns: &'static [Column],
}

/// Where the collection of a kind lives.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Place {
    Root(&'static str),
    /// Below an object of one of the kinds `of`.
    Below {
        of: &'static [&'static str],
        segment: &'static str,
    },
}

/// How `holm apply` writes an object of a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Write {
    /// Made when missing, else replaced as a whole.
    Upsert,
    /// Made when missing, else left alone.
    CreateOnly,
    /// Each document makes another one.
    Append,
    /// Not by documents.
    Never,
}

/// A column of a table: its heading, and the places where kinds keep the value.
#[derive(Debug)]
pub(crate) struct Column {
    pub(crate) heading: &'static str,
    pub(crate) at: &'static [&'static str],
    pub(crate) form: Form,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Form {
    Text,
    /// A time, shown as how long ago.
    Age,
    /// Bytes.
    Size,
    /// How many items a list has.
    Count,
    /// An array of tables with tags: the newest tag.
    Tag,
}

impl Kind {
    pub(crate) fn name(&self) -> &'static str {
        self.names.first().copied().unwrap_or_default()
    }

    /// How many objects a list asks for at once: the most that the interface allows.
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

/// The kind of a document.
pub(crate) fn find_document(name: &str) -> Option<&'static Kind> {
    KINDS
        .iter()
        .find(|kind| kind.document.is_some_and(|document| document.eq_ignore_ascii_case(name)))
}

fn unknown(word: &str) -> Error {
    let all = KINDS.iter().flat_map(|kind| kind.names);
    let nearest =
        all.max_by(|a, b| strsim::jaro_winkler(word, a).total_cmp(&strsim::jaro_winkler(word, b)));
    let names: Vec<_> = KINDS.iter().map(Kind::name).collect();
    Error::Usage(format!(
        "there is no kind `{word}`; did you mean `{}`?\nKinds: {}",
        nearest.copied().unwrap_or_default(),
        names.join(", ")
    ))
}

/// What words such as `sandbox box previews main` point at.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) kind: &'static Kind,
    /// Path of the collection, below the interface's base.
    pub(crate) collection: String,
    /// One object of it, or all.
    pub(crate) name: Option<String>,
}

impl Target {
    /// Path of one object of the collection.
    pub(crate) fn object(&self, name: &str) -> Result<String, Error> {
        Ok(format!("{}/{}", self.collection, encode_name(self.kind, name)?))
    }
}

/// Follows kinds and names alternately. The first word may also hold several steps:
/// `sandboxes/box/previews`.
pub(crate) fn resolve(words: &[String]) -> Result<Target, Error> {
    let (first, rest) = words
        .split_first()
        .ok_or_else(|| Error::Usage("name a kind, such as `sandboxes`".into()))?;
    let mut steps =
        first.split('/').filter(|step| !step.is_empty()).chain(rest.iter().map(String::as_str));
    let kind = find(steps.next().unwrap_or_default())?;
    let Place::Root(path) = kind.place else { return Err(needs_parent(kind)) };
    let mut target = Target { kind, collection: path.to_owned(), name: None };
    while let Some(name) = steps.next() {
        let Some(next) = steps.next() else {
            target.name = Some(name.to_owned());
            break;
        };
        let kind = find(next)?;
        let segment = segment_below(kind, target.kind)?;
        target =
            Target { kind, collection: format!("{}/{segment}", target.object(name)?), name: None };
    }
    Ok(target)
}

fn segment_below(kind: &'static Kind, above: &'static Kind) -> Result<&'static str, Error> {
    match kind.place {
        Place::Below { of, segment } if of.contains(&above.name()) => Ok(segment),
        _ => Err(Error::Usage(format!("{} have no {}", above.name(), kind.name()))),
    }
}

fn needs_parent(kind: &Kind) -> Error {
    let Place::Below { of, .. } = kind.place else { return unknown(kind.name()) };
    let above = of.first().copied().unwrap_or_default();
    Error::Usage(format!("{} are below {above}: write `{above} NAME {}`", kind.name(), kind.name()))
}

/// A name as a part of a path. Images are named `type/name`, so their slash stays. Parts such as
/// `..` would name another object once the address is put in order, so they are refused.
fn encode_name(kind: &Kind, name: &str) -> Result<String, Error> {
    if name.split('/').any(|part| matches!(part, "" | "." | "..")) {
        return Err(Error::Usage(format!("`{name}` cannot be a name")));
    }
    let keeps_slash = kind.name() == "images";
    let mut encoded = String::with_capacity(name.len());
    for byte in name.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' | b':' | b'@' => {
                encoded.push(char::from(byte))
            }
            b'/' if keeps_slash => encoded.push('/'),
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    Ok(encoded)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn check(words: &str, collection: &str, name: Option<&str>) {
        let words: Vec<_> = words.split(' ').map(str::to_owned).collect();
        let target = resolve(&words).unwrap();
        assert_eq!((target.collection.as_str(), target.name.as_deref()), (collection, name));
    }

    #[test]
    fn words_lead_to_paths() {
        check("sbx", "sandboxes", None);
        check("ic slack", "integrations/connections", Some("slack"));
        check("sandbox box previews", "sandboxes/box/previews", None);
        check("sandbox box preview main tokens", "sandboxes/box/previews/main/tokens", None);
        check("sandboxes/box/previews main", "sandboxes/box/previews", Some("main"));
        check("job nightly executions", "jobs/nightly/executions", None);
        check("job nightly executions one", "jobs/nightly/executions", Some("one"));
        check("job nightly executions one tasks", "jobs/nightly/executions/one/tasks", None);
        check("image agent/mine", "images", Some("agent/mine"));
    }

    #[test]
    fn a_wrong_word_says_what_is_right() {
        let message = |word: &str| resolve(&[word.to_owned()]).unwrap_err().to_string();
        assert!(message("sandbxes").contains("`sandboxes`"));
        assert!(message("previews").contains("sandboxes NAME previews"));
    }

    #[test]
    fn no_name_means_two_kinds() {
        let mut names: Vec<_> = KINDS.iter().flat_map(|kind| kind.names).collect();
        names.sort_unstable();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]));
    }

    /// Whoever adds a kind to the interface gets to know here that the command line lacks it.
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

    /// Lists that have commands of their own, or that belong to an object as its members do.
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
    ];

    fn is_known(words: &[&str]) -> bool {
        let last = words[words.len() - 1];
        KINDS.iter().any(|kind| match kind.place {
            Place::Root(path) => words.join("/") == path,
            Place::Below { segment, .. } => words.len() > 2 && last == segment,
        })
    }

    proptest! {
        #[test]
        fn any_words_are_followed_or_refused(words in proptest::collection::vec(".{0,12}", 0..6)) {
            let _ = resolve(&words);
        }

        #[test]
        fn a_name_cannot_leave_its_place(name in ".{1,20}") {
            if let Ok(encoded) = encode_name(&KINDS[0], &name) {
                prop_assert!(!encoded.contains(['/', '?', '#', ' ']) && encoded != "..");
            }
        }
    }
}
