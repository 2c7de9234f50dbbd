//! Commands that are started without a shell: only the time that it takes may differ.

use crate::common::Guest;
use crate::first::until;
use serde_json::{Value, json};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;

fn script(guest: &Guest, name: &str, mode: u32, text: &str) {
    let path = guest.path().join(name);
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// Returns what callers see of the result of a command.
fn seen(process: &Value) -> Value {
    let members = ["exitCode", "signal", "status", "stdout", "stderr", "workingDir"];
    members.iter().map(|name| ((*name).to_owned(), process[name].clone())).collect()
}

#[test]
fn a_plain_command_goes_as_by_the_shell() {
    let guest = Guest::start();
    script(&guest, "said", 0o755, "#!/bin/sh\necho \"$0 $# $*\"; exit 7\n");
    script(&guest, "unsaid", 0o755, "echo \"$0 $# $*\"; exit 8\n");
    script(&guest, "forbidden", 0o644, "echo never\n");
    script(&guest, "orphan", 0o755, "#!/nonexistent/interpreter\n");
    std::fs::create_dir(guest.path().join("folder")).unwrap();
    for command in [
        "/bin/true",
        "/bin/false",
        "ls -a /etc/",
        " \tls  -d\t/ ",
        "ls /nonexistent",
        "cat ./said",
        "head -c 3 said",
        "./said a  b=c --d=e,f",
        "./unsaid a b",
        "./forbidden",
        "./orphan",
        "./folder",
        "./nonexistent",
        "/nonexistent/program",
        "nonexistent-program a",
        "said",
        "sort --no-such-option",
    ] {
        let (plain, shell) = (guest.run(command), guest.run(&format!("{command};")));
        assert_eq!(seen(&plain), seen(&shell), "{command}");
        assert_eq!(plain["command"], command);
    }
}

/// Returns the variables of a process as the kernel has them, without those that shells count or
/// add.
fn environment(guest: &Guest, ask: &Value) -> Vec<String> {
    let process = guest.post("/process", ask).ok();
    let mut variables: Vec<String> =
        process["stdout"].as_str().unwrap().split('\0').map(str::to_owned).collect();
    variables.retain(|pair| !pair.starts_with("_=") && !pair.starts_with("SHLVL="));
    variables.sort();
    variables
}

#[test]
fn a_plain_command_finds_the_same_environment() {
    let guest = Guest::start_with(&[("GIVEN", "a b"), ("PWD", "/nonexistent")]);
    std::fs::create_dir(guest.path().join("sub")).unwrap();
    std::os::unix::fs::symlink("sub", guest.path().join("link")).unwrap();
    let link = guest.path().join("link");
    for more in [
        json!({}),
        json!({"OWN": "x", "GIVEN": "other"}),
        json!({"PWD": link}),
        json!({"PWD": "/"}),
    ] {
        let ask = |command: &str| json!({"command": command, "env": more, "workingDir": "link", "waitForCompletion": true});
        let plain = environment(&guest, &ask("cat /proc/self/environ"));
        assert_eq!(plain, environment(&guest, &ask("cat /proc/self/environ;")), "{more}");
    }
}

#[test]
fn programs_are_found_where_the_command_says() {
    let guest = Guest::start();
    std::fs::create_dir(guest.path().join("bin")).unwrap();
    script(&guest, "bin/own-program", 0o755, "#!/bin/sh\necho found\n");
    let ask = |path: String| {
        let ask =
            json!({"command": "own-program", "env": {"PATH": path}, "waitForCompletion": true});
        guest.post("/process", &ask).ok()["stdout"].clone()
    };
    assert_eq!(ask(format!("/usr/bin:{}/bin:/bin", guest.path().display())), "found\n");
    assert_eq!(ask("bin:/usr/bin:/bin".to_owned()), "found\n");
    assert_eq!(ask("/usr/bin:/bin".to_owned()), "");
}

/// Parses a set of signals as the kernel shows it.
fn signals(status: &str, name: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    u64::from_str_radix(line.trim_start_matches(':').trim(), 16).unwrap()
}

#[test]
fn a_process_inherits_no_signals_from_the_guest() {
    let guest = Guest::start();
    let own = || std::fs::read_to_string(format!("/proc/{}/status", guest.pid())).unwrap();
    // The signals that are reset in a new process before it executes the requested program.
    let set = |signals: &[u32]| signals.iter().fold(0, |set, signal| set | 1_u64 << (signal - 1));
    let restored = set(&[7, 11, 13, 2, 15, 17]);
    // The C library handles this one as soon as there is a second thread, and does nothing unless
    // one of the program's own threads has sent it.
    let of_the_c_library = set(&[33]);
    assert_eq!(signals(&own(), "SigCgt") & !(restored | of_the_c_library), 0);
    let process = guest.run("cat /proc/self/status");
    let status = process["stdout"].as_str().unwrap();
    assert_eq!(signals(status, "SigBlk"), 0);
    assert_eq!(signals(status, "SigIgn") & restored, 0);
    // The C library blocks them too, for as long as it makes a thread.
    until("its own are still blocked", || signals(&own(), "SigBlk") == 0);
}

#[test]
fn a_plain_command_that_is_started_again_is_the_same() {
    let guest = Guest::start();
    let ask = json!({
        "command": "ls /nonexistent", "restartOnFailure": true, "maxRestarts": 1, "waitForCompletion": true,
    });
    let process = guest.post("/process", &ask).ok();
    assert_eq!((&process["exitCode"], &process["restartCount"]), (&json!(2), &json!(1)));
    assert!(process["stderr"].as_str().unwrap().contains("restart 1 of 1"));
}
