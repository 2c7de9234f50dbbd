//! Names into addresses, for instances and for what is dialed on their behalf.

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
    kept: Mutex<Kept>,
}

/// Answers of lately, for all instances: how long one takes tells whether somebody else has asked,
/// and no more.
#[derive(Debug)]
struct Kept {
    max: usize,
    answers: HashMap<(String, RecordType), (Arc<Answer>, i64)>,
}

impl Resolver {
    pub(crate) fn new(settings: &Settings, world: World) -> Self {
        let servers =
            Servers { servers: settings.nameservers.clone(), wait: settings.limits.nameserver };
        let kept = Kept { max: settings.limits.cached_names.max(1), answers: HashMap::new() };
        Self { servers, world, kept: Mutex::new(kept) }
    }

    /// `name` is one that [`types::parts::hosts::Host`] knows. The number is how many seconds the answer
    /// still counts.
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
        // Others may be as large as whoever runs the zone likes, and few ask for them twice.
        if matches!(kind, RecordType::A | RecordType::AAAA | RecordType::CNAME) {
            self.kept.lock().keep(key, Arc::clone(&answer), until_ms, now_ms);
        }
        let ttl_s = answer.ttl_s;
        Ok((answer, ttl_s))
    }

    /// The addresses of a name, wherever they are.
    pub(crate) async fn resolve(&self, name: &str, with_v6: bool) -> Vec<IpAddr> {
        let of = async |kind| {
            let answer = self.ask(name, kind).await;
            answer.map(|(answer, _)| answer.addresses()).unwrap_or_default()
        };
        if !with_v6 {
            return of(RecordType::A).await;
        }
        let (v6, v4) = tokio::join!(of(RecordType::AAAA), of(RecordType::A));
        // In turns, so that a network without the one of them costs one attempt only.
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

impl Kept {
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
            // Whoever asks for many names gets no more than to ask again.
            self.answers.clear();
        }
        self.answers.insert(key, (answer, until_ms));
    }
}
