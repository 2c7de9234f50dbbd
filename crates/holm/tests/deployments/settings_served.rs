//! Settings for serving requests.

use crate::place::{Client, Place, TASK, eventually};
use crate::settings::{end, start};
use crate::tools::{failure, printed, until, until_printed};
use serde_json::{Value, json};
use std::thread;
use std::time::{Duration, Instant};

/// Programs that answer requests, each under its name.
const ANSWERS: &str = r##"mkdir -p /srv/cgi-bin; cd /srv/cgi-bin
head='Content-Type: text/plain\r\n\r\n'
printf "#!/bin/sh\nsleep 2; printf '$head'" > slow
printf "#!/bin/sh\necho silent >&2; sleep 1000" > silent
printf "#!/bin/sh\nprintf '$head'; while echo drip; do sleep 0.1; done" > drip
printf "#!/bin/sh\nprintf \"Mcp-Session-Id: \$(cat /proc/sys/kernel/random/uuid)\\\\r\\\\n$head\"" > session
chmod 755 *
echo up; exec httpd -f -p $PORT -h /srv"##;

/// Creates or replaces a deployment that runs a command. `runtime` overrides the defaults.
pub(crate) fn deploy(client: &Client, kind: &str, name: &str, command: &str, runtime: &Value) {
    let mut all = json!({"image": TASK, "memory": 128, "envs": [
        {"name": "COMMAND", "value": command}, {"name": "PATH", "value": "/bin"}]});
    all.as_object_mut().unwrap().extend(runtime.as_object().unwrap().clone());
    let body = json!({"metadata": {"name": name}, "spec": {"runtime": all}});
    let path = format!("/v0/{kind}/{name}");
    if client.ask("GET", &path, None).unwrap().0 == 200 {
        client.done("PUT", &path, Some(&body));
    } else {
        client.done("POST", &format!("/v0/{kind}"), Some(&body));
    }
}

/// Sends `count` requests at once. Returns the statuses, and the highest number of instances seen
/// meanwhile.
fn crowd(place: &Place, client: &Client, path: &str, count: usize) -> (Vec<u16>, usize) {
    let callers: Vec<_> = (0..count)
        .map(|_| {
            let (client, path) = (client.clone(), path.to_owned());
            thread::spawn(move || client.ask("GET", &path, None).map_or(0, |(status, _)| status))
        })
        .collect();
    let mut most = 0;
    while !callers.iter().all(thread::JoinHandle::is_finished) {
        most = most.max(place.groups().len());
        thread::sleep(Duration::from_millis(20));
    }
    (callers.into_iter().map(|caller| caller.join().unwrap()).collect(), most)
}

#[test]
fn replicas_are_as_many_as_the_settings_say() {
    let here = start(
        "[deployments]\nconcurrency = 1\nreplicas = 1\nreplicas_max = 2\nextra_idle = \"1s\"\nlast_idle = \"2s\"",
    );
    let (place, _, client) = &here;
    deploy(client, "agents", "one", ANSWERS, &json!({}));
    until(client, "one", "DEPLOYED");
    let (statuses, most) = crowd(place, client, "/main/agents/one/cgi-bin/slow", 3);
    assert_eq!((statuses, most), (vec![200; 3], 1));
    eventually("the last replica ends", || place.groups().is_empty());

    deploy(client, "agents", "more", ANSWERS, &json!({"maxScale": 50}));
    until(client, "more", "DEPLOYED");
    let (statuses, most) = crowd(place, client, "/main/agents/more/cgi-bin/slow", 6);
    assert_eq!((statuses, most), (vec![200; 6], 2));
    // The extra one ends first, and the last one later.
    eventually("the extra replica ends", || place.groups().len() == 1);
    eventually("the last replica ends", || place.groups().is_empty());
    end(here);
}

#[test]
fn replicas_start_together_as_the_settings_say() {
    let here = start("[deployments]\nstarting_max = 1");
    let client = &here.2;
    let command = format!("echo starting; sleep 1; {ANSWERS}");
    deploy(client, "agents", "a", &command, &json!({"minScale": 2, "maxScale": 2}));
    eventually("both are up", || printed(client, "a").matches("up").count() == 2);
    assert_eq!(printed(client, "a"), "starting\nup\nstarting\nup");
    end(here);
}

#[test]
fn those_who_wait_for_a_replica_are_as_many_as_the_settings_say() {
    let here = start("[gateway]\nwaiting_max = 1\n[deployments]\nlast_idle = \"1s\"");
    let (place, _, client) = &here;
    deploy(client, "agents", "a", &format!("sleep 2; {ANSWERS}"), &json!({"maxScale": 1}));
    until(client, "a", "DEPLOYED");
    eventually("the last replica ends", || place.groups().is_empty());
    let (mut statuses, _) = crowd(place, client, "/main/agents/a/cgi-bin/slow", 3);
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 429, 429]);
    end(here);
}

#[test]
fn a_replica_gets_as_long_to_start_to_pause_and_to_end_as_the_settings_say() {
    let here = start(
        "[deployments]\nstart_timeout = \"15s\"\ndrain_timeout = \"1s\"\nrestart_pause = \"100ms\"\nrestart_pause_max = \"200ms\"",
    );
    let client = &here.2;
    deploy(client, "agents", "deaf", "sleep 1000", &json!({}));
    let why = failure(client, "deaf");
    assert!(why.contains("15 s"), "{why}");

    let crashes = "echo up; httpd -p $PORT -h /; sleep 1; exit 1";
    deploy(client, "agents", "crashes", crashes, &json!({"minScale": 1}));
    // With the default pauses, the eighth start would come after minutes.
    eventually("it is started again and again", || {
        printed(client, "crashes").matches("up").count() >= 8
    });

    deploy(client, "agents", "busy", ANSWERS, &json!({}));
    until(client, "busy", "DEPLOYED");
    let (caller, begun) = (client.clone(), Instant::now());
    let asked = thread::spawn(move || caller.ask("GET", "/main/agents/busy/cgi-bin/silent", None));
    until_printed(client, "busy", "silent");
    let command = format!("echo other; {ANSWERS}");
    deploy(client, "agents", "busy", &command, &json!({}));
    let answer = asked.join().unwrap();
    assert!(begun.elapsed() < Duration::from_secs(50), "{answer:?}");
    assert!(answer.is_none_or(|(status, _)| status >= 500));
    end(here);
}

#[test]
fn an_exchange_with_an_agent_is_as_long_as_the_settings_say() {
    let ask = |setting: &str, program: &str| {
        let here = start(&format!("[gateway]\n{setting}"));
        let client = &here.2;
        deploy(client, "agents", "a", ANSWERS, &json!({}));
        until(client, "a", "DEPLOYED");
        let begun = Instant::now();
        let answer = client.ask("GET", &format!("/main/agents/a/cgi-bin/{program}"), None);
        let took = begun.elapsed();
        end(here);
        (answer, took)
    };
    let (answer, took) = ask("agent_idle = \"1s\"", "silent");
    let (status, _) = answer.unwrap();
    assert!(status == 504 && took < Duration::from_secs(30), "{status} {took:?}");
    let (broken, took) = ask("agent_time = \"5s\"", "drip");
    assert!(broken.is_none(), "{broken:?}");
    assert!((5..30).contains(&took.as_secs()), "{took:?}");
}

#[test]
fn sessions_are_as_many_as_the_settings_say() {
    for setting in ["sessions_max = 2", "sessions_workspace_max = 2"] {
        let here = start(&format!("[gateway]\n{setting}"));
        let client = &here.2;
        deploy(client, "functions", "tools", ANSWERS, &json!({}));
        eventually("it serves", || {
            client.done("GET", "/v0/functions/tools", None)["status"] == "DEPLOYED"
        });
        for _ in 0..5 {
            client.done("GET", "/main/functions/tools/cgi-bin/session", None);
        }
        let metrics = client.done("GET", "/metrics", None);
        let line = r#"holm_admission_held{resource="sessions of MCP servers"} 2"#;
        assert!(metrics.as_str().unwrap().contains(line), "{metrics}");
        end(here);
    }
}
