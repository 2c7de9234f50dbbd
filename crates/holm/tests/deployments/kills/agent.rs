//! What every actor keeps track of for its agent.

use crate::place::eventually;
use crate::web::{Answer, Web};
use serde_json::Value;

/// What is known about an agent after a kill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Known {
    There,
    Gone,
    /// The server was killed before it answered.
    Open,
}

pub(super) struct Agent {
    pub(super) name: String,
    pub(super) known: Known,
}

/// The connection broke because the server was killed.
pub(super) struct Lost;

/// Returns the answer, which must be successful.
#[track_caller]
pub(super) fn good(what: &str, answer: Option<Answer>) -> Result<Answer, Lost> {
    let answer = answer.ok_or(Lost)?;
    assert!(answer.status < 300, "{what}: {} {}", answer.status, answer.text());
    Ok(answer)
}

impl Agent {
    pub(super) fn new(name: String) -> Self {
        Self { name, known: Known::Gone }
    }

    pub(super) fn path(&self) -> String {
        format!("/v0/agents/{}", self.name)
    }

    /// Returns the agent, if it exists.
    pub(super) fn look(&mut self, web: &Web) -> Result<Option<Value>, Lost> {
        let answer = web.member("GET", &self.path(), None).ok_or(Lost)?;
        let now = match answer.status {
            200 => Known::There,
            404 => Known::Gone,
            _ => panic!("GET {}: {} {}", self.path(), answer.status, answer.text()),
        };
        assert!(
            self.known == Known::Open || self.known == now,
            "{} was {:?} and is {now:?}",
            self.name,
            self.known
        );
        self.known = now;
        Ok((now == Known::There).then(|| answer.json()))
    }

    pub(super) fn delete(&mut self, web: &Web) -> Result<(), Lost> {
        self.known = Known::Open;
        good("DELETE", web.member("DELETE", &self.path(), None))?;
        self.known = Known::Gone;
        Ok(())
    }

    /// Creates or changes it, whichever is needed.
    pub(super) fn put(&mut self, web: &Web, wish: &Value, query: &str) -> Result<Answer, Lost> {
        let answer = match self.known {
            Known::Gone => {
                self.known = Known::Open;
                web.member("POST", &format!("/v0/agents{query}"), Some(wish))
            }
            _ => web.member("PUT", &format!("{}{query}", self.path()), Some(wish)),
        };
        let answer = good(&format!("putting {}", self.name), answer)?;
        self.known = Known::There;
        Ok(answer)
    }

    pub(super) fn revisions(&self, web: &Web) -> Result<Vec<String>, Lost> {
        let path = format!("{}/revisions", self.path());
        let answer = good("revisions", web.member("GET", &path, None))?.json();
        let ids = answer.as_array().unwrap().iter();
        Ok(ids.map(|revision| revision["id"].as_str().unwrap().to_owned()).collect())
    }

    /// Waits until everything that was asked of the agent is finished, and returns it.
    pub(super) fn rest(&mut self, web: &Web) -> Option<Value> {
        let mut agent = None;
        eventually(&format!("{} comes to its end", self.name), || {
            agent = self.look(web).unwrap_or_else(|Lost| panic!("nobody killed the server"));
            let status = agent.as_ref().map(|agent| agent["status"].as_str().unwrap_or("none"));
            matches!(status, None | Some("DEPLOYED" | "FAILED"))
        });
        agent
    }

    /// Returns what it answers, if anything serves.
    pub(super) fn serves(&self, web: &Web) -> Option<String> {
        let answer = self.request(web, "").expect("nobody killed the server");
        (answer.status == 200).then(|| answer.text().trim().to_owned())
    }

    pub(super) fn request(&self, web: &Web, below: &str) -> Option<Answer> {
        web.member("GET", &format!("/main/agents/{}/{below}", self.name), None)
    }
}

pub(super) fn active(agent: &Value) -> String {
    agent["spec"]["revision"]["active"].as_str().unwrap_or_default().to_owned()
}

/// Returns the message of its last event.
pub(super) fn why(agent: &Value) -> String {
    let last = agent["events"].as_array().and_then(|events| events.last());
    last.and_then(|event| event["message"].as_str()).unwrap_or_default().to_owned()
}
