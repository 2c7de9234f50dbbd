//! Wishes for the agents in these tests.

use crate::place::TASK;
use serde_json::{Value, json};

/// Serves the content of `/srv`.
const SERVE: &str = "exec httpd -f -p $PORT -h /srv";

/// Writes a word to where it is served, once at once and once after a moment.
fn write(word: &str) -> String {
    format!(
        r#"mkdir -p /srv/cgi-bin; echo {word} >/srv/index.html
printf '#!/bin/sh\nsleep 0.4\nprintf "Content-Type: text/plain\\r\\n\\r\\n{word}"\n' >/srv/cgi-bin/slow
chmod 755 /srv/cgi-bin/slow"#
    )
}

/// Returns a program that answers with a word.
pub(crate) fn answers(word: &str) -> String {
    format!("{}; {SERVE}", write(word))
}

/// Returns a Dockerfile whose image answers with a word.
pub(crate) fn dockerfile(word: &str, more: &str) -> String {
    let step = format!("mkdir -p /srv && echo {word} > /srv/index.html");
    format!("FROM {TASK}\nENV PATH=/bin\nCOPY note /note\nRUN {step}\n{more}\n")
}

pub(crate) fn agent(name: &str, command: &str) -> Value {
    with_image(name, command, Some(TASK))
}

/// Returns a wish for an agent that serves what its image contains, which is to be built.
pub(crate) fn built(name: &str) -> Value {
    with_image(name, SERVE, None)
}

fn with_image(name: &str, command: &str, image: Option<&str>) -> Value {
    let envs = json!([{"name": "COMMAND", "value": command}, {"name": "PATH", "value": "/bin"}]);
    let mut runtime = json!({"memory": 128, "minScale": 1, "maxScale": 1, "envs": envs});
    if let Some(image) = image {
        runtime["image"] = json!(image);
    }
    json!({"metadata": {"name": name}, "spec": {"runtime": runtime}})
}
