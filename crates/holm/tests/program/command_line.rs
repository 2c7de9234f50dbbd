//! The command line against a real server.

use crate::common::{Server, holm, text, write};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

const DOCUMENTS: &str = r#"
apiVersion: blaxel.ai/v1alpha1
kind: Sandbox
metadata: { name: box }
spec: { runtime: { image: "blaxel/base-image:latest", memory: 4096 } }
---
kind: Preview
metadata: { name: main, resourceName: box }
spec: { port: 3000, public: true }
---
kind: PreviewToken
metadata: { resourceName: box, previewName: main }
spec: { expiresAt: "2099-01-01T00:00:00Z" }
---
kind: IntegrationConnection
metadata: { name: slack }
spec: { integration: slack, secret: { TOKEN: "${secrets.TOKEN}" } }
"#;

#[test]
fn documents_make_objects_and_take_them_away() {
    let server = Server::start();
    let key = server.api_key();
    let file = write(server.folder.path(), "all.yaml", DOCUMENTS);
    let file = file.to_str().unwrap();
    let apply = ["apply", "-f", file, "--secret", "TOKEN=t0p"];

    let first = text(&server.cli(&key, &apply), 0);
    for line in [
        "sandboxes/box created",
        "previews/main created",
        "connections/slack created",
        "  url: http",
        "  token: ",
    ] {
        assert!(first.contains(line), "{line}: {first}");
    }
    let second = text(&server.cli(&key, &apply), 0);
    for line in
        ["sandboxes/box unchanged", "previews/main unchanged", "connections/slack exists already"]
    {
        assert!(second.contains(line), "{line}: {second}");
    }
    write(server.folder.path(), "all.yaml", &DOCUMENTS.replace("3000", "4000"));
    assert!(text(&server.cli(&key, &apply), 0).contains("previews/main updated"));

    assert!(text(&server.cli(&key, &["get", "sbx"]), 0).contains("box"));
    let tokens = text(
        &server.cli(&key, &["get", "sandbox", "box", "preview", "main", "tokens", "-o", "json"]),
        0,
    );
    let tokens: serde_json::Value = serde_json::from_str(&tokens).unwrap();
    assert_eq!(tokens.as_array().map(Vec::len), Some(3));
    assert!(!text(&server.cli(&key, &["get", "ic", "slack", "-o", "json"]), 0).contains("t0p"));

    let deleted = text(&server.cli(&key, &["delete", "-f", file]), 0);
    assert!(
        deleted.contains("previews/main deleted") && deleted.contains("connections/slack deleted"),
        "{deleted}"
    );
    text(&server.cli(&key, &["get", "ic", "slack"]), 6);
}

#[test]
fn a_key_for_models_is_made_listed_and_revoked() {
    let server = Server::start();
    let key = server.api_key();
    let make = ["keys", "create", "--name", "ci", "--models", "gpt,claude", "--budget", "5"];
    let made = server.cli(&key, &make);
    let value = String::from_utf8(made.stdout.clone()).unwrap().trim().to_owned();
    let told = text(&made, 0);
    assert!(told.contains("opens gpt, claude, for 5 US dollars per month"), "{told}");
    let refused = text(&server.cli(&value, &["get", "models"]), 5);
    assert!(refused.contains("for models alone"), "{refused}");
    let listed = text(&server.cli(&key, &["keys", "list"]), 0);
    assert!(listed.starts_with("ID ") && listed.contains(" OPENS "), "{listed}");
    let line = listed.lines().find(|line| line.contains(" ci ")).unwrap();
    assert!(line.contains("gpt, claude, for 5 US dollars per month"), "{line}");
    assert!(!listed.contains(&value));
    let id = line.split_whitespace().next().unwrap();
    let keys = text(&server.cli(&key, &["keys", "list", "-o", "json"]), 0);
    let keys: serde_json::Value = serde_json::from_str(&keys).unwrap();
    assert!(keys.as_array().unwrap().iter().any(|key| key["id"] == id), "{keys}");
    text(&server.cli(&key, &["keys", "revoke", id]), 0);
    assert!(!text(&server.cli(&key, &["keys", "list"]), 0).contains(" ci "));
    text(&server.cli(&value, &["get", "models"]), 4);
    text(&server.cli(&key, &["keys", "create", "--budget", "much"]), 11);
    text(&server.cli(&key, &["keys", "create", "--name", "endless", "--per", "month"]), 2);
    assert!(!text(&server.cli(&key, &["keys", "list"]), 0).contains("endless"));
}

#[test]
fn what_a_sandbox_may_reach_is_changed_pattern_by_pattern() {
    let server = Server::start();
    let key = server.api_key();
    let document = "kind: Sandbox\nmetadata: {name: box}\nspec: {network: {forbiddenDomains: [old.example], proxy: {routing: \
                    [{destinations: [api.example], headers: {X-Key: '{{SECRET:k}}'}, secrets: {k: t0p}}]}}}\n";
    let file = write(server.folder.path(), "box.yaml", document);
    text(&server.cli(&key, &["apply", "-f", file.to_str().unwrap()]), 0);
    let allow = ["network", "allow", "box", "*.example.com", "old.example"];
    let shown = text(&server.cli(&key, &allow), 0);
    assert!(shown.contains("allow") && !shown.contains("block"), "a pattern is moved: {shown}");
    text(&server.cli(&key, &["net", "block", "box", "POST:api.example/x", "gone.example"]), 0);
    let shown = text(&server.cli(&key, &["network", "drop", "box", "gone.example"]), 0);
    assert_eq!(shown, text(&server.cli(&key, &["network", "show", "box"]), 0));
    let words: Vec<Vec<&str>> =
        shown.lines().map(|line| line.split_whitespace().collect()).collect();
    let wanted = [
        vec!["RULE", "OF"],
        vec!["allow", "*.example.com"],
        vec!["allow", "old.example"],
        vec!["block", "POST:api.example/x"],
        vec!["inject", "api.example:", "header", "X-Key"],
    ];
    assert_eq!(words, wanted, "{shown}");
    let told = text(&server.cli(&key, &["network", "drop", "box", "never.example"]), 0);
    assert!(told.contains("`never.example` was in no list"), "{told}");
    text(&server.cli(&key, &["network", "allow", "box", "a b"]), 11);
    text(&server.cli(&key, &["network", "show", "none"]), 6);
    text(&server.cli(&key, &["network", "drop", "box"]), 2);
    // The secret was never read, and it is still there.
    let all = text(&server.cli(&key, &["get", "sbx", "box", "-o", "json", "--show-secrets"]), 0);
    assert!(!all.contains("t0p"), "{all}");
}

#[test]
fn what_is_got_can_be_applied() {
    let server = Server::start();
    let key = server.api_key();
    let file = write(
        server.folder.path(),
        "a.yaml",
        "kind: Policy\nmetadata: {name: p}\nspec: {type: location, locations: [{type: continent, name: eu}]}\n",
    );
    text(&server.cli(&key, &["apply", "-f", file.to_str().unwrap()]), 0);
    let yaml = server.cli(&key, &["get", "policy", "p", "-o", "yaml"]);
    let yaml = text(&yaml, 0);
    assert!(yaml.starts_with("kind: Policy\n"), "{yaml}");
    let again = write(server.folder.path(), "b.yaml", &yaml);
    assert!(
        text(&server.cli(&key, &["apply", "-f", again.to_str().unwrap()]), 0)
            .contains("policies/p unchanged")
    );
}

#[test]
fn a_table_on_a_terminal_is_aligned() {
    let server = Server::start();
    let program = env!("CARGO_BIN_EXE_holm");
    let mut shown = std::process::Command::new("script");
    shown.args(["-qec", &format!("{program} get locations"), "/dev/null"]);
    shown.env_clear().env("PATH", std::env::var_os("PATH").unwrap()).env("TERM", "xterm");
    shown.env("HOME", server.folder.path()).env("SHELL", "/bin/sh").stdin(Stdio::null());
    shown.env("HOLM_URL", server.url()).env("HOLM_API_KEY", server.api_key());
    let shown = String::from_utf8(shown.output().unwrap().stdout).unwrap();
    let (bold, plain) = ("\u{1b}[1m", "\u{1b}[0m");
    assert!(shown.starts_with(bold) && shown.matches('\u{1b}').count() == 2, "{shown:?}");
    let shown = shown.replace(bold, "").replace(plain, "");
    let lines: Vec<_> = shown.lines().map(str::trim_end).collect();
    let wanted = text(&server.cli(&server.api_key(), &["get", "locations"]), 0);
    assert_eq!(lines, wanted.lines().collect::<Vec<_>>());
}

/// With the label that `holm deploy` gives to what is built from sources. Documents bring none.
const BUILT: &str = r#"
kind: Sandbox
metadata: {name: built, labels: {x-blaxel-auto-generated: "true"}}
spec: {runtime: {image: "blaxel/base-image:latest", memory: 512}}
"#;

#[test]
fn what_is_shown_as_yaml_is_applied_again() {
    let server = Server::start();
    let key = server.api_key();
    let file = write(server.folder.path(), "all.yaml", DOCUMENTS);
    let all = ["apply", "-f", file.to_str().unwrap(), "--secret", "TOKEN=x"];
    let told = text(&server.cli(&key, &all), 0);
    assert!(!told.contains("not kept"), "{told}");
    let file = write(server.folder.path(), "built.yaml", BUILT);
    text(&server.cli(&key, &["apply", "-f", file.to_str().unwrap()]), 0);
    let mistyped = BUILT.replace("memory: 512", "memory: 512, memroy: 512");
    let file = write(server.folder.path(), "mistyped.yaml", &mistyped);
    let told = text(&server.cli(&key, &["apply", "-f", file.to_str().unwrap()]), 0);
    assert!(told.contains("spec.runtime.memroy was not kept"), "{told}");
    for words in [
        &["get", "sandbox", "box"][..],
        &["get", "sandbox", "box", "preview", "main"],
        &["get", "sandbox", "built"],
    ] {
        let shown = server.cli(&key, &[words, &["-o", "yaml"]].concat());
        let again = write(server.folder.path(), "again.yaml", &text(&shown, 0));
        let told = text(&server.cli(&key, &["apply", "-f", again.to_str().unwrap()]), 0);
        assert!(told.contains("unchanged") && !told.contains("not kept"), "{words:?}: {told}");
    }
}

#[test]
fn a_folder_is_applied_with_those_below_only_when_asked() {
    let server = Server::start();
    let key = server.api_key();
    let policy = |name: &str| {
        format!(
            "kind: Policy\nmetadata: {{name: {name}}}\nspec: {{type: location, locations: [{{type: continent, name: eu}}]}}\n"
        )
    };
    let below = server.folder.path().join("documents/below");
    std::fs::create_dir_all(&below).unwrap();
    write(&server.folder.path().join("documents"), "upper.yml", &policy("upper"));
    write(&below, "lower.yaml", &policy("lower"));
    let flat = text(&server.cli(&key, &["apply", "-f", "documents"]), 0);
    assert!(flat.contains("upper") && !flat.contains("lower"));
    assert!(
        text(&server.cli(&key, &["apply", "-R", "-f", "documents"]), 0)
            .contains("policies/lower created")
    );
}

/// Checks each exit code in docs/command-line.md that a server can cause.
#[test]
fn failures_have_numbers() {
    let server = Server::start();
    let key = server.api_key();
    let wrong = write(server.folder.path(), "wrong.yaml", "kind: Unicorn\nmetadata: {name: a}\n");
    let refused = write(
        server.folder.path(),
        "refused.yaml",
        "kind: Policy\nmetadata: {name: A}\nspec: {type: location}\n",
    );
    text(&server.cli(&key, &["get", "unicorns"]), 2);
    text(&server.cli(&key, &["get"]), 2);
    text(&server.cli(&key, &["get", "previews"]), 2);
    let stranger = text(&server.cli("hk_wrong", &["get", "sandboxes"]), 4);
    assert!(stranger.contains("next: they come from HOLM_API_KEY"), "{stranger}");
    text(&server.cli(&key, &["get", "sandbox", "nobody"]), 6);
    text(&server.cli(&key, &["get", "user", "nobody@holm.local"]), 6);
    text(&server.cli(&key, &["get", "image", "helper"]), 2);
    text(&server.cli(&key, &["delete", "image", "helper"]), 2);
    for (file, place) in [(wrong, "wrong.yaml:1: "), (refused, "refused.yaml:1: ")] {
        let told = text(&server.cli(&key, &["apply", "-f", file.to_str().unwrap()]), 11);
        assert!(told.contains(place), "{told}");
    }
    text(&server.cli(&key, &["delete", "sandbox", "nobody"]), 6);
    text(&server.cli(&key, &["delete", "sandbox/nobody"]), 6);
    text(&server.cli(&key, &["drive", "mount", "none", "nobody", "/mnt"]), 6);
    text(&server.cli(&key, &["delete", "sandbox", "nobody", "--ignore-missing"]), 0);
    text(&server.cli(&key, &["-w", "elsewhere", "get", "sandboxes"]), 5);
    text(&holm(server.folder.path()).args(["get", "sandboxes"]).output().unwrap(), 4);
    let unreachable = server.cli(&key, &["--server", "http://127.0.0.1:1", "get", "sandboxes"]);
    let unreachable = text(&unreachable, 8);
    assert!(unreachable.contains("next: "), "{unreachable}");
    assert_eq!(unreachable.matches("because: ").count(), 1, "{unreachable}");
    let secret = format!("https://{}", server.address);
    let without_tls = text(&server.cli(&key, &["--server", &secret, "get", "sandboxes"]), 8);
    assert!(without_tls.contains("http://"), "{without_tls}");
    let elsewhere = format!("{}/elsewhere", server.url());
    text(&server.cli(&key, &["--server", &elsewhere, "get", "sandboxes"]), 2);
}

#[test]
fn a_missing_file_has_the_same_number_in_all_commands() {
    let server = Server::start();
    let key = server.api_key();
    let file = write(server.folder.path(), "all.yaml", DOCUMENTS);
    let apply = ["apply", "-f", file.to_str().unwrap(), "--secret", "TOKEN=t0p"];
    text(&server.cli(&key, &apply), 0);
    for arguments in [
        &["apply", "-f", "gone.yaml"][..],
        &["apply", "-f", "all.yaml", "--env-file", "gone.env"],
        &["apply", "-f", "all.yaml/gone.yaml"],
        &["cp", "gone.txt", "box:/tmp"],
        &["deploy", "gone", "--yes"],
        &["serve", "gone"],
        &["run", "job", "any", "--file", "gone.json"],
        &["image", "import", "gone.tar"],
        &["image", "make", "gone.toml"],
        &["restore", "gone.backup"],
        &["restore", "gone.backup", "--verify"],
    ] {
        let told = text(&server.cli(&key, arguments), 6);
        assert!(told.contains("gone"), "{arguments:?}: {told}");
    }
}

#[test]
fn a_key_is_remembered_for_its_owner_only() {
    let server = Server::start();
    let home = server.folder.path();
    let mut login = holm(home);
    login
        .args(["login", "--api-key"])
        .env("HOLM_URL", "")
        .env("BL_API_URL", format!("{}/v0", server.url()))
        .stdin(Stdio::piped())
        .stderr(Stdio::piped());
    let mut login = login.spawn().unwrap();
    writeln!(login.stdin.take().unwrap(), "{}", server.api_key()).unwrap();
    text(&login.wait_with_output().unwrap(), 0);

    let file = home.join(".config/holm/config.yaml");
    assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let run = |arguments: &[&str]| holm(home).args(arguments).output().unwrap();
    assert!(text(&run(&["workspaces"]), 0).contains("in use: main"));
    text(&run(&["workspaces", "main"]), 0);
    text(&run(&["workspaces", "elsewhere"]), 6);
    assert_eq!(text(&run(&["token"]), 0).trim(), server.api_key());
    text(&run(&["logout"]), 0);
    text(&run(&["get", "sandboxes"]), 4);
}

#[test]
fn kinds_with_lists_alone_show_one_object_too() {
    let server = Server::start();
    let key = server.api_key();
    let shown = |words: &[&str]| text(&server.cli(&key, words), 0);
    assert!(shown(&["get", "user", "admin@holm.local"]).contains("admin@holm.local"));
    assert!(shown(&["describe", "user", "admin@holm.local"]).contains("ROLE"));
    let places = shown(&["get", "locations", "-o", "json"]);
    let places: serde_json::Value = serde_json::from_str(&places).unwrap();
    let place = places[0]["location"].as_str().unwrap();
    assert!(shown(&["get", "location", place]).contains(place));
    let file = write(server.folder.path(), "all.yaml", DOCUMENTS);
    shown(&["apply", "-f", file.to_str().unwrap(), "--secret", "TOKEN=x"]);
    let unnamed = text(&server.cli(&key, &["describe", "sandbox", "box", "previews"]), 2);
    assert!(unnamed.contains("`holm get sandbox box previews` lists them"), "{unnamed}");
    shown(&["get", "sandbox", "box", "previews"]);
    assert!(shown(&["describe", "sandbox", "box"]).contains("\nURL "));
}

#[test]
fn a_watcher_sees_what_is_made() {
    let server = Server::start();
    let key = server.api_key();
    let mut watch = holm(server.folder.path());
    watch
        .env("HOLM_URL", server.url())
        .env("HOLM_API_KEY", &key)
        .args(["get", "policies", "--watch"]);
    let mut watch = watch.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // "no policies here" is printed first, so the watcher is running before anything is created.
    let mut noted = String::new();
    BufReader::new(watch.stderr.take().unwrap()).read_line(&mut noted).unwrap();
    let file = write(
        server.folder.path(),
        "a.yaml",
        "kind: Policy\nmetadata: {name: seen}\nspec: {type: location, locations: [{type: continent, name: eu}]}\n",
    );
    text(&server.cli(&key, &["apply", "-f", file.to_str().unwrap()]), 0);
    let found = BufReader::new(watch.stdout.take().unwrap())
        .lines()
        .any(|line| line.unwrap().contains("seen"));
    watch.kill().unwrap();
    watch.wait().unwrap();
    assert!(found);
}

#[test]
fn logs_of_a_workload_can_be_asked_for() {
    let server = Server::start();
    let key = server.api_key();
    let file = write(server.folder.path(), "all.yaml", DOCUMENTS);
    text(&server.cli(&key, &["apply", "--secret", "TOKEN=x", "-f", file.to_str().unwrap()]), 0);
    let told = text(&server.cli(&key, &["logs", "sbx", "box"]), 0);
    assert_eq!(told, "no lines in the last hour; --since 3d looks further back\n");
    text(&server.cli(&key, &["logs", "sbx", "box", "--since", "10m"]), 0);
    let told = text(&server.cli(&key, &["logs", "sbx", "box", "--since", "3d"]), 0);
    assert_eq!(told, "no lines in the last 3 days\n");
    text(&server.cli(&key, &["logs", "sbx", "box", "--since", "soon"]), 2);
    text(
        &server.cli(&key, &["logs", "sbx", "box", "--start", "2026-04-16", "--end", "2026-04-17"]),
        0,
    );
    let nobody = text(&server.cli(&key, &["logs", "model", "gpt", "--search", "request"]), 6);
    assert!(nobody.contains("there is no model `gpt`"), "{nobody}");
    text(&server.cli(&key, &["logs", "policy", "p"]), 2);
    for words in [&["agent", "typo"][..], &["job", "nightly", "gone"], &["job", "n", "gone", "0"]] {
        let told = text(&server.cli(&key, &[&["logs", "--follow"], words].concat()), 6);
        assert!(told.contains("there is no"), "{words:?}: {told}");
    }
}

#[test]
fn each_shell_gets_its_completion() {
    let home = tempfile::tempdir().unwrap();
    for (shell, sign) in
        [("bash", "complete -F"), ("zsh", "#compdef holm"), ("fish", "complete -c holm")]
    {
        let script = text(&holm(home.path()).args(["completion", shell]).output().unwrap(), 0);
        assert!(script.contains(sign) && script.contains("doctor"), "{shell}");
    }
}

#[test]
fn the_doctor_speaks_to_programs() {
    let home = tempfile::tempdir().unwrap();
    let output = holm(home.path())
        .args(["doctor", "--json"])
        .env("HOLM_SERVER__LISTEN", "127.0.0.1:0")
        .output()
        .unwrap();
    let findings: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let findings = findings.as_array().unwrap();
    assert!(findings.len() > 10);
    for finding in findings {
        let needs_remedy = finding["health"] != "ok";
        assert_eq!(needs_remedy, finding["remedy"].is_string(), "{finding}");
    }
    let ill = holm(home.path())
        .args(["doctor"])
        .env("HOLM_STORE__URL", "postgres://x@127.0.0.1:1/x")
        .output()
        .unwrap();
    assert!(text(&ill, 10).contains("cannot be reached"));
}

/// `/dev/full` takes nothing, like a disk without room.
#[test]
fn output_that_cannot_be_written_is_a_failure() {
    let server = Server::start();
    let key = server.api_key();
    for arguments in [
        &["get", "workspaces", "-o", "json"][..],
        &["keys", "create", "--name", "lost"],
        &["token"],
        &["config", "example"],
    ] {
        let mut command = holm(server.folder.path());
        command.env("HOLM_URL", server.url()).env("HOLM_API_KEY", &key).args(arguments);
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let told = text(&command.env("HOLM_WORKSPACE", "main").stdout(full).output().unwrap(), 1);
        assert!(told.contains("cannot write what the command prints"), "{arguments:?}: {told}");
        // Nobody is missing anything if the reader has left.
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        text(&command.stdout(writer).output().unwrap(), 0);
    }
}

/// Runs a command line on a terminal, and types an answer to its question.
fn answered(server: &Server, line: &str, answer: &str) -> std::process::Output {
    let mut shown = std::process::Command::new("script");
    shown.args(["-qec", &format!("{} {line}", env!("CARGO_BIN_EXE_holm")), "/dev/null"]);
    shown.env_clear().env("PATH", std::env::var_os("PATH").unwrap()).env("TERM", "dumb");
    shown.env("HOME", server.folder.path()).env("SHELL", "/bin/sh");
    let mut shown = shown.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    shown.stdin.take().unwrap().write_all(answer.as_bytes()).unwrap();
    shown.wait_with_output().unwrap()
}

#[test]
fn a_workspace_is_deleted_after_a_question_and_another_one_made() {
    let server = Server::start();
    let home = server.folder.path();
    let run = |arguments: &[&str], exit| text(&holm(home).args(arguments).output().unwrap(), exit);
    let mut login = holm(home);
    login.args(["login", "--api-key"]).env("HOLM_URL", server.url());
    login.env("HOLM_API_KEY", server.api_key());
    text(&login.output().unwrap(), 0);
    let made = run(&["workspaces", "second", "--create"], 0);
    assert_eq!(made, "workspaces/second created\nnow in second\n");

    let told = text(&answered(&server, "delete workspaces second", "n\n"), 13);
    let question =
        format!("Delete workspace second of {}, with everything in it? [y/N]", server.url());
    assert!(told.contains(&question), "{told}");
    assert!(run(&["workspaces"], 0).ends_with("in use: second\n"));
    let told = text(&answered(&server, "delete workspaces second", "y\n"), 0);
    assert!(told.contains("workspaces/second deleted"), "{told}");
    let listed = run(&["workspaces"], 0);
    assert!(listed.contains("main") && !listed.contains("in use"), "{listed}");

    run(&["delete", "workspaces", "main"], 0);
    run(&["workspaces", "third", "--create"], 0);
    assert!(run(&["workspaces"], 0).ends_with("in use: third\n"));
}
