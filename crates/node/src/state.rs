//! The states of an instance.
//!
//! ```text
//! Running ◀──▶ Paused
//!  │   ╲         ╱  │
//!  │    ▶ Stopping ◀   │
//!  ▼         ▼         ▼
//!  └────▶ Exited ◀─────┘        destroy is possible from everywhere and leaves nothing
//! ```

use types::Timestamp;
use types::instance::Exit;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    Running { since: Timestamp },
    Paused { since: Timestamp },
    Stopping { since: Timestamp },
    Exited { at: Timestamp, exit: Exit },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    Paused,
    Resumed,
    StopRequested,
    Ended(Exit),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an instance that is {state} cannot be {wanted}")]
pub struct Refused {
    state: &'static str,
    wanted: &'static str,
}

impl State {
    /// Decides what `event` means now. `Ok(None)` means that nothing changes.
    pub(crate) fn step(self, event: Event, now: Timestamp) -> Result<Option<State>, Refused> {
        use Event::{Ended, Paused, Resumed, StopRequested};
        match (self, event) {
            (State::Paused { .. }, Resumed) => Ok(Some(State::Running { since: now })),
            (State::Running { .. }, Paused) => Ok(Some(State::Paused { since: now })),
            (State::Running { .. } | State::Paused { .. }, StopRequested) => {
                Ok(Some(State::Stopping { since: now }))
            }
            // An end is final: the first report of it counts.
            (State::Exited { .. }, Ended(_) | StopRequested) => Ok(None),
            (_, Ended(exit)) => Ok(Some(State::Exited { at: now, exit })),
            // Asking twice is harmless.
            (State::Running { .. }, Resumed)
            | (State::Paused { .. }, Paused)
            | (State::Stopping { .. }, StopRequested) => Ok(None),
            (state, event) => Err(Refused { state: state.name(), wanted: event.name() }),
        }
    }

    pub fn name(&self) -> &'static str {
        match self {
            Self::Running { .. } => "running",
            Self::Paused { .. } => "paused",
            Self::Stopping { .. } => "stopping",
            Self::Exited { .. } => "exited",
        }
    }
}

impl Event {
    fn name(self) -> &'static str {
        match self {
            Self::Paused => "paused",
            Self::Resumed => "resumed",
            Self::StopRequested => "stopped",
            Self::Ended(_) => "ended",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_ms(second * 1000)
    }

    fn any_event() -> impl Strategy<Value = Event> {
        prop_oneof![
            Just(Event::Paused),
            Just(Event::Resumed),
            Just(Event::StopRequested),
            any::<i32>().prop_map(|code| Event::Ended(Exit::Code(code))),
        ]
    }

    proptest! {
        #[test]
        fn the_first_end_is_the_last_word(events in prop::collection::vec(any_event(), 0..40)) {
            let mut state = State::Running { since: at(0) };
            let mut ended = None;
            for (second, event) in (0..).zip(events) {
                if let Ok(Some(next)) = state.step(event, at(second)) {
                    state = next;
                }
                if let (None, Event::Ended(exit)) = (ended, event) {
                    ended = Some(State::Exited { at: at(second), exit });
                }
                prop_assert_eq!(ended.is_some(), matches!(state, State::Exited { .. }));
                if let Some(ended) = ended {
                    prop_assert_eq!(state, ended);
                }
            }
        }

        #[test]
        fn a_repeated_event_changes_nothing(events in prop::collection::vec(any_event(), 0..40), last in any_event()) {
            let mut state = State::Running { since: at(0) };
            for event in events.into_iter().chain([last]) {
                if let Ok(Some(next)) = state.step(event, at(0)) {
                    state = next;
                    prop_assert_eq!(state.step(event, at(1)).map(|next| next.is_none()), Ok(true));
                }
            }
        }
    }
}
