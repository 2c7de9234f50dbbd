//! The setting of a measurement, so that its numbers can be compared.

use std::fs;
use std::process::Command;

/// Prints what the numbers depend on beside the programs.
pub(crate) fn describe(folder: &std::path::Path) {
    let cpus = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpus.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or("?");
    let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let memory =
        memory.lines().find_map(|line| line.strip_prefix("MemTotal:")).unwrap_or("?").trim();
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    println!("machine    {cores} cores, {}, {memory}", model.trim_start_matches(['\t', ' ', ':']));
    println!("kernel     {}", kernel.trim());
    println!(
        "disk       {}",
        said("findmnt", &["-no", "SOURCE,FSTYPE", "-T", &folder.to_string_lossy()])
    );
    println!("load       {}", load());
}

/// Programs that want to run, over the last 1, 5 and 15 minutes.
pub(crate) fn load() -> String {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').take(3).collect::<Vec<_>>().join(" ")
}

/// What a program says when asked for its version, or `?`.
pub(crate) fn said(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    output.map_or_else(
        |_| "?".into(),
        |output| String::from_utf8_lossy(&output.stdout).trim().to_owned(),
    )
}

/// For programs that tell their version where others tell their errors.
pub(crate) fn said_aside(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    output.map_or_else(
        |_| "?".into(),
        |output| String::from_utf8_lossy(&output.stderr).trim().to_owned(),
    )
}
