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

    /// Returns the word for one object.
    pub(crate) fn one(&self) -> &'static str {
        self.names.get(1).copied().unwrap_or_else(|| self.name())
    }

    /// Returns its name with the short ones, as in `agents (ag)`.
    fn with_short_names(&self) -> String {
        let short = self.names.iter().skip(2).filter(|name| name.len() <= SHORT_MAX);
        let short = short.copied().collect::<Vec<_>>().join(", ");
        if short.is_empty() { self.name().to_owned() } else { format!("{} ({short})", self.name()) }
    }

    /// Returns its name where it stands below another kind.
    fn below(&self) -> &'static str {
        match self.place {
            Place::Below { segment, .. } if is_root(segment) => segment,
            _ => self.name(),
        }
    }

    /// Returns the kinds below this one.
    fn kinds_below(&self) -> Vec<&'static str> {
        let is_below = |kind: &&Kind| matches!(kind.place, Place::Below { of, .. } if of.contains(&self.name()));
        KINDS.iter().filter(is_below).map(Kind::below).collect()
    }

    /// Says that there is nothing of this name below the kind, and what there is.
    pub(super) fn has_none(&self, word: &str) -> Error {
        let below = self.kinds_below();
        let has = if below.is_empty() {
            String::new()
        } else {
            format!("; they have {}", below.join(", "))
        };
        Error::Usage(format!("{} have no {word}{has}", self.name()))
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

fn is_root(word: &str) -> bool {
    find(word).is_ok_and(|kind| matches!(kind.place, Place::Root(_)))
}

/// Finds the kind that a document's `kind` names.
pub(crate) fn find_document(name: &str) -> Option<&'static Kind> {
    KINDS
        .iter()
        .find(|kind| kind.document.is_some_and(|document| document.eq_ignore_ascii_case(name)))
}

/// Longest name of a kind that the help shows as its short one.
const SHORT_MAX: usize = 3;
/// Least likeness of a word that is suggested, from 0 to 1.
const LIKENESS_MIN: f64 = 0.85;

/// Returns the name that is most like a word, if any is.
pub(crate) fn like<'a>(word: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    names
        .map(|name| (strsim::jaro_winkler(word, name), name))
        .filter(|(likeness, _)| *likeness >= LIKENESS_MIN)
        .max_by(|(a, _), (b, _)| a.total_cmp(b))
        .map(|(_, name)| name)
}

pub(super) fn unknown(word: &str) -> Error {
    let all = KINDS.iter().flat_map(|kind| kind.names.iter().copied());
    Error::Usage(match like(word, all) {
        Some(name) => format!(
            "there is no kind `{word}`; did you mean `{name}`? `holm get --help` lists all kinds"
        ),
        None => {
            let names: Vec<_> = KINDS.iter().map(Kind::name).collect();
            format!("there is no kind `{word}`\nKinds: {}", names.join(", "))
        }
    })
}

/// Lists the kinds for the help of commands, those below others after the rest.
pub(crate) fn help() -> String {
    let root = KINDS.iter().filter(|kind| matches!(kind.place, Place::Root(_)));
    let root: Vec<_> = root.map(Kind::with_short_names).collect();
    let mut text = format!("Kinds, with their short names:\n  {}", root.join(", "));
    let mut lines: Vec<(Vec<&str>, Vec<&str>)> = Vec::new();
    for kind in KINDS {
        let below = kind.kinds_below();
        match lines.iter_mut().find(|(_, same)| *same == below) {
            Some((above, _)) => above.push(kind.name()),
            None => lines.push((vec![kind.name()], below)),
        }
    }
    for (above, below) in lines.iter().filter(|(_, below)| !below.is_empty()) {
        text.push_str(&format!("\n  below {}: {}", above.join(", "), below.join(", ")));
    }
    text
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
            let is_shown = !NOT_SHOWN.iter().any(|other| path.ends_with(other));
            is_list && is_shown && !OVER_SANDBOXES.contains(&path.as_str())
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
            let put = paths.iter().any(|(path, it)| it["put"].is_object() && is_its_own(path));
            assert!(kind.write != Write::Upsert || put, "{}", kind.name());
        }
    }

    #[test]
    fn the_help_names_every_kind() {
        let help = help();
        for kind in KINDS {
            assert!(help.contains(kind.below()), "{}", kind.name());
        }
        assert!(help.contains("sandboxes (sbx)"), "{help}");
        assert!(help.contains("below previews: tokens"), "{help}");
        assert!(help.contains("below agents, applications, functions, models: rev"), "{help}");
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

    /// Lists over all sandboxes. The command line has them for one sandbox.
    const OVER_SANDBOXES: &[&str] = &["/schedules", "/schedule-executions"];
    /// Lists with commands of their own, or that are shown as part of another object.
    const NOT_SHOWN: &[&str] = &[
        "/deliveries",
        "/share",
        "/tags",
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
