//! Deployments against a fake server that answers as the API specifies.

use crate::common::{Server, text, write};
use crate::pretend::{Answer, Asked, Pretend};
use serde_json::{Value, json};
use std::fs;
use std::process::{Command, Stdio};

fn project(files: &[(&str, &str)]) -> tempfile::TempDir {
    let place = tempfile::tempdir().unwrap();
    for (name, content) in files {
        write(place.path(), name, content);
    }
    place
}

fn agent(status: &str) -> Value {
    json!({"metadata": {"name": "helper", "workspace": "main", "url": "http://run/main/agents/helper"},
        "spec": {"runtime": {"image": "agent/helper:1"}}, "status": status,
        "events": [{"status": "FAILED", "message": "RUN make: exit code 2"}]})
}

/// Returns a server with an existing agent whose build goes through these statuses, and stays at
/// the last. The first upload is refused.
fn server(statuses: &'static [&'static str]) -> Pretend {
    server_of(statuses, "c")
}

/// Like [`server`]. The build makes the revision `c`, and `serving` serves in the end.
fn server_of(statuses: &'static [&'static str], serving: &'static str) -> Pretend {
    let (mut uploads, mut looks) = (0, 0);
    Pretend::start(move |url, asked| {
        let path = asked.path.split('?').next().unwrap();
        match (asked.method.as_str(), path) {
            ("PUT", "/v0/agents/helper") => Answer::json(&agent("UPLOADING"))
                .with("X-Blaxel-Upload-Url", format!("{url}/up/s3cret-{uploads}")),
            ("PUT", _) => {
                uploads += 1;
                let archive = Answer::json(&json!({}));
                if uploads == 1 { Answer::refuse(503) } else { archive }
            }
            ("GET", "/v0/agents/helper") if uploads < 2 => Answer::json(&agent("DEPLOYED")),
            ("GET", "/v0/agents/helper") => {
                looks += 1;
                let at = (looks - 1).min(statuses.len() - 1);
                let mut agent = agent(statuses[at]);
                agent["spec"]["revision"] = json!({"active": serving});
                Answer::json(&agent)
            }
            ("GET", "/v0/agents/helper/revisions") => {
                let newest = if uploads < 2 { "b" } else { "c" };
                Answer::json(&json!([{"id": newest}, {"id": "a"}]))
            }
            ("GET", "/v0/observability/logs") => {
                let line = json!({"timestamp": "2026-04-16T09:30:00Z", "message": "STEP 1", "severity": 9});
                let logs = if looks > 0 { vec![line] } else { vec![] };
                Answer::json(&json!({"helper": {"logs": logs, "totalCount": logs.len()}}))
            }
            _ => Answer::refuse(404),
        }
    })
}

fn of<'a>(asked: &'a [Asked], method: &str, path: &str) -> Vec<&'a Asked> {
    asked.iter().filter(|it| it.method == method && it.path.starts_with(path)).collect()
}

#[test]
fn a_project_is_uploaded_built_and_waited_for() {
    let pretend = server(&["DEPLOYED", "BUILDING", "BUILDING", "DEPLOYING", "DEPLOYED"]);
    let files = [
        (
            "blaxel.toml",
            "name = \"helper\"\ntype = \"agent\"\n[env]\nMODE = \"fast\"\n[runtime]\ntimeout = \"2m\"",
        ),
        ("main.py", "print(1)"),
        (".env", "TOKEN=t0ken"),
    ];
    let place = project(&files);
    let deploy = ["deploy", "--env-file", ".env", "--secrets", "KEY", "--yes"];
    let output = pretend.cli(place.path(), &deploy).env("KEY", "k3y").output().unwrap();
    let told = text(&output, 0);
    assert!(told.starts_with("http://run/main/agents/helper\n"), "{told}");
    for line in ["BUILDING\n", "STEP 1\n", "trying again", "deployed agent helper"] {
        assert!(told.contains(line), "{line}: {told}");
    }
    // Log lines are shown once, however often they are read, and no secret is shown.
    assert_eq!(told.matches("STEP 1").count(), 1);
    assert!(!["s3cret", "t0ken", "k3y"].iter().any(|secret| told.contains(secret)), "{told}");

    let asked = pretend.asked();
    let applied = of(&asked, "PUT", "/v0/agents/helper");
    assert_eq!(applied.len(), 2, "each try asks for another address");
    assert_eq!(applied[0].path, "/v0/agents/helper?upload=true");
    let body = applied[0].json();
    assert_eq!(body["metadata"]["labels"]["x-blaxel-auto-generated"], "true");
    assert_eq!(body["spec"]["runtime"]["timeout"], 120);
    let envs = body["spec"]["runtime"]["envs"].as_array().unwrap();
    assert!(envs.contains(&json!({"name": "TOKEN", "value": "t0ken", "secret": true})), "{envs:?}");
    assert!(envs.contains(&json!({"name": "MODE", "value": "fast"})), "{envs:?}");

    let uploads = of(&asked, "PUT", "/up/");
    assert_eq!((uploads.len(), uploads[1].path.as_str()), (2, "/up/s3cret-1"));
    let upload = uploads[1];
    assert_eq!(upload.header("content-type"), Some("application/zip"));
    assert_eq!(upload.header("authorization"), None, "the address is the credential");
    let has = |text: &[u8]| upload.body.windows(text.len()).any(|window| window == text);
    assert!(upload.body.starts_with(b"PK\x03\x04") && has(b"main.py") && !has(b".env"));
}

#[test]
fn a_new_version_that_waits_for_a_rollback_is_not_said_to_serve() {
    let pretend = server_of(&["BUILDING", "BUILDING", "DEPLOYING", "DEPLOYED"], "a");
    let place = project(&[("blaxel.toml", "name = \"helper\"\ntype = \"agent\""), ("a", "")]);
    let told = text(&pretend.cli(place.path(), &["deploy", "-y"]).output().unwrap(), 0);
    let said = "agent helper is built as revision c, but a serves; \
                `holm rollback agent helper c` makes it serve";
    assert!(told.contains(said) && !told.contains("deployed agent"), "{told}");
}

#[test]
fn a_failed_build_says_why() {
    let pretend = server(&["BUILDING", "FAILED"]);
    let place = project(&[("blaxel.toml", "name = \"helper\"\ntype = \"agent\""), ("a", "")]);
    let told = text(&pretend.cli(place.path(), &["deploy", "-y"]).output().unwrap(), 1);
    assert!(told.contains("STEP 1") && told.contains("failed: RUN make: exit code 2"), "{told}");
}

/// The command is interrupted when the server has received this request, which it never answers.
#[test]
fn an_interruption_says_what_is_left() {
    for (method, path, left) in [
        ("GET", "/v0/agents/helper", "nothing of agent helper was sent"),
        ("PUT", "/v0/agents/helper", "agent helper is not built"),
        ("PUT", "/up/1", "agent helper is not built; what served before serves on"),
        ("GET", "/v0/observability/logs", "what was begun goes on; `holm get agent helper`"),
    ] {
        let (reached, at_question) = std::sync::mpsc::channel();
        let mut uploaded = false;
        let pretend = Pretend::start(move |url, asked| {
            let asked_path = asked.path.split('?').next().unwrap();
            let is_late = path != "/v0/observability/logs" || uploaded;
            if (asked.method.as_str(), asked_path) == (method, path) && is_late {
                reached.send(()).unwrap();
                loop {
                    std::thread::park();
                }
            }
            uploaded |= asked_path == "/up/1";
            Answer::json(&agent("BUILDING")).with("X-Blaxel-Upload-Url", format!("{url}/up/1"))
        });
        let place = project(&[("blaxel.toml", "name = \"helper\"\ntype = \"agent\""), ("a", "")]);
        let mut command = pretend.cli(place.path(), &["deploy"]);
        let running = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        at_question.recv().unwrap();
        let killed = Command::new("kill").args(["-INT", &running.id().to_string()]).status();
        assert!(killed.unwrap().success());
        let told = text(&running.wait_with_output().unwrap(), 130);
        assert!(told.contains(left), "{method} {path}: {told}");
    }
}

#[test]
fn a_dry_run_asks_nobody() {
    let files = [
        ("blaxel.toml", "name = \"box\"\n[env]\nURL = \"x${secrets.TOKEN}\""),
        ("Dockerfile", "FROM scratch"),
    ];
    let place = project(&files);
    fs::create_dir(place.path().join(".blaxel")).unwrap();
    write(place.path(), ".blaxel/eu.yaml", "kind: Policy\nmetadata: {name: eu}\nspec: {}");
    let mut command = crate::common::holm(place.path());
    command.args([
        "deploy",
        "--dryrun",
        "--secrets",
        "TOKEN=s3cret",
        "--build-env-file",
        "Dockerfile",
    ]);
    let told = text(&command.output().unwrap(), 0);
    assert!(!told.contains("s3cret"), "{told}");
    let requests: Value = serde_json::from_str(&told).unwrap();
    assert_eq!(
        (&requests[0]["method"], &requests[0]["path"]),
        (&json!("POST"), &json!("/v0/sandboxes?upload=true"))
    );
    assert_eq!(requests[0]["documents"], json!(["policies/eu"]));
    assert_eq!(requests[0]["archive"], json!(["Dockerfile", "blaxel.toml", ".env.build"]));
}

#[test]
fn what_cannot_be_deployed_is_said_before_anything_is_sent() {
    let pretend = server(&["DEPLOYED"]);
    let place = project(&[("main.py", "")]);
    fs::create_dir(place.path().join("empty")).unwrap();
    let refused = |arguments: &[&str], exit: i32, why: &str| {
        let told = text(&pretend.cli(place.path(), arguments).output().unwrap(), exit);
        assert!(told.contains(why), "{told}");
    };
    refused(&["deploy"], 6, "Dockerfile");
    refused(&["deploy", "-t", "sandbx"], 2, "a type is agent");
    refused(&["deploy", "-t", "agent", "empty"], 6, "no files");
    refused(&["deploy", "-t", "agent", "-n", "x", "--skip-build"], 6, "without --skip-build");
    assert!(pretend.asked().iter().all(|asked| asked.method == "GET"));
}

/// Against a real server, whose answer alone tells what it has kept.
#[test]
fn what_the_server_has_not_kept_of_the_file_is_named() {
    let server = Server::start();
    let key = server.api_key();
    let settings = |kind: &str| {
        format!(
            "name = \"a\"\ntype = \"{kind}\"\nimage = \"a/b:1\"\n[env]\nMODE = \"fast\"\nKEY = \"${{secrets.KEY}}\"\n\
             [runtime]\nmemory = 512\nmemori = 5\n"
        )
    };
    let deploy = |kind: &str, more: &str| {
        let folder = server.folder.path().join(kind);
        fs::create_dir(&folder).unwrap();
        write(&folder, "blaxel.toml", &(settings(kind) + more));
        // Nothing here runs it, so nobody waits for that.
        let command = ["deploy", kind, "--yes", "--timeout", "0s", "--secrets", "KEY=k3y"];
        text(&server.cli(&key, &command), 1)
    };
    let trigger = "[[triggers]]\ntype = \"http-async\"\ntimeout = \"5m\"\nconfiguration = { pth = \"later\" }\n";
    for (kind, kinds, more) in [
        ("agent", "agents", trigger),
        ("function", "functions", ""),
        ("job", "jobs", ""),
        ("sandbox", "sandboxes", ""),
    ] {
        let told = deploy(kind, more);
        let named: Vec<_> = told.lines().filter(|line| line.contains("not kept")).collect();
        let line = |path: &str| {
            format!("blaxel.toml: `{path}` was not kept: it is mistyped, or not for {kinds}")
        };
        let mut wanted = vec![line("runtime.memori")];
        if !more.is_empty() {
            wanted.push(line("triggers[0].configuration.pth"));
        }
        assert_eq!(named, wanted, "{kind}: {told}");
    }
    let told = deploy("application", "");
    assert!(told.contains("`runtime.memori` has no effect on an application"), "{told}");
    assert!(!told.contains("not kept"), "{told}");
}
