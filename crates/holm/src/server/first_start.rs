//! The greeting: what a person needs to begin, shown once, on standard output and nowhere else.

use crate::config::Config;
use crate::error::Error;
use crate::term::{self, Style};
use auth::setup::{self, FirstStart, Wishes};
use store::Store;
use types::World;

pub(crate) async fn greet(config: &Config, store: &Store, world: &World, public_url: &str) -> Result<(), Error> {
    let wishes = Wishes {
        email: config.first_start.admin_email.clone(),
        account: config.first_start.account.clone(),
        workspace: config.first_start.workspace.clone(),
        region: config.placement.regions.first().map(|region| region.name.clone()),
        ..Wishes::default()
    };
    let first = setup::first_start(store, world, wishes).await;
    let first =
        first.map_err(|error| Error::Start { act: "set up the first account".into(), message: error.to_string() })?;
    match first {
        Some(first) => introduce(&first, public_url),
        None => term::say(format!("Holm serves {public_url} (sign in: `holm login --server {public_url}`)")),
    }
    Ok(())
}

fn introduce(first: &FirstStart, public_url: &str) {
    let bold = |text: &str| term::styled(Style::Bold, text);
    term::say(format!("{} {public_url}\n", bold("Holm serves")));
    term::say("This is shown once. Keep it in a safe place.\n");
    term::say(format!("  account    {}", first.account));
    term::say(format!("  workspace  {}", first.workspace));
    term::say(format!("  sign in    {}  {}", first.email, first.password));
    term::say(format!("  API key    {}\n", first.api_key));
    term::say(bold("With the published TypeScript client"));
    term::say(format!("  export BL_API_URL={public_url}/v0 BL_RUN_URL={public_url} BL_DISABLE_H2=1"));
    term::say(format!("  export BL_WORKSPACE={} BL_API_KEY={}", first.workspace, first.api_key));
    term::say(format!("  {TRY_IT}\n"));
    term::say(bold("With the command line"));
    term::say("  holm get sandboxes            (it reads the same variables)\n");
    term::say("The Python client reads no address from the environment: docs/command-line.md shows what it needs.");
}

/// One line that lists the sandboxes: it works as soon as the server answers.
const TRY_IT: &str = "npm install @blaxel/core && node -e 'import(\"@blaxel/core\").then(async b => console.log((await b.SandboxInstance.list()).data))'";
