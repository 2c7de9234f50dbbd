//! Starts the program of the image, and tells the machine if that failed.

use crate::guest::Guest;
use crate::http::Answer;
use crate::processes::{Plan, Process};
use http::StatusCode;
use std::io::Write;
use std::sync::{Arc, OnceLock};
use tokio::time::timeout;
use types::guest::START_WATCH;

/// The result of the start, if there was one: the process, or why there is none.
#[derive(Default)]
pub(crate) struct Start(OnceLock<Result<Arc<Process>, String>>);

/// Starts the program of the image. If that fails, the sandbox still serves, and the machine is
/// told why.
pub(crate) fn start(guest: &Arc<Guest>) {
    let Some(plan) = Plan::of_image(&guest.instance, &guest.instance.settings.start) else {
        return;
    };
    let started = guest.processes.start(&guest.instance, plan).map_err(|error| error.to_string());
    if let Err(error) = &started {
        let _ =
            writeln!(std::io::stderr(), "holm-guest: the image's program does not start: {error}");
    }
    // Nothing else sets it.
    let _ = guest.start.0.set(started);
}

/// Answers as soon as the program has failed, or after a while if it has not.
pub(crate) async fn failure(guest: &Guest) -> Answer {
    let failure = match guest.start.0.get() {
        None => None,
        Some(Err(why)) => Some(why.clone()),
        Some(Ok(process)) => {
            // A program that still runs has not failed.
            let _ = timeout(START_WATCH, process.ended()).await;
            process.failure()
        }
    };
    match failure {
        Some(why) => Answer::new(StatusCode::OK, "text/plain; charset=utf-8", why),
        None => Answer::empty(StatusCode::NO_CONTENT),
    }
}
