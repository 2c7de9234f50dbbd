//! What all instances have in common, however they are started.

use super::filter::Filter;
use crate::settings::Settings;
use types::start::Rules;

/// What root in an instance may do: whatever Debian's package and user tools need, and nothing over
/// the machine.
pub(crate) const CAPABILITIES: [(u32, &str); 10] = [
    (0, "CAP_CHOWN"),
    (1, "CAP_DAC_OVERRIDE"),
    (3, "CAP_FOWNER"),
    (4, "CAP_FSETID"),
    (5, "CAP_KILL"),
    (6, "CAP_SETGID"),
    (7, "CAP_SETUID"),
    (8, "CAP_SETPCAP"),
    (18, "CAP_SYS_CHROOT"),
    (31, "CAP_SETFCAP"),
];

/// When the machine itself runs out of memory, programs of instances are killed before those of the
/// machine, and before the node.
pub(crate) const OUT_OF_MEMORY_SCORE: i32 = 500;

pub(crate) const HIDDEN_FILES: [&str; 6] = [
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/sched_debug",
    "/proc/timer_list",
    "/proc/sysrq-trigger",
];
pub(crate) const HIDDEN_FOLDERS: [&str; 3] = ["/proc/acpi", "/proc/asound", "/proc/scsi"];
pub(crate) const FROZEN: [&str; 4] = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys"];

/// Returns what the starter is told.
pub(crate) fn of(settings: &Settings, open_files: u64) -> Rules {
    let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
    Rules {
        filter: Filter::new().instructions(),
        hidden_files: texts(&HIDDEN_FILES),
        hidden_folders: texts(&HIDDEN_FOLDERS),
        read_only: texts(&FROZEN),
        capabilities: CAPABILITIES.iter().fold(0, |set, (capability, _)| set | 1 << capability),
        out_of_memory_score: OUT_OF_MEMORY_SCORE,
        open_files,
        shared_memory_mb: settings.limits.shared_memory_mb,
        terminals: settings.limits.terminals,
    }
}
