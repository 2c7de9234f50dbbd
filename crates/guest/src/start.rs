//! Starts the program of the image, and tells the machine if that failed.

use crate::http::Answer;
use crate::instance::Instance;
use crate::processes::{Plan, Process, Processes};
use http::StatusCode;
use std::io::Write;
use std::sync::{Arc, OnceLock};
use tokio::time::timeout;
use types::guest::START_WATCH;

/// The result of the start, if there was one: the process, or why there is none.
#[derive(Default)]
pub(crate) struct Start(OnceLock<Result<Arc<Process>, String>>);

impl Start {
    /// Starts the program of the image. If that fails, the sandbox still serves, and the machine is
    /// told why.
    pub(crate) fn start(&self, instance: &Arc<Instance>, processes: &Arc<Processes>) {
        let Some(plan) = Plan::of_image(instance, &instance.settings.start) else { return };
        let started = processes.start(instance, plan).map_err(|error| error.to_string());
        if let Err(error) = &started {
            let _ = writeln!(
                std::io::stderr(),
                "holm-guest: the image's program does not start: {error}"
            );
        }
        // Nothing else sets it.
        let _ = self.0.set(started);
    }

    /// Answers as soon as the program has failed, or after a while if it has not.
    pub(crate) async fn failure(&self) -> Answer {
        let failure = match self.0.get() {
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
}
