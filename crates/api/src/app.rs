//! The state that every handler works with.

use crate::http::bodies::Bodies;
use crate::http::limits::Limits;
use crate::http::lists::Lists;
use crate::http::streams::Streams;
use control::Control;
use control::idempotency::AnswerRoom;
use jobs::logs::Searches;
use std::sync::Arc;

/// The control plane, and the API's counters of its callers. Cheap to clone; each handler gets one.
#[derive(Clone)]
pub struct App {
    control: Control,
    pub(crate) limits: Arc<Limits>,
    pub(crate) streams: Arc<Streams>,
    pub(crate) bodies: Bodies,
    pub(crate) log_searches: Searches,
    pub(crate) lists: Lists,
    pub(crate) answer_room: AnswerRoom,
    /// Drives as S3 clients see them.
    pub(crate) s3: s3::Service,
}

impl App {
    pub fn new(control: Control) -> Self {
        let limits = Arc::new(Limits::new(&control.settings, &control.world));
        let streams = Arc::new(Streams::new(control.settings.streams));
        let bodies = Bodies::new(control.settings.bodies);
        let log_searches = Searches::new(control.store.clone(), control.settings.log_searches);
        let lists = Lists::new(control.store.clone());
        let answer_room = AnswerRoom::new(control.settings.answers_day_bytes_max);
        let s3 = crate::routes::s3::service(&control, &limits, &lists);
        Self { control, limits, streams, bodies, log_searches, lists, answer_room, s3 }
    }

    pub(crate) fn control(&self) -> &Control {
        &self.control
    }
}

impl std::ops::Deref for App {
    type Target = Control;

    fn deref(&self) -> &Control {
        &self.control
    }
}
