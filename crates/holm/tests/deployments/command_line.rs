//! A user with a folder and the command line, against the real server.

use crate::place::{Client, Place, TASK};
use crate::tools::{agent, clear};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Returns a command line in a folder.
fn holm(client: &Client, folder: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_holm"));
    let path = std::env::var_os("PATH").unwrap_or_default();
    command.env_clear().env("HOME", "/nowhere").env("PATH", path).env("HOLM_URL", &client.base);
    command.env("HOLM_API_KEY", &client.key).env("HOLM_WORKSPACE", "main");
    command.args(words).current_dir(folder).stdin(Stdio::null());
    command
}

struct Said {
    out: String,
    noted: String,
}

#[track_caller]
fn ends(command: &mut Command, exit: i32) -> Said {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let said =
        Said { out: String::from_utf8(stdout).unwrap(), noted: String::from_utf8(stderr).unwrap() };
    assert_eq!(status.code(), Some(exit), "said: {}\nnoted: {}", said.out, said.noted);
    // Output that does not go to a terminal has no control sequences.
    assert!(!said.out.contains('\u{1b}') && !said.noted.contains('\u{1b}'), "{}", said.noted);
    said
}

/// Writes a project whose program answers with a word and the request's body.
fn project(folder: &Path, word: &str) {
    let manifest = "name = \"helper\"\ntype = \"agent\"\n[runtime]\nmemory = 128\n";
    let answer = "#!/bin/sh\nprintf 'Content-Type: text/plain\\r\\n\\r\\n'\n";
    let answer = format!("{answer}echo {word} $(head -c \"${{CONTENT_LENGTH:-0}}\")\n");
    let dockerfile = format!(
        "FROM {TASK}\nENV PATH=/bin\nCOPY answer /srv/cgi-bin/index.cgi\n\
         RUN chmod 755 /srv/cgi-bin/index.cgi && echo {word} is made\n\
         ENTRYPOINT [\"/bin/sh\", \"-c\", \"echo {word} listens; exec httpd -f -p $PORT -h /srv\"]\n"
    );
    for (name, text) in
        [("blaxel.toml", manifest), ("answer", &answer), ("Dockerfile", &dockerfile)]
    {
        fs::write(folder.join(name), text).unwrap();
    }
}

#[test]
fn a_folder_is_deployed_changed_rolled_back_and_deleted() {
    let mut place = Place::new("15s");
    let (server, client) = place.start();
    let here = tempfile::tempdir().unwrap();
    let run = |words: &[&str], exit: i32| ends(&mut holm(&client, here.path(), words), exit);
    let answer = || run(&["run", "agent", "helper", "--data", "{}"], 0).out;

    project(here.path(), "red");
    let said = run(&["deploy"], 0);
    assert_eq!(said.out, format!("{}/main/agents/helper\n", client.base));
    for sign in ["3 files to upload", "BUILDING", "red is made", "deployed agent helper"] {
        assert!(said.noted.contains(sign), "{sign}: {}", said.noted);
    }
    assert_eq!(answer(), "red {}\n");
    let chat = run(&["chat", "helper", "--message", "hi"], 0).out;
    assert!(chat.contains("red") && chat.contains("hi"), "{chat}");

    project(here.path(), "green");
    let deployed: Value = serde_json::from_str(&run(&["deploy", "-o", "json"], 0).out).unwrap();
    assert_eq!(deployed[0]["status"], "DEPLOYED");
    assert_eq!(answer(), "green {}\n");
    let revisions = || -> Vec<Value> {
        let listed = run(&["revisions", "agent", "helper", "-o", "json"], 0).out;
        serde_json::from_str(&listed).unwrap()
    };
    assert_eq!(revisions().len(), 2);
    let back = run(&["rollback", "agent", "helper", "-o", "json"], 0);
    let back: Value = serde_json::from_str(&back.out).unwrap();
    assert_eq!(answer(), "red {}\n");
    let serves = revisions().into_iter().find(|revision| revision["active"] == true).unwrap();
    assert_eq!(back[0]["spec"]["revision"]["active"], serves["id"]);

    // A failed build says why, and leaves the serving version alone.
    let dockerfile = fs::read_to_string(here.path().join("Dockerfile")).unwrap();
    fs::write(here.path().join("Dockerfile"), dockerfile.clone() + "RUN echo oops; exit 3\n")
        .unwrap();
    let said = run(&["deploy"], 1);
    assert!(said.noted.contains("oops") && said.noted.contains("exit code 3"), "{}", said.noted);
    fs::write(here.path().join("Dockerfile"), "FROM holm/base\n").unwrap();
    let said = run(&["deploy"], 1);
    assert!(said.noted.contains("`holm image make holm/base`"), "{}", said.noted);
    assert_eq!(answer(), "red {}\n");

    let logs = run(&["logs", "agent", "helper", "--raw"], 0).out;
    for line in ["red is made", "red listens", "green is made", "green listens"] {
        assert!(logs.lines().any(|it| it == line), "{line}: {logs}");
    }
    let logs = run(&["logs", "agent", "helper", "--json", "--search", "red listens"], 0).out;
    let lines: Vec<Value> = logs.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let message = |line: &Value| line["message"].as_str().unwrap().to_owned();
    assert!(lines.iter().any(|line| message(line) == "red listens"), "{logs}");
    assert!(lines.iter().all(|line| message(line).contains("red listens")), "{logs}");

    run(&["delete", "agent", "helper"], 0);
    run(&["run", "agent", "helper"], 6);
    run(&["delete", "agent", "helper"], 6);
    place.clear(server, &client);
}

#[test]
fn whoever_may_not_deploy_is_told_why() {
    let mut place = Place::new("15s");
    let (server, client) = place.start();
    let here = tempfile::tempdir().unwrap();
    project(here.path(), "red");
    let with = |name: &str, value: &str, exit: i32, why: &str| {
        for words in [["deploy"].as_slice(), &["push"], &["revisions", "agent", "helper"]] {
            let said = ends(holm(&client, here.path(), words).env(name, value), exit);
            assert!(said.noted.contains(why) && said.out.is_empty(), "{words:?}: {}", said.noted);
        }
    };
    with("HOLM_API_KEY", "hk_wrong", 4, "they come from HOLM_API_KEY");
    with("HOLM_WORKSPACE", "elsewhere", 5, "holm workspaces NAME");
    with("HOLM_URL", "http://127.0.0.1:1", 8, "check that the server runs");
    with("HOLM_URL", "127.0.0.1:1", 2, "is not an address");
    assert_eq!(client.ask("GET", "/v0/agents/helper", None).unwrap().0, 404);
    place.clear(server, &client);
}

#[test]
fn a_deployment_goes_on_without_who_began_it() {
    let mut place = Place::new("15s");
    let (server, client) = place.start();
    let here = tempfile::tempdir().unwrap();
    project(here.path(), "red");
    let dockerfile = fs::read_to_string(here.path().join("Dockerfile")).unwrap();
    let slow = dockerfile.replace("RUN ", "RUN echo begun && sleep 1000 && ");
    fs::write(here.path().join("Dockerfile"), slow).unwrap();
    let mut command = holm(&client, here.path(), &["deploy"]);
    let mut running = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut noted = BufReader::new(running.stderr.take().unwrap());
    let mut text = String::new();
    while !text.contains("\nbegun\n") {
        assert!(noted.read_line(&mut text).unwrap() > 0, "{text}");
    }
    let killed = Command::new("kill").args(["-INT", &running.id().to_string()]).status();
    assert!(killed.unwrap().success());
    assert_eq!(running.wait().unwrap().code(), Some(130));
    std::io::Read::read_to_string(&mut noted, &mut text).unwrap();
    assert!(text.contains("goes on; `holm get agent helper`"), "{text}");
    assert_eq!(agent(&client, "helper")["status"], "BUILDING");
    clear(&client);
    place.clear(server, &client);
}
