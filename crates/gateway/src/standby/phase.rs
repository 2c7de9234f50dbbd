//! The life of one instance as the data plane sees it. Pure: no clock, no machine.
//!
//! ```text
//!            track                  no visit for a while          done
//! Starting ─────────→ Awake ─────────────────────────→ Pausing ─────────→ Paused
//!                       ↑                                                   │ a request
//!                       └──────────────────── Waking ←──────────────────────┘
//! ```
//! `forget` leads to `Gone` from every state. Visits exist in `Awake` only, so an instance is never
//! paused during a visit.

use std::time::Duration;
use tokio::time::Instant;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    Starting,
    Awake,
    Pausing,
    Paused,
    Waking,
    Gone,
}

#[derive(Debug)]
pub(crate) enum Stage {
    Starting,
    Awake { visits: usize, idle_since: Instant },
    Pausing,
    Paused,
    Waking,
    Gone,
}

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) stage: Stage,
    /// How often waking has failed. A waiter that saw a lower count gets an error.
    pub(crate) failures: u32,
    /// How many times in a row the guest did not say whether it must stay awake.
    pub(crate) misses: u32,
    /// When its last visit ended. Also kept while it sleeps.
    pub(crate) left: Option<Instant>,
    /// Whether the timers hold an entry for it.
    pub(crate) scheduled: bool,
}

/// What a request that wants to enter has to do.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    /// Nothing: it is counted as a visit.
    Entered,
    Wait,
    /// Wait too, after waking the instance. Only the first request gets this answer.
    Wake,
    Gone,
}

/// What to do about an instance whose timer has fired.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Due {
    Nothing,
    Later(Instant),
    /// It has been idle since then, which is long enough.
    Pause {
        idle_since: Instant,
    },
}

impl State {
    pub(crate) fn new(stage: Stage) -> Self {
        Self { stage, failures: 0, misses: 0, left: None, scheduled: false }
    }

    pub(crate) fn phase(&self) -> Phase {
        match self.stage {
            Stage::Starting => Phase::Starting,
            Stage::Awake { .. } => Phase::Awake,
            Stage::Pausing => Phase::Pausing,
            Stage::Paused => Phase::Paused,
            Stage::Waking => Phase::Waking,
            Stage::Gone => Phase::Gone,
        }
    }

    pub(crate) fn enter(&mut self) -> Entry {
        match &mut self.stage {
            Stage::Awake { visits, .. } => {
                *visits += 1;
                Entry::Entered
            }
            Stage::Paused => {
                self.stage = Stage::Waking;
                Entry::Wake
            }
            Stage::Starting | Stage::Pausing | Stage::Waking => Entry::Wait,
            Stage::Gone => Entry::Gone,
        }
    }

    /// Ends a visit and returns whether it was the last one.
    #[expect(clippy::expect_used, reason = "a count that is wrong would pause upon a visit")]
    pub(crate) fn leave(&mut self, now: Instant) -> bool {
        let Stage::Awake { visits, idle_since } = &mut self.stage else { return false };
        *visits = visits.checked_sub(1).expect("whoever leaves has entered");
        *idle_since = now;
        self.left = Some(now);
        *visits == 0
    }

    /// Returns whether it is awake and has had no visit since `then`.
    pub(crate) fn is_idle_since(&self, then: Instant) -> bool {
        matches!(self.stage, Stage::Awake { visits: 0, idle_since } if idle_since == then)
    }

    /// Begins to pause it, unless it has been visited since `idle_since`.
    pub(crate) fn begin_pause(&mut self, idle_since: Instant) -> bool {
        let idle = self.is_idle_since(idle_since);
        if idle {
            self.stage = Stage::Pausing;
        }
        idle
    }

    /// Begins to pause it if nobody visits it, and returns its phase then. `Pausing` means that
    /// this call began the pause: if one is under way already, the result is `None`.
    pub(crate) fn begin_pause_now(&mut self) -> Option<Phase> {
        match self.stage {
            Stage::Awake { visits: 0, .. } => {
                self.stage = Stage::Pausing;
                Some(Phase::Pausing)
            }
            Stage::Paused => Some(Phase::Paused),
            _ => None,
        }
    }

    /// Ends the pause or the wake that was begun, unless the instance is gone by now.
    pub(crate) fn end(&mut self, stage: Stage) {
        if matches!(self.stage, Stage::Pausing | Stage::Waking) {
            self.stage = stage;
        }
    }

    /// Decides what to do when the timer of the instance has fired. `Later` schedules it again.
    /// `delay` is how long it may be idle before it is paused, and `sweep` is when the oldest of
    /// its spare connections has to end.
    pub(crate) fn due(
        &mut self,
        now: Instant,
        delay: Option<Duration>,
        sweep: Option<Instant>,
    ) -> Due {
        let due = match self.stage {
            Stage::Awake { visits: 0, idle_since } => match delay.map(|delay| idle_since + delay) {
                Some(at) if at <= now => Due::Pause { idle_since },
                at => later(at, sweep),
            },
            _ => later(None, sweep),
        };
        self.scheduled = matches!(due, Due::Later(_));
        due
    }
}

fn later(at: Option<Instant>, sweep: Option<Instant>) -> Due {
    at.into_iter().chain(sweep).min().map_or(Due::Nothing, Due::Later)
}

#[cfg(test)]
#[path = "phase_tests.rs"]
mod tests;
