//! Translation of words on the command line into API paths.

use super::kinds::{KINDS, Kind, Place, find, unknown};
use crate::error::Error;

/// The object or list that words such as `sandbox box previews main` mean.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) kind: &'static Kind,
    /// Path of the collection, relative to the API's base URL.
    pub(crate) collection: String,
    /// Name of one object, or `None` for the whole list.
    pub(crate) name: Option<String>,
}

impl Target {
    /// Refuses a name that can be none of this kind: an image is named with its type.
    pub(crate) fn check_name(&self, name: &str) -> Result<(), Error> {
        if self.kind.name() != "images" || name.contains('/') {
            return Ok(());
        }
        let message = "write TYPE/NAME, as in `agent/helper`; `holm get images` lists both";
        Err(Error::Usage(message.to_owned()))
    }

    /// Returns the path of one object in the collection.
    pub(crate) fn object(&self, name: &str) -> Result<String, Error> {
        Ok(format!("{}/{}", self.collection, encode_name(self.kind, name)?))
    }
}

/// Resolves words that alternate between kinds and names. The first word may contain several steps,
/// as in `sandboxes/box/previews`.
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
        let kind = find(next).map_err(|_| target.kind.has_none(next))?;
        let kind = below(kind, target.kind);
        let segment = segment_below(kind, target.kind)?;
        target =
            Target { kind, collection: format!("{}/{segment}", target.object(name)?), name: None };
    }
    Ok(target)
}

/// Returns the kind that a word means below another object: `snapshots` below a sandbox means that
/// sandbox's, not the workspace's.
fn below(kind: &'static Kind, above: &'static Kind) -> &'static Kind {
    let of_it = |other: &&Kind| matches!(other.place, Place::Below { of, segment, .. } if segment == kind.name() && of.contains(&above.name()));
    match kind.place {
        Place::Root(_) => KINDS.iter().find(of_it).unwrap_or(kind),
        Place::Below { .. } => kind,
    }
}

fn segment_below(kind: &'static Kind, above: &'static Kind) -> Result<&'static str, Error> {
    match kind.place {
        Place::Below { of, segment, .. } if of.contains(&above.name()) => Ok(segment),
        _ => Err(above.has_none(kind.name())),
    }
}

fn needs_parent(kind: &Kind) -> Error {
    let Place::Below { of, .. } = kind.place else { return unknown(kind.name()) };
    let above = of.first().copied().unwrap_or_default();
    Error::Usage(format!("{} are below {above}: write `{above} NAME {}`", kind.name(), kind.name()))
}

/// Encodes a name as part of a path. Images are named `type/name`, so their slash stays. Parts such
/// as `..` are refused, because URL normalisation would turn the path into that of another object.
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
        check("sandbox box snapshots", "sandboxes/box/snapshots", None);
        check("snapshots", "snapshots", None);
        check("snapshot snap_1", "snapshots", Some("snap_1"));
        check("image agent/mine", "images", Some("agent/mine"));
    }

    #[test]
    fn a_wrong_word_says_what_is_right() {
        let message = |word: &str| resolve(&[word.to_owned()]).unwrap_err().to_string();
        assert!(message("sandbxes").contains("`sandboxes`"));
        assert!(message("previews").contains("sandboxes NAME previews"));
        for wrong in ["sandbox/box/unicorns", "sandbox/box/executions"] {
            assert!(message(wrong).contains("they have previews, schedules"), "{}", message(wrong));
        }
        assert!(message("policy/eu/unicorns").ends_with("policies have no unicorns"));
        let image = resolve(&["image".to_owned(), "helper".to_owned()]).unwrap();
        assert!(image.check_name("helper").unwrap_err().to_string().contains("TYPE/NAME"));
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
