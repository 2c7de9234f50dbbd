//! How fast the code host lets each connection make requests.

use super::Fault;
use parking_lot::Mutex;
use reqwest::StatusCode;
use reqwest::header::{HeaderMap, RETRY_AFTER};
use std::collections::HashMap;
use types::Timestamp;
use types::ids::ResourceId;

/// Requests left in the limit that are kept for those who cannot wait.
const RESERVE: i64 = 200;
/// The wait if the code host names none, and the longest wait that we believe.
const WAIT_S: i64 = 60;
const WAIT_MAX_S: i64 = 3600;
/// Most connections that are remembered.
const REMEMBERED_MAX: usize = 10_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pace {
    /// A workflow job is waiting for the request.
    Needed,
    /// The request can be made later.
    CanWait,
}

/// Until when a connection must not make requests.
#[derive(Debug, Clone, Copy)]
struct Closed {
    to_all: Timestamp,
    to_those_who_can_wait: Timestamp,
}

#[derive(Default)]
pub(super) struct Paces(Mutex<HashMap<ResourceId, Closed>>);

impl Paces {
    pub(super) fn check(
        &self,
        connection: &ResourceId,
        pace: Pace,
        now: Timestamp,
    ) -> Result<(), Fault> {
        let closed = self.0.lock().get(connection).copied();
        let until = closed.map(|closed| match pace {
            Pace::Needed => closed.to_all,
            Pace::CanWait => closed.to_all.max(closed.to_those_who_can_wait),
        });
        match until {
            Some(until) if until > now => Err(Fault::Limited { until }),
            _ => Ok(()),
        }
    }

    /// Learns the limits from an answer. Fails if the answer itself is a refusal for too many
    /// requests.
    pub(super) fn note(
        &self,
        connection: &ResourceId,
        status: StatusCode,
        headers: &HeaderMap,
        now: Timestamp,
    ) -> Result<(), Fault> {
        let number = |name: &str| headers.get(name)?.to_str().ok()?.parse::<i64>().ok();
        let retry_after = number(RETRY_AFTER.as_str()).map(|seconds| now.plus_s(seconds));
        let reset = number("x-ratelimit-reset")
            .map(|seconds| Timestamp::from_ms(seconds.saturating_mul(1000)));
        let remaining = number("x-ratelimit-remaining");
        let refused = status == StatusCode::TOO_MANY_REQUESTS
            || status == StatusCode::FORBIDDEN && (retry_after.is_some() || remaining == Some(0));
        let believed = |until: Timestamp| until.clamp(now.plus_s(1), now.plus_s(WAIT_MAX_S));
        let to_all = refused.then(|| believed(retry_after.or(reset).unwrap_or(now.plus_s(WAIT_S))));
        let few = remaining.is_some_and(|remaining| remaining <= RESERVE);
        let to_others = few.then(|| believed(reset.unwrap_or(now.plus_s(WAIT_S))));
        if to_all.is_some() || to_others.is_some() {
            let closed = Closed {
                to_all: to_all.unwrap_or(now),
                to_those_who_can_wait: to_others.unwrap_or(now),
            };
            self.close(connection, closed);
        }
        to_all.map_or(Ok(()), |until| Err(Fault::Limited { until }))
    }

    fn close(&self, connection: &ResourceId, closed: Closed) {
        let mut all = self.0.lock();
        if all.len() >= REMEMBERED_MAX {
            all.clear();
        }
        all.insert(connection.clone(), closed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use reqwest::header::{HeaderName, HeaderValue};

    const NOW: Timestamp = Timestamp::from_ms(1_800_000_000_000);

    #[track_caller]
    fn check(status: u16, headers: &[(&str, i64)], needed_s: Option<i64>, can_wait_s: Option<i64>) {
        let (paces, connection) = (Paces::default(), ResourceId::known("res_a"));
        let headers = headers
            .iter()
            .map(|(name, value)| {
                (HeaderName::from_bytes(name.as_bytes()).unwrap(), HeaderValue::from(*value))
            })
            .collect();
        let noted = paces.note(&connection, StatusCode::from_u16(status).unwrap(), &headers, NOW);
        assert_eq!(noted.is_err(), needed_s.is_some());
        for (pace, seconds) in [(Pace::Needed, needed_s), (Pace::CanWait, can_wait_s)] {
            let expected = seconds
                .map_or(Ok(()), |seconds| Err(Fault::Limited { until: NOW.plus_s(seconds) }));
            assert_eq!(paces.check(&connection, pace, NOW), expected, "{pace:?}");
            assert_eq!(paces.check(&connection, pace, NOW.plus_s(seconds.unwrap_or(0))), Ok(()));
        }
        assert_eq!(
            paces.check(&ResourceId::known("res_b"), Pace::CanWait, NOW),
            Ok(()),
            "others are not concerned"
        );
    }

    #[test]
    fn a_connection_waits_as_long_as_it_is_told() {
        let reset = NOW.seconds() + 300;
        check(200, &[("x-ratelimit-remaining", 4000), ("x-ratelimit-reset", reset)], None, None);
        check(
            200,
            &[("x-ratelimit-remaining", 150), ("x-ratelimit-reset", reset)],
            None,
            Some(300),
        );
        check(
            403,
            &[("x-ratelimit-remaining", 0), ("x-ratelimit-reset", reset)],
            Some(300),
            Some(300),
        );
        check(403, &[("retry-after", 20)], Some(20), Some(20));
        check(429, &[], Some(60), Some(60));
        check(429, &[("retry-after", 1_000_000)], Some(3600), Some(3600));
        check(429, &[("retry-after", -5)], Some(1), Some(1));
        check(403, &[("x-ratelimit-remaining", 4000)], None, None);
    }
}
