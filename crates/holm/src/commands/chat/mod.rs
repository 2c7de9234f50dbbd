//! `holm chat`: a conversation with an agent.

mod render;

use crate::client::Client;
use crate::client::target::resolve;
use crate::client::workload::{Workload, refusal};
use crate::error::Error;
use crate::exit::Exit;
use crate::term::{self, Style};
use render::Render;
use reqwest::Method;
use serde_json::json;
use std::io::{self, BufRead, IsTerminal};
use tokio::sync::mpsc;

/// Talks with an agent
///
/// Each line is sent as `{"inputs": "…"}`, and the answer is shown as it comes. The agent is told
/// that all lines are of one conversation. Ctrl-C ends an answer, Ctrl-D the conversation.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  holm chat helper
  holm chat helper --message 'What is the weather in Bonn?'
  holm chat helper --thread 3f9c0a   # goes on with an earlier conversation, if the agent remembers it")]
pub(crate) struct Args {
    /// Name of the agent
    agent: String,
    /// Say this alone, and end
    #[arg(short, long, value_name = "TEXT")]
    message: Option<String>,
    /// Id of the conversation; a new one otherwise
    #[arg(long, value_name = "ID")]
    thread: Option<String>,
}

const THREAD: &str = "X-Blaxel-Thread-Id";
const THREAD_CHARS: usize = 24;
/// Lines that wait to be said.
const LINES_MAX: usize = 16;

pub(crate) async fn run(args: Args, client: Client) -> Result<Exit, Error> {
    let target = resolve(&["agents".into(), args.agent.clone()])?;
    let agent = Workload::find(client, &target).await?;
    let thread = args.thread.unwrap_or_else(|| agent.world.random_text(THREAD_CHARS));
    if let Some(message) = args.message {
        return say(&agent, &thread, &message).await;
    }
    let is_terminal = io::stdin().is_terminal() && io::stderr().is_terminal();
    let mut lines = lines();
    loop {
        if is_terminal {
            prompt();
        }
        let line = tokio::select! {
            line = lines.recv() => line,
            _ = tokio::signal::ctrl_c() => return Ok(Exit::Interrupted),
        };
        let Some(line) = line else { return Ok(Exit::Success) };
        if line.trim().is_empty() {
            continue;
        }
        let said = say(&agent, &thread, &line).await;
        match (said, is_terminal) {
            (Ok(Exit::Success), _) | (Ok(Exit::Interrupted), true) => {}
            // A person may try again; a program that talks wants to know.
            (Err(error), true) => {
                term::note(format!("{} {error}", term::styled_note(Style::Bad, "error:")))
            }
            (ended, _) => return ended,
        }
    }
}

fn prompt() {
    use io::Write;
    let mut err = io::stderr();
    // A prompt that cannot be shown is no reason to end.
    let _ = write!(err, "{} ", term::styled_note(Style::Bold, ">")).and_then(|()| err.flush());
}

/// What is typed. A thread of its own reads, since a read cannot be given up; it ends with the
/// program.
fn lines() -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel(LINES_MAX);
    std::thread::spawn(move || {
        for line in io::stdin().lock().lines().map_while(Result::ok) {
            if sender.blocking_send(line).is_err() {
                break;
            }
        }
    });
    receiver
}

async fn say(agent: &Workload, thread: &str, message: &str) -> Result<Exit, Error> {
    tokio::select! {
        said = ask(agent, thread, message) => said.map(|()| Exit::Success),
        _ = tokio::signal::ctrl_c() => {
            term::say("");
            Ok(Exit::Interrupted)
        }
    }
}

async fn ask(agent: &Workload, thread: &str, message: &str) -> Result<(), Error> {
    let request = agent.request(Method::POST, "?stream=true").await?;
    let request = request.header(THREAD, thread).json(&json!({"inputs": message}));
    let mut response = agent.send(request).await?;
    if !response.status().is_success() {
        return Err(refusal(response).await);
    }
    let mut render = Render::default();
    let mut ends_line = true;
    let mut show = |text: &str| {
        if !text.is_empty() {
            ends_line = text.ends_with('\n');
            term::say_part(term::harmless(text));
        }
    };
    while let Some(piece) = response.chunk().await.map_err(|source| agent.unreachable(source))? {
        show(&render.take(&piece));
    }
    show(&render.finish());
    if !ends_line {
        term::say("");
    }
    Ok(())
}
