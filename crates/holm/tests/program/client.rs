//! What the command line asks a server for, seen by a fake server.

use crate::common::{Server, holm, text};
use crate::pretend::{Answer, Pretend};
use serde_json::json;
use std::io::Write;
use std::process::Stdio;

#[test]
fn credentials_of_one_server_never_go_to_another() {
    let (own, other) = (Server::start(), Pretend::start(|_, _| Answer::json(&json!([]))));
    let home = own.folder.path();
    let login = ["login", "--api-key", "--server", &own.url()];
    let mut login = holm(home).args(login).stdin(Stdio::piped()).spawn().unwrap();
    writeln!(login.stdin.take().unwrap(), "{}", own.api_key()).unwrap();
    assert!(login.wait().unwrap().success());

    let run = |arguments: &[&str]| holm(home).args(arguments).output().unwrap();
    let told = text(&run(&["--server", &other.url, "get", "sandboxes"]), 4);
    assert!(told.contains(&format!("holm login --server {}", other.url)), "{told}");
    let mut by_variable = holm(home);
    by_variable.env("BL_API_URL", format!("{}/v0", other.url)).args(["get", "sandboxes"]);
    text(&by_variable.output().unwrap(), 4);
    assert!(other.asked().is_empty());
    text(&run(&["--server", &format!("{}/v0", own.url()), "get", "sandboxes"]), 0);
}
