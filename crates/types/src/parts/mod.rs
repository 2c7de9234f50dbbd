//! Parts that several kinds have in common.

use std::collections::BTreeMap;

pub mod addresses;
mod building;
pub mod cron;
mod deployment;
pub mod dollars;
pub mod duration;
mod env;
mod event;
pub mod hosts;
pub mod limits;
mod metadata;
pub mod names;
mod page;
mod port;
mod revision;
mod runtime;
mod sensitive;
mod trigger;
mod volume;

pub use building::Building;
pub use cron::Cron;
pub use deployment::{Deployment, Needs, Served};
pub use env::{Env, check_name as check_env_name, check_value as check_env_value};
pub use event::{CoreEvent, Lifecycle, Of, Status};
pub use metadata::{Head, Metadata, Stamped};
pub use page::{Page, PaginationMeta};
pub use port::{Port, Protocol};
pub use revision::{Deploy, RevisionConfiguration, RevisionMetadata};
pub use runtime::{Flavor, FlavorType, Generation, Repository, SkipBuild};
pub use sensitive::{MASK, Sensitive};
pub use trigger::{Trigger, TriggerConfiguration, TriggerType};
pub use volume::{
    VolumeAttachment, VolumeType, check_ephemeral_count, check_mounts, free_place, mount_place,
    overlap,
};

/// Free key and value pairs for organising and filtering.
pub type Labels = BTreeMap<String, String>;
/// Any other map of texts: headers, settings, credentials.
pub type TextMap = BTreeMap<String, String>;

/// Keeps the stored value if an update leaves it out.
pub fn keep<T: Clone>(new: &mut Option<T>, old: Option<&Option<T>>) {
    if new.is_none() {
        *new = old.cloned().flatten();
    }
}

/// Checks that a member did not change once it was set.
pub fn fixed<T: PartialEq>(
    new: &Option<T>,
    old: &Option<T>,
    field: &str,
    problems: &mut crate::Problems,
) {
    problems.require(old.is_none() || new == old, field, "cannot be changed once it was set");
}

/// Passes each value of a map to a visitor of secrets, named `PREFIX.KEY`.
pub fn visit_map(
    map: Option<&mut TextMap>,
    prefix: &str,
    visit: &mut dyn FnMut(&str, &mut String),
) {
    for (key, value) in map.into_iter().flatten() {
        visit(&format!("{prefix}.{key}"), value);
    }
}

/// Passes a single secret to a visitor of secrets.
pub fn visit_sensitive(
    secret: Option<&mut Sensitive<String>>,
    name: &str,
    visit: &mut dyn FnMut(&str, &mut String),
) {
    if let Some(Sensitive(secret)) = secret {
        visit(name, secret);
    }
}
