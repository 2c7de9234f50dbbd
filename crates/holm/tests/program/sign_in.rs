//! Signing in and out.

use crate::common::{Server, holm, post, text};
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Output, Stdio};

/// Signs in with a secret from standard input.
fn login(server: &Server, how: &str, secret: &str) -> Output {
    login_from(server.folder.path(), server, &[how], secret)
}

/// Signs in as the user whose folder this is.
fn login_from(home: &Path, server: &Server, how: &[&str], secret: &str) -> Output {
    let mut login = holm(home);
    login.args(["login", "--server", &server.url()]).args(how);
    login.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut login = login.spawn().unwrap();
    writeln!(login.stdin.take().unwrap(), "{secret}").unwrap();
    login.wait_with_output().unwrap()
}

/// Returns `ID:SECRET` of a new service account.
fn service_account(server: &Server) -> String {
    let body = r#"{"name": "robot"}"#;
    let made = post(&server.address, "/v0/service_accounts", &server.api_key(), body);
    let text = |name: &str| made[name].as_str().unwrap().to_owned();
    format!("{}:{}", text("client_id"), text("client_secret"))
}

/// Makes the stored access token look as old as it can be.
fn age(server: &Server) {
    let file = server.folder.path().join(".config/holm/config.yaml");
    let kept = fs::read_to_string(&file).unwrap();
    let old = kept.lines().map(|line| match line.split_once("expiresAt:") {
        Some((before, _)) => format!("{before}expiresAt: 0\n"),
        None => format!("{line}\n"),
    });
    fs::write(&file, old.collect::<String>()).unwrap();
}

#[test]
fn the_session_of_a_service_account_is_renewed_and_ended() {
    let server = Server::start();
    let run = |arguments: &[&str], exit| {
        text(&holm(server.folder.path()).args(arguments).output().unwrap(), exit)
    };
    text(&login(&server, "--client-credentials", &service_account(&server)), 0);
    let first = run(&["token"], 0);
    age(&server);
    let second = run(&["token"], 0);
    assert_ne!(first, second);
    // Its refresh token is used up, as it is after a long time without any command.
    let refresh = |kept: &str| {
        let line = kept.lines().find(|line| line.contains("refreshToken:")).unwrap();
        line.split_whitespace().last().unwrap().to_owned()
    };
    let file = server.folder.path().join(".config/holm/config.yaml");
    let kept = fs::read_to_string(&file).unwrap();
    fs::write(&file, kept.replace(&refresh(&kept), "hr_unknown")).unwrap();
    age(&server);
    let third = run(&["token"], 0);
    assert!(text(&server.cli(third.trim(), &["get", "workspaces"]), 0).contains("main"));

    let told = run(&["logout"], 0);
    assert!(told.contains("Signed out") && !told.contains("could not be told"), "{told}");
    text(&server.cli(third.trim(), &["get", "workspaces"]), 4);
}

#[test]
fn refused_credentials_have_the_number_for_them() {
    let server = Server::start();
    let account = service_account(&server);
    let id = account.split(':').next().unwrap();
    for wrong in [format!("{id}:wrong"), "nobody:wrong".to_owned()] {
        let told = text(&login(&server, "--client-credentials", &wrong), 4);
        assert!(told.contains("client credentials"), "{told}");
        let mut by_variable = holm(server.folder.path());
        by_variable.env("BL_CLIENT_CREDENTIALS", &wrong).args(["get", "workspaces"]);
        by_variable.env("HOLM_URL", server.url());
        text(&by_variable.output().unwrap(), 4);
    }
    let told = text(&login(&server, "--api-key", "hk_wrong"), 4);
    assert!(told.contains("API key") && !told.contains("holm login"), "{told}");
}

#[test]
fn a_key_that_cannot_be_one_is_not_sent() {
    let place = tempfile::tempdir().unwrap();
    for arguments in [&["get", "workspaces"][..], &["login", "--api-key"]] {
        let mut command = holm(place.path());
        command.env("HOLM_API_KEY", "hk_one\nhk_two").env("HOLM_URL", "http://127.0.0.1:1");
        let told = text(&command.args(arguments).output().unwrap(), 4);
        assert!(told.contains("the API key is not valid") && !told.contains("hk_one"), "{told}");
    }
}

#[test]
fn commands_at_the_same_moment_renew_a_session_once() {
    let server = Server::start();
    text(&login(&server, "--client-credentials", &service_account(&server)), 0);
    age(&server);
    let begun: Vec<_> = (0..6)
        .map(|_| {
            let mut token = holm(server.folder.path());
            token.arg("token").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        })
        .collect();
    let told = begun.into_iter().map(|token| text(&token.wait_with_output().unwrap(), 0));
    let told: Vec<_> = told.collect();
    assert!(told.iter().all(|token| *token == told[0]), "each has renewed it: {told:?}");
    text(&server.cli(told[0].trim(), &["get", "workspaces"]), 0);
}

#[test]
fn a_logout_ends_the_session_of_the_server_that_is_named() {
    let (first, second) = (Server::start(), Server::start());
    let home = first.folder.path();
    let account = service_account(&first);
    text(&login_from(home, &first, &["--client-credentials"], &account), 0);
    text(&login_from(home, &second, &["--client-credentials"], &service_account(&second)), 0);
    let run = |arguments: &[&str], exit| text(&holm(home).args(arguments).output().unwrap(), exit);
    let of = |server: &Server| run(&["token", "--server", &server.url()], 0);
    let (old, kept) = (of(&first), of(&second));
    text(&first.cli(old.trim(), &["get", "workspaces"]), 0);

    let told = run(&["logout", "--server", &first.url()], 0);
    assert_eq!(told, format!("Signed out of {}\n", first.address));
    text(&first.cli(old.trim(), &["get", "workspaces"]), 4);
    assert_eq!(of(&second), kept);
    let told = run(&["logout", "--server", &first.url()], 4);
    assert!(told.contains(&format!("you were not signed in to {}", first.url())), "{told}");
    run(&["logout", "--all", "--server", &second.url()], 2);

    text(&login_from(home, &first, &["--client-credentials"], &account), 0);
    let mut by_variable = holm(home);
    by_variable.env("HOLM_URL", first.url()).arg("logout");
    let told = text(&by_variable.output().unwrap(), 0);
    let wanted = format!("Signed out of {}\nnow in use: {}\n", first.address, second.address);
    assert_eq!(told, wanted);
    assert_eq!(run(&["token"], 0), kept);
    run(&["logout", "--all"], 0);
    assert_eq!(run(&["logout"], 0), "you were not signed in\n");
}

#[test]
fn two_accounts_of_one_server_are_chosen_by_name() {
    let server = Server::start();
    let home = server.folder.path();
    let run = |arguments: &[&str], exit| text(&holm(home).args(arguments).output().unwrap(), exit);
    assert!(run(&["contexts"], 4).contains("you are not signed in"));
    text(&login(&server, "--api-key", &server.api_key()), 0);
    let robot = ["--client-credentials", "--context", "robot"];
    text(&login_from(home, &server, &robot, &service_account(&server)), 0);
    let (mine, of_robot) = (server.api_key(), run(&["token"], 0).trim().to_owned());
    assert_ne!(mine, of_robot);

    let listed = run(&["contexts"], 0);
    let line = |name: &str| listed.lines().find(|line| line.starts_with(name)).map(str::to_owned);
    let words = line("robot").unwrap();
    let url = server.url();
    assert!(words.split_whitespace().eq(["robot", url.as_str(), "main"]), "{listed}");
    assert!(line(&server.address).is_some() && listed.ends_with("in use: robot\n"), "{listed}");
    assert!(!run(&["contexts", "-o", "json"], 0).contains(&mine));

    let token = |arguments: &[&str]| run(&[&["token"], arguments].concat(), 0).trim().to_owned();
    assert_eq!(token(&["--context", &server.address]), mine);
    let by_variables = |name: &str, arguments: &[&str]| {
        let mut command = holm(home);
        command.env("HOLM_CONTEXT", name).env("HOLM_WORKSPACE", "main").arg("token");
        command.args(arguments).output().unwrap()
    };
    assert_eq!(text(&by_variables(&server.address, &[]), 0).trim(), mine);
    assert_eq!(text(&by_variables("gone", &["--context", "robot"]), 0).trim(), of_robot);
    assert!(text(&by_variables("gone", &[]), 6).contains("`holm contexts` lists them"));
    // The flag stands over the variables, which would mix two accounts.
    let mut mixed = holm(home);
    mixed.env("HOLM_API_KEY", "hk_wrong").env("HOLM_URL", "http://127.0.0.1:1");
    let mixed = mixed.args(["token", "--context", "robot"]).output().unwrap();
    assert_eq!(text(&mixed, 0).trim(), of_robot);
    run(&["token", "--context", "robot", "--server", "http://127.0.0.1:1"], 2);

    assert_eq!(run(&["contexts", &server.address], 0), format!("now in use: {}\n", server.address));
    assert_eq!(token(&[]), mine);
    run(&["contexts", "gone"], 6);
    assert_eq!(run(&["logout", "--context", "robot"], 0), "Signed out of robot\n");
    assert_eq!(token(&[]), mine);
}
