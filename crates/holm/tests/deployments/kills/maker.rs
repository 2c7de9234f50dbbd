//! Builds images from sources: some that cannot be built, and some that are replaced before they
//! are done.

use super::agent::{Agent, Known, Lost, good, why};
use super::invariants::{Built, an_upload_is_built_or_says_why_not, nothing_is_deployed_twice};
use super::{Actor, pause};
use crate::sources::{tar, zip};
use crate::web::Web;
use crate::wishes;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const PAUSE_MS_MAX: u64 = 1500;
const UPLOAD_PAUSE_MS_MAX: u64 = 60;

/// The last thing that was requested.
enum Last {
    /// Nothing is in progress, or its outcome is unknown.
    Nothing,
    /// An address was requested, which may or may not have been used.
    Asked { marker: Option<String> },
    /// Sources were accepted.
    Taken { marker: Option<String> },
    /// A different wish was sent, without a build.
    Plain { marker: String },
}

pub(super) struct Maker {
    agent: Agent,
    chances: fastrand::Rng,
    count: usize,
    /// Words that may be served if the last act fails.
    before: BTreeSet<String>,
    /// True if something served at the last rest, and keeps serving.
    has_served: bool,
    last: Last,
    revisions: BTreeSet<String>,
    acts: usize,
    pub(super) taken: usize,
}

impl Maker {
    pub(super) fn new(number: usize, chances: fastrand::Rng) -> Self {
        Self {
            agent: Agent::new(format!("built-{number}")),
            chances,
            count: 0,
            before: BTreeSet::new(),
            has_served: false,
            last: Last::Nothing,
            revisions: BTreeSet::new(),
            acts: 0,
            taken: 0,
        }
    }

    fn step(&mut self, web: &Web) -> Result<(), Lost> {
        if self.agent.look(web)?.is_none() {
            self.forget();
        }
        // This act may cancel the one before, which may also have finished.
        let last = std::mem::replace(&mut self.last, Last::Nothing);
        self.before.extend(last.marker());
        match self.chances.u8(..10) {
            0 if self.agent.known == Known::There => {
                self.agent.delete(web)?;
                self.forget();
                Ok(())
            }
            1 => self.plain(web),
            chance => self.make(web, chance > 3),
        }
    }

    fn forget(&mut self) {
        self.before.clear();
        self.has_served = false;
        self.revisions.clear();
        self.last = Last::Nothing;
    }

    fn plain(&mut self, web: &Web) -> Result<(), Lost> {
        self.count += 1;
        let marker = format!("r{}", self.count);
        self.acts += 1;
        self.before.insert(marker.clone());
        let wish = wishes::agent(&self.agent.name, &wishes::answers(&marker));
        self.agent.put(web, &wish, "")?;
        self.last = Last::Plain { marker };
        Ok(())
    }

    /// Requests an address and uploads sources.
    fn make(&mut self, web: &Web, can_be: bool) -> Result<(), Lost> {
        self.count += 1;
        let word = format!("r{}", self.count);
        let more = match (can_be, self.chances.bool()) {
            (true, true) => "RUN sleep 0.7",
            (true, false) => "RUN echo one && sleep 0.1\nRUN echo two > /two",
            (false, _) => "RUN sleep 0.1; exit 7",
        };
        let dockerfile = wishes::dockerfile(&word, more);
        let files = [("Dockerfile", dockerfile.as_str()), ("note", &"noted ".repeat(20_000))];
        let sources = if self.chances.bool() { zip(&files) } else { tar(&files) };
        let marker = can_be.then_some(word);
        let asked = self.agent.put(web, &wishes::built(&self.agent.name), "?upload=true")?;
        self.acts += usize::from(can_be);
        self.last = Last::Asked { marker: marker.clone() };
        let url = asked.header("x-blaxel-upload-url").expect("an address").to_owned();
        let pause = Duration::from_millis(self.chances.u64(..UPLOAD_PAUSE_MS_MAX));
        good("upload", web.upload(&url, sources, pause))?;
        self.taken += 1;
        self.last = Last::Taken { marker };
        Ok(())
    }
}

impl Last {
    fn marker(&self) -> Option<String> {
        match self {
            Self::Nothing => None,
            Self::Asked { marker } | Self::Taken { marker } => marker.clone(),
            Self::Plain { marker } => Some(marker.clone()),
        }
    }
}

impl Actor for Maker {
    fn act(&mut self, web: &Web, over: &AtomicBool) {
        while !over.load(Ordering::Relaxed) {
            if self.step(web).is_err() {
                return;
            }
            pause(&mut self.chances, PAUSE_MS_MAX);
        }
    }

    fn rest(&mut self, web: &Web) -> Result<usize, String> {
        let gone = |Lost| "the server is gone".to_owned();
        if self.agent.look(web).map_err(gone)?.is_none() {
            self.forget();
            self.acts = 0;
            return Ok(0);
        }
        // If nobody can know whether an upload counts, a new wish replaces it.
        if matches!(self.last, Last::Nothing | Last::Asked { .. }) {
            self.before.extend(self.last.marker());
            self.plain(web).map_err(gone)?;
        }
        let Some(agent) = self.agent.rest(web) else { return Err("it is gone".to_owned()) };
        let status = agent["status"].as_str().unwrap_or_default();
        let (serves, why) = (self.agent.serves(web), why(&agent));
        let marker = self.last.marker();
        let built =
            Built { marker: marker.as_deref(), before: &self.before, has_served: self.has_served };
        an_upload_is_built_or_says_why_not(&built, status, &why, serves.as_deref())
            .map_err(|error| format!("{}: {error}", self.agent.name))?;
        let revisions: BTreeSet<_> = self.agent.revisions(web).map_err(gone)?.into_iter().collect();
        let new = revisions.difference(&self.revisions).count();
        nothing_is_deployed_twice(new, self.acts)
            .map_err(|error| format!("{}: {error}", self.agent.name))?;
        (self.revisions, self.acts) = (revisions, 0);
        self.has_served = serves.is_some();
        self.before = serves.iter().cloned().collect();
        Ok(usize::from(serves.is_some()))
    }

    fn end(&mut self, web: &Web) {
        if self.agent.known != Known::Gone {
            good("DELETE", web.member("DELETE", &self.agent.path(), None)).ok();
            self.agent.known = Known::Gone;
        }
    }
}
