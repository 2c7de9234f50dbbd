//! What tasks do here, and how each must end.

use serde_json::{Value, json};

pub(crate) const IMAGE: &str = "holm/acting";
/// Tries after the first.
pub(crate) const RETRIES: u32 = 2;
/// Of the jobs whose tasks are to run into it.
pub(crate) const TIMEOUT_S: u32 = 1;

/// The command of the image. Its arguments are those of the task, as `--name value`.
pub(crate) const SCRIPT: &str = r#"
while [ $# -gt 0 ]; do
    case $1 in
    --act) act=$2 ;;
    --token) token=$2 ;;
    esac
    shift 2
done
case $act in
print) echo "$token" ;;
work) sleep 0.3; [ ! -d /scratch ] || echo x >/scratch/file; echo "$token" ;;
chance) echo "$token"; [ $(($(od -An -N1 -tu1 /dev/urandom) % 2)) = 0 ] ;;
fail) exit 3 ;;
die) kill -9 $$ ;;
hang) trap '' TERM; while :; do sleep 1; done ;;
esac
"#;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Act {
    Print,
    /// Takes a moment, so that it is there when something is killed.
    Work,
    /// Fails every other time.
    Chance,
    Fail,
    /// Kills itself.
    Die,
    /// Runs into its timeout, and does not listen then.
    Hang,
}

/// A task as it was asked for.
#[derive(Debug, Clone)]
pub(crate) struct Task {
    pub(crate) act: Act,
    /// Printed by whoever succeeds, and by nobody else.
    pub(crate) token: String,
}

impl Act {
    /// Those of a job with all the time it needs.
    pub(crate) const STEADY: [Self; 6] =
        [Self::Print, Self::Print, Self::Work, Self::Chance, Self::Fail, Self::Die];

    fn name(self) -> &'static str {
        match self {
            Self::Print => "print",
            Self::Work => "work",
            Self::Chance => "chance",
            Self::Fail => "fail",
            Self::Die => "die",
            Self::Hang => "hang",
        }
    }

    /// Whether a task that does this may end so.
    pub(crate) fn may_end(self, status: &str) -> bool {
        match self {
            Self::Print | Self::Work => status == "succeeded",
            Self::Chance => status == "succeeded" || status == "failed",
            Self::Fail | Self::Die | Self::Hang => status == "failed",
        }
    }
}

impl Task {
    pub(crate) fn body(&self) -> Value {
        json!({"act": self.act.name(), "token": self.token})
    }
}
