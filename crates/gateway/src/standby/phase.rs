//! The life of one instance as the data plane sees it. Pure: no clock, no machine.
//!
//! ```text
//!            start                  nobody for a while            done
//! Starting ─────────→ Awake ─────────────────────────→ Pausing ─────────→ Asleep
//!                       ↑                                                   │ a request
//!                       └──────────────────── Waking ←──────────────────────┘
//! ```
//! `Gone` is where `forget` leads from everywhere. Visits exist in `Awake` only; that is why a
//! pause never meets one.

use std::time::Duration;
use tokio::time::Instant;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    Starting,
    Awake,
    Pausing,
    Asleep,
    Waking,
    Gone,
}

#[derive(Debug)]
pub(crate) enum Stage {
    Starting,
    Awake { visits: usize, idle_since: Instant },
    Pausing,
    Asleep { since: Instant, memory: Memory },
    Waking,
    Gone,
}

/// Where the memory of a sleeping instance is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Memory {
    Held,
    Reclaimed,
}

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) stage: Stage,
    /// How often waking has failed: who waits longer than that has learned of it.
    pub(crate) failures: u32,
    /// Times in a row that the guest did not say whether it must stay awake.
    pub(crate) misses: u32,
    /// The agenda holds one entry for it.
    pub(crate) listed: bool,
}

/// What a request finds at the door.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Knock {
    /// It is counted as a visit.
    Enter,
    Wait,
    /// Waits too, and is the one who has to wake it.
    Wake,
    Gone,
}

/// What is to be done about an instance whose time has come.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Due {
    Nothing,
    Later(Instant),
    /// It has been idle since then, for long enough.
    Rest {
        idle_since: Instant,
    },
    Reclaim,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Delays {
    pub(crate) standby: Option<Duration>,
    pub(crate) reclaim: Option<Duration>,
}

impl State {
    pub(crate) fn new(stage: Stage) -> Self {
        Self { stage, failures: 0, misses: 0, listed: false }
    }

    pub(crate) fn phase(&self) -> Phase {
        match self.stage {
            Stage::Starting => Phase::Starting,
            Stage::Awake { .. } => Phase::Awake,
            Stage::Pausing => Phase::Pausing,
            Stage::Asleep { .. } => Phase::Asleep,
            Stage::Waking => Phase::Waking,
            Stage::Gone => Phase::Gone,
        }
    }

    pub(crate) fn knock(&mut self) -> Knock {
        match &mut self.stage {
            Stage::Awake { visits, .. } => {
                *visits += 1;
                Knock::Enter
            }
            Stage::Asleep { .. } => {
                self.stage = Stage::Waking;
                Knock::Wake
            }
            Stage::Starting | Stage::Pausing | Stage::Waking => Knock::Wait,
            Stage::Gone => Knock::Gone,
        }
    }

    /// A visit ends; says whether it was the last one.
    pub(crate) fn leave(&mut self, now: Instant) -> bool {
        let Stage::Awake { visits, idle_since } = &mut self.stage else { return false };
        *visits = visits.saturating_sub(1);
        *idle_since = now;
        *visits == 0
    }

    /// Whether it is awake and nobody came since then.
    pub(crate) fn is_idle_since(&self, then: Instant) -> bool {
        matches!(self.stage, Stage::Awake { visits: 0, idle_since } if idle_since == then)
    }

    /// Begins to pause it, if nobody came since `idle_since`.
    pub(crate) fn begin_rest(&mut self, idle_since: Instant) -> bool {
        let idle = self.is_idle_since(idle_since);
        if idle {
            self.stage = Stage::Pausing;
        }
        idle
    }

    /// Begins to pause it if nobody is there, and says where it stands then. `Pausing` is never
    /// found, only begun.
    pub(crate) fn begin_rest_now(&mut self) -> Option<Phase> {
        match self.stage {
            Stage::Awake { visits: 0, .. } => {
                self.stage = Stage::Pausing;
                Some(Phase::Pausing)
            }
            Stage::Asleep { .. } => Some(Phase::Asleep),
            _ => None,
        }
    }

    /// The pause or the wake that was begun is over, unless the instance has gone meanwhile.
    pub(crate) fn end(&mut self, stage: Stage) {
        if matches!(self.stage, Stage::Pausing | Stage::Waking) {
            self.stage = stage;
        }
    }

    /// The agenda's entry of the instance was taken off: what is to be done, and whether it is
    /// listed again. `sweep` is when one of its spare connections has to end.
    pub(crate) fn due(&mut self, now: Instant, delays: Delays, sweep: Option<Instant>) -> Due {
        let due = match &mut self.stage {
            Stage::Awake { visits: 0, idle_since } => {
                match delays.standby.map(|delay| *idle_since + delay) {
                    Some(at) if at <= now => Due::Rest { idle_since: *idle_since },
                    at => later(at, sweep),
                }
            }
            Stage::Asleep { since, memory: memory @ Memory::Held } => {
                match delays.reclaim.map(|delay| *since + delay) {
                    Some(at) if at <= now => {
                        *memory = Memory::Reclaimed;
                        Due::Reclaim
                    }
                    at => later(at, None),
                }
            }
            _ => later(None, sweep),
        };
        self.listed = matches!(due, Due::Later(_));
        due
    }
}

fn later(at: Option<Instant>, sweep: Option<Instant>) -> Due {
    at.into_iter().chain(sweep).min().map_or(Due::Nothing, Due::Later)
}

#[cfg(test)]
#[path = "phase_tests.rs"]
mod tests;
