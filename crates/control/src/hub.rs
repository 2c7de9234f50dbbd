//! MCP servers of the hub: what runs for a connection, and what it is given of the connection.
//!
//! A definition in the catalogue names an image, its arguments and its environment variables. The
//! value of a variable may refer to fields of the connection as `${secrets.NAME}` and
//! `${config.NAME}`; fields that no variable refers to stay in the store. Secrets are opened only
//! for the launch of a replica. `${secrets.ACCESS_TOKEN}` is not a stored field, but the access
//! token that was obtained with the connection's secrets.

use crate::catalogue::Catalogue;
use crate::context::Context;
use crate::engine::{self, Held};
use crate::error::Error;
use crate::models::access_tokens::HUB_NAME;
use serde_json::{Map, Value};
use store::Tx;
use types::kinds::IntegrationConnection;
use types::kinds::integration_connection::IntegrationConnectionSpec;
use types::parts::{Sensitive, TextMap, names};
use types::wire::{Form, Integration, McpDefinition};

/// What a replica of a hub server runs. The environment is secret.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Server {
    pub(crate) image: String,
    /// Appended to the command of the image.
    pub(crate) arguments: Vec<String>,
    pub(crate) environment: Vec<(String, String)>,
}

impl Catalogue {
    /// Returns the hub server that connections of this type run.
    fn server(&self, integration: &str) -> Option<&McpDefinition> {
        let runs = |server: &&McpDefinition| {
            server.image.is_some() && server.integration.as_deref() == Some(integration)
        };
        self.servers.iter().find(runs)
    }

    /// Returns the types of connections that hub servers run for.
    pub(crate) fn integrations(&self) -> impl Iterator<Item = &str> {
        let running = self.servers.iter().filter(|server| server.image.is_some());
        running.filter_map(|server| server.integration.as_deref())
    }

    /// Describes a service that only the hub has.
    pub fn integration(&self, name: &str) -> Option<Integration> {
        let server = self.server(name)?;
        Some(Integration { name: server.integration.clone(), ..Integration::default() })
    }

    /// Refuses definitions that could not run.
    pub fn check(&self) -> Result<(), String> {
        for (at, server) in self.servers.iter().enumerate().filter(|(_, one)| one.image.is_some()) {
            let integration = server.integration.as_deref().unwrap_or_default();
            let wrong = |why: String| format!("the MCP server `{integration}`: {why}");
            if integration.is_empty() {
                return Err(format!("servers[{at}] has an image, and no `integration`"));
            }
            if self.integrations().filter(|other| *other == integration).count() > 1 {
                return Err(wrong("there are two of it".to_owned()));
            }
            for (name, template) in variables(server) {
                if !names::is_variable(name) {
                    return Err(wrong(format!("`{name}` is no name of a variable")));
                }
                for part in parts(template).map_err(wrong)? {
                    if let Part::Field(field) = part
                        && !field.is_token()
                        && !field.is_asked_for(server.form.as_ref())
                    {
                        return Err(wrong(format!("`form` has no field `{field}`")));
                    }
                }
            }
        }
        Ok(())
    }
}

/// Returns the hub server that a function with these connections runs, or why there is none. The
/// first connection decides which one it is, and only that connection is opened.
pub(crate) fn server(
    context: &Context,
    tx: &mut Tx<'_>,
    connections: &[String],
) -> Result<Result<Server, String>, Error> {
    let Some(name) = connections.first() else {
        return Ok(Err("it names no connection".to_owned()));
    };
    let Some(held) = Held::<IntegrationConnection>::find(context, tx, &[], name)? else {
        return Ok(Err(format!("its connection `{name}` does not exist any more")));
    };
    let integration = held.wish.spec.integration.as_deref().unwrap_or_default();
    let catalogue = &context.control.settings.catalogue;
    let Some(definition) = catalogue.server(integration) else {
        let there_are = catalogue.integrations().collect::<Vec<_>>().join(", ");
        return Ok(Err(format!(
            "the hub has no MCP server for connections to `{integration}`; it has: {there_are}"
        )));
    };
    let mut opened = engine::opened(context, &held)?;
    let control = &context.control;
    if asks_for_token(definition)
        && let Err(why) =
            control.models.access.complete_hub(&held.row, &mut opened.spec, &control.world)
    {
        return Ok(Err(format!("it names the connection `{name}`, {why}")));
    }
    Ok(fill(definition, &opened.spec).map_err(|why| format!("its connection `{name}` {why}")))
}

fn asks_for_token(server: &McpDefinition) -> bool {
    let token = |part: &Part<'_>| matches!(part, Part::Field(field) if field.is_token());
    variables(server)
        .any(|(_, template)| parts(template).is_ok_and(|parts| parts.iter().any(token)))
}

/// A reference to a field of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Field<'t> {
    secret: bool,
    name: &'t str,
}

impl std::fmt::Display for Field<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let part = if self.secret { "secrets" } else { "config" };
        write!(f, "{part}.{}", self.name)
    }
}

impl Field<'_> {
    fn asked(self, form: Option<&Form>) -> Option<&Value> {
        let fields = form?;
        let fields = if self.secret { &fields.secrets } else { &fields.config };
        fields.as_ref()?.get(self.name)
    }

    /// Whether it is the access token, which is obtained with the connection and not stored in it.
    fn is_token(self) -> bool {
        self.secret && self.name == HUB_NAME
    }

    fn is_asked_for(self, form: Option<&Form>) -> bool {
        self.asked(form).is_some()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part<'t> {
    Text(&'t str),
    Field(Field<'t>),
}

/// Parses the value of a variable into text and fields.
fn parts(template: &str) -> Result<Vec<Part<'_>>, String> {
    let (mut parts, mut rest) = (Vec::new(), template);
    while let Some((text, opened)) = rest.split_once("${") {
        let unclosed = || format!("`{template}` has a `${{` without its `}}`");
        let (inside, after) = opened.split_once('}').ok_or_else(unclosed)?;
        let field = match inside.split_once('.') {
            Some(("secrets", name)) if !name.is_empty() => Field { secret: true, name },
            Some(("config", name)) if !name.is_empty() => Field { secret: false, name },
            _ => return Err(format!("`{inside}` is neither `secrets.NAME` nor `config.NAME`")),
        };
        parts.extend((!text.is_empty()).then_some(Part::Text(text)));
        parts.push(Part::Field(field));
        rest = after;
    }
    parts.extend((!rest.is_empty()).then_some(Part::Text(rest)));
    Ok(parts)
}

fn variables(server: &McpDefinition) -> impl Iterator<Item = (&String, &String)> {
    let entrypoint = server.entrypoint.as_ref();
    entrypoint.and_then(|entrypoint| entrypoint.env.as_ref()).into_iter().flatten()
}

/// Returns what runs for a connection whose secrets are opened, or what the connection lacks.
fn fill(definition: &McpDefinition, spec: &IntegrationConnectionSpec) -> Result<Server, String> {
    let (none, no_fields) = (TextMap::new(), Map::new());
    let config = spec.config.as_ref().unwrap_or(&none);
    let secrets = spec.secret.as_ref().map_or(&none, |Sensitive(secrets)| secrets);
    let form = definition.form.as_ref();
    for (secret, values) in [(true, secrets), (false, config)] {
        let fields =
            form.and_then(|form| if secret { &form.secrets } else { &form.config }.as_ref());
        for (name, asked) in fields.unwrap_or(&no_fields) {
            let required = asked.get("required").and_then(Value::as_bool).unwrap_or(secret);
            let given = values.get(name).is_some_and(|value| !value.is_empty());
            if required && !given {
                let part = if secret { "secret" } else { "config" };
                return Err(format!("lacks `spec.{part}.{name}`"));
            }
        }
    }
    let mut environment = Vec::new();
    for (name, template) in variables(definition) {
        let mut value = Some(String::new());
        for part in parts(template)? {
            let text = match part {
                Part::Text(text) => Some(text),
                Part::Field(field) => {
                    let values = if field.secret { secrets } else { config };
                    let given = values.get(field.name).filter(|value| !value.is_empty());
                    if given.is_some_and(|value| value.contains('\0')) {
                        return Err(format!("has a zero byte in its field `{field}`"));
                    }
                    given.map(String::as_str)
                }
            };
            value = value.zip(text).map(|(value, text)| value + text);
        }
        // A variable that lacks one of its fields is left out, so that the server's default
        // applies.
        environment.extend(value.map(|value| (name.clone(), value)));
    }
    let entrypoint = definition.entrypoint.as_ref();
    let command = entrypoint.and_then(|entrypoint| entrypoint.command.as_deref());
    Ok(Server {
        image: definition.image.clone().unwrap_or_default(),
        arguments: command.unwrap_or_default().split_whitespace().map(str::to_owned).collect(),
        environment,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn definition(env: Value) -> McpDefinition {
        serde_json::from_value(json!({
            "integration": "db", "image": "holm/x",
            "entrypoint": {"command": "serve --plain", "env": env},
            "form": {"config": {"SCHEMA": {}, "HOST": {"required": true}}, "secrets": {"URL": {}, "KEY": {"required": false}}},
        }))
        .unwrap()
    }

    fn spec(config: Value, secret: Value) -> IntegrationConnectionSpec {
        serde_json::from_value(json!({"integration": "db", "config": config, "secret": secret}))
            .unwrap()
    }

    fn filled(env: Value, config: Value, secret: Value) -> Result<Vec<(String, String)>, String> {
        fill(&definition(env), &spec(config, secret)).map(|server| server.environment)
    }

    fn catalogue(servers: Vec<McpDefinition>) -> Catalogue {
        Catalogue { servers, ..Catalogue::default() }
    }

    #[test]
    fn a_server_finds_what_its_definition_names_and_no_more() {
        let env = json!({"A": "${secrets.URL}", "B": "x-${config.HOST}/${config.SCHEMA}", "C": "plain", "D": "${secrets.KEY}"});
        let config = json!({"HOST": "h", "OTHER": "o"});
        let given = filled(env.clone(), config, json!({"URL": "u", "MORE": "m"})).unwrap();
        let named = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(given, [named("A", "u"), named("C", "plain")], "B and D lack a field");
        let config = json!({"HOST": "h", "SCHEMA": "s"});
        let given = filled(env, config, json!({"URL": "${config.HOST}", "KEY": "k"})).unwrap();
        let wanted = [
            named("A", "${config.HOST}"),
            named("B", "x-h/s"),
            named("C", "plain"),
            named("D", "k"),
        ];
        assert_eq!(given, wanted, "a value is no template");
        let server = fill(&definition(json!({})), &spec(json!({"HOST": "h"}), json!({"URL": "u"})));
        assert_eq!(server.map(|server| server.arguments).unwrap(), ["serve", "--plain"]);
    }

    #[test]
    fn what_is_missing_is_named_and_no_value_is() {
        let env = json!({"A": "${secrets.URL}"});
        for (config, secret, wanted) in [
            (json!({"HOST": "h"}), json!({"URL": ""}), "lacks `spec.secret.URL`"),
            (json!({"HOST": "h"}), json!(null), "lacks `spec.secret.URL`"),
            (json!({}), json!({"URL": "hidden"}), "lacks `spec.config.HOST`"),
            (
                json!({"HOST": "h"}),
                json!({"URL": "hid\u{0}den"}),
                "has a zero byte in its field `secrets.URL`",
            ),
        ] {
            assert_eq!(filled(env.clone(), config, secret).unwrap_err(), wanted);
        }
    }

    #[test]
    fn definitions_that_could_not_run_are_refused() {
        let check = |env: Value| catalogue(vec![definition(env)]).check();
        assert_eq!(check(json!({"A": "${secrets.URL}${config.HOST}"})), Ok(()));
        for wrong in ["${secrets.NONE}", "${secrets.URL", "${URL}", "${config.}", "${other.URL}"] {
            assert!(check(json!({"A": wrong})).is_err(), "{wrong}");
        }
        assert!(check(json!({"A-B": "x"})).is_err());
        let one = || definition(json!({}));
        assert!(catalogue(vec![one(), one()]).check().is_err());
        assert!(catalogue(vec![McpDefinition { integration: None, ..one() }]).check().is_err());
        // A definition without an image is only listed.
        let told = || McpDefinition { image: None, ..one() };
        assert_eq!(catalogue(vec![told(), told(), one()]).check(), Ok(()));
        assert!(catalogue(vec![told()]).integration("db").is_none());
    }

    proptest! {
        #[test]
        fn any_template_is_read_or_refused(template in "([$]|[{]|[}]|secrets[.]|config[.]|[a-z]|é){0,12}") {
            if let Ok(parts) = parts(&template) {
                let whole: String = parts
                    .iter()
                    .map(|part| match part {
                        Part::Text(text) => (*text).to_owned(),
                        Part::Field(field) => format!("${{{field}}}"),
                    })
                    .collect();
                prop_assert_eq!(whole, template);
            }
        }

        #[test]
        fn nothing_of_a_connection_is_told_when_it_lacks_something(secret in "[0-9]{8,20}", name in "[A-Z]{1,4}") {
            let env = json!({"A": format!("${{secrets.{name}}}")});
            let why = filled(env, json!({}), json!({name: secret.clone()}));
            prop_assert!(!why.unwrap_err().contains(&secret));
        }
    }
}
