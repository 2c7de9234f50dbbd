//! What happens to instances, as their machine reports it.

use super::InstanceName;
use crate::Timestamp;
use serde::{Deserialize, Deserializer, Serialize};
use std::fmt;

/// Something that happened to an instance. The node keeps facts as lines of JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fact {
    /// Stays the same at every delivery; no other fact of any node has it.
    pub id: String,
    /// Rises by one with each fact of this node.
    pub number: u64,
    pub at: Timestamp,
    /// The same moment on a clock that nobody can set. Absent if the machine has no such clock.
    #[serde(flatten)]
    pub stamp: Option<Stamp>,
    pub instance: InstanceName,
    pub happened: Happened,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Happened {
    Started {
        memory_mb: u32,
    },
    /// The instance sleeps, which costs nothing.
    Paused,
    Resumed,
    /// Its first process has ended, whether or not it was asked to.
    Exited(Exit),
    /// Removed on request.
    Destroyed,
}

/// How the first process of an instance ended. Its `Display` text completes "the sandbox …".
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "how", content = "value")]
pub enum Exit {
    Code(i32),
    Signal(i32),
    OutOfMemory,
    /// The process has ended, but how it ended was not recorded.
    Unknown,
    /// No node was running when it ended, so the time is unknown.
    Missed,
    /// The machine was rebooted meanwhile.
    Lost,
    /// The machine ended it, because the disk that it keeps had stopped.
    DiskStopped,
}

impl Exit {
    /// Returns true if a sandbox that ended so starts anew by itself: no program in it did this.
    pub const fn starts_anew(self) -> bool {
        matches!(self, Self::Missed | Self::Lost | Self::DiskStopped)
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(f, "ended: its first process exited with {code}"),
            Self::Signal(signal) => {
                write!(f, "ended: its first process was killed by signal {signal}")
            }
            Self::OutOfMemory => f.write_str("ran out of memory"),
            Self::Unknown => f.write_str("ended, and nobody kept how"),
            Self::Missed => f.write_str("ended while this server was not running"),
            Self::Lost => f.write_str("was lost when the machine was started anew"),
            Self::DiskStopped => f.write_str("was ended, because its disk had stopped"),
        }
    }
}

/// A moment on a machine's steady clock. Two stamps of the same boot give the exact time between
/// them, even if the calendar clock was set meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Stamp {
    /// The boot of the machine, see [`boot_number`]. Never 0, which stands for none.
    #[serde(deserialize_with = "number_or_text")]
    pub boot: i64,
    /// Milliseconds since that boot.
    pub uptime_ms: i64,
}

/// Turns the kernel's text for a boot of the machine into a number that is never 0.
pub fn boot_number(text: &str) -> i64 {
    // FNV-1a, which no attacker needs to be kept from colliding: machines choose the texts, and a
    // collision only affects the machine itself.
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    (hash >> 1).cast_signed().max(1)
}

/// Reads either form: earlier releases wrote the kernel's text.
fn number_or_text<'de, D: Deserializer<'de>>(from: D) -> Result<i64, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Boot {
        Number(i64),
        Text(String),
    }
    Ok(match Boot::deserialize(from)? {
        Boot::Number(number) => number,
        Boot::Text(text) => boot_number(&text),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fact(stamp: Option<Stamp>, happened: Happened) -> Fact {
        Fact {
            id: "6-x".into(),
            number: 6,
            at: Timestamp::from_ms(5),
            stamp,
            instance: InstanceName::new("ab3k9-1").unwrap(),
            happened,
        }
    }

    fn line(rest: &str) -> String {
        let at = serde_json::to_string(&Timestamp::from_ms(5)).unwrap();
        format!(r#"{{"id":"6-x","number":6,"at":{at},"instance":"ab3k9-1",{rest}}}"#)
    }

    #[test]
    fn a_fact_reads_back_as_written() {
        let stamp = Stamp { boot: boot_number("a"), uptime_ms: 7 };
        for fact in [
            fact(Some(stamp), Happened::Started { memory_mb: 64 }),
            fact(None, Happened::Paused),
            fact(None, Happened::Exited(Exit::Signal(9))),
        ] {
            let text = serde_json::to_string(&fact).unwrap();
            assert_eq!(serde_json::from_str::<Fact>(&text).unwrap(), fact, "{text}");
        }
    }

    #[test]
    fn lines_of_earlier_releases_are_read() {
        let exited = r#""happened":{"exited":{"how":"code","value":3}}"#;
        let stamp = Some(Stamp { boot: boot_number("be-ef"), uptime_ms: 7 });
        for (rest, stamp) in [
            (r#""uptime_ms":7,"boot":"be-ef","#, stamp),
            (r#""uptime_ms":7,"boot":null,"#, None),
            ("", None),
        ] {
            let read: Fact = serde_json::from_str(&line(&format!("{rest}{exited}"))).unwrap();
            assert_eq!(read, fact(stamp, Happened::Exited(Exit::Code(3))), "{rest}");
        }
        for (rest, happened) in [
            (r#""happened":{"started":{"memory_mb":64}}"#, Happened::Started { memory_mb: 64 }),
            (r#""happened":"paused""#, Happened::Paused),
            (r#""happened":"resumed""#, Happened::Resumed),
            (r#""happened":{"exited":{"how":"lost"}}"#, Happened::Exited(Exit::Lost)),
            (r#""happened":"destroyed""#, Happened::Destroyed),
        ] {
            let read: Fact = serde_json::from_str(&line(rest)).unwrap();
            assert_eq!(read, fact(None, happened), "{rest}");
        }
    }

    #[test]
    fn starts_of_a_machine_are_told_apart() {
        assert_ne!(boot_number("a"), boot_number("b"));
        assert!(boot_number("") > 0);
    }
}
