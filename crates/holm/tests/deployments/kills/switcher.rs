//! Gives an agent revisions that listen at once, late or never, goes back to earlier ones, and
//! deletes it, while visitors keep requesting it.

use super::agent::{Agent, Known, Lost, active, good, why};
use super::invariants::{
    READY, a_request_is_served_by_what_was_ready, a_wish_comes_to_its_end,
    nothing_is_deployed_twice,
};
use super::{Actor, pause};
use crate::web::Web;
use crate::wishes;
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const PAUSE_MS_MAX: u64 = 500;

pub(super) struct Switcher {
    agent: Agent,
    chances: fastrand::Rng,
    count: usize,
    /// The answer of each revision, by its id.
    words: BTreeMap<String, String>,
    /// The answer expected after the last change, whose revision is not known yet.
    last: Option<String>,
    /// The revision that the last acknowledged act asks for.
    wished: Option<String>,
    /// Acts since the last rest that may have made a revision.
    acts: usize,
    /// True if any revision has ever been ready; before that, none is made that fails.
    has_served: bool,
    /// True while the agent has served and nobody deletes it.
    serves: Arc<AtomicBool>,
}

impl Switcher {
    pub(super) fn new(number: usize, chances: fastrand::Rng) -> Self {
        Self {
            agent: Agent::new(format!("switched-{number}")),
            chances,
            count: 0,
            words: BTreeMap::new(),
            last: None,
            wished: None,
            acts: 0,
            has_served: false,
            serves: Arc::default(),
        }
    }

    pub(super) fn visitor(&self, chances: fastrand::Rng) -> Visitor {
        let agent = Agent::new(self.agent.name.clone());
        Visitor { agent, serves: Arc::clone(&self.serves), answers: 0, chances }
    }

    fn step(&mut self, web: &Web) -> Result<(), Lost> {
        let there = self.agent.look(web)?;
        if let Some(agent) = &there {
            self.learn(web)?;
            if agent["status"] == "DEPLOYED" {
                self.has_served = true;
                self.serves.store(true, Ordering::SeqCst);
            }
        } else {
            self.forget();
        }
        match (there, self.chances.u8(..12)) {
            (None, _) => self.change(web, true),
            (Some(_), 0) => {
                self.serves.store(false, Ordering::SeqCst);
                self.agent.delete(web)?;
                self.forget();
                Ok(())
            }
            (Some(agent), 1..=5) => {
                let ids: Vec<_> = self.agent.revisions(web)?;
                let to = self.chances.choice(&ids).expect("it has a revision");
                let mut wish = agent;
                wish["spec"]["revision"] = json!({"active": to});
                if let Some(canary) = self.canary_beside(to, &ids) {
                    wish["spec"]["revision"]["canary"] = json!(canary);
                    wish["spec"]["revision"]["canaryPercent"] = json!(50);
                }
                self.wished = None;
                self.wished = Some(active(&self.agent.put(web, &wish, "")?.json()));
                Ok(())
            }
            (Some(_), chance) => self.change(web, chance < 10 || !self.has_served),
        }
    }

    /// Chooses, half of the time, another revision that gets part of the requests. Both have to be
    /// ready.
    fn canary_beside(&mut self, to: &str, ids: &[String]) -> Option<String> {
        let is_ready = |id: &str| self.words.get(id).is_some_and(|word| word.starts_with(READY));
        let others: Vec<_> = ids.iter().filter(|id| *id != to && is_ready(id)).collect();
        let wanted = is_ready(to) && self.chances.bool();
        self.chances.choice(others).filter(|_| wanted).cloned()
    }

    /// Makes a new revision.
    fn change(&mut self, web: &Web, listens: bool) -> Result<(), Lost> {
        self.count += 1;
        let word = format!("{}{}", if listens { READY } else { 'n' }, self.count);
        let late = if self.chances.bool() { "sleep 0.6; " } else { "" };
        let command = match listens {
            true => format!("{late}{}", wishes::answers(&word)),
            false => format!("{late}exit 3"),
        };
        (self.last, self.wished) = (Some(word), None);
        self.acts += 1;
        let wish = wishes::agent(&self.agent.name, &command);
        self.wished = Some(active(&self.agent.put(web, &wish, "")?.json()));
        self.learn(web)
    }

    /// Finds out which revision the last change has made.
    fn learn(&mut self, web: &Web) -> Result<(), Lost> {
        let ids = self.agent.revisions(web)?;
        let mut new: Vec<_> = ids.into_iter().filter(|id| !self.words.contains_key(id)).collect();
        assert!(new.len() < 2, "{new:?} came of one change");
        if let Some(id) = new.pop() {
            let word = self.last.take().expect("a revision comes of a change");
            self.words.insert(id, word);
        }
        Ok(())
    }

    fn forget(&mut self) {
        self.words.clear();
        self.has_served = false;
        (self.last, self.wished) = (None, None);
        self.serves.store(false, Ordering::SeqCst);
    }
}

impl Actor for Switcher {
    fn act(&mut self, web: &Web, over: &AtomicBool) {
        while !over.load(Ordering::Relaxed) {
            if self.step(web).is_err() {
                return;
            }
            pause(&mut self.chances, PAUSE_MS_MAX);
        }
    }

    fn rest(&mut self, web: &Web) -> Result<usize, String> {
        let Some(agent) = self.agent.rest(web) else {
            self.forget();
            self.acts = 0;
            return Ok(0);
        };
        let lost = |Lost| "the server is gone".to_owned();
        let before = self.words.len();
        self.learn(web).map_err(lost)?;
        nothing_is_deployed_twice(self.words.len() - before, self.acts)?;
        self.acts = 0;
        let wished = active(&agent);
        if let Some(asked) = self.wished.as_ref().filter(|asked| **asked != wished) {
            return Err(format!("{}: {asked} was acknowledged, not {wished}", self.agent.name));
        }
        let known = |id: &str| self.words.get(id).ok_or_else(|| format!("{id} is unknown"));
        let mut word = known(&wished)?;
        let serves = self.agent.serves(web).unwrap_or_default();
        let canary = agent["spec"]["revision"]["canary"].as_str();
        if let Some(canary) = canary
            && *known(canary)? == serves
        {
            word = known(canary)?;
        }
        let status = agent["status"].as_str().unwrap_or_default();
        a_wish_comes_to_its_end(status, word, &serves)
            .map_err(|error| format!("{}: {error} ({})", self.agent.name, why(&agent)))?;
        self.has_served = true;
        self.serves.store(true, Ordering::SeqCst);
        Ok(1 + usize::from(canary.is_some()))
    }

    fn end(&mut self, web: &Web) {
        self.serves.store(false, Ordering::SeqCst);
        if self.agent.known != Known::Gone {
            good("DELETE", web.member("DELETE", &self.agent.path(), None)).ok();
            self.agent.known = Known::Gone;
        }
    }
}

/// Requests an agent over and over, even while its revisions change.
pub(super) struct Visitor {
    agent: Agent,
    serves: Arc<AtomicBool>,
    pub(super) answers: usize,
    chances: fastrand::Rng,
}

impl Actor for Visitor {
    fn act(&mut self, web: &Web, over: &AtomicBool) {
        while !over.load(Ordering::Relaxed) {
            let below = if self.chances.bool() { "cgi-bin/slow" } else { "" };
            let before = self.serves.load(Ordering::SeqCst);
            let Some(answer) = self.agent.request(web, below) else { return };
            if before && self.serves.load(Ordering::SeqCst) {
                let judged = a_request_is_served_by_what_was_ready(answer.status, &answer.text());
                judged.unwrap_or_else(|error| panic!("{}: {error}", self.agent.name));
                self.answers += 1;
            }
            pause(&mut self.chances, 20);
        }
    }

    fn rest(&mut self, _: &Web) -> Result<usize, String> {
        Ok(0)
    }

    fn end(&mut self, _: &Web) {}
}
