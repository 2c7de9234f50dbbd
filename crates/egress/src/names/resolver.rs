//! Resolves names, for instances and for the connections made on their behalf.

use super::answers::Answer;
use super::ask::{Servers, Unanswered};
use crate::settings::Settings;
use hickory_proto::rr::{Name, RecordType};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use types::World;

#[derive(Debug)]
pub(crate) struct Resolver {
    servers: Servers,
    world: World,
    kept: Mutex<AnswerCache>,
}

/// Recent answers, shared by all instances. The time an answer takes reveals whether another
/// instance has asked, but nothing else.
#[derive(Debug)]
struct AnswerCache {
    max: usize,
    answers: HashMap<(String, RecordType), (Arc<Answer>, i64)>,
}

impl Resolver {
    pub(crate) fn new(settings: &Settings, world: World) -> Self {
        let servers =
            Servers { servers: settings.nameservers.clone(), wait: settings.limits.nameserver };
        let kept =
            AnswerCache { max: settings.limits.cached_names.max(1), answers: HashMap::new() };
        Self { servers, world, kept: Mutex::new(kept) }
    }

    /// Asks for records of a name that [`types::parts::hosts::Host`] accepts. The number is how
    /// many more seconds the answer is valid.
    pub(crate) async fn ask(
        &self,
        name: &str,
        kind: RecordType,
    ) -> Result<(Arc<Answer>, u32), Unanswered> {
        let key = (name.to_owned(), kind);
        let now_ms = self.world.uptime_ms();
        if let Some(found) = self.kept.lock().find(&key, now_ms) {
            return Ok(found);
        }
        let asked = Name::from_ascii(format!("{name}.")).map_err(|_| Unanswered)?;
        let message = self.servers.ask(&self.world, &asked, kind).await?;
        let answer = Arc::new(Answer::read(&asked, kind, &message));
        let until_ms = self.world.uptime_ms() + i64::from(answer.ttl_s) * 1000;
        // Other records can be as large as the owner of the zone likes, and are rarely asked for
        // twice.
        if matches!(kind, RecordType::A | RecordType::AAAA | RecordType::CNAME) {
            self.kept.lock().keep(key, Arc::clone(&answer), until_ms, now_ms);
        }
        let ttl_s = answer.ttl_s;
        Ok((answer, ttl_s))
    }

    /// Returns the addresses of a name, whether or not they may be reached.
    pub(crate) async fn resolve(&self, name: &str, with_v6: bool) -> Vec<IpAddr> {
        let of = async |kind| {
            let answer = self.ask(name, kind).await;
            answer.map(|(answer, _)| answer.addresses()).unwrap_or_default()
        };
        if !with_v6 {
            return of(RecordType::A).await;
        }
        let (v6, v4) = tokio::join!(of(RecordType::AAAA), of(RecordType::A));
        // Alternate, so that on a network without one of the families only one attempt is lost.
        let mut mixed = Vec::with_capacity(v4.len() + v6.len());
        let (mut v4, mut v6) = (v4.into_iter(), v6.into_iter());
        loop {
            let next = [v6.next(), v4.next()];
            if next == [None, None] {
                return mixed;
            }
            mixed.extend(next.into_iter().flatten());
        }
    }
}

impl AnswerCache {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "below the TTL")]
    fn find(&self, key: &(String, RecordType), now_ms: i64) -> Option<(Arc<Answer>, u32)> {
        let (answer, until_ms) = self.answers.get(key)?;
        let left_ms = until_ms - now_ms;
        (left_ms > 0).then(|| (Arc::clone(answer), (left_ms / 1000) as u32))
    }

    fn keep(&mut self, key: (String, RecordType), answer: Arc<Answer>, until_ms: i64, now_ms: i64) {
        if self.answers.len() >= self.max {
            self.answers.retain(|_, (_, until_ms)| *until_ms > now_ms);
        }
        if self.answers.len() >= self.max {
            // An instance that asks for many names only makes everyone ask again.
            self.answers.clear();
        }
        self.answers.insert(key, (answer, until_ms));
    }
}
