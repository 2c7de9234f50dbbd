//! Decides what to do after an attempt at a delivery.

use super::{Settings, later};
use std::time::Duration;
use store::deliveries::{Claimed, Next};
use types::{Timestamp, World};

/// The result of an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Outcome {
    Status {
        code: u16,
        retry_after: Option<Duration>,
    },
    /// It was not received, or that is not known.
    None(String),
    /// It must not be sent there.
    Refused(String),
}

impl Outcome {
    pub(super) fn status(&self) -> Option<i64> {
        match self {
            Self::Status { code, .. } => Some(i64::from(*code)),
            Self::None(_) | Self::Refused(_) => None,
        }
    }

    pub(super) fn error(&self) -> Option<String> {
        match self {
            Self::Status { code: 200..300, .. } => None,
            Self::Status { code, .. } => Some(format!("the receiver answered {code}")),
            Self::None(why) | Self::Refused(why) => Some(why.clone()),
        }
    }

    /// Whether another attempt may end differently.
    fn may_pass(&self) -> bool {
        match self {
            Self::Status { code, .. } => matches!(code, 408 | 429 | 500..),
            Self::None(_) => true,
            Self::Refused(_) => false,
        }
    }
}

pub(super) fn next(
    answer: &Outcome,
    of: &Claimed,
    settings: &Settings,
    now: Timestamp,
    world: &World,
) -> Next {
    if let Outcome::Status { code: 200..300, .. } = answer {
        return Next::Delivered;
    }
    let attempts = of.attempts + 1;
    if !answer.may_pass() || attempts >= of.attempts_max.unwrap_or(settings.attempts_max) {
        return Next::Failed;
    }
    let asked = match answer {
        Outcome::Status { retry_after, .. } => retry_after.unwrap_or_default(),
        Outcome::None(_) | Outcome::Refused(_) => Duration::ZERO,
    };
    let pause =
        pause(of.attempts, settings, world.random_bytes()).max(asked.min(settings.pause_max));
    Next::Retry(later(now, pause))
}

/// Returns the pause, which doubles with each attempt up to its limit. A random part of its second
/// half is taken off, so that calls that failed together do not come back together.
fn pause(before: i64, settings: &Settings, random: [u8; 4]) -> Duration {
    let doubled = settings.pause.saturating_mul(1 << before.clamp(0, 30));
    let whole = doubled.min(settings.pause_max);
    whole.mul_f64(0.5 + f64::from(u32::from_le_bytes(random)) / f64::from(u32::MAX) / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use types::ids::{DeliveryId, WorkspaceId};

    fn settings() -> Settings {
        Settings {
            attempts_max: 10,
            timeout: Duration::from_secs(10),
            concurrency: 32,
            workspace_concurrency: 8,
            pause: Duration::from_secs(5),
            pause_max: Duration::from_secs(3600),
            poll: Duration::from_millis(250),
            inside: Vec::new(),
        }
    }

    fn claimed(attempts: i64, attempts_max: Option<i64>) -> Claimed {
        Claimed {
            id: DeliveryId::known("dlv_1"),
            claim: 1,
            workspace: WorkspaceId::known("wsp_1"),
            url: "https://a.example".into(),
            secret: None,
            body: "{}".into(),
            attempts,
            attempts_max,
        }
    }

    fn decide(answer: &Outcome, attempts: i64, attempts_max: Option<i64>) -> Next {
        let world = World::new(|| Timestamp::from_ms(0), |bytes| bytes.fill(0xff));
        next(answer, &claimed(attempts, attempts_max), &settings(), Timestamp::from_ms(0), &world)
    }

    fn status(code: u16) -> Outcome {
        Outcome::Status { code, retry_after: None }
    }

    #[test]
    fn what_may_pass_is_tried_again_and_nothing_else() {
        let after = |seconds: i64| Next::Retry(Timestamp::from_ms(seconds * 1000));
        assert_eq!(decide(&status(200), 0, None), Next::Delivered);
        assert_eq!(decide(&status(204), 9, None), Next::Delivered);
        for code in [408, 429, 500, 503, 599] {
            assert_eq!(decide(&status(code), 0, None), after(5), "{code}");
        }
        for code in [300, 302, 400, 401, 404, 410, 413] {
            assert_eq!(decide(&status(code), 0, None), Next::Failed, "{code}");
        }
        assert_eq!(decide(&Outcome::None("down".into()), 3, None), after(40));
        assert_eq!(decide(&Outcome::Refused("inside".into()), 0, None), Next::Failed);
        assert_eq!(decide(&status(500), 9, None), Next::Failed);
        assert_eq!(decide(&status(500), 0, Some(1)), Next::Failed);
        assert_eq!(decide(&status(500), 50, Some(101)), after(3600));
    }

    #[test]
    fn a_receiver_may_ask_for_a_longer_pause_but_not_for_ever() {
        let asks = |seconds| Outcome::Status {
            code: 429,
            retry_after: Some(Duration::from_secs(seconds)),
        };
        let after = |seconds: i64| Next::Retry(Timestamp::from_ms(seconds * 1000));
        assert_eq!(decide(&asks(60), 0, None), after(60));
        assert_eq!(decide(&asks(1), 0, None), after(5));
        assert_eq!(decide(&asks(u64::MAX), 0, None), after(3600));
    }

    proptest! {
        #[test]
        fn a_pause_has_its_bounds(before in 0..1000_i64, random: [u8; 4]) {
            let pause = pause(before, &settings(), random);
            prop_assert!(pause >= Duration::from_millis(2500) && pause <= Duration::from_secs(3600));
        }
    }
}
