//! Calls, sockets and files that reach for the machine.

use crate::machine::Machine;
use crate::program::tries_in_vain;

#[test]
fn no_system_call_reaches_the_machine() {
    let machine = Machine::new();
    tries_in_vain(&machine, &machine.open(), "system-calls");
}

#[test]
fn no_socket_reaches_the_machine() {
    let machine = Machine::new();
    tries_in_vain(&machine, &machine.open(), "sockets");
}

#[test]
fn no_file_leads_out_or_changes_the_machine() {
    let machine = Machine::new();
    let before = std::fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap();
    tries_in_vain(&machine, &machine.open(), "files");
    assert_eq!(std::fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap(), before);
}
