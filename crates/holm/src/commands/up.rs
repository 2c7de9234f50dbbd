//! `holm up`: runs the server.

use super::config::Place;
use crate::config::Role;
use crate::error::Error;
use crate::exit::Exit;
use crate::server::{self, Greeting};
use clap::ValueEnum;

/// Runs the server
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    place: Place,
    /// Role of this process; repeat for several
    #[arg(long = "role", value_enum, value_name = "ROLE")]
    roles: Vec<Role>,
    /// Address and port to listen on; port 0 takes any free one
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// Address at which callers reach this server
    #[arg(long, value_name = "URL")]
    public_url: Option<String>,
    /// Print the address, and at the first start the key, as one line of JSON
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(args: Args) -> Result<Exit, Error> {
    let roles = (!args.roles.is_empty()).then(|| written(&args.roles));
    let flags = [
        ("server.roles", roles),
        ("server.listen", args.listen),
        ("server.public_url", args.public_url),
    ];
    let given: Vec<_> = flags.into_iter().filter_map(|(key, value)| Some((key, value?))).collect();
    let config = args.place.load(&given)?;
    let greeting = if args.json { Greeting::Json } else { Greeting::Text };
    Box::pin(server::run(config, greeting)).await
}

/// Writes roles as the setting does, so that they are checked together with the others.
fn written(roles: &[Role]) -> String {
    let names =
        roles.iter().filter_map(|role| Some(format!("{:?}", role.to_possible_value()?.get_name())));
    format!("[{}]", names.collect::<Vec<_>>().join(", "))
}
