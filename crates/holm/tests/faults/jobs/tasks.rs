//! What the tasks in these tests do, and how each may end.

use serde_json::{Value, json};

pub(crate) const IMAGE: &str = "holm/acting";
/// Number of retries.
pub(crate) const RETRIES: u32 = 2;
/// Timeout of the job whose tasks should run into it.
pub(crate) const TIMEOUT_S: u32 = 1;

/// Command of the image. It gets the task's arguments as `--name value`.
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
wait) trap 'echo "$token"; exit 0' USR1; while :; do sleep 0.1; done ;;
hang) trap '' TERM; while :; do sleep 1; done ;;
esac
"#;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Act {
    Print,
    /// Takes a moment, so that it runs while something is killed.
    Work,
    /// Fails every other time.
    Chance,
    Fail,
    /// Kills itself.
    Die,
    /// Runs into its timeout, and ignores the request to stop.
    Hang,
}

/// A task as requested.
#[derive(Debug, Clone)]
pub(crate) struct Task {
    pub(crate) act: Act,
    /// Text that is printed by every task that succeeds, and by no other.
    pub(crate) token: String,
}

impl Act {
    /// Acts for the job whose tasks have all the time they need.
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

    /// Returns whether a task with this act may end with this status.
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
