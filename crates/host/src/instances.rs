//! Names and facts of instances, from one side's words to the other's.

use control::machine::{Fact, Happened, Seen, Stamp};
use node::{Exit, Id, SpecError, State, View};

pub(crate) fn machine_id(instance: &str) -> Result<Id, SpecError> {
    Id::new(instance)
}

pub(crate) fn seen(view: &View) -> Seen {
    Seen { instance: view.id.to_string(), runs: runs(&view.state) }
}

pub(crate) fn runs(state: &State) -> bool {
    matches!(state, State::Running { .. } | State::Paused { .. })
}

pub(crate) fn fact(fact: node::Fact) -> Fact {
    let happened = match fact.happened {
        node::Happened::Started { memory_mb } => Happened::Started { memory_mb },
        node::Happened::Paused => Happened::Slept,
        node::Happened::Resumed => Happened::Woke,
        node::Happened::Exited(exit) => Happened::Ended {
            how: how_it_ended(exit),
            out_of_memory: exit == Exit::OutOfMemory,
            seen: !matches!(exit, Exit::Missed | Exit::Lost),
        },
        node::Happened::Destroyed => Happened::Retired,
    };
    let stamp = fact.boot.zip(fact.uptime_ms).map(|(boot, uptime_ms)| Stamp { boot, uptime_ms });
    Fact {
        id: fact.id,
        number: fact.number,
        at: fact.at,
        stamp,
        instance: fact.instance.to_string(),
        happened,
    }
}

/// Completes "the sandbox …".
pub(crate) fn how_it_ended(exit: Exit) -> String {
    match exit {
        Exit::Code(code) => format!("ended: its first process exited with {code}"),
        Exit::Signal(signal) => format!("ended: its first process was killed by signal {signal}"),
        Exit::OutOfMemory => "ran out of memory".to_owned(),
        Exit::Unknown => "ended, and nobody kept how".to_owned(),
        Exit::Missed => "ended while this server was not running".to_owned(),
        Exit::Lost => "was lost when the machine was started anew".to_owned(),
    }
}
