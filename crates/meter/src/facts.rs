//! Facts: what happened, as machines and servers report it.

use store::usage::FactRow;
use types::Timestamp;
use types::instance::{self, Happened, Stamp};
use types::usage::Measure;

/// The most that the memory of an instance (in MB) and stored data (in KiB) count as, so that no
/// sum overflows.
pub(crate) const LEVEL_MAX: i64 = 1 << 40;

/// How [`Change::Stored`] and [`Change::Requested`] are written.
pub(crate) const STORED: i64 = 7;
pub(crate) const REQUESTED: i64 = 8;

/// Something that happened to the thing that a subject names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsageFact {
    /// The same at every delivery, and unique among facts.
    pub id: String,
    /// What it happened to: the name under which [`crate::register`] was told the owner.
    pub subject: String,
    /// Rises with the facts of one machine; 0 if there is no such number. Orders what happened in
    /// the same millisecond.
    pub number: u64,
    pub at: Timestamp,
    /// The steady clock of the machine at that moment. Between two facts of the same boot the
    /// steady clock counts and not the calendar, which may be set while something runs.
    pub stamp: Option<Stamp>,
    pub change: Change,
}

/// What a fact changes in usage. There is less here than in [`Happened`], because a bill does not
/// depend on how an instance ended; and more, because not only instances are billed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Change {
    /// An instance runs.
    Started {
        memory_mb: u32,
    },
    /// The memory of a running instance has changed.
    Resized {
        memory_mb: u32,
    },
    /// An instance sleeps, which costs nothing.
    Paused,
    Resumed,
    /// An instance was seen running.
    Alive,
    /// An instance has ended. Facts after this no longer concern it.
    Ended,
    /// From now on `bytes` are stored; 0 means that it is gone.
    Stored {
        bytes: u64,
    },
    /// Requests were taken.
    Requested {
        count: u32,
    },
    /// A domain serves.
    Activated,
    /// A domain no longer serves.
    Deactivated,
}

impl UsageFact {
    /// Converts what a machine reports about an instance.
    pub fn of_instance(fact: &instance::Fact) -> Self {
        Self {
            id: fact.id.clone(),
            subject: fact.instance.to_string(),
            number: fact.number,
            at: fact.at,
            stamp: fact.stamp,
            change: match fact.happened {
                Happened::Started { memory_mb } => Change::Started { memory_mb },
                Happened::Paused => Change::Paused,
                Happened::Resumed => Change::Resumed,
                Happened::Exited(_) | Happened::Destroyed => Change::Ended,
            },
        }
    }

    /// Returns a fact that says again what a stored one says, under an id of its own.
    pub(crate) fn again(subject: &str, fact: &FactRow) -> Option<Self> {
        Some(Self {
            id: format!("{}-again", fact.id),
            subject: subject.to_owned(),
            number: fact.number.unsigned_abs(),
            at: Timestamp::from_ms(fact.at),
            stamp: None,
            change: Change::read(fact.kind, fact.amount)?,
        })
    }

    pub(crate) fn stored(&self, life: i64) -> FactRow {
        let (kind, amount) = self.change.written();
        FactRow {
            id: self.id.clone(),
            life,
            number: i64::try_from(self.number).unwrap_or(i64::MAX),
            at: self.at.ms(),
            kind,
            amount,
            stamp: self.stamp,
        }
    }
}

impl Change {
    /// Returns the change as two numbers: which one, and how much. The first also orders facts of
    /// the same moment.
    fn written(self) -> (i64, i64) {
        match self {
            Self::Started { memory_mb } => (1, memory_mb.into()),
            Self::Resized { memory_mb } => (2, memory_mb.into()),
            Self::Paused => (3, 0),
            Self::Resumed => (4, 0),
            Self::Alive => (5, 0),
            Self::Ended => (6, 0),
            Self::Stored { bytes } => (STORED, i64::try_from(bytes).unwrap_or(i64::MAX)),
            Self::Requested { count } => (REQUESTED, count.into()),
            Self::Activated => (9, 0),
            Self::Deactivated => (10, 0),
        }
    }

    /// Reads what [`Change::written`] returned. `None` for numbers that no release has written.
    pub(crate) fn read(kind: i64, amount: i64) -> Option<Self> {
        let memory = || u32::try_from(amount).ok();
        Some(match kind {
            1 => Self::Started { memory_mb: memory()? },
            2 => Self::Resized { memory_mb: memory()? },
            3 => Self::Paused,
            4 => Self::Resumed,
            5 => Self::Alive,
            6 => Self::Ended,
            STORED => Self::Stored { bytes: u64::try_from(amount).ok()? },
            REQUESTED => Self::Requested { count: memory()? },
            9 => Self::Activated,
            10 => Self::Deactivated,
            _ => return None,
        })
    }

    /// Whether the change can happen to something measured this way. One that cannot is kept, and
    /// counts nothing.
    pub(crate) fn fits(self, measure: Measure) -> bool {
        match self {
            Self::Started { .. }
            | Self::Resized { .. }
            | Self::Paused
            | Self::Resumed
            | Self::Alive
            | Self::Ended => measure == Measure::Runtime,
            Self::Stored { .. } => measure == Measure::Storage,
            Self::Requested { .. } => measure == Measure::Events,
            Self::Activated | Self::Deactivated => measure == Measure::Time,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_reads_back_as_written() {
        for change in [
            Change::Started { memory_mb: 2048 },
            Change::Resized { memory_mb: u32::MAX },
            Change::Paused,
            Change::Resumed,
            Change::Alive,
            Change::Ended,
            Change::Stored { bytes: 1 << 50 },
            Change::Requested { count: 3 },
            Change::Activated,
            Change::Deactivated,
        ] {
            let (kind, amount) = change.written();
            assert_eq!(Change::read(kind, amount), Some(change));
        }
        assert_eq!(Change::read(11, 0), None);
        assert_eq!(Change::read(1, -1), None);
    }
}
