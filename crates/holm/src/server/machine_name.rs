//! The name of this machine, by which a server finds what its earlier runs left here.

use crate::error::Error;
use files::Readers;
use std::io::ErrorKind;
use std::path::Path;
use types::World;

/// Folder of what the machine keeps, whose parts bear its name.
pub(super) const NODE_FOLDER: &str = "node";
/// File with the name, made at the first start.
const FILE: &str = "machine";
const CHARACTERS: usize = 8;
/// Where the control groups are that are named after machines: here, or in trees below.
const CONTROL_GROUPS: &str = "/sys/fs/cgroup";

/// Returns the name of this machine. It is made once and kept with the data.
pub(super) fn read(data: &Path, world: &World) -> Result<String, Error> {
    let file = data.join(FILE);
    match std::fs::read_to_string(&file) {
        Ok(name) if !name.trim().is_empty() => Ok(name.trim().to_owned()),
        Ok(_) => Err(lost(data, "is empty")),
        // Another name would find nothing again of what bears the old one, and hide that name.
        Err(error) if error.kind() == ErrorKind::NotFound && data.join(NODE_FOLDER).exists() => {
            Err(lost(data, "is missing"))
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let name = world.random_text(CHARACTERS);
            // Written before anything is named after it, since the next start uses it to find what
            // is left.
            write(data, &name)?;
            Ok(name)
        }
        Err(error) => Err(Error::io(format!("read {}", file.display()))(error)),
    }
}

/// Returns the name if it was made, else one for what is only tried.
pub(crate) fn find(data: &Path) -> String {
    let name = std::fs::read_to_string(data.join(FILE)).unwrap_or_default();
    if name.trim().is_empty() { "doctor".to_owned() } else { name.trim().to_owned() }
}

/// Returns the name of the node of a machine.
pub(crate) fn of_node(machine: &str) -> String {
    format!("holm-{machine}")
}

/// Returns whether a data folder has a name.
pub(crate) fn is_given(data: &Path) -> bool {
    data.join(FILE).exists()
}

pub(crate) fn write(data: &Path, name: &str) -> Result<(), Error> {
    let file = data.join(FILE);
    files::replace(&file, Readers::Anyone, name.as_bytes())
        .map_err(Error::io(format!("write {}", file.display())))
}

/// Chooses the machine whose place a new one takes, out of those that a restored database knows:
/// rows name machines, so only a server of the same name runs again what a lost one ran. The error
/// says what to do.
pub(crate) fn choose(known: &[String], wanted: Option<&str>) -> Result<Option<String>, String> {
    match (wanted, known) {
        (None, []) => Ok(None),
        (None, [only]) => Ok(Some(only.clone())),
        (None, [_, ..]) => Err(format!(
            "the backup knows several machines: choose the one whose place this one takes with \
             `--machine NAME`. They are, those seen last first: {}",
            known.join(", ")
        )),
        (Some(wanted), _) if known.iter().any(|name| name == wanted) => Ok(Some(wanted.to_owned())),
        (Some(wanted), _) => Err(format!(
            "the backup knows no machine `{wanted}`; its machines, those seen last first: {}",
            known.join(", ")
        )),
    }
}

/// Returns whether a server of this name runs on this machine, or something that it started.
pub(crate) fn is_in_use(name: &str) -> bool {
    let group = format!("holm-{name}");
    let root = Path::new(CONTROL_GROUPS);
    let trees = std::fs::read_dir(root).into_iter().flatten().filter_map(Result::ok);
    root.join(&group).exists()
        || trees.map(|tree| tree.path()).any(|tree| tree.join(&group).exists())
}

fn lost(data: &Path, how: &str) -> Error {
    let (file, node) = (data.join(FILE).display().to_string(), data.join(NODE_FOLDER));
    let message = format!(
        "{file} {how}. It has the name of this machine, without which the server finds neither the \
         instances that may still run here nor the volumes and snapshots in {node}\n  \
         put the file back from a copy of the data folder, or write the name into it: the database \
         has those of all its machines (SELECT DISTINCT machine FROM usage_proofs), and the control \
         groups of what runs are named after it (find /sys/fs/cgroup -name 'holm-*': the name is \
         what follows `holm-`)",
        node = node.display(),
    );
    Error::Start { act: "tell which machine this is".to_owned(), message }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_name_is_made_once_and_a_lost_one_is_not_replaced() {
        let (data, world) = (tempfile::tempdir().unwrap(), crate::world::system());
        let name = read(data.path(), &world).unwrap();
        fs::create_dir(data.path().join(NODE_FOLDER)).unwrap();
        assert_eq!(read(data.path(), &world).unwrap(), name);
        let file = data.path().join(FILE);
        fs::write(&file, "\n").unwrap();
        let emptied = read(data.path(), &world).unwrap_err().to_string();
        fs::remove_file(&file).unwrap();
        let removed = read(data.path(), &world).unwrap_err().to_string();
        assert!(!file.exists(), "a new name hides the old one");
        for (error, how) in [(emptied, "is empty"), (removed, "is missing")] {
            assert!(error.contains(how) && error.contains("usage_proofs"), "{error}");
        }
        fs::write(&file, format!("{name}\n")).unwrap();
        assert_eq!(read(data.path(), &world).unwrap(), name);
    }

    #[test]
    fn a_machine_of_several_is_chosen_by_its_name() {
        let [one, two] = ["one", "two"].map(str::to_owned);
        let both = [two.clone(), one.clone()];
        assert_eq!(choose(&[], None), Ok(None));
        assert_eq!(choose(std::slice::from_ref(&one), None), Ok(Some(one.clone())));
        assert_eq!(choose(&both, Some("two")), Ok(Some(two)));
        for (known, wanted) in
            [(&both[..], None), (&both[..], Some("three")), (&[][..], Some("one"))]
        {
            let told = choose(known, wanted).unwrap_err();
            assert!(known.iter().all(|name| told.contains(name.as_str())), "{told}");
        }
    }
}
