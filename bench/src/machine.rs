//! The conditions of a measurement, so that its numbers can be compared: what the machine is,
//! whether anything else runs on it, and what its own processes and disk cost.

use crate::report::Report;
use crate::samples::Samples;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// The load average over the last minute below which a machine counts as quiet.
const QUIET: f64 = 0.3;
const WAIT_MAX: Duration = Duration::from_secs(300);
/// The variable that sets another limit, in seconds.
const WAIT_SETTING: &str = "HOLM_BENCH_WAIT_S";
const LOOK_EVERY: Duration = Duration::from_secs(2);
const EXECS: usize = 200;
const FSYNCS: usize = 100;
const FSYNC_BYTES: usize = 4096;

/// Waits until nothing else runs, for a limited time, and begins a report with what the machine
/// itself costs: goals are ratios within one run, because machines and times of day differ.
pub(crate) async fn begin(folder: &Path) -> anyhow::Result<Report> {
    wait_until_quiet().await?;
    describe(folder);
    let mut report = Report::default();
    let load = load_of_a_minute()?;
    if load >= QUIET {
        report.note(format!(
            "The load was {load} when this began: other work ran too, so these are no measurements."
        ));
    }
    report.add("host_exec_p50_ms", execs()?.percentile_ms(50)?, "ms");
    report.add("host_fsync_p50_ms", fsyncs(folder)?.percentile_ms(50)?, "ms");
    Ok(report)
}

async fn wait_until_quiet() -> anyhow::Result<()> {
    let most = match std::env::var(WAIT_SETTING) {
        Ok(seconds) => Duration::from_secs(seconds.parse()?),
        Err(_) => WAIT_MAX,
    };
    let deadline = Instant::now() + most;
    let mut told = false;
    while load_of_a_minute()? >= QUIET && Instant::now() < deadline {
        if !told {
            eprintln!("waiting for a load below {QUIET}, at most {} s", most.as_secs());
            told = true;
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    Ok(())
}

/// Measures fork and exec of the smallest program, to its end.
fn execs() -> anyhow::Result<Samples> {
    let mut times = Samples::default();
    for _ in 0..EXECS {
        let begun = Instant::now();
        Command::new("/bin/true").status()?;
        times.since(begun);
    }
    Ok(times)
}

/// Measures adding a page to a file durably.
fn fsyncs(folder: &Path) -> anyhow::Result<Samples> {
    let at = folder.join("holm-bench-fsync");
    let mut file = File::create(&at)?;
    let mut times = Samples::default();
    for _ in 0..FSYNCS {
        let begun = Instant::now();
        file.write_all(&[0; FSYNC_BYTES])?;
        file.sync_data()?;
        times.since(begun);
    }
    fs::remove_file(at)?;
    Ok(times)
}

fn load_of_a_minute() -> anyhow::Result<f64> {
    let text = fs::read_to_string("/proc/loadavg")?;
    Ok(text.split(' ').next().unwrap_or_default().parse()?)
}

/// Prints what the numbers depend on besides the programs.
fn describe(folder: &Path) {
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

/// Returns the load averages over 1, 5 and 15 minutes.
pub(crate) fn load() -> String {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').take(3).collect::<Vec<_>>().join(" ")
}

/// Returns what a program prints when asked for its version, or `?`.
pub(crate) fn said(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    output.map_or_else(
        |_| "?".into(),
        |output| String::from_utf8_lossy(&output.stdout).trim().to_owned(),
    )
}

/// Does the same for programs that print their version to standard error.
pub(crate) fn said_aside(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    output.map_or_else(
        |_| "?".into(),
        |output| String::from_utf8_lossy(&output.stderr).trim().to_owned(),
    )
}
