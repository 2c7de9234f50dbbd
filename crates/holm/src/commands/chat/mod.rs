//! `holm chat`: a conversation with an agent or a model.

mod model;
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

/// Talks with an agent or a model
///
/// Each line is sent to an agent as `{"inputs": "…"}`, with the id of the conversation. A model
/// gets the whole conversation each time, in the OpenAI format, whatever its provider. Answers are
/// shown as they arrive. Ctrl-C stops an answer, Ctrl-D ends the conversation.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  holm chat helper
  holm chat helper --message 'What is the weather in Bonn?'
  holm chat helper --thread 3f9c0a   # goes on with an earlier conversation
  holm chat gpt --system 'Answer in one sentence.'")]
pub(crate) struct Args {
    /// Name of the agent or the model
    name: String,
    /// Talk to the model of this name, even if there is an agent with it
    #[arg(long)]
    model: bool,
    /// Instructions for a model, sent before the conversation
    #[arg(long, value_name = "TEXT")]
    system: Option<String>,
    /// Send this message, show the answer and exit
    #[arg(short, long, value_name = "TEXT")]
    message: Option<String>,
    /// Id of the conversation to continue; a new one by default
    #[arg(long, value_name = "ID")]
    thread: Option<String>,
}

const THREAD: &str = "X-Blaxel-Thread-Id";
const THREAD_CHARS: usize = 24;
/// Most typed lines that wait to be sent.
const LINES_MAX: usize = 16;

/// The agent or model that answers.
enum Partner {
    Agent { agent: Workload, thread: String },
    Model(model::Conversation),
}

impl Partner {
    /// Finds an agent of this name, or else a model.
    async fn find(args: &Args, mut client: Client) -> Result<Self, Error> {
        let agent = resolve(&["agents".into(), args.name.clone()])?;
        let is_model = args.model || args.system.is_some();
        let there = !is_model && client.find(&agent.object(&args.name)?).await?.is_some();
        if there {
            let agent = Workload::find(client, &agent).await?;
            let thread = args.thread.clone();
            let thread = thread.unwrap_or_else(|| agent.world.random_text(THREAD_CHARS));
            return Ok(Self::Agent { agent, thread });
        }
        let model = resolve(&["models".into(), args.name.clone()])?;
        if !is_model && client.find(&model.object(&args.name)?).await?.is_none() {
            return Err(Error::Absent(format!("there is no agent or model `{}`", args.name)));
        }
        let model = Workload::find(client, &model).await?;
        let thread = args.thread.clone();
        let thread = thread.unwrap_or_else(|| model.world.random_text(THREAD_CHARS));
        Ok(Self::Model(model::Conversation::new(model, thread, args.system.as_deref())))
    }

    async fn ask(&mut self, message: &str) -> Result<(), Error> {
        match self {
            Self::Agent { agent, thread } => ask(agent, thread, message).await,
            Self::Model(conversation) => conversation.ask(message).await,
        }
    }
}

pub(crate) async fn run(args: Args, client: Client) -> Result<Exit, Error> {
    let mut partner = Partner::find(&args, client).await?;
    if let Some(message) = args.message {
        return say(&mut partner, &message).await;
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
        let said = say(&mut partner, &line).await;
        match (said, is_terminal) {
            (Ok(Exit::Success), _) | (Ok(Exit::Interrupted), true) => {}
            // A person can try again; a script has to see the failure.
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
    // Failing to show the prompt is no reason to stop.
    let _ = write!(err, "{} ", term::styled_note(Style::Bold, ">")).and_then(|()| err.flush());
}

/// Returns the lines that are typed. A separate thread reads them, since a blocking read cannot be
/// cancelled; it ends with the program.
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

async fn say(partner: &mut Partner, message: &str) -> Result<Exit, Error> {
    tokio::select! {
        said = partner.ask(message) => said.map(|()| Exit::Success),
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
    while let Some(piece) =
        response.chunk().await.map_err(|source| agent.broke_off(source.without_url()))?
    {
        show(&render.take(&piece));
    }
    show(&render.finish());
    if !ends_line {
        term::say("");
    }
    Ok(())
}
