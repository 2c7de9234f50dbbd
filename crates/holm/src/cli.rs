//! The command line: all subcommands, documented by the text of their help.

use crate::client::{Choice, Client};
use crate::commands::{
    apply, archive, backup, cancel, chat, completion, config, connect, contexts, cp, delete,
    deploy, describe, doctor, drive, exec, fork, get, image, keys, login, logout, logs, network,
    new, port_forward, preview, push, requests, restore, revisions, rollback, run, serve, snapshot,
    token, up, usage, user, version, volume, workspaces,
};
use crate::error::Error;
use crate::exit::Exit;
use clap::{Parser, Subcommand};

/// Hosts the workloads of AI agents on machines that you own.
#[derive(Debug, Parser)]
#[command(name = "holm", version, propagate_version = false, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(flatten)]
    choice: Choice,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Up(up::Args),
    Login(login::Args),
    Logout(logout::Args),
    Contexts(contexts::Args),
    #[command(visible_alias = "ws")]
    Workspaces(workspaces::Args),
    Token(token::Args),
    Get(get::Args),
    Describe(describe::Args),
    Apply(apply::Args),
    Delete(delete::Args),
    Run(run::Args),
    Cancel(cancel::Args),
    Logs(logs::Args),
    Requests(requests::Args),
    New(new::Args),
    Serve(serve::Args),
    Deploy(Box<deploy::Args>),
    Push(Box<push::Args>),
    Revisions(revisions::Args),
    Rollback(rollback::Args),
    Chat(chat::Args),
    Exec(exec::Args),
    Connect(connect::Args),
    Cp(cp::Args),
    Snapshot(snapshot::Args),
    Fork(fork::Args),
    Archive(archive::Args),
    Unarchive(archive::BackArgs),
    #[command(visible_alias = "vol")]
    Volume(volume::Args),
    Drive(drive::Args),
    #[command(visible_alias = "net")]
    Network(network::Args),
    PortForward(port_forward::Args),
    Preview(preview::Args),
    Usage(Box<usage::Args>),
    Image(image::Args),
    Doctor(doctor::Args),
    Config(config::Args),
    Backup(backup::Args),
    Restore(restore::Args),
    Keys(keys::Args),
    User(user::Args),
    Completion(completion::Args),
    Version(version::Args),
}

impl Cli {
    /// Returns whether this process becomes a server.
    pub(crate) fn serves(&self) -> bool {
        matches!(self.command, Command::Up(_))
    }

    pub(crate) async fn run(self) -> Result<Exit, Error> {
        let choice = self.choice;
        match self.command {
            Command::Up(args) => Box::pin(up::run(args)).await,
            Command::Login(args) => login::run(args, &choice).await,
            Command::Logout(args) => logout::run(args, &choice).await,
            Command::Contexts(args) => contexts::run(&args, &choice),
            Command::Workspaces(args) => workspaces::run(args, Client::choose(&choice)?).await,
            Command::Token(args) => token::run(args, Client::choose(&choice)?).await,
            Command::Get(args) => get::run(args, Client::choose(&choice)?).await,
            Command::Describe(args) => describe::run(args, Client::choose(&choice)?).await,
            Command::Apply(args) => apply::run(args, Client::choose(&choice)?).await,
            Command::Delete(args) => delete::run(args, Client::choose(&choice)?).await,
            Command::Run(args) => run::run(args, Client::choose(&choice)?).await,
            Command::Cancel(args) => cancel::run(args, Client::choose(&choice)?).await,
            Command::Logs(args) => logs::run(args, Client::choose(&choice)?).await,
            Command::Requests(args) => requests::run(args, Client::choose(&choice)?).await,
            Command::New(args) => new::run(args),
            Command::Serve(args) => serve::run(args, &choice).await,
            Command::Push(args) => push::run(*args, Client::choose(&choice)?).await,
            Command::Deploy(args) => deploy::run(*args, &choice).await,
            Command::Exec(args) => exec::run(args, &choice).await,
            Command::Connect(args) => connect::run(args, Client::choose(&choice)?).await,
            Command::Cp(args) => cp::run(args, Client::choose(&choice)?).await,
            Command::Volume(args) => volume::run(args, &choice).await,
            Command::Drive(args) => drive::run(args, Client::choose(&choice)?).await,
            Command::Network(args) => network::run(args, Client::choose(&choice)?).await,
            Command::Revisions(args) => revisions::run(args, Client::choose(&choice)?).await,
            Command::Rollback(args) => rollback::run(args, Client::choose(&choice)?).await,
            Command::Chat(args) => chat::run(args, Client::choose(&choice)?).await,
            Command::Snapshot(args) => snapshot::run(args, Client::choose(&choice)?).await,
            Command::Fork(args) => fork::run(args, Client::choose(&choice)?).await,
            Command::Archive(args) => archive::run(args, Client::choose(&choice)?).await,
            Command::Unarchive(args) => archive::run_back(args, Client::choose(&choice)?).await,
            Command::PortForward(args) => port_forward::run(args, Client::choose(&choice)?).await,
            Command::Preview(args) => preview::run(args, Client::choose(&choice)?).await,
            Command::Usage(args) => usage::run(*args, &choice).await,
            Command::Image(args) => image::run(args).await,
            Command::Doctor(args) => doctor::run(args).await,
            Command::Config(args) => config::run(&args),
            Command::Backup(args) => backup::run(args).await,
            Command::Restore(args) => restore::run(args).await,
            Command::Keys(args) => keys::run(args, &choice).await,
            Command::User(args) => user::run(args).await,
            Command::Completion(args) => completion::run(&args),
            Command::Version(args) => version::run(&args),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn silent(command: &clap::Command, path: &str, found: &mut Vec<String>) {
        if command.get_about().is_none() {
            found.push(path.to_owned());
        }
        let arguments = command.get_arguments().filter(|argument| !argument.is_hide_set());
        for argument in arguments.filter(|argument| argument.get_help().is_none()) {
            found.push(format!("{path} {argument}"));
        }
        for below in command.get_subcommands() {
            silent(below, &format!("{path} {}", below.get_name()), found);
        }
    }

    /// Many users have nothing but the help.
    #[test]
    fn every_command_and_option_says_what_it_is_for() {
        let mut found = Vec::new();
        silent(&Cli::command(), "holm", &mut found);
        assert_eq!(found, [""; 0]);
    }
}
