//! One instruction of a Dockerfile, before its variables are expanded.

use super::Mistake;
use super::lines::{Heredoc, Statement, is_opening};
use super::words::split;

/// A statement together with the instruction parsed from it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    pub statement: Statement,
    pub instruction: Instruction,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Instruction {
    From(From),
    Run(Run),
    Copy(Transfer),
    Add(Transfer),
    Env(Vec<(String, String)>),
    Label(Vec<(String, String)>),
    /// Names, each with its default value if it has one.
    Arg(Vec<(String, Option<String>)>),
    Workdir(String),
    User(String),
    Expose(String),
    Volume(Vec<String>),
    Entrypoint(Command),
    Cmd(Command),
    Shell(Vec<String>),
    StopSignal(String),
    /// `None` turns the health check off.
    Healthcheck(Option<Healthcheck>),
    OnBuild(String),
    Maintainer(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct From {
    pub image: String,
    pub platform: Option<String>,
    /// In lower case.
    pub name: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    Exec(Vec<String>),
    /// A command line for the shell.
    Shell(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    pub command: Command,
    /// The options of each `--mount`.
    pub mounts: Vec<String>,
    pub has_network: bool,
    pub heredocs: Vec<Heredoc>,
}

/// The arguments of `COPY` or `ADD`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Transfer {
    pub from: Option<String>,
    pub chown: Option<String>,
    pub chmod: Option<String>,
    pub checksum: Option<String>,
    /// Whether archives are unpacked, if it is said.
    pub unpack: Option<bool>,
    pub parents: bool,
    pub excludes: Vec<String>,
    pub sources: Vec<Source>,
    pub target: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    Path(String),
    Text(Heredoc),
}

/// A health check. Times are in nanoseconds, as in the configuration of an image, and zero where
/// they are not given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Healthcheck {
    pub command: Command,
    pub interval: i64,
    pub timeout: i64,
    pub start_period: i64,
    pub start_interval: i64,
    pub retries: i64,
}

/// Keywords that must be followed by something.
const KEYWORDS: [&str; 15] = [
    "FROM",
    "COPY",
    "ADD",
    "ENV",
    "LABEL",
    "ARG",
    "WORKDIR",
    "USER",
    "EXPOSE",
    "VOLUME",
    "SHELL",
    "STOPSIGNAL",
    "HEALTHCHECK",
    "ONBUILD",
    "MAINTAINER",
];

/// Parses one statement.
pub(super) fn read(statement: Statement, escape: char) -> Result<Step, Mistake> {
    let line = statement.line;
    let instruction = of_statement(&statement, escape).map_err(|why| Mistake::new(line, why))?;
    Ok(Step { statement, instruction })
}

fn of_statement(statement: &Statement, escape: char) -> Result<Instruction, String> {
    let text = statement.text.as_str();
    let (keyword, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    let keyword = keyword.to_ascii_uppercase();
    let (options, rest) = options(rest.trim(), escape);
    let takes: &[&str] = match keyword.as_str() {
        "FROM" => &["platform"],
        "RUN" => &["mount", "network", "security"],
        "COPY" => &["from", "chown", "chmod", "link", "parents", "exclude"],
        "ADD" => &["chown", "chmod", "checksum", "link", "exclude", "keep-git-dir", "unpack"],
        "HEALTHCHECK" => &["interval", "timeout", "start-period", "start-interval", "retries"],
        _ => &[],
    };
    if let Some((name, _)) = options.iter().find(|(name, _)| !takes.contains(&name.as_str())) {
        return Err(format!("{keyword} has no option `--{name}` here"));
    }
    let wanted = |what: &str| format!("{keyword} needs {what}");
    let may_be_alone = ["RUN", "CMD", "ENTRYPOINT"].contains(&keyword.as_str());
    if rest.is_empty() && !may_be_alone && KEYWORDS.contains(&keyword.as_str()) {
        return Err(wanted("something to follow it"));
    }
    Ok(match keyword.as_str() {
        "FROM" => Instruction::From(from(rest, &options)?),
        "RUN" => Instruction::Run(run(rest, &options, &statement.heredocs)?),
        "COPY" => Instruction::Copy(transfer(&keyword, rest, &options, statement, escape)?),
        "ADD" => Instruction::Add(transfer(&keyword, rest, &options, statement, escape)?),
        "ENV" => Instruction::Env(pairs(&keyword, rest, escape, true)?),
        "LABEL" => Instruction::Label(pairs(&keyword, rest, escape, true)?),
        "ARG" => Instruction::Arg(arguments(rest, escape)?),
        "WORKDIR" => Instruction::Workdir(rest.to_owned()),
        "USER" => Instruction::User(rest.to_owned()),
        "EXPOSE" => Instruction::Expose(rest.to_owned()),
        "VOLUME" => Instruction::Volume(json_list(rest).unwrap_or_else(|| split(rest, escape))),
        "ENTRYPOINT" => Instruction::Entrypoint(command(rest)),
        "CMD" => Instruction::Cmd(command(rest)),
        "SHELL" => Instruction::Shell(
            json_list(rest)
                .filter(|words| !words.is_empty())
                .ok_or_else(|| wanted("a list such as [\"/bin/sh\", \"-c\"]"))?,
        ),
        "STOPSIGNAL" => Instruction::StopSignal(rest.to_owned()),
        "HEALTHCHECK" => Instruction::Healthcheck(healthcheck(rest, &options)?),
        "ONBUILD" => Instruction::OnBuild(trigger(rest, &statement.heredocs)?),
        "MAINTAINER" => Instruction::Maintainer(rest.to_owned()),
        other => {
            let shown: String = other.chars().take(40).collect();
            return Err(format!("`{shown}` is no instruction"));
        }
    })
}

type Options = Vec<(String, String)>;

/// Splits off the leading options, words that begin with two dashes, from the rest.
fn options(text: &str, escape: char) -> (Options, &str) {
    let (mut options, mut rest) = (Vec::new(), text);
    while let Some(after) = rest.strip_prefix("--") {
        let end = word_end(rest, escape);
        if end <= 2 {
            break;
        }
        let word = &after[..end - 2];
        let (name, value) = word.split_once('=').unwrap_or((word, ""));
        options.push((name.to_owned(), unquoted(value)));
        rest = rest[end..].trim_start();
    }
    (options, rest)
}

fn word_end(text: &str, escape: char) -> usize {
    let (mut quote, mut escaped) = (None, false);
    for (at, sign) in text.char_indices() {
        let taken = std::mem::replace(&mut escaped, sign == escape);
        match (quote, sign) {
            _ if taken => escaped = false,
            (Some(open), sign) if open == sign => quote = None,
            (None, '"' | '\'') => quote = Some(sign),
            (None, sign) if sign.is_whitespace() => return at,
            _ => {}
        }
    }
    text.len()
}

fn unquoted(value: &str) -> String {
    let quoted = |quote: char| value.strip_prefix(quote)?.strip_suffix(quote);
    quoted('"').or_else(|| quoted('\'')).unwrap_or(value).to_owned()
}

fn option<'o>(options: &'o Options, name: &str) -> Option<&'o str> {
    options.iter().rev().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
}

fn switch(options: &Options, name: &str) -> Result<bool, String> {
    match option(options, name) {
        None | Some("false") => Ok(false),
        Some("" | "true") => Ok(true),
        Some(other) => Err(format!("`--{name}` is true or false, and not `{other}`")),
    }
}

fn from(rest: &str, options: &Options) -> Result<From, String> {
    let words: Vec<&str> = rest.split_whitespace().collect();
    let platform = option(options, "platform").map(str::to_owned);
    match words.as_slice() {
        [image] => Ok(From { image: (*image).to_owned(), platform, name: None }),
        [image, word, name] if word.eq_ignore_ascii_case("as") => {
            let name = name.to_ascii_lowercase();
            let plain = |sign: char| sign.is_ascii_alphanumeric() || "-_.".contains(sign);
            if !name.starts_with(|first: char| first.is_ascii_lowercase())
                || !name.chars().all(plain)
            {
                return Err(format!(
                    "`{name}` cannot name a stage: letters, digits, `-`, `_`, `.`"
                ));
            }
            Ok(From { image: (*image).to_owned(), platform, name: Some(name) })
        }
        _ => Err("FROM needs an image, and may say AS and a name".to_owned()),
    }
}

fn run(rest: &str, options: &Options, heredocs: &[Heredoc]) -> Result<Run, String> {
    if rest.is_empty() {
        return Err("RUN needs a command".to_owned());
    }
    let has_network = match option(options, "network") {
        None | Some("default" | "") => true,
        Some("none") => false,
        Some("host") => {
            return Err("the network of the machine is not for builds: RUN --network=host".into());
        }
        Some(other) => return Err(format!("there is no network `{other}`: default or none")),
    };
    match option(options, "security") {
        None | Some("sandbox" | "") => {}
        Some(other) => return Err(format!("RUN --security={other} is not for builds here")),
    }
    let mounts = options.iter().filter(|(name, _)| name == "mount");
    Ok(Run {
        command: command(rest),
        mounts: mounts.map(|(_, value)| value.clone()).collect(),
        has_network,
        heredocs: heredocs.to_vec(),
    })
}

pub(super) fn command(text: &str) -> Command {
    match json_list(text) {
        Some(words) => Command::Exec(words),
        None => Command::Shell(text.to_owned()),
    }
}

fn json_list(text: &str) -> Option<Vec<String>> {
    text.starts_with('[').then(|| serde_json::from_str(text).ok()).flatten()
}

fn transfer(
    keyword: &str,
    rest: &str,
    options: &Options,
    statement: &Statement,
    escape: char,
) -> Result<Transfer, String> {
    let mut words = json_list(rest).unwrap_or_else(|| split(rest, escape));
    let target = words.pop().unwrap_or_default();
    if words.is_empty() {
        return Err(format!("{keyword} needs something to copy, and where to"));
    }
    if switch(options, "keep-git-dir")? {
        return Err("repositories of git are not fetched: ADD --keep-git-dir".to_owned());
    }
    let mut heredocs = statement.heredocs.iter();
    let sources = words.into_iter().map(|word| match is_opening(&word) {
        true => heredocs.next().cloned().map_or(Source::Path(word), Source::Text),
        false => Source::Path(word),
    });
    let excludes = options.iter().filter(|(name, _)| name == "exclude");
    Ok(Transfer {
        from: option(options, "from").map(str::to_owned),
        chown: option(options, "chown").map(str::to_owned),
        chmod: option(options, "chmod").map(str::to_owned),
        checksum: option(options, "checksum").map(str::to_owned),
        unpack: option(options, "unpack").map(|_| switch(options, "unpack")).transpose()?,
        parents: switch(options, "parents")?,
        excludes: excludes.map(|(_, value)| value.clone()).collect(),
        sources: sources.collect(),
        target,
    })
}

/// Parses any number of `name=value`, or one `name value`.
fn pairs(
    keyword: &str,
    rest: &str,
    escape: char,
    may_be_old: bool,
) -> Result<Vec<(String, String)>, String> {
    let words = split(rest, escape);
    let first = words.first().map(String::as_str).unwrap_or_default();
    if may_be_old && !first.contains('=') {
        let (name, value) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
        if value.trim().is_empty() {
            return Err(format!("{keyword} needs a name and a value"));
        }
        return Ok(vec![(name.to_owned(), value.trim().to_owned())]);
    }
    let pair = |word: &String| match word.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err(format!("`{}` has no `=`", word.chars().take(80).collect::<String>())),
    };
    words.iter().map(pair).collect()
}

fn arguments(rest: &str, escape: char) -> Result<Vec<(String, Option<String>)>, String> {
    let argument = |word: &String| {
        let (name, value) = match word.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (word.as_str(), None),
        };
        let name = unquoted(name);
        match name.is_empty() {
            true => Err("an argument has no name".to_owned()),
            false => Ok((name, value)),
        }
    };
    split(rest, escape).iter().map(argument).collect()
}

fn healthcheck(rest: &str, options: &Options) -> Result<Option<Healthcheck>, String> {
    let (kind, asked) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
    match kind.to_ascii_uppercase().as_str() {
        "NONE" if asked.trim().is_empty() && options.is_empty() => return Ok(None),
        "CMD" if !asked.trim().is_empty() => {}
        _ => return Err("HEALTHCHECK is followed by CMD and a command, or by NONE".to_owned()),
    }
    let time = |name: &str| option(options, name).map_or(Ok(0), |text| nanoseconds(name, text));
    let retries = option(options, "retries").map_or(Ok(0), |text| {
        let number: Option<i64> = text.parse().ok().filter(|number| *number >= 0);
        number.ok_or_else(|| format!("`--retries={text}` is not a number"))
    })?;
    Ok(Some(Healthcheck {
        command: command(asked.trim()),
        interval: time("interval")?,
        timeout: time("timeout")?,
        start_period: time("start-period")?,
        start_interval: time("start-interval")?,
        retries,
    }))
}

/// Parses a duration as Go writes it: `1h30m`, `1.5s`, `100ms`.
fn nanoseconds(name: &str, text: &str) -> Result<i64, String> {
    let wrong = || format!("`--{name}={text}` is not a time such as 30s");
    let (mut rest, mut total) = (text, 0f64);
    if rest == "0" {
        return Ok(0);
    }
    while !rest.is_empty() {
        let digits = rest
            .find(|sign: char| !sign.is_ascii_digit() && sign != '.')
            .filter(|end| *end > 0)
            .ok_or_else(wrong)?;
        let number: f64 = rest[..digits].parse().map_err(|_| wrong())?;
        rest = &rest[digits..];
        let unit = rest.find(|sign: char| sign.is_ascii_digit()).unwrap_or(rest.len());
        total += number
            * match &rest[..unit] {
                "ns" => 1.0,
                "us" | "µs" => 1e3,
                "ms" => 1e6,
                "s" => 1e9,
                "m" => 60e9,
                "h" => 3_600e9,
                _ => return Err(wrong()),
            };
        rest = &rest[unit..];
    }
    if text.is_empty() || !total.is_finite() || total > 9e18 {
        return Err(wrong());
    }
    Ok(total as i64)
}

/// Returns the text that an image has for those based on it, with the heredocs that belong to it.
fn trigger(rest: &str, heredocs: &[Heredoc]) -> Result<String, String> {
    let keyword = rest.split_whitespace().next().unwrap_or_default().to_ascii_uppercase();
    match keyword.as_str() {
        "ONBUILD" | "FROM" | "MAINTAINER" => {
            Err(format!("ONBUILD cannot be followed by {keyword}"))
        }
        _ => {
            let texts = heredocs.iter().map(|one| format!("\n{}{}", one.content, one.name));
            Ok([rest.to_owned()].into_iter().chain(texts).collect())
        }
    }
}

#[cfg(test)]
#[path = "instruction_tests.rs"]
mod tests;
