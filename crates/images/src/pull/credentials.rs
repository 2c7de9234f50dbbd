//! Credentials for a registry.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use zeroize::Zeroizing;

use crate::error::Error;
use crate::manifest;
use crate::reference::{DEFAULT_HOST, Reference};

#[derive(Clone, Default)]
pub enum Credentials {
    #[default]
    None,
    Basic {
        user: String,
        password: Zeroizing<String>,
    },
    /// A token that the registry accepts directly.
    Bearer(Zeroizing<String>),
}

#[derive(Deserialize)]
struct DockerConfig {
    #[serde(default)]
    auths: BTreeMap<String, Auth>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Auth {
    auth: String,
    username: String,
    password: String,
    registrytoken: String,
}

impl Credentials {
    /// Finds the entry for an image's registry in the configuration file of Docker's clients.
    pub fn from_docker_config(config: &[u8], image: &Reference) -> Result<Self, Error> {
        // The parser's message about a wrong value would quote it, and it may be a secret.
        let config: DockerConfig =
            manifest::read("Docker configuration", config).map_err(|_| {
                Error::malformed("Docker configuration", "it is not the JSON that was expected")
            })?;
        let wanted = image.host().unwrap_or(DEFAULT_HOST);
        let entry = config.auths.into_iter().find(|(host, _)| registry(host) == wanted);
        entry.map_or(Ok(Self::None), |(_, auth)| auth.credentials())
    }
}

impl Auth {
    fn credentials(self) -> Result<Credentials, Error> {
        if !self.registrytoken.is_empty() {
            return Ok(Credentials::Bearer(self.registrytoken.into()));
        }
        if self.auth.is_empty() {
            return Ok(Credentials::Basic { user: self.username, password: self.password.into() });
        }
        let wrong = || {
            Error::malformed(
                "Docker configuration",
                "an `auth` is not base64 of a name and a password",
            )
        };
        let pair = STANDARD.decode(self.auth.trim()).map(Zeroizing::new).map_err(|_| wrong())?;
        let pair = std::str::from_utf8(&pair).map_err(|_| wrong())?;
        let (user, password) = pair.split_once(':').ok_or_else(wrong)?;
        Ok(Credentials::Basic {
            user: user.into(),
            password: password.trim_end_matches('\0').to_owned().into(),
        })
    }
}

/// Returns the host of a key, which may be a URL. The default registry has three names.
fn registry(key: &str) -> String {
    let key = key.trim_start_matches("https://").trim_start_matches("http://");
    let host = key.split('/').next().unwrap_or_default().to_ascii_lowercase();
    match host.as_str() {
        "index.docker.io" | "registry-1.docker.io" => DEFAULT_HOST.into(),
        _ => host,
    }
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::None => "None",
            Self::Basic { .. } => "Basic",
            Self::Bearer(_) => "Bearer",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn check(config: &str, image: &str, expect: Option<(&str, &str)>) {
        let found =
            Credentials::from_docker_config(config.as_bytes(), &image.parse().unwrap()).unwrap();
        match (&found, expect) {
            (Credentials::None, None) => {}
            (Credentials::Basic { user, password }, Some(expect)) => {
                assert_eq!((user.as_str(), password.as_str()), expect)
            }
            _ => panic!("{found:?}"),
        }
    }

    #[test]
    fn the_entry_of_the_registry_is_found() {
        let config = r#"{"auths": {
            "https://index.docker.io/v1/": {"auth": "dXNlcjpwYXNzOndvcmQ="},
            "host.example:5000": {"username": "a", "password": "b"}
        }}"#;
        check(config, "debian", Some(("user", "pass:word")));
        check(config, "docker.io/org/name", Some(("user", "pass:word")));
        check(config, "host.example:5000/name", Some(("a", "b")));
        check(config, "host.example/name", None);
        check("{}", "debian", None);
    }

    #[test]
    fn secrets_are_not_shown() {
        let shown = format!(
            "{:?}",
            Credentials::Basic { user: "u".into(), password: "secret".to_owned().into() }
        );
        assert_eq!(shown, "Basic");
        let config = br#"{"auths": {"docker.io": {"auth": ["secret"]}}}"#;
        let error = Credentials::from_docker_config(config, &"a".parse().unwrap()).unwrap_err();
        assert!(!format!("{error:?}").contains("secret"));
    }

    proptest! {
        #[test]
        fn no_configuration_panics(auth in "[a-zA-Z0-9+/=]{0,12}", host in "[a-z./:]{0,12}") {
            let config = serde_json::json!({"auths": {host: {"auth": auth}}}).to_string();
            let reference: Reference = "a".parse().map_err(|_| TestCaseError::fail("no reference"))?;
            let _ = Credentials::from_docker_config(config.as_bytes(), &reference);
        }
    }
}
