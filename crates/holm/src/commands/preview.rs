//! `holm preview`: gives a port of a sandbox a public address.

use crate::client::target::resolve;
use crate::client::{Client, kinds};
use crate::error::Error;
use crate::exit::Exit;
use crate::output::{self, Format};
use crate::{term, world};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

/// Creates an address for a port of a sandbox, and prints it
///
/// Without --public a caller needs the key of a member of the workspace, or a token of the preview
/// in the address: `?bl_preview_token=TOKEN`. `holm apply` makes tokens.
///
/// Ports 443 and 8080 are the interface of the sandbox itself: whoever reaches it may run commands
/// in the sandbox. Let an app listen on another port.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  holm preview box 3000 --public
  holm preview box 3000 --name web --prefix shop
  holm get sandbox box previews
  holm delete sandboxes/box/previews web

A token for an hour, which anybody may use who has it:
  echo \"{kind: PreviewToken, metadata: {resourceName: box, previewName: web},
         spec: {expiresAt: '$(date -u -d '+1 hour' +%FT%TZ)'}}\" | holm apply -f -
  holm get sandbox box preview web tokens")]
pub(crate) struct Args {
    /// Name of the sandbox
    sandbox: String,
    /// Port on which the app listens in the sandbox
    #[arg(value_parser = clap::value_parser!(u16).range(1..))]
    port: u16,
    /// Answer everybody, without a token
    #[arg(long)]
    public: bool,
    /// Answer everybody also on a port that is the interface of the sandbox itself
    #[arg(long, requires = "public")]
    whole_sandbox: bool,
    /// Name of the preview; by default made from the port
    #[arg(long)]
    name: Option<String>,
    /// First word of its host name
    #[arg(long, value_name = "WORD")]
    prefix: Option<String>,
    /// How to show it; by default only the address
    #[arg(short, long, value_enum, default_value_t, hide_default_value = true)]
    output: Format,
}

/// Ports at which a sandbox has its own interface.
const OWN_PORTS: [u16; 2] = [443, 8080];

/// Refuses to open the interface of a sandbox to everybody by mistake: 8080 is what many apps use.
fn check(args: &Args) -> Result<(), Error> {
    if !args.public || args.whole_sandbox || !OWN_PORTS.contains(&args.port) {
        return Ok(());
    }
    Err(Error::Usage(format!(
        "port {} is the interface of the sandbox itself, by which anybody could run commands in it: \
         let the app listen on another port (or open it to everybody with --whole-sandbox)",
        args.port
    )))
}

pub(crate) async fn run(args: Args, mut client: Client) -> Result<Exit, Error> {
    check(&args)?;
    let target = resolve(&["sandboxes".into(), args.sandbox.clone(), "previews".into()])?;
    let name = args.name.clone().unwrap_or_else(|| format!("port-{}", args.port));
    let mut spec = json!({"port": args.port, "public": args.public});
    if let Some(prefix) = &args.prefix {
        spec["prefixUrl"] = prefix.as_str().into();
    }
    let body = json!({"metadata": {"name": name}, "spec": spec});
    let made = client.call(Method::POST, &target.collection, &[], Some(&body)).await;
    let preview = match made {
        Err(conflict @ Error::Answer { status: StatusCode::CONFLICT, .. }) => {
            // It may be the prefix that is taken.
            let there = client.find(&target.object(&name)?).await?.ok_or(conflict)?;
            // Asking for the same again succeeds; a different preview of this name is left alone.
            if !is_same(&there, &spec) {
                return Err(taken(&name, &args.sandbox));
            }
            there
        }
        made => made?,
    };
    match (args.output, preview.pointer("/spec/url").and_then(Value::as_str)) {
        (Format::Table, Some(url)) => term::say(term::harmless(url)),
        (format, _) => {
            let kind = kinds::find("previews")?;
            term::say(output::render(kind, &[preview], format, world::system().now()));
        }
    }
    Ok(Exit::Success)
}

fn taken(name: &str, sandbox: &str) -> Error {
    Error::Taken(format!(
        "there is another preview `{name}`: choose another --name, or delete that one first \
         (`holm delete sandboxes/{sandbox}/previews {name}`)"
    ))
}

fn is_same(there: &Value, spec: &Value) -> bool {
    let members = spec.as_object().into_iter().flatten();
    members.into_iter().all(|(name, value)| there["spec"].get(name) == Some(value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::flags;

    #[test]
    fn a_whole_sandbox_is_opened_to_everybody_only_on_purpose() {
        let read = |words: &str| {
            let args = flags::read(words.split(' ')).map_err(|error| error.to_string())?;
            check(&args).map_err(|error| error.to_string())
        };
        for port in OWN_PORTS {
            assert!(read(&format!("preview box {port} --public")).unwrap_err().contains("another"));
            assert_eq!(read(&format!("preview box {port}")), Ok(()));
            assert_eq!(read(&format!("preview box {port} --public --whole-sandbox")), Ok(()));
        }
        assert_eq!(read("preview box 3000 --public"), Ok(()));
        assert!(read("preview box 8080 --whole-sandbox").is_err());
    }
}
