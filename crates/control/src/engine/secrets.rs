//! Secret values in the engine: sealed in the store, masked in answers, and kept when a client
//! sends the mask back.

use crate::error::Error;
use std::collections::{BTreeMap, BTreeSet};
use store::Keyring;
use types::ids::ResourceId;
pub use types::parts::MASK;
use types::{Kind, Problems};

/// The context that a sealed secret is bound to, so that it cannot be moved to another object.
pub(super) fn seal_context(id: &ResourceId) -> String {
    format!("resources/{id}")
}

/// Which secret values an answer shows.
#[derive(Debug, Clone, Default)]
pub enum Secrets {
    #[default]
    Masked,
    /// Only those that the server has just made, by name. They are shown this once.
    JustMade(Vec<String>),
    /// The same for an object that was just created. Its answer also has, as they were sent, the
    /// write-only members that later answers leave out.
    Created(Vec<String>),
    Shown,
}

impl Secrets {
    fn shows(&self, name: &str) -> bool {
        match self {
            Self::Masked => false,
            Self::JustMade(names) | Self::Created(names) => names.iter().any(|made| made == name),
            Self::Shown => true,
        }
    }

    /// Masks the sealed secrets of an object, and opens those that are to be shown.
    pub fn apply<K: Kind>(
        &self,
        object: &mut K,
        keyring: &Keyring,
        seal_context: &str,
    ) -> Result<(), Error> {
        let mut write_only = BTreeSet::new();
        match self {
            Self::Created(_) => write_only = names_of_write_only(object),
            Self::Masked | Self::JustMade(_) | Self::Shown => object.leave_out_write_only(),
        }
        let mut result = Ok(());
        object.secrets(&mut |name, value| {
            if !self.shows(name) && !write_only.contains(name) {
                MASK.clone_into(value);
            } else if result.is_ok() {
                result = keyring.open(seal_context, value).map(|plain| *value = plain);
            }
        });
        Ok(result?)
    }
}

fn names_of_write_only<K: Kind>(object: &K) -> BTreeSet<String> {
    let mut rest = object.clone();
    rest.leave_out_write_only();
    let rest = values(&rest);
    values(object).into_keys().filter(|name| !rest.contains_key(name)).collect()
}

/// Returns all secrets by name.
pub(super) fn values<K: Kind>(object: &K) -> BTreeMap<String, String> {
    let mut values = BTreeMap::new();
    object.clone().secrets(&mut |name, value| {
        values.insert(name.to_owned(), value.clone());
    });
    values
}

/// Puts the stored value back where the caller sent the mask.
pub(super) fn keep_masked<K: Kind>(
    wish: &mut K,
    old: &BTreeMap<String, String>,
    problems: &mut Problems,
) {
    for env in wish.envs_mut().into_iter().flatten() {
        env.mark_masked(|name| old.contains_key(name));
    }
    wish.secrets(&mut |name, value| {
        if value == MASK {
            match old.get(name) {
                Some(stored) => value.clone_from(stored),
                None => {
                    problems.add(name, "is masked, but no value is stored: send the value itself")
                }
            }
        }
    });
}

/// Seals every secret. Returns the id of the key used, or `None` if there was no secret.
pub(super) fn seal<K: Kind>(
    object: &mut K,
    keyring: &Keyring,
    seal_context: &str,
) -> Result<Option<String>, Error> {
    let (mut result, mut any) = (Ok(()), false);
    object.secrets(&mut |_, value| {
        any = true;
        if result.is_ok() {
            result = keyring.seal(seal_context, value).map(|sealed| *value = sealed);
        }
    });
    result?;
    Ok(any.then(|| keyring.active_id().to_owned()))
}

/// Opens every secret, for code that acts on the object.
pub(super) fn open<K: Kind>(
    object: &mut K,
    keyring: &Keyring,
    seal_context: &str,
) -> Result<(), Error> {
    let mut result = Ok(());
    object.secrets(&mut |_, value| {
        if result.is_ok() {
            result = keyring.open(seal_context, value).map(|plain| *value = plain);
        }
    });
    Ok(result?)
}
