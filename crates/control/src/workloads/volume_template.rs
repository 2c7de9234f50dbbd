//! Volume templates as the background follows them: content that has no place in the row is
//! removed.

use super::followed::{Followed, Look, Reader};
use super::rows;
use crate::control::Control;
use crate::engine::Held;
use crate::error::Error;
use crate::volume_store::VolumeStore;
use crate::volume_templates::numbers;
use store::Tx;
use types::ids::ResourceId;
use types::instance::{KeptFor, VolumeName};
use types::kinds::VolumeTemplate;
use types::kinds::volume_template::State;

impl Followed for VolumeTemplate {
    const ROUTED: bool = false;
    const RUNS: bool = true;

    fn look(reader: &mut Reader<'_>, _: &mut Tx<'_>, held: Held<Self>) -> Result<Look, Error> {
        let Some((volumes, _)) = reader.control.volume_store() else { return Ok(Look::default()) };
        let differs = !unwanted(&*volumes, &held.row.id, Some(&held.state)).is_empty();
        Ok(Look { differs, ..Look::default() })
    }

    async fn reconcile(control: &Control, id: &ResourceId) -> Result<(), Error> {
        let Some((volumes, _)) = control.volume_store() else { return Ok(()) };
        let _lock = control.workloads.lock(id).await;
        let of = id.clone();
        let held = control.store.read(move |tx| rows::find::<Self>(tx, &of)).await?;
        for name in unwanted(&*volumes, id, held.as_ref().map(|held| &held.state)) {
            volumes.remove(&name).await?;
        }
        Ok(())
    }
}

/// Returns the content kept for a template that has no place in its row. Content with a number
/// given out after the row was read is left alone: an upload has its number before anything is
/// kept.
fn unwanted(volumes: &dyn VolumeStore, id: &ResourceId, state: Option<&State>) -> Vec<VolumeName> {
    let newest = state.map_or(u64::MAX, |state| state.numbers);
    let is_unwanted = |number: u64| {
        number <= newest && state.is_none_or(|state| numbers(state).all(|kept| kept != number))
    };
    let kept = volumes.list().into_iter().map(|kept| kept.name);
    kept.filter(|name| match name.kept_for() {
        Some(KeptFor::Template { id: of, number }) => of == *id && is_unwanted(number),
        _ => false,
    })
    .collect()
}
