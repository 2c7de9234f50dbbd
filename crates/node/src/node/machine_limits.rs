//! Limits of the whole machine, which are lifted where instances have limits of their own.

use crate::settings::Limits;

/// Lifts the machine's limit on the number of open files. Open files count as memory of the
/// instance that opened them; a limit for the whole machine, which newer systems do not have, would
/// only let one instance starve the others.
pub(super) fn lift_file_limit() {
    const LIMIT: &str = "/proc/sys/fs/file-max";
    let most = i64::MAX.to_string();
    if std::fs::read_to_string(LIMIT).is_ok_and(|limit| limit.trim() != most)
        && let Err(error) = std::fs::write(LIMIT, most)
    {
        tracing::warn!(%error, "cannot lift the machine's limit of open files: instances share it");
    }
}

/// The most terminals the kernel can have at all, and how many are kept for the machine itself.
const TERMINALS_MAX: u64 = 1 << 20;
const TERMINALS_OF_MACHINE: u64 = 4_096;

/// Raises the machine's limit on terminals. Terminals count as memory of the instance that opened
/// them, and each instance has a limit of its own. The machine's limit must hold all of these, or a
/// few instances take the terminals of all others.
pub(super) fn lift_terminal_limit(limits: &Limits) {
    const LIMIT: &str = "/proc/sys/kernel/pty/max";
    let all = u64::from(limits.instances).saturating_mul(limits.terminals.into());
    let wanted = all.saturating_add(TERMINALS_OF_MACHINE).min(TERMINALS_MAX);
    let now =
        std::fs::read_to_string(LIMIT).ok().and_then(|limit| limit.trim().parse::<u64>().ok());
    if now.is_some_and(|now| now < wanted)
        && let Err(error) = std::fs::write(LIMIT, wanted.to_string())
    {
        tracing::warn!(%error, wanted, "cannot lift the machine's limit of terminals: instances share it");
    }
}
