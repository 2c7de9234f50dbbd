//! Settings of asynchronous calls.

use crate::place::{TASK, eventually};
use crate::settings::{end, start};
use crate::settings_served::deploy;
use crate::tools::{printed, until};
use crate::web::Web;
use serde_json::json;

/// `work` answers after a second, and prints when it begins and ends. `held` answers once somebody
/// has asked for `go`.
const WORKS: &str = r##"mkdir -p /srv/cgi-bin; cd /srv/cgi-bin
head='Content-Type: text/plain\r\n\r\n'
printf "#!/bin/sh\necho begin >&2; sleep 1; echo end >&2; printf '$head'" > work
printf "#!/bin/sh\nuntil [ -e /tmp/go ]; do sleep 0.1; done; echo end >&2; printf '$head'" > held
printf "#!/bin/sh\ntouch /tmp/go; printf '$head'" > go
chmod 755 *; exec httpd -f -p $PORT -h /srv"##;

#[test]
fn calls_that_nobody_waits_for_are_made_as_many_at_once_as_the_settings_say() {
    for setting in ["call_slots = 1", "workspace_calls_max = 1"] {
        let here = start(&format!("[jobs]\n{setting}"));
        let client = &here.2;
        deploy(client, "agents", "a", WORKS, &json!({"maxScale": 1}));
        until(client, "a", "DEPLOYED");
        for _ in 0..3 {
            client.done("POST", "/main/agents/a/cgi-bin/work?async=true", Some(&json!({})));
        }
        eventually("all are made", || printed(client, "a").matches("end").count() == 3);
        let all = printed(client, "a");
        let steps: Vec<_> = all.lines().filter(|line| ["begin", "end"].contains(line)).collect();
        assert_eq!(steps, ["begin", "end"].repeat(3), "{setting}");
        end(here);
    }
}

#[test]
fn strangers_may_leave_as_many_calls_open_as_the_settings_say() {
    let here = start("[jobs]\nopen_public_max = 1\ncall_slots = 1");
    let client = &here.2;
    let envs = json!([{"name": "COMMAND", "value": WORKS}, {"name": "PATH", "value": "/bin"}]);
    let runtime = json!({"image": TASK, "memory": 128, "maxScale": 1, "envs": envs});
    let body = json!({"metadata": {"name": "a"}, "spec": {"runtime": runtime, "public": true}});
    client.done("POST", "/v0/agents", Some(&body));
    until(client, "a", "DEPLOYED");
    let (web, path) = (Web::new(client), "/main/agents/a/cgi-bin/held?async=true");
    let ask = || web.ask("POST", path, &[], "{}").unwrap().status;
    assert_eq!([ask(), ask()], [200, 429]);
    // Callers with a key have the rest of the capacity.
    client.done("POST", path, Some(&json!({})));
    client.done("GET", "/main/agents/a/cgi-bin/go", None);
    eventually("both are made", || printed(client, "a").matches("end").count() == 2);
    eventually("there is room for strangers", || ask() == 200);
    end(here);
}

/// Programs that end without an answer, and print their names.
const CRASHES: &str = r##"mkdir -p /srv/cgi-bin; cd /srv/cgi-bin
for name in once index.cgi; do printf "#!/bin/sh\necho $name >&2; kill -9 \$PPID" > $name; done
head='Content-Type: text/plain\r\n\r\n'
printf "#!/bin/sh\necho end >&2; printf '$head'" > work
chmod 755 *; exec httpd -f -p $PORT -h /srv"##;

#[test]
fn a_call_that_a_program_crashes_on_is_made_again_as_often_as_its_trigger_says() {
    let here = start("[jobs]\nbackoff_first = \"10ms\"\nbackoff_max = \"10ms\"");
    let client = &here.2;
    let envs = json!([{"name": "COMMAND", "value": CRASHES}, {"name": "PATH", "value": "/bin"}]);
    let runtime = json!({"image": TASK, "memory": 128, "maxScale": 1, "envs": envs});
    let retried = json!({"path": "retried", "retry": 2});
    let triggers = json!([{"id": "t", "type": "http-async", "configuration": retried}]);
    let spec = json!({"runtime": runtime, "triggers": triggers});
    client.done("POST", "/v0/agents", Some(&json!({"metadata": {"name": "a"}, "spec": spec})));
    until(client, "a", "DEPLOYED");
    let count = |word: &str| printed(client, "a").lines().filter(|line| *line == word).count();
    client.done("POST", "/main/agents/a/cgi-bin/once?async=true", Some(&json!({})));
    client.done("POST", "/main/retried", Some(&json!({})));
    eventually("it is made three times", || count("index.cgi") >= 3);
    client.done("POST", "/main/agents/a/cgi-bin/work?async=true", Some(&json!({})));
    eventually("a later call is made", || count("end") == 1);
    assert_eq!((count("once"), count("index.cgi")), (1, 3));
    end(here);
}
