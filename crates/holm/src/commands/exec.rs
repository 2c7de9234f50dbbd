//! `holm exec`: runs a command in a sandbox.

use crate::client::processes::{Ask, Process};
use crate::client::workload::Workload;
use crate::client::{Choice, Client, target};
use crate::error::Error;
use crate::exit::Exit;
use crate::{shell, term, terminal};
use serde_json::{Map, Value, json};
use std::io::{self, Write};
use types::instance::Stream;

/// Runs a command in a sandbox
///
/// Output is shown as it is printed, with standard output and standard error kept apart, and the
/// exit code becomes this program's. Several words are a program and its arguments; a single word
/// is a line for the shell.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  holm exec box uname -a
  holm exec box 'ls *.py | wc -l'
  holm exec -C /app -e MODE=test box -- npm run test
  tar c src | holm exec -i box tar x
  holm exec -t box htop")]
pub(crate) struct Args {
    /// Name of the sandbox
    sandbox: String,
    /// The command to run
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<String>,
    /// A variable for the command. `NAME` alone takes the value from your environment, where no
    /// other user of this machine can see it
    #[arg(short, long, value_name = "NAME[=VALUE]")]
    env: Vec<String>,
    /// Folder to run it in; by default the working directory of the image. `-w` with an absolute
    /// path means the same
    #[arg(short = 'C', long, value_name = "FOLDER")]
    workdir: Option<String>,
    /// Pass standard input to it, after reading all of it; use -t to type to a command
    #[arg(short, long)]
    interactive: bool,
    /// Run it on a terminal, as `holm connect` does
    #[arg(short, long, conflicts_with = "interactive")]
    tty: bool,
}

pub(crate) async fn run(mut args: Args, choice: &Choice) -> Result<Exit, Error> {
    let choice = with_folder(&mut args, choice);
    let variables = variables(&args.env, |name| std::env::var(name).ok())?;
    let client = Client::choose(&choice)?;
    let command = shell::line(&args.command);
    let target = target::resolve(&["sandboxes".into(), args.sandbox.clone()])?;
    let sandbox = Workload::find(client, &target).await?;
    if args.tty {
        return terminal::command(&sandbox, &command, &variables, args.workdir).await;
    }
    let command = match args.interactive {
        true => with_input(&sandbox, &command).await?,
        false => command,
    };
    let mut body = json!({"command": command, "env": variables});
    if let Some(folder) = args.workdir {
        body["workingDir"] = folder.into();
    }
    let process = sandbox.start(&body).await?;
    follow(&sandbox, &process).await
}

/// In all commands `-w` is the workspace, but in similar tools it is the folder. Names of
/// workspaces never begin with a slash, so a value that does is the folder.
fn with_folder(args: &mut Args, choice: &Choice) -> Choice {
    let mut choice = choice.clone();
    if let Some(folder) = choice.workspace.take_if(|name| name.starts_with('/')) {
        args.workdir.get_or_insert(folder);
    }
    choice
}

fn variables(
    given: &[String],
    here: impl Fn(&str) -> Option<String>,
) -> Result<Map<String, Value>, Error> {
    let read = |text: &String| {
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (text.as_str(), here(text)),
        };
        if name.is_empty() {
            // The text may contain a secret, so it is not repeated.
            return Err(Error::Usage("--env must be NAME=VALUE or NAME".into()));
        }
        let value = value.ok_or_else(|| Error::Usage(format!("`{name}` is not set here")))?;
        Ok((name.to_owned(), Value::String(value)))
    };
    given.iter().map(read).collect()
}

/// Prepares standard input. The API has none for processes, so it becomes a file that is unlinked
/// as soon as the command has it open.
async fn with_input(sandbox: &Workload, command: &str) -> Result<String, Error> {
    let name = format!("/tmp/.holm-input-{}", sandbox.world.random_text(20));
    sandbox.put_file(&name, 0o600, tokio::fs::File::from_std(stdin()?), &|_| {}).await?;
    Ok(format!("exec <{name}; rm -f {name}; {command}"))
}

fn stdin() -> Result<std::fs::File, Error> {
    let stdin = rustix::io::dup(rustix::stdio::stdin());
    stdin.map(std::fs::File::from).map_err(|error| Error::io("read standard input")(error.into()))
}

fn print(stream: Stream, bytes: &[u8]) -> io::Result<()> {
    match stream {
        Stream::Stdout => {
            let mut out = io::stdout().lock();
            out.write_all(bytes)?;
            out.flush()
        }
        Stream::Stderr => io::stderr().lock().write_all(bytes),
    }
}

/// Shows the output until the command ends. Ctrl-C asks the command to end, a second one kills it,
/// a third leaves it running. If it ends, its exit code counts, whoever asked it to.
async fn follow(sandbox: &Workload, process: &Process) -> Result<Exit, Error> {
    let mut out = print;
    let following = sandbox.follow(process, &mut out);
    tokio::pin!(following);
    let mut signals = crate::signals::Ends::new()?;
    let mut asked = 0;
    loop {
        tokio::select! {
            end = &mut following => return match end {
                Ok(end) => Ok(Exit::Program(end.number())),
                // Nobody reads the output any more, so there is no reason for the command to go on.
                Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::BrokenPipe => {
                    sandbox.end(process, Ask::Stop).await?;
                    Ok(Exit::Program(141))
                }
                Err(error) => Err(error),
            },
            () = signals.next() => {
                asked += 1;
                match asked {
                    1 => sandbox.end(process, Ask::Stop).await?,
                    2 => sandbox.end(process, Ask::Kill).await?,
                    _ => {
                        term::note("the command may still run");
                        return Ok(Exit::Interrupted);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::flags;

    #[test]
    fn what_stands_behind_the_command_is_its_own() {
        let line = ["exec", "-e", "A=b", "box", "ls", "-l", "-e", "--", "-i"];
        let args: Args = flags::read(line).unwrap();
        assert_eq!(args.command, ["ls", "-l", "-e", "--", "-i"]);
        assert_eq!((args.env.len(), args.interactive), (1, false));
        let args: Args = flags::read(["exec", "box", "--", "-x"]).unwrap();
        assert_eq!(args.command, ["-x"]);
    }

    #[test]
    fn a_folder_is_no_workspace() {
        let mut args = flags::read(["exec", "box", "true"]).unwrap();
        let choice = Choice { workspace: Some("/app".into()), ..Choice::default() };
        assert_ne!(with_folder(&mut args, &choice).workspace, choice.workspace);
        assert_eq!(args.workdir.as_deref(), Some("/app"));
    }

    #[test]
    fn a_variable_has_a_value_or_takes_the_one_here() {
        let here = |name: &str| (name == "TOKEN").then(|| "s3cret".to_owned());
        let given = ["A=b=c".to_owned(), "TOKEN".to_owned(), "E=".to_owned()];
        let read = variables(&given, here).unwrap();
        assert_eq!(Value::Object(read), json!({"A": "b=c", "TOKEN": "s3cret", "E": ""}));
        assert!(variables(&["=s3cret".to_owned()], here).is_err());
        assert!(variables(&["GONE".to_owned()], here).unwrap_err().to_string().contains("GONE"));
    }
}
