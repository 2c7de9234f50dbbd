//! Runs commands, and checks what is reported about their ends.

use crate::common::{self, Guest};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::time::{Duration, Instant};

#[test]
fn exit_codes_and_signals_are_exact() {
    let guest = Guest::start();
    for code in [0, 1, 2, 42, 127, 255] {
        let process = guest.run(&format!("exit {code}"));
        assert_eq!(process["exitCode"], code);
        assert_eq!(process["status"], if code == 0 { "completed" } else { "failed" });
        assert_eq!(process["signal"], Value::Null);
    }
    let process = guest.run("kill -SEGV $$");
    assert_eq!((&process["exitCode"], &process["signal"]), (&json!(-1), &json!(11)));
    assert_eq!(process["status"], "failed");
}

#[test]
fn huge_pages_are_not_refused_for_workloads_because_the_server_refuses_them_for_itself() {
    // Applies to this process, which plays the server here, and to everything that it starts.
    rustix::thread::disable_transparent_huge_pages(true).unwrap();
    let guest = Guest::start();
    let process = guest.run("grep THP_enabled /proc/self/status");
    assert_eq!(process["stdout"], "THP_enabled:\t1\n");
}

#[test]
fn signals_that_the_server_ignores_are_not_ignored_by_workloads() {
    let guest = Guest::start_by(&["env", "--ignore-signal"], &[]);
    for signal in ["HUP", "INT", "QUIT", "PIPE", "TERM", "USR1", "TSTP"] {
        let process = guest.run(&format!("trap 'echo caught' {signal}; kill -{signal} $$; exit 3"));
        assert_eq!(
            (&process["stdout"], &process["exitCode"]),
            (&json!("caught\n"), &json!(3)),
            "{signal}"
        );
    }
}

#[test]
fn output_is_whole_and_apart() {
    let guest = Guest::start();
    let process = guest.run("echo out; echo err >&2; printf end");
    assert_eq!(process["stdout"], "out\nend");
    assert_eq!(process["stderr"], "err\n");
    assert_eq!(process["logs"], "out\nenderr\n");
    let logs = guest.get(&format!("/process/{}/logs", process["pid"].as_str().unwrap())).ok();
    assert_eq!(logs, json!({"logs": "out\nenderr\n", "stdout": "out\nend", "stderr": "err\n"}));
}

#[test]
fn large_output_shows_its_end_and_says_how_much_is_left_out() {
    let guest = Guest::start();
    let process = guest.run("yes 123456789 | head -c 5000000");
    assert_eq!(process["stdout"].as_str().unwrap().len(), 64 << 10);
    let logs = guest.get(&format!("/process/{}/logs", process["name"].as_str().unwrap())).ok();
    let text = logs["stdout"].as_str().unwrap();
    let (note, rest) = text.split_once('\n').unwrap();
    assert_eq!(note, format!("[{} earlier bytes are left out]", 5_000_000 - (4 << 20)));
    assert_eq!(rest.len(), 4 << 20);
}

#[test]
fn a_child_that_keeps_the_output_open_hangs_nobody_and_is_still_heard() {
    let guest = Guest::start();
    let begun = Instant::now();
    let process = guest.run("(while [ ! -e go ]; do sleep 0.02; done; echo late) & echo now");
    assert!(begun.elapsed() < Duration::from_secs(5));
    assert_eq!(process["stdout"], "now\n");
    assert_eq!(process["status"], "completed");
    std::fs::write(guest.path().join("go"), "").unwrap();
    let path = format!("/process/{}/logs", process["pid"].as_str().unwrap());
    guest.until(&path, |logs| logs["stdout"] == "now\nlate\n");
}

#[test]
fn a_child_that_prints_for_ever_hangs_nobody() {
    let guest = Guest::start();
    let process = guest.run("yes & echo $! > pid");
    assert_eq!(process["status"], "completed");
    guest.get("/health").ok();
    assert_eq!(guest.run("kill $(cat pid)")["exitCode"], 0);
}

#[test]
fn orphans_are_reaped() {
    let guest = Guest::start();
    guest.run("(sleep 0.01 & ) ; (true & ) ; true");
    let children = format!("/proc/{0}/task/{0}/children", guest.pid());
    let deadline = Instant::now() + Duration::from_secs(10);
    while !std::fs::read_to_string(&children).unwrap().trim().is_empty() {
        assert!(Instant::now() < deadline, "an orphan is left");
        std::thread::yield_now();
    }
}

#[test]
fn when_memory_runs_out_what_it_starts_goes_first() {
    let guest = Guest::start();
    let own = || std::fs::read_to_string(format!("/proc/{}/oom_score_adj", guest.pid())).unwrap();
    let before = own();
    let score = guest.run("cat /proc/self/oom_score_adj")["stdout"].clone();
    assert_eq!(score, "900\n");
    assert_eq!(own(), before);
    assert!(before.trim().parse::<i32>().unwrap() < 900, "{before}");
}

#[test]
fn names_belong_to_one_running_process_at_a_time() {
    let guest = Guest::start();
    let ask = json!({"command": "sleep 100", "name": "a/b"});
    let first = guest.post("/process", &ask).ok();
    assert_eq!(first["status"], "running");
    assert_eq!(first["exitCode"], 0);
    assert_eq!(first["completedAt"], "");
    assert!(first["startedAt"].as_str().unwrap().ends_with(" GMT"), "{}", first["startedAt"]);
    guest.post("/process", &ask).refused(400);
    assert_eq!(guest.get("/process/a%2Fb").ok()["pid"], first["pid"]);
    guest.delete("/process/a%2Fb/kill").ok();
    let second = guest.post("/process", &ask).ok();
    assert_eq!(guest.get("/process/a%2Fb").ok()["pid"], second["pid"]);
    let list = guest.get("/process").ok();
    assert_eq!(list.as_array().unwrap().len(), 2);
    assert_eq!(list[1]["completedAt"], Value::Null);
    guest.get("/process/nobody").refused(404);
}

#[test]
fn a_stop_reaches_the_whole_group_and_is_told_apart_from_a_kill() {
    let guest = Guest::start();
    guest
        .post("/process", &json!({"command": "sleep 100 & sleep 100; wait", "name": "stopped"}))
        .ok();
    assert_eq!(guest.delete("/process/stopped").ok()["message"], "Process stopped successfully");
    assert_eq!(guest.get("/process/stopped").ok()["status"], "stopped");
    guest.delete("/process/stopped").refused(404);
    guest
        .post(
            "/process",
            &json!({"command": "trap '' TERM; while :; do sleep 1; done", "name": "killed"}),
        )
        .ok();
    assert_eq!(guest.delete("/process/killed/kill").ok()["message"], "Process killed successfully");
    let process = guest.get("/process/killed").ok();
    assert_eq!((&process["status"], &process["exitCode"]), (&json!("killed"), &json!(-1)));
    guest.delete("/process/none").refused(404);
    guest.delete("/process/none/kill").refused(404);
}

#[test]
fn a_time_out_bounds_the_wait_and_not_the_process() {
    let guest = Guest::start();
    let ask =
        json!({"command": "sleep 100", "name": "slow", "waitForCompletion": true, "timeout": 1});
    assert_eq!(guest.post("/process", &ask).refused(422), "process timed out after 1 seconds");
    assert_eq!(guest.get("/process/slow").ok()["status"], "running");
}

#[test]
fn a_time_out_without_end_starts_a_process_that_is_known() {
    let guest = Guest::start();
    for (name, keeps_alive) in [("waited", false), ("alive", true)] {
        let body = json!({
            "command": "echo hello", "name": name, "keepAlive": keeps_alive,
            "waitForCompletion": true, "timeout": i64::MAX,
        });
        assert_eq!(guest.post("/process", &body).ok()["stdout"], "hello\n");
        guest.get(&format!("/process/{name}")).ok();
    }
    let body = json!({"command": "echo hello", "name": "streamed", "timeout": i64::MAX});
    assert!(stream(&guest, &body).into_response().text().contains("hello"));
    guest.get("/process/streamed").ok();
}

#[test]
fn the_longest_command_that_is_accepted_is_one_that_runs() {
    let guest = Guest::start();
    let longest = (128 << 10) - 1;
    let command = |length: usize| format!(": ; {}", "#".repeat(length - 4));
    let run = |length| {
        guest.post("/process", &json!({"command": command(length), "waitForCompletion": true}))
    };
    assert_eq!(run(longest).ok()["exitCode"], 0);
    run(longest + 1).refused(400);
}

#[test]
fn with_keep_alive_a_time_out_ends_the_process() {
    let guest = Guest::start();
    let ask =
        json!({"command": "sleep 100", "keepAlive": true, "waitForCompletion": true, "timeout": 1});
    let process = guest.post("/process", &ask).ok();
    assert_eq!((&process["status"], &process["keepAlive"]), (&json!("killed"), &json!(true)));
    let refusing = Guest::start_with(&[("BL_DISABLE_KEEPALIVE", "true")]);
    refusing.post("/process", &ask).refused(400);
}

#[test]
fn what_fails_is_restarted_as_often_as_asked() {
    let guest = Guest::start();
    let ask = json!({
        "command": "echo x >> runs; exit 3", "restartOnFailure": true, "maxRestarts": 1, "waitForCompletion": true,
    });
    let process = guest.post("/process", &ask).ok();
    assert_eq!((&process["exitCode"], &process["restartCount"]), (&json!(3), &json!(1)));
    assert_eq!(std::fs::read_to_string(guest.path().join("runs")).unwrap(), "x\nx\n");
    assert!(process["logs"].as_str().unwrap().contains("restart 1 of 1"));
    let pid = process["pid"].as_str().unwrap();
    assert_eq!(guest.get(&format!("/process/{pid}")).ok()["status"], "failed");
}

#[test]
fn a_stop_between_restarts_is_the_end() {
    let guest = Guest::start();
    let ask = json!({"command": "exit 1", "restartOnFailure": true, "name": "again"});
    guest.post("/process", &ask).ok();
    guest.until("/process/again", |process| process["restartCount"] == 1);
    guest.delete("/process/again").ok();
    assert_eq!(guest.get("/process/again").ok()["status"], "stopped");
}

#[test]
fn a_command_runs_where_and_with_what_was_asked() {
    let guest = Guest::start();
    std::fs::create_dir(guest.path().join("sub")).unwrap();
    let ask = json!({
        "command": "pwd; echo $COLOUR", "workingDir": "sub", "env": {"COLOUR": "red"}, "waitForCompletion": true,
    });
    let process = guest.post("/process", &ask).ok();
    let expect = format!("{}/sub\nred\n", guest.path().canonicalize().unwrap().display());
    assert_eq!(process["stdout"], expect);
    guest.post("/process", &json!({"command": "true", "workingDir": "missing"})).refused(422);
    guest.post("/process", &json!({"command": " "})).refused(400);
    guest.post("/process", &json!({"command": "true", "env": {"A=B": "x"}})).refused(400);
    guest
        .post(
            "/process",
            &json!({"command": "true", "env": null, "waitForPorts": null, "name": null}),
        )
        .ok();
    let shelled = Guest::start_with(&[("SHELL", "/nonexistent/shell")]);
    shelled.post("/process", &json!({"command": "true"})).refused(422);
}

pub(crate) fn stream(guest: &Guest, body: &Value) -> common::Answer {
    guest.open("POST", "/process", &[("Accept", "text/event-stream")], body.to_string().as_bytes())
}

#[test]
fn a_streamed_run_ends_with_its_result() {
    let guest = Guest::start();
    let answer =
        stream(&guest, &json!({"command": "echo out; echo err >&2; exit 5", "name": "streamed"}));
    assert_eq!(answer.status, 200);
    let response = answer.into_response();
    assert_eq!(response.header("content-type"), Some("application/x-ndjson"));
    assert_eq!(response.header("x-process-name"), Some("streamed"));
    let lines: Vec<Value> =
        response.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |kind: &str| -> String {
        lines
            .iter()
            .filter(|line| line["type"] == kind)
            .filter_map(|line| line["data"].as_str())
            .collect()
    };
    assert_eq!((of("stdout"), of("stderr")), ("out\n".into(), "err\n".into()));
    let last = lines.last().unwrap();
    assert_eq!(last["type"], "result");
    let process: Value = serde_json::from_str(last["data"].as_str().unwrap()).unwrap();
    assert_eq!((&process["exitCode"], &process["status"]), (&json!(5), &json!("failed")));
}

#[test]
fn a_streamed_run_tells_of_its_time_out() {
    let guest = Guest::start();
    let text = stream(&guest, &json!({"command": "while :; do echo a; done", "timeout": 1}))
        .into_response()
        .text();
    let last: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    assert_eq!(last, json!({"type": "error", "data": "process timed out after 1 seconds"}));
    assert_eq!(stream(&guest, &json!({"command": ""})).into_response().status, 400);
}

#[test]
fn bytes_that_are_no_text_come_exact_in_base64() {
    let guest = Guest::start();
    let process = guest.run("printf '\\377\\000\\303'");
    let path = format!("/process/{}/logs/stream?encoding=base64", process["pid"].as_str().unwrap());
    let text = guest.send("GET", &path, &[("Accept", "application/x-ndjson")], b"").text();
    let line: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    assert_eq!(line["data"], "/wDD");
}

#[test]
fn the_text_stream_names_the_stream_of_every_line() {
    let guest = Guest::start();
    let process = guest.run("printf 'one\\ntwo\\nthr'; printf 'ee' ");
    let path = format!("/process/{}/logs/stream", process["pid"].as_str().unwrap());
    let response = guest.get(&path);
    assert_eq!(response.header("content-type"), Some("text/plain; charset=utf-8"));
    assert_eq!(response.text(), "stdout:one\nstdout:two\nstdout:three\n");
    assert_eq!(guest.get(&format!("{path}?offset=4")).text(), "stdout:two\nstdout:three\n");
    assert_eq!(guest.get(&format!("{path}?offset=13")).text(), "");
    guest.get(&format!("{path}?offset=14")).refused(400);
    guest.get("/process/none/logs/stream").refused(404);
    guest.get(&format!("{path}?offset=x")).refused(400);
}

#[test]
fn a_live_stream_is_the_same_as_its_replay() {
    let guest = Guest::start();
    guest
        .post("/process", &json!({"command": "echo a; until [ -e go ]; do sleep 0.02; done; echo b", "name": "live"}))
        .ok();
    let mut reader = BufReader::new(guest.open("GET", "/process/live/logs/stream", &[], b""));
    let mut live = String::new();
    reader.read_line(&mut live).unwrap();
    assert_eq!(live, "stdout:a\n");
    std::fs::write(guest.path().join("go"), "").unwrap();
    reader.read_line(&mut live).unwrap();
    assert_eq!(live, "stdout:a\nstdout:b\n");
    assert_eq!(guest.get("/process/live/logs/stream").text(), live);
}

#[test]
fn output_without_end_is_bounded_and_the_others_are_served() {
    let guest = Guest::start_with(&[("SANDBOX_DISABLE_PROCESS_LOGGING", "true")]);
    guest.post("/process", &json!({"command": "yes", "name": "endless"})).ok();
    // After a while its position is older than what is stored, and the stream says so.
    let lost = |_: &Value| {
        let mut line = String::new();
        BufReader::new(guest.open("GET", "/process/endless/logs/stream", &[], b""))
            .read_line(&mut line)
            .unwrap();
        line.contains("is no longer kept")
    };
    guest.until("/process/endless", lost);
    assert_eq!(guest.run("echo hi")["stdout"], "hi\n");
}

#[test]
fn commands_are_written_as_for_the_shells_of_other_images() {
    let guest = Guest::start();
    let command = "source /etc/profile; function f() { echo \"f $1\"; }; if [[ a == a* && -n x ]]; then f yes; fi";
    let process = guest.run(command);
    assert_eq!(
        (&process["stdout"], &process["exitCode"]),
        (&json!("f yes\n"), &json!(0)),
        "{process}"
    );
    // The image's own programs, not those built into the shell.
    assert_eq!(
        guest.run("command -v ls grep")["stdout"]
            .as_str()
            .unwrap()
            .lines()
            .filter(|at| at.starts_with('/'))
            .count(),
        2
    );
}
