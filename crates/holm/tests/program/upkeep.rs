//! Commands that work on the server's own data.

use crate::common::{Server, holm, text, write};
use crate::usage::with_database;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

const POLICY: &str = "kind: Policy\nmetadata: {name: kept}\nspec: {type: location, locations: [{type: continent, name: eu}]}\n";
const CONNECTION: &str = "---\nkind: IntegrationConnection\nmetadata: {name: slack}\nspec: {integration: slack, secret: {TOKEN: t0p}}\n";

fn with_objects() -> (Server, String) {
    let server = Server::start();
    let key = server.api_key();
    let file = write(server.folder.path(), "all.yaml", &format!("{POLICY}{CONNECTION}"));
    text(&server.cli(&key, &["apply", "-f", file.to_str().unwrap()]), 0);
    (server, key)
}

#[test]
fn a_backup_of_a_running_server_is_restored_elsewhere() {
    let (server, key) = with_objects();
    let data =
        |command: &mut std::process::Command| command.args(["--data", "data"]).output().unwrap();
    text(&data(holm(server.folder.path()).args(["backup", "all.backup", "--with-keys"])), 0);
    text(&data(holm(server.folder.path()).args(["restore", "all.backup", "--verify"])), 0);

    let other = tempfile::tempdir().unwrap();
    fs::copy(server.folder.path().join("all.backup"), other.path().join("all.backup")).unwrap();
    // A folder that was there before may be open to others.
    fs::create_dir(other.path().join("data")).unwrap();
    text(&data(holm(other.path()).args(["restore", "all.backup"])), 0);
    for file in fs::read_dir(other.path().join("data")).unwrap().map(Result::unwrap) {
        assert_eq!(file.metadata().unwrap().mode() & 0o077, 0, "{}", file.path().display());
    }
    let restored = Server::start_in(other);
    assert!(!restored.greeting().contains("API key"));
    assert!(text(&restored.cli(&key, &["get", "policies"]), 0).contains("kept"));
    let secrets = ["get", "ic", "slack", "-o", "json", "--show-secrets"];
    text(&restored.cli(&key, &secrets), 0);
}

#[test]
fn a_backup_replaces_no_file() {
    let (server, _) = with_objects();
    let file = write(server.folder.path(), "old.backup", "precious");
    let mut again = holm(server.folder.path());
    again.args(["backup", "old.backup"]).env("HOLM_DATA__FOLDER", "data");
    let told = text(&again.output().unwrap(), 7);
    assert!(told.contains("exists already: name a new file"), "{told}");
    assert_eq!(fs::read_to_string(file).unwrap(), "precious");
}

#[test]
fn a_damaged_backup_is_refused_before_anything_is_written() {
    let (server, _) = with_objects();
    let data = |command: &mut std::process::Command| {
        command.env("HOLM_DATA__FOLDER", "data").output().unwrap()
    };
    text(&data(holm(server.folder.path()).args(["backup", "all.backup", "--with-keys"])), 0);
    let mut bytes = fs::read(server.folder.path().join("all.backup")).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    let other = tempfile::tempdir().unwrap();
    fs::write(other.path().join("all.backup"), bytes).unwrap();
    text(&data(holm(other.path()).args(["restore", "all.backup"])), 1);
    assert!(!other.path().join("data/holm.db").exists());
}

#[test]
fn keys_are_rotated_and_secrets_stay_readable() {
    let (server, key) = with_objects();
    let rotate = |home: &std::path::Path| {
        holm(home).args(["keys", "rotate"]).env("HOLM_DATA__FOLDER", "data").output().unwrap()
    };
    assert!(text(&rotate(server.folder.path()), 1).contains("stop it"));
    let (_, _, folder) = server.stop();
    text(&rotate(folder.path()), 0);
    let again = Server::start_in(folder);
    text(&again.cli(&key, &["get", "ic", "slack"]), 0);
}

#[test]
fn a_running_server_rotates_its_keys_itself() {
    let (server, key) = with_objects();
    let mut rotate = holm(server.folder.path());
    rotate.args(["keys", "rotate"]).env("HOLM_DATA__FOLDER", "data");
    rotate.env("HOLM_URL", server.url()).env("HOLM_API_KEY", &key);
    assert!(text(&rotate.output().unwrap(), 0).contains("rows were sealed anew"));
    text(&server.cli(&key, &["get", "ic", "slack"]), 0);
}

#[test]
fn keys_are_rotated_only_by_the_server_of_this_data() {
    let (local, other) = (with_objects().0, with_objects());
    let keys = |server: &Server| fs::read(server.folder.path().join("data/seal.keys")).unwrap();
    let before = (keys(&local), keys(&other.0));
    let mut rotate = holm(local.folder.path());
    rotate.args(["keys", "rotate"]).env("HOLM_DATA__FOLDER", "data");
    rotate.env("HOLM_URL", other.0.url()).env("HOLM_API_KEY", &other.1);
    let told = text(&rotate.output().unwrap(), 1);
    assert!(told.contains(&format!("holm login --server {}", local.url())), "{told}");
    assert_eq!((keys(&local), keys(&other.0)), before);
}

#[test]
fn a_forgotten_password_is_replaced() {
    let server = Server::start();
    let (_, _, folder) = server.stop();
    let run = |email: &str| {
        holm(folder.path())
            .args(["user", "password", email])
            .env("HOLM_DATA__FOLDER", "data")
            .output()
            .unwrap()
    };
    let output = run("admin@holm.local");
    text(&output, 0);
    assert_eq!(output.stdout.trim_ascii().len(), 20);
    assert!(text(&run("nobody@holm.local"), 6).contains("nobody@holm.local"));
}

#[test]
fn a_wrong_folder_is_not_taken_for_an_empty_server() {
    let home = tempfile::tempdir().unwrap();
    for command in
        [["keys", "rotate"].as_slice(), &["user", "password", "a@b.example"], &["backup", "x"]]
    {
        assert!(text(&holm(home.path()).args(command).output().unwrap(), 6).contains("--data"));
    }
    assert!(!home.path().join("data").exists());
}

#[test]
fn two_servers_share_one_database() {
    let url = testing::postgres();
    let key_file = tempfile::tempdir().unwrap();
    let key_path = key_file.path().join("seal.keys");
    let settings =
        [("HOLM_STORE__URL", url.as_str()), ("HOLM_STORE__KEY_FILE", key_path.to_str().unwrap())];
    let first = Server::start_with(tempfile::tempdir().unwrap(), &settings);
    let second = Server::start_with(tempfile::tempdir().unwrap(), &settings);
    assert!(!second.start_log.contains("NOTICE"), "{}", second.start_log);
    assert!(first.greeting().contains("API key") && !second.greeting().contains("API key"));
    let key = first.api_key();
    let file = write(first.folder.path(), "a.yaml", POLICY);
    text(&first.cli(&key, &["apply", "-f", file.to_str().unwrap()]), 0);
    assert!(text(&second.cli(&key, &["get", "policies"]), 0).contains("kept"));
}

#[test]
fn a_data_folder_has_one_server_whatever_the_database() {
    let url = testing::postgres();
    let first =
        Server::start_with(tempfile::tempdir().unwrap(), &[("HOLM_STORE__URL", url.as_str())]);
    let home = first.folder.path();
    let told = fs::read_to_string(home.join("data/address")).unwrap();
    let mut second = holm(home);
    second.args(["up", "--data", "data", "--listen", "127.0.0.1:0", "--role", "api"]);
    second.env("HOLM_STORE__URL", &url);
    assert!(text(&second.output().unwrap(), 1).contains("another server uses it"));
    assert_eq!(fs::read_to_string(home.join("data/address")).unwrap(), told);
}

#[test]
fn the_doctor_misses_the_keys_of_a_database() {
    let server = Server::start();
    let key_file = server.folder.path().join("data/seal.keys");
    fs::rename(&key_file, key_file.with_extension("aside")).unwrap();
    let mut doctor = holm(server.folder.path());
    doctor.args(["doctor"]).env("HOLM_DATA__FOLDER", "data");
    assert!(text(&doctor.output().unwrap(), 10).contains("put the copy of the file back"));
}

#[test]
fn a_backup_moves_from_sqlite_to_postgresql() {
    let (server, key) = with_objects();
    text(
        &holm(server.folder.path())
            .args(["backup", "all.backup", "--with-keys"])
            .env("HOLM_DATA__FOLDER", "data")
            .output()
            .unwrap(),
        0,
    );
    let backup = server.folder.path().join("all.backup");
    let url = testing::postgres();
    let other = tempfile::tempdir().unwrap();
    let mut restore = holm(other.path());
    restore.args(["restore", backup.to_str().unwrap()]);
    restore.env("HOLM_STORE__URL", &url).env("HOLM_DATA__FOLDER", "data");
    text(&restore.output().unwrap(), 0);
    let restored = Server::start_with(other, &[("HOLM_STORE__URL", &url)]);
    assert!(text(&restored.cli(&key, &["get", "policies"]), 0).contains("kept"));
}

/// What a server needs to run workloads.
const ALL_ROLES: &str = r#"["api", "gateway", "node"]"#;

/// Returns what the server says, which must not start.
#[track_caller]
fn refusal(home: &Path) -> String {
    let mut up = holm(home);
    up.args(["up", "--data", "data", "--listen", "127.0.0.1:0"]);
    up.env("HOLM_SERVER__ROLES", ALL_ROLES);
    text(&up.output().unwrap(), 1)
}

#[test]
fn a_server_does_not_start_on_a_database_that_does_not_know_what_is_kept() {
    let (_, _, folder) = Server::start().stop();
    let data = folder.path().join("data");
    fs::create_dir_all(data.join("node/volumes/wsp_a")).unwrap();
    let volume = write(&data, "node/volumes/wsp_a/vol_1", "precious");
    write(&data, "machine", "here");
    assert!(refusal(folder.path()).contains("does not know this machine (here)"));
    for name in ["holm.db", "holm.db-wal", "holm.db-shm", "first-start.json"] {
        let _ = fs::remove_file(data.join(name));
    }
    for _ in 0..2 {
        let told = refusal(folder.path());
        assert!(told.contains("holm restore") && told.contains("store.url"), "{told}");
    }
    // A file that was cut to nothing is not taken for a new one.
    write(&data, "holm.db", "");
    refusal(folder.path());
    assert!(!data.join("holm.db-wal").exists() && !data.join("first-start.json").exists());
    assert_eq!(fs::read_to_string(volume).unwrap(), "precious");
}

#[test]
fn a_new_folder_takes_the_place_of_the_machine_in_the_backup() {
    let (_, _, folder) = Server::start().stop();
    let known = |name: &'static str| {
        with_database(folder.path(), move |tx| {
            store::settings::set(tx, &format!("urls/{name}"), r#"{"public":"","content":""}"#)
        });
    };
    let data = |arguments: &[&str]| {
        let mut command = holm(folder.path());
        command.args(arguments).env("HOLM_SERVER__ROLES", ALL_ROLES);
        command.output().unwrap()
    };
    let machine = |place: &str| fs::read_to_string(folder.path().join(place).join("machine"));
    known("first");
    text(&data(&["backup", "one.backup", "--with-keys", "--data", "data"]), 0);
    text(&data(&["restore", "one.backup", "--data", "one"]), 0);
    assert_eq!(machine("one").unwrap(), "first");

    known("second");
    text(&data(&["backup", "two.backup", "--with-keys", "--data", "data"]), 0);
    let restore = ["restore", "two.backup", "--data", "two"];
    let told = text(&data(&restore), 1);
    assert!(told.contains("--machine NAME") && told.contains("first, second"), "{told}");
    text(&data(&[&restore[..], &["--machine", "third"]].concat()), 1);
    assert!(machine("two").is_err());
    text(&data(&[&restore[..], &["--machine", "second"]].concat()), 0);
    assert_eq!(machine("two").unwrap(), "second");
    // A server without workloads has no machine.
    let mut manages = holm(folder.path());
    manages.args(["restore", "two.backup", "--data", "three"]);
    text(&manages.output().unwrap(), 0);
    assert!(machine("three").is_err());
}
