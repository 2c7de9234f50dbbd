//! The settings that instances keep for as long as they live. The address and the user ids of an
//! instance follow from its slot and from settings, and its network is made once. A node with other
//! settings would write firewall rules for addresses that nobody has, and give user ids of one
//! instance to another. So a small file has what they were made with.

use crate::error::{Doing, OpenError};
use crate::instance::Instance;
use crate::net::Rules;
use crate::settings::{Egress, Settings, Subnet};
use files::Readers;
use serde::{Deserialize, Serialize};
use std::fmt::{self, Display};
use std::io;
use std::path::Path;

const FILE: &str = "fixed-settings.json";
/// How many instances an error names. Their names begin with what they are for.
const NAMED_MAX: usize = 20;

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct FixedSettings {
    subnet: Subnet,
    first_uid: u32,
    egress: Reach,
}

/// Whether instances are connected to a network. What they may reach there can change at any time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Reach {
    Internet,
    Nothing,
}

/// Refuses settings other than those with which instances that are alive were made. If none is, all
/// that is made from now on gets these.
///
/// Called before the rules of the earlier node are replaced, and before anything is made. If this
/// process is killed in between, the next one does the rest: the file says what was before until
/// nothing of that is left.
pub(crate) fn settle(settings: &Settings, found: &[Instance]) -> Result<(), OpenError> {
    let path = settings.folder.join(FILE);
    let wanted = FixedSettings::of(settings);
    // Without the file, the earlier node was of a release that did not write it.
    let earlier = read(&path).doing("read the settings that instances keep")?;
    if earlier.as_ref() == Some(&wanted) {
        return Ok(());
    }
    if let Some(earlier) = earlier {
        let alive = found.iter().filter(|instance| instance.body.process().is_some());
        let alive: Vec<&str> = alive.map(|instance| instance.id.as_str()).collect();
        if !alive.is_empty() {
            let (changed, names) = (earlier.changes(&wanted), listed(&alive));
            return Err(OpenError::Fixed { changed, running: alive.len(), names });
        }
        if earlier.egress == Reach::Internet {
            Rules::remove_earlier(settings, earlier.subnet)
                .doing("remove the firewall rules of the earlier settings")?;
        }
    }
    let written = serde_json::to_vec(&wanted)
        .map_err(io::Error::from)
        .and_then(|text| files::replace(&path, Readers::Owner, &text));
    Ok(written.doing("write the settings that instances keep")?)
}

fn listed(names: &[&str]) -> String {
    let mut names = names.to_vec();
    names.sort_unstable();
    let more = names.split_off(names.len().min(NAMED_MAX)).len();
    let shown = names.join(", ");
    if more > 0 { format!("{shown} and {more} more") } else { shown }
}

fn read(path: &Path) -> io::Result<Option<FixedSettings>> {
    match std::fs::read(path) {
        Ok(text) => Ok(Some(serde_json::from_slice(&text)?)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

impl FixedSettings {
    const fn of(settings: &Settings) -> Self {
        let egress = match settings.egress {
            Egress::Internet { .. } => Reach::Internet,
            Egress::Nothing => Reach::Nothing,
        };
        Self { subnet: settings.subnet, first_uid: settings.first_uid, egress }
    }

    /// Lists what differs, by the names in the configuration of a server.
    fn changes(&self, wanted: &Self) -> String {
        let changes = [
            change("node.subnet", &self.subnet, &wanted.subnet),
            change("node.first_uid", &self.first_uid, &wanted.first_uid),
            change("node.egress", &self.egress, &wanted.egress),
        ];
        changes.into_iter().flatten().collect::<Vec<_>>().join(", ")
    }
}

fn change<T: PartialEq + Display>(name: &str, was: &T, is: &T) -> Option<String> {
    (was != is).then(|| format!("`{name}` was {was} and is now {is}"))
}

impl Display for Reach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Internet => "internet",
            Self::Nothing => "nothing",
        })
    }
}
