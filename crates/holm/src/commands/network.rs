//! `holm network`: rules for what a sandbox may reach.

use crate::client::Client;
use crate::client::target::resolve;
use crate::error::Error;
use crate::exit::Exit;
use crate::output::{self, Format};
use crate::term;
use clap::Subcommand;
use serde_json::{Value, json};
use std::cell::RefCell;

const ALLOWED: &str = "allowedDomains";
const FORBIDDEN: &str = "forbiddenDomains";
const BYPASS: &str = "bypass";

/// Shows and changes what a sandbox may reach
///
/// A change is in effect when the command returns, even for open connections. PATTERN is a domain,
/// `*.domain` for everything below it, `*` for everything, an IP address or range, or
/// `METHOD:domain/path`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  holm network show box
  holm network allow box registry.npmjs.org '*.example.com'
  holm network block box 'POST:api.example.com/admin'
  holm network drop box '*.example.com'
  holm logs sandbox box --severity warning

With the first pattern that is allowed everything else is blocked.
Write with `holm apply` what is to be injected into requests.")]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Shows the rules of a sandbox
    Show {
        /// Name of the sandbox
        sandbox: String,
        /// How to show them
        #[arg(short, long, value_enum, default_value_t)]
        output: Format,
    },
    /// Allows a sandbox to reach what matches the patterns, and nothing that no pattern allows
    Allow {
        /// Name of the sandbox
        sandbox: String,
        /// Hosts such as `example.com` or `*.example.com`; `METHOD:HOST/PATH` for requests
        #[arg(required = true, value_name = "PATTERN")]
        patterns: Vec<String>,
    },
    /// Forbids a sandbox to reach what matches the patterns
    Block {
        /// Name of the sandbox
        sandbox: String,
        /// Hosts such as `example.com` or `*.example.com`; `METHOD:HOST/PATH` for requests
        #[arg(required = true, value_name = "PATTERN")]
        patterns: Vec<String>,
    },
    /// Removes patterns from all lists of a sandbox
    Drop {
        /// Name of the sandbox
        sandbox: String,
        /// Patterns as `holm network show` lists them
        #[arg(required = true, value_name = "PATTERN")]
        patterns: Vec<String>,
    },
}

pub(crate) async fn run(args: Args, mut client: Client) -> Result<Exit, Error> {
    let (sandbox, patterns, list) = match args.command {
        Command::Show { sandbox, output } => {
            let object = client.get(&path_of(&sandbox)?, &[]).await?;
            show(&object["spec"], output);
            return Ok(Exit::Success);
        }
        Command::Allow { sandbox, patterns } => (sandbox, patterns, Some(ALLOWED)),
        Command::Block { sandbox, patterns } => (sandbox, patterns, Some(FORBIDDEN)),
        Command::Drop { sandbox, patterns } => (sandbox, patterns, None),
    };
    let unknown = RefCell::default();
    let change = |object: &mut Value| {
        let network = &mut object["spec"]["network"];
        unknown.replace(drop_all(network, &patterns));
        if let Some(list) = list {
            let listed = &mut network["proxy"][list];
            let known = listed.as_array().cloned().unwrap_or_default();
            let all = known.into_iter().chain(patterns.iter().map(|pattern| json!(pattern)));
            *listed = all.collect();
        }
        Ok(())
    };
    let changed = client.change(&path_of(&sandbox)?, change).await?;
    if list.is_none() {
        for pattern in unknown.take() {
            term::note(format!("`{pattern}` was in no list"));
        }
    }
    show(&changed["spec"], Format::Table);
    Ok(Exit::Success)
}

fn path_of(sandbox: &str) -> Result<String, Error> {
    resolve(&["sandboxes".into(), sandbox.to_owned()])?.object(sandbox)
}

/// Removes patterns from every list, in both places where lists can be. Returns those that were in
/// none.
fn drop_all(network: &mut Value, patterns: &[String]) -> Vec<String> {
    let mut unknown = patterns.to_vec();
    let mut drop = |list: Option<&mut Value>| {
        let Some(entries) = list.and_then(Value::as_array_mut) else { return };
        unknown.retain(|pattern| !entries.iter().any(|entry| entry == pattern));
        entries.retain(|entry| !patterns.iter().any(|pattern| entry == pattern));
    };
    for list in [ALLOWED, FORBIDDEN, BYPASS] {
        drop(network.get_mut(list));
        drop(network.get_mut("proxy").and_then(|proxy| proxy.get_mut(list)));
    }
    unknown
}

fn show(spec: &Value, format: Format) {
    let network = spec.get("network").cloned().unwrap_or(Value::Null);
    if format != Format::Table {
        return term::say(output::plain(&[network], format));
    }
    let rows = rows(&network, spec["vpc"].as_str());
    if rows.is_empty() {
        return term::say("no rules: it reaches the internet");
    }
    let heading = ["RULE", "OF"].map(str::to_owned);
    let shown =
        rows.into_iter().map(|(rule, of)| vec![rule.to_owned(), term::harmless(&of).to_string()]);
    term::say(output::lines(&heading, shown));
}

/// Returns all rules, in the order in which they are applied.
fn rows(network: &Value, vpc: Option<&str>) -> Vec<(&'static str, String)> {
    let texts = |list: &Value| -> Vec<String> {
        let entries = list.as_array().into_iter().flatten();
        entries.filter_map(|entry| entry.as_str().map(str::to_owned)).collect()
    };
    let proxy = &network["proxy"];
    let mut rows = Vec::new();
    for (rule, list) in [("bypass", BYPASS), ("allow", ALLOWED), ("block", FORBIDDEN)] {
        let mut patterns = texts(&network[list]);
        patterns.extend(texts(&proxy[list]));
        patterns.dedup();
        rows.extend(patterns.into_iter().map(|pattern| (rule, pattern)));
    }
    for target in proxy["routing"].as_array().into_iter().flatten() {
        let names = |member: &str, what: &str| -> Vec<String> {
            let members = target[member].as_object().into_iter().flatten();
            members.map(|(name, _)| format!("{what} {name}")).collect()
        };
        let injected = [names("headers", "header"), names("body", "body")].concat().join(", ");
        rows.push(("inject", format!("{}: {injected}", texts(&target["destinations"]).join(", "))));
    }
    if texts(&network["firewall"]["rulesets"]).iter().any(|ruleset| ruleset == "proxy") {
        rows.push(("only", "through the proxy".to_owned()));
    }
    let gateway = network["egress"]["gateway"].as_str().map(|gateway| ("leave by", gateway));
    let vpc = vpc.map(|vpc| ("member of", vpc));
    rows.extend(gateway.into_iter().chain(vpc).map(|(rule, of)| (rule, of.to_owned())));
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_dropped_wherever_it_stands() {
        let mut network = json!({"allowedDomains": ["a", "b"], "proxy": {"forbiddenDomains": ["a"], "bypass": ["c"]}});
        let patterns = ["a", "x", "c"].map(str::to_owned);
        assert_eq!(drop_all(&mut network, &patterns), ["x"]);
        let left =
            json!({"allowedDomains": ["b"], "proxy": {"forbiddenDomains": [], "bypass": []}});
        assert_eq!(network, left);
        let mut none = Value::Null;
        assert_eq!(drop_all(&mut none, &["a".to_owned()]), ["a"]);
        assert_eq!(none, Value::Null);
    }

    #[test]
    fn rules_are_shown_in_the_order_in_which_they_decide() {
        let network = json!({
            "forbiddenDomains": ["x"], "egress": {"gateway": "out"}, "firewall": {"rulesets": ["proxy"]},
            "proxy": {"allowedDomains": ["*"], "bypass": ["b"], "routing": [
                {"destinations": ["api", "web"], "headers": {"Key": "{{SECRET:k}}"}, "body": {"id": "1"}}]},
        });
        let shown: Vec<_> = rows(&network, Some("net"))
            .into_iter()
            .map(|(rule, of)| format!("{rule} {of}"))
            .collect();
        let wanted = [
            "bypass b",
            "allow *",
            "block x",
            "inject api, web: header Key, body id",
            "only through the proxy",
            "leave by out",
            "member of net",
        ];
        assert_eq!(shown, wanted);
        assert_eq!(rows(&Value::Null, None), []);
    }
}
