//! The latest answers to `tools/list` of the servers of one workload.

use super::form::Form;
use super::request::{Key, ListRequest};
use crate::headers;
use crate::sessions::SessionId;
use admission::{Permit, Pool};
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, Response};
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

/// Whether the tools may have changed since a list was asked for in a session.
#[derive(Default)]
pub(crate) struct Outdated(Arc<AtomicBool>);

/// The lists of one workload.
#[derive(Default)]
pub(crate) struct Lists(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    kept: HashMap<Key, CachedList>,
    /// Sessions in which a list was asked for whose answer is still on its way.
    asked: HashMap<SessionId, Weak<AtomicBool>>,
    /// By last use, as a number that only rises.
    used: BTreeMap<u64, Key>,
    next: u64,
}

/// A list that is kept.
pub(super) struct CachedList {
    pub(super) revision: String,
    pub(super) digest: [u8; 32],
    pub(super) form: Form,
    /// The `result` of the answer.
    pub(super) result: String,
    pub(super) names_session: bool,
    /// Given when it is put among the lists.
    pub(super) used: u64,
    pub(super) _permit: Permit<String>,
}

impl Lists {
    /// Returns the answer to a question that a server of this revision has answered before.
    pub(crate) fn find(&self, revision: &str, asked: &ListRequest) -> Option<Response<String>> {
        let key = asked.key(revision);
        let mut inner = self.0.lock();
        let kept = inner.kept.get(&key)?;
        if kept.revision != revision || kept.digest != asked.digest {
            return None;
        }
        let (form, names_session) = (kept.form, kept.names_session);
        let id = asked.id.json();
        let message = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{}}}"#, kept.result);
        inner.touch(&key);
        drop(inner);
        let mut response = Response::new(match form {
            Form::Json => message,
            Form::Events => format!("event: message\ndata: {message}\n\n"),
        });
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, form.content_type());
        if form == Form::Events {
            headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        }
        if let Some(name) = asked.session_name.clone().filter(|_| names_session) {
            headers.insert(headers::MCP_SESSION, name);
        }
        Some(response)
    }

    /// Must be called before the question is sent. What the result says once the answer is there
    /// decides whether it is kept.
    pub(crate) fn ask(&self, asked: &ListRequest) -> Outdated {
        let Some(session) = asked.session else { return Outdated::default() };
        let mut inner = self.0.lock();
        if let Some(outdated) = inner.asked.get(&session).and_then(Weak::upgrade) {
            return Outdated(outdated);
        }
        // There are never more entries than requests under way.
        inner.asked.retain(|_, outdated| outdated.strong_count() > 0);
        let outdated = Outdated::default();
        inner.asked.insert(session, Arc::downgrade(&outdated.0));
        outdated
    }

    /// Forgets the list of a session in which something else was asked: the tools may have changed.
    pub(crate) fn forget_session(&self, session: SessionId) {
        let mut inner = self.0.lock();
        inner.remove(&Key::InSession(session));
        if let Some(outdated) = inner.asked.remove(&session).and_then(|it| it.upgrade()) {
            outdated.store(true, Ordering::Relaxed);
        }
    }

    /// Forgets the lists of revisions that no longer serve.
    pub(crate) fn keep<'r>(&self, revisions: impl Iterator<Item = &'r str>) {
        let serving: Vec<&str> = revisions.collect();
        let mut inner = self.0.lock();
        let Inner { kept, used, .. } = &mut *inner;
        kept.retain(|_, kept| {
            let stays = serving.contains(&kept.revision.as_str());
            if !stays {
                used.remove(&kept.used);
            }
            stays
        });
    }

    /// Takes room, if necessary by forgetting the least recently used lists.
    pub(super) fn room(
        &self,
        pool: &Pool<String>,
        owner: &String,
        bytes: usize,
    ) -> Option<Permit<String>> {
        loop {
            match pool.take(owner, bytes as u64) {
                Ok(permit) => return Some(permit),
                Err(_) if self.0.lock().forget_oldest() => {}
                Err(_) => return None,
            }
        }
    }

    pub(super) fn put(&self, key: Key, mut kept: CachedList, outdated: &Outdated) {
        let mut inner = self.0.lock();
        // Set under the same lock.
        if outdated.0.load(Ordering::Relaxed) {
            return;
        }
        inner.remove(&key);
        kept.used = inner.next;
        inner.next += 1;
        inner.used.insert(kept.used, key.clone());
        inner.kept.insert(key, kept);
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        let inner = self.0.lock();
        assert_eq!(inner.kept.len(), inner.used.len());
        inner.kept.len()
    }
}

impl Inner {
    fn touch(&mut self, key: &Key) {
        if let Some(kept) = self.kept.get_mut(key) {
            self.used.remove(&kept.used);
            kept.used = self.next;
            self.used.insert(self.next, key.clone());
            self.next += 1;
        }
    }

    fn remove(&mut self, key: &Key) {
        if let Some(kept) = self.kept.remove(key) {
            self.used.remove(&kept.used);
        }
    }

    fn forget_oldest(&mut self) -> bool {
        let Some((_, key)) = self.used.pop_first() else { return false };
        self.kept.remove(&key).is_some()
    }
}
