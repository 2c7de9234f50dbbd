//! Whether a job can be run: it is deployed when its image can be had here.

use super::machine::{ImageAt, Machine};
use super::rows;
use crate::app::App;
use crate::error::Error;
use store::Tx;
use types::Timestamp;
use types::ids::ResourceId;
use types::kinds::Job;
use types::kinds::job::JobRuntime;
use types::parts::{Generation, Lifecycle, Status};

const DEPLOYMENT: &str = "deployment";

/// Says of a job that is new or changed whether this machine can run it. Repeating it is harmless.
pub(super) async fn settle(app: &App, id: &ResourceId) -> Result<(), Error> {
    let Some(machine) = app.fleet.machine().cloned() else { return Ok(()) };
    let (id, world) = (id.clone(), app.world.clone());
    let work = move |tx: &mut Tx<'_>| {
        let Some(held) = rows::lock::<Job>(tx, &id)? else { return Ok(()) };
        let mut state = held.state.clone();
        judge(&*machine, &held.wish, &mut state, world.now());
        if state == held.state {
            return Ok(());
        }
        rows::put_state(tx, held, state).map(drop)
    };
    app.store.write(work).await
}

/// Says of a job that is to be deployed whether this machine can run it. The answer to whoever makes or changes a job holds
/// it already.
pub(crate) fn judge(machine: &dyn Machine, wish: &Job, state: &mut Lifecycle, now: Timestamp) {
    if state.status() != Some(Status::Deploying) {
        return;
    }
    let none = JobRuntime::default();
    let (status, message) = verdict(machine, wish.spec.runtime.as_ref().unwrap_or(&none));
    state.record(DEPLOYMENT, status, message, now);
}

fn verdict(machine: &dyn Machine, runtime: &JobRuntime) -> (Status, String) {
    let Some(image) = runtime.image.as_deref().filter(|image| !image.is_empty()) else {
        return (Status::Failed, "it has no image: set `spec.runtime.image`".to_owned());
    };
    let place = match machine.find_image(image) {
        Ok(ImageAt::Hand) => "its tasks run in containers",
        Ok(ImageAt::Registry) => "its tasks run in containers; the first of them fetches the image",
        Err(unknown) => return (Status::Failed, unknown.to_string()),
    };
    match runtime.generation {
        None | Some(Generation::Mk2) => (Status::Deployed, place.to_owned()),
        Some(Generation::Mk3) => {
            (Status::Deployed, format!("{place}: this server has no microVMs, which mk3 asks for"))
        }
    }
}
