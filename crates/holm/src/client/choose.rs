//! The choice of a server, a workspace and credentials for a command.

use super::contexts::{Context, Contexts, Credentials};
use super::{Choice, Client, base, sign_in};
use crate::error::Error;

/// What the user gave for one command, by flags and variables.
#[derive(Default)]
struct Given {
    server: Option<String>,
    workspace: Option<String>,
    credentials: Option<Credentials>,
}

#[derive(Debug)]
struct Chosen {
    server: String,
    workspace: Option<String>,
    credentials: Credentials,
    /// Name of the context that has the credentials, if they come from one.
    context: Option<String>,
}

impl Client {
    /// Chooses server and credentials: from flags, then the environment, then the contexts of
    /// `holm login`.
    pub(crate) fn choose(choice: &Choice) -> Result<Self, Error> {
        let given = Given {
            server: choice.server(),
            workspace: choice.workspace(),
            credentials: choice.credentials(),
        };
        let chosen = choose(given, &choice.contexts()?)?;
        Self::new(&chosen.server, chosen.workspace, chosen.credentials, chosen.context)
    }
}

impl Choice {
    /// Returns the server that a flag or a variable names.
    pub(crate) fn server(&self) -> Option<String> {
        self.server.clone().or_else(|| self.variable(&["HOLM_URL", "BL_API_URL"]))
    }

    /// Returns the workspace that a flag or a variable names.
    pub(crate) fn workspace(&self) -> Option<String> {
        self.workspace.clone().or_else(|| self.variable(&["HOLM_WORKSPACE", "BL_WORKSPACE"]))
    }

    /// Returns the name of the context that a flag or a variable names.
    pub(crate) fn context(&self) -> Option<String> {
        self.context.clone().or_else(|| variable("HOLM_CONTEXT"))
    }

    /// Returns the contexts of `holm login`. If a flag or a variable names one, that is the current
    /// one.
    pub(crate) fn contexts(&self) -> Result<Contexts, Error> {
        let mut contexts = Contexts::load()?;
        if let Some(name) = self.context() {
            let context = contexts.select(&name)?;
            if let (Some(_), Some(server)) = (&self.context, &self.server)
                && base(server)?.origin() != base(&context.server)?.origin()
            {
                return Err(Error::Usage(format!(
                    "the context `{name}` is of {}: leave out --server or --context",
                    context.server
                )));
            }
        }
        Ok(contexts)
    }

    fn credentials(&self) -> Option<Credentials> {
        self.variable(&KEYS)
            .map(Credentials::ApiKey)
            .or_else(|| sign_in::decode_pair(&self.variable(&[CLIENT_CREDENTIALS])?))
    }

    /// Returns the value of the first of these variables. Beside the flag `--context` none counts:
    /// they would mix two accounts.
    fn variable(&self, names: &[&str]) -> Option<String> {
        match self.context {
            Some(_) => None,
            None => names.iter().find_map(|name| variable(name)),
        }
    }
}

/// Takes the credentials of a context only for the server of that context.
fn choose(given: Given, contexts: &Contexts) -> Result<Chosen, Error> {
    if let Some(credentials) = given.credentials {
        let known = || contexts.current().map(|context| context.server.clone());
        let server = given.server.or_else(known).ok_or(Error::NotSignedIn)?;
        return Ok(Chosen { server, workspace: given.workspace, credentials, context: None });
    }
    let context = match &given.server {
        Some(server) => context_of(server, contexts)?
            .ok_or_else(|| Error::NotSignedInTo { server: server.clone() })?,
        None => contexts.current().ok_or(Error::NotSignedIn)?,
    };
    Ok(Chosen {
        server: given.server.unwrap_or_else(|| context.server.clone()),
        workspace: given.workspace.or_else(|| context.workspace.clone()),
        credentials: context.credentials.clone(),
        context: Some(context.name.clone()),
    })
}

/// Returns the context of a server: the current one if it is of this server, else the one that was
/// signed in to last.
pub(crate) fn context_of<'a>(
    server: &str,
    contexts: &'a Contexts,
) -> Result<Option<&'a Context>, Error> {
    let wanted = base(server)?.origin();
    let is_of_it =
        |context: &&Context| base(&context.server).is_ok_and(|base| base.origin() == wanted);
    let current = contexts.current().filter(is_of_it);
    Ok(current.or_else(|| contexts.contexts.iter().rev().find(is_of_it)))
}

const KEYS: [&str; 2] = ["HOLM_API_KEY", "BL_API_KEY"];
const CLIENT_CREDENTIALS: &str = "BL_CLIENT_CREDENTIALS";

/// Returns the variable that has the credentials, if one does.
pub(super) fn credentials_variable() -> Option<&'static str> {
    KEYS.into_iter().chain([CLIENT_CREDENTIALS]).find(|name| variable(name).is_some())
}

/// Returns the value of a variable. One that is set to nothing counts as not set.
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contexts(servers: &[&str]) -> Contexts {
        let mut all = Contexts::default();
        for server in servers {
            all.put(Context {
                name: format!("at {server}"),
                server: (*server).to_owned(),
                workspace: Some("main".into()),
                credentials: Credentials::ApiKey(format!("key of {server}")),
            });
        }
        all
    }

    fn named(server: &str) -> Given {
        Given { server: Some(server.to_owned()), ..Given::default() }
    }

    #[track_caller]
    fn check(given: Given, contexts: &Contexts, server: &str, context: &str) {
        let chosen = choose(given, contexts).unwrap();
        assert_eq!((chosen.server.as_str(), chosen.context.as_deref()), (server, Some(context)));
        let Credentials::ApiKey(key) = chosen.credentials else { panic!("another form") };
        assert_eq!(format!("at {}", key.trim_start_matches("key of ")), context);
    }

    #[test]
    fn credentials_of_a_context_go_to_its_own_server_only() {
        let all = contexts(&["https://b.example", "https://a.example"]);
        check(Given::default(), &all, "https://a.example", "at https://a.example");
        check(named("https://b.example/v0"), &all, "https://b.example/v0", "at https://b.example");
        for other in ["http://a.example", "https://a.example:8443", "https://a.example.evil"] {
            let error = choose(named(other), &all).unwrap_err();
            assert!(matches!(error, Error::NotSignedInTo { .. }), "{other}: {error}");
            assert!(error.next().unwrap().contains(&format!("holm login --server {other}")));
        }
    }

    #[test]
    fn the_workspace_of_a_context_does_not_go_with_a_given_key() {
        let all = contexts(&["https://a.example"]);
        let key = || Some(Credentials::ApiKey("given".into()));
        let given = Given { credentials: key(), ..named("https://b.example") };
        let chosen = choose(given, &all).unwrap();
        assert_eq!((chosen.workspace, chosen.context), (None, None));
        let given = Given { credentials: key(), ..Given::default() };
        assert_eq!(choose(given, &all).unwrap().server, "https://a.example");
    }
}
