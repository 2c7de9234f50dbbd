//! Lists keys page by page.

use super::answers::{quoted, xml};
use super::call::{Call, blocking};
use crate::body::Body;
use crate::error::Error;
use crate::folder::{Folder, Found, Object, Position, Walk};
use crate::settings::Settings;
use crate::signature::encode;
use crate::xml::Xml;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::Response;
use types::Timestamp;

struct Asked {
    prefix: String,
    delimiter: String,
    keys_max: usize,
    position: Position,
    encoded: bool,
}

/// An object on a page. It is no longer open: a page with a descriptor for each object would take
/// descriptors away from other requests.
struct Shown {
    key: String,
    etag: String,
    size: u64,
    modified_at: Timestamp,
}

impl Shown {
    fn new(key: &str, object: &Object) -> Self {
        let (etag, size) = (quoted(&object.etag()), object.size());
        Self { key: key.to_owned(), etag, size, modified_at: object.facts.modified_at() }
    }
}

struct Page {
    objects: Vec<Shown>,
    prefixes: Vec<String>,
    /// Where the next page begins, if there is one.
    next: Option<Position>,
}

impl Asked {
    fn read(call: &Call, v2: bool) -> Result<Self, Error> {
        let text = |name: &str| call.query.get(name).unwrap_or_default().to_owned();
        let most = call.settings.keys_per_page_max;
        let keys_max = match call.query.get("max-keys") {
            None | Some("") => most,
            Some(number) => {
                let number: i64 =
                    number.parse().map_err(|_| Error::argument("max-keys is not a number."))?;
                let number = usize::try_from(number);
                number.map_err(|_| Error::argument("max-keys is negative."))?.min(most)
            }
        };
        let encoded = match call.query.get("encoding-type") {
            None | Some("") => false,
            Some("url") => true,
            Some(_) => return Err(Error::argument("encoding-type is url, or not there.")),
        };
        let (prefix, delimiter) = (text("prefix"), text("delimiter"));
        let after = text(if v2 { "start-after" } else { "marker" });
        let position = match call.query.get("continuation-token").filter(|_| v2) {
            Some(token) => {
                let bad = || Error::argument("The continuation token is none of this server's.");
                position_of(token).ok_or_else(bad)?
            }
            None => behind(after, &prefix, &delimiter),
        };
        Ok(Self { prefix, delimiter, keys_max, position, encoded })
    }

    /// Returns the common prefix that a key is shown as, if it has one.
    fn common(&self, key: &str) -> Option<String> {
        common(key, &self.prefix, &self.delimiter)
    }

    fn text(&self, text: &str) -> String {
        if self.encoded { encode(text) } else { text.to_owned() }
    }
}

fn common(key: &str, prefix: &str, delimiter: &str) -> Option<String> {
    if delimiter.is_empty() {
        return None;
    }
    let rest = key.strip_prefix(prefix)?;
    let end = rest.find(delimiter)? + delimiter.len();
    Some(format!("{prefix}{}", rest.get(..end)?))
}

/// Returns the position after a key that a caller names, or after all keys it stands for.
fn behind(key: String, prefix: &str, delimiter: &str) -> Position {
    if key.is_empty() {
        Position::Start
    } else if common(&key, prefix, delimiter).is_some_and(|common| common == key) {
        Position::Past(key)
    } else {
        Position::After(key)
    }
}

fn token_of(position: &Position) -> String {
    let text = match position {
        Position::Start => "s".to_owned(),
        Position::After(key) => format!("a{key}"),
        Position::Past(prefix) => format!("p{prefix}"),
        Position::From(folder) => format!("f{folder}"),
    };
    URL_SAFE_NO_PAD.encode(text)
}

fn position_of(token: &str) -> Option<Position> {
    let text = String::from_utf8(URL_SAFE_NO_PAD.decode(token).ok()?).ok()?;
    let (sort, rest) = text.split_at_checked(1)?;
    match sort {
        "s" => Some(Position::Start),
        "a" => Some(Position::After(rest.to_owned())),
        "p" => Some(Position::Past(rest.to_owned())),
        "f" => Some(Position::From(rest.to_owned())),
        _ => None,
    }
}

/// Writes a position as a marker for lists of version 1, which can only hold keys.
fn marker_of(position: &Position) -> String {
    match position {
        Position::Start => String::new(),
        Position::After(key) | Position::Past(key) => key.clone(),
        // No key is between this and the folder: `.` is the character before the slash.
        Position::From(folder) => {
            format!("{}.\u{10ffff}", folder.strip_suffix('/').unwrap_or(folder))
        }
    }
}

/// Reads at most about as many folders and names as `most` says.
fn look(folder: &Folder, most: (usize, usize), asked: &Asked) -> Result<Page, Error> {
    let mut page = Page { objects: Vec::new(), prefixes: Vec::new(), next: None };
    if asked.keys_max == 0 {
        return Ok(page);
    }
    let mut walk = Walk::new(folder, &asked.prefix, asked.position.clone(), most);
    let more = walk.run(&mut |entry| {
        let full = page.objects.len() + page.prefixes.len() >= asked.keys_max;
        let key = entry.key;
        if full {
            return Ok(Found::Stop);
        }
        if let Some(common) = asked.common(key.as_str()) {
            page.prefixes.push(common.clone());
            return Ok(Found::Past(common));
        }
        // It may have been removed since.
        if let Some(object) = folder.find(&key)? {
            page.objects.push(Shown::new(key.as_str(), &object));
        }
        Ok(Found::Next)
    })?;
    page.next = more.then_some(walk.position);
    Ok(page)
}

pub(super) async fn page(call: Call, bucket: &str, v2: bool) -> Result<Response<Body>, Error> {
    let asked = Asked::read(&call, v2)?;
    let turn = call.heavy().await?;
    let (call, asked, page) = blocking(move || {
        let _turn = turn;
        let Settings { list_folders_max, list_names_max, .. } = *call.settings;
        let page = look(&call.folder, (list_folders_max, list_names_max), &asked)?;
        Ok((call, asked, page))
    })
    .await?;
    let mut answer = Xml::begin("ListBucketResult", true);
    answer.leaf("Name", bucket);
    answer.leaf("Prefix", &asked.text(&asked.prefix));
    if !asked.delimiter.is_empty() {
        answer.leaf("Delimiter", &asked.text(&asked.delimiter));
    }
    answer.leaf("MaxKeys", &asked.keys_max.to_string());
    if asked.encoded {
        answer.leaf("EncodingType", "url");
    }
    answer.leaf("IsTruncated", if page.next.is_some() { "true" } else { "false" });
    if v2 {
        places_v2(&mut answer, &call, &asked, &page);
    } else {
        answer.leaf("Marker", &asked.text(call.query.get("marker").unwrap_or_default()));
        if let Some(next) = &page.next {
            answer.leaf("NextMarker", &asked.text(&marker_of(next)));
        }
    }
    let with_owner = !v2 || call.query.get("fetch-owner") == Some("true");
    for Shown { key, etag, size, modified_at } in &page.objects {
        answer.open("Contents");
        answer.leaf("Key", &asked.text(key));
        answer.leaf("LastModified", &modified_at.to_string());
        answer.leaf("ETag", etag);
        answer.leaf("Size", &size.to_string());
        answer.leaf("StorageClass", "STANDARD");
        if with_owner {
            answer.open("Owner");
            answer.leaf("ID", &call.key_id);
            answer.close();
        }
        answer.close();
    }
    for prefix in &page.prefixes {
        answer.open("CommonPrefixes");
        answer.leaf("Prefix", &asked.text(prefix));
        answer.close();
    }
    Ok(xml(answer))
}

fn places_v2(answer: &mut Xml, call: &Call, asked: &Asked, page: &Page) {
    answer.leaf("KeyCount", &(page.objects.len() + page.prefixes.len()).to_string());
    if let Some(token) = call.query.get("continuation-token") {
        answer.leaf("ContinuationToken", token);
    }
    if let Some(next) = &page.next {
        answer.leaf("NextContinuationToken", &token_of(next));
    }
    if let Some(after) = call.query.get("start-after") {
        answer.leaf("StartAfter", &asked.text(after));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::{Bucket, Owner};
    use crate::folder::Locks;
    use proptest::prelude::*;
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;
    use std::sync::Arc;
    use types::World;

    fn folder(path: &Path) -> Folder {
        let files: Arc<rustix::fd::OwnedFd> = Arc::new(fs::File::open(path).unwrap().into());
        let owner = Owner { user: 0, group: 0 };
        let bucket = Bucket { id: "bucket".to_owned(), files, owner, may_write: false };
        let world = World::new(|| Timestamp::from_ms(0), |bytes| bytes.fill(0));
        Folder::new(bucket, &Locks::default(), world, Arc::new(()))
    }

    /// Returns what S3 would list for these keys, each once and in order.
    fn expected(keys: &BTreeSet<String>, prefix: &str, delimiter: &str) -> BTreeSet<String> {
        let with_prefix = keys.iter().filter(|key| key.starts_with(prefix));
        with_prefix
            .map(|key| common(key, prefix, delimiter).unwrap_or_else(|| key.clone()))
            .collect()
    }

    fn all_pages(
        folder: &Folder,
        (prefix, delimiter): (&str, &str),
        (keys_max, most): (usize, (usize, usize)),
        v2: bool,
    ) -> Vec<String> {
        let (mut all, mut position) = (Vec::new(), Position::Start);
        loop {
            let (prefix, delimiter) = (prefix.to_owned(), delimiter.to_owned());
            let asked = Asked { prefix, delimiter, keys_max, position, encoded: false };
            let page = look(folder, most, &asked).unwrap();
            let mut shown: Vec<String> = page.objects.into_iter().map(|shown| shown.key).collect();
            shown.extend(page.prefixes);
            assert!(shown.len() <= keys_max);
            shown.sort();
            all.extend(shown);
            let Some(next) = page.next else { return all };
            position = if v2 {
                assert_eq!(position_of(&token_of(&next)), Some(next.clone()));
                next
            } else {
                behind(marker_of(&next), &asked.prefix, &asked.delimiter)
            };
        }
    }

    /// Each test runs in its own process, so nothing else opens descriptors.
    #[test]
    fn a_page_holds_no_descriptors_of_its_objects() {
        let root = tempfile::tempdir().unwrap();
        for number in 0..200 {
            fs::write(root.path().join(number.to_string()), "x").unwrap();
        }
        let folder = folder(root.path());
        let open = || fs::read_dir("/proc/self/fd").unwrap().count();
        let before = open();
        let (prefix, delimiter, position) = (String::new(), String::new(), Position::Start);
        let asked = Asked { prefix, delimiter, keys_max: 1000, position, encoded: false };
        let page = look(&folder, (10, 100_000), &asked).unwrap();
        assert_eq!((page.objects.len(), open()), (200, before));
    }

    #[test]
    fn a_page_of_many_prefixes_does_not_read_its_folder_for_each() {
        let root = tempfile::tempdir().unwrap();
        for number in 0..300 {
            fs::write(root.path().join(format!("{}-{}", number / 3, number % 3)), "").unwrap();
        }
        let folder = folder(root.path());
        let (prefix, delimiter, position) = (String::new(), "-".to_owned(), Position::Start);
        let asked = Asked { prefix, delimiter, keys_max: 1000, position, encoded: false };
        let page = look(&folder, (10, 600), &asked).unwrap();
        assert!((1..10).contains(&page.prefixes.len()), "{:?}", page.prefixes);
        assert!(page.next.is_some());
        assert_eq!(all_pages(&folder, ("", "-"), (1000, (10, 600)), true).len(), 100);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(60))]
        #[test]
        fn the_pages_of_a_list_have_all_keys_in_order(
            names in prop::collection::btree_set("[ab.!/é]{1,8}", 0..25),
            prefix in "[ab./]{0,3}",
            delimiter in prop::sample::select(vec!["", "/", "a", "./"]),
            keys_max in 1..6_usize,
            folders_max in 9..14_usize,
            names_max in 0..40_usize,
        ) {
            let root = tempfile::tempdir().unwrap();
            let mut keys = BTreeSet::new();
            for name in names {
                let Ok(key) = crate::key::Key::new(&name) else { continue };
                let path = root.path().join(key.path());
                if key.is_folder() {
                    // Folders that a sandbox made are not objects.
                    let _ = fs::create_dir_all(path);
                } else if fs::create_dir_all(path.parent().unwrap()).is_ok()
                    && !path.is_dir() && fs::write(&path, "x").is_ok()
                {
                    keys.insert(name);
                }
            }
            let _ = std::os::unix::fs::symlink("/", root.path().join("link"));
            let folder = folder(root.path());
            let expect = expected(&keys, &prefix, delimiter);
            for v2 in [true, false] {
                let most = (folders_max, names_max);
                let all = all_pages(&folder, (&prefix, delimiter), (keys_max, most), v2);
                prop_assert_eq!(&all, &expect.iter().cloned().collect::<Vec<_>>());
            }
        }
    }
}
