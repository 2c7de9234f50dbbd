//! `holm doctor`: checks what this machine can do, and says how to fix problems.

mod finding;
mod limits;
mod machine;
mod network;
mod place;

use crate::commands::config::Place;
use crate::config::{Config, Role};
use crate::error::Error;
use crate::exit::Exit;
use crate::output;
use crate::term::{self, Style};
use finding::{Finding, Health};

/// Checks what this machine can do, and says how to fix problems
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    place: Place,
    /// Print a JSON list, for programs
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(args: Args) -> Result<Exit, Error> {
    let config = args.place.load(&[]);
    let runs_workloads =
        config.as_ref().is_ok_and(|config| config.server.roles.contains(&Role::Node));
    let images = config.as_ref().map_or_else(|_| "/usr".into(), Config::images_folder);
    let mut findings = machine::look(runs_workloads, &images);
    match config {
        Ok(config) => {
            findings.push(settings(&config));
            findings.extend(limits::look(&config));
            findings.extend(network::look(&config));
            findings.extend(place::look(&config).await);
        }
        Err(error) => {
            findings.push(Finding::fail(
                "settings",
                error.to_string(),
                "mend the setting, then run `holm config check`",
            ));
        }
    }
    if args.json {
        term::say(output::json(&findings));
    } else {
        findings.iter().for_each(show);
    }
    let failed = findings.iter().any(|finding| finding.health == Health::Fail);
    Ok(if failed { Exit::Unhealthy } else { Exit::Success })
}

fn settings(config: &Config) -> Finding {
    if config.warnings.is_empty() {
        return Finding::ok("settings", "can be used");
    }
    Finding::warn(
        "settings",
        config.warnings.join("; "),
        "change the setting, then run `holm config check`",
    )
}

/// Width of the names of checks. What a check with a longer name found is on a line of its own.
const COLUMN: usize = 18;

fn show(finding: &Finding) {
    let (style, mark) = match finding.health {
        Health::Ok => (Style::Good, "ok  "),
        Health::Warn => (Style::Warning, "warn"),
        Health::Fail => (Style::Bad, "fail"),
    };
    let (mark, says) = (term::styled(style, mark), &finding.says);
    if finding.check.len() > COLUMN {
        term::say(format!("{mark} {}\n     {:<COLUMN$} {says}", finding.check, ""));
    } else {
        term::say(format!("{mark} {:<COLUMN$} {says}", finding.check));
    }
    if let Some(remedy) = &finding.remedy {
        term::say(format!("     {:<COLUMN$} {}", "", term::styled(Style::Dim, remedy)));
    }
}
