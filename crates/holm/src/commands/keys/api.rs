//! API keys of the user or of a service account.

use crate::client::Client;
use crate::duration::Span;
use crate::error::Error;
use crate::exit::Exit;
use crate::output::{self, Format};
use crate::{term, world};
use reqwest::{Method, StatusCode};
use serde_json::{Map, Value};
use types::Timestamp;

/// Window of an amount that is given without one.
const WINDOW: &str = "month";

/// Creates an API key, and shows it only once
///
/// With --models or --budget the key works only for models, and for nothing else on the server.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  holm keys create --name laptop
  holm keys create --models gpt,claude --budget 5 --per month
  holm keys create --models '' --requests 1000 --per day   # all models")]
pub(super) struct Create {
    /// Name of the key
    #[arg(long, default_value = "")]
    name: String,
    /// Time until it expires, such as 30d; by default never
    #[arg(long, value_name = "LENGTH")]
    expires_in: Option<String>,
    /// Models that it may use, separated by commas; an empty text means all
    #[arg(long, value_name = "NAMES")]
    models: Option<String>,
    /// US dollars that it may spend in each window, such as 5 or 0.50
    #[arg(long, value_name = "DOLLARS")]
    budget: Option<String>,
    /// Requests that it may make in each window
    #[arg(long, value_name = "COUNT")]
    requests: Option<i64>,
    /// Input and output tokens that it may use in each window
    #[arg(long, value_name = "COUNT")]
    tokens: Option<i64>,
    /// The window of an amount: minute, hour, day or month (UTC); by default month
    #[arg(long, value_name = "WINDOW")]
    per: Option<String>,
    /// Number of such windows that count as one
    #[arg(long, value_name = "COUNT")]
    step: Option<i64>,
    /// Id of the service account that owns the key; by default you own it
    #[arg(long, value_name = "ID")]
    service_account: Option<String>,
}

#[derive(Debug, clap::Args)]
pub(super) struct List {
    /// Id of a service account, to list its keys
    #[arg(long, value_name = "ID")]
    service_account: Option<String>,
    /// How to show them
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
    /// The same as `--output json`, for older scripts
    #[arg(long, hide = true, conflicts_with = "output")]
    json: bool,
}

#[derive(Debug, clap::Args)]
pub(super) struct Revoke {
    /// Id of the key
    id: String,
    /// Id of the service account that owns the key
    #[arg(long, value_name = "ID")]
    service_account: Option<String>,
}

/// Returns the path of the keys of the user or of a service account.
fn place(service_account: Option<&str>) -> Result<String, Error> {
    match service_account {
        None => Ok("api_keys".to_owned()),
        Some(id) => Ok(format!("service_accounts/{}/api_keys", segment(id)?)),
    }
}

/// Checks an id for use in a path. Ids are plain text; anything else could change the path.
fn segment(id: &str) -> Result<&str, Error> {
    let plain = |it: char| it.is_ascii_alphanumeric() || matches!(it, '_' | '-');
    match !id.is_empty() && id.chars().all(plain) {
        true => Ok(id),
        false => Err(Error::Usage(format!("`{id}` is no id"))),
    }
}

pub(super) async fn create(args: Create, mut client: Client) -> Result<Exit, Error> {
    let path = place(args.service_account.as_deref())?;
    let key = client.call(Method::POST, &path, &[], Some(&body(&args)?)).await?;
    let value = key["apiKey"].as_str().ok_or_else(|| Error::NotHolm {
        server: client.server(),
        message: "its answer has no key".into(),
    })?;
    term::say(term::harmless(value));
    let id = key["id"].as_str().unwrap_or_default();
    term::note(format!("{}: {}", term::harmless(id), term::harmless(&meaning(&key))));
    Ok(Exit::Success)
}

fn body(args: &Create) -> Result<Value, Error> {
    let mut body = Map::new();
    body.insert("name".into(), args.name.clone().into());
    if let Some(expires_in) = &args.expires_in {
        body.insert("expires_in".into(), expires_in.clone().into());
    }
    if let Some(models) = &args.models {
        let names = models.split(',').map(str::trim).filter(|name| !name.is_empty());
        body.insert("models".into(), names.collect());
    }
    let amounts = [
        ("cost", args.budget.clone().map(Value::from)),
        ("requests", args.requests.map(Value::from)),
        ("total", args.tokens.map(Value::from)),
    ];
    let mut budget: Map<String, Value> =
        amounts.into_iter().filter_map(|(name, amount)| Some((name.to_owned(), amount?))).collect();
    if budget.is_empty() && (args.per.is_some() || args.step.is_some()) {
        // Whoever names a window wants a limit, and without an amount the key would have none.
        return Err(Error::Usage(
            "--per and --step say in which window an amount counts: \
             give --budget, --requests or --tokens too"
                .into(),
        ));
    }
    if !budget.is_empty() {
        let window = args.per.clone().unwrap_or_else(|| WINDOW.to_owned());
        budget.insert("granularity".into(), window.into());
        if let Some(step) = args.step {
            budget.insert("step".into(), step.into());
        }
        body.insert("budget".into(), Value::Object(budget));
    }
    Ok(Value::Object(body))
}

/// Describes what a key may be used for.
fn meaning(key: &Value) -> String {
    let models = match key["models"].as_array() {
        None => return "opens all that its owner may do; it is not shown again".to_owned(),
        Some(names) if names.is_empty() => "all models".to_owned(),
        Some(names) => {
            names.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(", ").replace('\n', " ")
        }
    };
    format!("opens {models}{}; it is not shown again", spending(&key["budget"]))
}

fn spending(budget: &Value) -> String {
    let units = [
        ("cost", "US dollars"),
        ("requests", "requests"),
        ("input", "tokens in"),
        ("output", "tokens out"),
        ("total", "tokens"),
    ];
    let amount = |(name, unit): (&str, &str)| {
        let text = match &budget[name] {
            Value::String(text) => text.clone(),
            Value::Number(count) => count.to_string(),
            _ => return None,
        };
        Some(format!("{text} {unit}"))
    };
    let amounts: Vec<_> = units.into_iter().filter_map(amount).collect();
    if amounts.is_empty() {
        return String::new();
    }
    let window = budget["granularity"].as_str().unwrap_or_default();
    let window = match budget["step"].as_i64() {
        Some(step @ 2..) => format!("{step} {window}s"),
        _ => window.to_owned(),
    };
    format!(", for {} per {window}", amounts.join(", "))
}

pub(super) async fn list(args: List, mut client: Client) -> Result<Exit, Error> {
    let keys = client.get(&place(args.service_account.as_deref())?, &[]).await?;
    let keys = keys.as_array().cloned().unwrap_or_default();
    match args.output {
        _ if args.json => term::say(output::plain(&keys, Format::Json)),
        Format::Json | Format::Yaml => term::say(output::plain(&keys, args.output)),
        Format::Table if keys.is_empty() => term::note("no keys here"),
        Format::Table => {
            let heading = ["ID", "NAME", "OPENS", "EXPIRES", "CREATED"].map(str::to_owned);
            let now = world::system().now();
            term::say(output::lines(&heading, keys.iter().map(|key| row(key, now))));
        }
    }
    Ok(Exit::Success)
}

/// Returns when a key expires. Its lifetime alone would not tell.
fn expiry(lifetime: Option<&str>, created: Option<Timestamp>) -> String {
    let Some(lifetime) = lifetime else { return "never".to_owned() };
    let end = lifetime.parse().ok().zip(created).map(|(Span(span), created)| {
        created.plus_ms(i64::try_from(span.as_millis()).unwrap_or(i64::MAX)).to_string()
    });
    end.unwrap_or_else(|| lifetime.to_owned())
}

/// Returns the cells of a key.
fn row(key: &Value, now: Timestamp) -> Vec<String> {
    let text = |name: &str| key[name].as_str().filter(|text| !text.is_empty());
    let opens = match key["models"].as_array() {
        None => "everything".to_owned(),
        Some(names) if names.is_empty() => format!("all models{}", spending(&key["budget"])),
        Some(names) => {
            let names: Vec<_> = names.iter().filter_map(Value::as_str).collect();
            format!("{}{}", names.join(", "), spending(&key["budget"]))
        }
    };
    let nothing = |name: &str| text(name).unwrap_or("-");
    let created: Option<Timestamp> = text("createdAt").and_then(|time| time.parse().ok());
    let expires = expiry(text("expires_in"), created);
    let age = created.map_or_else(|| "-".to_owned(), |time| output::age(now.since(time)));
    let cells = [nothing("id"), nothing("name"), &opens, &expires, &age];
    cells.map(|cell| term::harmless(cell).replace(['\n', '\t'], " ")).to_vec()
}

pub(super) async fn revoke(args: Revoke, mut client: Client) -> Result<Exit, Error> {
    let path = place(args.service_account.as_deref())?;
    let path = format!("{path}/{}", segment(&args.id)?);
    let revoked = client.call(Method::DELETE, &path, &[], None).await;
    revoked.map_err(|error| match error {
        Error::Answer { status: StatusCode::NOT_FOUND, message, .. } => {
            Error::Absent(format!("{message}; `holm keys list` lists yours"))
        }
        other => other,
    })?;
    term::note(format!("{} opens nothing any more", args.id));
    Ok(Exit::Success)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::flags;
    use serde_json::json;

    fn read(words: &[&str]) -> Result<Value, Error> {
        body(&flags::read(["create"].iter().chain(words)).unwrap())
    }

    fn asked(words: &[&str]) -> Value {
        read(words).unwrap()
    }

    #[test]
    fn a_window_without_an_amount_makes_no_key() {
        let unlimited: [&[&str]; 3] = [&["--per", "month"], &["--step", "2"], &["--per", "day"]];
        for words in unlimited {
            for models in [&[][..], &["--models", "gpt"]] {
                let error = read(&[words, models].concat()).unwrap_err();
                assert_eq!(error.exit(), Exit::Usage, "{words:?}");
                assert!(error.to_string().contains("--budget"), "{error}");
            }
        }
    }

    #[test]
    fn flags_say_what_a_key_opens() {
        assert_eq!(asked(&["--name", "laptop"]), json!({"name": "laptop"}));
        assert_eq!(
            asked(&["--models", "a, b", "--budget", "5"]),
            json!({"name": "", "models": ["a", "b"], "budget": {"cost": "5", "granularity": "month"}})
        );
        assert_eq!(
            asked(&["--models", "", "--tokens", "9", "--per", "day", "--step", "2"]),
            json!({"name": "", "models": [], "budget": {"total": 9, "granularity": "day", "step": 2}})
        );
    }

    #[test]
    fn what_a_key_opens_is_told_in_words() {
        let budget = json!({"cost": "5", "requests": 10, "granularity": "day", "step": 2});
        let told = meaning(&json!({"models": ["a", "b"], "budget": budget}));
        let wanted = "opens a, b, for 5 US dollars, 10 requests per 2 days; it is not shown again";
        assert_eq!(told, wanted);
        assert!(meaning(&json!({"models": []})).starts_with("opens all models;"));
        assert!(meaning(&json!({})).starts_with("opens all that its owner may do"));
    }

    #[test]
    fn a_list_tells_when_a_key_expires() {
        let now = "2026-04-16T12:00:00Z".parse().unwrap();
        let key =
            json!({"id": "key_a", "expires_in": "30d", "createdAt": "2026-04-15T12:00:00.000Z"});
        let row = |key: &Value| row(key, now).split_off(3);
        assert_eq!(row(&key), ["2026-05-15T12:00:00.000Z", "1d ago"]);
        assert_eq!(row(&json!({"id": "key_a"})), ["never", "-"]);
    }

    #[test]
    fn no_id_leads_elsewhere() {
        for wrong in ["", "..", "a/b", "a?b", "a%2f"] {
            assert!(place(Some(wrong)).is_err(), "{wrong}");
        }
    }
}
